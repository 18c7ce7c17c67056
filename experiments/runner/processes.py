"""Identities of processes; unlike process ids they are never reused."""

from __future__ import annotations

import os
from pathlib import Path

BOOT = Path("/proc/sys/kernel/random/boot_id")


def myself() -> str:
    """Return the identity of this process: id, start time in ticks since boot, and boot id."""
    return f"{os.getpid()}:{began(os.getpid())}:{boot()}"


def lives(process: str) -> bool:
    """Return True if the process with this identity runs; a zombie does not."""
    pid, ticks, of_boot = process.split(":", 2)
    return of_boot == boot() and bool(ticks) and ticks == began(int(pid))


def began(pid: int) -> str:
    """Return the start time of a process in ticks since boot; empty if it does not run."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return "" if fields[0] in "ZX" else fields[19]  # fields 3 and 22 of proc(5)


def boot() -> str:
    """Return the boot id of the machine."""
    return BOOT.read_text(encoding="utf-8").strip()
