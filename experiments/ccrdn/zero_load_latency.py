"""Latency of a packet in an idle network: CCRDN, sections 6.6 and 7.4, table 2.

Each hop costs the protocol stack, propagation, the transmission of a full frame, and its share of
the search for the route; the latency is mean hops times that.  The search is measured here: CPU
time of a core per flow, divided by its hops.  The rest is `costs`:

    paper    the paper's, measured by ping between two of its servers
    kernel   a straight line through the times of a full frame between namespaces of one Linux,
             whose links have no rate (the experiment proxy_latency fits yours)
    us:once=0,hop=70   numbers; `once` is spent at the ends of the route

code=compiled times the graph engine's machine code, which records every link of the route;
code=python what a daemon runs when it chooses, and forwarding by DR at each hop.
"""

from __future__ import annotations

import math

import numpy as np

from weft.daemons.proxy.routing import parting, route, search, shortest_first
from weft.daemons.routing.path_tables import tabulate
from weft.experiments.ccrdn import columns
from weft.experiments.ccrdn.recursive import ROUTES, TOPOLOGY, check, policy_of, routed, uniform
from weft.experiments.engines import common_parameters as common
from weft.experiments.engines.graph import Graph, graph_of
from weft.experiments.engines.pairs import Pairs, pair
from weft.experiments.report.panels import Bars
from weft.experiments.runner.definition import Experiment, Result, Run
from weft.experiments.runner.parameters import Spec, Word
from weft.testbed.linux import clock
from weft.topologies.core.grammar import parse

CODES = {"compiled": 500_000, "python": 2_000}  # timed flows; the paper times half a million
EXAMPLE = "us:once=0,hop=70"
ROUNDS = 3  # the fastest one counts

COSTS_US = {
    "paper": {"once": 0.0, "hop": 10.0 + 22.0 + 38.0},  # stack, propagation, transmission: 7.4
    # proxy_latency on dcell:n=4,k=1, Linux 6.18 on two shared cores
    "kernel": {"once": 6.8, "hop": 1.2},
}


def costs_of(costs: str) -> dict[str, float]:
    """Return the costs of a route but for the search, in microseconds: `once` and for each `hop`.

    Raises:
        ValueError: `costs` has neither form.
    """
    if costs in COSTS_US:
        return COSTS_US[costs]
    name, parts = parse(costs)
    if name != "us" or parts.keys() != {"once", "hop"}:
        raise ValueError(
            f"zero_load_latency: costs must be paper, kernel or {EXAMPLE}, got {costs}"
        )
    return {part: cost_us(part, text) for part, text in parts.items()}


def cost_us(part: str, text: str) -> float:
    """Return the number of microseconds `text`; raise ValueError if it is none."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise ValueError(f"zero_load_latency: {part} must be a number of microseconds, got {text}")
    return value


def measure(run: Run) -> Result:
    """Measure the latency of a hop and of a mean route, and the share of the search."""
    flows = CODES[run.text("code")]
    mean_hops = routed(run, uniform(run, 500_000)).mean_hops
    assert mean_hops is not None  # nothing is dead
    search_s = seconds_compiled if run.text("code") == "compiled" else seconds_python
    routing_us = 1e6 * search_s(run, uniform(run, flows)) / flows / mean_hops
    costs = costs_of(run.text("costs"))
    hop_us = routing_us + costs["hop"]
    return Result(
        figures={
            "mean_hops": mean_hops,
            "routing_us": routing_us,
            "hop_us": hop_us,
            "latency_ms": (costs["once"] + mean_hops * hop_us) / 1000,
        }
    )


def seconds_compiled(run: Run, pairs: Pairs) -> float:
    """Return the CPU time (s) that the graph engine takes for `pairs`."""
    net = Graph(graph_of(run).network, threads=1)
    tries = policy_of(run)
    net.route(tries, pairs._replace(total=100), loads=True)  # fills tables and compiles
    rounds = []
    for _ in range(ROUNDS):
        begin_s = clock.cpu_s()
        net.route(tries, pairs, loads=True)
        rounds.append(clock.cpu_s() - begin_s)
    return min(rounds)


def seconds_python(run: Run, pairs: Pairs) -> float:
    """Return the CPU time (s) that the daemons' Python functions take for `pairs`."""
    network = graph_of(run).network
    tries = policy_of(run)
    table = tabulate(network.rule, network.t, min(1, len(network.t) - 1))
    with np.errstate(over="ignore"):  # of unsigned words
        ends = [tuple(map(int, pair(pairs, index))) for index in range(pairs.total)]
    begin_s = clock.cpu_s()
    for src, dst in ends:
        proxy = -1
        if run.text("routing") != "dr":
            _, proxy = search(table, tries, shortest_first, parting(network.t, src, dst), (), 1, [])
        route(network.rule, network.t, src, dst, proxy)
    return clock.cpu_s() - begin_s


EXPERIMENT = Experiment(
    name="zero_load_latency",
    question="How long does a packet take through an idle network?",
    source="CCRDN, sections 6.6 and 7.4, table 2",
    engines=("graph",),
    axes={
        "topology": TOPOLOGY.over("ficonn:n=10,k=3", "dcell:n=4,k=3", "beta-dcell:n=4,k=3"),
        "routing": ROUTES.over("dr", "pr-gp0", "pr-gpi", "pr-gpe"),
        "code": Word(
            "whose search for a route is timed: the graph engine's, or a daemon's",
            words=[*CODES],
        ).over("compiled"),
        "costs": Spec(
            "what stack, propagation and transmission cost",
            form=f"paper, kernel or {EXAMPLE}",
            check=costs_of,
        ).over(*COSTS_US),
        "apply": common.APPLY.over("algorithm"),
    },
    columns=columns.LATENCY,
    timed_columns=("routing_us", "hop_us", "latency_ms"),
    seeds=1,
    version=2,
    takes_s=13,
    measure=measure,
    plot=Bars(
        columns={"latency_ms": "latency of a mean route through an idle network (ms)"},
        by=("routing", "code"),
        facet=("topology", "costs", "apply"),
        always=2,
    ),
    check=check,
)
