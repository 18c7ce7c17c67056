"""The machines of a network, as a YAML file, and how weft starts a command on each.

    machines:
      a: {address: 10.0.0.1}
      b: {address: 10.0.0.2, ssh: root@10.0.0.2, processors: 8, memory: 32}
    delay: 100us  # one way, between two machines

Machine a, without `ssh` or another `command` that starts programs there, is the one that reads the
file.

Machines to try this on one computer are namespaces, joined by a switch.
Each has its own network, mounts, processes and monotonic clock, and empty /run and /etc/netns.  The
process that keeps a machine dies with this one, also by SIGKILL, and all in the machine with it.
"""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

from weft.testbed.cluster.leases import GONE_S
from weft.testbed.labs.text_file import Keys, keys, position, read, text_of
from weft.testbed.linux import clock
from weft.testbed.runs import isolated_python
from weft.topologies.core.grammar import quoted
from weft.topologies.core.link import delay_us

MACHINE_KEYS = ("address", "ssh", "command", "weft", "processors", "memory")
SSH_OPTIONS = (
    "BatchMode=yes",
    "ConnectTimeout=10",
    "ServerAliveInterval=1",
    f"ServerAliveCountMax={GONE_S:.0f}",
)
SSH = ("ssh", *(word for option in SSH_OPTIONS for word in ("-o", option)))
END_S, POLL_S = 30.0, 0.5
HERE = tuple(isolated_python.command("weft.experiments.cli.cli"))
KEEP = ["setpriv", "--pdeathsig", "KILL", "unshare", "--net", "--mount", "--pid", "--fork"]
SPACES = ["--kill-child", "--mount-proc", "--time", "--monotonic"]
AHEAD_S = 1000  # of the clock of each machine before that of the machine before
# it tells by a word that it has mounted all
BEGIN = """
mkdir -p /etc/netns
for folder in /run /etc/netns; do mount -t tmpfs tmpfs $folder; done
ip link set lo up && echo ready && exec sleep infinity
"""
MOST = 250  # in one network of 256 addresses


@dataclass(frozen=True)
class ClusterMachine:
    """A machine that holds a part of a network.

    address: IPv4 address that the other machines reach it by.
    start: the command that starts programs there; empty: this machine.
    weft: the command weft there.
    processors, memory: its size; 0: unknown.  The unit of memory is the same for all machines.
    """

    name: str
    address: str = ""
    start: Sequence[str] = ()
    weft: Sequence[str] = HERE
    processors: float = 0
    memory: float = 0

    def command(self, words: Sequence[str], *, terminal: bool = False) -> list[str]:
        """Return the command that runs `weft WORDS` there; terminal: with one, over ssh."""
        words = [*self.weft, *words]
        if SSH[0] not in self.start[:1]:
            return [*self.start, *words]
        # ssh hands one line to a shell there
        return [SSH[0], *["-t"] * terminal, *self.start[1:], shlex.join(words)]


@dataclass(frozen=True)
class Cluster:
    """The machines in order, and the one-way delay between two of them in microseconds."""

    machines: tuple[ClusterMachine, ...]
    delay_us: int = 0

    def shares(self) -> list[float]:
        """Return the share of the load that each machine takes, by its scarcer resource."""
        sizes = [(machine.processors, machine.memory) for machine in self.machines]
        shares = [1.0] * len(sizes)
        for amounts in zip(*sizes, strict=True):
            if any(amounts):
                shares = [
                    min(share, amount * len(sizes) / sum(amounts))
                    for share, amount in zip(shares, amounts, strict=True)
                ]
        return [share / sum(shares) for share in shares]


def cluster(text: str) -> Cluster:
    """Return `text` equal machines without names of hosts, or the machines of the file `text`.

    Raises:
        ValueError: neither a number of machines nor a file of them; one line says why.
    """
    if text.isdecimal():
        if not 1 <= int(text) <= 1000:
            raise ValueError(f"--machines: 1 to 1000 machines, got {text}")
        return Cluster(tuple(ClusterMachine(f"m{number + 1}") for number in range(int(text))))
    try:
        content = text_of(text)
    except ValueError as error:
        raise ValueError(f"--machines: a number, or a file of machines; {error}") from None
    return parse_cluster(content, text)


