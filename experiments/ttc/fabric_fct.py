"""How long do short and long flows take under each scheme, in a sound fabric and in a damaged one?

Flows arrive at random (Poisson) between random hosts, with sizes as published, cut off so that a
run ends in time.  A flow's slowdown is its time over that which it would have alone: store and
forward over the links of its path.  Damage is on one link between an edge switch and the tier
above: failed, known to all switches; or degraded to a fifth of its rate, known to none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from weft.daemons.routing.shortest import distances
from weft.experiments.engines import common_parameters as common
from weft.experiments.engines.arrays import Floats
from weft.experiments.report import figures, style
from weft.experiments.report.statistics import Statistic, nested_bootstrap_interval
from weft.experiments.runner.definition import Experiment, Result, Row, Run, Table, Value
from weft.experiments.runner.parameters import Word
from weft.experiments.ttc import columns
from weft.topologies.core.link import Mbps

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from weft.testbed.traffic.flows import Flow, FlowResults
    from weft.topologies.core.topology import Topology


SHORT_BYTES, LONG_BYTES = 100_000, 1_000_000  # below, from on: as in the papers on load balancing
GRACE_S = 10.0  # after the last arrival, for flows to end


def measure(run: Run) -> Result:
    """Time and slowdown of every flow, and their means and 99th percentiles for short and long
    ones.
    """
    from weft.experiments.engines import fabric_run

    rate_bps = run.integer("rate_mbps") * Mbps
    link = common.link(run)
    damage = partial(fabric_run.damage_link, run.text("damage"), link)
    with fabric_run.fabric(run, link, damage=damage) as on:
        seen = fabric_run.tcp(
            on,
            list(traffic(run, on.topology.servers, rate_bps)),
            deadline_s=run.number("seconds") + GRACE_S,
            warm_up_s=0.0,
            control=run.text("congestion_control"),
            transport=run.text("transport"),
            min_rtt_window_s=run.integer("min_rtt_window_s"),
        )
        return Result(
            figures={**times(on.topology, seen.flows, rate_bps), **fabric_run.order_figures(seen)},
            fidelity=seen.report.verdict,
            circumstances=fabric_run.circumstances(on, seen),
        )


def traffic(run: Run, hosts: int, rate_bps: int) -> Iterator[Flow]:
    """The flows of `run`, the same for every scheme and damage."""
    from weft.experiments.engines import fabric_run
    from weft.experiments.engines.workloads import poisson, sizes

    return poisson(
        np.random.default_rng(run.seed),
        hosts,
        of=sizes(run.text("sizes")),
        load_fraction=float(run.parameters["load_fraction"]),
        rate_bps=rate_bps * fabric_run.PAYLOAD_FRACTION,
        duration_s=run.number("seconds"),
    )


def times(topology: Topology, table: FlowResults, rate_bps: int) -> dict[str, Value]:
    """The columns about the flows' times.

    One that has not ended counts with the time that it has had.
    """
    from weft.experiments.engines.fabric_run import HEADER_BYTES, PAYLOAD_BYTES
    from weft.experiments.engines.workloads import ideal_s

    hops = {src: distances(topology.adjacency, src) for src in range(topology.servers)}
    taken = [
        (
            one.flow,
            one.flow.size_bytes or 0,
            table.measured_s - one.began_s if one.seconds is None else one.seconds,
        )
        for one in table.results
    ]
    alone = [
        ideal_s(
            size,
            rate_bps=rate_bps,
            hops=hops[flow.src][flow.dst],
            header_bytes=HEADER_BYTES,
            packet_bytes=PAYLOAD_BYTES,
        )
        for flow, size, _ in taken
    ]
    sizes_bytes, seconds = (
        np.array([row[column] for row in taken], dtype=float) for column in (1, 2)
    )
    slowdowns = seconds / np.array(alone)
    return {
        "flows": len(table.results),
        "unfinished": table.unfinished,
        **summary("short", seconds, slowdowns, sizes_bytes < SHORT_BYTES),
        **summary("long", seconds, slowdowns, sizes_bytes >= LONG_BYTES),
        **summary("all", seconds, slowdowns, sizes_bytes > 0),
        "sizes_bytes": sizes_bytes.astype(int).tolist(),
        "times_ms": (1000 * seconds).round(3).tolist(),
        "slowdowns": slowdowns.round(3).tolist(),
    }


def summary(
    name: str, seconds: Floats, slowdowns: Floats, chosen: NDArray[np.bool_]
) -> dict[str, Value]:
    """Mean and 99th percentile of the chosen flows' times, and of their slowdowns.

    None if there is no such flow.
    """
    found: dict[str, Value] = {}
    for key, values in (("ms", 1000 * seconds[chosen]), ("slowdown", slowdowns[chosen])):
        found[f"{name}_mean_{key}"] = float(values.mean()) if len(values) else None
        found[f"{name}_p99_{key}"] = float(np.percentile(values, 99)) if len(values) else None
    return found


def check(run: Run) -> None:
    """ValueError unless `run` names a fabric that its scheme suits, and a TCP that this kernel
    has.
    """
    from weft.experiments.engines import fabric_run

    fabric_run.check_scheme(run)
    common.check_tcp(run)
    common.check_delay(run)


PANELS: tuple[tuple[str, Statistic, Callable[[Floats], NDArray[np.bool_]]], ...] = (
    ("mean time of short flows (ms)", np.mean, lambda size: size < SHORT_BYTES),
    (
        "99th percentile of short flows (ms)",
        lambda ms: np.percentile(ms, 99),
        lambda size: size < SHORT_BYTES,
    ),
    ("mean time of long flows (ms)", np.mean, lambda size: size >= LONG_BYTES),
)
SETTING = (
    *(
        "topology",
        "sizes",
        "load_fraction",
        "rate_mbps",
        "transport",
        "queue_packets",
        "congestion_control",
    ),
    *("delay_us", "min_rtt_window_s", "seconds"),
)
MARKERS = {"none": "o", "failed": "X", "degraded": "^"}


def plot(table: Table, figure: Figure) -> None:
    """For each network, traffic and transport: times of short and of long flows, a mark for each
    scheme and damage; then for each damage the distributions of these times, and the slowdown by
    size.

    All flows of the runs of a mark or line count together.  Runs that failed fidelity count only
    where there are no others; the mark is hollow then, and the line pale.
    """
    groups = figures.by_setting(table, SETTING, always=4)
    looks = style.lines(style.in_order(str(row["scheme"]) for row in table))
    blocks: list[tuple[str, str, list[Row]]] = []  # title, a damage or "" for all of them, rows
    for title, rows in groups.items():
        blocks.append((title, "", rows))
        for damage in MARKERS:
            of = [row for row in rows if row["damage"] == damage]
            blocks += [(f"{title}; damage: {damage}", damage, of)] if of else []
    heights = [2.7 if damage else 0.3 * len(looks) + 1.1 for _, damage, _ in blocks]
    figure.set_size_inches(10.6, sum(heights) + 0.3)
    places = figure.subfigures(len(blocks), 1, height_ratios=heights, squeeze=False).flat
    for place, (title, damage, rows) in zip(places, blocks, strict=True):
        place.suptitle(title, fontsize=9, x=0.01, ha="left")
        panels = place.subplots(1, 3)
        (draw_distributions if damage else draw_marks)(panels, rows, looks)
        lines = panels[0].get_legend_handles_labels()
        place.legend(*lines, loc="outside right upper", fontsize=7.5)


def draw_marks(panels: Sequence[Axes], rows: Sequence[Row], looks: style.Looks) -> None:
    """A line of PANELS."""
    for axes, (label, statistic, chosen) in zip(panels, PANELS, strict=True):
        for y, (scheme, (look, _)) in enumerate(looks.items()):
            for at, (damage, marker) in enumerate(MARKERS.items()):
                of = [row for row in rows if (row["scheme"], row["damage"]) == (scheme, damage)]
                mark(axes, y + 0.24 * (at - 1), of, statistic, chosen, look._replace(marker=marker))
        axes.set(xlabel=label, xscale="log")
        figures.plain_numbers(axes.xaxis)
        axes.set_yticks(
            range(len(looks)),
            [look.label if axes is panels[0] else "" for look, _ in looks.values()],
        )
        axes.set_ylim(len(looks) - 0.5, -0.5)
    for damage, marker in MARKERS.items():
        if any(row["damage"] == damage for row in rows):
            panels[0].plot([], [], marker, color=style.INK, label=f"damage: {damage}")


def draw_distributions(panels: Sequence[Axes], rows: Sequence[Row], looks: style.Looks) -> None:
    """Times of short flows and of long ones as distributions, and the mean slowdown of eight
    classes of size.
    """
    short, long, by_size = panels
    for scheme, (look, dash) in looks.items():
        of = [row for row in rows if row["scheme"] == scheme]
        kept = [row for row in of if not figures.failed_fidelity(row)]
        if not of:
            continue
        size, ms, slowdown = (
            np.concatenate([np.array(row[key]) for row in kept or of])
            for key in ("sizes_bytes", "times_ms", "slowdowns")
        )
        looked: Any = {
            "color": look.colour,
            "alpha": 1.0 if kept else 0.35,
            "label": look.label,
            "linewidth": 1.0,
        }
        for axes, chosen in ((short, size < SHORT_BYTES), (long, size >= LONG_BYTES)):
            axes.plot(
                np.sort(ms[chosen]),
                np.arange(1, chosen.sum() + 1) / max(1, chosen.sum()),
                dash,
                **looked,
            )
        edges = np.unique(np.quantile(size, np.linspace(0, 1, 9)))
        place = np.clip(np.searchsorted(edges, size, side="right") - 1, 0, len(edges) - 2)
        classes = [i for i in range(len(edges) - 1) if (place == i).any()]
        centres, means = (
            [float(what(of_class[place == i])) for i in classes]
            for what, of_class in ((np.median, size), (np.mean, slowdown))
        )
        by_size.loglog(centres, means, dash, **looked)
    short.set(
        xlabel="time of short flows (ms)", ylabel="fraction of flows", xscale="log", ylim=(0, 1.02)
    )
    long.set(xlabel="time of long flows (ms)", xscale="log", ylim=(0, 1.02))
    by_size.set(xlabel="flow size (bytes)", ylabel="mean slowdown")
    for axis in (short.xaxis, long.xaxis, by_size.yaxis):
        figures.plain_numbers(axis)


def mark(
    axes: Axes,
    y: float,
    rows: Sequence[Row],
    statistic: Statistic,
    chosen: Callable[[Floats], NDArray[np.bool_]],
    look: style.SeriesStyle,
) -> None:
    """The `statistic` of the times of the `chosen` flows in `rows`, and its interval."""
    kept = [row for row in rows if not figures.failed_fidelity(row)]
    each = [np.array(row["times_ms"])[chosen(np.array(row["sizes_bytes"]))] for row in kept or rows]
    each = [ms for ms in each if len(ms)]
    if each:
        centre, (low, high) = (
            statistic(np.concatenate(each)),
            nested_bootstrap_interval(each, statistic),
        )
        axes.errorbar(
            [centre],
            [y],
            xerr=[[max(0.0, centre - low)], [max(0.0, high - centre)]],
            fmt=look.marker,
            capsize=0,
            color=look.colour,
            markerfacecolor=look.colour if kept else style.PAPER,
            markersize=4.5,
            elinewidth=1.2,
        )


EXPERIMENT = Experiment(
    name="fabric_fct",
    question="How long do short and long flows take under each scheme, with all links sound, one "
    "failed, one degraded?",
    source="DRILL (SIGCOMM 2017), section 4; LetFlow (NSDI 2017), section 6",
    engines=("kernel",),
    axes={
        "topology": common.TOPOLOGY.over("fattree:k=4"),
        "scheme": common.SCHEME.over(
            "ecmp", "vlb", "letflow", "rps", "rr", "dmodk", "drill", "ttc", "jsq", "lbsp"
        ),
        "damage": Word(
            meaning="what is wrong with one link", words=("none", "failed", "degraded")
        ).over("none", "failed", "degraded"),
        "sizes": common.SIZES.over("web-search:most_bytes=1500000"),
        "load_fraction": common.LOAD_FRACTION.over(0.4),
        "rate_mbps": common.RATE_MBPS.over(15),
        "queue_packets": common.QUEUE_PACKETS.over(100),
        "delay_us": common.DELAY_US.over(0),
        "congestion_control": common.CONGESTION_CONTROL.over("cubic"),
        "transport": common.TRANSPORT.over("tcp"),
        "min_rtt_window_s": common.MIN_RTT_WINDOW_S.over(300),
        "seconds": common.PART_OF_SECONDS.over(5.0),
    },
    columns=columns.FABRIC_FCT,
    seeds=3,
    takes_s=600,
    measure=measure,
    version=3,
    plot=plot,
    check=check,
)
