"""Outages after silent failures of links, detection included.

Run as root, on a quiet machine: FiConn_{2,4} and DCell_{2,3}, hellos every 30 ms, three of which
may be missing.

For each failure a link between two servers is drawn among those that the packets of the measured
pairs take; it fails silently.  A pair's outage is the gap between answered pings, which is up to an
interval longer than the real one.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from bench.report import Line, show
from weft.testbed.linux.clock import wait_until
from weft.testbed.measure.outage import OutageProbe
from weft.testbed.measure.ping import ping
from weft.testbed.measure.traceroute import trace
from weft.testbed.network.network import RunningNetwork
from weft.topologies import build
from weft.topologies.core.topology import Topology

SPECS = ("ficonn:n=4,k=2", "dcell:n=3,k=2")
SCHEME = "pr-gpi"
PAIRS, INTERVAL_MS = 40, 10.0
BEFORE_S, AFTER_S, REST_S = 0.3, 0.7, 1.5
MOST_MS = 150

Pairs = Sequence[tuple[int, int]]


@dataclass(frozen=True)
class Recovery:
    """Outages of pairs that recovered, pairs that did not within `after_s`, and the latest ping.

    Without an outage the median is 0.
    """

    outages_ms: list[float]
    lost: int
    late_ms: float
    after_s: float

    @property
    def median_ms(self) -> float:
        return statistics.median(self.outages_ms) if self.outages_ms else 0.0

    @property
    def p99_ms(self) -> float:
        return (
            sorted(self.outages_ms)[int(0.99 * (len(self.outages_ms) - 1))]
            if self.outages_ms
            else 0.0
        )

    def lines(self, who: str, most_ms: float | None = None) -> list[Line]:
        return [
            Line(
                f"{who}: outage of a pair, median of {len(self.outages_ms)}",
                self.median_ms,
                "ms",
                at_most=most_ms,
            ),
            Line("  99th percentile", self.p99_ms, "ms", at_most=most_ms),
            Line(f"  pairs without another way for {self.after_s:g} s", self.lost, ""),
            Line("  latest ping", self.late_ms, "ms"),
        ]


def some_pairs(topology: Topology, count: int) -> Pairs:
    """Return pairs of random servers, the same ones each time."""
    draw = random.Random(1)
    return [tuple(draw.sample(range(topology.servers), 2)) for _ in range(count)]  # type: ignore[misc]


def links_in_use(network: RunningNetwork, pairs: Pairs) -> list[str]:
    """Return the links between servers that packets of `pairs` take, there or back."""
    topology, both = network.topology, [*pairs, *((dst, src) for src, dst in pairs)]
    wired = {frozenset(link) for link in topology.links[:, [0, 2]].tolist()}
    hops = {frozenset(hop) for one in trace(network, both) for hop in pairwise(one.nodes)}
    return sorted(
        "-".join(topology.naming.name(node) for node in sorted(hop)) for hop in hops & wired
    )


def recovery(
    network: RunningNetwork, pairs: Pairs, failures: int, *, after_s: float = AFTER_S
) -> Recovery:
    """Fail links silently, one after the other; each is repaired `after_s` later."""
    total = Recovery([], 0, 0.0, after_s)
    for _, outages, lost, late_ms in one_by_one(network, pairs, failures, after_s=after_s):
        total = Recovery(
            [*total.outages_ms, *outages], total.lost + lost, max(total.late_ms, late_ms), after_s
        )
    return total


def one_by_one(
    network: RunningNetwork, pairs: Pairs, failures: int, *, after_s: float = AFTER_S
) -> Iterator[tuple[str, list[float], int, float]]:
    """Yield link, outages (ms), pairs without another path, latest ping (ms) of each failure."""
    draw = random.Random(2)
    for _ in range(failures):
        wait_until(
            "every pair to answer",
            lambda: not ping(network, pairs, timeout_s=0.5).lost,
            timeout_s=60,
        )
        time.sleep(REST_S)  # in which sources look at their paths again
        link = draw.choice(links_in_use(network, pairs))
        with OutageProbe(network, pairs, interval_ms=INTERVAL_MS) as probe:
            time.sleep(BEFORE_S)
            network.fail(link, silent=True)
            time.sleep(after_s)
        table = probe.table
        network.restore(link)
        gaps = [gap for outage in table.outages for gap in outage.gaps]
        yield (
            link,
            [1000 * gap.length_s(table.end_s) for gap in gaps if gap.end_s is not None],
            sum(gap.end_s is None for gap in gaps),
            1000 * table.late_s,
        )


def ours(spec: str, failures: int, *, packed: int = 0, scheme: str = SCHEME) -> list[Line]:
    """Return the lines of our daemons."""
    topology = build(spec)
    network = RunningNetwork.create(topology, None, scheme=scheme, packed=packed)
    try:
        pairs = some_pairs(topology, PAIRS)
        found = recovery(network, pairs, failures)
        false = sum(row.losses for row in network.rows().values()) - 2 * failures
    finally:
        network.down()
    return [
        *found.lines(f"{scheme} on {spec}", MOST_MS),
        Line("  neighbours lost beyond those that died", false, ""),
    ]


def main() -> None:
    """Print median and 99th percentile for each network."""
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument(
        "--failures", type=int, default=25, help="links that die, one after the other"
    )
    given.add_argument("--network", action="append", choices=SPECS, help="only this one")
    given.add_argument(
        "--processes", type=int, default=0, help="that share the daemons; 0: each has its own"
    )
    asked = given.parse_args()
    for spec in asked.network or SPECS:
        show(
            f"{asked.failures} silent failures", ours(spec, asked.failures, packed=asked.processes)
        )


if __name__ == "__main__":
    main()
