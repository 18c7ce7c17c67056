"""What a measurement needs of a network: testbed.network.network.RunningNetwork has it, and so has
Net."""

from __future__ import annotations

from typing import Protocol

from weft.testbed.linux import clock, netlink, netns, tc
from weft.testbed.runs.run import RunRecord
from weft.topologies.core.topology import Topology


class NetworkHandle(Protocol):
    """A network that is up."""

    @property
    def identity(self) -> RunRecord:
        """The run: its id, and the slot in which the indexes of its interfaces lie."""

    @property
    def topology(self) -> Topology:
        """What is wired to what."""

    def netns(self, node: int) -> int:
        """A descriptor of the namespace of `node`."""

    def ifindex(self, node: int, port: int) -> int:
        """The index of the interface that is `port` of `node`."""


def device(net: NetworkHandle, node: int, port: int) -> str:
    """The name of the interface that is `port` of `node`."""
    return f"{net.topology.naming.name(node)}-eth{port}"


def ports(net: NetworkHandle) -> dict[int, tuple[int, int]]:
    """(node, port) of every interface of the network, by interface index."""
    nodes = range(net.topology.nodes)
    return {
        net.ifindex(node, port): (node, port)
        for node in nodes
        for port, *_ in net.topology.ports(node)
    }


def routers(net: NetworkHandle) -> dict[int, int]:
    """The nodes that have an address, by address."""
    topology = net.topology
    return {
        topology.naming.address(node): node
        for node in range(topology.nodes)
        if not topology.is_crossbar(node)
    }


def all_pairs(net: NetworkHandle) -> list[tuple[int, int]]:
    """Every ordered pair of different servers, so ordered that neighbours in the list begin and end
    at different ones: probes sent in this order meet at no port."""
    count = net.topology.servers
    return [(src, (src + step) % count) for step in range(1, count) for src in range(count)]


def netlink_of(net: NetworkHandle, node: int) -> netlink.Socket:
    """A netlink socket in the namespace of `node`, the caller's to close."""
    with netns.inside(net.netns(node)):
        return netlink.Socket()


def smallest_queue(net: NetworkHandle) -> int | None:
    """Packets that the shortest queue of a run's ports holds, None if none is limited.

    Host links are all alike, and so are all others: the ports of the first server and of its
    switches show both.
    """
    found = []
    for node in {0, *(peer for _, peer, *_ in net.topology.ports(0))}:
        socket = netlink_of(net, node)
        try:
            found += [
                shape.queue_packets for shape in tc.shapes(socket).values() if shape.queue_packets
            ]
        finally:
            socket.close()
    return min(found, default=None)


def has_rate(net: NetworkHandle) -> bool:
    """Whether the links of the network have a rate, and so queues in which packets wait; a run's
    are alike."""
    socket = netlink_of(net, net.topology.nodes - 1)
    try:
        return any(shape.rate_bps for shape in tc.shapes(socket).values())
    finally:
        socket.close()


def require_rate(net: NetworkHandle, what: str) -> None:
    """ValueError if `what`, which sends as fast as it can, would send without end at one instant:
    under the virtual clock links without a rate carry any load in no time."""
    if clock.is_virtual() and not has_rate(net):
        raise ValueError(
            f"{what} needs links with a rate under the virtual clock: without one they never fill"
        )
