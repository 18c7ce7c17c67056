"""How long does a packet take through an idle network?  CCRDN, sections 6.6 and 7.4, table 2.

Each hop costs the protocol stack, propagation, the transmission of a full frame, and its share of
the search for the route; mean hops times that is the latency.  The last is measured here: CPU time
of a core per flow, divided by its hops.  The others are `costs`: the paper's, measured by ping
between two of its servers; kernel, the straight line through what a full frame takes between
namespaces of one Linux, whose links have no rate (proxy_latency fits yours); or numbers,
costs=us:once=0,hop=70, of which `once` is spent at the ends of the route.

code=compiled is the graph engine's machine code, which writes down every link of the route;
code=python is what a daemon runs when it chooses, and forwarding by DR at each hop.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from weft.daemons.proxy.routing import parting, route, search, shortest_first
from weft.daemons.routing.path_tables import tabulate
from weft.experiments.ccrdn import columns
from weft.experiments.ccrdn.recursive import (
    ROUTES,
    TOPOLOGY,
    PaperValues,
    Series,
    beside,
    check,
    in_order,
    least_level,
    legend_above,
    routed,
    series,
    title,
    traffic,
)
from weft.experiments.engines import common_parameters as common
from weft.experiments.engines.graph import Graph, graph, policy
from weft.experiments.engines.pairs import Pairs, pair
from weft.experiments.report import style
from weft.experiments.runner.definition import Experiment, Result, Run, Table
from weft.experiments.runner.parameters import Spec, Word
from weft.testbed.linux import clock
from weft.topologies.core.grammar import parse

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CODES = {"compiled": 500_000, "python": 2_000}  # flows that are timed; the paper's half a million
EXAMPLE = "us:once=0,hop=70"
HATCHES = ("", "///", "...", "xxx")
ROUNDS = 3  # of which the fastest counts

COSTS_US = {
    "paper": {"once": 0.0, "hop": 10.0 + 22.0 + 38.0},  # stack, propagation, transmission: 7.4
    # proxy_latency on dcell:n=4,k=1, Linux 6.18 on two shared cores
    "kernel": {"once": 6.8, "hop": 1.2},
}

# Table 2, with the paper's processor.
PAPER: PaperValues = {
    (network, routing): {"latency_ms": latency_ms}
    for network, row in {
        "ficonn:n=10,k=3": (0.913, 0.894, 0.908, 1.122),
        "dcell:n=4,k=3": (0.795, 0.752, 0.796, 1.400),
        "beta-dcell:n=4,k=3": (0.794, 0.714, 0.742, 1.361),
    }.items()
    for routing, latency_ms in zip(("dr", "pr-gp0", "pr-gpi", "pr-gpe"), row, strict=True)
}


def costs_of(costs: str) -> dict[str, float]:
    """What a route costs but for the search, once and for each hop, in microseconds; ValueError if
    `costs` does not say."""
    if costs in COSTS_US:
        return COSTS_US[costs]
    name, given = parse(costs)
    if name != "us" or given.keys() != {"once", "hop"}:
        raise ValueError(
            f"zero_load_latency: costs must be paper, kernel or {EXAMPLE}, got {costs}"
        )
    found = {}
    for part, text in given.items():
        try:
            found[part] = float(text)
        except ValueError:
            found[part] = math.nan
        if not 0 <= found[part] < math.inf:
            raise ValueError(
                f"zero_load_latency: {part} must be a number of microseconds, got {text}"
            )
    return found


def measure(run: Run) -> Result:
    """Latency of a hop and of a mean route, and the part of the search in it."""
    flows = CODES[run.text("code")]
    chosen = traffic(run, f"uniform:flows={flows}")
    mean_hops = routed(run, traffic(run, "uniform:flows=500000"), least=least_level(run)).mean_hops
    assert mean_hops is not None  # nothing is dead
    timed = seconds_compiled if run.text("code") == "compiled" else seconds_python
    routing_us = 1e6 * timed(run, chosen) / flows / mean_hops
    costs = costs_of(run.text("costs"))
    hop_us = routing_us + costs["hop"]
    return Result(
        figures={
            "mean_hops": mean_hops,
            "routing_us": routing_us,
            "hop_us": hop_us,
            "latency_ms": (costs["once"] + mean_hops * hop_us) / 1000,
            **(
                beside(PAPER, run.text("topology"), run.text("routing"))
                if run.text("costs") == "paper"
                else {}
            ),
        }
    )


def seconds_compiled(run: Run, chosen: Pairs) -> float:
    """CPU time of the graph engine for `chosen`."""
    net, tries = (
        Graph(graph(run.text("topology")).network, threads=1),
        policy(run.text("routing"), least_level=least_level(run)),
    )
    net.route(tries, chosen._replace(total=100), loads=True)  # tables, and compilation if need be
    rounds = []
    for _ in range(ROUNDS):
        begin = clock.cpu_s()
        net.route(tries, chosen, loads=True)
        rounds.append(clock.cpu_s() - begin)
    return min(rounds)


def seconds_python(run: Run, chosen: Pairs) -> float:
    """CPU time of the plain functions for `chosen`."""
    network, tries = (
        graph(run.text("topology")).network,
        policy(run.text("routing"), least_level=least_level(run)),
    )
    table = tabulate(network.rule, network.t, 1)
    with np.errstate(over="ignore"):  # of unsigned words
        ends = [
            tuple(int(server) for server in pair(chosen, index)) for index in range(chosen.total)
        ]
    begin = clock.cpu_s()
    for src, dst in ends:
        proxy = -1
        if run.text("routing") != "dr":
            _, proxy = search(table, tries, shortest_first, parting(network.t, src, dst), (), 1, [])
        route(network.rule, network.t, src, dst, proxy)
    return clock.cpu_s() - begin


def plot(table: Table, figure: Figure) -> None:
    """Table 2: latency of each scheme on each network, a cross where the paper gives one; each
    `costs` on a scale of its own, since those of a kernel are a thirtieth of the paper's."""
    networks, kinds = (
        in_order(table),
        sorted({str(row["costs"]) for row in table}, key=costs_in_order),
    )
    figure.set_size_inches(1 + 1.6 * len(networks) * len(kinds), 4.5)
    for axes, costs in zip(figure.subplots(1, len(kinds), squeeze=False)[0], kinds, strict=True):
        rows = [row for row in table if row["costs"] == costs]
        bars(axes, series(rows, "code", "apply"), networks)
        axes.set_xticks(range(len(networks)), [title(network) for network in networks])
        axes.set(title=f"costs: {costs}", xlim=(-0.6, len(networks) - 0.4))
    figure.axes[0].set_ylabel("latency of a mean route through an idle network (µs)")
    legend_above(figure)


