"""Outages of the traffic through a failed element under each scheme.

The failures are those of experiments/ccrdn/failure.py.  The seed draws the link, server or rack; it
is the same one for every scheme unless no path crosses it there.  We measure live pairs of servers
whose path crosses the failed element in either direction and that some path still connects.

The failure happens twice.  First the pairs ping every 10 ms: a pair's outage is the time from the
failure during which requests are lost; it lasts until the repair if the scheme has no other path.
Then a TCP flow between one of the pairs runs through the failure, alone.  Rates are scaled down
from the papers' 1 Gbit/s; TCP's own timers are not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, median
from typing import Any, NamedTuple

import numpy as np

from weft.experiments.ccrdn.failure import KINDS, ElementFailure, failures
from weft.experiments.engines import common_parameters as common
from weft.experiments.engines import reachability
from weft.experiments.engines.kernel_run import measured
from weft.experiments.engines.routes import (
    EVERYWHERE,
    Pair,
    both_ways,
    connects,
    lengths,
    some_pairs,
)
from weft.experiments.report.claims import Sweep
from weft.experiments.report.panels import Bars
from weft.experiments.runner.definition import Experiment, Result, Row, Run, Table
from weft.experiments.runner.parameters import Integer, Number, Word
from weft.testbed.linux import clock
from weft.testbed.measure.outage import Outage, OutageProbe
from weft.testbed.measure.traceroute import trace
from weft.testbed.network.network import RunningNetwork
from weft.testbed.traffic.tcp import Stream

INTERVAL_MS = 10.0
# random unordered pairs, from which the measured ones are drawn; each may first need a probe of PR
MOST_TRACED = 150
MOST_TRIED = 4  # flows, until the path of one crosses the failed element
STEADY_S = 1.0  # of TCP before the failure, and after the repair
# of pings before the failure: by then the flows that traced the paths no longer count as in use
SETTLE_S = 5.0
# of pings after the repair: longer than PR's interval between probes of a path
HEAL_S = 1.5

# columns that are None if the failure affects no pair
COLUMNS = (
    *("watched_pairs", "outage_ms", "outage_p99_ms", "outages_ms"),
    *("recovered", "recovered_fraction"),
    *("predicted_fraction", "as_predicted", "lost_by_mending_packets"),
    *("before_hops", "after_hops", "shortest_hops", "path_stretch"),
    *("tcp_concerned", "tcp_before_bps", "tcp_through_bps", "tcp_stall_ms", "tcp_error"),
)

NOTHING: Row = {"failed": None, "affected_pairs": 0, **dict.fromkeys(COLUMNS)}


@dataclass(frozen=True)
class Hit:
    """A failure and the measured pairs.

    affected: number of pairs that these are drawn from.
    hops: of each measured pair before the failure.
    """

    failure: ElementFailure
    pairs: list[Pair]
    affected: int
    hops: list[int]


def measure(run: Run) -> Result:
    """Measure outage, path and goodput of pairs that one failure affects."""
    generator = run.generator()
    return measured(run, lambda net: before_and_during(net, run, generator), link=common.link(run))


def before_and_during(net: RunningNetwork, run: Run, generator: np.random.Generator) -> Row:
    """Return the figures of one failure; None each if no failure of that kind affects any pair."""
    row = {**NOTHING}
    hit = choose(net, run, generator)
    if hit:
        survivors = predicted(hit, run.text("routing"))
        row |= of_hit(hit)
        row |= pings(fail(net, run, hit), hit, survivors)
        row |= stream(net, run, hit, survivors)
    return row


def of_hit(hit: Hit) -> Row:
    """Return the columns about a failure itself."""
    return {
        "failed": hit.failure.name,
        "affected_pairs": hit.affected,
        "watched_pairs": len(hit.pairs),
    }


def choose(net: RunningNetwork, run: Run, generator: np.random.Generator) -> Hit | None:
    """Return the first failure that affects a traced pair."""
    topology = net.topology
    sample = some_pairs(topology.servers, MOST_TRACED, generator)
    reachability.wait_for_paths(net, sample, lengths(topology, run.text("routing"), sample))
    return first_hit(run, generator, sample, reachability.traced(net, sample))


def first_hit(
    run: Run,
    generator: np.random.Generator,
    sample: Sequence[Pair],
    paths: Mapping[Pair, Sequence[int]],
) -> Hit | None:
    """Return the first failure of the run's kind that affects a pair; None if there is none.

    A rack in a network with k = 1, for example, affects none: paths cross no third rack.

    Args:
        run: with the kind of failure.
        generator: draws failures and pairs.
        sample: pairs that may be affected.
        paths: of those of them that answer.
    """
    topology = run.topology
    for failure in failures(run.text("failure"), topology, generator):
        pairs = affected(failure, paths, lengths(failure.after, "bfs", sample) or {})
        if pairs:
            drawn = generator.permutation(len(pairs))[: run.integer("pairs")].tolist()
            watched = [pairs[number] for number in drawn]
            hops = [len(paths[pair]) - 1 for pair in watched]
            return Hit(failure, watched, len(pairs), hops)
    return None


def affected(
    failure: ElementFailure, paths: Mapping[Pair, Sequence[int]], connected: Mapping[Pair, int]
) -> list[Pair]:
    """Return the live pairs of `connected` whose path in either direction crosses the failure."""
    pairs = []
    for src, dst in sorted(both_ways(paths)):
        crosses = failure.passes(paths[src, dst]) or failure.passes(paths[dst, src])
        if crosses and (src, dst) in connected and failure.nodes.isdisjoint((src, dst)):
            pairs.append((src, dst))
    return pairs


def predicted(hit: Hit, routing: str) -> set[Pair] | None:
    """Return the pairs that the scheme connects during the failure; None for a transient one."""
    if not hit.failure.lasts:
        return None
    pairs = [*hit.pairs, *((dst, src) for src, dst in hit.pairs)]
    return both_ways(connects(hit.failure.after, routing, pairs)) & set(hit.pairs)


class Failed(NamedTuple):
    """One failure under pings.

    failed_s, traced_s, mended_s: times of the failure, of the second traceroute, of the repair.
    outages: of the measured pairs.
    paths: those that the second traceroute sees.
    """

    failed_s: float
    traced_s: float
    mended_s: float
    outages: Sequence[Outage]
    paths: dict[Pair, Sequence[int]]


def fail(net: RunningNetwork, run: Run, hit: Hit) -> Failed:
    """Ping the measured pairs across failure and repair."""
    with OutageProbe(net, hit.pairs, interval_ms=INTERVAL_MS) as probe:
        clock.sleep(SETTLE_S)
        failed_s = clock.monotonic()
        hit.failure.happen(net)
        clock.sleep(float(run.parameters["failure_s"]))
        traced_s = clock.monotonic()
        paths = reachability.traced(net, hit.pairs, timeout_s=0.3, retries=1)
        # under a virtual clock tracing takes no time, and the repair may lose a ping
        clock.sleep(2 * INTERVAL_MS / 1000)
        mended_s = clock.monotonic()
        hit.failure.mend(net)
        net.wait_until_converged()
        clock.sleep(HEAL_S)
    return Failed(failed_s, traced_s, mended_s, probe.table.outages, paths)


def pings(failed: Failed, hit: Hit, survivors: set[Pair] | None) -> Row:
    """Return outages and path lengths of the measured pairs across failure and repair."""
    recovered = [not cut_off_at(outage, failed.traced_s) for outage in failed.outages]
    saved = {pair for pair, answers in zip(hit.pairs, recovered, strict=True) if answers}
    hops = {pair: len(nodes) - 1 for pair, nodes in failed.paths.items()}
    return {
        **outage_figures(failed),
        "recovered": recovered,
        "recovered_fraction": len(saved) / len(hit.pairs),
        "predicted_fraction": None if survivors is None else len(survivors) / len(hit.pairs),
        "as_predicted": None if survivors is None else saved == survivors,
        **stretch(hit, saved, hops),
    }


def outage_figures(failed: Failed) -> Row:
    """Return median and 99th percentile of the outages, and pings that the repair lost."""
    outages_ms = [
        1000 * outage_s(outage, failed.failed_s, failed.mended_s) for outage in failed.outages
    ]
    gaps = [gap for outage in failed.outages for gap in outage.gaps]
    return {
        "outage_ms": median(outages_ms),
        "outage_p99_ms": np.percentile(outages_ms, 99),
        "outages_ms": [round(outage_ms, 2) for outage_ms in outages_ms],
        "lost_by_mending_packets": sum(gap.lost for gap in gaps if gap.begin_s >= failed.mended_s),
    }


def outage_s(outage: Outage, failed_s: float, mended_s: float) -> float:
    """Return how long (s) a pair was cut off between failure and repair."""
    within = (
        (max(gap.begin_s, failed_s), min(gap.end_s or mended_s, mended_s))
        for gap in outage.gaps
        if gap.begin_s < mended_s
    )
    return sum((max(0.0, end - begin) for begin, end in within), 0.0)


def cut_off_at(outage: Outage, at_s: float) -> bool:
    """Return whether a pair was cut off at the time `at_s`."""
    return any(
        gap.begin_s <= at_s and (gap.end_s is None or gap.end_s > at_s) for gap in outage.gaps
    )


def stretch(hit: Hit, saved: set[Pair], after: dict[Pair, int]) -> Row:
    """Return the mean path lengths of the `saved` pairs; `after` are the hops of pairs now."""
    shortest = lengths(hit.failure.after, "bfs", hit.pairs) or {}
    hops = [
        (before, after[pair], shortest[pair])
        for pair, before in zip(hit.pairs, hit.hops, strict=True)
        if pair in saved and pair in after
    ]
    if not hops:
        missing = dict.fromkeys(("after_hops", "shortest_hops", "path_stretch"))
        return {"before_hops": mean(hit.hops), **missing}
    before, during, least = (mean(column) for column in zip(*hops, strict=True))
    return {
        "before_hops": before,
        "after_hops": during,
        "shortest_hops": least,
        "path_stretch": during / before,
    }


def stream(net: RunningNetwork, run: Run, hit: Hit, survivors: set[Pair] | None) -> Row:
    """Return TCP's figures for the same failure, between a pair that the scheme saves if any."""
    reachability.wait_for_paths(net, hit.pairs, dict(zip(hit.pairs, hit.hops, strict=True)))
    for pair in tried(hit, survivors):
        row = stream_of(net, run, hit.failure, pair)
        if row["tcp_concerned"]:
            break
    return row


