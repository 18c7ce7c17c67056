"""How long do short and long flows take under each scheme, in a sound fabric and in a damaged one?

Flows arrive at random (Poisson) between random hosts, with sizes as published, cut off so that a run ends in time.  A
flow's slowdown is its time over that which it would have alone: store and forward over the links of its path.  Damage
is on one link between an edge switch and the tier above: failed, known to all switches; or degraded to a fifth of its
rate, known to none.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from daemons.routing.shortest import distances
from experiments import style
from experiments.spec import Experiment, Result, Run, Table, Value
from topologies.link import LinkSpec, Mbps
from topologies.spec import unknown

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from testbed.flows import Flow, FlowTable
    from topologies.graph import Topology

Floats = NDArray[np.float64]

SHORT_BYTES, LONG_BYTES = 100_000, 1_000_000  # below, from on: as in the papers on load balancing
GRACE_S = 10.0  # after the last arrival, for flows to end


def measure(run: Run) -> Result:
    """Time and slowdown of every flow, and their means and 99th percentiles for short and long ones."""
    from experiments import fabric

    rate_bps = run.integer("rate_mbps") * Mbps
    link = LinkSpec(rate_bps=rate_bps, queue_packets=run.integer("queue_packets"))
    with fabric.fabric(run, link, damage=run.text("damage")) as on:
        seen = fabric.tcp(
            on,
            list(traffic(run, on.topology.servers, rate_bps)),
            deadline_s=run.integer("seconds") + GRACE_S,
            warm_up_s=0.0,
            control=run.text("congestion_control"),
            transport=run.text("transport"),
            min_rtt_window_s=run.integer("min_rtt_window_s"),
        )
        return Result(
            figures={**times(on.topology, seen.flows, rate_bps), **fabric.order_figures(seen)},
            fidelity=seen.report.verdict,
            circumstances=fabric.circumstances(on, seen),
        )


def traffic(run: Run, hosts: int, rate_bps: int) -> Iterator[Flow]:
    """The flows of `run`, the same for every scheme and damage."""
    from experiments import fabric
    from experiments.workloads import poisson, sizes

    return poisson(
        np.random.default_rng(run.seed),
        hosts,
        of=sizes(run.text("sizes")),
        load_fraction=float(run.parameters["load_fraction"]),
        rate_bps=rate_bps * fabric.PAYLOAD_FRACTION,
        duration_s=run.integer("seconds"),
    )


def times(topology: Topology, table: FlowTable, rate_bps: int) -> dict[str, Value]:
    """The columns about the flows' times."""
    from experiments.fabric import HEADER_BYTES, PAYLOAD_BYTES
    from experiments.workloads import ideal_s

    hops = {src: distances(topology.adjacency, src) for src in range(topology.servers)}
    ended = [(one.flow, one.flow.size_bytes or 0, one.seconds) for one in table.results if one.seconds is not None]
    alone = [
        ideal_s(
            size,
            rate_bps=rate_bps,
            hops=hops[flow.src][flow.dst],
            header_bytes=HEADER_BYTES,
            packet_bytes=PAYLOAD_BYTES,
        )
        for flow, size, _ in ended
    ]
    sizes_bytes, seconds = (np.array([row[column] for row in ended], dtype=float) for column in (1, 2))
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


def summary(name: str, seconds: Floats, slowdowns: Floats, chosen: NDArray[np.bool_]) -> dict[str, Value]:
    """Mean and 99th percentile of the chosen flows' times, and of their slowdowns; None if there is no such flow."""
    found: dict[str, Value] = {}
    for key, values in (("ms", 1000 * seconds[chosen]), ("slowdown", slowdowns[chosen])):
        found[f"{name}_mean_{key}"] = float(values.mean()) if len(values) else None
        found[f"{name}_p99_{key}"] = float(np.percentile(values, 99)) if len(values) else None
    return found


def check(run: Run) -> None:
    """ValueError unless `run` names a scheme, a fabric, a kind of damage, a load and sizes."""
    from experiments import fabric
    from experiments.workloads import sizes

    fabric.check_scheme(run)
    fabric.check_transport(run)
    sizes(run.text("sizes"))
    if run.text("damage") not in fabric.DAMAGE:
        raise ValueError(unknown("damage", run.text("damage"), fabric.DAMAGE))
    if not 0 < float(run.parameters["load_fraction"]) < 1:
        raise ValueError(f"fabric_fct: load_fraction must lie between 0 and 1, got {run.parameters['load_fraction']}")


def plot(table: Table, figure: Figure) -> None:
    """For each kind of damage and transport: times of short flows and of long ones (CDF), and the slowdown by size."""
    kinds = sorted(
        {(str(row["damage"]), str(row["transport"])) for row in table},
        key=lambda kind: (kind[1], ["none", "failed", "degraded"].index(kind[0])),
    )
    looks = style.lines(str(row["scheme"]) for row in table)
    figure.set_size_inches(9.6, 2.6 * len(kinds) + 0.4)
    for (short, long, by_size), kind in zip(figure.subplots(len(kinds), 3, squeeze=False), kinds, strict=True):
        for spec, (look, dash) in looks.items():
            rows = [row for row in table if (row["damage"], row["transport"], row["scheme"]) == (*kind, spec)]
            if not rows:
                continue
            size, ms, slowdown = (
                np.concatenate([np.array(row[key]) for row in rows]) for key in ("sizes_bytes", "times_ms", "slowdowns")
            )
            cdf(short, ms[size < SHORT_BYTES], look, dash)
            cdf(long, ms[size >= LONG_BYTES], look, dash)
            edges = np.unique(np.quantile(size, np.linspace(0, 1, 9)))
            place = np.clip(np.searchsorted(edges, size, side="right") - 1, 0, len(edges) - 2)
            centres = [float(np.median(size[place == i])) for i in range(len(edges) - 1)]
            means = [float(slowdown[place == i].mean()) for i in range(len(edges) - 1)]
            by_size.loglog(centres, means, look.marker + dash, color=look.colour, label=look.label, markersize=3.5)
        short.set(xlabel="time of short flows (ms)", ylabel="fraction of flows", xscale="log")
        short.set_title(f"damage: {kind[0]}, {kind[1]}")
        long.set(xlabel="time of long flows (ms)")
        by_size.set(xlabel="flow size (bytes)", ylabel="mean slowdown")
    figure.axes[2].legend(fontsize=6.5)


def cdf(axes: Axes, values: Floats, look: style.Look, dash: str) -> None:
    """The distribution of `values`."""
    axes.plot(np.sort(values), np.arange(1, len(values) + 1) / max(1, len(values)), dash, color=look.colour)


EXPERIMENT = Experiment(
    name="fabric_fct",
    question="How long do short and long flows take under each scheme, with all links sound, one failed, one degraded?",
    source="DRILL (SIGCOMM 2017), section 4; LetFlow (NSDI 2017), section 6",
    engines=("kernel",),
    sweep={
        "topology": ["fattree:k=4"],
        "scheme": ["ecmp", "letflow", "rps", "rr", "dmodk", "drill", "ttc", "jsq"],
        "damage": ["none", "failed", "degraded"],
        "sizes": ["web-search:most_bytes=3000000"],
        "load_fraction": [0.4],
        "rate_mbps": [20],
        "queue_packets": [100],
        "congestion_control": ["cubic"],
        "transport": ["tcp"],
        "min_rtt_window_s": [300],
        "seconds": [15],
    },
    seeds=3,
    measure=measure,
    plot=plot,
    check=check,
)
