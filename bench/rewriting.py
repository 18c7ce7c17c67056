"""Cost of a hop for packets of proxy routing, beside plain ones, on servers in between.

Small UDP packets go through chains of routers (forwarding.py says how a hop is measured).  In one
pair of chains the routers hold what the chain alone gives; in each of the others what servers have
that route by one of the schemes, with the routes of a server of DCell_{2,3}, and the packets carry
what they would there:

    pr               the address of a way
    dfr              what a packet carries that goes on as it is, while others are rerouted at every
    router
    dfr, rerouted    one of those: another octet at every router, there and back
    tar              the octet of a flow, which every router knows among THOUSANDS

Run as root.
"""

from __future__ import annotations

import argparse
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager

from bench.forwarding import Chains, arrived, hops_ns
from bench.report import Line, show
from weft.daemons.core.actions import FiveTuple, SetFlowRewrite, SetPrefixRewrite
from weft.daemons.routing import first_octets, proxy_addresses
from weft.testbed.data_plane import transit_program
from weft.testbed.data_plane.flow_rewrite import FlowRewriting
from weft.testbed.data_plane.prefix_rewrite import PrefixRewriting
from weft.testbed.data_plane.source_rewrite import SourceRewriting
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


def hops(network: RunningNetwork) -> Iterator[tuple[int, int, End]]:
    """(node, port, its end) of the hop towards the second host, at the first host and every
    router.
    """
    for node in (0, *range(2, network.topology.nodes)):
        port = 1 if node else 0
        yield node, port, network.plan.ends[node][port]


def lead(network: RunningNetwork, octets: set[int]) -> None:
    """Give routers the routes of a server of SPEC.

    All get one to the second host for packets that carry one of these octets.
    """
    prefixes = {
        prefix
        for prefix, _ in proxy_addresses.prefix_routes(NAMING.network, NAMING.network.t[-1] // 2)
    }
    own = {Prefix(first_octets.with_octet(network.plan.address(1), octet), 32) for octet in octets}
    for node, _, end in hops(network):
        hop = [(end.ifindex, end.dev, network.plan.address(end.peer))]
        with network.at(node) as routes:
            wanted = own | prefixes if node else own
            routes.request(
                [fib.route_message(prefix, hop, network.plan.address(node)) for prefix in wanted]
            )


@contextmanager
def inside(network: RunningNetwork, node: int) -> Iterator[netlink.Socket]:
    """A netlink socket within the namespace of `node`, where the thread is meanwhile."""
    with netns.inside(network.netns(node)), closing(netlink.Socket()) as own:
        yield own


def pr(network: RunningNetwork, stack: ExitStack, _: int) -> int:
    """Routers steer their own packets; the octet that packets for the second host carry."""
    octet = first_octets.first_octet(WAY)
    lead(network, {octet})
    for node, port, end in hops(network):
        if node:
            with netns.inside(network.netns(node)):
                own = stack.enter_context(closing(netlink.Socket()))
                ports = {end.ifindex: port}
                made = SourceRewriting(
                    network.plan.address(node), proxy_addresses.ways(NAMING.network), own, ports
                )
                stack.enter_context(closing(made))
    return octet


def dfr(octet: int) -> Equip:
    """Routers reroute packets that carry BEFORE, and by turns AFTER."""

    def equip(network: RunningNetwork, stack: ExitStack, _: int) -> int:
        lead(network, {PASSING, BEFORE, AFTER})
        transit_maps = stack.enter_context(closing(transit_program.of(network)))
        for node, _, _ in hops(network):
            if node:
                with inside(network, node) as own:
                    made = PrefixRewriting(
                        network.plan.address(node), OCTETS, TTL, own, transit_maps.at(node)
                    )
                stack.enter_context(closing(made))
                turn = (BEFORE, AFTER) if node % 2 == 0 else (AFTER, BEFORE)
                prefix = Prefix(
                    first_octets.with_octet(network.plan.address(1) & ~255, turn[0]), 24
                )
                others = [first_octets.all_addresses(octet) for octet in OCTETS[8::4]]
                made.set(
                    [
                        SetPrefixRewrite(prefix, turn[1]),
                        *(SetPrefixRewrite(other, PASSING) for other in others),
                    ]
                )
        return octet

    return equip


def tar(network: RunningNetwork, stack: ExitStack, first_port: int) -> int:
    """Routers know THOUSANDS of flows, from ports from `first_port` on, and let each carry
    ONWARD.
    """
    lead(network, {ONWARD})
    transit_maps = stack.enter_context(closing(transit_program.of(network)))
    source, destination = network.plan.address(0), network.plan.address(1)
    for node, port, end in hops(network):
        if node:
            with netns.inside(network.netns(node)):
                own = stack.enter_context(closing(netlink.Socket()))
                made = FlowRewriting(
                    network.plan.address(node), own, {end.ifindex: port}, transit_maps.at(node)
                )
            stack.enter_context(closing(made))
            ports = [(first_port + i & 0xFFFF) << 16 | PORT for i in range(THOUSANDS)]
            flows = [FiveTuple(source, destination, socket.IPPROTO_UDP, each) for each in ports]
            made.set([SetFlowRewrite(flow, ONWARD) for flow in flows])
    return ONWARD


SCHEMES: dict[str, Equip] = {
    "pr": pr,
    "dfr": dfr(PASSING),
    "dfr, rerouted": dfr(BEFORE),
    "tar": tar,
}


def chains(stack: ExitStack, equip: Equip | None) -> Chains:
    """A short and a long chain, whose packets carry what `equip` says."""
    made = Chains(stack, planes=False)
    for network, sender in zip(made.networks, made.senders, strict=True):
        if equip:
            octet = equip(network, stack, sender.socket.getsockname()[1])
            sender.socket.connect(
                (dotted(first_octets.with_octet(network.plan.address(1), octet)), PORT)
            )
    return made


def main() -> None:
    """Print each and its ratio."""
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("--packets", type=int, default=60_000, help="in each measurement")
    given.add_argument("--rounds", type=int, default=7)
    given.add_argument("--scheme", action="append", choices=SCHEMES, help="only this one")
    options = given.parse_args()
    cpu = max(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cpu})
    with ExitStack() as stack:
        made = {"plain": chains(stack, None)}
        made |= {name: chains(stack, SCHEMES[name]) for name in options.scheme or SCHEMES}
        hop_ns = hops_ns(made, packets=options.packets, rounds=options.rounds, cpu=cpu)
        fraction = arrived(made)
    lines = [Line("plain IPv4 forwarding: a hop", hop_ns.pop("plain"), "ns")]
    for name, ns in hop_ns.items():
        lines.append(
            Line(f"{name}: packets a second / plain", lines[0].value / ns, "x", at_least=0.8)
        )
        lines.append(Line("  packets that arrived / sent", fraction[name], "x", at_least=0.999))
    show("A hop", lines)


if __name__ == "__main__":
    main()
