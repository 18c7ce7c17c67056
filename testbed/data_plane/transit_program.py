"""Loader of transit_rewrite.bpf.c: loaded once, attached at every port of a network's servers.

The filters hold the program: it stays attached after the loading process has ended.
"""

from __future__ import annotations

from weft.daemons.core.node_config import routers
from weft.testbed.data_plane.port_filters import PortFilter, attach_at_ports, program_at
from weft.testbed.data_plane.transit_rewrite import TransitMaps
from weft.testbed.linux import clock, libbpf
from weft.testbed.runs.network_handle import NetworkHandle

PROGRAM = "transit_rewrite.bpf.o"
FUNCTION = "transit_rewrite"
# of the filter: behind what swallows packets in a silent failure, ahead of what delays them
PRIORITY = 5
CACHE_SLOTS = 1 << 8  # for each server
FLOWS_PER_SERVER, MOST_FLOWS = 1 << 12, 1 << 20
MOST_PREFIXES = 1 << 20  # one takes memory only when it is set


def attach(net: NetworkHandle) -> int:
    """Load the program without rules, attach it at every port of every router; return its id."""
    nodes = _routers(net)
    numbers = routers(net.topology).stop
    ports = [(node, port) for node in nodes for port, *_ in net.topology.ports(node)]
    entries = {
        "ports": 1 + max(net.ifindex(node, port) & 0xFFFF for node, port in ports),
        "servers": numbers,
        "flows": min(len(nodes) * FLOWS_PER_SERVER, MOST_FLOWS),
        "prefixes": MOST_PREFIXES,
        "cache": numbers * CACHE_SLOTS,
    }
    with libbpf.Object(libbpf.DIRECTORY / PROGRAM, entries=entries) as program:
        port_entries = program.map("ports", "=I", "=2I")
        has_delay = _has_delay(net)
        for node, port in ports:
            port_entries[net.ifindex(node, port) & 0xFFFF,] = (1 + node, has_delay)
        filters = [PortFilter(FUNCTION, program.program_fd(FUNCTION))]
        for node in nodes:
            attach_at_ports(net, node, filters, PRIORITY)
        program_id = program_of(net)
    assert program_id is not None
    return program_id


def _routers(net: NetworkHandle) -> list[int]:
    """Return the routers on this machine."""
    here = set(net.local_nodes)
    return [node for node in routers(net.topology) if node in here]


def _has_delay(net: NetworkHandle) -> bool:
    """Return True if another filter delays packets."""
    link = net.identity.journal_or_empty().get("link")
    return not clock.is_virtual() and bool(link and (link["delay_us"] or link.get("hop_ns")))


def program_of(net: NetworkHandle) -> int | None:
    """Return the id of the program attached at the routers of `net`, None without one."""
    node = _routers(net)[0]
    port, *_ = net.topology.ports(node)[0]
    return program_at(net, node, port, PRIORITY)


def ensure(net: NetworkHandle) -> int:
    """Attach the program at the routers of `net` unless it is attached; return its id."""
    program = program_of(net)
    return attach(net) if program is None else program


def of(net: NetworkHandle) -> TransitMaps:
    """Return the maps of the program at the routers of `net`, which is attached first if needed."""
    return TransitMaps(ensure(net))
