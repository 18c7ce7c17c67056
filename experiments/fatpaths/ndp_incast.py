"""How long do many senders to one host take, and other patterns, by the purified transport and by
TCP?

All messages begin at once, of one size.  The ideal is what the frames of all messages take on the
busiest link of a host: of an incast, the receiver's.  On the kernel these are real packets, trimmed
by real switches; on the fabric engine the same state machines on wires, which TCP has not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from statistics import mean
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.experiments.engines import common_parameters as common
from weft.experiments.fatpaths import columns, transports
from weft.experiments.fatpaths.transports import Load
from weft.experiments.report import figures, panels, style
from weft.experiments.runner.definition import Experiment, Result, Row, Run, Table
from weft.experiments.runner.parameters import Integer, Spec
from weft.topologies import build
from weft.topologies.core.grammar import parse
from weft.topologies.core.link import Mbps

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

GRACE_S, PATIENCE = 5.0, 20  # a run ends after so many seconds and so many times the ideal
COLOURS = (style.BLUE, style.VERMILION, style.ORANGE, style.PURPLE, style.GREEN, style.SKY)
ENGINES = {"kernel": ("o", "-"), "fabric": ("x", ":")}


def loads(run: Run) -> list[Load]:
    """The messages of `run`, the same for every transport."""
    from weft.experiments.engines.workloads import pairs

    hosts = build(run.text("topology")).servers
    chosen = pairs(run.text("traffic"), hosts, np.random.default_rng(run.seed))
    return [Load(0.0, src, dst, 1000 * run.integer("message_kb")) for src, dst in chosen]


def measure(run: Run) -> Result:
    """When the first, the mean and the last message had come, by the ideal.

    What was lost, trimmed and sent again.
    """
    rate_bps, wanted = run.integer("rate_mbps") * Mbps, loads(run)
    ideal_s = transports.ideal_s(wanted, rate_bps)
    found = transports.carry(
        run,
        build(run.text("topology")),
        wanted,
        rate_bps=rate_bps,
        deadline_s=GRACE_S + PATIENCE * ideal_s,
    )
    came = [seconds for seconds in found.seconds if seconds is not None]
    return Result(
        figures={
            "ideal_ms": 1000 * ideal_s,
            "first_ratio": min(came) / ideal_s if came else None,
            "mean_ratio": mean(came) / ideal_s if came else None,
            "last_ratio": found.ended_s / ideal_s if len(came) == len(wanted) else None,
            "messages": len(wanted),
            "undelivered": len(wanted) - len(came),
            **found.figures,
        },
        fidelity=found.fidelity,
        circumstances=found.circumstances,
    )


def check(run: Run) -> None:
    """ValueError unless the network of `run` has hosts for its traffic, and its transport is
    there.
    """
    transports.check(run)
    loads(run)


def traffic(text: str) -> None:
    """ValueError unless there is the pattern `text`."""
    from weft.experiments.engines.workloads import PATTERNS

    common.pattern(text, {name: one.parameter for name, one in PATTERNS.items()})


def senders(row: Row) -> int | None:
    """Of an incast; None for another pattern."""
    name, given = parse(str(row["traffic"]))
    return int(given["senders"]) if name == "incast" else None


def plot(table: Table, figure: Figure) -> None:
    """Draw the last message by its ideal, and trimmed and lost packets, over senders.

    The third panel has the same ratio for patterns other than incast.
    """
    keys = ("topology", "rate_mbps", "message_kb", "header_packets", "rto_min_ms", "clock")
    groups = figures.by_setting(table, keys, always=3)
    names = list(dict.fromkeys(str(row["transport"]) for row in table))
    colours = dict(zip(names, cycle(COLOURS), strict=False))
    lines = panels.lines_of_panels(figure, groups, 3, width=11.5, heights=[3.1] * len(groups))
    for (ratio, packets, others), rows in lines:
        incast = [row for row in rows if senders(row)]
        draw_ratios(ratio, incast, colours)
        draw_packets(packets, [row for row in incast if str(row["transport"]).startswith("ndp")])
        draw_others(others, [row for row in rows if not senders(row)], colours)


def draw_ratios(axes: Axes, rows: Sequence[Row], colours: Mapping[str, str]) -> None:
    """Draw the last message of an incast by its ideal, over the number of senders."""
    for name, colour in colours.items():
        for engine in ENGINES:
            runs = panels.select(rows, transport=name, engine=engine)
            draw(axes, runs, "last_ratio", colour, engine, name)
    axes.axhline(1, color=style.INK, linewidth=0.8)
    axes.set(xlabel="senders", ylabel="last message / ideal", xscale="log")
    figures.plain_numbers(axes.xaxis)
    if is_wide(rows):
        axes.set_yscale("log")
        figures.plain_numbers(axes.yaxis)
    axes.legend(fontsize=7)


def is_wide(rows: Sequence[Row]) -> bool:
    """Whether their ratios lie so far apart that a logarithmic axis shows them better."""
    return any(float(str(row["last_ratio"])) > 4 for row in rows if row["last_ratio"])


def draw(axes: Axes, rows: Sequence[Row], key: str, colour: str, engine: str, label: str) -> None:
    """Draw a mark for each run, and a line through the means of the runs that kept fidelity."""
    marker, dash = ENGINES[engine]
    known = [row | {"senders": senders(row) or 0} for row in rows if row.get(key) is not None]
    if not known:
        return
    places = panels.numbers(known, "senders")
    look = style.SeriesStyle(label, colour, marker, 4.5)
    panels.run_marks(axes, known, places, panels.numbers(known, key), look)
    runs, _ = panels.valid_runs(known)
    means = panels.means_by(runs, "senders", key)
    shape: dict[str, Any] = {"marker": marker, "markersize": 4.5, "color": colour, "linewidth": 1}
    axes.plot(*means, dash, label=f"{label}, {engine}", **shape)


def draw_packets(axes: Axes, rows: Sequence[Row]) -> None:
    """What became of packets under NDP, over the number of senders."""
    shown = {
        "trimmed_packets": style.BLUE,
        "header_drops": style.VERMILION,
        "timeouts": style.ORANGE,
    }
    for key, colour in shown.items():
        for engine in ENGINES:
            draw(
                axes,
                [row for row in rows if row["engine"] == engine],
                key,
                colour,
                engine,
                style.words(key),
            )
    axes.set(xlabel="senders", ylabel="packets, NDP", xscale="log")
    axes.set_yscale("symlog", linthresh=1)
    axes.set_ylim(bottom=-0.2)
    figures.plain_numbers(axes.xaxis)
    if axes.lines:
        axes.legend(fontsize=7)


def draw_others(axes: Axes, rows: Sequence[Row], colours: Mapping[str, str]) -> None:
    """Draw the last message by the ideal under patterns other than incast."""
    patterns = list(dict.fromkeys(str(row["traffic"]) for row in rows))
    if not patterns:
        axes.set_axis_off()
        return
    for number, (name, colour) in enumerate(colours.items()):
        for engine, (marker, _) in ENGINES.items():
            runs = panels.select(rows, transport=name, engine=engine)
            runs = [row for row in runs if row["last_ratio"]]
            places = [patterns.index(str(row["traffic"])) + 0.12 * (number - 1) for row in runs]
            look = style.SeriesStyle(name, colour, marker, 4.5)
            panels.run_marks(axes, runs, panels.numbers(runs, "last_ratio"), places, look)
    axes.axvline(1, color=style.INK, linewidth=0.8)
    panels.name_rows(axes, patterns, fontsize=7)
    axes.set(xlabel="last message / ideal of the hosts' links")
    if is_wide(rows):
        axes.set_xscale("log")
        figures.plain_numbers(axes.xaxis)


EXPERIMENT = Experiment(
    name="ndp_incast",
    question="How long do many senders to one host take by the purified transport, with packets "
    "trimmed, and by TCP?",
    source="NDP, SIGCOMM 2017; FatPaths, section III-C",
    engines=("kernel", "fabric"),
    axes={
        "topology": common.TOPOLOGY.over("star:n=65"),
        "traffic": Spec(
            meaning="who sends to whom",
            form="incast:senders=N, permutation, shuffle, ...",
            check=traffic,
        ).over(
            *(f"incast:senders={count}" for count in (1, 2, 4, 8, 16, 32, 64)),
            "permutation",
            "shuffle",
        ),
        "transport": transports.TRANSPORT.over("ndp", "tcp:control=reno", "tcp:control=cubic"),
        "message_kb": Integer(meaning="size of every message", unit="kB", least=1, most=10**6).over(
            100
        ),
        "rate_mbps": common.RATE_MBPS.over(100),
        "header_packets": transports.HEADER_PACKETS.over(1125),
        "rto_min_ms": transports.RTO_MIN_MS.over(200),
    },
    columns=columns.INCAST,
    version=2,  # switches draw from SplitMix64
    seeds=1,
    takes_s=60,
    measure=measure,
    plot=plot,
    check=check,
)
