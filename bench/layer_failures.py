"""Outages in a layer of Slim Fly with q = 5 after announced and silent failures.

Pairs of hosts ping each other every 2 ms in layer 0; each failure is of a link between routers that
packets of some of them take.  A pair's outage is the gap between its pings that were answered, so
it is up to an interval too long. Beside it, how long all of the network took to come up, and the
processor's time for that.  Run as root.
"""

from __future__ import annotations

import argparse
import random
import resource
import time
from itertools import pairwise

from bench.recovery import Recovery, some_pairs
from bench.report import Line, show
from weft.daemons.core import registry
from weft.testbed.linux.clock import wait_until
from weft.testbed.measure.outage import OutageProbe
from weft.testbed.measure.ping import ping
from weft.testbed.network.network import RunningNetwork
from weft.topologies import build

SPEC, SCHEME = "slimfly:q=5,p=4", "fatpaths:layers=9,trigger=none"
PAIRS, INTERVAL_MS = 20, 2.0
BEFORE_S, AFTER_S = 0.2, 0.6
MOST_MS = {False: 20.0, True: 150.0}  # announced, silent


def failures(network: RunningNetwork, count: int, *, silent: bool) -> Recovery:
    """Let so many links die, one after the other, each mended before the next."""
    topology, draw = network.topology, random.Random(3)
    pairs = some_pairs(topology, PAIRS)
    scheme, options = registry.scheme(SCHEME)
    hops = [
        hop
        for src, dst in pairs
        for hop in layer_0(scheme.path(topology, options, src, dst)[0].nodes)
    ]
    links = sorted({topology.link_between(*hop) for hop in hops})
    found = Recovery([], 0, 0.0, AFTER_S)
    for link in draw.sample(links, min(count, len(links))):
        wait_until(
            "every pair to answer",
            lambda: not ping(network, pairs, timeout_s=0.5).lost,
            timeout_s=60,
        )
        with OutageProbe(network, pairs, interval_ms=INTERVAL_MS) as probe:
            time.sleep(BEFORE_S)
            network.fail(topology.link_name(link), silent=silent)
            time.sleep(AFTER_S)
        network.restore(topology.link_name(link))
        network.wait_until_converged()
        table = probe.table
        gaps = [gap for outage in table.outages for gap in outage.gaps]
        ended = [1000 * gap.length_s(table.end_s) for gap in gaps if gap.end_s is not None]
        late_ms = max(found.late_ms, 1000 * table.late_s)
        found = Recovery(
            [*found.outages_ms, *ended], found.lost + len(gaps) - len(ended), late_ms, AFTER_S
        )
    return found


def layer_0(nodes: tuple[int, ...]) -> list[tuple[int, int]]:
    """The hops between routers on a path from host to host."""
    return list(pairwise(nodes[1:-1]))


def main() -> None:
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("--failures", type=int, default=12, help="of each kind, one after the other")
    given.add_argument(
        "--processes", type=int, default=2, help="that share the daemons; 0: each has its own"
    )
    asked = given.parse_args()
    used = resource.getrusage(resource.RUSAGE_SELF)
    network = RunningNetwork.create(build(SPEC), None, scheme=SCHEME, packed=asked.processes)
    try:
        spent = resource.getrusage(resource.RUSAGE_SELF)
        own_s = spent.ru_utime + spent.ru_stime - used.ru_utime - used.ru_stime
        lines = [
            Line("bringing it up", sum(network.stages.values()), "s", at_most=2.0),
            Line("  processor's time of the bringer, daemons aside", own_s, "s"),
        ]
        for silent in (False, True):
            kind = "silent" if silent else "announced"
            lines += failures(network, asked.failures, silent=silent).lines(kind, MOST_MS[silent])
    finally:
        network.down()
    show("Failures of links", lines)


if __name__ == "__main__":
    main()