def cluster_from(path: str) -> Cluster:
    """Return the machines of a file; ValueError for a number of machines without addresses."""
    machines = cluster(path)
    if not all(machine.address for machine in machines.machines):
        raise ValueError(f"--machines: a file of machines with their addresses, got {path}")
    return machines


def parse_cluster(text: str, name: str) -> Cluster:
    """Return the machines in the text of the file called `name`; ValueError in one line."""
    content = keys(name, read(text, name), ("machines", "delay"))
    with position(content, "machines"):
        entries = keys("machines", content.get("machines"))
        machines = []
        for machine, entry in entries.items():
            with position(entries, machine):
                machines.append(_machine(machine, keys(f"machine {machine}", entry, MACHINE_KEYS)))
        if len({machine.address for machine in machines}) < len(machines):
            raise ValueError("machines: two machines have the same address")
    with position(content, "delay"):
        delay = delay_us(str(content["delay"])) if "delay" in content else 0
    return Cluster(tuple(machines), delay)


def _machine(name: str, entry: Keys) -> ClusterMachine:
    """Return the machine of `entry`."""
    if "ssh" in entry and "command" in entry:
        raise ValueError(f"machine {name}: either ssh or command, not both")
    start = shlex.split(str(entry.get("command", "")))
    if "ssh" in entry:
        start = [*SSH, *shlex.split(str(entry["ssh"]))]
    return ClusterMachine(
        name,
        str(IPv4Address(str(entry.get("address", "")))),
        tuple(start),
        shlex.split(str(entry.get("weft", "weft"))) if start else HERE,
        _size(entry, "processors"),
        _size(entry, "memory"),
    )


def _size(entry: Keys, key: str) -> float:
    value: Any = entry.get(key, 0)
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        raise ValueError(f"{key}: a number such as 8, got {quoted(value)}")
    return float(value)


def run_on_machines(commands: Sequence[tuple[str, Sequence[str]]]) -> list[str]:
    """Run commands at once, and return what they print.

    Args:
        commands: names of their machines, and commands of ClusterMachine.command().

    Raises:
        ValueError, OSError: a command failed; the line is its own.
    """
    processes = [
        subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,  # ssh would read that of this command
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _, command in commands
    ]
    results = [process.communicate() for process in processes]
    for (name, _), process, (_, errors) in zip(commands, processes, results, strict=True):
        if process.returncode:
            lines = errors.strip().splitlines() or ["the command failed"]
            error = f"machine {name}: {lines[-1].removeprefix('weft: ')}"
            raise ValueError(error) if process.returncode == 2 else OSError(error)
    return [output for output, _ in results]


def clean(machines: Sequence[ClusterMachine], name: str | None) -> list[str]:
    """Remove what dead runs left on `machines`, or only the parts of the run called `name`.

    An agent that lives without its controller removes its own part, which takes END_S at most.

    Returns:
        Machines and ids of the removed runs.

    Raises:
        ValueError: a part of `name` stays up.
    """
    parts = {f"{name}-{number}" for number in range(1, len(machines) + 1)}
    end_s = clock.monotonic() + END_S
    removed = []
    while True:
        listed = run_on_machines(
            [(machine.name, machine.command(["ps", "--json"])) for machine in machines]
        )
        runs = [
            (machine, row["run"], row["state"] == "dead")
            for machine, rows in zip(machines, map(json.loads, listed), strict=True)
            for row in rows
            if name is None or row["run"] in parts
        ]
        dead = [(machine, run) for machine, run, is_dead in runs if is_dead]
        run_on_machines(
            [(machine.name, machine.command(["clean", "--run", run])) for machine, run in dead]
        )
        removed += [f"{run} on machine {machine.name}" for machine, run in dead]
        if name is None or len(dead) == len(runs):
            return removed
        if clock.monotonic() > end_s:
            raise ValueError(f"run {name} is up on {len(runs)} machines; `weft down` removes it")
        clock.sleep(POLL_S)


