"""data_plane/transit_rewrite.bpf.c, loaded once and attached at every port of a network's servers;
their filters hold it."""

from __future__ import annotations

from contextlib import closing

from weft.daemons.core.node_config import routers
from weft.testbed.data_plane.transit_rewrite import TransitMaps
from weft.testbed.linux import libbpf, tc
from weft.testbed.runs.network_handle import NetworkHandle, device, netlink_of

PROGRAM = "transit_rewrite.bpf.o"
# of the filter: behind what swallows packets in a silent failure, ahead of what delays them
PRIORITY = 5
CACHE_SLOTS = 1 << 8  # for each server
FLOWS_PER_SERVER, MOST_FLOWS = 1 << 12, 1 << 20
MOST_PREFIXES = 1 << 20  # one takes memory only when it is set


def attach(net: NetworkHandle) -> int:
    """Load the program, which does nothing yet, attach it at every port of every router, and return
    its id."""
    link = net.identity.journal_or_empty().get("link")
    delayed = bool(link and (link["delay_us"] or link.get("hop_ns")))
    nodes = routers(net.topology)
    ports = [(node, port) for node in nodes for port, *_ in net.topology.ports(node)]
    entries = {
        "ports": 1 + max(net.ifindex(node, port) & 0xFFFF for node, port in ports),
        "servers": nodes.stop,
        "flows": min(nodes.stop * FLOWS_PER_SERVER, MOST_FLOWS),
        "prefixes": MOST_PREFIXES,
        "cache": nodes.stop * CACHE_SLOTS,
    }
    with libbpf.Object(libbpf.DIRECTORY / PROGRAM, entries=entries) as program:
        numbers = program.map("ports", "=I", "=2I")
        for node, port in ports:
            numbers[net.ifindex(node, port) & 0xFFFF,] = (1 + node, delayed)
        for node in nodes:
            messages = []
            for port, *_ in net.topology.ports(node):
                index, dev = net.ifindex(node, port), device(net, node, port)
                messages.append(tc.clsact(index, dev))
                messages.append(
                    libbpf.filter_message(
                        index,
                        dev,
                        program.program_fd("transit_rewrite"),
                        "transit_rewrite",
                        priority=PRIORITY,
                    )
                )
            with closing(netlink_of(net, node)) as socket:
                socket.request(messages)
        found = program_of(net)
    assert found is not None
    return found


def program_of(net: NetworkHandle) -> int | None:
    """The id of the program that is attached at the routers of `net`, None if there is none."""
    node = routers(net.topology).start
    port, *_ = net.topology.ports(node)[0]
    with closing(netlink_of(net, node)) as socket:
        return libbpf.program_at(socket, net.ifindex(node, port), PRIORITY)


def ensure(net: NetworkHandle) -> int:
    """The id of the program that is attached at the routers of `net`, which is done now unless it
    is."""
    program = program_of(net)
    return attach(net) if program is None else program


def of(net: NetworkHandle) -> TransitMaps:
    """The maps of that program."""
    return TransitMaps(ensure(net))
