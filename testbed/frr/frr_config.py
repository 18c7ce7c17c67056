"""What FRR's daemons are told so that they route a planned network: OSPF in server-centric ones,
BGP in switch fabrics.

Both find dead links by BFD, and all their own timers are as short as they go without harm: what
decides is how often BFD says hello.

OSPF: one area; a link between servers is a point-to-point network, a crossbar a broadcast network;
one path each. BGP: as data centres use it (RFC 7938): an AS for each edge switch, one for the
aggregation switches of a pod, one for
    all core switches; a session over each link between its two addresses; edge switches announce
    their hosts' prefix; all equally good paths are used, and the kernel takes one by a flow's
    addresses and ports.

Links have addresses here, since FRR wants them: of 172.16.0.0/16 between two routers, of
172.24.0.0/13 at crossbars.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from weft.daemons.routing import updown
from weft.testbed.linux import fib, netlink, tc
from weft.testbed.plan.network_plan import IFA_ADDRESS, IFA_LOCAL, End, NetworkPlan
from weft.topologies.core.address import FabricNaming, Prefix, dotted, parse_digits
from weft.topologies.core.topology import Topology

RTPROT_BGP, RTPROT_OSPF = 186, 188
# where the addresses of links begin
POINT_TO_POINT, BROADCAST = 172 << 24 | 16 << 16, 172 << 24 | 24 << 16
MOST_LINKS, MOST_CROSSBARS = 1 << 15, 1 << 11  # that there are such addresses for
FIRST_AS = 4_200_000_000  # of those for private use (RFC 6996)
PROFILE = "fast"  # of BFD
TIERS = 3  # of the fabrics that RFC 7938's plan of AS numbers is for


@dataclass(frozen=True)
class Routing(ABC):
    """A routing protocol on the routers of `plan`; BFD says hello every `hello_ms`, and `dead` may
    be missing.

    ValueError for a network that the protocol is not for, or that there are not addresses enough
    for.
    """

    plan: NetworkPlan
    hello_ms: int = 30
    dead: int = 3
    daemon: ClassVar[str]  # FRR's that speaks it
    kernel: ClassVar[int]  # the protocol number of its routes

    def __post_init__(self) -> None:
        topology = self.plan.topology
        if len(topology.links) > MOST_LINKS or (
            topology.server_centric and topology.switches > MOST_CROSSBARS
        ):
            raise ValueError(
                f"FRR: there are not addresses enough for the links of {topology.spec}"
            )

    @property
    def daemons(self) -> tuple[str, ...]:
        """FRR's daemons of a node, in the order in which they are to be started."""
        return "zebra", "bfdd", self.daemon

    @property
    def nodes(self) -> list[int]:
        """The nodes that route."""
        return [node for node in range(self.plan.topology.nodes) if self.plan.is_router(node)]

    @abstractmethod
    def lines(self, node: int) -> list[str]:
        """The configuration of the protocol itself."""

    @abstractmethod
    def expected(self, node: int) -> dict[Prefix, int]:
        """The routes of `node` when nothing has failed, and how many next hops each has."""

    def files(self, node: int) -> dict[str, str]:
        """The configuration of each daemon of `node`."""
        bfd = ["bfd", f" profile {PROFILE}", f"  transmit-interval {self.hello_ms}"]
        bfd += [f"  receive-interval {self.hello_ms}", f"  detect-multiplier {self.dead}"]
        # Pings are answered from the node's own address, as with our daemons, not from that of a
        # link.
        zebra = ["route-map own permit 10", f" set src {self.own(node)}"]
        # Else routes come back with one hop only when a link was down for a moment: the kernel
        # takes the hop out of the nexthop object that they share, and zebra (8.4) believes that it
        # is still in.
        zebra += ["no zebra nexthop kernel enable"]
        zebra += [f"ip protocol {self.daemon.removesuffix('d')} route-map own"]
        told = {"zebra": zebra, "bfdd": bfd, self.daemon: self.lines(node)}
        return {
            daemon: "\n".join([f"hostname {self.plan.names[node]}", *told[daemon], ""])
            for daemon in self.daemons
        }

    def messages(self, node: int) -> list[netlink.NetlinkMessage]:
        """What the kernel must hold before: the addresses of the links of `node`, and that FRR's
        packets go ahead."""
        ends = self.links(node).values()
        first = (
            [tc.routing_first(end.ifindex, end.dev) for end in ends] if self.plan.link_specs else []
        )
        return [*(_address_message(self.address(node, end), end) for end in ends), *first]

    def sessions(self, node: int) -> int:
        """How many neighbours BFD watches for `node`."""
        return sum(len(self.plan.one_hop(node, port)) for port in self.links(node))

    def links(self, node: int) -> dict[int, End]:
        """The ports of `node` that lead to other routers."""
        plan = self.plan
        return {
            port: end
            for port, end in plan.ends[node].items()
            if plan.topology.is_crossbar(end.peer) or plan.is_router(end.peer)
        }

    def own(self, node: int) -> str:
        """The address of `node` itself."""
        return dotted(self.plan.address(node))

    def address(self, node: int, end: End) -> Prefix:
        """The address of `node` on the link at `end`, and its prefix's length."""
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
                f"FRR's OSPF is set up for networks in which servers route, not for "
                f"{self.plan.topology.spec}"
            )

    def lines(self, node: int) -> list[str]:
        # Where hundreds of routers begin on one machine they must not take each other for dead
        # meanwhile, nor look for paths each time that one more is heard of.  After a single failure
        # neither counts: BFD finds it, and
        # the first look is at once.
        routers = len(self.nodes)
        dead_s, most_hold_ms = max(4, routers // 8), max(200, 10 * routers)
        told = ["interface lo", " ip ospf area 0"]
        for end in self.links(node).values():
            kind = "broadcast" if self.plan.topology.is_crossbar(end.peer) else "point-to-point"
            told += [
                f"interface {end.dev}",
                " ip ospf area 0",
                f" ip ospf network {kind}",
                " ip ospf bfd",
            ]
            told += [f" ip ospf bfd profile {PROFILE}", " ip ospf hello-interval 1"]
            told += [f" ip ospf dead-interval {dead_s}"]
        told += ["router ospf", f" ospf router-id {self.own(node)}", " maximum-paths 1"]
        told += [f" timers throttle spf 0 20 {most_hold_ms}"]
        return [*told, " timers throttle lsa all 20", " timers lsa min-arrival 10"]

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
        if not isinstance(naming, FabricNaming) or len(naming.tiers) > TIERS:
            raise ValueError(
                f"FRR's BGP is set up for switch fabrics of at most {TIERS} tiers, not for "
                f"{self.plan.topology.spec}"
            )

    def lines(self, node: int) -> list[str]:
        plan, systems = self.plan, as_numbers(self.plan.topology)
        told = [
            "frr defaults datacenter",
            f"router bgp {systems[node]}",
            f" bgp router-id {self.own(node)}",
        ]
        # No AS is on both of two equally long paths, so that their ASes differ wherever there are
        # several.
        told += [" bgp bestpath as-path multipath-relax", " no bgp network import-check"]
        for end in self.links(node).values():
            peer = dotted(self.address(end.peer, plan.ends[end.peer][end.peer_port]).network)
            told += [
                f" neighbor {peer} remote-as {systems[end.peer]}",
                f" neighbor {peer} bfd profile {PROFILE}",
            ]
            told += [
                f" neighbor {peer} advertisement-interval 0",
                f" neighbor {peer} timers connect 1",
            ]
        told += [" address-family ipv4 unicast", "  maximum-paths 64"]
        own = self._announced().get(node)
        return [*told, *([f"  network {own}"] if own else [])]

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
        """And the way to each host."""
        plan, source = self.plan, self.plan.address(node)
        hosts = [end for end in plan.ends[node].values() if end.peer < plan.topology.servers]
        ways = [
            fib.route_message(
                Prefix(plan.address(end.peer), 32),
                [(end.ifindex, end.dev, plan.address(end.peer))],
                source,
            )
            for end in hosts
        ]
        return [*super().messages(node), *ways]

    def _announced(self) -> dict[int, Prefix]:
        """The prefix of the hosts of each edge switch."""
        topology = self.plan.topology
        layout = topology.naming.layout
        return {
            _edge(topology, host): layout.prefix(layout.label_of(host)[:-1])
            for host in range(topology.servers)
        }


def as_numbers(topology: Topology) -> dict[int, int]:
    """The AS of each switch: one of its own at the edge, one for all of the top tier, between them
    one for each pod.

    No path then goes down and up again, or through two aggregation switches of a pod: it would
    carry an AS twice.
    """
    naming = topology.naming
    assert isinstance(naming, FabricNaming)
    found: dict[tuple[int, tuple[int, ...]], int] = {}
    numbers = {}
    for switch in range(topology.servers, topology.nodes):
        tier = naming.tier(switch)
        digits = parse_digits(naming.name(switch)[1:])
        group = digits if tier == 1 else () if tier == len(naming.tiers) else digits[:1]
        numbers[switch] = found.setdefault((tier, group), FIRST_AS + len(found))
    return numbers


def _edge(topology: Topology, host: int) -> int:
    """The switch of a host."""
    ((_, switch, _, _),) = topology.ports(host)
    return switch


def _address_message(address: Prefix, end: End) -> netlink.NetlinkMessage:
    packed = address.network.to_bytes(4, "big")
    body = bytes([2, address.length, 0, 0]) + end.ifindex.to_bytes(4, "little")
    body += netlink.attribute(IFA_LOCAL, packed) + netlink.attribute(IFA_ADDRESS, packed)
    command = f"ip address add {address} dev {end.dev}"
    return netlink.NetlinkMessage(netlink.RTM_NEWADDR, netlink.CREATE, body, command)
