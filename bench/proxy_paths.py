"""Comparison of packets' paths with those that PR computes, with and without failures.

A tenth of the links fails.

Run as root: every ordered pair of DCell_{1,4}, beta-DCell_{1,5} and FiConn_{2,4}, and 2,000 pairs
of DCell_{2,3}, under each pr-* scheme.  Counted is what is true at one moment, the first at which
nothing is left to do, or the last one:

    connected   pairs that the algorithm connects over the links that live, by the graph engine
    answered    of those, the pairs that ping
    computed    of those, the pairs whose packets, followed hop by hop, take the path by way of the
                proxy that their source has chosen, and over as many hops as the graph engine says;
                up to a server that the algorithm does not connect to the source, and so cannot
                answer

More questions a second are asked than by default, since all destinations are in use at once.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bench.report import Line, show
from weft.daemons.proxy import routing as proxy
from weft.experiments.engines.predicted_paths import both_ways, lengths
from weft.testbed.measure.ping import ping
from weft.testbed.measure.traceroute import Trace, trace
from weft.testbed.network.network import RunningNetwork
from weft.testbed.node_daemon import control
from weft.topologies import build
from weft.topologies.core.failures import fail_links, random_links
from weft.topologies.core.topology import Topology
from weft.topologies.recursive.ccrdn import CcrdnNaming

SPECS = {
    "dcell:n=4,k=1": None,
    "beta-dcell:n=5,k=1": None,
    "ficonn:n=4,k=2": None,
    "dcell:n=3,k=2": 2000,
}
SCHEMES = ("pr-gpe", "pr-gpi", "pr-gp0")
OPTIONS = "probes_per_s={rate},urgent_per_s={rate},idle_s=60"
# of all servers together, which share this machine, each kind: with 2000, 156 servers choke
QUESTIONS_PER_S = 300
FAILED_FRACTION = 0.1

Pair = tuple[int, int]


@dataclass(frozen=True)
class Verdict:
    """Outcome of one network.

    pairs: measured pairs.
    connected: of these, pairs that the algorithm connects both ways; of which some ping, and some
        take the computed path.  Each other pair has a line.
    """

    pairs: int
    connected: int
    answered: int
    computed: int
    wrong: tuple[str, ...]

    @property
    def whole(self) -> bool:
        return self.connected == self.answered == self.computed


def scheme_for(name: str, servers: int, questions_per_s: int) -> str:
    """`name`, with as many questions per server as the machine carries."""
    return f"{name}:{OPTIONS.format(rate=max(2, questions_per_s // servers))}"


def break_links(network: RunningNetwork, fraction: float, seed: int = 1) -> Topology:
    """Let that part of the links die; the topology without them."""
    topology = network.topology
    links = random_links(topology, fraction=fraction, generator=np.random.default_rng(seed))
    for link in links.tolist():
        network.fail(topology.link_name(link))
    return fail_links(topology, links)


def verdict(
    network: RunningNetwork,
    live: Topology,
    scheme: str,
    hops: dict[Pair, int],
    pairs: Sequence[Pair],
) -> Verdict:
    """Return the state of `pairs` now.

    `live`: the topology without what is dead; `hops`: of the paths that the algorithm computes for
    those that it connects.
    """
    connected = sorted(both_ways(hops) & set(pairs))
    lost = {(row.src, row.dst) for row in ping(network, connected, timeout_s=0.5, retries=2).lost}
    chosen = choices(network, {src for src, _ in connected})
    topology = network.topology
    assert isinstance(topology.naming, CcrdnNaming)
    ccrdn, wrong = topology.naming.network, []
    for one in trace(network, connected):
        route = proxy.route(
            ccrdn.rule, ccrdn.t, one.src, one.dst, chosen.get((one.src, one.dst), -1)
        )
        seen = route[: len(one.nodes)] if one.reason and mute(live, scheme, one, route) else route
        if (
            list(one.nodes) != seen
            or (one.reason and seen is route)
            or len(route) - 1 != hops[one.src, one.dst]
        ):
            taken = " ".join(map(topology.naming.name, one.nodes)) + (
                f" ({one.reason})" if one.reason else ""
            )
            meant = f"{hops[one.src, one.dst]} hops, chosen " + " ".join(
                map(topology.naming.name, route)
            )
            wrong.append(f"{taken}: computed {meant}")
    return Verdict(
        len(pairs),
        len(connected),
        len(connected) - len(lost),
        len(connected) - len(wrong),
        tuple(wrong),
    )


def mute(live: Topology, scheme: str, one: Trace, route: Sequence[int]) -> bool:
    """Return True if the server at which a trace ended has no path back to the source."""
    if len(one.nodes) >= len(route) or not (one.reason or "").startswith("no answer"):
        return False
    back = (route[len(one.nodes)], one.src)
    return back not in (lengths(live, scheme, [back]) or {})


def choices(network: RunningNetwork, sources: set[int]) -> dict[Pair, int]:
    """The proxy that each of `sources` has chosen for each of its destinations, -1 for DR."""
    naming = network.topology.naming
    found: dict[Pair, int] = {}
    for src in sources:
        told = control.status(network.run.directory, naming.name(src))["protocol"]["destinations"]
        found |= {(src, naming.node(name)): row["proxy"] for name, row in told.items()}
    return found


def settle(
    network: RunningNetwork, live: Topology, scheme: str, pairs: Sequence[Pair], within_s: float
) -> Verdict:
    """The first verdict that is whole, or the last one within that time."""
    hops = lengths(live, scheme, pairs)
    assert hops is not None
    end = time.monotonic() + within_s
    while (
        not (found := verdict(network, live, scheme, hops, pairs)).whole and time.monotonic() < end
    ):
        time.sleep(0.5)
    return found


def some_pairs(servers: int, most: int | None) -> list[Pair]:
    """All ordered pairs, or `most` of them at random, each with its reverse."""
    every = [(src, dst) for src in range(servers) for dst in range(src)]
    if most is not None:
        drawn = np.random.default_rng(0).permutation(len(every))[: most // 2]
        every = [every[i] for i in drawn.tolist()]
    return [*every, *((dst, src) for src, dst in every)]


def check(spec: str, name: str, asked: argparse.Namespace) -> list[Line]:
    """The lines of one network and scheme, whole and broken."""
    topology = build(spec)
    scheme = scheme_for(name, topology.servers, asked.questions_per_s)
    pairs = some_pairs(topology.servers, asked.pairs or SPECS[spec])
    network = RunningNetwork.create(topology, None, scheme=scheme, packed=asked.processes)
    lines = []
    try:
        for fraction in (0.0, FAILED_FRACTION):
            live, began_s = break_links(network, fraction), time.monotonic()
            found = settle(network, live, scheme, pairs, asked.within_s)
            for line in found.wrong[:5]:
                print(f"  {name}: {line}")
            lines += [
                Line(
                    f"{name} on {spec}, {100 * fraction:g} % dead: connected of {found.pairs}",
                    found.connected,
                    "",
                ),
                Line("  answered", found.answered, "", at_least=found.connected),
                Line("  on the computed path", found.computed, "", at_least=found.connected),
                Line("  after", time.monotonic() - began_s, "s"),
                Line(
                    "  neighbours lost so far",
                    sum(row.losses for row in network.rows().values()),
                    "",
                ),
            ]
    finally:
        network.down()
    return lines


def main() -> None:
    """Print the counts for each network and scheme."""
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("--network", action="append", choices=SPECS, help="only this one")
    given.add_argument("--scheme", action="append", choices=SCHEMES, help="only this one")
    given.add_argument("--pairs", type=int, help="ordered pairs of each network, at random")
    given.add_argument(
        "--questions-per-s", type=int, default=QUESTIONS_PER_S, help="of all servers, each kind"
    )
    given.add_argument("--within-s", type=float, default=200, help="how long the daemons may take")
    given.add_argument(
        "--processes", type=int, default=0, help="that share the daemons; 0: each has its own"
    )
    asked = given.parse_args()
    for spec in asked.network or SPECS:
        for name in asked.scheme or SCHEMES:
            show(f"{name} on {spec}", check(spec, name, asked))


if __name__ == "__main__":
    main()
