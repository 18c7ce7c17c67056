"""The settings of TCP at a network's hosts (sysctls): set, and read back."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from weft.testbed.linux import netns
from weft.testbed.runs.network_handle import NetworkHandle


def tune(net: NetworkHandle, sysctls: Mapping[str, str]) -> None:
    """Set sysctls, paths under /proc/sys/net, at every host.

    OSError with its name for one that the kernel refuses.
    """

    def work() -> None:
        for host in range(net.topology.servers):
            netns.enter(net.netns(host))
            for path, value in sysctls.items():
                netns.write_sysctl(path, value)

    netns.in_thread(work)


def tcp_sysctls(net: NetworkHandle, host: int = 0) -> dict[str, str]:
    """Every TCP setting of a host, read back."""

    def work() -> dict[str, str]:
        netns.enter(net.netns(host))
        paths = sorted(Path("/proc/sys/net/ipv4").glob("tcp_*"))
        readable = (
            path for path in paths if os.access(path, os.R_OK) and path.name != "tcp_fastopen_key"
        )
        return {path.name: " ".join(path.read_text().split()) for path in readable}

    return netns.in_thread(work)
