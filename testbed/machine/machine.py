"""The machine of a result: kernel, processors, and settings that change networks."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

import psutil

# of the initial namespace: those that all namespaces share, or that a new one starts with
SYSCTLS = (
    "kernel/sched_rt_runtime_us",
    "net/core/bpf_jit_enable",
    "net/core/default_qdisc",
    "net/core/dev_weight",
    "net/core/netdev_budget",
    "net/core/netdev_budget_usecs",
    "net/core/netdev_max_backlog",
    "net/core/rmem_max",
    "net/core/wmem_max",
    "net/ipv4/fib_sync_mem",
    "net/ipv4/tcp_available_congestion_control",
    "net/ipv4/tcp_congestion_control",
    "net/ipv4/tcp_ecn",
    "net/ipv4/tcp_min_rtt_wlen",
    "net/ipv4/tcp_rmem",
    "net/ipv4/tcp_wmem",
)
# Memory in MB, measured on Linux 6.18 and rounded down: kernel objects of a namespace and of a veth
# pair, and what a daemon's process has for itself.
NAMESPACE_MB, LINK_MB, DAEMON_MB = 0.23, 0.09, 1.5
CPU_MODEL = ("model name", "Model", "cpu model", "Hardware")  # in /proc/cpuinfo, by architecture


def machine() -> dict[str, Any]:
    """Return the machine, JSON-able; None for values that the system does not tell."""
    info = cpuinfo()
    return {
        "kernel": platform.release(),
        "kernel_version": platform.version(),
        "architecture": platform.machine(),
        "cpus": len(os.sched_getaffinity(0)),
        "cpus_of_machine": psutil.cpu_count(),
        "cpu_model": next((info[key] for key in CPU_MODEL if key in info), None),
        "memory_bytes": psutil.virtual_memory().total,
        "virtualization": virtualization(info),
        "clocksource": _text("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        "python": platform.python_version(),
        "sysctls": {name.replace("/", "."): _text(f"/proc/sys/{name}") for name in SYSCTLS},
    }


def require_room(spec: str, *, namespaces: int, links: int, processes: int) -> None:
    """Raise ValueError unless this machine has memory and process ids for a network.

    Args:
        spec: the network's name, for the message.
        namespaces: its nodes.
        links: its links.
        processes: those of its daemons.
    """
    needed_mb = NAMESPACE_MB * namespaces + LINK_MB * links + DAEMON_MB * processes
    parts = f"{namespaces:,} namespaces, {links:,} links, {processes:,} daemon processes"
    advice = "; --packed P shares the daemons among P processes"
    require_memory(f"{spec} ({parts})", needed_mb * 1e6, advice)
    limits = {name: _text(f"/proc/sys/kernel/{name}") for name in ("pid_max", "threads-max")}
    limits["pids.max of the control group"] = _text(f"/sys/fs/cgroup{_control_group()}/pids.max")
    for name, limit in limits.items():
        if limit and limit.isdecimal() and processes >= int(limit):
            raise ValueError(
                f"{spec} needs {processes:,} daemon processes, and {name} is {limit}; use "
                f"--packed P"
            )


def require_memory(what: str, needed_bytes: float, advice: str = "") -> None:
    """Raise ValueError, with `advice`, if `what` needs more memory than the machine has free."""
    free_bytes = psutil.virtual_memory().available
    if needed_bytes > free_bytes:
        raise ValueError(
            f"{what} needs about {needed_bytes / 1e9:,.1f} GB of memory, and "
            f"{free_bytes / 1e9:,.1f} GB are free{advice}"
        )


def _control_group() -> str:
    """Return the path of this process's control group of version 2, empty without one."""
    return (_text("/proc/self/cgroup") or "").rpartition("0::")[2].rstrip("/")


def cpuinfo() -> dict[str, str]:
    """Return /proc/cpuinfo's fields of the first processor and of the machine."""
    fields: dict[str, str] = {}
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        key, colon, value = line.partition(":")
        if colon:
            fields.setdefault(key.strip(), value.strip())
    return fields


def virtualization(info: dict[str, str]) -> str | None:
    """Return User-Mode Linux or the firmware's name of the hypervisor; None on bare metal."""
    if "User Mode Linux" in info.get("vendor_id", ""):
        return "User-Mode Linux"
    if "hypervisor" not in info.get("flags", "").split():
        return None
    return (
        _text("/sys/class/dmi/id/product_name")
        or _text("/sys/hypervisor/type")
        or "unknown hypervisor"
    )


def _text(path: str) -> str | None:
    """Return a file with its whitespace as single spaces; None if it cannot be read."""
    try:
        return " ".join(Path(path).read_text().split())
    except OSError:
        return None
