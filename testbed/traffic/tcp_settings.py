"""Set and read the sysctls of TCP at a network's hosts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from weft.testbed.linux import netns
from weft.testbed.runs.network_handle import NetworkHandle


def tune(net: NetworkHandle, sysctls: Mapping[str, str]) -> None:
    """Set sysctls, by path under /proc/sys/net, at every host.

    Raises:
        OSError: the kernel refused one; the message has its name.
    """

    def work() -> None:
        for host in range(net.topology.servers):
            netns.enter(net.netns(host))
            for path, value in sysctls.items():
                netns.write_sysctl(path, value)

    netns.in_thread(work)


def tcp_sysctls(net: NetworkHandle, host: int = 0) -> dict[str, str]:
    """Return every TCP sysctl of a host, by name."""

    def work() -> dict[str, str]:
        netns.enter(net.netns(host))
        paths = sorted(Path("/proc/sys/net/ipv4").glob("tcp_*"))
        readable = (
            path for path in paths if os.access(path, os.R_OK) and path.name != "tcp_fastopen_key"
        )
        return {path.name: " ".join(path.read_text().split()) for path in readable}

    return netns.in_thread(work)
