"""How hard pressed the machine and the run's processes are: what Linux counts anyway, read before and after."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from testbed.linux import clock


@dataclass(frozen=True)
class Waits:
    """How long a process was runnable without running, in all, and how often it got to run; both since it began."""

    wait_ns: int
    turns: int


@dataclass(frozen=True)
class Strain:
    """Counters at `at_s` on CLOCK_MONOTONIC; None where this kernel keeps none.

    pressure_us: time in which some process waited for a processor (PSI).
    ticks, steal_ticks: of all processors, and those that the hypervisor gave to others.
    softnet_dropped, softnet_squeezed: packets for which the kernel's receive backlog was full; rounds of receiving that
        ended before the work did.  Both of the whole machine.
    waits: of each process, by its name.
    """

    at_s: float
    pressure_us: int | None
    ticks: int
    steal_ticks: int
    softnet_dropped: int
    softnet_squeezed: int
    waits: Mapping[str, Waits]


def strain(processes: Mapping[str, int]) -> Strain:
    """The counters now; `processes`: which to look at, pid by name.  One that has ended is left out."""
    softnet = [[int(word, 16) for word in line.split()] for line in _lines("/proc/net/softnet_stat")]
    ticks = [int(word) for word in _lines("/proc/stat")[0].split()[1:9]]
    return Strain(
        clock.monotonic(),
        pressure_us(),
        sum(ticks),
        ticks[7],
        sum(row[1] for row in softnet),
        sum(row[2] for row in softnet),
        {name: found for name, pid in processes.items() if (found := waits(pid))},
    )


def pressure_us() -> int | None:
    """Microseconds since boot in which some process waited for a processor; None if this kernel does not count them."""
    try:
        some = _lines("/proc/pressure/cpu")[0]
    except OSError:  # not built in, or switched off: the file is missing or refuses to be read
        return None
    return int(some.rpartition("total=")[2])


def waits(pid: int) -> Waits | None:
    """What the main thread of a process waited for a processor; None if it has ended or nobody counts it."""
    try:
        _, wait_ns, turns = _lines(f"/proc/{pid}/schedstat")[0].split()
    except OSError:
        return None
    return Waits(int(wait_ns), int(turns))


def steal_percent(before: Strain, after: Strain) -> float:
    """How much of the time of this machine's processors the hypervisor gave to others."""
    ticks = after.ticks - before.ticks
    return 100 * (after.steal_ticks - before.steal_ticks) / ticks if ticks else 0.0


def pressure_percent(before: Strain, after: Strain) -> float | None:
    """How much of the time some process waited for a processor."""
    if before.pressure_us is None or after.pressure_us is None:
        return None
    return 100 * (after.pressure_us - before.pressure_us) / 1e6 / (after.at_s - before.at_s)


def mean_waits_ms(before: Strain, after: Strain) -> dict[str, float]:
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
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
