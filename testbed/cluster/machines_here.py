"""Machines to try a network over several on one computer: namespaces, joined by a switch.

Each has its own network, mounts, processes and monotonic clock, and empty /run and /etc/netns.  The
process that keeps a machine dies with this one, also by SIGKILL, and all in the machine with it.
"""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from weft.testbed.runs import isolated_python

PROGRAM = isolated_python.shell_command("weft.experiments.cli.cli")
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
