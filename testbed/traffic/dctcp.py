"""DCTCP where the kernel has none: bpf/dctcp.bpf.c, registered for the length of a `with`.

    with Dctcp() as control:
        flows.run(net, wanted, congestion_control=control, ...)

Experimental.  The kernel's own, where it exists, is taken instead.
"""

from __future__ import annotations

from pathlib import Path

from weft.testbed.linux import libbpf

OBJECT = libbpf.DIRECTORY / "dctcp.bpf.o"
OWN, OURS = "dctcp", "weft_dctcp"
AVAILABLE = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")


class Dctcp:
    """Gives the name under which DCTCP is to be had; BpfError if it is not (BPF struct_ops with links: Linux 6.4)."""

    def __init__(self) -> None:
        self._object: libbpf.Object | None = None

    def __enter__(self) -> str:
        available = AVAILABLE.read_text().split()
        if OWN in available:
            return OWN
        if OURS in available:  # of another process; what dies with that one breaks no connection
            return OURS
        self._object = libbpf.Object(OBJECT, operations=OURS)
        try:
            self._object.register(OURS)
        except BaseException:
            self._object.close()
            raise
        return OURS

    def __exit__(self, *_: object) -> None:
        if self._object:
            self._object.close()
            self._object = None
