"""A network as the changes to the kernel that make it, before any of them is made.

The plan knows every name, index and address, and has the netlink messages of each stage, by node;
`weft up --dry-run` prints them as the equivalent `ip` and `tc` commands.  Node and port alone
determine names: interface X-eth<p> is port p of node X in namespace weft.<run>.X.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, TypedDict

from weft.daemons.core.node_config import routers
from weft.daemons.routing import selection
from weft.daemons.routing.candidates import candidates
from weft.testbed.linux import fib, interface, live_port, netlink, tc, tc_filters
from weft.testbed.linux.interface import Device, Interface, NamedDevice, NodeInterfaces
from weft.testbed.linux.netlink import NetlinkMessage
from weft.testbed.plan.part import PlanPart
from weft.testbed.runs.run import RunRecord
from weft.topologies.core.address import EVERYTHING, IPV4, IPV6, AddressFamily, Prefix
from weft.topologies.core.link import MTU_BYTES, LinkSpec
from weft.topologies.core.topology import Size, Topology, require_one_plane

IFLA_BR_MCAST_SNOOPING = 23
# first interface indexes within a run's slot
FIRST_PORT, FIRST_BRIDGE, FIRST_IFB = 16, 0x7000, 0x8000
MOST_LINKS, MOST_SWITCHES = (FIRST_BRIDGE - FIRST_PORT) // 2, FIRST_IFB - FIRST_BRIDGE

ROUTER_SYSCTLS = {
    "ipv4/ip_forward": "1",
    "ipv4/conf/all/rp_filter": "0",  # paths may be asymmetric
    "ipv4/conf/default/rp_filter": "0",
    # a route through a neighbour behind the same crossbar is intended
    "ipv4/conf/all/send_redirects": "0",
    "ipv4/conf/default/send_redirects": "0",
    # Answer every probe of traceroute.py.  icmp_ratelimit=0 lifts only the limit for each
    # destination, not icmp_msgs_per_sec, which all namespaces shared before Linux 6.12.  A type
    # outside the mask has neither limit (icmpv4_mask_allow() in net/ipv4/icmp.c).
    "ipv4/icmp_ratemask": "0",
}
SEED_SYSCTL = "ipv4/fib_multipath_hash_seed"  # since Linux 6.11
FABRIC_SYSCTLS = {"ipv4/fib_multipath_hash_policy": "1"}  # hash ports, too
# The same fields where no program drops a packet's own hash.  Within one kernel that is the hash of
# its sender's socket, drawn again after a timeout; policy 1 takes it, and switches choose alike.
STATIC_SYSCTLS = {
    "ipv4/fib_multipath_hash_policy": "3",
    "ipv4/fib_multipath_hash_fields": "55",  # addresses, protocol, ports
}
HOST_SYSCTLS = {
    "ipv4/conf/all/rp_filter": "0",
    "ipv4/conf/default/rp_filter": "0",
    "ipv4/tcp_no_metrics_save": "1",  # connections do not inherit metrics of earlier ones
    "ipv4/icmp_ratemask": "0",
}
# on by default; a crossbar filters nothing
BRIDGE_FILTER_SYSCTL = "bridge/bridge-nf-call-iptables"
# no generated addresses, no duplicate address detection; new devices inherit it
NO_IPV6 = {"ipv6/conf/all/disable_ipv6": "1"}
IPV6_SYSCTLS = {
    "ipv6/conf/all/disable_ipv6": "0",
    "ipv6/conf/default/addr_gen_mode": "1",  # no link-local addresses
    "ipv6/conf/all/keep_addr_on_down": "1",  # as IPv4 does
    "ipv6/auto_flowlabels": "1",  # of the hash of a socket, which TCP draws again after a timeout
    "ipv6/icmp/ratemask": "2",  # a type that has no limit anyway, in place of all others
}
IPV6_ROUTER_SYSCTLS = {"ipv6/conf/all/forwarding": "1"}
IPV6_FABRIC_SYSCTLS = {"ipv6/fib_multipath_hash_policy": "0"}  # addresses, flow label, protocol


def mac(node: int, port: int) -> bytes:
    """Return the Ethernet address of `port` of `node`: 02, node in 3 bytes, port in 2."""
    return struct.pack(">BBHH", 2, node >> 16, node & 0xFFFF, port)


class End(NamedTuple):
    """One end of a link: its interface's index and name, and the port at the other end."""

    ifindex: int
    dev: str
    peer: int
    peer_port: int
    link: int


