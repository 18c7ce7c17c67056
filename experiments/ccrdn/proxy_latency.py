"""How long does a packet take through an idle network on this kernel, hop by hop, and is it what
CCRDN's model says?

CCRDN, sections 6.6 and 7.4: each hop costs the protocol stack L_s, propagation L_p, the
transmission of a full frame L_d and its share of the search for the route L_r; the latency is mean
hops times their sum.  Measured as there, by ping: L_s is the round trip to oneself, L_p half of
that to another server of the same switch less L_s, both for an empty packet; L_d what a full frame
takes longer than that.  L_r is the CPU time that a daemon's functions take for the path of a flow,
divided by its hops.

Ours: links have no rate by default, since a rate would add what was asked for; so this is what the
kernel takes.  Under the virtual clock the kernel takes no time, and links need a rate; the model is
then checked by itself.  An empty packet has 32 bytes, four of them payload.  Between its ends a
packet is forwarded, which is less work than a whole stack, and a daemon's search delays no packet:
so the same pings are also fitted by a base and a slope.  One pair pings at a time. PR's sources may
ask `questions_per_s`, more than usually, so that their paths are found before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from weft.daemons.core import registry
from weft.daemons.proxy.routing import parting, route, search, shortest_first
from weft.daemons.routing import dr, shortest
from weft.daemons.routing.path_tables import tabulate
from weft.experiments.ccrdn import kernel_columns
from weft.experiments.engines import common_parameters as common
from weft.experiments.engines.graph import METHODS, policy
from weft.experiments.engines.predicted_paths import EVERYWHERE, Pair, asking, lengths, some_pairs
from weft.experiments.report import figures, style
from weft.experiments.runner.definition import Experiment, Result, Run, Table, Value
from weft.experiments.runner.parameters import Integer
from weft.testbed.linux import clock
from weft.topologies import build
from weft.topologies.core.link import LinkSpec, Mbps
from weft.topologies.core.topology import Topology

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from weft.testbed.mininet.net import Net

EMPTY_BYTES, FULL_BYTES = 4, 1472  # of ICMP payload
MOST_TRACED = 500  # unordered pairs
INTERVAL_MS = 1.0
QUEUE_PACKETS = 250
TIMED = 300  # flows whose search is timed
PAPER_US = {"stack_us": 10.0, "propagation_us": 22.0, "data_us": 38.0}  # section 7.4
PARTS = {
    "stack_us": "stack",
    "propagation_us": "propagation",
    "data_us": "data",
    "routing_us": "routing",
}


def measure(run: Run) -> Result:
    """Round-trip times by hops, the parts of the model, and a straight line through them."""
    from weft.testbed.measure.fidelity import Fidelity
    from weft.testbed.mininet.net import Net

    topology, routing = (
        build(run.text("topology")),
        asking(run.text("routing"), run.integer("questions_per_s")),
    )
    packed = run.integer("processes")
    with (
        Net(topology, link=link(run), routing=routing, packed=packed) as net,
        Fidelity(net) as fidelity,
    ):
        row = pings(net, run)
    report = fidelity.report
    return Result(
        figures=row,
        fidelity=report.verdict,
        circumstances={"fidelity_report": report.as_dict()},
    )


def link(run: Run) -> LinkSpec | None:
    """Every link of `run`; None if it has neither a rate nor a delay."""
    if not run.integer("rate_mbps"):
        return None
    rate_bps = run.integer("rate_mbps") * Mbps
    return LinkSpec(
        rate_bps=rate_bps, queue_packets=QUEUE_PACKETS, delay_us=run.integer("delay_us")
    )


def pings(net: Net, run: Run) -> dict[str, Value]:
    """All that is measured while the network is up."""
    from weft.experiments.engines import reachability
    from weft.testbed.measure.traceroute import trace

    topology, routing, generator = net.topology, net.routing, np.random.default_rng(run.seed)
    pairs = some_pairs(topology.servers, MOST_TRACED, generator)
    settled = reachability.wait_for_paths(net, pairs, lengths(topology, routing, pairs))
    hops = {(one.src, one.dst): len(one.nodes) - 1 for one in trace(net, pairs) if not one.reason}
    seen = round_trips(net, by_hops(hops, run.integer("pairs")), run.integer("pings"))
    shares = Counter(hops.values())
    mean_hops = sum(length * pairs_of for length, pairs_of in shares.items()) / len(hops)
    one_way_us = {length: median(rtts) / 2 for length, rtts in seen.full.items()}
    measured_us = sum(one_way_us[length] * pairs_of for length, pairs_of in shares.items()) / len(
        hops
    )
    parts = components(seen, routing_us(topology, routing, pairs) / mean_hops)
    base_us, slope_us, fitted = line(
        [(length, rtt / 2) for length, rtts in seen.full.items() for rtt in rtts]
    )
    hop_us = sum(parts.values())
    return {
        "settled": settled,
        "mean_hops": mean_hops,
        **parts,
        "hop_us": hop_us,
        "model_latency_us": mean_hops * hop_us,
        "latency_us": measured_us,
        "fitted_base_us": base_us,
        "fitted_hop_us": slope_us,
        "fitted_r2": fitted,
        **{f"paper_{key}": value for key, value in PAPER_US.items()},
        "hops": [length for length, rtts in seen.full.items() for _ in rtts],
        "rtts_us": [round(rtt, 1) for rtts in seen.full.values() for rtt in rtts],
    }


def by_hops(hops: dict[Pair, int], most: int) -> dict[int, list[Pair]]:
    """At most `most` of the pairs for each number of hops."""
    found: dict[int, list[Pair]] = {length: [] for length in sorted(set(hops.values()))}
    for pair, length in hops.items():
        if len(found[length]) < most:
            found[length].append(pair)
    return found


class RoundTrips(NamedTuple):
    """Round-trip times in us.

    full: of full frames, by hops.  itself: of empty ones to oneself.  near_empty, near_full: to
    another server of the same switch.
    """

    full: dict[int, list[float]]
    itself: list[float]
    near_empty: list[float]
    near_full: list[float]


def round_trips(net: Net, chosen: dict[int, list[Pair]], count: int) -> RoundTrips:
    """Everything in turn, round by round, so that what disturbs the machine for a while disturbs
    all alike."""
    from weft.testbed.measure.ping import PingTable, ping, ping_itself

    def later(table: PingTable) -> list[float]:
        return list(table.pings[0].rtts_us[1:])  # the first packet finds nothing in any cache

    seen = RoundTrips({length: [] for length in chosen}, [], [], [])
    for turn in range(max(map(len, chosen.values()))):
        src = turn % net.topology.servers
        mate = net.topology.neighbours(src)[0][0]  # port 0 leads to the switch
        for into, bytes_ in ((seen.near_empty, EMPTY_BYTES), (seen.near_full, FULL_BYTES)):
            into += later(
                ping(
                    net, [(src, mate)], count=count + 1, interval_ms=INTERVAL_MS, size_bytes=bytes_
                )
            )
        seen.itself.extend(
            later(
                ping_itself(
                    net, src, count=count + 1, interval_ms=INTERVAL_MS, size_bytes=EMPTY_BYTES
                )
            )
        )
        for length, pairs in chosen.items():
            pair = pairs[turn % len(pairs)]
            table = ping(
                net, [pair], count=count + 1, interval_ms=INTERVAL_MS, size_bytes=FULL_BYTES
            )
            seen.full[length] += later(table)
    return seen


def components(seen: RoundTrips, routing_us: float) -> dict[str, float]:
    """The parts of a hop's latency, as CCRDN 7.4 derives them from medians of pings."""
    stack_us, empty_us, full_us = map(median, (seen.itself, seen.near_empty, seen.near_full))
    propagation_us = empty_us / 2 - stack_us
    return {
        "stack_us": stack_us,
        "propagation_us": propagation_us,
        "data_us": full_us / 2 - stack_us - propagation_us,
        "routing_us": routing_us,
    }


