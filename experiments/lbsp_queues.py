"""How long do queues grow at each hop under LBSP, and how far apart are those of its two link groups?

LBSP, section 5.2, figure 9, as lbsp_model.py reads it; with the states of section 5.1 and without, which the paper does
not show.  A link group's queue is the mean of its ports'.
"""

from __future__ import annotations

from statistics import mean
from typing import TYPE_CHECKING

import numpy as np

from daemons.routing.lbsp import Shape
from experiments import style
from experiments.lbsp_model import Conditions, simulate
from experiments.spec import Experiment, Result, Run, Table
from topologies import build

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HOPS = {"edge": "first hop (edge)", "aggregation": "second hop (aggregation)", "core": "third hop (core)"}


def measure(run: Run) -> Result:
    """Mean queue of each hop, mean distance between link groups' queues, and how often a switch changes its state."""
    d = shape(run).d
    slots, patterns = run.integer("slots"), run.integer("patterns")
    on = Conditions(
        d, run.integer("states"), int(run.text("arrivals") == "at-once"), run.integer("edge_packets"),
        run.integer("edge_percent"), run.integer("above_packets"), run.integer("above_percent"),
    )  # fmt: skip
    rng = np.random.default_rng(run.seed)
    seen = simulate(on, float(run.parameters["load_fraction"]), slots=slots, patterns=patterns, rng=rng)
    watched = slots * patterns
    ports, switches = 2 * d**3, 2 * d * d
    queues = {
        f"{hop}_queue_packets": float(total / watched / ports) for hop, total in zip(HOPS, seen.waiting, strict=True)
    }
    apart = dict(zip(HOPS, seen.apart, strict=False))
    changes = dict(zip(HOPS, seen.changes, strict=False))
    return Result(
        figures={
            **queues,
            **{f"{hop}_apart_packets": float(total / watched / switches) for hop, total in apart.items()},
            **{f"{hop}_changes_per_1000_slots": float(1000 * n / watched / switches) for hop, n in changes.items()},
        }
    )


def shape(run: Run) -> Shape:
    """The fat-tree of `run`; ValueError if LBSP cannot part its paths."""
    topology = build(run.text("topology"))
    radices = topology.naming.layout.radices
    if topology.family != "fattree" or len(radices) != 3 or radices[1] != radices[2]:
        raise ValueError(f"lbsp_queues: topology must be a fattree:k=..., not {topology.spec}")
    return Shape(radices[1], radices[2])


def check(run: Run) -> None:
    """ValueError unless `run` names a fat-tree for LBSP, a load that links can carry, and a kind of arrivals."""
    shape(run)
    if not 0 < float(run.parameters["load_fraction"]) < 1:
        raise ValueError(f"lbsp_queues: load_fraction must lie between 0 and 1, got {run.parameters['load_fraction']}")
    if run.text("arrivals") not in ("paced", "at-once"):
        raise ValueError(f"lbsp_queues: arrivals are paced or at-once, not {run.text('arrivals')}")
    if run.integer("states") not in (0, 1):
        raise ValueError(f"lbsp_queues: states must be 0 or 1, got {run.integer('states')}")


def plot(table: Table, figure: Figure) -> None:
    """Queues (figure 9a) and their distance (9b) over load: a row of panels for each kind of arrivals."""
    kinds = sorted({str(row["arrivals"]) for row in table}, reverse=True)
    figure.set_size_inches(7.6, 2.9 * len(kinds))
    panels = figure.subplots(len(kinds), 2, squeeze=False)
    for row_of_panels, kind in zip(panels, kinds, strict=True):
        for axes, what in zip(row_of_panels, ("queue", "apart"), strict=True):
            for (hop, label), colour in zip(HOPS.items(), style.SEVERAL, strict=False):
                for states, dash in ((1, "-"), (0, ":")):
                    key = f"{hop}_{what}_packets"
                    values: dict[float, list[float]] = {}
                    for row in table:
                        if row["arrivals"] == kind and row["states"] == states and key in row:
                            values.setdefault(float(str(row["load_fraction"])), []).append(float(str(row[key])))
                    if values:
                        loads = sorted(values)
                        name = f"{label}, {'with' if states else 'without'} states"
                        y = [mean(values[load]) for load in loads]
                        axes.plot(loads, y, "o" + dash, color=colour, label=name, markersize=3.5)
            title = "mean queue" if what == "queue" else "distance between link groups"
            axes.set(xlabel="load (fraction)", ylabel=f"{title} (packets)", yscale="log", title=f"arrivals {kind}")
    panels[0, 0].legend(fontsize=6.5)


EXPERIMENT = Experiment(
    name="lbsp_queues",
    question="How long do LBSP's queues grow, and how far apart are its link groups, with and without their states?",
    source="LBSP, section 5.2, figure 9",
    engines=("graph",),
    sweep={
        "topology": ["fattree:k=8"],
        "load_fraction": [0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9],
        "states": [1, 0],
        "arrivals": ["paced", "at-once"],
        "edge_packets": [5],
        "edge_percent": [150],
        "above_packets": [20],
        "above_percent": [200],
        "slots": [1000],
        "patterns": [100],
    },
    seeds=1,
    measure=measure,
    plot=plot,
    check=check,
)