def tried(hit: Hit, survivors: set[Pair] | None) -> list[Pair]:
    """Return the pairs between which TCP may run, in the order of trials."""
    pairs = [pair for pair in hit.pairs if survivors and pair in survivors] or hit.pairs
    return pairs[:MOST_TRIED]


def stream_of(net: RunningNetwork, run: Run, failure: ElementFailure, pair: Pair) -> Row:
    """Run a TCP flow between `pair` through the failure, if its path crosses the element.

    PR may have moved the flow to another path because of the load that it makes.
    """
    with Stream(net, *pair, congestion_control=run.text("congestion_control")) as flow:
        clock.sleep(2 * STEADY_S)
        crosses = any(failure.passes(path.nodes) for path in trace(net, [pair, pair[::-1]]))
        failed_s = clock.monotonic()
        before_bps = flow.arrivals.goodput_bps(failed_s - STEADY_S, failed_s)
        figures: Row = {"tcp_concerned": crosses, "tcp_before_bps": before_bps}
        if not crosses:
            return figures | dict.fromkeys(("tcp_through_bps", "tcp_stall_ms", "tcp_error"))
        failure.happen(net)
        clock.sleep(float(run.parameters["failure_s"]))
        mended_s = clock.monotonic()
        failure.mend(net)
        net.wait_until_converged()
        clock.sleep(STEADY_S)
    return figures | {
        "tcp_through_bps": flow.arrivals.goodput_bps(failed_s, mended_s),
        "tcp_stall_ms": 1000 * flow.arrivals.stall_s(failed_s, mended_s),
        "tcp_error": flow.arrivals.error,
    }


