"""How long do packets wait under each scheme?  TTC, section 4.2, figures 5 and 6: the slotted model
of a fat-tree.

In every slot a random permutation of the hosts is drawn, each host sends a packet with probability
`load_fraction`, and every link carries one.  A packet's latency is counted in slots, from the one
in which it is sent to the one in which it arrives; the tail is the largest among the packets sent
in the same slot, averaged over slots.  Queues change slowly against the slots that are watched, so
that only several seeds tell how accurate a mean is.  The paper's threshold (7) is lost in the text
that we have; delta = 2 has the least mean latency at loads of 0.9 and more, and comes within 3 % of
delta = 1 at 0.8; below, delta = 0 is best.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from weft.experiments.engines import common_parameters as common
from weft.experiments.report import figures, panels, style
from weft.experiments.report.statistics import mean_and_half_width
from weft.experiments.runner.definition import Experiment, Result, Run, Table
from weft.experiments.runner.parameters import Integer, Spec
from weft.experiments.ttc import columns
from weft.experiments.ttc.fat_tree_links import fat_tree, rules
from weft.experiments.ttc.packet_model import simulate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

LENGTHS = 128  # of queues that a histogram tells apart
MOST_HOSTS = 1 << 16
MOST_LINK_SLOTS = 2 * 10**10  # ten minutes or more
MODEL_SCHEME = Spec(
    meaning="scheme by which switches choose ports",
    form="dmodk, vlb, rps, micro, ttc:delta=N,tie=stay|redirect or jsq",
    check=rules,
)


def measure(run: Run) -> Result:
    """Latencies of packets, queue lengths of each layer of links, and what is redirected."""
    ft, watched = fat_tree(run.experiment, run.text("topology")), run.integer("watched_slots")
    seen, latencies = simulate(
        ft,
        rules(run.text("scheme")),
        run.number("load_fraction"),
        slots=run.integer("slots"),
        watched=watched,
        lengths=LENGTHS,
        rng=np.random.default_rng(run.seed),
    )
    if not len(latencies.mean):
        raise ValueError(
            "ttc_packet: no host sent in the watched slots: raise watched_slots or load_fraction"
        )
    slots = ft.hosts * watched  # of a layer's ports
    means = zip(ft.layers, seen.total / slots, strict=True)
    longest = zip(ft.layers, seen.largest, strict=True)
    at_least = seen.histogram[0][::-1].cumsum()[::-1] / slots
    return Result(
        figures={
            "mean_latency_slots": float(latencies.mean.mean()),
            "tail_latency_slots": float(latencies.worst.mean()),
            **seen.choices.figures(),
            **{f"{name}_mean_queue_packets": float(value) for name, value in means},
            **{f"{name}_max_queue_packets": int(value) for name, value in longest},
            "up1_at_least": at_least.tolist(),
        }
    )


def check(run: Run) -> None:
    """ValueError unless `run` names a fat-tree that memory has room for, and watches no more slots
    than there are.
    """
    ft = fat_tree(run.experiment, run.text("topology"))
    if ft.hosts > MOST_HOSTS:
        raise ValueError(
            f"ttc_packet: at most {MOST_HOSTS} hosts, {run.text('topology')} has {ft.hosts}"
        )
    slots, watched = run.integer("slots"), run.integer("watched_slots")
    if watched > slots:
        raise ValueError(f"ttc_packet: watched_slots must be at most slots, {slots}, got {watched}")
    if slots * ft.links > MOST_LINK_SLOTS:
        most = MOST_LINK_SLOTS // ft.links
        raise ValueError(
            f"ttc_packet: {slots} slots of {run.text('topology')} take too long: take at "
            f"most {most}"
        )


PANELS = {
    "mean_latency_slots": "mean latency (slots)",
    "tail_latency_slots": "tail latency (slots)",
    "default_path_fraction": "packets over the top that keep\nto D-mod-k's path (fraction)",
}


def plot(table: Table, figure: Figure) -> None:
    """Draw figures 5 and 6 over load, a block for each network and number of slots.

    Bars are 95 % intervals over seeds.
    """
    keys = ("topology", "slots", "watched_slots")
    groups = figures.by_setting(table, keys, always=3)
    looks = style.lines(style.in_order(str(row["scheme"]) for row in table))
    figure.set_size_inches(13.0, 8.4 * len(groups))
    blocks = figure.subfigures(len(groups), 1, squeeze=False).flat
    for block, (title, rows) in zip(blocks, groups.items(), strict=True):
        block.suptitle(title, x=0.01, ha="left", fontsize=10.5)
        above, below = block.subfigures(2, 1, height_ratios=[1, 1.9], squeeze=False).flat
        draw_latency(above, rows, looks)
        draw_queues(below, rows, looks)


def draw_latency(
    place: SubFigure, rows: Table, looks: Mapping[str, tuple[style.SeriesStyle, str]]
) -> None:
    """Draw figure 6 and the redirected packets."""
    for axes, (key, label) in zip(place.subplots(1, len(PANELS)), PANELS.items(), strict=True):
        over_load(axes, rows, looks, key)
        axes.set(ylabel=label, xlabel="load (fraction)")
        if key.endswith("_slots"):
            axes.set_yscale("log")
            figures.plain_numbers(axes.yaxis)
    place.legend(*axes.get_legend_handles_labels(), loc="outside right upper", fontsize=8.5)


def draw_queues(
    place: SubFigure, rows: Table, looks: Mapping[str, tuple[style.SeriesStyle, str]]
) -> None:
    """Draw figure 5: the mean and the longest queue of each layer of links."""
    layers = fat_tree("ttc_packet", str(rows[0]["topology"])).layers
    lines = place.subplots(2, len(layers), sharex=True, sharey="row")
    headings = {"mean": "mean queue", "max": "longest queue"}
    for line, (key, words) in zip(lines, headings.items(), strict=True):
        for axes, layer in zip(line, layers, strict=True):
            over_load(axes, rows, looks, f"{layer}_{key}_queue_packets")
            axes.set(yscale="log", title=layer_name(layer))
        line[0].set_ylabel(f"{words} (packets)")
        figures.plain_numbers(line[0].yaxis)
    for axes in lines[-1]:
        axes.set_xlabel("load (fraction)")


def layer_name(layer: str) -> str:
    """Return the name of a layer of links in a title."""
    return "down to hosts" if layer == "hosts" else f"{layer[:-1]} layer {layer[-1]}"


def over_load(
    axes: Axes, rows: Table, looks: Mapping[str, tuple[style.SeriesStyle, str]], key: str
) -> None:
    """Draw means of `key` over seeds with their intervals, a line for each scheme."""
    for spec, (look, _) in looks.items():
        values = panels.values_by(panels.select(rows, scheme=spec), "load_fraction", key)
        means = [mean_and_half_width(several) for several in values.values()]
        axes.errorbar(
            list(values),
            [mean for mean, _ in means],
            [half_width for _, half_width in means],
            elinewidth=1,
            **style.line(look._replace(size=4.5)) | {"linewidth": 1.2},
        )


EXPERIMENT = Experiment(
    name="ttc_packet",
    question="How long are queues and latencies in a fat-tree under each scheme, slot by slot?",
    source="TTC, section 4.2, figures 5 and 6",
    engines=("graph",),
    axes={
        "topology": common.TOPOLOGY.over("fattree:n=3,d=8"),
        "scheme": MODEL_SCHEME.over("dmodk", "vlb", "micro", "ttc:delta=0", "ttc:delta=2", "jsq"),
        "load_fraction": common.LOAD_FRACTION.over(0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95),
        "slots": Integer(
            meaning="slots in which hosts send", unit="slots", least=1, most=1_000_000
        ).over(2000),
        "watched_slots": Integer(
            meaning="slots at the end that are counted", unit="slots", least=1, most=1_000_000
        ).over(500),
    },
    columns=columns.TTC_PACKET,
    seeds=5,
    takes_s=120,
    measure=measure,
    plot=plot,
    check=check,
    version=2,
)
