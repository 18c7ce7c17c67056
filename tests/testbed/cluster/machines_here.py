"""The machines of machines_here, and what tests look for in them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from weft.testbed.cluster import machines as product
from weft.testbed.linux.clock import wait_until

ROOT = Path(__file__).parents[3]
WEFT = [sys.executable, "-m", "weft.experiments.cli.cli"]


class Machine(product.MachineHere):
    """A machine into which a test looks."""

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


@dataclass
class Machines:
    """Machines m1, m2, ... at 10.99.0.1, 10.99.0.2, ..., and a file of them."""

    all: list[Machine]
    file: Path

    def are_empty(self) -> bool:
        return not any(machine.left() for machine in self.all)

    def wait_until_empty(self) -> None:
        """Return when no machine has anything of a run."""
        wait_until("nothing is left on the machines", self.are_empty)


@contextmanager
def machines_here(count: int, folder: Path, mtu_bytes: int = 1600) -> Iterator[Machines]:
    """Yield so many machines; they end with the block."""
    file = folder / "machines.yaml"
    with product.machines_here(file, count, mtu_bytes, Machine) as machines:
        yield Machines(machines, file)


def weft(*words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run the weft command on this machine."""
    done = subprocess.run([*WEFT, *words], cwd=ROOT, capture_output=True, text=True, check=False)
    assert not check or done.returncode == 0, f"weft {' '.join(words)}: {done.stderr}"
    return done
