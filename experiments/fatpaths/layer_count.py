"""How many layers, and how sparse?  FatPaths, figure 12, on the graph.

The paper simulates long flows; here is what decides over them: the share of pairs of routers that
have three disjoint paths among their layers ("nine layers suffice for three disjoint paths per
router pair"), the mean length of paths, and the throughput of the worst case.  Layers are random
(listing 1), with a fraction rho of the links in each but the first; rho = 1 leaves the random
choice among shortest paths.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from weft.daemons.fatpaths import construction
from weft.daemons.fatpaths.layers import RouterArrays
from weft.experiments.engines.compiled import compiled
from weft.experiments.fatpaths import achievable_throughput, graph_columns
from weft.experiments.fatpaths.router_graph import RouterGraph
from weft.experiments.fatpaths.table_iv import NETWORK, label
from weft.experiments.report import panels, style
from weft.experiments.runner.definition import Experiment, Result, Row, Run, Table
from weft.experiments.runner.parameters import Integer, Number
from weft.topologies import build

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WANTED = 3  # disjoint paths of a pair
PANELS = (
    ("three_disjoint_fraction", "pairs with three disjoint paths"),
    ("mean_hops", "mean length of paths (links)"),
    ("throughput", "T, worst case (of a link's rate)"),
)


def measure(run: Run) -> Result:
    """The share of pairs with three disjoint paths, the mean length, and T."""
    topology = build(run.text("topology"))
    graph = RouterGraph.of(topology)
    tables = construction.layers_of(
        "random",
        RouterArrays.of(topology),
        run.integer("layers"),
        np.random.default_rng([run.seed, 1]),
        rho=float(run.parameters["rho"]),
    )
    demands = achievable_throughput.worst_case_demands(graph, np.random.default_rng([run.seed, 0]))
    paths = achievable_throughput.table_paths(graph, tables, demands)
    disjoint, hops = disjoint_paths(graph, tables)
    return Result(
        figures={
            "three_disjoint_fraction": float((disjoint >= WANTED).mean()),
            "mean_hops": hops,
            "throughput": achievable_throughput.maximum(paths, demands, len(graph.peer)).throughput,
        }
    )


def disjoint_paths(
    graph: RouterGraph, tables: NDArray[np.int32]
) -> tuple[NDArray[np.int64], float]:
    """How many paths of each ordered pair of routers with hosts no two of which share a link,
    WANTED at most; and the mean links of a path over all pairs and layers.
    """
    among = graph.endpoints
    found = np.zeros((len(among), len(among)), dtype=np.int64)
    hops = compiled(count_disjoint)(
        achievable_throughput.arcs(graph), graph.edge, tables, among, found
    )
    return found[~np.eye(len(among), dtype=bool)], hops / (
        len(tables) * len(among) * (len(among) - 1)
    )


def count_disjoint(
    arc_of: NDArray[np.int32],
    edge: NDArray[np.int64],
    tables: NDArray[np.int32],
    among: NDArray[np.int64],
    found: NDArray[np.int64],
) -> int:
    """Fill `found`, shape (sources, destinations); the links of all paths together.

    Sets of one, two and three paths are tried in order of layer, so that the count is the largest,
    not a greedy one.
    """
    layers, routers = tables.shape[0], tables.shape[1]
    links = np.full((layers, routers), -1)
    together = np.empty((layers, layers), np.bool_)
    total = 0
    for to in range(len(among)):
        for by in range(len(among)):
            if to == by:
                continue
            for layer in range(layers):
                at, hop = among[by], 0
                while at != among[to]:
                    after = tables[layer, among[to], at]
                    links[layer, hop] = edge[arc_of[at, after]]
                    at, hop = after, hop + 1
                links[layer, hop] = -1
                total += hop
                for other in range(layer):
                    together[layer, other] = apart(links[layer], links[other])
            found[by, to] = most_apart(together)
    return total


def apart(one: NDArray[np.int64], other: NDArray[np.int64]) -> bool:
    """Whether two paths, each ending in -1, have no link in common."""
    i = 0
    while one[i] != -1:
        j = 0
        while other[j] != -1:
            if one[i] == other[j]:
                return False
            j += 1
        i += 1
    return True


def most_apart(together: NDArray[np.bool_]) -> int:
    """How many layers, three at most, are all apart from each other, together[i, j] saying so of i
    > j.
    """
    most = 1
    for i in range(len(together)):
        for j in range(i):
            if together[i, j]:
                most = 2
                for k in range(j):
                    if together[i, k] and together[j, k]:
                        return 3
    return most


def plot(table: Table, figure: Figure) -> None:
    """Draw the measures over the number of layers, a column for each network, a line for each rho.

    Bands have the lowest and the highest seed.
    """
    names = list(dict.fromkeys(str(row["topology"]) for row in table))
    rhos = sorted(set(panels.numbers(table, "rho")))
    counts = sorted({int(str(row["layers"])) for row in table})
    figure.set_size_inches(3.1 * len(names) + 0.6, 7.4)
    grid = figure.subplots(len(PANELS), len(names), squeeze=False, sharey="row", sharex=True)
    for column, name in zip(grid.T, names, strict=True):
        for axes, (key, _) in zip(column, PANELS, strict=True):
            for number, rho in enumerate(rhos):
                draw(axes, panels.select(table, topology=name, rho=rho), key, number, rho)
            axes.set_xscale("log", base=2)
            axes.set_xticks(counts, [str(count) for count in counts])
            axes.minorticks_off()
        column[0].set_title(label(name))
        column[0].set_ylim(0, 1.03)
        column[-1].set_xlabel("layers, n")
    for axes, (_, title) in zip(grid[:, 0], PANELS, strict=True):
        axes.set_ylabel(title)
    panels.legend(figure, loc="outside upper left", ncols=len(rhos))


def draw(axes: Axes, rows: Sequence[Row], key: str, number: int, rho: float) -> None:
    """Draw the mean over seeds as a line, and the lowest and the highest as a band."""
    values = panels.values_by(rows, "layers", key)
    counts = list(values)
    colour, dash = style.SEVERAL[number], style.DASHES[number % len(style.DASHES)]
    low = [min(several) for several in values.values()]
    high = [max(several) for several in values.values()]
    means = [sum(several) / len(several) for several in values.values()]
    axes.fill_between(counts, low, high, color=colour, alpha=0.15, lw=0)
    look: dict[str, Any] = {"color": colour, "marker": style.MARKERS[number], "ms": 4}
    axes.plot(counts, means, dash, label=f"ρ = {rho:g}", **look)


def check(run: Run) -> None:
    """ValueError for layers that there cannot be."""
    construction.check(run.integer("layers"), float(run.parameters["rho"]))


EXPERIMENT = Experiment(
    name="layer_count",
    question="How many layers, and how sparse, give every pair of routers three disjoint paths?",
    source="FatPaths, figure 12",
    engines=("graph",),
    axes={
        "topology": NETWORK.over(
            "slimfly:q=7,p=6", "dragonfly:p=3,palm=0", "hyperx:l=2,s=7,p=6", "complete:n=20,p=19"
        ),
        "layers": Integer(meaning="n, layer 0 counted", unit="layers", least=1, most=64).over(
            2, 4, 9, 16, 32, 64
        ),
        "rho": Number(meaning="links of a layer", unit="fraction", least=0.01, most=1).over(
            0.4, 0.6, 0.8, 1.0
        ),
    },
    columns=graph_columns.LAYER_COUNT,
    seeds=3,
    measure=measure,
    plot=plot,
    takes_s=60,
    check=check,
)