def routing_us(topology: Topology, routing: str, pairs: Sequence[Pair]) -> float:
    """CPU time that the functions of a daemon take to find the path of a flow; 0 where none is
    looked for by flow."""
    find = finder(topology, routing)
    if find is None:
        return 0.0
    chosen = pairs[:TIMED]
    find(*chosen[0])
    begin_s = clock.cpu_s()
    for src, dst in chosen:
        find(src, dst)
    return 1e6 * (clock.cpu_s() - begin_s) / len(chosen)


def finder(topology: Topology, routing: str) -> Callable[[int, int], object] | None:
    """What finds the path from a source to a destination under `routing`."""
    scheme, options = registry.scheme(routing)
    if scheme.name == "bfs":
        return lambda src, dst: shortest.route(topology.adjacency, src, dst)
    network: Any = getattr(topology.naming, "network", None)
    if scheme.name == "dr":
        return lambda src, dst: dr.route(network.rule, network.t, src, dst)
    if scheme.name not in METHODS:
        return None
    tries = policy(
        scheme.name,
        least_level=options["level"] or network.k,
        condition1=bool(options["condition1"]),
    )
    table = tabulate(network.rule, network.t, 1)

    def found(src: int, dst: int) -> list[int]:
        _, proxy = search(table, tries, shortest_first, parting(network.t, src, dst), (), 1, [])
        return route(network.rule, network.t, src, dst, proxy)

    return found


