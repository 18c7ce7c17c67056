"""Cost of a hop for packets of proxy routing, beside plain ones, on servers in between.

forwarding.py says how a hop is measured.  One pair of chains has only its own routes.  In the
others the routers have the routes and rules of a server of DCell_{2,3} under a scheme, and packets
carry the octets that they would carry there:

    pr               the address of a candidate path
    dfr              an octet that is not rewritten, while others are rerouted at every router
    dfr, rerouted    one of those: another octet at every router
    tar              the octet of a flow, of the THOUSANDS that every router knows

Run as root.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager

from bench.forwarding import Chains, arrived, hops_ns
from bench.report import Line, arguments, show, stay_on_one_processor
from weft.daemons.core.actions import FiveTuple, SetFlowRewrite, SetPrefixRewrite
from weft.daemons.routing import route_addresses
from weft.testbed.data_plane import transit_rewrite
from weft.testbed.data_plane.flow_rewrite import FlowRewriting
from weft.testbed.data_plane.prefix_rewrite import PrefixRewriting
from weft.testbed.data_plane.source_rewrite import SourceRewriting
from weft.testbed.data_plane.transit_rewrite import TransitMaps
from weft.testbed.linux import fib, netlink, netns
from weft.testbed.network.network import RunningNetwork
from weft.testbed.plan.network_plan import End
from weft.topologies import build
from weft.topologies.core.address import Prefix, dotted
from weft.topologies.recursive.ccrdn import CcrdnNaming

SPEC = "dcell:n=3,k=2"
WAY = 1
OCTETS = tuple(range(64, 108))  # as many as DFR has there
PASSING, BEFORE, AFTER = 64, 66, 67
ONWARD = 65
THOUSANDS = 4000
TTL = 64
PORT = 9
Equip = Callable[[RunningNetwork, ExitStack, int], int]
NAMING = build(SPEC).naming
assert isinstance(NAMING, CcrdnNaming)


def routers(network: RunningNetwork) -> Iterator[tuple[int, End]]:
    """Yield each router, and its end of the link towards the second host."""
    for node in range(2, network.topology.nodes):
        yield node, network.plan.ends[node][1]


def lead(network: RunningNetwork, octets: set[int]) -> None:
    """Route packets that carry one of `octets` to the second host; see SPEC for other routes."""
    prefixes = {
        prefix
        for prefix, _ in route_addresses.prefix_routes(NAMING.network, NAMING.network.t[-1] // 2)
    }
    own = {
        Prefix(route_addresses.with_octet(network.plan.address(1), octet), 32) for octet in octets
    }
    for node, end in ((0, network.plan.ends[0][0]), *routers(network)):
        hop = [(end.ifindex, end.dev, network.plan.address(end.peer))]
        address = network.plan.address(node)
        with network.at(node) as routes:
            messages = [
                fib.route_message(prefix, hop, address)
                for prefix in (own | prefixes if node else own)
            ]
            routes.request(messages)


@contextmanager
def inside(network: RunningNetwork, node: int) -> Iterator[netlink.Socket]:
    """Enter the namespace of `node` in this thread; yield a netlink socket there."""
    with netns.inside(network.netns(node)), closing(netlink.Socket()) as own:
        yield own


def pr(network: RunningNetwork, stack: ExitStack, _: int) -> int:
    """Let routers steer their own packets; return the octet of packets for the second host."""
    octet = route_addresses.first_octet(WAY)
    lead(network, {octet})
    ways = route_addresses.ways(NAMING.network)
    for node, end in routers(network):
        with inside(network, node) as own:
            rewriting = SourceRewriting(network.plan.address(node), ways, own, {end.ifindex: 1})
        stack.enter_context(closing(rewriting))
    return octet


def dfr(octet: int) -> Equip:
    """Return the set-up of routers that replace BEFORE by AFTER and AFTER by BEFORE, in turn."""

    def equip(network: RunningNetwork, stack: ExitStack, _: int) -> int:
        lead(network, {PASSING, BEFORE, AFTER})
        transit_maps = stack.enter_context(closing(TransitMaps(transit_rewrite.ensure(network))))
        others = [route_addresses.all_addresses(other) for other in OCTETS[8::4]]
        destinations = network.plan.address(1) & ~255
        for node, _ in routers(network):
            transit = transit_maps.at(node)
            with inside(network, node) as own:
                rewriting = PrefixRewriting(network.plan.address(node), OCTETS, TTL, own, transit)
            stack.enter_context(closing(rewriting))
            before, after = (BEFORE, AFTER) if node % 2 == 0 else (AFTER, BEFORE)
            prefix = Prefix(route_addresses.with_octet(destinations, before), 24)
            changes = [SetPrefixRewrite(other, PASSING) for other in others]
            rewriting.set([SetPrefixRewrite(prefix, after), *changes])
        return octet

    return equip


def tar(network: RunningNetwork, stack: ExitStack, first_port: int) -> int:
    """Let routers know THOUSANDS of flows, from `first_port` on, which carry ONWARD."""
    lead(network, {ONWARD})
    transit_maps = stack.enter_context(closing(TransitMaps(transit_rewrite.ensure(network))))
    ends = network.plan.address(0), network.plan.address(1)
    ports = [(first_port + i & 0xFFFF) << 16 | PORT for i in range(THOUSANDS)]
    flows = [FiveTuple(*ends, socket.IPPROTO_UDP, port) for port in ports]
    for node, end in routers(network):
        transit = transit_maps.at(node)
        with inside(network, node) as own:
            rewriting = FlowRewriting(network.plan.address(node), own, {end.ifindex: 1}, transit)
        stack.enter_context(closing(rewriting))
        rewriting.set([SetFlowRewrite(flow, ONWARD) for flow in flows])
    return ONWARD


PLAIN = "plain IPv4 forwarding"
SCHEMES: dict[str, Equip | None] = {
    PLAIN: None,
    "pr": pr,
    "dfr": dfr(PASSING),
    "dfr, rerouted": dfr(BEFORE),
    "tar": tar,
}


def chains(stack: ExitStack, equip: Equip | None) -> Chains:
    """Return a short and a long chain, with routers set up by `equip`."""
    pair = Chains(stack, planes=False)
    for network, sender in zip(pair.networks, pair.senders, strict=True):
        if equip:
            octet = equip(network, stack, sender.socket.getsockname()[1])
            address = route_addresses.with_octet(network.plan.address(1), octet)
            sender.socket.connect((dotted(address), PORT))
    return pair


def main() -> None:
    """Print the rate of packets of each scheme / that of plain packets."""
    options = arguments(__doc__, packets=60_000, rounds=7)
    cpu = stay_on_one_processor()
    with ExitStack() as stack:
        pairs = {name: chains(stack, equip) for name, equip in SCHEMES.items()}
        hop_ns = hops_ns(pairs, packets=options.packets, rounds=options.rounds, cpu=cpu)
        fraction = arrived(pairs)
    plain_ns = hop_ns.pop(PLAIN)
    lines = [Line(f"{PLAIN}: a hop", plain_ns, "ns")]
    for name, ns in hop_ns.items():
        lines.append(Line(f"{name}: packets a second / plain", plain_ns / ns, "x", at_least=0.8))
        lines.append(Line("  packets that arrived / sent", fraction[name], "x", at_least=0.999))
    show("A hop of rewritten packets", lines)


if __name__ == "__main__":
    main()
