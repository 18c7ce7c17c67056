"""How long does a packet take through an idle network on this kernel, and is CCRDN's model right?

CCRDN, sections 6.6 and 7.4: each hop costs the protocol stack L_s, propagation L_p, the
transmission of a full frame L_d and its share of the search for the route L_r; the latency is mean
hops times their sum.  As in the paper they are measured by ping.  L_s is the round trip to oneself.
L_p is half the round trip to another server of the same switch less L_s; both are empty packets.
L_d is the extra time of a full frame.  L_r is the CPU time of a daemon's functions for the path of
a flow, divided by its hops.

Ours: links have no rate by default, so this is the kernel's own time.  Under the virtual clock the
kernel takes no time and links need a rate; the model alone is then checked.  An empty packet has 32
bytes, four of them payload.  Forwarding a packet is less work than a whole stack, and a daemon's
search delays no packet: so the pings are also fitted by a base and a slope.  One pair pings at a
time.  PR's sources may probe `questions_per_s` paths, more than by default, to find paths first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
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
from weft.experiments.engines.network_run import measured
from weft.experiments.engines.predicted_paths import EVERYWHERE, Pair, asking, lengths, some_pairs
from weft.experiments.report import figures, style
from weft.experiments.runner.definition import Experiment, Result, Run, Table, Value
from weft.experiments.runner.parameters import Integer
from weft.testbed.linux import clock
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
    """Measure round-trip times by hops, the parts of the model, and a line through them."""
    routing = asking(run.text("routing"), run.integer("questions_per_s"))
    return measured(run, lambda net: pings(net, run), routing=routing, link=link(run))


def link(run: Run) -> LinkSpec | None:
    """Return the links of `run`; None if they have neither rate nor delay."""
    if not run.integer("rate_mbps"):
        return None
    return LinkSpec(
        rate_bps=run.integer("rate_mbps") * Mbps,
        queue_packets=QUEUE_PACKETS,
        delay_us=run.integer("delay_us"),
    )


def pings(net: Net, run: Run) -> dict[str, Value]:
    """Return all figures of the run."""
    from weft.experiments.engines import reachability
    from weft.testbed.measure.traceroute import trace

    topology = net.topology
    pairs = some_pairs(topology.servers, MOST_TRACED, np.random.default_rng(run.seed))
    settled = reachability.wait_for_paths(net, pairs, lengths(topology, net.routing, pairs))
    traces = [path for path in trace(net, pairs) if not path.reason]
    hops = {(path.src, path.dst): len(path.nodes) - 1 for path in traces}
    times = round_trips(net, by_hops(hops, run.integer("pairs")), run.integer("pings"))
    counts = Counter(hops.values())
    mean_hops = sum(length * count for length, count in counts.items()) / len(hops)
    parts = components(times, routing_us(topology, net.routing, pairs) / mean_hops)
    hop_us = sum(parts.values())
    return {
        "settled": settled,
        "mean_hops": mean_hops,
        **parts,
        "hop_us": hop_us,
        "model_latency_us": mean_hops * hop_us,
        **latencies(times.full, counts),
        "hops": [length for length, rtts_us in times.full.items() for _ in rtts_us],
        "rtts_us": [round(rtt_us, 1) for rtts_us in times.full.values() for rtt_us in rtts_us],
    }


def latencies(times: dict[int, list[float]], pairs_by_hops: Counter[int]) -> dict[str, Value]:
    """Return the mean latency over pairs of full frames, and the line through the latencies.

    Args:
        times: round-trip times (us) by hops.
    """
    one_way_us = {length: median(rtts_us) / 2 for length, rtts_us in times.items()}
    total_us = sum(one_way_us[length] * count for length, count in pairs_by_hops.items())
    base_us, slope_us, fit = line(
        [(length, rtt_us / 2) for length, rtts_us in times.items() for rtt_us in rtts_us]
    )
    return {
        "latency_us": total_us / pairs_by_hops.total(),
        "fitted_base_us": base_us,
        "fitted_hop_us": slope_us,
        "fitted_r2": fit,
    }


def by_hops(hops: dict[Pair, int], most: int) -> dict[int, list[Pair]]:
    """Return at most `most` of the pairs for each number of hops."""
    return {
        length: [pair for pair, count in hops.items() if count == length][:most]
        for length in sorted(set(hops.values()))
    }


class RoundTrips(NamedTuple):
    """Round-trip times in us.

    full: of full frames, by hops.
    itself: of empty packets to oneself.
    near_empty, near_full: to another server of the same switch.
    """

    full: dict[int, list[float]]
    itself: list[float]
    near_empty: list[float]
    near_full: list[float]


def round_trips(net: Net, pairs_by_hops: dict[int, list[Pair]], count: int) -> RoundTrips:
    """Ping `count` times each; in rounds, so that a disturbance of the machine affects all kinds.

    The first packet of each ping is left out: no cache knows its path.
    """
    from weft.testbed.measure import ping

    spec: dict[str, Any] = {"count": count + 1, "interval_ms": INTERVAL_MS}

    def rtts_us(src: int, dst: int, size_bytes: int) -> Sequence[float]:
        table = ping.ping(net, [(src, dst)], size_bytes=size_bytes, **spec)
        return table.pings[0].rtts_us[1:]

    times = RoundTrips({length: [] for length in pairs_by_hops}, [], [], [])
    for number in range(max(map(len, pairs_by_hops.values()))):
        src = number % net.topology.servers
        mate = net.topology.neighbours(src)[0][0]  # port 0 leads to the switch
        times.near_empty.extend(rtts_us(src, mate, EMPTY_BYTES))
        times.near_full.extend(rtts_us(src, mate, FULL_BYTES))
        itself = ping.ping_itself(net, src, size_bytes=EMPTY_BYTES, **spec)
        times.itself.extend(itself.pings[0].rtts_us[1:])
        for length, pairs in pairs_by_hops.items():
            times.full[length].extend(rtts_us(*pairs[number % len(pairs)], FULL_BYTES))
    return times


def components(times: RoundTrips, routing_us: float) -> dict[str, float]:
    """Return the parts of a hop's latency, as CCRDN 7.4 derives them from medians of pings."""
    stack_us, empty_us, full_us = map(median, (times.itself, times.near_empty, times.near_full))
    propagation_us = empty_us / 2 - stack_us
    return {
        "stack_us": stack_us,
        "propagation_us": propagation_us,
        "data_us": full_us / 2 - stack_us - propagation_us,
        "routing_us": routing_us,
    }


