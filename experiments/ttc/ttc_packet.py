"""How long do packets wait under each scheme?  TTC, section 4.2, figures 5 and 6: the slotted model of a fat-tree.

In every slot a random permutation of the hosts is drawn, each host sends a packet with probability `load_fraction`, and
every link carries one.  A packet's latency is counted in slots, from the one in which it is sent to the one in which
it arrives; the tail is the largest among the packets sent in the same slot, averaged over slots.  The paper's threshold
(7) is lost in the text that we have; delta = 2 comes within 5 % of the best mean latency at loads of 0.8 and more.
"""

from __future__ import annotations

from statistics import mean
from typing import TYPE_CHECKING

import numpy as np

from daemons.routing import load_balancing
from experiments.figures import style
from experiments.runner.definition import Experiment, Result, Run, Table
from experiments.runner.parameters import Integer, Spec
from experiments.scenarios import common_parameters as common
from experiments.ttc.ttc_flow import fat_tree
from experiments.ttc.ttc_models import rules, simulate

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LENGTHS = 128  # of queues that a histogram tells apart
MOST_HOSTS = 1 << 16
MODEL_SCHEME = Spec(
    meaning="scheme by which switches choose ports",
    form="dmodk, vlb, rps, micro, ttc:delta=N,tie=stay|redirect or jsq",
    check=lambda text: rules(load_balancing.scheme(text)),
)


def measure(run: Run) -> Result:
    """Latencies of packets, and queue lengths of each layer of links."""
    ft, watched = fat_tree(run), run.integer("watched_slots")
    queues, latencies = simulate(
        ft,
        rules(load_balancing.scheme(run.text("scheme"))),
        float(run.parameters["load_fraction"]),
        slots=run.integer("slots"),
        watched=watched,
        lengths=LENGTHS,
        rng=np.random.default_rng(run.seed),
    )
    means = queues.total / (ft.hosts * watched)
    return Result(
        figures={
            "mean_latency_slots": float(latencies.mean.mean()),
            "tail_latency_slots": float(latencies.worst.mean()),
            **{f"{name}_mean_queue_packets": float(value) for name, value in zip(ft.layers, means, strict=True)},
            **{f"{name}_max_queue_packets": int(value) for name, value in zip(ft.layers, queues.largest, strict=True)},
            "up1_at_least": (queues.histogram[0][::-1].cumsum()[::-1] / (ft.hosts * watched)).tolist(),
        }
    )


def check(run: Run) -> None:
    """ValueError unless `run` names a fat-tree that memory has room for, and watches no more slots than there are."""
    hosts = fat_tree(run).hosts
    if hosts > MOST_HOSTS:
        raise ValueError(f"ttc_packet: at most {MOST_HOSTS} hosts, {run.text('topology')} has {hosts}")
    slots, watched = run.integer("slots"), run.integer("watched_slots")
    if watched > slots:
        raise ValueError(f"ttc_packet: watched_slots must be at most slots, {slots}, got {watched}")


PANELS = {
    "mean_latency_slots": "mean latency (slots)",
    "tail_latency_slots": "tail latency (slots)",
    "up1_mean_queue_packets": "mean queue up, layer 1 (packets)",
    "down1_mean_queue_packets": "mean queue down, layer 1 (packets)",
}


def plot(table: Table, figure: Figure) -> None:
    """Latency (figure 6) and queues (figure 5) over load, for each scheme."""
    looks = style.lines(str(row["scheme"]) for row in table)
    figure.set_size_inches(8.4, 7.2)
    for axes, (key, label) in zip(figure.subplots(2, 2).flat, PANELS.items(), strict=True):
        for spec, (look, dash) in looks.items():
            values: dict[float, list[float]] = {}
            for row in table:
                if row["scheme"] == spec:
                    values.setdefault(float(str(row["load_fraction"])), []).append(float(str(row[key])))
            loads = sorted(values)
            y = [mean(values[load]) for load in loads]
            axes.plot(loads, y, look.marker + dash, color=look.colour, label=look.label, markersize=3.5)
        axes.set(xlabel="load (fraction)", ylabel=label, yscale="log")
    figure.axes[0].legend(fontsize=7)


EXPERIMENT = Experiment(
    name="ttc_packet",
    question="How long are queues and latencies in a fat-tree under each scheme, slot by slot?",
    source="TTC, section 4.2, figures 5 and 6",
    engines=("graph",),
    sweep={
        "topology": ["fattree:n=3,d=8"],
        "scheme": ["dmodk", "vlb", "micro", "ttc:delta=0", "ttc:delta=2", "jsq"],
        "load_fraction": [0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95],
        "slots": [2000],
        "watched_slots": [500],
    },
    parameters={
        "topology": common.TOPOLOGY,
        "scheme": MODEL_SCHEME,
        "load_fraction": common.LOAD_FRACTION,
        "slots": Integer(meaning="slots in which hosts send", unit="slots", least=1, most=1_000_000),
        "watched_slots": Integer(meaning="slots at the end that are counted", unit="slots", least=1, most=1_000_000),
    },
    seeds=1,
    measure=measure,
    plot=plot,
    check=check,
)
