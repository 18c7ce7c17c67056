"""Hosts that get a share of the processor: Mininet's CPULimitedHost."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from weft.testbed.linux import cgroup, clock
from weft.testbed.mininet.lan_nodes import LanHost

if TYPE_CHECKING:
    from subprocess import Popen


class LimitedHost(LanHost):
    """A host in a control group.  cpu: its share of the machine's time, 0 to 1.  cores: those that
    it may run on."""

    def __init__(self, name: str, *args: Any, sched: str = "cfs", **params: Any) -> None:
        if sched != "cfs":
            raise ValueError(f"{name}: sched={sched}: shares of the processor are cfs here")
        if clock.is_virtual():
            raise ValueError(
                f"{name}: no host has a share of the processor under the virtual clock: "
                f"computing takes no time"
            )
        super().__init__(name, *args, **params)
        self.group = cgroup.ControlGroup(self.namespace)

    def startShell(self, mnopts: str | None = None) -> None:
        super().startShell(mnopts)
        if self.has_shell:
            self.group.add(self.pid)

    def popen(self, *args: Any, **params: Any) -> Popen[bytes]:
        """A process in the host's namespace and control group."""
        # in the node /sys is another
        enter = [*self.group.entering(), "mnexec", "-da", str(self.pid)]
        popen: Popen[bytes] = super().popen(*args, **({"mncmd": enter} | params))  # type: ignore[misc]
        return popen

    def config(self, cpu: float = -1, cores: Any = None, **params: Any) -> Any:
        """Set its share, -1 for all that there is, and its cores, beside what Mininet's config()
        does."""
        self.setCPUFrac(cpu)
        self.setCPUs(cores)
        return super().config(**params)  # type: ignore[misc]

    def setCPUFrac(self, f: float, sched: str | None = None) -> None:
        """Let the host have `f` of all processors' time; -1: all that there is."""
        if sched not in (None, "cfs"):
            raise ValueError(f"{self.name}: sched={sched}: shares of the processor are cfs here")
        self.group.limit(None if f is None or f < 0 else f * (os.cpu_count() or 1))

    def setCPUs(self, cores: Any, mems: int = 0) -> None:
        """Let the host run on these cores only; None: on all."""
        if cores is not None and cores != []:
            listed = cores if isinstance(cores, list | tuple) else [cores]
            self.group.pin(",".join(map(str, listed)), self.pid)


def measure(hosts: Sequence[LimitedHost], fraction: float, seconds: int) -> list[float]:
    """The share of all processors, in per cent, that each host has in each second while it computes
    without end.

    Host by host, as Mininet's runCpuLimitTest() has it.
    """
    cores = os.cpu_count() or 1
    busy = max(1, -int(-cores * fraction // 1))
    pids = {
        host: [host.cmd("while true; do a=1; done & echo $!").split()[-1] for _ in range(busy)]
        for host in hosts
    }
    found: dict[LimitedHost, list[float]] = {host: [] for host in hosts}
    before = {host: (clock.monotonic(), host.group.used_ns()) for host in hosts}
    for _ in range(seconds):
        clock.sleep(1)
        for host in hosts:
            now = clock.monotonic(), host.group.used_ns()
            took_s, used_s = now[0] - before[host][0], (now[1] - before[host][1]) / 1e9
            found[host].append(100 * used_s / took_s / cores)
            before[host] = now
    for host in hosts:
        host.cmd("kill -9 " + " ".join(pids[host]))
    return [share for host in hosts for share in found[host]]
