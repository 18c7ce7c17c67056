"""How do flows fare as more of them begin, on a crossbar and on an oversubscribed fat-tree, by each
transport?

FatPaths' baselines for its choice of lambda (figures 20 and 21).  Its links carry 10 Gbit/s in
frames of 9 kB, and lambda flows begin in each second at each host, of 1 MB in the mean.  Here links
are slower and frames have 1514 bytes: flows are smaller as frames are, so that they have as many
packets, and begin as often as gives the same load: lambda = 1000 are 0.8 of a link.  Sizes are
those of the web-search distribution, larger ones cut off at 2 MB, which are the long flows of
figure 20.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from weft.experiments.engines import common_parameters as common
from weft.experiments.engines.arrays import Floats
from weft.experiments.fatpaths import columns, transports
from weft.experiments.fatpaths.transports import Load
from weft.experiments.report import figures, panels, style
from weft.experiments.runner.definition import Experiment, Result, Row, Run, Table, Value
from weft.experiments.runner.parameters import Integer
from weft.topologies import build
from weft.topologies.core.link import Gbps, Mbps

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from weft.experiments.engines.workloads import Sizes


PAPER_BPS, PAPER_FRAME_BYTES, PAPER_MEAN_BYTES = 10 * Gbps, 9_000, 1_000_000
# of sizes, so that packets are as many
SCALE = (transports.FRAME_BYTES - transports.HEADER_BYTES) / PAPER_FRAME_BYTES
LONG_BYTES, SHORT_BYTES = 2_000_000, 100_000  # of the paper: from, and up to
FIGURE_21_FRACTION, FIGURE_21_S = 0.8, 50e-6  # mu, 1 GB/s of a link of 10 Gbit/s, and delta
GRACE_S = 15.0


def sizes_of(text: str) -> Sizes:
    """The distribution of sizes that `text` names, of packets as large as ours."""
    from weft.experiments.engines.workloads import Sizes, sizes

    found = sizes(text)
    return Sizes(tuple(SCALE * size for size in found.bytes_), found.fraction, found.source)


def load_fraction(run: Run) -> float:
    """Of a host's link."""
    return run.integer("lambda_per_s") * 8 * PAPER_MEAN_BYTES / PAPER_BPS


def loads(run: Run) -> list[Load]:
    """The flows of `run`, the same for every transport."""
    from weft.experiments.engines.workloads import poisson

    payload_fraction = 1 - transports.HEADER_BYTES / transports.FRAME_BYTES
    found = poisson(
        np.random.default_rng(run.seed),
        build(run.text("topology")).servers,
        of=sizes_of(run.text("sizes")),
        load_fraction=load_fraction(run),
        rate_bps=run.integer("rate_mbps") * Mbps * payload_fraction,
        duration_s=run.integer("seconds"),
    )
    return [Load(flow.at_s, flow.src, flow.dst, flow.size_bytes or 1) for flow in found]


def measure(run: Run) -> Result:
    """Times of short and of long flows, as figures 20 and 21 have them."""
    rate_bps, wanted = run.integer("rate_mbps") * Mbps, loads(run)
    found = transports.carry(
        run,
        build(run.text("topology")),
        wanted,
        rate_bps=rate_bps,
        deadline_s=run.integer("seconds") + GRACE_S,
    )
    until_s = run.integer("seconds") + GRACE_S
    times = np.array(
        [
            until_s - load.at_s if took is None else took
            for load, took in zip(wanted, found.seconds, strict=True)
        ]
    )
    sizes = np.array([load.size_bytes for load in wanted], dtype=float)
    normalised = times / (
        8 * sizes / (FIGURE_21_FRACTION * rate_bps) + FIGURE_21_S * SCALE * PAPER_BPS / rate_bps
    )
    throughput = 8 * sizes / times / rate_bps
    long, short = sizes >= 0.999 * SCALE * LONG_BYTES, sizes <= SCALE * SHORT_BYTES
    return Result(
        figures={
            "load_fraction": load_fraction(run),
            "flows": len(wanted),
            "unfinished": sum(took is None for took in found.seconds),
            "long_throughput_mean_fraction": statistic(throughput[long], np.mean),
            "long_throughput_p10_fraction": statistic(
                throughput[long], lambda of: np.percentile(of, 10)
            ),
            "long_normalised_mean": statistic(normalised[long], np.mean),
            "short_normalised_mean": statistic(normalised[short], np.mean),
            "short_normalised_p99": statistic(normalised[short], lambda of: np.percentile(of, 99)),
            "long_times_ms": np.sort(1000 * times[long]).round(2).tolist(),
            **found.figures,
        },
        fidelity=found.fidelity,
        circumstances=found.circumstances,
    )


def statistic(values: Floats, of: object) -> Value:
    """`of` the values; None where there are none."""
    return float(of(values)) if len(values) else None  # type: ignore[operator]


def check(run: Run) -> None:
    """ValueError unless the transport of `run` is there, and its load less than a link carries."""
    transports.check(run)
    if not load_fraction(run) < 1:
        raise ValueError(
            f"{run.experiment}: lambda_per_s must be below 1250, at which links are full"
        )


PANELS = (
    (
        "long_throughput_mean_fraction",
        "throughput of a long flow\n(fraction of the link), mean, 10th percentile",
    ),
    ("long_normalised_mean", "time of long flows / (size/µ + δ), mean"),
    ("short_normalised_mean", "time of short flows / (size/µ + δ), mean"),
)
LOOKS = (style.BLUE, style.VERMILION, style.ORANGE, style.PURPLE)
DASHES = ("-", "--", ":", "-.")