def line(points: Sequence[tuple[int, float]]) -> tuple[float, float, float]:
    """Base, slope and R^2 of the least-squares line through the median at each x, one point for
    each."""
    at = sorted({x for x, _ in points})
    x, y = np.array(at, float), np.array([median(b for a, b in points if a == one) for one in at])
    if len(at) < 2:
        return 0.0, float(y[0] / x[0]), 1.0
    slope, base = np.polyfit(x, y, 1)
    spread = float(((y - y.mean()) ** 2).sum())
    left = float(((y - base - slope * x) ** 2).sum())
    return float(base), float(slope), 1 - left / spread if spread else 1.0


def check(run: Run) -> None:
    """ValueError unless the scheme of `run` goes with its network."""
    common.server_centric(run)
    common.check_routing(run)
    if not run.integer("rate_mbps") and (run.clock == "virtual" or run.integer("delay_us")):
        why = "a hop takes no time there" if run.clock == "virtual" else "a delay is a link's"
        raise ValueError(
            f"proxy_latency: rate_mbps must be at least 1 (--clock {run.clock}), since {why}"
        )


def plot(table: Table, figure: Figure) -> None:
    """Latency by hops for each network, with the fitted line and the model; and the parts of the
    model."""
    networks = list(dict.fromkeys(str(row["topology"]) for row in table))
    looks = style.lines(style.in_order(str(row["routing"]) for row in table))
    figure.set_size_inches(4.6 * (len(networks) + 1), 4.4)
    *panels, bars = figure.subplots(1, len(networks) + 1)
    for axes, network in zip(panels, networks, strict=True):
        for place, (spec, (look, dash)) in enumerate(looks.items()):
            rows = [row for row in table if row["topology"] == network and row["routing"] == spec]
            shift = (place - (len(looks) - 1) / 2) * 0.8 / len(looks)
            by_length(axes, rows, look, dash, shift)
        here: list[Any] = [row for row in table if row["topology"] == network]
        longest = max(max(row["hops"]) for row in here)
        hop_us = median(row["hop_us"] - row["routing_us"] for row in here)
        axes.plot(
            [0, longest], [0, longest * hop_us], ":", color="#777777", label="model without routing"
        )
        axes.set_xticks(range(longest + 1))
        top = max(float(np.percentile(row["rtts_us"], 90)) / 2 for row in here)
        axes.set(
            xlabel="hops",
            ylabel="half a round trip of a full frame (µs)",
            ylim=(0, 1.6 * max(top, longest * hop_us)),
            title=network,
        )
    panels[0].legend(
        title="mark: median, bar: 10 to 90 %, line: fit", title_fontsize=7.5, fontsize=7.5
    )
    parts_of_a_hop(bars, table, looks)


