"""How evenly does each scheme lay flows over a fat-tree's links?  TTC, section 4.1, figure 4 and table 1.

Every host sends k flows and receives k; flow after flow, in random order, every switch on the way up assigns an uplink.
An optimal assignment has k flows on every link; what counts is the link with the most.

The paper's threshold (4) is lost in the text that we have.  ttc:delta=sqrt stands for our reconstruction,
max(1, round(sqrt k)), which is the best or next to it for every k that we tried, hardly dependent on the size;
ttc:delta=loglog for the other reading, ceil(log2 ln N).  The estimate of table 1, (5), is k + ln ln N / ln 2 + delta.
"""

from __future__ import annotations

import math
from statistics import mean
from typing import TYPE_CHECKING

import numpy as np

from daemons.routing import load_balancing
from experiments.figures import style
from experiments.graph_engine.compiled import compiled
from experiments.graph_engine.workloads import derangements
from experiments.runner.definition import Experiment, Result, Run, Table
from experiments.runner.parameters import Integer, Spec
from experiments.scenarios import common_parameters as common
from experiments.ttc.ttc_models import DRAWS, Rules, Shape, assign, rules
from topologies import family
from topologies.core.grammar import parse, unparse
from topologies.tiered.fattree import shape

if TYPE_CHECKING:
    from matplotlib.figure import Figure


MOST_FLOWS = 10**7


def fat_tree(run: Run) -> Shape:
    """The FT(n,d) of `run`; ValueError if its network is none."""
    name, given = parse(run.text("topology"))
    if name != "fattree":
        raise ValueError(f"{run.experiment}: topology must be a fattree, got {run.text('topology')}")
    n, d, pods, hosts = shape(family(name).parameters_from(given))
    if hosts != d or d < 2 or pods != 2 * d:
        raise ValueError(f"{run.experiment}: a whole fattree without oversubscription, with k >= 4 or d >= 2")
    return Shape(n, d)


def scheme(spec: str, k: int, hosts: int) -> Rules:
    """The scheme that `spec` names, with a threshold that depends on k or on the number of hosts worked out."""
    thresholds = {"sqrt": max(1, round(math.sqrt(k))), "loglog": math.ceil(math.log2(math.log(hosts)))}
    name, given = parse(spec)
    if given.get("delta") in thresholds:
        spec = unparse(name, {**given, "delta": thresholds[given["delta"]]})
    return rules(load_balancing.scheme(spec))


def measure(run: Run) -> Result:
    """The maximum link load of each repetition, and on average that of each layer of links."""
    ft, k, repetitions = fat_tree(run), run.integer("k"), run.integer("repetitions")
    rule = scheme(run.text("scheme"), k, ft.hosts)
    layers = np.empty((repetitions, 2 * ft.n - 1), np.int64)
    for repetition in range(repetitions):
        rng = np.random.default_rng([run.seed, repetition])
        order = rng.permutation(k * ft.hosts)
        dst = derangements(rng, ft.hosts, k).ravel()[order]
        draws = rng.integers(1 << 32, size=(len(order), ft.n - 1, DRAWS))
        load = compiled(assign)(ft, order % ft.hosts, dst, draws, rule)
        layers[repetition] = load.reshape(-1, ft.hosts).max(axis=1)
    most = layers.max(axis=1)
    return Result(
        figures={
            "delta_flows": rule.delta,
            "max_load_flows": float(most.mean()),
            "max_load_sd_flows": float(most.std()),
            "estimate_flows": k + math.log(math.log(ft.hosts)) / math.log(2) + rule.delta,
            **{
                f"{name}_max_load_flows": float(load) for name, load in zip(ft.layers, layers.mean(axis=0), strict=True)
            },
            "max_loads_flows": most.tolist(),
        }
    )


def check(run: Run) -> None:
    """ValueError unless `run` names a fat-tree, and no more flows than memory has room for."""
    flows = fat_tree(run).hosts * run.integer("k")
    if flows > MOST_FLOWS:
        raise ValueError(
            f"ttc_flow: at most {MOST_FLOWS} flows, k={run.integer('k')} in {run.text('topology')}: {flows}"
        )


def plot(table: Table, figure: Figure) -> None:
    """Maximum link load above the optimum k, over k, for each scheme: figure 4."""
    networks = sorted({str(row["topology"]) for row in table})
    looks = style.lines(str(row["scheme"]) for row in table)
    for axes, network in zip(np.atleast_1d(figure.subplots(1, len(networks))), networks, strict=True):
        here = [row for row in table if row["topology"] == network]
        for spec, (look, dash) in looks.items():
            x, y = above(here, spec, "max_load_flows")
            axes.plot(x, y, look.marker + dash, color=look.colour, label=look.label)
        axes.plot(*above(here, "ttc:delta=sqrt", "estimate_flows"), ":", color=style.INK, label="estimate (5)")
        axes.set(xlabel="flows of each host, k", ylabel="maximum link load above k (flows)", title=network)
        axes.set_xscale("log", base=2)
        axes.set_ylim(0, None)
    figure.axes[-1].legend()


def above(rows: Table, spec: str, key: str) -> tuple[list[int], list[float]]:
    """Each k of the scheme `spec`, and the mean of `key` less k there."""
    values: dict[int, list[float]] = {}
    for row in rows:
        if row["scheme"] == spec:
            k = int(str(row["k"]))
            values.setdefault(k, []).append(float(str(row[key])) - k)
    return sorted(values), [mean(values[k]) for k in sorted(values)]


EXPERIMENT = Experiment(
    name="ttc_flow",
    question="How many flows does the fullest link of a fat-tree carry under each scheme?",
    source="TTC, section 4.1, figure 4, table 1",
    engines=("graph",),
    sweep={
        "topology": ["fattree:n=3,d=8"],
        "scheme": ["dmodk", "vlb", "micro", "ttc:delta=0", "ttc:delta=0,tie=redirect", "ttc:delta=2", "ttc:delta=sqrt"],
        "k": [1, 2, 4, 8, 16, 32],
        "repetitions": [200],
    },
    parameters={
        "topology": common.TOPOLOGY,
        "scheme": Spec(
            meaning="scheme by which uplinks are assigned",
            form="SCHEME:key=value,... (`weft list`); ttc also with delta=sqrt or delta=loglog",
            check=lambda text: scheme(text, 1, 2),
        ),
        "k": Integer(meaning="flows of each host", unit="flows", least=1, most=4096),
        "repetitions": Integer(meaning="random assignments", unit="assignments", least=1, most=100_000),
    },
    seeds=1,
    measure=measure,
    plot=plot,
    check=check,
)