def check(run: Run) -> None:
    """Raise ValueError unless the scheme suits the network, and this kernel has its TCP."""
    common.check_routing(run)
    common.server_centric(run)
    common.check_tcp(run)


def affected_runs(table: Table) -> Table:
    """Return the rows of failures that affected pairs, with TCP's goodput over that before."""
    return [{**row, "tcp_fraction": through(row)} for row in table if row["affected_pairs"]]


def through(row: Any) -> float | None:
    """Return TCP's goodput during the failure over that before; None if it was not affected."""
    if row["tcp_through_bps"] is None or not row["tcp_before_bps"]:
        return None
    return float(row["tcp_through_bps"] / row["tcp_before_bps"])


FIGURE = Bars(
    columns={
        "outage_ms": "outage of a pair (ms)",
        "recovered_fraction": "pairs that recover (fraction)",
        "tcp_fraction": "TCP meanwhile (fraction of before)",
        "path_stretch": "path after / before, recovered pairs",
    },
    by=("routing",),
    facet=("topology", "failure"),
    always=2,
    strokes={
        "outage_ms": {"outage_p99_ms": "99th percentile"},
        "recovered_fraction": {"predicted_fraction": "predicted by the graph"},
    },
    rows=affected_runs,
)
SWEEPS = (
    Sweep(
        "proxy_failover",
        {"clock": "virtual", "topology": "dcell:n=4,k=1", "routing": ("pr-gpi", "pr-gpe", "dfr")},
    ),
)
EXPERIMENT = Experiment(
    name="proxy_failover",
    question=(
        "When a link, a server, a rack or a daemon fails, which pairs are cut off, and for how "
        "long?"
    ),
    source="CCRDN, sections 5.4 and 7.2 (faults), on the kernel",
    engines=("kernel",),
    axes={
        "topology": common.TOPOLOGY.over("ficonn:n=4,k=2"),
        "routing": common.ROUTING.over(*EVERYWHERE),
        "failure": Word("what fails", words=[*KINDS]).over(*list(KINDS)),
        "pairs": Integer(
            "most pairs of servers that ping each other", unit="pairs", least=1, most=1000
        ).over(20),
        "failure_s": Number("how long the failure lasts", unit="s", least=0.5, most=600).over(1.5),
        "rate_mbps": common.RATE_MBPS.over(20),
        "queue_packets": common.QUEUE_PACKETS.over(50),
        "congestion_control": common.CONGESTION_CONTROL.over("cubic"),
        "processes": common.PROCESSES.over(0),
    },
    columns={
        "failed": "failed element, by name; null if none affects a pair",
        "affected_pairs": "pairs, of those traced, whose packets went through it",
        "watched_pairs": "affected pairs that ping each other every few ms",
        "outage_ms": (
            "median over watched pairs of the time without answers while the failure lasts"
        ),
        "outage_p99_ms": "99th percentile of that",
        "outages_ms": "list: outage of each watched pair",
        "recovered": "list: whether each watched pair had an answer again before the repair",
        "recovered_fraction": "watched pairs that had an answer again",
        "predicted_fraction": (
            "watched pairs that the scheme can save, by the graph; null where it predicts nothing"
        ),
        "as_predicted": "whether exactly the predicted pairs recovered",
        "lost_by_mending_packets": "pings lost after the repair",
        "before_hops": "mean path of the pairs that recovered, before the failure",
        "after_hops": (
            "mean path of the pairs that recovered, while the failure lasts, by traceroute"
        ),
        "shortest_hops": "mean shortest path that is left to these pairs",
        "path_stretch": "after_hops over before_hops",
        "tcp_concerned": "whether the TCP flow's path crossed the failed element",
        "tcp_before_bps": "goodput of a TCP flow before the failure",
        "tcp_through_bps": "goodput of the TCP flow while the failure lasts",
        "tcp_stall_ms": "longest time without data in the TCP flow",
        "tcp_error": "error that ended the TCP flow, if any",
    },
    seeds=1,
    version=5,
    takes_s=420,
    measure=measure,
    plot=FIGURE,
    check=check,
)
