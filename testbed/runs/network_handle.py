"""Handles of a run: its namespaces, and the part of a network that measurements use.

The namespaces are for changes in pyroute2's words.  A NetworkHandle is a RunningNetwork or
Mininet's Net.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import Protocol

from weft.testbed.linux import clock, netlink, netns, tc
from weft.testbed.linux.iproute import Namespace
from weft.testbed.linux.process import Closing, need_root
from weft.testbed.runs import run
from weft.testbed.runs.run import RunRecord
from weft.topologies.core.topology import Topology


class Namespaces(Mapping[str, Namespace], Closing):
    """The namespace of each node of `record`, by the node's name, until closed.

    with weft.namespaces("demo") as nodes:
        nodes["h0"].ip.link("set", ifname="h0-eth0", mtu=1400)
    """

    def __init__(self, record: RunRecord) -> None:
        names = record.journal["namespaces"]
        start = len(record.namespace(""))
        self._by_node = {name[start:]: Namespace(name) for name in names}

    def __getitem__(self, node: str) -> Namespace:
        return self._by_node[node]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_node)

    def __len__(self) -> int:
        return len(self._by_node)

    def close(self) -> None:
        """Close every IPRoute; the namespaces stay."""
        for namespace in self._by_node.values():
            namespace.close()


def namespaces(name: str | None = None) -> Namespaces:
    """Return the namespaces of a live run, also of one that another process created.

    Args:
        name: of the run; None: $WEFT_RUN, or the only live run.

    Raises:
        ValueError: there is no such run, or this process is not root's.
    """
    need_root()
    return Namespaces(run.find(name))


class NetworkHandle(Protocol):
    """A network that is up."""

    @property
    def identity(self) -> RunRecord:
        """The run: its id, and the slot in which the indexes of its interfaces lie."""

    @property
    def topology(self) -> Topology:
        """The network as it is wired."""

    @property
    def local_nodes(self) -> Sequence[int]:
        """The nodes on this machine, in order."""

    def netns(self, node: int) -> int:
        """Return a descriptor of the namespace of `node`."""

    def ifindex(self, node: int, port: int) -> int:
        """Return the index of the interface at `port` of `node`."""


def device(net: NetworkHandle, node: int, port: int) -> str:
    """Return the name of the interface at `port` of `node`."""
    return f"{net.topology.naming.name(node)}-eth{port}"


def ports(net: NetworkHandle) -> dict[int, tuple[int, int]]:
    """Return (node, port) of every interface of the network, by interface index."""
    nodes = range(net.topology.nodes)
    return {
        net.ifindex(node, port): (node, port)
        for node in nodes
        for port, *_ in net.topology.ports(node)
    }


def routers(net: NetworkHandle) -> dict[int, int]:
    """Return the nodes that have an address, by address."""
    topology = net.topology
    return {
        topology.naming.address(node): node
        for node in range(topology.nodes)
        if not topology.is_crossbar(node)
    }


def all_pairs(net: NetworkHandle) -> list[tuple[int, int]]:
    """Return every ordered pair of different servers.

    Consecutive pairs differ in source and destination, so that probes in this order do not queue
    at a port.
    """
    count = net.topology.servers
    return [(src, (src + step) % count) for step in range(1, count) for src in range(count)]


def netlink_of(net: NetworkHandle, node: int) -> netlink.Socket:
    """Return a netlink socket in the namespace of `node`; the caller closes it."""
    with netns.inside(net.netns(node)):
        return netlink.Socket()


def smallest_queue(net: NetworkHandle) -> int | None:
    """Return the length in packets of the shortest queue of a run; None if none is limited.

    Host links are all alike, and so are all others: the ports of the first node and of its
    neighbours have both.
    """
    lengths: list[int] = []
    first = net.local_nodes[0]
    neighbours = {peer for _, peer, *_ in net.topology.ports(first)}
    for node in {first} | neighbours.intersection(net.local_nodes):
        with closing(netlink_of(net, node)) as socket:
            lengths += [
                shape.queue_packets for shape in tc.shapes(socket).values() if shape.queue_packets
            ]
    return min(lengths, default=None)


def has_rate(net: NetworkHandle) -> bool:
    """Return True if links have a rate, and hence queues; it is the same for all links of a run."""
    with closing(netlink_of(net, net.local_nodes[-1])) as socket:
        return any(shape.rate_bps for shape in tc.shapes(socket).values())


def require_rate(net: NetworkHandle, what: str) -> None:
    """Raise ValueError under the virtual clock if links have no rate.

    Such links carry any load in no time, so that `what`, a greedy sender, would send forever at one
    instant.
    """
    if clock.is_virtual() and not has_rate(net):
        raise ValueError(
            f"{what} needs links with a rate under the virtual clock: without one they never fill"
        )
