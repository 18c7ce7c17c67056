"""How much of the worst case can layers carry?  FatPaths, section VI and figure 9.

Layer count and rho as in figure 12.

Every router sends to another one, so matched that distances sum to the most; a fraction `intensity`
of the hosts sends, each at a link's rate.  MAT is the largest T for which every demand can be sent
T times, traffic being split over the paths as serves it best.  Beside it stands what all paths of
at most D + 1 links would give (bound=short), and all paths there are (bound=flow).

minimal: all shortest paths, as ECMP has them.  valiant: by way of random routers, split evenly.
k-shortest: as many paths of a pair as there are layers, the shortest (Yen); k-shortest-layers: as
far as layers hold them.  random,
overlap: listings 1 and 2.  lnmp: the authors' later layers.  spain: listing 4.  past, past-valiant:
spanning trees from each destination, or from random routers (listing 5).  intree: ours.
intree-planned: ours for traffic that is known, each seed's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from weft.daemons.fatpaths import construction
from weft.daemons.fatpaths.layers import RouterArrays, distinct_paths, everything, next_hops
from weft.experiments.engines.compiled import compiled
from weft.experiments.fatpaths import achievable_throughput, baseline_paths, graph_columns
from weft.experiments.fatpaths.planned_paths import planned_paths
from weft.experiments.fatpaths.router_graph import RouterGraph
from weft.experiments.fatpaths.table_iv import NETWORK, label
from weft.experiments.report import panels, style
from weft.experiments.runner.definition import Experiment, Result, Row, Run, Table, Value
from weft.experiments.runner.parameters import Integer, Number, Word
from weft.topologies import build

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from weft.topologies.core.topology import Topology

PLANNED = "intree-planned"
YEN, YENS_LAYERS = "k-shortest", "k-shortest-layers"
CONSTRUCTIONS = {YENS_LAYERS if name == YEN else name: name for name in construction.CONSTRUCTIONS}
SCHEMES = ("minimal", "valiant", YEN, *CONSTRUCTIONS, PLANNED)
COLOURS = {
    "minimal": style.INK,
    "valiant": style.SILVER,
    YEN: style.PURPLE,
    YENS_LAYERS: style.VERMILION,
    "random": style.ORANGE,
    "overlap": style.GREEN,
    "lnmp": style.OLIVE,
    "spain": style.WINE,
    "past": style.BROWN,
    "past-valiant": style.SKY,
    "intree": style.BLUE,
    PLANNED: style.INDIGO,
}
BOUNDS = ("none", "short", "flow")


def measure(run: Run) -> Result:
    """T, the bound that was asked for, and how many distinct paths the layers give the demanded and
    all pairs.
    """
    topology = build(run.text("topology"))
    graph = RouterGraph.of(topology)
    demands = achievable_throughput.worst_case_demands(
        graph, np.random.default_rng([run.seed, 0]), float(run.parameters["intensity"])
    )
    scheme, figures = run.text("scheme"), dict[str, Value]()
    if scheme == "valiant":
        figures["throughput"] = float(1 / baseline_paths.valiant_load(graph, demands).max())
    else:
        paths = paths_of(run, topology, graph, demands, figures)
        figures["throughput"] = achievable_throughput.maximum(
            paths, demands, len(graph.peer)
        ).throughput
        figures["fewest_paths"] = min(map(len, paths))
        figures["mean_paths"] = mean(map(len, paths))
    bound = run.text("bound")
    if bound == "short":
        every = achievable_throughput.short_paths(graph, demands, 1)
        figures["bound_throughput"] = achievable_throughput.maximum(
            every, demands, len(graph.peer)
        ).throughput
    elif bound == "flow":
        figures["bound_throughput"] = achievable_throughput.flow_bound(graph, demands)[1]
    return Result(figures=figures)


def paths_of(
    run: Run,
    topology: Topology,
    graph: RouterGraph,
    demands: achievable_throughput.Demands,
    figures: dict[str, Value],
) -> list[list[achievable_throughput.RouterPath]]:
    """The paths of each demand; what layers give all pairs goes into `figures`."""
    scheme, rng = run.text("scheme"), np.random.default_rng([run.seed, 1])
    if scheme == "minimal":
        return achievable_throughput.minimal_paths(graph, demands)
    if scheme == YEN:
        return baseline_paths.k_shortest_paths(graph, demands, run.integer("layers"), rng)
    routers, n = RouterArrays.of(topology), run.integer("layers")
    if scheme == PLANNED:
        tables = planned_layers(routers, graph, demands, n, rng)
    else:
        rho = float(run.parameters["rho"])
        tables = construction.layers_of(
            CONSTRUCTIONS[scheme], routers, n, rng, rho=rho, accelerate=compiled
        )
    all_pairs = distinct_paths(tables)[np.ix_(graph.endpoints, graph.endpoints)]
    all_pairs = all_pairs[all_pairs > 0]
    figures["fewest_paths_of_any_pair"] = int(all_pairs.min())
    figures["mean_paths_of_all_pairs"] = float(all_pairs.mean())
    return achievable_throughput.table_paths(graph, tables, demands)


def planned_layers(
    routers: RouterArrays,
    graph: RouterGraph,
    demands: achievable_throughput.Demands,
    n: int,
    rng: np.random.Generator,
) -> NDArray[np.int32]:
    """In-trees that hold the paths which serve these demands best, and for all other pairs what
    in-trees hold.
    """
    first = next_hops(routers, everything(routers), rng)
    own = [path for (path,) in achievable_throughput.table_paths(graph, first[None], demands)]
    planned = [
        [src, *graph.peer[list(path)].tolist()]
        for src, paths in zip(
            demands.src.tolist(), planned_paths(graph, demands, own, n), strict=True
        )
        for path in paths
    ]
    return construction.in_tree_layers(
        routers, n, rng, first=first, planned=planned, accelerate=compiled
    )


def check(run: Run) -> None:
    """ValueError for layers that there cannot be."""
    construction.check(run.integer("layers"), float(run.parameters["rho"]))


def plot(table: Table, figure: Figure) -> None:
    """Draw T with the lowest and the highest, by network and scheme; a dash is the bound."""
    groups: dict[str, list[Row]] = {}
    for row in table:
        title = f"n = {row['layers']}, ρ = {row['rho']}, intensity {row['intensity']}"
        groups.setdefault(title, []).append(row)
    width = max(8, 1.6 * len({row["topology"] for row in table}))
    heights = [2.8] * len(groups)
    for (axes,), rows in panels.lines_of_panels(figure, groups, 1, width=width, heights=heights):
        names = list(dict.fromkeys(str(row["topology"]) for row in rows))
        for place, name in enumerate(names):
            draw_network(axes, place, panels.select(rows, topology=name))
        axes.set_xticks(range(len(names)), [label(name) for name in names])
        axes.set_ylabel("T (of a link's rate)")
    first = figure.axes[0]
    for scheme in SCHEMES:
        first.bar(0, 0, color=COLOURS[scheme], label=scheme)
    first.plot([], [], color=style.INK, label="bound")
    panels.legend(figure, loc="outside upper left", ncols=7)


def draw_network(axes: Axes, place: int, rows: Sequence[Row]) -> None:
    """Draw a bar for each scheme on one network, side by side."""
    width = 0.84 / len(SCHEMES)
    for shift, scheme in zip(panels.offsets(len(SCHEMES), width), SCHEMES, strict=True):
        runs = panels.select(rows, scheme=scheme)
        values = panels.numbers(runs, "throughput")
        if not values:
            continue
        x = place + shift
        error = [[mean(values) - min(values)], [max(values) - mean(values)]]
        axes.bar(x, mean(values), 0.85 * width, color=COLOURS[scheme], yerr=error)
        if bounds := panels.numbers(runs, "bound_throughput"):
            axes.plot([x - width / 2, x + width / 2], [mean(bounds)] * 2, color=style.INK)


EXPERIMENT = Experiment(
    name="layered_throughput",
    question="How much worst-case traffic can layered routing carry, and how near is that to what "
    "all paths could?",
    source="FatPaths, section VI, figures 9 and 12",
    engines=("graph",),
    axes={
        "topology": NETWORK.over(
            *("slimfly:q=5,p=4", "slimfly:q=7,p=6", "dragonfly:p=2,palm=0", "hyperx:l=2,s=5,p=4"),
            *("xpander:r=7,l=7,p=4,seed=1", "jellyfish:n=50,r=7,p=4,seed=1", "fattree:k=8"),
        ),
        "scheme": Word(meaning="where paths come from", words=SCHEMES).over(*list(SCHEMES)),
        "layers": Integer(meaning="n, layer 0 counted", unit="layers", least=1, most=64).over(9),
        "rho": Number(meaning="links of a random layer", unit="fraction", least=0.01, most=1).over(
            0.6
        ),
        "intensity": Number(meaning="hosts that send", unit="fraction", least=0.01, most=1).over(
            0.55, 1.0
        ),
        "bound": Word(
            meaning="all paths of D + 1 links, all paths, or no bound", words=BOUNDS
        ).over("short"),
    },
    columns=graph_columns.LAYERED_THROUGHPUT,
    version=2,  # adjacent routers take more paths in layers of in-trees
    seeds=3,
    measure=measure,
    plot=plot,
    takes_s=45,
    check=check,
)
