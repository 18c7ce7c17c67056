"""Runs of the experiments on DCell, beta-DCell and FiConn: their network, scheme, pairs and faults.

On the graph engine `routing` is one of

    dr, bfs                         bfs: shortest paths
    pr-gp0, pr-gpi, pr-gpe          choice=0: rule among candidate routes, daemons/proxy/routing.py
    dfr:b=1,retry=3,ttl=64,nearest=1
    tar:relay=2,virtual=1,shuffled=1   on ficonn, see experiments/engines/flow_placement.py

Figures over the networks of CCRDN: a line of panels for each family and depth.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from weft.daemons.core.scheme import options_of
from weft.daemons.dfr import scheme as dfr
from weft.daemons.proxy import scheme as proxy
from weft.daemons.proxy.routing import LEAST_LOADED, SHORTEST, Policy, cost_of
from weft.daemons.tar import scheme as tar
from weft.experiments.engines.arrays import Ints
from weft.experiments.engines.common_parameters import refuse_others
from weft.experiments.engines.flow_placement import Placement
from weft.experiments.engines.graph import METHODS, Graph, graph, graph_of, policy
from weft.experiments.engines.loops import Faults, Tally
from weft.experiments.engines.pairs import Pairs, pairs
from weft.experiments.engines.wiring import NO_FAULTS
from weft.experiments.report.panels import Curves
from weft.experiments.runner.definition import Row, Run, Table
from weft.experiments.runner.parameters import Spec
from weft.topologies import canonical
from weft.topologies.core.family import IntegerParameter
from weft.topologies.core.grammar import parse, unknown
from weft.topologies.recursive.ccrdn import FICONN

ROUTINGS = ("dr", *METHODS, "dfr", "tar", "bfs")
OPTIONS: Mapping[str, Mapping[str, IntegerParameter]] = {
    "dfr": dfr.OWN,
    "tar": {
        "relay": tar.OWN["relay"],
        "virtual": IntegerParameter.flag("1: virtual flows count as load", default=True),
        "shuffled": IntegerParameter.flag("1: flows begin in random order", default=True),
    },
    **{method: {"choice": proxy.OWN["choice"]} for method in METHODS},
}
MOST_ROUTES = 10**12  # weighed by one run: about two hours of one core
# random pairs whose mean is about as precise as one search from a random source
PAIRS_OF_A_SOURCE = 500
COMPILED_ONLY = "this experiment routes millions of pairs by compiled schemes"


MEAN_HOPS_COLUMNS = {
    "mean_hops": "mean length of the routes of connected pairs, in moves from server to server",
    "se_hops": "standard error of mean_hops, from the number of pairs or sources; 0 for all pairs",
    "measured_pairs": "ordered pairs of servers that were routed",
}


def least_level(run: Run) -> int:
    """Return the lowest level at which PR tries proxies for pairs that part there.

    algorithm: 2, or 1 if k = 1: below, GP_I has no X(h-2) (CCRDN 5.2).  all: 1, as Algorithm 1 can
    be read, with X(0).  top: k.
    """
    k = graph_of(run).k
    return {"algorithm": min(2, k), "all": 1, "top": k}[run.text("apply")]


def options(routing: str) -> dict[str, int]:
    """Return the parameters of `routing`, such as dfr:b=2, as integers; ValueError for others."""
    name, texts = parse(routing)
    return options_of(name, OPTIONS.get(name, {}), texts)


def choice_of(routing: str) -> int:
    """Return the rule by which PR chooses among routes (CCRDN 5.4)."""
    return options(routing).get("choice", SHORTEST)


def policy_of(run: Run, *, condition1: bool = False) -> Policy:
    """Return the routes that DR or PR tries; with `condition1`, as in CCRDN 5.2."""
    routing = run.text("routing")
    name, level, choice = parse(routing)[0], least_level(run), choice_of(routing)
    return policy(name, least_level=level, condition1=condition1, choice=choice)


def routing_of(text: str) -> None:
    """Raise ValueError unless the graph engine has the scheme `text`."""
    refuse_others(text, ROUTINGS, COMPILED_ONLY)
    name, _ = parse(text)
    if name not in ROUTINGS:
        raise ValueError(unknown("routing", name, ROUTINGS))
    options(text)


def route_of(text: str) -> None:
    """Raise ValueError unless `text` is dr or a scheme of PR that weighs length before load."""
    refuse_others(text, ("dr", *METHODS), COMPILED_ONLY)
    if parse(text)[0] not in ("dr", *METHODS) or choice_of(text) == LEAST_LOADED:
        raise ValueError(f"routing must be dr, {', '.join(METHODS)} (no choice=1), got {text}")


def check(run: Run, *, loads: bool = False) -> None:
    """Raise ValueError unless the scheme of `run` suits its network and the run is not too large.

    `loads`: the run counts flows on links.
    """
    topology, routing = run.text("topology"), run.text("routing")
    net = graph(topology)
    name = parse(routing)[0]
    if name == "dfr":
        dfr.settings(net.network, options(routing))
    if name == "tar" and net.rule != FICONN:
        raise ValueError(
            f"{run.experiment}: tar is for ficonn, whose servers have two ports; got {topology}"
        )
    if choice_of(routing) == LEAST_LOADED and not loads:
        raise ValueError(
            f"{run.experiment}: choice=1 weighs the flows on links, which this experiment "
            "does not count"
        )
    if name == "bfs" and loads:
        raise ValueError(
            f"{run.experiment}: bfs finds lengths, and no routes to count flows on; "
            "take dr, pr-gpi, ..."
        )
    check_memory(run, net, name, loads)
    if "flows" in run.parameters:
        check_work(run, run.integer("flows"))


def check_memory(run: Run, net: Graph, scheme: str, loads: bool) -> None:
    """Raise ValueError unless this machine's memory suffices for `run`."""
    if "failed" in run.parameters and run.number("failed_fraction"):
        net.require_room(20 * net.ports, "failing links")
    if loads or scheme == "tar":
        net.require_room((8 + 4 * net.threads) * net.ports, "counting flows on links")
    if scheme == "bfs":
        net.require_room(6 * net.threads, "breadth-first search")


