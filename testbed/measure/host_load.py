"""Load of the machine and of the run's processes: two readings of the kernel's counters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from weft.testbed.linux import clock


@dataclass(frozen=True)
class Waits:
    """Time that a process was runnable without running, and its turns, since it began."""

    wait_ns: int
    turns: int


@dataclass(frozen=True)
class HostLoad:
    """Counters at `at_s` on CLOCK_MONOTONIC; None where this kernel keeps none.

    Attributes:
        pressure_us: time in which any process waited for a processor (PSI).
        processors_s: time of all processors.
        steal_s: part of it that the hypervisor gave to others.
        softnet_dropped: packets dropped by a full receive backlog, on the whole machine.
        softnet_squeezed: receive rounds that ended before their work, on the whole machine.
        waits: by name of the process.
    """

    at_s: float
    pressure_us: int | None
    processors_s: float
    steal_s: float
    softnet_dropped: int
    softnet_squeezed: int
    waits: Mapping[str, Waits]


def read(processes: Mapping[str, int]) -> HostLoad:
    """Return the counters now.

    Args:
        processes: process ids by name; a process that has ended is left out.
    """
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
        {name: wait for name, pid in processes.items() if (wait := waits(pid))},
    )


def pressure_us() -> int | None:
    """Return the µs since boot in which any process waited for a processor; None without PSI."""
    try:
        some = _lines("/proc/pressure/cpu")[0]
    except OSError:  # not built in, or switched off: the file is missing or refuses to be read
        return None
    return int(some.rpartition("total=")[2])


def waits(pid: int) -> Waits | None:
    """Return the waits of a process's main thread; None if it has ended, or without schedstat."""
    try:
        _, wait_ns, turns = _lines(f"/proc/{pid}/schedstat")[0].split()
    except OSError:
        return None
    return Waits(int(wait_ns), int(turns))


def steal_percent(before: HostLoad, after: HostLoad) -> float:
    """Return the share of processor time that the hypervisor gave to others."""
    processors_s = after.processors_s - before.processors_s
    return 100 * (after.steal_s - before.steal_s) / processors_s if processors_s else 0.0


def pressure_percent(before: HostLoad, after: HostLoad) -> float | None:
    """Return the share of time in which any process waited for a processor."""
    if before.pressure_us is None or after.pressure_us is None:
        return None
    return 100 * (after.pressure_us - before.pressure_us) / 1e6 / (after.at_s - before.at_s)


def mean_waits_ms(before: HostLoad, after: HostLoad) -> dict[str, float]:
    """Return the mean wait per turn of each process that ran, by name."""
    waits_ms = {}
    for name, now in after.waits.items():
        then = before.waits.get(name, Waits(0, 0))
        if now.turns > then.turns:
            waits_ms[name] = (now.wait_ns - then.wait_ns) / (now.turns - then.turns) / 1e6
    return waits_ms


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines()


def pss_kib(pid: int) -> int:
    """Return the proportional set size of a process."""
    return int(psutil.Process(pid).memory_full_info().pss) // 1024
