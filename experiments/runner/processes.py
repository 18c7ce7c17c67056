"""Processes by an identity that is never given twice, as process ids are."""

from __future__ import annotations

import os
from pathlib import Path

BOOT = Path("/proc/sys/kernel/random/boot_id")


def myself() -> str:
    """This process: its id, the time at which it began in ticks since boot, and the boot."""
    return f"{os.getpid()}:{began(os.getpid())}:{boot()}"


def lives(process: str) -> bool:
    """Whether the process that myself() named so runs; a zombie does not."""
    pid, ticks, of_boot = process.split(":", 2)
    return of_boot == boot() and bool(ticks) and ticks == began(int(pid))


def began(pid: int) -> str:
    """When the process began, in ticks since boot; empty if it does not run."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return "" if fields[0] in "ZX" else fields[19]  # fields 3 and 22 of proc(5)


def boot() -> str:
    """An id that is the same until the machine is started again."""
    return BOOT.read_text(encoding="utf-8").strip()
