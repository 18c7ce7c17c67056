"""What the experiments on DCell, beta-DCell and FiConn share: how a run names network, scheme and
faults.

On the graph engine `routing` is one of

    dr, bfs                         bfs: shortest paths
    pr-gp0, pr-gpi, pr-gpe          choice=0: which of the candidate routes, as in
    daemons/proxy/routing.py dfr:b=1,retry=3,ttl=64,nearest=1
    tar:relay=2,virtual=1,shuffled=1   on ficonn, as in experiments/engines/flow_placement.py
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from weft.daemons.dfr.routing import Dfr
from weft.daemons.dfr.scheme import OWN as DFR_PARAMETERS
from weft.daemons.proxy.routing import LEAST_LOADED, SHORTEST, cost_of
from weft.experiments.engines.common_parameters import refuse_others
from weft.experiments.engines.flow_placement import Placement
from weft.experiments.engines.graph import METHODS, Graph, graph, policy
from weft.experiments.engines.pairs import Pairs, pairs
from weft.experiments.engines.tally import Tally
from weft.experiments.engines.wiring import NO_FAULTS, Faults
from weft.experiments.report import style
from weft.experiments.report.statistics import mean_and_error
from weft.experiments.runner.definition import Row, Run, Table, canonical
from weft.experiments.runner.parameters import Spec
from weft.topologies.core.grammar import integer, parse, unknown
from weft.topologies.recursive.ccrdn import FICONN

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ROUTINGS = ("dr", *METHODS, "dfr", "tar", "bfs")
MOST_ROUTES = 10**12  # that a run may weigh, which takes a core some two hours
# about as many random pairs as tell the mean as well as one search from a random source
PAIRS_OF_A_SOURCE = 500
# of an entry of a legend: line and gaps, and each letter
LEGEND_MARK_INCHES, LEGEND_LETTER_INCHES = 0.6, 0.073
LEGEND_ROW_INCHES = 0.19
PaperValues = Mapping[tuple[str, ...], Mapping[str, float]]
SHORT = {"dcell": "D", "beta-dcell": "β", "gamma-dcell": "γ", "delta-dcell": "δ", "ficonn": "F"}


def least_level(run: Run) -> int:
    """The least level at which proxies are tried where source and destination part there.

    algorithm: 2, or 1 where the network has but that: below, GP_I has no X(h-2) to look at (CCRDN
    5.2).  all: 1, as Algorithm 1 can be read, with the X(0) for it.  top: k.
    """
    k = graph(run.text("topology")).k
    return {"algorithm": min(2, k), "all": 1, "top": k}[run.text("apply")]


def dfr_of(routing: str) -> Dfr:
    """Return the parameters of DFR that `routing` gives, such as dfr:b=2; ValueError for others."""
    name, given = parse(routing)
    for key in given:
        if key not in DFR_PARAMETERS:
            raise ValueError(f"{name}: " + unknown("parameter", key, DFR_PARAMETERS))
    values: dict[str, Any] = {
        key: DFR_PARAMETERS[key].value(name, key, text) for key, text in given.items()
    }
    values["nearest"] = bool(values.get("nearest", 1))
    return Dfr(**values)


def placement_of(routing: str) -> Placement:
    """What `routing`, tar:relay=1 say, chooses of what CCRDN leaves open; ValueError for others."""
    name, given = parse(routing)
    usual = Placement()
    for key in given:
        if key not in usual._fields:
            raise ValueError(f"{name}: " + unknown("parameter", key, usual._fields))
    read = {
        key: integer(name, key, text, least=0, most=2 if key == "relay" else 1)
        for key, text in given.items()
    }
    virtual, shuffled = (bool(read.get(key, 1)) for key in ("virtual", "shuffled"))
    return Placement(read.get("relay", usual.relay), virtual, shuffled)


def choice_of(routing: str) -> int:
    """The choice rule of CCRDN 5.4 that `routing`, pr-gpi:choice=1 say, gives
    (daemons/proxy/routing.py); ValueError for others."""
    name, given = parse(routing)
    for key in given:
        if key != "choice":
            raise ValueError(f"{name}: no parameter {key} here, there is choice")
    return integer(name, "choice", given["choice"], least=0, most=2) if given else SHORTEST


def routing_of(text: str) -> None:
    """Raise ValueError unless the graph engine has the scheme `text`."""
    refuse_others(text, ROUTINGS, "this experiment routes millions of pairs by compiled schemes")
    name, given = parse(text)
    if name not in ROUTINGS:
        raise ValueError(unknown("routing", name, ROUTINGS))
    if name == "dfr":
        dfr_of(text)
    elif name == "tar":
        placement_of(text)
    elif name in METHODS:
        choice_of(text)
    elif given:
        raise ValueError(f"{name} has no parameters here, got {text}")


def route_of(text: str) -> None:
    """Raise ValueError unless `text` is dr or a scheme of PR."""
    refuse_others(
        text, ("dr", *METHODS), "this experiment routes millions of pairs by compiled schemes"
    )
    if text not in ("dr", *METHODS):
        raise ValueError(f"routing must be dr, {', '.join(METHODS)}, got {text}")


def check(run: Run, *, loads: bool = False) -> None:
    """ValueError unless the scheme of `run` goes with its network, and it is not too much.

    loads: whether flows on links are counted.
    """
    net, name = graph(run.text("topology")), parse(run.text("routing"))[0]
    if name == "dfr" and dfr_of(run.text("routing")).b > net.k:
        raise ValueError(
            f"{run.experiment}: dfr: b must be at most {net.k} in {run.text('topology')}"
        )
    if name == "tar" and net.rule != FICONN:
        raise ValueError(
            f"{run.experiment}: tar is for ficonn, whose servers have two ports; got "
            f"{run.text('topology')}"
        )
    if name in METHODS and choice_of(run.text("routing")) == LEAST_LOADED and not loads:
        raise ValueError(
            f"{run.experiment}: choice=1 weighs the flows on links, which this experiment "
            f"does not count"
        )
    if "failed" in run.parameters and run.number("failed_fraction"):
        net.require_room(20 * net.ports, "failing links")
    if loads or name == "tar":
        net.require_room((8 + 4 * net.threads) * net.ports, "counting flows on links")
    if name == "bfs":
        net.require_room(6 * net.threads, "breadth-first search")
    if "flows" in run.parameters:
        check_work(run, run.integer("flows"))


def check_work(run: Run, flows: int) -> None:
    """ValueError if the scheme of `run` searches for hours to route so many flows."""
    candidates = most_candidates(graph(run.text("topology")), parse(run.text("routing"))[0])
    if candidates * flows > MOST_ROUTES:
        each = (
            f"{run.text('routing')} weighs up to {candidates:,} routes for each of {flows:,} pairs"
        )
        raise ValueError(
            f"{run.experiment}: {each} of {run.text('topology')}; {MOST_ROUTES:.0e} is the "
            f"most in all"
        )


def most_candidates(net: Graph, routing: str) -> int:
    """The most proxies that a search can weigh for one pair (CCRDN 5.1 to 5.3)."""
    t, k = net.network.t, net.k
    if routing not in METHODS or k == 0:
        return 1
    return {"pr-gpe": t[k] // t[k - 1], "pr-gpi": 2 * t[max(k - 2, 0)], "pr-gp0": 2 * t[0]}[routing]


TOPOLOGY = Spec(
    meaning="network",
    form="dcell:n=N,k=K, beta-dcell, gamma-dcell, delta-dcell or ficonn:n=N,k=K",
    check=graph,
    canonical=canonical,
)
ROUTING = Spec(
    meaning="routing scheme",
    form="dr, pr-gp0, pr-gpi, pr-gpe (with :choice=0|1|2), dfr:b=B,retry=R,ttl=T,nearest=0|1, "
    "tar:relay=0|1|2,virtual=0|1,shuffled=0|1 (ficonn) or bfs (shortest paths)",
    check=routing_of,
)
ROUTES = Spec(meaning="routing scheme", form="dr, pr-gp0, pr-gpi or pr-gpe", check=route_of)


def traffic(run: Run, spec: str) -> Pairs:
    """The pairs of `run`, the same ones for every scheme and whatever has failed."""
    return pairs(spec, graph(run.text("topology")).servers, np.random.default_rng([run.seed, 0]))


def faults(run: Run) -> Faults:
    """What of the network has failed: `failed_fraction` of its `failed`, links, nodes or racks."""
    net, failed, fraction = (
        graph(run.text("topology")),
        run.text("failed"),
        float(run.parameters["failed_fraction"]),
    )
    if fraction == 0:
        return NO_FAULTS
    draw = {"links": net.link_faults, "nodes": net.node_faults, "racks": net.rack_faults}[failed]
    return draw(np.random.default_rng([run.seed, 1]), fraction=fraction)


def routed(
    run: Run,
    chosen: Pairs,
    dead: Faults = NO_FAULTS,
    *,
    condition1: bool = False,
    least: int = 2,
    loads: bool = False,
) -> Tally:
    """The pairs of `run` by its scheme.

    With `loads`, PR chooses by hops and by the load of the bottleneck, as the scheme's `choice`
    says (CCRDN 5.4).
    """
    net, name = graph(run.text("topology")), parse(run.text("routing"))[0]
    if name == "dfr":
        return net.reroute(dfr_of(run.text("routing")), chosen, dead, loads=loads)
    if name == "tar":
        return net.probe(chosen, dead, placement_of(run.text("routing")))
    if name == "bfs":
        raise ValueError(f"{run.experiment}: bfs finds lengths only")
    choice = choice_of(run.text("routing"))
    tries = policy(name, least_level=least, condition1=condition1, choice=choice)
    balanced = loads and name != "dr"
    return net.route(tries, chosen, dead, loads=loads, balanced=balanced, cost=cost_of(choice))


def shortest(
    run: Run, total: int, dead: Faults = NO_FAULTS, *, everywhere: bool = False
) -> list[Tally]:
    """Breadth-first search from one random server for each PAIRS_OF_A_SOURCE of `total` pairs; from
    all if that is as many."""
    net = graph(run.text("topology"))
    alive = np.flatnonzero(dead.servers == 0) if len(dead.servers) else np.arange(net.servers)
    count = (
        len(alive) if everywhere else min(len(alive), max(20, math.ceil(total / PAIRS_OF_A_SOURCE)))
    )
    sources = np.random.default_rng([run.seed, 2]).choice(alive, count, replace=False)
    return net.shortest(sources.tolist(), dead)


def title(topology: str) -> str:
    """A network as the paper writes it: D 3,4 is DCell_{3,4}."""
    name, given = parse(topology)
    return f"{SHORT.get(name, name)}$_{{{given['k']},{given['n']}}}$"


def kind(topology: str) -> tuple[int, str, int]:
    """Family and depth of a network, in the order of figures."""
    name, given = parse(topology)
    return [*SHORT, name].index(name), name, int(given["k"])


def in_order(table: Table) -> list[str]:
    """The networks of `table` by kind and size."""
    return sorted(
        {str(row["topology"]) for row in table},
        key=lambda one: (*kind(one), int(parse(one)[1]["n"])),
    )


class Series(NamedTuple):
    """Rows that one line of a figure shows, and how it looks."""

    look: style.SeriesStyle
    dash: str
    rows: Table

    def at(self, key: str, **equal: object) -> tuple[float, float] | None:
        """Mean of `key` where the columns are `equal`, and its standard error; None if no row has
        it or it is None.

        The error is over the seeds, or where there is but one the row's own, whose column is `key`
        less mean_, after se_.
        """
        there = (row for row in self.rows if row.get(key) is not None)
        chosen = [row for row in there if all(row[column] == v for column, v in equal.items())]
        if not chosen:
            return None
        mean, error = mean_and_error([float(str(row[key])) for row in chosen])
        own = chosen[0].get("se_" + key.removeprefix("mean_")) or 0.0
        return mean, float(str(own)) if len(chosen) == 1 else error


def series(table: Table, *columns: str) -> list[Series]:
    """A line for each scheme, and for each combination of those `columns` that differ within
    `table`."""
    varied = [column for column in columns if len({row[column] for row in table}) > 1]
    found: dict[tuple[object, ...], list[Row]] = {}
    routings = style.in_order(str(row["routing"]) for row in table)
    for row in sorted(table, key=lambda row: routings.index(str(row["routing"]))):
        found.setdefault((row["routing"], *(row[column] for column in varied)), []).append(row)
    looks = style.lines(str(row["routing"]) for row in table)
    lines: list[Series] = []
    for (routing, *values), rows in found.items():
        look, _ = looks[str(routing)]
        same = sum(other.look.colour == look.colour for other in lines)
        label = ", ".join(
            [
                look.label,
                *(f"{style.words(key)} {value}" for key, value in zip(varied, values, strict=True)),
            ]
        )
        if same:
            taken = {other.look.marker for other in lines}
            marker = next((each for each in style.MARKERS if each not in taken), look.marker)
            look = look._replace(marker=marker, variant=same)
        dash = style.another_dash(style.scheme(str(routing)).dash, same)
        lines.append(Series(look._replace(label=label), dash, rows))
    return lines


def legend_above(figure: Figure, title: str = "") -> None:
    """One legend above all axes of `figure`, which grows by it: each label once, in as many columns
    as have room."""
    found: dict[str, Any] = {}
    for axes in figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    if found:
        entry = LEGEND_MARK_INCHES + LEGEND_LETTER_INCHES * max(map(len, found))
        width, height = figure.get_size_inches()
        columns = min(max(1, int(width / entry)), len(found))
        rows = math.ceil(len(found) / columns) + bool(title)
        figure.set_size_inches(width, height + LEGEND_ROW_INCHES * rows)
        labelled = {"handles": list(found.values()), "labels": list(found), "title": title or None}
        figure.legend(
            **labelled,
            title_fontsize=8.5,
            alignment="left",
            ncols=columns,
            loc="outside upper left",
        )


def draw_over_networks(
    axes: Axes, lines: Sequence[Series], networks: Sequence[str], key: str, **equal: object
) -> None:
    """`key` of each line over the networks, with standard errors; lines join what differs in its
    size only, and lie side by side, since many schemes are equal somewhere."""
    for place, line in enumerate(lines):
        label, shift = line.look.label, (place - (len(lines) - 1) / 2) * 0.5 / len(lines)
        for _, group in groupby(enumerate(networks), key=lambda place: kind(place[1])):
            places = [(x + shift, line.at(key, topology=network, **equal)) for x, network in group]
            seen = [(x, *value) for x, value in places if value]
            if seen:
                x, y, error = zip(*seen, strict=True)
                axes.errorbar(
                    x,
                    y,
                    error,
                    fmt=line.look.marker + line.dash,
                    color=line.look.colour,
                    label=label,
                )
                label = ""
    axes.set_xticks(range(len(networks)), [title(network) for network in networks], rotation=60)
    axes.set_ylabel(style.axis(key))


def beside(paper: PaperValues, *cell: str) -> dict[str, float]:
    """What the paper says of a cell, as columns whose names begin with paper_."""
    return {f"paper_{key}": value for key, value in paper.get(cell, {}).items()}


def mark_paper(axes: Axes, table: Table, networks: Sequence[str], key: str) -> None:
    """A cross where the paper gives a figure in its text."""
    seen = {
        (networks.index(str(row["topology"])), float(str(row[f"paper_{key}"])))
        for row in table
        if f"paper_{key}" in row
    }
    if seen:
        x, y = zip(*sorted(seen), strict=True)
        axes.plot(x, y, "x", color=style.INK, markersize=8, label="the paper's text", zorder=4)