def routing_us(topology: Topology, routing: str, pairs: Sequence[Pair]) -> float:
    """Return the CPU time of a daemon's search for the path of a flow; 0 for a scheme without."""
    find = finder(topology, routing)
    if find is None:
        return 0.0
    timed = pairs[:TIMED]
    find(*timed[0])
    begin_s = clock.cpu_s()
    for src, dst in timed:
        find(src, dst)
    return 1e6 * (clock.cpu_s() - begin_s) / len(timed)


def finder(topology: Topology, routing: str) -> Callable[[int, int], object] | None:
    """Return the function that finds the path from source to destination under `routing`."""
    scheme, options = registry.scheme(routing)
    if scheme.name == "bfs":
        return partial(shortest.route, topology.adjacency)
    network: Any = getattr(topology.naming, "network", None)
    if scheme.name == "dr":
        return partial(dr.route, network.rule, network.t)
    if scheme.name not in METHODS:
        return None
    level = options["level"] or network.k
    tries = policy(scheme.name, least_level=level, condition1=bool(options["condition1"]))
    table = tabulate(network.rule, network.t, 1)

    def find(src: int, dst: int) -> list[int]:
        _, proxy = search(table, tries, shortest_first, parting(network.t, src, dst), (), 1, [])
        return route(network.rule, network.t, src, dst, proxy)

    return find


def line(points: Sequence[tuple[int, float]]) -> tuple[float, float, float]:
    """Return base, slope and R^2 of the least-squares line through the median at each x."""
    values: dict[int, list[float]] = {x: [] for x in sorted({x for x, _ in points})}
    for x_value, y_value in points:
        values[x_value].append(y_value)
    x = np.array(list(values), float)
    y = np.array([median(group) for group in values.values()])
    if len(x) < 2:
        return 0.0, float(y[0] / x[0]), 1.0
    slope, base = np.polyfit(x, y, 1)
    variation = float(((y - y.mean()) ** 2).sum())
    residual = float(((y - base - slope * x) ** 2).sum())
    return float(base), float(slope), 1 - residual / variation if variation else 1.0


def check(run: Run) -> None:
    """Raise ValueError unless the scheme of `run` suits its network, and hops take time."""
    common.server_centric(run)
    common.check_routing(run)
    if not run.integer("rate_mbps") and (run.clock == "virtual" or run.integer("delay_us")):
        why = "a hop takes no time there" if run.clock == "virtual" else "a delay is a link's"
        raise ValueError(
            f"proxy_latency: rate_mbps must be at least 1 (--clock {run.clock}), since {why}"
        )