def costs_in_order(costs: str) -> tuple[int, str]:
    """The place of `costs` among those that have a name, or after them."""
    return [*COSTS_US, costs].index(costs), costs


def bars(axes: Axes, lines: Sequence[Series], networks: Sequence[str]) -> None:
    """Latency of each line on each network, hatched where a scheme has several lines, and the
    paper's."""
    width, paper_label = 0.8 / len(lines), "the paper, table 2"
    for place, line in enumerate(lines):
        label = line.look.label
        for x, network in enumerate(networks):
            latency, paper = (
                line.at(key, topology=network) for key in ("latency_ms", "paper_latency_ms")
            )
            at, look = x + (place - (len(lines) - 1) / 2) * width, line.look
            if latency:
                height, error = 1000 * latency[0], 1000 * latency[1] or None
                hatch = HATCHES[look.variant % len(HATCHES)]
                axes.bar(
                    at,
                    height,
                    0.9 * width,
                    yerr=error,
                    color=look.colour,
                    hatch=hatch,
                    edgecolor=style.PAPER,
                    label=label,
                )
                label = ""
            if paper:
                axes.plot(at, 1000 * paper[0], "x", color=style.INK, label=paper_label)
                paper_label = ""


EXPERIMENT = Experiment(
    name="zero_load_latency",
    question="How long does a packet take through an idle network?",
    source="CCRDN, sections 6.6 and 7.4, table 2",
    engines=("graph",),
    axes={
        "topology": TOPOLOGY.over("ficonn:n=10,k=3", "dcell:n=4,k=3", "beta-dcell:n=4,k=3"),
        "routing": ROUTES.over("dr", "pr-gp0", "pr-gpi", "pr-gpe"),
        "code": Word(
            meaning="whose search for a route is timed: the graph engine's, or a daemon's",
            words=[*CODES],
        ).over("compiled"),
        "costs": Spec(
            meaning="what stack, propagation and transmission cost",
            form=f"paper, kernel or {EXAMPLE}",
            check=costs_of,
        ).over(*COSTS_US),
        "apply": common.APPLY.over("algorithm"),
    },
    columns=columns.LATENCY,
    seeds=1,
    version=2,
    takes_s=13,
    measure=measure,
    plot=plot,
    check=check,
)
