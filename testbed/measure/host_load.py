"""The load of the machine and of the run's processes: what Linux counts anyway, read before and
after."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from weft.testbed.linux import clock


@dataclass(frozen=True)
class Waits:
    """How long a process was runnable without running, in all, and how often it got to run; both
    since it began."""

    wait_ns: int
    turns: int


@dataclass(frozen=True)
class HostLoad:
    """Counters at `at_s` on CLOCK_MONOTONIC; None where this kernel keeps none.

    pressure_us: time in which some process waited for a processor (PSI).
    processors_s, steal_s: time of all processors, and the part that the hypervisor gave to others.
    softnet_dropped, softnet_squeezed: packets for which the kernel's receive backlog was full;
        rounds of receiving that ended before the work did.  Both of the whole machine.
    waits: of each process, by its name.
    """

    at_s: float
    pressure_us: int | None
    processors_s: float
    steal_s: float
    softnet_dropped: int
    softnet_squeezed: int
    waits: Mapping[str, Waits]


def read(processes: Mapping[str, int]) -> HostLoad:
    """The counters now; `processes`: which to look at, pid by name.  One that has ended is left
    out."""
    softnet = [
        [int(word, 16) for word in line.split()] for line in _lines("/proc/net/softnet_stat")
    ]
    cpu = psutil.cpu_times()
    guests_s = cpu.guest + cpu.guest_nice  # the kernel counts them as user time too
    return HostLoad(
        clock.monotonic(),
        pressure_us(),
        sum(cpu) - guests_s,
        cpu.steal,
        sum(row[1] for row in softnet),
        sum(row[2] for row in softnet),
        {name: found for name, pid in processes.items() if (found := waits(pid))},
    )


def pressure_us() -> int | None:
    """Microseconds since boot in which some process waited for a processor; None if this kernel
    does not count them."""
    try:
        some = _lines("/proc/pressure/cpu")[0]
    except OSError:  # not built in, or switched off: the file is missing or refuses to be read
        return None
    return int(some.rpartition("total=")[2])


def waits(pid: int) -> Waits | None:
    """What the main thread of a process waited for a processor; None if it has ended or the kernel
    counts none."""
    try:
        _, wait_ns, turns = _lines(f"/proc/{pid}/schedstat")[0].split()
    except OSError:
        return None
    return Waits(int(wait_ns), int(turns))


def steal_percent(before: HostLoad, after: HostLoad) -> float:
    """How much of the time of this machine's processors the hypervisor gave to others."""
    processors_s = after.processors_s - before.processors_s
    return 100 * (after.steal_s - before.steal_s) / processors_s if processors_s else 0.0


def pressure_percent(before: HostLoad, after: HostLoad) -> float | None:
    """How much of the time some process waited for a processor."""
    if before.pressure_us is None or after.pressure_us is None:
        return None
    return 100 * (after.pressure_us - before.pressure_us) / 1e6 / (after.at_s - before.at_s)


def mean_waits_ms(before: HostLoad, after: HostLoad) -> dict[str, float]:
    """How long each process that ran waited on average before it got to run."""
    found = {}
    for name, now in after.waits.items():
        then = before.waits.get(name, Waits(0, 0))
        if now.turns > then.turns:
            found[name] = (now.wait_ns - then.wait_ns) / (now.turns - then.turns) / 1e6
    return found


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines()


def pss_kib(pid: int) -> int:
    """The memory of a process, what it shares divided among those that share it."""
    return int(psutil.Process(pid).memory_full_info().pss) // 1024
