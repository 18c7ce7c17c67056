"""weft's daemons beside FRR's: outage of pairs at a silent failure, memory and processor time.

Run as root, on a quiet machine, with Debian's package frr.  FRR runs OSPF and BFD
(testbed/frr/frr_config.py).  Both sides have the same interval of hellos, the same number that may
be lost, real-time priority, the same pings, and failures drawn by the same rule among the links
that their packets take.  A pair's outage is the gap between answered pings, which is up to an
interval longer than the real one.

A side whose daemons need all processors is not measured; the output has its load.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from bench.daemons import load
from bench.report import Line, show
from weft.testbed.frr.frr import frr
from weft.testbed.frr.frr_config import Ospf
from weft.testbed.linux.clock import wait_until
from weft.testbed.machine import doctor
from weft.testbed.measure.kernel_counters import pss_kib
from weft.testbed.measure.outage import OutageProbe
from weft.testbed.measure.ping import ping
from weft.testbed.measure.traceroute import trace
from weft.testbed.network.network import RunningNetwork
from weft.topologies import build
from weft.topologies.core.topology import Topology

SPEC = "ficonn:n=4,k=2"
SCHEME = "pr-gpi"
HELLO_MS = 30
DETECTS = 4  # hellos within which a failure is noticed
PAIRS, INTERVAL_MS = 40, 10.0
BEFORE_S, AFTER_S, REST_S = 0.3, 0.7, 1.5
MOST_MS = 150
# of all processors, that daemons may take: beyond, neither they nor the prober are in time
MOST_LOAD = 0.85

Pairs = Sequence[tuple[int, int]]
Side = tuple[RunningNetwork, set[int], float]


class Recovery(NamedTuple):
    """Outages of pairs that recovered (ms), and the number of pairs that did not."""

    outages_ms: list[float]
    lost: int

    def quantile_ms(self, fraction: float) -> float:
        """Return a quantile of the outages; 0 without an outage."""
        if not self.outages_ms:
            return 0.0
        return float(np.quantile(self.outages_ms, fraction))


def random_pairs(topology: Topology) -> Pairs:
    """Return PAIRS pairs of random servers, the same ones each time."""
    draw = random.Random(1)
    return [tuple(draw.sample(range(topology.servers), 2)) for _ in range(PAIRS)]  # type: ignore[misc]


def links_in_use(network: RunningNetwork, pairs: Pairs) -> list[str]:
    """Return the links between servers that packets of `pairs` take, in both directions."""
    topology = network.topology
    directions = [*pairs, *((dst, src) for src, dst in pairs)]
    wired = {frozenset(link) for link in topology.links[:, [0, 2]].tolist()}
    hops = {frozenset(hop) for row in trace(network, directions) for hop in pairwise(row.nodes)}
    return sorted(
        "-".join(topology.naming.name(node) for node in sorted(hop)) for hop in hops & wired
    )


def recovery(network: RunningNetwork, failures: int, after_s: float) -> Recovery:
    """Fail links silently, one after the other; each is repaired `after_s` later."""
    draw = random.Random(2)
    pairs = random_pairs(network.topology)
    outages_ms = []
    lost = 0
    for _ in range(failures):
        wait_until(
            "every pair to answer",
            lambda: not ping(network, pairs, timeout_s=0.5).lost,
            timeout_s=60,
        )
        time.sleep(REST_S)  # in which sources probe their paths again
        link = draw.choice(links_in_use(network, pairs))
        with OutageProbe(network, pairs, interval_ms=INTERVAL_MS) as probe:
            time.sleep(BEFORE_S)
            network.fail(link, silent=True)
            time.sleep(after_s)
        table = probe.table
        network.restore(link)
        gaps = [gap for outage in table.outages for gap in outage.gaps]
        ended = [gap for gap in gaps if gap.end_s is not None]
        outages_ms += [1000 * gap.length_s(table.end_s) for gap in ended]
        lost += len(gaps) - len(ended)
    return Recovery(outages_ms, lost)


@contextmanager
def theirs(spec: str, hello_ms: int) -> Iterator[Side]:
    """Yield a network with FRR, its processes, and the memory of a node in MB."""
    network = RunningNetwork.create(build(spec), None)
    try:
        with frr(network, Ospf(network.plan, hello_ms)) as routed:
            yield network, routed.pids(), statistics.median(routed.memory_kib()) / 1024
    finally:
        network.down()


@contextmanager
def ours(spec: str, hello_ms: int) -> Iterator[Side]:
    """Yield the same with weft's daemons."""
    scheme = f"{SCHEME}:hello_ms={hello_ms}"
    network = RunningNetwork.create(build(spec), None, scheme=scheme, packed=0)
    try:
        pids = {row.pid for row in network.rows().values()}
        yield network, pids, statistics.median(map(pss_kib, pids)) / 1024
    finally:
        network.down()


def figures(side: Side, failures: int, hello_ms: int) -> dict[str, float]:
    """Return the figures of a network: memory and load, and outages if the load permits."""
    network, pids, memory_mb = side
    processors = load(pids)
    values = {"memory of a node (MB)": memory_mb, "processors, all daemons": processors}
    if processors < MOST_LOAD * len(os.sched_getaffinity(0)):
        outages = recovery(network, failures, AFTER_S + DETECTS * hello_ms / 1000)
        values["outage of a pair, median (ms)"] = outages.quantile_ms(0.5)
        values["outage of a pair, 99th percentile (ms)"] = outages.quantile_ms(0.99)
        values["pairs without another path"] = outages.lost
    return values


def side_by_side(spec: str, failures: int, hello_ms: int) -> list[Line]:
    """Return the figures of both sides, and their ratios."""
    with ours(spec, hello_ms) as side:
        own = figures(side, failures, hello_ms)
    with theirs(spec, hello_ms) as side:
        other = figures(side, failures, hello_ms)
    lines = []
    for name, value in own.items():
        is_outage = name.startswith("outage") and hello_ms == HELLO_MS
        lines.append(Line(f"{name}: weft", value, "", at_most=MOST_MS if is_outage else None))
        if name in other:
            lines.append(Line(f"{name}: FRR", other[name], ""))
        if other.get(name):
            lines.append(Line("  ratio", value / other[name], "x", at_most=1))
    return lines


def main() -> None:
    """Print both sides for each network."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--failures", type=int, default=20, help="links, one after the other")
    parser.add_argument("--hello-ms", type=int, default=HELLO_MS, help="of both sides")
    parser.add_argument("--network", action="append", help=f"instead of {SPEC}")
    options = parser.parse_args()
    try:
        doctor.require("frr", "bench.frr")
    except ValueError as error:
        raise SystemExit(str(error)) from None
    for spec in options.network or [SPEC]:
        lines = side_by_side(spec, options.failures, options.hello_ms)
        show(f"{options.failures} silent failures on {spec}, {options.hello_ms} ms", lines)


if __name__ == "__main__":
    main()
