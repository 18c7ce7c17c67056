"""How long do flows take over layers, beside ECMP and LetFlow, when a skewed pattern makes them
collide?

FatPaths' figures 11, 14, 15 and 16: flows arrive at random (Poisson) at pairs of a fixed pattern,
with the web-search sizes in 20 steps.  Under a skewed off-diagonal all hosts of a router send to
those of one other router, which have one minimal path between them in most cases; with random
mapping hosts are placed at random.  Long flows are those of the paper's 1 MiB and more, times
`size_fraction`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from weft.experiments.engines import common_parameters as common
from weft.experiments.engines.arrays import Floats
from weft.experiments.fatpaths import columns, layered_network
from weft.experiments.report import figures, panels, style
from weft.experiments.runner.definition import Experiment, Result, Row, Run, Table, Value

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from weft.testbed.traffic.flows import FlowResults

GRACE_S = 15.0  # after the last arrival, for flows to end
OF_FLOWS = {  # columns with what TCP knew of each flow, by field of TcpInfo
    "repeated": "retransmissions",
    "repeated_in_vain": "spurious",
    "timeouts": "timeouts",
    "timeout_ms": "timeout_ms",
}


def measure(run: Run) -> Result:
    """Time of every flow, and means and 99th percentiles of short and long ones.

    What the hosts' layers did.
    """
    from weft.experiments.engines import fabric_run

    fraction, seconds = float(run.parameters["size_fraction"]), float(run.parameters["seconds"])
    with layered_network.brought_up(run) as network:
        hosts = network.topology.servers
        wanted = layered_network.arrivals(
            np.random.default_rng([run.seed, 1]),
            layered_network.who(run, hosts),
            layered_network.steps(fraction),
            load_fraction=float(run.parameters["load_fraction"]),
            rate_bps=layered_network.payload_bps(run),
            duration_s=seconds,
        )
        seen = layered_network.tcp(run, network, list(wanted), deadline_s=seconds + GRACE_S)
        return Result(
            figures={
                **times(seen.flows, fraction, seconds),
                **layered_network.layer_figures(network),
                **fabric_run.order_figures(seen),
            },
            fidelity=seen.report.verdict,
            circumstances=layered_network.circumstances(network, seen),
        )


def times(table: FlowResults, fraction: float, seconds: float) -> dict[str, Value]:
    """The columns about the flows' times.

    One that has not ended counts with the time that it has had.

    Of those that are warm, the flows that begin in the first half of `seconds` are dropped, as in
    section VII-A8.
    """
    sizes = np.array([one.flow.size_bytes for one in table.results])
    ms = np.array(
        [
            1000 * (table.measured_s - one.began_s if one.seconds is None else one.seconds)
            for one in table.results
        ]
    )
    long = sizes >= layered_network.LONG_BYTES * fraction
    warm = np.array([one.flow.at_s >= seconds / 2 for one in table.results], dtype=bool)
    return {
        "flows": len(ms),
        "unfinished": table.unfinished,
        **summary("long", ms[long]),
        **summary("short", ms[~long]),
        **summary("warm_long", ms[long & warm]),
        "long_flows": int(long.sum()),
        "sizes_bytes": sizes.tolist(),
        "times_ms": ms.round(3).tolist(),
        **{
            name: [None if one.tcp is None else getattr(one.tcp, field) for one in table.results]
            for name, field in OF_FLOWS.items()
        },
    }


def summary(name: str, ms: Floats) -> dict[str, Value]:
    """Mean and 99th percentile; None if there is no such flow."""
    return {
        f"{name}_mean_ms": float(ms.mean()) if len(ms) else None,
        f"{name}_p99_ms": float(np.percentile(ms, 99)) if len(ms) else None,
    }


SETTING = (
    *(
        "topology",
        "mapping",
        "pattern",
        "load_fraction",
        "size_fraction",
        "rate_mbps",
        "queue_packets",
        "ecn_packets",
    ),
    *("frame_bytes", "delay_us"),
    *(
        "congestion_control",
        "transport",
        "min_rtt_window_s",
        "rto_ms",
        "connections",
        "reordering",
        "seconds",
    ),
)
BASELINE = "ecmp"


def plot(table: Table, figure: Figure) -> None:
    """For each setting: mean and 99th percentile of long flows relative to ECMP's, the distribution
    of their times, and the mean time by size.

    All flows of the runs of a scheme count together.  Runs that failed fidelity count only where
    there are no others; bars are hollow then, and lines pale.
    """
    groups = figures.by_setting(table, SETTING, always=4)
    looks = coloured(style.lines(style.in_order(str(row["scheme"]) for row in table)))
    shown = [
        {spec: look for spec, look in looks.items() if any(row["scheme"] == spec for row in rows)}
        for rows in groups.values()
    ]
    heights = [0.3 * len(each) + 1.4 for each in shown]
    figure.set_size_inches(11.6, sum(heights) + 0.4)
    places = figure.subfigures(len(groups), 1, squeeze=False, height_ratios=heights).flat
    for place, each, (title, rows) in zip(places, shown, groups.items(), strict=True):
        place.suptitle(title, fontsize=8.5, x=0.01, ha="left")
        bars, distribution, by_size = place.subplots(1, 3, width_ratios=[1.1, 1, 1])
        draw_ratios(bars, rows, each)
        draw_times(distribution, by_size, rows, each)


def coloured(
    looks: Mapping[str, tuple[style.SeriesStyle, str]],
) -> dict[str, tuple[style.SeriesStyle, str]]:
    """`looks` with a colour of its own for each scheme that differs from another in its parameters
    alone.
    """
    colours = dict[str, str]()
    for spec, (look, _) in looks.items():
        free = [colour for colour in style.SEVERAL if colour not in colours.values()]
        colours[spec] = free[0] if look.variant and free else look.colour
    return {
        spec: (look._replace(colour=colours[spec]), dash) for spec, (look, dash) in looks.items()
    }


def flows_of(
    rows: Sequence[Row], scheme: str
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], bool]:
    """Return sizes in bytes, times in ms and which flows are long, of all flows under a scheme.

    The last value says whether any run kept fidelity.
    """
    runs, valid = panels.valid_runs(panels.select(rows, scheme=scheme))
    if not runs:
        return np.zeros(0), np.zeros(0), np.zeros(0, bool), False
    sizes = np.concatenate([np.array(row["sizes_bytes"]) for row in runs])
    ms = np.concatenate([np.array(row["times_ms"]) for row in runs])
    least = layered_network.LONG_BYTES * float(str(rows[0]["size_fraction"]))
    return sizes, ms, sizes >= least, valid


def draw_ratios(
    axes: Axes, rows: Sequence[Row], looks: Mapping[str, tuple[style.SeriesStyle, str]]
) -> None:
    """Draw the mean and the 99th percentile of long flows' times, over ECMP's."""
    baseline = next((spec for spec in looks if spec.startswith(BASELINE)), next(iter(looks)))
    base, _ = long_times(rows, baseline)
    if not len(base):
        return
    for place, (scheme, (look, _)) in enumerate(looks.items()):
        ms, valid = long_times(rows, scheme)
        if len(ms):
            panels.bar(axes, place, [ms.mean() / base.mean()], look, hollow=not valid)
            panels.stroke(axes, np.percentile(ms, 99) / np.percentile(base, 99), place)
    axes.axvline(1, color=style.INK, linewidth=0.7)
    panels.name_rows(axes, [look.label for look, _ in looks.values()], fontsize=6.5)
    label = "time of long flows / ECMP's\n(bar: mean, stroke: 99th percentile)"
    axes.set_xlabel(label, fontsize=7.5)


def long_times(rows: Sequence[Row], scheme: str) -> tuple[NDArray[Any], bool]:
    """Return the times of long flows in ms, and whether any run kept fidelity."""
    _, ms, long, valid = flows_of(rows, scheme)
    return ms[long], valid


def draw_times(
    distribution: Axes,
    by_size: Axes,
    rows: Sequence[Row],
    looks: Mapping[str, tuple[style.SeriesStyle, str]],
) -> None:
    """Draw the distribution of long flows' times, and the mean time by size."""
    for scheme, (look, dash) in looks.items():
        sizes, ms, long, valid = flows_of(rows, scheme)
        form: dict[str, Any] = {"color": look.colour, "linewidth": 1.0}
        form["alpha"] = 1.0 if valid else 0.35
        if long.any():
            times = np.sort(ms[long])
            distribution.plot(times, np.arange(1, len(times) + 1) / len(times), dash, **form)
        if len(ms):
            classes = np.unique(sizes)
            by_size.loglog(classes, [ms[sizes == size].mean() for size in classes], dash, **form)
    distribution.set(xscale="log", ylim=(0, 1.02))
    distribution.set_xlabel("time of long flows (ms)", fontsize=7.5)
    distribution.set_ylabel("fraction of flows", fontsize=7.5)
    by_size.set_xlabel("flow size (bytes)", fontsize=7.5)
    by_size.set_ylabel("mean time (ms)", fontsize=7.5)
    for axis in (distribution.xaxis, by_size.yaxis):
        figures.plain_numbers(axis)


