"""Machines for tests: namespaces of this machine, joined by an underlay of their own.

Each has its own network, mounts, processes and monotonic clock, and empty /run and /etc/netns.  All
ends with their processes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from weft.testbed.linux.clock import wait_until

ROOT = Path(__file__).parents[3]
WEFT = [sys.executable, "-m", "weft.experiments.cli.cli"]
UNSHARE = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
AHEAD_S = 1000  # of the clock of each machine before that of the machine before
# it tells by a word that it has mounted all
BEGIN = """
mkdir -p /etc/netns
for folder in /run /etc/netns; do mount -t tmpfs tmpfs $folder; done
ip link set lo up && echo ready && exec sleep infinity
"""


class Machine:
    """A machine: the process that keeps it, and the first one inside."""

    def __init__(self, name: str, ahead_s: int = 0) -> None:
        self.name = name
        clocks = ["--time", "--monotonic", str(ahead_s)]
        self.keeper = subprocess.Popen(
            [*UNSHARE, *clocks, "sh", "-ec", BEGIN], stdout=subprocess.PIPE, text=True
        )
        assert self.keeper.stdout
        assert self.keeper.stdout.readline() == "ready\n"
        children = Path(f"/proc/{self.keeper.pid}/task/{self.keeper.pid}/children")
        self.pid = int(children.read_text().split()[0])

    def enter(self, *words: str) -> list[str]:
        """Return the command that runs `words` inside."""
        return ["nsenter", "--target", str(self.pid), "--all", "--wdns=/", *words]

    def run(self, *words: str, check: bool = True) -> str:
        """Return what `words` print inside."""
        command = self.enter(*words)
        return subprocess.run(command, capture_output=True, text=True, check=check).stdout

    def weft(self) -> str:
        """Return the entry of the machine in a file of machines, without its address."""
        program = f"env PYTHONPATH={ROOT} {sys.executable} -P -m weft.experiments.cli.cli"
        return f"command: '{' '.join(self.enter())}', weft: '{program}'"

    def namespaces(self) -> list[str]:
        """Return the names of the namespaces in it."""
        return [line.split()[0] for line in self.run("ip", "netns", "list").splitlines()]

    def processes(self) -> dict[int, bytes]:
        """Return the command lines of weft's processes inside, as this machine numbers them."""
        space = os.readlink(f"/proc/{self.pid}/ns/pid")
        lines = {}
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if os.readlink(folder / "ns/pid") == space:
                    lines[int(folder.name)] = (folder / "cmdline").read_bytes()
        return {pid: line for pid, line in lines.items() if b"weft." in line}

    def agent(self) -> int:
        """Return the process of the agent inside, as this machine numbers it."""
        for pid, line in self.processes().items():
            if b"weft.experiments.cli.cli\0agent\0" in line:
                return pid
        raise AssertionError(f"{self.name} has no agent")

    def left(self) -> list[str]:
        """Return the names of all that runs have left inside."""
        folders = "/run/weft/* /run/netns/* /etc/netns/*"
        names = self.run("sh", "-c", f"ls -d {folders} 2>/dev/null", check=False).split()
        return names + [line.decode() for line in self.processes().values()]

    def end(self) -> None:
        self.keeper.kill()
        self.keeper.wait()


class Machines:
    """Machines m1, m2, ... at 10.99.0.1, 10.99.0.2, ..., and a file of them."""

    def __init__(self, count: int, folder: Path, mtu_bytes: int) -> None:
        self.switch = Machine("switch")
        self.all = [Machine(f"m{turn + 1}", turn * AHEAD_S) for turn in range(count)]
        self.switch.run("ip", "link", "add", "br0", "mtu", str(mtu_bytes), "up", "type", "bridge")
        entries = []
        for number, machine in enumerate(self.all, 1):
            ends = ["name", "under", "mtu", str(mtu_bytes), "netns", str(machine.pid)]
            port = f"port{number}"
            words = ["ip", "link", "add", port, "mtu", str(mtu_bytes), "type", "veth", "peer"]
            # process ids are those of this machine
            space = f"--net=/proc/{self.switch.pid}/ns/net"
            subprocess.run(["nsenter", space, *words, *ends], check=True)
            self.switch.run("ip", "link", "set", port, "master", "br0", "up")
            machine.run("ip", "address", "add", f"10.99.0.{number}/24", "dev", "under")
            machine.run("ip", "link", "set", "under", "up")
            entries.append(f"  {machine.name}: {{address: 10.99.0.{number}, {machine.weft()}}}\n")
        self.file = folder / "machines.yaml"
        self.file.write_text("machines:\n" + "".join(entries))

    def end(self) -> None:
        for machine in [*self.all, self.switch]:
            machine.end()

    def are_empty(self) -> bool:
        return not any(machine.left() for machine in self.all)

    def wait_until_empty(self) -> None:
        """Return when no machine has anything of a run."""
        wait_until("nothing is left on the machines", self.are_empty)


@contextmanager
def machines_here(count: int, folder: Path, mtu_bytes: int = 1600) -> Iterator[Machines]:
    """Yield so many machines; they end with the block."""
    machines = Machines(count, folder, mtu_bytes)
    try:
        yield machines
    finally:
        machines.end()


def weft(*words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run the weft command on this machine."""
    done = subprocess.run([*WEFT, *words], cwd=ROOT, capture_output=True, text=True, check=False)
    assert not check or done.returncode == 0, f"weft {' '.join(words)}: {done.stderr}"
    return done