def check_work(run: Run, flows: int) -> None:
    """Raise ValueError if the scheme of `run` takes hours to route that many flows."""
    topology, routing = run.text("topology"), run.text("routing")
    candidates = most_candidates(graph(topology), parse(routing)[0])
    if candidates * flows > MOST_ROUTES:
        raise ValueError(
            f"{run.experiment}: {routing} weighs up to {candidates:,} routes for each of "
            f"{flows:,} pairs of {topology}; {MOST_ROUTES:.0e} is the most in all"
        )


def most_candidates(net: Graph, routing: str) -> int:
    """Return the most proxies that a search weighs for one pair (CCRDN 5.1 to 5.3)."""
    t, k = net.network.t, net.k
    if routing not in METHODS or k == 0:
        return 1
    return {"pr-gpe": t[k] // t[k - 1], "pr-gpi": 2 * t[max(k - 2, 0)], "pr-gp0": 2 * t[0]}[routing]


def networks(family: str, *sizes: tuple[int, int]) -> Iterable[str]:
    """Yield the networks of `family` with each of the `sizes` (n, k)."""
    return (f"{family}:n={n},k={k}" for n, k in sizes)


TOPOLOGY = Spec(
    "network",
    form="dcell:n=N,k=K, beta-dcell, gamma-dcell, delta-dcell or ficonn:n=N,k=K",
    check=graph,
    canonical=canonical,
)
ROUTING = Spec(
    "routing scheme",
    form="dr, pr-gp0, pr-gpi, pr-gpe (with :choice=0|1|2|3), dfr:b=B,retry=R,ttl=T,nearest=0|1, "
    "tar:relay=0|1|2,virtual=0|1,shuffled=0|1 (ficonn) or bfs (shortest paths)",
    check=routing_of,
)
ROUTES = Spec(
    "routing scheme", form="dr, pr-gp0, pr-gpi or pr-gpe (with :choice=0|2|3)", check=route_of
)


def traffic(run: Run, spec: str) -> Pairs:
    """Return the pairs of `run`; they depend neither on the scheme nor on the faults."""
    return pairs(spec, graph_of(run).servers, run.generator(0))


def uniform(run: Run, flows: int | str) -> Pairs:
    """Return `flows` random pairs of `run`."""
    return traffic(run, f"uniform:flows={flows}")


def faults(run: Run) -> Faults:
    """Return the faults of `run`: `failed_fraction` of its links, nodes or racks (`failed`)."""
    fraction = float(run.parameters["failed_fraction"])
    if fraction == 0:
        return NO_FAULTS
    net = graph_of(run)
    draws = {"links": net.link_faults, "nodes": net.node_faults, "racks": net.rack_faults}
    generator = run.generator(1)
    return draws[run.text("failed")](generator, fraction=fraction)


def routed(
    run: Run,
    flows: Pairs,
    dead: Faults = NO_FAULTS,
    *,
    condition1: bool = False,
    loads: bool = False,
) -> Tally:
    """Return the tally of `flows` under the scheme of `run`.

    With `loads` flows on links are counted, and PR chooses by hops and by the load of the
    bottleneck, as the scheme's `choice` says (CCRDN 5.4).
    """
    routing = run.text("routing")
    net = graph_of(run)
    name = parse(routing)[0]
    if name == "dfr":
        settings = dfr.settings(net.network, options(routing))
        return net.reroute(settings, flows, dead, loads=loads)
    if name == "tar":
        values = options(routing)
        rules = Placement(values["relay"], bool(values["virtual"]), bool(values["shuffled"]))
        return net.probe(flows, dead, rules)
    if name == "bfs":
        raise ValueError(f"{run.experiment}: bfs finds lengths only")
    choice = choice_of(routing)
    tries = policy_of(run, condition1=condition1)
    balanced = loads and name != "dr"
    return net.route(tries, flows, dead, loads=loads, balanced=balanced, cost=cost_of(choice))


def routed_with_loads(run: Run, flows: Pairs) -> tuple[Tally, Ints]:
    """Return the tally of `flows` and the number of flows on each directed link."""
    tally = routed(run, flows, loads=True)
    assert tally.loads is not None
    return tally, tally.loads[graph_of(run).wired]


def shortest(
    run: Run, total: int, dead: Faults = NO_FAULTS, *, everywhere: bool = False
) -> list[Tally]:
    """Return the tallies of breadth-first searches from random servers.

    There is one source for each PAIRS_OF_A_SOURCE of `total` pairs; all servers if `everywhere`.
    """
    net = graph_of(run)
    alive = np.flatnonzero(dead.servers == 0) if len(dead.servers) else np.arange(net.servers)
    count = len(alive)
    if not everywhere:
        count = min(count, max(20, math.ceil(total / PAIRS_OF_A_SOURCE)))
    sources = run.generator(2).choice(alive, count, replace=False)
    return net.shortest(sources.tolist(), dead)


def with_sizes(table: Table) -> Table:
    """Return the rows with the family and depth of their network, and its servers."""
    rows: list[Row] = []
    for row in table:
        spec = row["topology"]
        family, parameters = parse(spec)
        depth = f"{family}, k = {parameters['k']}"
        rows.append({**row, "family": depth, "servers": graph(spec).servers})
    return sorted(rows, key=lambda row: row["family"])


def over_networks(columns: Mapping[str, str], *facet: str, **options: Any) -> Curves:
    """Return a figure of `columns` over the servers of a network, a line for each scheme.

    Args:
        columns: label of the axis of each column.
        facet: parameters that a figure keeps apart, if they vary.
        options: of Curves.
    """
    return Curves(
        columns=columns,
        x="servers",
        series="routing",
        facet=("family", *facet),
        rows=with_sizes,
        log=("servers", *options.pop("log", ())),
        **options,
    )
