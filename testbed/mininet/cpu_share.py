"""Hosts with a share of the processor: Mininet's CPULimitedHost."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from weft.testbed.linux import cgroup, clock
from weft.testbed.mininet.lan_nodes import LanHost


class LimitedHost(LanHost):
    """A host in a control group, with a share of the machine's time and cores of its own."""

    def __init__(self, name: str, *args: Any, sched: str = "cfs", **params: Any) -> None:
        if sched != "cfs":
            raise ValueError(f"{name}: sched={sched}: shares of the processor are cfs here")
        if clock.is_virtual():
            raise ValueError(
                f"{name}: no host has a share of the processor under the virtual clock, where "
                "computing takes no time"
            )
        super().__init__(name, *args, **params)
        self.group = cgroup.ControlGroup(self.namespace)

    def startShell(self, mnopts: str | None = None) -> None:
        super().startShell(mnopts)
        if self.has_shell:
            self.group.add(self.pid)

    def beside_shell(self) -> list[str]:
        # The control group is entered first, because the node has another /sys.
        words: list[str] = super().beside_shell()  # of LazyShell
        return [*self.group.entering(), *words]

    def config(self, cpu: float = -1, cores: Any = None, **params: Any) -> Any:
        """Set the host's share (-1: no limit) and cores, and Mininet's own parameters."""
        self.setCPUFrac(cpu)
        self.setCPUs(cores)
        return super().config(**params)  # type: ignore[misc]

    def setCPUFrac(self, f: float, sched: str | None = None) -> None:
        """Set the share of all processors' time; -1: no limit."""
        if sched not in (None, "cfs"):
            raise ValueError(f"{self.name}: sched={sched}: shares of the processor are cfs here")
        self.group.limit(None if f is None or f < 0 else f * (os.cpu_count() or 1))

    def setCPUs(self, cores: Any, mems: int = 0) -> None:
        """Set the cores that the host may use; None: all."""
        if cores is not None and cores != []:
            numbers = cores if isinstance(cores, list | tuple) else [cores]
            self.group.pin(",".join(map(str, numbers)), self.pid)


def measure(hosts: Sequence[LimitedHost], fraction: float, seconds: int) -> list[float]:
    """Return the share of all processors (per cent) of each busy host in each second.

    The shares are in the order of the hosts, then of time, as in Mininet's runCpuLimitTest().
    """
    cores = os.cpu_count() or 1
    loops = max(1, -int(-cores * fraction // 1))
    pids = {
        host: [host.cmd("while true; do a=1; done & echo $!").split()[-1] for _ in range(loops)]
        for host in hosts
    }
    readings = {host: [_processor_time(host)] for host in hosts}
    for _ in range(seconds):
        clock.sleep(1)
        for host in hosts:
            readings[host].append(_processor_time(host))
    for host in hosts:
        host.cmd("kill -9 " + " ".join(pids[host]))
    shares = []
    for host in hosts:
        for (begin_s, before_s), (end_s, after_s) in pairwise(readings[host]):
            shares.append(100 * (after_s - before_s) / (end_s - begin_s) / cores)
    return shares


def _processor_time(host: LimitedHost) -> tuple[float, float]:
    """Return the time, and the processor time that the host has used, both in s."""
    return clock.monotonic(), host.group.used_ns() / 1e9