PROGRAM = isolated_python.shell_command("weft.experiments.cli.cli")


class MachineHere:
    """A machine of machines_here(): the process that keeps it, and the first one inside."""

    def __init__(self, name: str, ahead_s: int = 0) -> None:
        """Make it; OSError if the kernel refuses."""
        self.name = name
        self.keeper = subprocess.Popen(
            [*KEEP, *SPACES, str(ahead_s), "sh", "-ec", BEGIN],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C is for the command that uses it
        )
        assert self.keeper.stdout
        if self.keeper.stdout.readline() != "ready\n":
            raise OSError(f"machine {name}: no namespaces for it (unshare: {self.keeper.wait()})")
        children = Path(f"/proc/{self.keeper.pid}/task/{self.keeper.pid}/children")
        self.pid = int(children.read_text().split()[0])

    def enter(self, *words: str) -> list[str]:
        """Return the command that runs `words` inside."""
        return ["nsenter", "--target", str(self.pid), "--all", "--wdns=/", *words]

    def run(self, *words: str, check: bool = True) -> str:
        """Return what `words` print inside."""
        command = self.enter(*words)
        return subprocess.run(command, capture_output=True, text=True, check=check).stdout

    def end(self) -> None:
        """End all that is inside."""
        self.keeper.kill()
        self.keeper.wait()


def connect(switch: MachineHere, machines: Sequence[MachineHere], mtu_bytes: int) -> None:
    """Join `machines` by a bridge in `switch`, at address() of their numbers from 1."""
    switch.run("ip", "link", "add", "br0", "mtu", str(mtu_bytes), "up", "type", "bridge")
    for number, machine in enumerate(machines, 1):
        ends = ["name", "under", "mtu", str(mtu_bytes), "netns", str(machine.pid)]
        port = f"port{number}"
        words = ["ip", "link", "add", port, "mtu", str(mtu_bytes), "type", "veth", "peer"]
        # process ids are those of this machine
        space = f"--net=/proc/{switch.pid}/ns/net"
        subprocess.run(["nsenter", space, *words, *ends], check=True)
        switch.run("ip", "link", "set", port, "master", "br0", "up")
        machine.run("ip", "address", "add", f"{address(number)}/24", "dev", "under")
        machine.run("ip", "link", "set", "under", "up")


def address(number: int) -> str:
    """Return the address of the machine with this number."""
    return f"10.99.0.{number}"


def lines(machines: Iterable[MachineHere]) -> Iterator[str]:
    """Yield the lines of a file of `machines`."""
    yield "machines:"
    for number, machine in enumerate(machines, 1):
        entry = {
            "address": address(number),
            "command": shlex.join(machine.enter()),
            "weft": shlex.join(PROGRAM),
        }
        yield f"  {machine.name}: {json.dumps(entry)}"


@contextmanager
def machines_here(
    file: Path, count: int, mtu_bytes: int = 1600, kind: type[MachineHere] = MachineHere
) -> Iterator[list[MachineHere]]:
    """Yield machines m1, m2, ..., which `file` lists; they and the file end with the block.

    Raises:
        OSError: the kernel refuses them, or the file cannot be written.
    """
    with ExitStack() as ending:
        machines = []
        for name, ahead_s in [("switch", 0), *[(f"m{n + 1}", n * AHEAD_S) for n in range(count)]]:
            machines.append(kind(name, ahead_s))
            ending.callback(machines[-1].end)
        switch, *rest = machines
        connect(switch, rest, mtu_bytes)
        file.write_text("\n".join(lines(rest)) + "\n")
        ending.callback(file.unlink, missing_ok=True)
        yield rest
