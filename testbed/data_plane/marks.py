"""Loader of marks.bpf.c, by which switches mark packets of the kernel's own routes.

The kernel's multipath routes choose ports without the data plane, which marks the packets that it
forwards itself.  The filters hold the program.
"""

from __future__ import annotations

from weft.testbed.data_plane.port_programs import PortFilter, attach_at_ports
from weft.testbed.linux import libbpf, tc_filters
from weft.testbed.runs.network_handle import NetworkHandle

PROGRAM, FUNCTION = "marks.bpf.o", "mark"
PRIORITY = 6  # of the filters


def attach(net: NetworkHandle, packets: int) -> None:
    """Let every switch of `net` mark packets for whose port `packets` or more wait.

    Raises:
        BpfError: the kernel refused the program; it needs Linux 6.2.
    """
    with libbpf.Object(libbpf.DIRECTORY / PROGRAM) as program:
        program.map("threshold_packets", "=I", "=I")[0,] = (packets,)
        filters = [PortFilter(FUNCTION, program.program_fd(FUNCTION), tc_filters.EGRESS_HOOK)]
        for node in net.local_nodes:
            if node >= net.topology.servers:
                attach_at_ports(net, node, filters, PRIORITY)
