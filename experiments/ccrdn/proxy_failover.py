"""When something dies, how long are servers cut off whose packets went through it, under each
scheme?

The failures are those of experiments/ccrdn/failure.py; the seed says which link, server or rack it
is, the same one for every scheme unless no path leads through it there.  Watched are pairs of
servers whose packets pass what dies, there or back, that are alive and that some path still joins.

The failure happens twice.  First the pairs ping every 10 ms: a pair's outage is the time from the
failure during which requests are lost, and lasts until the failure is mended where the scheme has
no other way.  Then a TCP flow between one of them runs through it, alone.  Rates are scaled down
from the papers' 1 Gbit/s; TCP's own timers are not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from statistics import mean, median
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.experiments.ccrdn import kernel_columns
from weft.experiments.ccrdn.failure import KINDS, ElementFailure
from weft.experiments.engines import common_parameters as common
from weft.experiments.engines.predicted_paths import (
    EVERYWHERE,
    Pair,
    both_ways,
    connects,
    lengths,
    some_pairs,
)
from weft.experiments.report import figures, style
from weft.experiments.runner.definition import Experiment, Result, Run, Table, Value
from weft.experiments.runner.parameters import Integer, Number, Word
from weft.testbed.linux import clock
from weft.topologies import build
from weft.topologies.core.link import LinkSpec, Mbps

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from weft.testbed.measure.outage import Outage
    from weft.testbed.mininet.net import Net

INTERVAL_MS = 10.0
MOST_TRACED = 1000  # unordered pairs, drawn at random, among which are those that are watched
MOST_TRIED = 4  # flows, until one passes what is to fail
STEADY_S = 1.0  # of TCP before the failure, and after it has been mended
NONE_MS = 4.0  # where the figure shows that no ping was lost
TICKS = {NONE_MS: "none", 10: "10", 30: "30", 100: "100", 300: "300", 1000: "1000", 3000: "3000"}
# of pings before the failure: the flows by which paths were traced are in use no more then
SETTLE_S = 5.0
# of pings after the failure has been mended: longer than PR takes to look at a path again
HEAL_S = 1.5


COLUMNS = (  # that a run has if the failure concerns somebody
    *(
        "watched_pairs",
        "outage_ms",
        "outage_p99_ms",
        "outages_ms",
        "recovered",
        "recovered_fraction",
    ),
    *("predicted_fraction", "as_predicted", "lost_by_mending_packets"),
    *("before_hops", "after_hops", "shortest_hops", "path_stretch"),
    *("tcp_concerned", "tcp_before_bps", "tcp_through_bps", "tcp_stall_ms", "tcp_error"),
)


@dataclass(frozen=True)
class Hit:
    """A failure, the pairs that are watched, of how many, and over how many hops each went
    before."""

    failure: ElementFailure
    pairs: list[Pair]
    affected: int
    hops: list[int]


def measure(run: Run) -> Result:
    """Outage, path and goodput of those whom one failure concerns."""
    from weft.testbed.measure.fidelity import Fidelity
    from weft.testbed.mininet.net import Net

    topology, generator = build(run.text("topology")), np.random.default_rng(run.seed)
    link = LinkSpec(
        rate_bps=run.integer("rate_mbps") * Mbps, queue_packets=run.integer("queue_packets")
    )
    packed = run.integer("processes")
    with (
        Net(topology, link=link, routing=run.text("routing"), packed=packed) as net,
        Fidelity(net) as fidelity,
    ):
        row = before_and_during(net, run, generator)
    report = fidelity.report
    return Result(
        figures=row,
        fidelity=report.verdict,
        circumstances={"fidelity_report": report.as_dict()},
    )


def before_and_during(net: Net, run: Run, generator: np.random.Generator) -> dict[str, Value]:
    """Return the figures of one failure, None each if no failure of that kind concerns any pair."""
    row: dict[str, Value] = {"failed": None, "affected_pairs": 0, **dict.fromkeys(COLUMNS)}
    hit = choose(net, run, generator)
    if hit:
        survivors = predicted(hit, run.text("routing"))
        row |= {
            "failed": hit.failure.name,
            "affected_pairs": hit.affected,
            "watched_pairs": len(hit.pairs),
        }
        row |= pings(net, run, hit, survivors) | stream(net, run, hit, survivors)
    return row


def choose(net: Net, run: Run, generator: np.random.Generator) -> Hit | None:
    """The first failure of the kind asked for that concerns somebody; None if none does, such as
    that of a rack in a network with k = 1, where paths lead through no third."""
    from weft.experiments.engines import reachability
    from weft.testbed.measure.traceroute import trace

    topology = net.topology
    sample = some_pairs(topology.servers, MOST_TRACED, generator)
    reachability.wait_for_paths(net, sample, lengths(topology, run.text("routing"), sample))
    paths = {(one.src, one.dst): one.nodes for one in trace(net, sample) if not one.reason}
    for failure in KINDS[run.text("failure")](topology, generator):
        reached = lengths(failure.after, "bfs", sample) or {}
        passing = [
            (src, dst)
            for src, dst in both_ways(paths)
            if src not in failure.nodes
            and dst not in failure.nodes
            and (src, dst) in reached
            and (failure.passes(paths[src, dst]) or failure.passes(paths[dst, src]))
        ]
        if passing:
            drawn = generator.permutation(len(passing))[: run.integer("pairs")].tolist()
            pairs = [sorted(passing)[i] for i in drawn]
            return Hit(failure, pairs, len(passing), [len(paths[pair]) - 1 for pair in pairs])
    return None


def predicted(hit: Hit, routing: str) -> set[Pair] | None:
    """Which of the pairs the scheme can connect while the failure lasts; None if the graph does not
    tell."""
    if not hit.failure.lasts:
        return None
    pairs = [*hit.pairs, *((dst, src) for src, dst in hit.pairs)]
    found = connects(hit.failure.after, routing, pairs)
    return both_ways(found) & set(hit.pairs)


def pings(net: Net, run: Run, hit: Hit, survivors: set[Pair] | None) -> dict[str, Value]:
    """What pings of the watched pairs have to tell of a failure."""
    from weft.testbed.measure.outage import OutageProbe
    from weft.testbed.measure.traceroute import trace

    with OutageProbe(net, hit.pairs, interval_ms=INTERVAL_MS) as probe:
        clock.sleep(SETTLE_S)
        failed_s = clock.monotonic()
        hit.failure.happen(net)
        clock.sleep(float(run.parameters["failure_s"]))
        traced_s = clock.monotonic()
        traces = trace(net, hit.pairs, timeout_s=0.3, retries=1)
        # under a virtual clock tracing takes no time, and mending may lose a ping
        clock.sleep(2 * INTERVAL_MS / 1000)
        mended_s = clock.monotonic()
        hit.failure.mend(net)
        net.wait_until_converged()
        clock.sleep(HEAL_S)
    outages_ms = [1000 * outage_s(one, failed_s, mended_s) for one in probe.table.outages]
    recovered = [not cut_off_at(one, traced_s) for one in probe.table.outages]
    back = {pair for pair, well in zip(hit.pairs, recovered, strict=True) if well}
    healing = [
        gap.lost for one in probe.table.outages for gap in one.gaps if gap.begin_s >= mended_s
    ]
    return {
        "outage_ms": median(outages_ms),
        "outage_p99_ms": float(np.percentile(outages_ms, 99)),
        "outages_ms": [round(one, 2) for one in outages_ms],
        "recovered": recovered,
        "recovered_fraction": len(back) / len(hit.pairs),
        "predicted_fraction": None if survivors is None else len(survivors) / len(hit.pairs),
        "as_predicted": None if survivors is None else back == survivors,
        "lost_by_mending_packets": sum(healing),
        **stretch(
            hit, back, {(one.src, one.dst): len(one.nodes) - 1 for one in traces if not one.reason}
        ),
    }


def outage_s(outage: Outage, failed_s: float, mended_s: float) -> float:
    """For how long a pair was cut off between the failure and its mending."""
    within = (
        (max(gap.begin_s, failed_s), min(gap.end_s or mended_s, mended_s))
        for gap in outage.gaps
        if gap.begin_s < mended_s
    )
    return sum((max(0.0, end - begin) for begin, end in within), 0.0)


def cut_off_at(outage: Outage, at_s: float) -> bool:
    """Whether a pair was cut off at that time."""
    return any(
        gap.begin_s <= at_s and (gap.end_s is None or gap.end_s > at_s) for gap in outage.gaps
    )


def stretch(hit: Hit, back: set[Pair], after: dict[Pair, int]) -> dict[str, Value]:
    """How long the real paths of the pairs that recovered were before and are while the failure
    lasts."""
    shortest = lengths(hit.failure.after, "bfs", hit.pairs) or {}
    both = [
        (before, after[pair], shortest[pair])
        for pair, before in zip(hit.pairs, hit.hops, strict=True)
        if pair in back and pair in after
    ]
    if not both:
        return {
            "before_hops": mean(hit.hops),
            "after_hops": None,
            "shortest_hops": None,
            "path_stretch": None,
        }
    before, now, least = (mean(column) for column in zip(*both, strict=True))
    return {
        "before_hops": before,
        "after_hops": now,
        "shortest_hops": least,
        "path_stretch": now / before,
    }


def stream(net: Net, run: Run, hit: Hit, survivors: set[Pair] | None) -> dict[str, Value]:
    """What TCP makes of the same failure, between one of the pairs that the scheme can save, if
    there is one."""
    from weft.experiments.engines import reachability

    reachability.wait_for_paths(net, hit.pairs, dict(zip(hit.pairs, hit.hops, strict=True)))
    ours = [pair for pair in hit.pairs if survivors and pair in survivors] or hit.pairs
    for pair in ours[:MOST_TRIED]:
        found = one_stream(net, run, hit, pair)
        if found["tcp_concerned"]:
            return found
    return found


def one_stream(net: Net, run: Run, hit: Hit, pair: Pair) -> dict[str, Value]:
    """A flow between `pair`, and what the failure does to it if its packets pass what fails: PR may
    have led them around, for the load that they make."""
    from weft.testbed.measure.traceroute import trace
    from weft.testbed.traffic.stream import Stream

    with Stream(net, *pair, congestion_control=run.text("congestion_control")) as flow:
        clock.sleep(2 * STEADY_S)
        concerned = any(hit.failure.passes(one.nodes) for one in trace(net, [pair, pair[::-1]]))
        failed_s = clock.monotonic()
        before_bps = flow.arrivals.goodput_bps(failed_s - STEADY_S, failed_s)
        if not concerned:
            nothing = dict.fromkeys(("tcp_through_bps", "tcp_stall_ms", "tcp_error"))
            return {"tcp_concerned": False, "tcp_before_bps": before_bps, **nothing}
        hit.failure.happen(net)
        clock.sleep(float(run.parameters["failure_s"]))
        mended_s = clock.monotonic()
        hit.failure.mend(net)
        net.wait_until_converged()
        clock.sleep(STEADY_S)
    arrivals = flow.arrivals
    return {
        "tcp_concerned": True,
        "tcp_before_bps": before_bps,
        "tcp_through_bps": arrivals.goodput_bps(failed_s, mended_s),
        "tcp_stall_ms": 1000 * arrivals.stall_s(failed_s, mended_s),
        "tcp_error": arrivals.error,
    }


def check(run: Run) -> None:
    """ValueError unless the scheme of `run` goes with its network, and this kernel has its TCP."""
    common.check_routing(run)
    common.server_centric(run)
    common.check_tcp(run)


def plot(table: Table, figure: Figure) -> None:
    """Outages of all pairs, TCP's goodput through the failure, and the paths after it: a column for
    each network, a place for each kind of failure."""
    table = [row for row in table if row["affected_pairs"]]
    networks = list(dict.fromkeys(str(row["topology"]) for row in table))
    looks = style.lines(style.in_order(str(row["routing"]) for row in table))
    figure.set_size_inches(max(9.0, 7.0 * len(networks)), 8.5)
    columns = figure.subplots(
        3, len(networks), height_ratios=[2, 1, 1], sharex="col", sharey="row", squeeze=False
    ).T
    for column, network in zip(columns, networks, strict=True):
        draw(column, [row for row in table if row["topology"] == network], looks)
        column[0].set_title(f"{network}: pairs whose packets went through what died")
    above, middle, below = columns[0]
    above.set(yscale="log", ylabel="outage of a pair (ms)")
    above.set_yticks(list(TICKS), list(TICKS.values()), minor=False)
    above.minorticks_off()
    middle.set(ylabel="TCP meanwhile\n(fraction of before)", ylim=(0, None))
    below.set(ylabel="path after / before\n(hops, recovered pairs)")
    for look, _ in looks.values():
        above.plot([], [], look.marker, color=look.colour, label=look.label)
    above.plot([], [], "_", color=style.INK, markersize=12, label="median")
    above.plot([], [], "x", color="#777777", label="cut off until mended")
    above.legend(ncols=4, loc="lower left", bbox_to_anchor=(0, 1.06))


def draw(
    column: Sequence[Axes], table: Table, looks: Mapping[str, tuple[style.SeriesStyle, str]]
) -> None:
    """The three panels of one network."""
    above, middle, below = column
    kinds = [kind for kind in KINDS if any(row["failure"] == kind for row in table)]
    width = 0.8 / len(looks)
    for place, (spec, (look, _)) in enumerate(looks.items()):
        for x, kind in enumerate(kinds):
            rows = [row for row in table if row["routing"] == spec and row["failure"] == kind]
            at = x + (place - (len(looks) - 1) / 2) * width
            scatter(above, at, width, rows, look)
            bar(middle, at, width, [through(row) for row in rows], look)
            stretched = [row for row in rows if row["path_stretch"] is not None]
            hollow = [figures.failed_fidelity(row) for row in stretched]
            y = [float(str(row["path_stretch"])) for row in stretched]
            figures.marks(below, [at] * len(y), y, look, hollow)
    below.axhline(1, color="#888888", linewidth=0.8)
    below.set_xticks(range(len(kinds)), kinds)
    below.set_xlim(-0.5, len(kinds) - 0.5)
    for axes in column:
        axes.grid(axis="x", visible=False)
        for x in range(1, len(kinds)):
            axes.axvline(x - 0.5, color=style.FAINT, linewidth=0.8)


def scatter(
    axes: Axes, at: float, width: float, rows: Sequence[Any], look: style.SeriesStyle
) -> None:
    """Every pair's outage, side by side; a bar at their median; crosses where the scheme had no
    way."""
    for row in rows:
        shifts = cycle(np.linspace(-0.35, 0.35, 7) * width)
        for outage_ms, well in zip(row["outages_ms"], row["recovered"], strict=True):
            x, y = at + next(shifts), max(outage_ms, NONE_MS)
            if well:
                small = look._replace(size=3)
                figures.marks(axes, [x], [y], small, [figures.failed_fidelity(row)])
            else:
                axes.plot([x], [y], "x", color=look.colour, markersize=3)
    if rows:
        middle = median(one for row in rows for one in row["outages_ms"])
        axes.plot(
            [at - 0.45 * width, at + 0.45 * width],
            [max(middle, NONE_MS)] * 2,
            color=style.INK,
            linewidth=1.4,
        )


def through(row: Any) -> float | None:
    """TCP's goodput while the failure lasts, as a fraction of what it was before; None if it passed
    by it."""
    if row["tcp_through_bps"] is None or not row["tcp_before_bps"]:
        return None
    return float(row["tcp_through_bps"] / row["tcp_before_bps"])


def bar(
    axes: Axes, at: float, width: float, values: Sequence[Any], look: style.SeriesStyle
) -> None:
    """The mean of what is known."""
    known = [value for value in values if value is not None]
    if known:
        axes.bar(at, mean(known), 0.85 * width, color=look.colour)


EXPERIMENT = Experiment(
    name="proxy_failover",
    question="When a link, a server, a rack or a daemon dies, how long is who cut off under "
    "each scheme?",
    source="CCRDN, sections 5.4 and 7.2 (faults), on the kernel",
    engines=("kernel",),
    axes={
        "topology": common.TOPOLOGY.over("ficonn:n=4,k=2"),
        "routing": common.ROUTING.over(*EVERYWHERE),
        "failure": Word(meaning="what fails", words=[*KINDS]).over(*list(KINDS)),
        "pairs": Integer(
            meaning="pairs of servers that are watched at most", unit="pairs", least=1, most=1000
        ).over(20),
        "failure_s": Number(
            meaning="how long the failure lasts", unit="s", least=0.5, most=600
        ).over(1.5),
        "rate_mbps": common.RATE_MBPS.over(20),
        "queue_packets": common.QUEUE_PACKETS.over(50),
        "congestion_control": common.CONGESTION_CONTROL.over("cubic"),
        "processes": common.PROCESSES.over(0),
    },
    columns=kernel_columns.PROXY_FAILOVER,
    seeds=1,
    version=4,
    takes_s=840,
    measure=measure,
    plot=plot,
    check=check,
)