def require_indexes(size: Size) -> None:
    """Raise ValueError for a network larger than the interface indexes of a run allow."""
    if size.links <= MOST_LINKS and size.switches <= MOST_SWITCHES:
        return
    raise ValueError(
        f"{size}; a run on the kernel has interface indexes for {MOST_LINKS:,} links and "
        f"{MOST_SWITCHES:,} switches; the graph engine has no such limit (weft topo, weft route, "
        f"weft run)"
    )


class PlannedLinks(TypedDict):
    """The links of a network, as RunningNetwork and NetworkPlan take them."""

    link: LinkSpec | None
    host_link: LinkSpec | None
    own_links: dict[int, LinkSpec]


def links_document(
    link: LinkSpec | None, host_link: LinkSpec | None, own_links: Mapping[int, LinkSpec]
) -> dict[str, Any]:
    """Return the links of a network for a file in JSON."""
    return {
        "link": asdict(link) if link else None,
        "host_link": asdict(host_link) if host_link else None,
        "own_links": {number: asdict(spec) for number, spec in own_links.items()},
    }


def links_from(document: Mapping[str, Any]) -> PlannedLinks:
    """Return the links that links_document() wrote, also among other entries."""
    link, host_link = (
        LinkSpec(**document[key]) if document[key] else None for key in ("link", "host_link")
    )
    own_links = {int(number): LinkSpec(**spec) for number, spec in document["own_links"].items()}
    return {"link": link, "host_link": host_link, "own_links": own_links}


def ifb_of(end: Device) -> NamedDevice:
    """Return the device that delays packets arriving at `end`."""
    return NamedDevice(end.ifindex - FIRST_PORT + FIRST_IFB, f"d-{end.dev}"[:15])


def new_bridge(device: Device, data: bytes = b"", words: str = "") -> NetlinkMessage:
    """Return the message that makes a bridge with further attributes `data`, called `words`.

    It floods multicast, because hellos have no membership reports.
    """
    snooping = netlink.attribute(IFLA_BR_MCAST_SNOOPING, b"\0")
    return interface.new(device, "bridge", snooping + data, f" mcast_snooping 0{words}")


