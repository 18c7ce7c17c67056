"""What a hop costs a steered packet beside a plain one, on servers in between, in one run and on one core.

Small UDP packets go through chains of routers (forwarding.py says how a hop is measured).  In one pair of chains the
routers hold what the chain alone gives.  In the other each has what a server of DCell_{2,3} that routes by PR has:
routes for all ways, and the rules of nf_tables that steer its own packets; and the packets bear a steered address.  Run
as root.
"""

from __future__ import annotations

import argparse
import os
from contextlib import ExitStack, closing

from bench.forwarding import LONG, SHORT, Chains
from bench.report import Line, show
from daemons.routing import via
from testbed import fib, netlink, netns
from testbed.network import Network
from testbed.steer import Steering
from topologies import build
from topologies.address import Prefix, dotted
from topologies.ccrdn import CcrdnNaming

SPEC = "dcell:n=3,k=2"
WAY = 1


def steer(network: Network, stack: ExitStack) -> int:
    """Make every router of the chain like a server of SPEC; the address that packets for the second host bear then."""
    naming = build(SPEC).naming
    assert isinstance(naming, CcrdnNaming)
    prefixes = [prefix for prefix, _ in via.prefix_routes(naming.network, naming.network.t[-1] // 2)]
    steered = via.address(network.plan.address(1), WAY)
    for node in (0, *range(2, network.topology.nodes)):
        port, far = (0, 2) if node == 0 else (1, network.plan.ends[node][1].peer)
        end = network.plan.ends[node][port]
        hop = [(end.ifindex, end.dev, network.plan.address(far))]
        with network.at(node) as routes:
            routes.request(
                [
                    fib.route_message(prefix, hop, network.plan.address(node))
                    for prefix in {*prefixes, Prefix(steered, 32)}
                    if node or prefix.length == 32
                ]
            )
        if node:
            with netns.inside(network.netns(node)):
                own = stack.enter_context(closing(netlink.Socket()))
                stack.enter_context(
                    closing(Steering(network.plan.address(node), via.ways(naming.network), own, {end.ifindex: port}))
                )
    return steered


def main() -> None:
    """Print both and their ratio."""
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("--packets", type=int, default=60_000, help="in each measurement")
    given.add_argument("--rounds", type=int, default=7)
    options = given.parse_args()
    cpu = max(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cpu})
    with ExitStack() as stack:
        plain, ours = Chains(stack, planes=False), Chains(stack, planes=False)
        for network, sender in zip(ours.networks, ours.senders, strict=True):
            sender.socket.connect((dotted(steer(network, stack)), 9))
        found: dict[str, list[tuple[float, float]]] = {"plain": [], "steered": []}
        for _ in range(options.rounds):
            found["plain"].append(plain.measure(options.packets, cpu))
            found["steered"].append(ours.measure(options.packets, cpu))
        sent = sum(sender.sent for chains in (plain, ours) for sender in chains.senders)
        arrived = plain.received() + ours.received()
    hop_ns = {
        name: (min(long for _, long in rounds) - min(short for short, _ in rounds)) / (LONG - SHORT)
        for name, rounds in found.items()
    }
    show(
        "A hop of a steered packet",
        [
            Line("plain IPv4 forwarding: packets a second and core", 1e9 / hop_ns["plain"], ""),
            Line("steered: packets a second and core", 1e9 / hop_ns["steered"], ""),
            Line("  steered / plain", hop_ns["plain"] / hop_ns["steered"], "x", at_least=0.8),
            Line("packets that arrived / sent", arrived / sent, "x", at_least=0.999),
        ],
    )


if __name__ == "__main__":
    main()
