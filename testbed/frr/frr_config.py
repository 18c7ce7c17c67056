"""Configuration of FRR's daemons for a planned network: OSPF between servers, BGP in fabrics.

BFD detects dead links in both.  All other timers are as short as is safe, so BFD's hello interval
decides the time to recover.

OSPF: one area; a link between servers is a point-to-point network, a crossbar a broadcast network;
one path per destination.

BGP, as in data centers (RFC 7938): an AS for each edge switch, one for the aggregation switches of
a pod, one for all core switches; a session over each link between its two addresses.  Edge switches
announce their hosts' prefix.  All equal paths are used; the kernel hashes addresses and ports.

FRR needs addresses on links: 172.16.0.0/16 between two routers, 172.24.0.0/13 at crossbars.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from weft.daemons.routing import updown
from weft.testbed.linux import fib, netlink, tc_filters
from weft.testbed.linux.interface import add_address
from weft.testbed.plan.network_plan import End, NetworkPlan
from weft.topologies.core.address import FabricNaming, Prefix, dotted, parse_digits
from weft.topologies.core.topology import Topology

RTPROT_BGP, RTPROT_OSPF = 186, 188
# first addresses of links
POINT_TO_POINT = 172 << 24 | 16 << 16
BROADCAST = 172 << 24 | 24 << 16
MOST_LINKS = 1 << 15  # in 172.16.0.0/16
MOST_CROSSBARS = 1 << 11  # in 172.24.0.0/13
FIRST_AS = 4_200_000_000  # for private use (RFC 6996)
PROFILE = "fast"  # of BFD
MOST_TIERS = 3  # of RFC 7938's plan of AS numbers


@dataclass(frozen=True)
class Routing(ABC):
    """A routing protocol on the routers of `plan`.

    Attributes:
        hello_ms: interval of BFD's hellos.
        dead: lost hellos after which BFD declares a neighbour dead.
        daemon: FRR's daemon of the protocol.
        kernel: protocol number of its routes in the kernel.

    Raises:
        ValueError: the protocol does not fit the network, or its links exceed the address ranges.
    """

    plan: NetworkPlan
    hello_ms: int = 30
    dead: int = 3
    daemon: ClassVar[str]
    kernel: ClassVar[int]

    def __post_init__(self) -> None:
        topology = self.plan.topology
        if len(topology.links) > MOST_LINKS or (
            topology.server_centric and topology.switches > MOST_CROSSBARS
        ):
            raise ValueError(
                f"FRR: {topology.spec} has more links than the address ranges of links hold"
            )

    @property
    def daemons(self) -> tuple[str, ...]:
        """Return FRR's daemons of a node in the order of their start."""
        return "zebra", "bfdd", self.daemon

    @property
    def nodes(self) -> list[int]:
        """Return the nodes that route."""
        return [node for node in range(self.plan.topology.nodes) if self.plan.is_router(node)]

    @abstractmethod
    def lines(self, node: int) -> list[str]:
        """Return the configuration of the protocol itself."""

    @abstractmethod
    def expected(self, node: int) -> dict[Prefix, int]:
        """Return the next hops of each route of `node` without failures, as a count by prefix."""

    def files(self, node: int) -> dict[str, str]:
        """Return the configuration of each daemon of `node`."""
        bfd = ["bfd", f" profile {PROFILE}", f"  transmit-interval {self.hello_ms}"]
        bfd += [f"  receive-interval {self.hello_ms}", f"  detect-multiplier {self.dead}"]
        # Pings are answered from the node's own address, as with our daemons.
        zebra = ["route-map own permit 10", f" set src {self.own(node)}"]
        # When a link goes down the kernel removes its hop from a shared nexthop object.  zebra
        # (8.4) misses that, so routes would have one hop after a flap.
        zebra += ["no zebra nexthop kernel enable"]
        zebra += [f"ip protocol {self.daemon.removesuffix('d')} route-map own"]
        configurations = {"zebra": zebra, "bfdd": bfd, self.daemon: self.lines(node)}
        return {
            daemon: "\n".join([f"hostname {self.plan.names[node]}", *configurations[daemon], ""])
            for daemon in self.daemons
        }

    def messages(self, node: int) -> list[netlink.NetlinkMessage]:
        """Return the kernel's settings: addresses of links, and priority for FRR's packets."""
        ends = self.links(node).values()
        priorities = [tc_filters.routing_first(end) for end in ends] if self.plan.link_specs else []
        return [*(add_address(end, self.address(node, end)) for end in ends), *priorities]

    def sessions(self, node: int) -> int:
        """Return the number of BFD sessions of `node`."""
        return sum(len(self.plan.one_hop(node, port)) for port in self.links(node))

    def links(self, node: int) -> dict[int, End]:
        """Return the ports of `node` to other routers."""
        plan = self.plan
        return {
            port: end
            for port, end in plan.ends[node].items()
            if plan.topology.is_crossbar(end.peer) or plan.is_router(end.peer)
        }

    def own(self, node: int) -> str:
        """Return the address of `node`."""
        return dotted(self.plan.address(node))

    def address(self, node: int, end: End) -> Prefix:
        """Return the address and prefix length of `node` on the link at `end`."""
        topology = self.plan.topology
        if topology.is_crossbar(end.peer):
            return Prefix(BROADCAST | (end.peer - topology.servers) << 8 | end.peer_port + 1, 24)
        first, *_ = topology.links[end.link].tolist()
        return Prefix(POINT_TO_POINT | 2 * end.link + (first != node), 31)