@dataclass(frozen=True, eq=False)
class NetworkPlan:
    """A network of one run, as data.

    link: of every link; None: as fast as the machine.
    static: the plan has the routes that the topology alone gives.
    ipv6: the nodes have IPv6 beside IPv4: addresses and, in a static plan, routes.
    seeded: the kernel can seed each switch's multipath hash (Linux 6.11 and later).
    host_link: of links between hosts and switches of a fabric; None: like all others.
    own_links: of links that differ, by link.
    virtual: the kernel's clock is virtual, and its links are exact (tc.exact_link()).
    bridge_filter: the kernel passes bridged frames to its IP packet filter (br_netfilter).
    part: of this machine; None: the whole network.

    Raises ValueError for links that do not go together, or more links or switches than a run has
    interface indexes for.
    """

    run: RunRecord
    topology: Topology
    link: LinkSpec | None
    static: bool = False
    ipv6: bool = False
    seeded: bool = False
    host_link: LinkSpec | None = None
    own_links: Mapping[int, LinkSpec] = field(default_factory=dict)
    virtual: bool = False
    bridge_filter: bool = False
    part: PlanPart | None = None

    def __post_init__(self) -> None:
        require_one_plane("networks in the kernel", self.topology)
        if self.host_link and self.topology.server_centric:
            raise ValueError(
                f"{self.topology.spec} has no host links: at least one end of each forwards"
            )
        if not self.virtual and any(spec.hop_ns for spec in self.link_specs):
            raise ValueError("the cost of a hop can be set under the virtual clock only")
        if self.host_link and not self.link:
            raise ValueError("host links have a rate of their own only where the others have one")
        if self.own_links and self.link and self.link.trim_packets:
            raise ValueError(
                "where switches trim, links are alike: none can have a rate of its own"
            )
        if len({spec.mtu_bytes for spec in self.link_specs}) > 1:
            raise ValueError("links of one network have one MTU: larger packets are not fragmented")
        require_indexes(self.topology.size)

    @cached_property
    def names(self) -> list[str]:
        """The name of every node."""
        return [self.topology.naming.name(node) for node in range(self.topology.nodes)]

    @property
    def nodes(self) -> Sequence[int]:
        """The nodes on this machine, in order."""
        return self.part.nodes if self.part else range(self.topology.nodes)

    @property
    def links(self) -> Sequence[int]:
        """The links whose two ends are on this machine, in order."""
        return self.part.links if self.part else range(len(self.topology.links))

    @cached_property
    def node_set(self) -> frozenset[int]:
        """The nodes on this machine."""
        return frozenset(self.nodes)

    @cached_property
    def routers(self) -> list[int]:
        """The nodes on this machine that run a daemon, or would."""
        return [node for node in routers(self.topology) if node in self.node_set]

    @cached_property
    def cut_ends(self) -> list[tuple[int, int, End]]:
        """(Node, port, end) of the ends of cut links on this machine."""
        cut = self.part.cut if self.part else {}
        return [
            (node, port, end)
            for node in self.nodes
            for port, end in self.ends[node].items()
            if end.link in cut
        ]

    @cached_property
    def ends(self) -> list[dict[int, End]]:
        """The ends of links at every node, by port."""
        base = (self.run.slot << 16) + FIRST_PORT
        ends: list[dict[int, End]] = [{} for _ in range(self.topology.nodes)]
        for link, (a, pa, b, pb) in enumerate(self.topology.links.tolist()):
            index = base + 2 * link
            ends[a][pa] = End(index, f"{self.names[a]}-eth{pa}", b, pb, link)
            ends[b][pb] = End(index + 1, f"{self.names[b]}-eth{pb}", a, pa, link)
        return ends

    def link_spec(self, link: int) -> LinkSpec | None:
        """Return the specification by which `link` is made; None: as fast as the machine.

        The delay of a cut link lacks what the underlay adds.
        """
        spec = self.host_link if self.host_link and self.topology.level[link] == 0 else self.link
        spec = self.own_links.get(link, spec)
        if not spec or not self.part or link not in self.part.cut:
            return spec
        underlay_us = self.part.underlay_us.get(self.part.cut[link], 0)
        return replace(spec, delay_us=max(0, spec.delay_us - underlay_us))

    @property
    def link_specs(self) -> list[LinkSpec]:
        """The different specifications of links; empty if all are as fast as the machine."""
        kinds = (self.link, self.host_link, *self.own_links.values())
        return list(dict.fromkeys(spec for spec in kinds if spec))

    @property
    def mtu_bytes(self) -> int:
        """The MTU of every link."""
        return self.link.mtu_bytes if self.link else MTU_BYTES

    def namespace(self, node: int) -> str:
        return self.run.namespace(self.names[node])

    def is_router(self, node: int) -> bool:
        """Return True if `node` forwards: a server if server-centric, a switch in a fabric."""
        return self.topology.server_centric == (node < self.topology.servers)

    def address(self, node: int) -> int:
        return self.topology.naming.address(node)

    @property
    def families(self) -> tuple[AddressFamily, ...]:
        """The versions of IP that nodes have."""
        return (IPV4, IPV6) if self.ipv6 else (IPV4,)

    def sysctls(self, node: int) -> dict[str, str]:
        """Return the sysctls of `node`, by path under /proc/sys/net."""
        values = self._ipv6_sysctls(node)
        if node < self.topology.servers:
            values |= HOST_SYSCTLS
        if self.bridge_filter and self.topology.is_crossbar(node):
            values[BRIDGE_FILTER_SYSCTL] = "0"
        if self.is_router(node):
            values |= ROUTER_SYSCTLS
            if not self.topology.server_centric:
                values |= STATIC_SYSCTLS if self.static else FABRIC_SYSCTLS
                # without seeds switches hash alike: flows that share a link share the next one
                if self.seeded:
                    values[SEED_SYSCTL] = str(selection.mix(1, node) or 1)
        return values

    def _ipv6_sysctls(self, node: int) -> dict[str, str]:
        if not self.ipv6 or self.topology.is_crossbar(node):
            return dict(NO_IPV6)
        values = dict(IPV6_SYSCTLS)
        if self.is_router(node):
            values |= IPV6_ROUTER_SYSCTLS
            values |= {} if self.topology.server_centric else IPV6_FABRIC_SYSCTLS
        return values

    def bridge_index(self, node: int) -> int:
        return (self.run.slot << 16) + FIRST_BRIDGE + node - self.topology.servers

    def devices(self, node: int) -> list[NetlinkMessage]:
        """Return the messages that set up the loopback and make the bridge of a crossbar."""
        messages = [interface.set_up(interface.LOOPBACK)]
        if self.topology.is_crossbar(node):
            messages.append(new_bridge(NamedDevice(self.bridge_index(node), self.names[node])))
        return messages

    def orientation(self, link: int) -> tuple[int, int, int, int]:
        """Return near node and port, far node and port.

        A veth is made in the namespace of its near node, whose end can join a bridge at once.
        """
        a, pa, b, pb = self.topology.links[link].tolist()
        return (b, pb, a, pa) if self.topology.is_crossbar(b) else (a, pa, b, pb)

    def veth(self, link: int, far_fd: int) -> NetlinkMessage:
        """Return the message that makes both ends of `link`, for the near node's namespace.

        far_fd: descriptor of the far node's namespace.
        """
        near, near_port, far, far_port = self.orientation(link)
        far_side = self._veth_side(far, far_port)
        return interface.veth(self._side(near, near_port), far_side, far_fd, self.namespace(far))

    def tunnel(self, node: int, port: int, fd: int) -> NetlinkMessage:
        """Return the message that makes the end of a cut link at `port` of `node`.

        It is for the machine's namespace, which carries the packets of cut links.

        fd: descriptor of the namespace of `node`.
        """
        tunnel = self.tunnel_of(self.ends[node][port].link)
        assert tunnel
        return interface.vxlan(self._side(node, port), (fd, self.namespace(node)), tunnel)

    def tunnel_of(self, link: int) -> interface.Tunnel | None:
        """Return the tunnel of a link as its end here has it; None if it is not cut."""
        if not self.part or link not in self.part.cut:
            return None
        remote = self.part.peers[self.part.cut[link]]
        return interface.Tunnel(link, self.part.address, remote, self.part.port)

    def _side(self, node: int, port: int) -> interface.VethSide:
        """Return the interface at `port` of `node`, in its bridge if it is a crossbar."""
        side = self._veth_side(node, port)
        if self.topology.is_crossbar(node):
            master = netlink.u32(interface.IFLA_MASTER, self.bridge_index(node))
            side = side.extended(master, f"master {self.names[node]}")
        return side

    def _veth_side(self, node: int, port: int) -> interface.VethSide:
        end = self.ends[node][port]
        side = interface.veth_side(end, mac(node, port))
        if self.mtu_bytes != MTU_BYTES:
            mtu = netlink.u32(interface.IFLA_MTU, self.mtu_bytes)
            side = side.extended(mtu, f"mtu {self.mtu_bytes}")
        if self.link_spec(end.link) and node < self.topology.servers:
            # TCP would pass segments of up to 64 kB, each counted as one packet (see tc.py)
            side = side.extended(netlink.u32(interface.IFLA_GSO_MAX_SEGS, 1), "gso_max_segs 1")
        return side

    def queues(self, node: int) -> list[NetlinkMessage]:
        """Return the messages for rate, queue, delay and filter hooks of every port.

        They precede setting the port up.  On a port that is up, the kernel stops traffic for each
        new root queue or hook, drops packets, and waits for an RCU grace period.
        """
        messages = [tc.clsact(end) for end in self.ends[node].values()]
        for end in self.ends[node].values():
            link = self.link_spec(end.link)
            if link is None:
                continue
            if self.virtual:
                messages.append(tc.exact_link(end, self.exact_link(end)))
            else:
                messages += tc.shape(end, link)
            if self.topology.is_crossbar(node):
                messages.append(tc_filters.control_first(end))
            elif self.topology.is_crossbar(end.peer):
                messages.append(tc_filters.control_from_daemons(end))
            if link.delay_us and not self.virtual:
                messages += self._delayed(end, link.delay_us)
            if link.loss_ppb:
                messages.append(live_port.loss(end, link.loss_ppb))
        return messages

    def exact_link(self, end: End) -> tc.DeviceDisciplines:
        """Return the discipline of a port under the virtual clock; its link has a rate."""
        link = self.link_spec(end.link)
        assert link
        return tc.DeviceDisciplines(
            rate_bps=link.rate_bps,
            queue_packets=link.queue_packets,
            delay_us=link.delay_us or None,
            header_packets=link.header_packets if link.trim_packets else None,
            # a crossbar has no processor
            hop_ns=0 if self.topology.is_crossbar(end.peer) else link.hop_ns,
        )

    def ports(self, node: int) -> list[NetlinkMessage]:
        """Return queues(), and the messages that set the ports up."""
        return self.queues(node) + [interface.set_up(end) for end in self.ends[node].values()]

    def _delayed(self, end: End, delay_us: int) -> list[NetlinkMessage]:
        """Return the messages that delay packets arriving at `end`.

        The delay is behind the wire, so that delayed packets take no room in the sender's queue.
        """
        ifb = ifb_of(end)
        redirected = tc_filters.redirect_arrivals(end, ifb)
        return [interface.new(ifb, "ifb"), tc.delay(ifb, delay_us), redirected]

    def addresses(self, node: int) -> list[NetlinkMessage]:
        """Return the messages for addresses and neighbours of `node`; none for a crossbar."""
        if self.topology.is_crossbar(node):
            return []
        device, address = self.address_device(node), Prefix(self.address(node), 32)
        messages = [interface.add_address(device, address, family) for family in self.families]
        for port in self.ends[node]:
            messages += self.neighbours(node, port)
        return messages

    def address_device(self, node: int) -> Device:
        """Return the interface that has the address of `node`: of a server its first port.

        Programs look for an interface with an address and pass over the loopback.
        """
        if node < self.topology.servers and self.ends[node]:
            return self.ends[node][min(self.ends[node])]
        return interface.LOOPBACK

    def one_hop(self, node: int, port: int) -> list[tuple[int, int]]:
        """Return (node, its port) of the neighbours through `port`; a crossbar is no neighbour."""
        end = self.ends[node][port]
        if not self.topology.is_crossbar(end.peer):
            return [(end.peer, end.peer_port)]
        return [
            (far.peer, far.peer_port) for far in self.ends[end.peer].values() if far.peer != node
        ]

    def neighbours(self, node: int, port: int) -> list[NetlinkMessage]:
        """Return the messages for permanent neighbour entries through `port`, in place of ARP."""
        end = self.ends[node][port]
        return [
            fib.neighbour_message(
                end.ifindex, end.dev, self.address(other), mac(other, its_port), family
            )
            for family in self.families
            for other, its_port in self.one_hop(node, port)
        ]

    def routes(self, node: int, *, down: Collection[int] = ()) -> list[NetlinkMessage]:
        """Return the messages for the routes that the topology alone gives.

        These are a host's default route and, in a static plan, all routes of a router.

        down: ports that no route may use.
        """
        if self.topology.is_crossbar(node):
            return []
        source = self.address(node)
        return [
            fib.route_message(prefix, via, source, family)
            for family in self.families
            for prefix, via in self._fixed_routes(node, down)
        ]

    def _fixed_routes(
        self, node: int, down: Collection[int]
    ) -> Iterator[tuple[Prefix, list[tuple[int, str, int]]]]:
        """Yield each prefix of routes(), and the hops to it as fib.route_message() takes them."""
        ends = self.ends[node]
        if not self.is_router(node):
            (end,) = ends.values()
            yield EVERYTHING, [(end.ifindex, end.dev, self.address(end.peer))]
            return
        for prefix, hops in candidates(self.topology, node) if self.static else ():
            via = [
                (ends[hop.port].ifindex, ends[hop.port].dev, self.address(hop.node))
                for hop in hops
                if hop.port not in down
            ]
            if via or not hops:
                yield prefix, via

    def text(self) -> Iterator[str]:
        """Yield the whole plan as commands, stage by stage."""
        nodes = self.nodes
        for node in nodes:
            name = self.namespace(node)
            yield f"ip netns add {name}"
            for path, value in self.sysctls(node).items():
                yield f"ip netns exec {name} sysctl -w net.{path.replace('/', '.')}={value}"
            yield from self._commands(node, self.devices(node))
        for link in self.links:
            yield from self._commands(self.orientation(link)[0], [self.veth(link, 0)])
        for node, port, _ in self.cut_ends:
            yield self.tunnel(node, port, 0).command
        for node in nodes:
            yield from self._commands(node, self.ports(node))
        for node in nodes:
            yield from self._commands(node, self.addresses(node) + self.routes(node))
            if self.link_specs and node < self.topology.servers:
                for end in self.ends[node].values():
                    yield (
                        f"ip netns exec {self.namespace(node)} ethtool -K {end.dev} tso "
                        f"off gso off gro off"
                    )

    def _commands(self, node: int, messages: Iterable[NetlinkMessage]) -> Iterator[str]:
        """Yield the commands of these messages in the namespace of `node`."""
        for message in messages:
            program, rest = message.command.split(" ", 1)
            yield f"{program} -n {self.namespace(node)} {rest}"


def node_interfaces(plan: NetworkPlan, nodes: Iterable[int]) -> dict[int, NodeInterfaces]:
    """Return the interfaces of each of these nodes of `plan`."""
    by_node = {}
    for node in nodes:
        ports = {}
        for port, end in plan.ends[node].items():
            near = {
                other: (plan.address(other), mac(other, its_port))
                for other, its_port in plan.one_hop(node, port)
            }
            shared = len(plan.topology.links) + end.peer  # a crossbar is one link of many ends
            link = shared if plan.topology.is_crossbar(end.peer) else end.link
            elsewhere = frozenset(near) - plan.node_set
            ports[port] = Interface(end.ifindex, end.dev, near, link, elsewhere)
        by_node[node] = NodeInterfaces(
            node, plan.names[node], plan.namespace(node), plan.address(node), ports
        )
    return by_node
