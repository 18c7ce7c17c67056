"""Flows on the most loaded link of a fat-tree under each scheme.

TTC, section 4.1, figure 4 and table 1.

Every host sends k flows and receives k; flow after flow, in random order, every switch on the way
up assigns an uplink. An optimal assignment has k flows on every link; what counts is the link with
the most.

traffic=random: k random permutations.  traffic=adversarial: k times one permutation for which
D-mod-k leads many flows over the same uplink (section 2.1): workloads.transpose() with rows = d^l,
l the layer at which it collides most.

scheme=balls has no switches: each of the k N flows is a ball that falls into one of N bins, the
less loaded of two random ones, as in the problem to which section 4.1 compares its results.  The
bins are counted as the links of layer up1.

The paper's threshold (4) is lost in the text that we have.  ttc:delta=sqrt stands for our
reconstruction,
max(1, round(sqrt k)), which is the best or next to it for every k that we tried, hardly dependent
on the size; ttc:delta=loglog for the other reading, ceil(log2 ln N).  The estimate of table 1, (5),
is k + ln ln N / ln 2 + delta. The names of the two networks of figure 4 are lost as well; it is
said that they differ in d, which FT(3,8) and FT(3,16) do.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.random import Generator

from weft.daemons.core.compiled import compiled
from weft.experiments.engines import common_parameters as common
from weft.experiments.engines.arrays import Ints, int_zeros
from weft.experiments.engines.workloads import derangements, transpose
from weft.experiments.report.panels import Curves
from weft.experiments.runner.definition import Experiment, Result, Row, Run, Table
from weft.experiments.runner.parameters import Integer, Spec, Word
from weft.experiments.ttc.fat_tree_links import (
    CHOICE_COLUMNS,
    DRAWS,
    FatTreeLinks,
    LayeredTreeShape,
    SchemeRules,
    UpwardChoices,
    choose,
    fat_tree,
    links,
    no_choices,
    rules,
)
from weft.topologies.core.grammar import parse, unparse

BALLS = "balls"  # thrown into bins
MOST_FLOWS = 10**7
MOST_ASSIGNED = 2 * 10**10  # flows of all repetitions: half an hour or more


def assign(
    links: FatTreeLinks,
    load: Ints,
    src: Ints,
    dst: Ints,
    draws: Ints,
    rules: SchemeRules,
    choices: UpwardChoices,
) -> None:
    """Assign flow after flow; `load`, shape (links,), is raised by the flows on each link.

    src, dst: shape (flows,).  draws: shape (flows, n-1, 2), 32 bits each.
    """
    for flow in range(len(src)):
        switch, t, strayed = links.entry[src[flow]], dst[flow], 0
        layer = 1
        while links.block_of[layer, t] != links.block[switch]:
            first = links.first_up[switch]
            default = links.digit[layer, t]
            up = choose(load[first : first + links.d], default, draws[flow, layer - 1], rules)
            load[first + up] += 1
            choices.decisions[layer] += 1
            choices.redirected[layer] += up != default
            strayed += up != default
            switch = links.far[first + up]
            layer += 1
        if layer == links.n:
            choices.over_top[0] += 1
            choices.default_over_top[0] += strayed == 0
        while switch >= 0:
            link = links.down[switch, links.digit[layer, t]]
            load[link] += 1
            switch = links.far[link]
            layer -= 1


def throw(load: Ints, draws: Ints, rules: SchemeRules) -> None:
    """Throw a ball for each row of `draws` into bins; `load`, shape (bins,), is raised by them."""
    for ball in range(len(draws)):
        load[choose(load, 0, draws[ball], rules)] += 1


def scheme(spec: str, k: int, hosts: int) -> SchemeRules:
    """Return the scheme that `spec` names, with delta=sqrt and delta=loglog as numbers.

    Balls choose among all bins as Micro does among the ports of a switch.
    """
    if spec == BALLS:
        return rules("micro")
    thresholds = {
        "sqrt": max(1, round(math.sqrt(k))),
        "loglog": math.ceil(math.log2(math.log(hosts))),
    }
    name, options = parse(spec)
    if options.get("delta") in thresholds:
        spec = unparse(name, {**options, "delta": thresholds[options["delta"]]})
    return rules(spec)


def destinations(traffic: str, ft: LayeredTreeShape, k: int, rng: Generator) -> Ints:
    """Return a destination for each of the k flows of each host, shape (k, hosts)."""
    if traffic == "random":
        return derangements(rng, ft.hosts, k)
    dst = np.array(transpose(ft.hosts, ft.d ** math.ceil(ft.n / 2)))[:, 1]
    return np.tile(dst, (k, 1))


def measure(run: Run) -> Result:
    """Return maximum link loads, over all links and by layer, and the redirected flows."""
    ft = fat_tree(run)
    k = run.integer("k")
    rule, choices = scheme(run.text("scheme"), k, ft.hosts), no_choices(ft)
    loads = layer_loads(run, ft, rule, choices)
    most = loads.max(axis=1)
    by_layer = zip(ft.layers, loads.mean(axis=0), strict=True)
    return Result(
        {
            "delta_flows": rule.delta,
            "max_load_flows": most.mean(),
            "max_load_sd_flows": most.std(),
            "estimate_flows": k + math.log(math.log(ft.hosts)) / math.log(2) + rule.delta,
            **{f"{name}_max_load_flows": load for name, load in by_layer},
            **choices.figures(),
            "max_loads_flows": most.tolist(),
        }
    )


def layer_loads(run: Run, ft: LayeredTreeShape, rule: SchemeRules, choices: UpwardChoices) -> Ints:
    """Return the flows on the most loaded link, shape (repetitions, layers); count `choices`."""
    k, repetitions, fabric = run.integer("k"), run.integer("repetitions"), links(ft)
    loads = np.empty((repetitions, 2 * ft.n - 1), np.int64)
    for repetition in range(repetitions):
        rng = run.generator(repetition)
        order = rng.permutation(k * ft.hosts)
        dst = destinations(run.text("traffic"), ft, k, rng).ravel()[order]
        draws = rng.integers(1 << 32, size=(len(order), ft.n - 1, DRAWS))
        load = int_zeros(ft.links)
        if run.text("scheme") == BALLS:
            compiled(throw)(load[: ft.hosts], draws[:, 0], rule)
        else:
            compiled(assign)(fabric, load, order % ft.hosts, dst, draws, rule, choices)
        loads[repetition] = load.reshape(-1, ft.hosts).max(axis=1)
    return loads


def check(run: Run) -> None:
    """Raise ValueError unless the flows of `run` fit into memory and time."""
    flows, repetitions = (
        fat_tree(run).hosts * run.integer("k"),
        run.integer("repetitions"),
    )
    if flows > MOST_FLOWS:
        raise ValueError(
            f"ttc_flow: at most {MOST_FLOWS} flows, k={run.integer('k')} in "
            f"{run.text('topology')}: {flows}"
        )
    if flows * repetitions > MOST_ASSIGNED:
        most = MOST_ASSIGNED // flows
        raise ValueError(
            f"ttc_flow: {repetitions} repetitions with {flows} flows take too long: take at "
            f"most {most}"
        )


def with_estimate(table: Table) -> Table:
    """Return the rows with loads above k, and the estimate of equation (5) as a series."""
    rows = []
    for row in table:
        k, most, estimate = (row[key] for key in ("k", "max_load_flows", "estimate_flows"))
        rows.append(row | {"above_k_flows": most - k})
        if row["scheme"] == "ttc:delta=sqrt":
            series: Row = {"scheme": "estimate", "default_path_fraction": None}
            rows.append({**row, **series, "above_k_flows": estimate - k})
    return rows


EXPERIMENT = Experiment(
    name="ttc_flow",
    question="How many flows does the most loaded link of a fat-tree carry under each scheme?",
    source="TTC, section 4.1, figure 4, table 1",
    engines=("graph",),
    axes={
        "topology": common.TOPOLOGY.over("fattree:n=3,d=8", "fattree:n=3,d=16"),
        "traffic": Word(
            "random permutations, or one that is bad for D-mod-k",
            words=("random", "adversarial"),
        ).over("random", "adversarial"),
        "scheme": Spec(
            "scheme by which uplinks are assigned",
            form="SCHEME:key=value,... (`weft list`), balls; ttc also with delta=sqrt or loglog",
            check=lambda text: scheme(text, 1, 3),
        ).over(
            "dmodk",
            "vlb",
            "micro",
            "ttc:delta=0",
            "ttc:delta=0,tie=redirect",
            "ttc:delta=2",
            "ttc:delta=sqrt",
        ),
        "k": Integer("flows of each host", unit="flows", least=1, most=4096).over(
            1, 2, 4, 8, 16, 32
        ),
        "repetitions": Integer(
            "random assignments", unit="assignments", least=1, most=100_000
        ).over(200),
    },
    columns={
        "delta_flows": (
            "the threshold: a flow is redirected if that makes a difference of more flows than this"
        ),
        "max_load_flows": "flows on the most loaded link, mean over the repetitions",
        "max_load_sd_flows": "their standard deviation",
        "estimate_flows": "the paper's estimate: k + ln ln N / ln 2 + delta",
        "*_max_load_flows": (
            "flows on the most loaded link of that layer, mean over the repetitions"
        ),
        **CHOICE_COLUMNS,
        "max_loads_flows": "list: flows on the most loaded link in each repetition",
    },
    seeds=1,
    takes_s=9,
    measure=measure,
    plot=Curves(
        columns={
            "above_k_flows": "maximum link load above k (flows)",
            "default_path_fraction": "flows that keep to D-mod-k's path (fraction)",
        },
        x="k",
        facet=("topology", "traffic"),
        always=2,
        log=("k", "above_k_flows"),
        rows=with_estimate,
    ),
    check=check,
    version=2,
)