EXPERIMENT = Experiment(
    name="fatpaths_fct",
    question="How long do flows take over FatPaths' layers, beside ECMP and LetFlow, under skewed "
    "and random mapping?",
    source="FatPaths, figures 11, 14, 15 and 16",
    engines=("kernel",),
    axes={
        **layered_network.AXES,
        "scheme": layered_network.AXES["scheme"].over(
            *("ecmp", "letflow:gap_us=500000"),
            "fatpaths:trigger=cut,start=random",
            "fatpaths:construction=intree,trigger=cut,start=random",
            "fatpaths:construction=intree,trigger=cut",
            "fatpaths:construction=intree,gap_us=500000,start=random",
            "fatpaths:construction=intree,trigger=ecn,start=random",
            "fatpaths:construction=intree,trigger=none,start=random",
            "fatpaths:construction=intree,trigger=cut,start=random,choice=least",
            "fatpaths:rho=1,trigger=cut,start=random",
        ),
        "load_fraction": common.LOAD_FRACTION.over(0.3),
        "size_fraction": layered_network.SIZE_FRACTION.over(0.125),
        "seconds": layered_network.SECONDS.over(15.0),
    },
    columns=columns.FCT,
    version=2,  # adjacent routers take more paths in layers of in-trees
    seeds=1,
    takes_s=700,
    measure=measure,
    plot=plot,
    check=layered_network.check,
)