class Ospf(Routing):
    """OSPF on the servers of a server-centric network."""

    daemon = "ospfd"
    kernel = RTPROT_OSPF

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.plan.topology.server_centric:
            raise ValueError(
                f"FRR's OSPF needs a network in which servers route, unlike "
                f"{self.plan.topology.spec}"
            )

    def lines(self, node: int) -> list[str]:
        # Hundreds of routers that start on one machine must neither declare each other dead nor run
        # SPF for each new neighbour.  A single failure is unaffected: BFD detects it, and the first
        # SPF run is immediate.
        routers = len(self.nodes)
        dead_s = max(4, routers // 8)
        most_hold_ms = max(200, 10 * routers)
        lines = ["interface lo", " ip ospf area 0"]
        for end in self.links(node).values():
            kind = "broadcast" if self.plan.topology.is_crossbar(end.peer) else "point-to-point"
            lines += [
                f"interface {end.dev}",
                " ip ospf area 0",
                f" ip ospf network {kind}",
                " ip ospf bfd",
                f" ip ospf bfd profile {PROFILE}",
                " ip ospf hello-interval 1",
                f" ip ospf dead-interval {dead_s}",
            ]
        return [
            *lines,
            "router ospf",
            f" ospf router-id {self.own(node)}",
            " maximum-paths 1",
            f" timers throttle spf 0 20 {most_hold_ms}",
            " timers throttle lsa all 20",
            " timers lsa min-arrival 10",
        ]

    def expected(self, node: int) -> dict[Prefix, int]:
        servers = range(self.plan.topology.servers)
        return {Prefix(self.plan.address(other), 32): 1 for other in servers if other != node}


class Bgp(Routing):
    """BGP on the switches of a fabric of at most three tiers."""

    daemon = "bgpd"
    kernel = RTPROT_BGP

    def __post_init__(self) -> None:
        super().__post_init__()
        naming = self.plan.topology.naming
        if not isinstance(naming, FabricNaming) or len(naming.tiers) > MOST_TIERS:
            raise ValueError(
                f"FRR's BGP needs a switch fabric of at most {MOST_TIERS} tiers, unlike "
                f"{self.plan.topology.spec}"
            )

    def lines(self, node: int) -> list[str]:
        plan = self.plan
        systems = as_numbers(plan.topology)
        lines = [
            "frr defaults datacenter",
            f"router bgp {systems[node]}",
            f" bgp router-id {self.own(node)}",
            # Equal paths have different ASes, since no AS is on two of them.
            " bgp bestpath as-path multipath-relax",
            " no bgp network import-check",
        ]
        for end in self.links(node).values():
            peer = dotted(self.address(end.peer, plan.ends[end.peer][end.peer_port]).network)
            lines += [
                f" neighbor {peer} remote-as {systems[end.peer]}",
                f" neighbor {peer} bfd profile {PROFILE}",
                f" neighbor {peer} advertisement-interval 0",
                f" neighbor {peer} timers connect 1",
            ]
        lines += [" address-family ipv4 unicast", "  maximum-paths 64"]
        prefix = self._announced().get(node)
        if prefix:
            lines.append(f"  network {prefix}")
        return lines

    def expected(self, node: int) -> dict[Prefix, int]:
        topology = self.plan.topology
        hops = updown.next_hops(topology, node)
        first = {_edge(topology, host): host for host in reversed(range(topology.servers))}
        return {
            prefix: len(hops[first[edge]])
            for edge, prefix in self._announced().items()
            if edge != node
        }

    def messages(self, node: int) -> list[netlink.NetlinkMessage]:
        """Return the kernel's settings, with a route to each host of `node`."""
        plan = self.plan
        source = plan.address(node)
        hosts = [end for end in plan.ends[node].values() if end.peer < plan.topology.servers]
        routes = [
            fib.route_message(
                Prefix(plan.address(end.peer), 32),
                [(end.ifindex, end.dev, plan.address(end.peer))],
                source,
            )
            for end in hosts
        ]
        return [*super().messages(node), *routes]

    def _announced(self) -> dict[int, Prefix]:
        """Return the prefix of the hosts of each edge switch."""
        topology = self.plan.topology
        layout = topology.naming.layout
        return {
            _edge(topology, host): layout.prefix(layout.label_of(host)[:-1])
            for host in range(topology.servers)
        }


def as_numbers(topology: Topology) -> dict[int, int]:
    """Return the AS of each switch: one per edge switch, one per pod between, one for the top tier.

    BGP then rejects a path that goes down and up again, or through two aggregation switches of a
    pod: it would contain an AS twice.
    """
    naming = topology.naming
    assert isinstance(naming, FabricNaming)
    systems: dict[tuple[int, tuple[int, ...]], int] = {}
    numbers = {}
    for switch in range(topology.servers, topology.nodes):
        tier = naming.tier(switch)
        if tier == 1:  # of a user's network, too, whose names have no digits
            group: tuple[int, ...] = (switch,)
        elif tier == len(naming.tiers):
            group = ()
        else:
            group = parse_digits(naming.name(switch)[1:])[:1]
        numbers[switch] = systems.setdefault((tier, group), FIRST_AS + len(systems))
    return numbers


def _edge(topology: Topology, host: int) -> int:
    """Return the edge switch of a host."""
    ((_, switch, _, _),) = topology.ports(host)
    return switch