def by_length(
    axes: Axes, rows: Sequence[Any], look: style.SeriesStyle, dash: str, shift: float
) -> None:
    """Median and 10 to 90 % of one scheme's latencies at each number of hops, and its fitted
    line."""
    if not rows:
        return
    hops = np.concatenate([row["hops"] for row in rows])
    half = np.concatenate([row["rtts_us"] for row in rows]) / 2
    hollow = any(figures.failed_fidelity(row) for row in rows)
    for at in np.unique(hops).tolist():
        low, middle, high = np.percentile(half[hops == at], [10, 50, 90])
        axes.plot([at + shift] * 2, [low, high], color=look.colour, linewidth=1)
        figures.marks(axes, [at + shift], [middle], look._replace(size=4), [hollow])
    base, slope = (median(row[key] for row in rows) for key in ("fitted_base_us", "fitted_hop_us"))
    ends = [0.5, hops.max() + 0.5]
    axes.plot(ends, [base + slope * x for x in ends], dash, color=look.colour, linewidth=0.8)
    figures.marks(axes, [], [], look, [], label=f"{look.label}: {base:.1f} + {slope:.1f} h")


def parts_of_a_hop(axes: Axes, table: Table, looks: Any) -> None:
    """The parts of the model, stacked, for each scheme and for the paper, beside the fitted
    slope."""
    rows: list[Any] = list(table)
    names = ["paper", *(look.label for look, _ in looks.values())]
    parts: list[dict[str, float]] = [PAPER_US | {"routing_us": 0.0}]
    for spec in looks:
        own = [row for row in rows if row["routing"] == spec]
        parts.append({key: median(row[key] for row in own) for key in PARTS})
        axes.plot(
            median(row["fitted_hop_us"] for row in own),
            len(parts) - 1,
            "|",
            color=style.INK,
            markersize=16,
            zorder=4,
        )
    left = np.zeros(len(parts))
    for (key, label), colour in zip(PARTS.items(), style.SEVERAL, strict=False):
        values = np.array([max(0.0, one[key]) for one in parts])
        axes.barh(range(len(parts)), values, left=left, color=colour, label=label, height=0.6)
        left += values
    axes.plot([], [], "|", color=style.INK, markersize=10, label="fitted slope")
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set(
        xlabel="latency of a hop (µs)",
        title="Parts of a hop (the paper's routing is within Table 2)",
    )
    axes.legend(fontsize=7.5)


EXPERIMENT = Experiment(
    name="proxy_latency",
    question="How long does a packet take through an idle network, hop by hop, and is it "
    "what CCRDN's model says?",
    source="CCRDN, sections 6.6 and 7.4, table 2, on the kernel",
    engines=("kernel",),
    axes={
        "topology": common.TOPOLOGY.over("dcell:n=4,k=1", "ficonn:n=4,k=2"),
        "routing": common.ROUTING.over(*EVERYWHERE),
        "pairs": Integer(
            meaning="pairs of servers of each length of path", unit="pairs", least=1, most=10_000
        ).over(30),
        "pings": Integer(meaning="pings of each pair", unit="pings", least=2, most=10_000).over(20),
        "rate_mbps": Integer(
            meaning="rate of every link; 0: none", unit="Mbit/s", least=0, most=100_000
        ).over(0),
        "delay_us": Integer(
            meaning="delay of every link, one way", unit="us", least=0, most=1_000_000
        ).over(0),
        "questions_per_s": common.QUESTIONS_PER_S.over(20),
        "processes": common.PROCESSES.over(2),
    },
    columns=kernel_columns.PROXY_LATENCY,
    seeds=1,
    takes_s=130,
    measure=measure,
    plot=plot,
    check=check,
)