def plot(table: Table, figure: Figure) -> None:
    """Draw figures 20 and 21 for each setting.

    The last panel has distributions of long flows' times at the lowest, a middle and the highest
    lambda.
    """
    groups = figures.by_setting(table, ("engine", "rate_mbps", "sizes", "seconds"), always=4)
    transports_ = list(dict.fromkeys(str(row["transport"]) for row in table))
    colours = dict(zip(transports_, LOOKS, strict=False))
    topologies = {str(row["topology"]) for row in table}
    networks = sorted(topologies, key=lambda name: (not name.startswith("star"), name))
    lines = panels.lines_of_panels(
        figure, groups, len(PANELS) + 1, width=14, heights=[3.4] * len(groups)
    )
    for (*measures, distribution), rows in lines:
        for transport, colour in colours.items():
            of_transport = panels.select(rows, transport=transport)
            for network, dash in zip(networks, DASHES, strict=False):
                draw_network(measures, panels.select(of_transport, topology=network), colour, dash)
            crossbar = panels.select(of_transport, topology=networks[0])
            draw_times(distribution, crossbar, transport, colour)
        label_measures(measures)
        distribution.set(
            xlabel="time of long flows (ms)", ylabel="fraction of flows", xscale="log", ylim=(0, 1)
        )
        distribution.set_title(networks[0], fontsize=8)
        figures.plain_numbers(distribution.xaxis)
        distribution.legend(fontsize=6.5)


def draw_network(measures: Sequence[Axes], rows: Sequence[Row], colour: str, dash: str) -> None:
    """Draw every measure over lambda, of one transport on one network."""
    label = f"{rows[0]['transport']}, {rows[0]['topology']}" if rows else ""
    for axes, (key, _) in zip(measures, PANELS, strict=True):
        draw(axes, rows, key, colour, dash, label)
    draw(measures[0], rows, "long_throughput_p10_fraction", colour, dash, "", width=0.6)


def label_measures(measures: Sequence[Axes]) -> None:
    """Set the labels and scales of the panels over lambda."""
    for axes, (_, label) in zip(measures, PANELS, strict=True):
        axes.set(xlabel="λ (flows per host and second at 10 Gbit/s)", ylabel=label)
    measures[0].set_ylim(0, 1)
    for axes in measures[1:]:
        axes.set_yscale("log")
        figures.plain_numbers(axes.yaxis)
    measures[1].legend(fontsize=6.5)


def draw(
    axes: Axes,
    rows: Sequence[Row],
    key: str,
    colour: str,
    dash: str,
    label: str,
    *,
    width: float = 1.4,
) -> None:
    """Draw `key` over lambda, hollow where fidelity failed."""
    known = [row for row in rows if row.get(key) is not None]
    known.sort(key=lambda row: (int(str(row["lambda_per_s"])), float(str(row[key]))))
    if known:
        xs, ys = panels.numbers(known, "lambda_per_s"), panels.numbers(known, key)
        axes.plot(xs, ys, dash, color=colour, label=label, linewidth=width)
        panels.run_marks(axes, known, xs, ys, style.SeriesStyle(label, colour, "o", 3.5))


def draw_times(axes: Axes, rows: Sequence[Row], label: str, colour: str) -> None:
    """The distribution of long flows' times at three values of lambda, up to its 90 %."""
    values = sorted({int(str(row["lambda_per_s"])) for row in rows})
    for at, dash in zip(sorted({0, len(values) // 2, len(values) - 1}), DASHES, strict=False):
        of = [row for row in rows if values and row["lambda_per_s"] == values[at]]
        times: Floats = (
            np.sort(np.concatenate([np.array(row["long_times_ms"], dtype=float) for row in of]))
            if of
            else np.zeros(0)
        )
        kept = times[: max(1, round(0.9 * len(times)))]
        if len(kept):
            share = np.arange(1, len(kept) + 1) / len(times)
            axes.plot(
                kept, share, dash, color=colour, linewidth=1, label=f"{label}, λ = {values[at]}"
            )


EXPERIMENT = Experiment(
    name="ndp_load",
    question="How do short and long flows fare as more begin, by the purified transport and by "
    "TCP?",
    source="FatPaths, appendix D, figures 20 and 21",
    engines=("kernel", "fabric"),
    axes={
        "topology": common.TOPOLOGY.over("star:n=60", "fattree:k=4,oversubscription=2"),
        "transport": transports.TRANSPORT.over("ndp", "tcp:control=reno"),
        "lambda_per_s": Integer(
            meaning="flows of a host at 10 Gbit/s", unit="1/s", least=1, most=1249
        ).over(100, 200, 250, 300, 400, 600),
        "sizes": common.SIZES.over(f"web-search:most_bytes={LONG_BYTES}"),
        "rate_mbps": common.RATE_MBPS.over(5),
        "header_packets": transports.HEADER_PACKETS.over(1125),
        "rto_min_ms": transports.RTO_MIN_MS.over(200),
        "seconds": common.SECONDS.over(10),
    },
    columns=columns.LOAD,
    version=2,  # switches draw from SplitMix64
    seeds=1,
    takes_s=400,
    measure=measure,
    plot=plot,
    check=check,
)