def plot(table: Table, figure: Figure) -> None:
    """Draw latency by hops for each network, and the parts of the model."""
    networks = list(dict.fromkeys(str(row["topology"]) for row in table))
    looks = style.lines(style.in_order(str(row["routing"]) for row in table))
    figure.set_size_inches(4.6 * (len(networks) + 1), 4.4)
    *panels, bars = figure.subplots(1, len(networks) + 1)
    for axes, network in zip(panels, networks, strict=True):
        draw_latencies(axes, [row for row in table if row["topology"] == network], looks)
        axes.set_title(network)
    panels[0].legend(
        title="mark: median, bar: 10 to 90 %, line: fit", title_fontsize=7.5, fontsize=7.5
    )
    draw_parts(bars, table, looks)


def draw_latencies(axes: Axes, rows: Sequence[Any], looks: style.Looks) -> None:
    """Draw latency over hops on one network: each scheme, its fitted line, and the model."""
    for (spec, (look, dash)), shift in zip(
        looks.items(), figures.offsets(len(looks), 0.8), strict=True
    ):
        own = [row for row in rows if row["routing"] == spec]
        if own:
            draw_scheme(axes, own, look, shift)
            draw_fit(axes, own, look, dash)
    longest = max(max(row["hops"]) for row in rows)
    hop_us = median(row["hop_us"] - row["routing_us"] for row in rows)
    model = [0, longest * hop_us]
    axes.plot([0, longest], model, ":", color="#777777", label="model without routing")
    axes.set_xticks(range(longest + 1))
    top = max(float(np.percentile(row["rtts_us"], 90)) / 2 for row in rows)
    axes.set(
        xlabel="hops",
        ylabel="half a round trip of a full frame (µs)",
        ylim=(0, 1.6 * max(top, longest * hop_us)),
    )


def draw_scheme(axes: Axes, rows: Sequence[Any], look: style.SeriesStyle, shift: float) -> None:
    """Draw median and 10 to 90 % of one scheme's latencies by hops."""
    hops = np.concatenate([row["hops"] for row in rows])
    latency_us = np.concatenate([row["rtts_us"] for row in rows]) / 2
    hollow = [any(figures.failed_fidelity(row) for row in rows)]
    for length in np.unique(hops).tolist():
        low, middle, high = np.percentile(latency_us[hops == length], [10, 50, 90])
        x = length + shift
        axes.plot([x] * 2, [low, high], color=look.colour, linewidth=1)
        figures.marks(axes, [x], [middle], look._replace(size=4), hollow)


def draw_fit(axes: Axes, rows: Sequence[Any], look: style.SeriesStyle, dash: str) -> None:
    """Draw the line fitted to one scheme's latencies, with its equation in the legend."""
    base = median(row["fitted_base_us"] for row in rows)
    slope = median(row["fitted_hop_us"] for row in rows)
    ends = [0.5, max(max(row["hops"]) for row in rows) + 0.5]
    axes.plot(ends, [base + slope * x for x in ends], dash, color=look.colour, linewidth=0.8)
    figures.marks(axes, [], [], look, [], label=f"{look.label}: {base:.1f} + {slope:.1f} h")


def draw_parts(axes: Axes, table: Sequence[Any], looks: style.Looks) -> None:
    """Draw the stacked parts of the model for each scheme and the paper, and fitted slopes."""
    names = ["paper", *(look.label for look, _ in looks.values())]
    parts: list[dict[str, float]] = [PAPER_US | {"routing_us": 0.0}]
    for y, spec in enumerate(looks, start=1):
        medians = median_columns([row for row in table if row["routing"] == spec])
        parts.append(medians)
        axes.plot(medians["fitted_hop_us"], y, "|", color=style.INK, markersize=16, zorder=4)
    stack_parts(axes, parts)
    axes.plot([], [], "|", color=style.INK, markersize=10, label="fitted slope")
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set(
        xlabel="latency of a hop (µs)",
        title="Parts of a hop (the paper's routing is within Table 2)",
    )
    axes.legend(fontsize=7.5)


def stack_parts(axes: Axes, parts: Sequence[Mapping[str, float]]) -> None:
    """Draw the parts of each row as a stacked bar; negative ones count as 0."""
    base = np.zeros(len(parts))
    for (key, label), colour in zip(PARTS.items(), style.SEVERAL, strict=False):
        values = np.array([max(0.0, part[key]) for part in parts])
        axes.barh(range(len(parts)), values, left=base, color=colour, label=label, height=0.6)
        base += values


def median_columns(rows: Sequence[Any]) -> dict[str, float]:
    """Return the medians over `rows` of the model's parts and of the fitted slope."""
    return {key: median(row[key] for row in rows) for key in (*PARTS, "fitted_hop_us")}


EXPERIMENT = Experiment(
    name="proxy_latency",
    question="How long does a packet take through an idle network, hop by hop, "
    "and is it what CCRDN's model says?",
    source="CCRDN, sections 6.6 and 7.4, table 2, on the kernel",
    engines=("kernel",),
    clock="real",
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
