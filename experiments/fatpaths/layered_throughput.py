"""Worst-case throughput of layered routing: FatPaths, section VI, figures 9 and 12.

Every router sends to another one, so matched that distances sum to the most; a fraction `intensity`
of the hosts sends, each at a link's rate, `mice` of these at a tenth of it.  MAT is the largest T
for which every demand can be sent T times, traffic being split over the paths as serves it best.
Beside it stands the bound of all paths of at most D + 1 links (bound=short), or of all paths
(bound=flow).

minimal: all shortest paths, as ECMP has them.  valiant: by way of random routers, split evenly.
k-shortest: as many paths of a pair as there are layers, the shortest; k-shortest-layers: as far as
layers hold them.  random, overlap: listings 1 and 2, with the best parameters measured for the
family and n unless others are set.  spain: listing 4.  past, past-valiant: spanning trees from each
destination, or from random routers (listing 5).  intree: ours.

Figure 12 shows flows over the number n and density rho of random layers; here are the causes: pairs
of routers with three disjoint paths, the length of paths, and T.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from statistics import mean

import numpy as np
from numpy.typing import NDArray

from weft.daemons.core import registry
from weft.daemons.core.compiled import compiled
from weft.daemons.fatpaths import construction, scheme
from weft.daemons.fatpaths.layers import distinct_paths
from weft.experiments.engines.arrays import Ints
from weft.experiments.fatpaths import achievable_throughput
from weft.experiments.fatpaths.achievable_throughput import Demands, RouterPath
from weft.experiments.fatpaths.router_graph import RouterGraph
from weft.experiments.fatpaths.table_iv import NETWORK
from weft.experiments.report import style
from weft.experiments.report.panels import Bars, Curves, Stack, varied
from weft.experiments.runner.definition import Experiment, Result, Row, Run, Value
from weft.experiments.runner.parameters import Integer, Number, Word
from weft.topologies.core.topology import Topology

YEN, YENS_LAYERS = "k-shortest", "k-shortest-layers"
CONSTRUCTIONS = {YENS_LAYERS if name == YEN else name: name for name in construction.CONSTRUCTIONS}
SCHEMES = ("minimal", "valiant", YEN, *CONSTRUCTIONS)
SWEPT = [name for name in SCHEMES if not name.startswith("lnmp")]  # layer_paths has those
BOUNDS = ("none", "short", "flow")
SETTINGS = ("layers", "rho", "paths", "extra_links")
THREE = 3  # disjoint paths of a pair


def measure(run: Run) -> Result:
    """Return T, its bound, and how many paths the layers give the demanded and all pairs."""
    topology = run.topology
    graph = RouterGraph.of(topology)
    demands = achievable_throughput.worst_case_demands(
        graph,
        run.generator(0),
        float(run.parameters["intensity"]),
        float(run.parameters["mice"]),
    )
    figures: Row = {}
    if run.text("scheme") == "valiant":
        figures["throughput"] = float(1 / achievable_throughput.valiant_load(graph, demands).max())
    else:
        paths, figures = paths_of(run, topology, graph, demands)
        optimum = achievable_throughput.maximum(paths, demands, len(graph.peer))
        figures["throughput"] = optimum.throughput
        figures["fewest_paths"] = min(map(len, paths))
        figures["mean_paths"] = mean(map(len, paths))
    if run.text("bound") != "none":
        figures["bound_throughput"] = bound(graph, demands, run.text("bound"))
    return Result(figures)


def bound(graph: RouterGraph, demands: Demands, name: str) -> float:
    """Return T over all paths of at most D + 1 links, or over all paths."""
    if name == "flow":
        return achievable_throughput.flow_bound(graph, demands)[1]
    paths = achievable_throughput.short_paths(graph, demands, 1)
    return achievable_throughput.maximum(paths, demands, len(graph.peer)).throughput


def paths_of(
    run: Run, topology: Topology, graph: RouterGraph, demands: Demands
) -> tuple[list[list[RouterPath]], Row]:
    """Return the paths of each demand, and the figures of the layers for all pairs."""
    name = run.text("scheme")
    if name == "minimal":
        return achievable_throughput.minimal_paths(graph, demands), {}
    if name == YEN:
        rng = run.generator(1)
        layers = run.integer("layers")
        return achievable_throughput.k_shortest_paths(graph, demands, layers, rng), {}
    tables = scheme.tables(topology, registry.scheme(layers_of(run))[1])
    pairs = np.ix_(graph.endpoints, graph.endpoints)
    counts = distinct_paths(tables)[pairs]
    disjoint, hops = disjoint_paths(graph, tables)
    return achievable_throughput.table_paths(graph, tables, demands), {
        "fewest_paths_of_any_pair": counts[counts > 0].min(),
        "mean_paths_of_all_pairs": counts[counts > 0].mean(),
        "three_disjoint_fraction": (disjoint >= THREE).mean(),
        "mean_hops": hops,
    }


def layers_of(run: Run) -> str:
    """Return the scheme whose layers are those of `run`."""
    kind = CONSTRUCTIONS.get(run.text("scheme"), "random")
    settings = "".join(f",{key}={run.parameters[key]}" for key in SETTINGS)
    return f"fatpaths:construction={kind}{settings},seed={1 + run.seed}"


def disjoint_paths(graph: RouterGraph, tables: NDArray[np.int32]) -> tuple[Ints, float]:
    """Return the disjoint paths of each pair, THREE at most, and the mean links of a path.

    Pairs are ordered pairs of routers with hosts; the mean is over all pairs and layers.
    """
    among = graph.endpoints
    counts = np.zeros((len(among), len(among)), dtype=np.int64)
    hops = compiled(count_disjoint)(
        achievable_throughput.arcs(graph), graph.edge, tables, among, counts
    )
    pairs = len(among) * (len(among) - 1)
    return counts[~np.eye(len(among), dtype=bool)], hops / (len(tables) * pairs)


def count_disjoint(
    arc_of: NDArray[np.int32],
    edge: Ints,
    tables: NDArray[np.int32],
    among: Ints,
    counts: Ints,
) -> int:
    """Fill `counts`, shape (sources, destinations); return the links of all paths together.

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
                u, hop = among[by], 0
                while u != among[to]:
                    after = tables[layer, among[to], u]
                    links[layer, hop] = edge[arc_of[u, after]]
                    u, hop = after, hop + 1
                links[layer, hop] = -1
                total += hop
                for other in range(layer):
                    together[layer, other] = disjoint(links[layer], links[other])
            counts[by, to] = most_disjoint(together)
    return total


def disjoint(path: Ints, other: Ints) -> bool:
    """Return True if two paths, each ending in -1, have no link in common."""
    i = 0
    while path[i] != -1:
        j = 0
        while other[j] != -1:
            if path[i] == other[j]:
                return False
            j += 1
        i += 1
    return True


def most_disjoint(together: NDArray[np.bool_]) -> int:
    """Return the largest number of layers, three at most, of which `together` holds for all pairs.

    together[i, j] is set for i > j.
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


def check(run: Run) -> None:
    """Raise ValueError for layers that there cannot be."""
    registry.scheme(layers_of(run))


def looks(key: str, values: Iterable[Value]) -> style.SeriesLooks:
    """Return a colour for each construction, not that of a routing scheme."""
    return style.looks("construction" if key == "scheme" else key, values)


EXPERIMENT = Experiment(
    name="layered_throughput",
    question=(
        "How much worst-case traffic can layered routing carry, and how many layers give every "
        "pair three disjoint paths?"
    ),
    source="FatPaths, section VI, figures 9 and 12",
    engines=("graph",),
    axes={
        "topology": NETWORK.over(
            *("slimfly:q=5,p=4", "slimfly:q=7,p=6", "dragonfly:p=2,palm=0", "hyperx:l=2,s=5,p=4"),
            *("xpander:r=7,l=7,p=4,seed=1", "jellyfish:n=50,r=7,p=4,seed=1", "fattree:k=8"),
        ),
        "scheme": Word("where paths come from", words=SCHEMES).over(*SWEPT),
        "layers": Integer("n, layer 0 counted", unit="layers", least=1, most=63).over(9),
        "rho": Number(
            "links of a random layer; 0: the best measured",
            unit="fraction",
            least=0,
            most=1,
        ).over(0.0),
        "paths": Number(
            "paths of a layer of overlap, M, over the routers; 0: the best measured",
            least=0,
            most=100,
        ).over(0.0),
        "extra_links": Integer(
            "links of a path of overlap beyond the diameter, L_min - D",
            unit="links",
            least=0,
            most=8,
        ).over(1),
        "intensity": Number("hosts that send", unit="fraction", least=0.01, most=1).over(0.55, 1.0),
        "mice": Number(
            "senders whose flow is a tenth of a link's rate",
            unit="fraction",
            least=0,
            most=0.99,
        ).over(0.0),
        "bound": Word("all paths of D + 1 links, all paths, or no bound", words=BOUNDS).over(
            "short"
        ),
    },
    columns={
        "throughput": (
            "T: how many times the worst-case demands can be sent over the scheme's paths (MAT)"
        ),
        "bound_throughput": (
            "T over all paths of at most D + 1 links (bound=short), or over all paths (bound=flow)"
        ),
        "fewest_paths": "different paths of the demand that has fewest; missing under valiant",
        "mean_paths": "different paths of a demand, mean",
        "fewest_paths_of_any_pair": (
            "different paths of the pair of routers that has fewest; of schemes with layers"
        ),
        "mean_paths_of_all_pairs": "different paths of a pair of routers, mean",
        "three_disjoint_fraction": (
            "ordered pairs of routers whose paths in the layers include three disjoint ones"
        ),
        "mean_hops": "mean links of a path over all pairs and layers",
    },
    version=3,  # random layers and overlap have the best parameters measured
    seeds=10,
    measure=measure,
    plot=Stack(
        Bars(
            columns={"throughput": "T (of a link's rate)"},
            strokes={"throughput": {"bound_throughput": "bound"}},
            facet=("topology", "intensity", "mice", *SETTINGS),
            always=2,
            rows=partial(varied, by=SETTINGS, key="scheme"),
            looks=looks,
        ),
        Curves(
            columns={
                "three_disjoint_fraction": "pairs with three disjoint paths",
                "mean_hops": "mean length of paths (links)",
                "throughput": "T (of a link's rate)",
            },
            x="layers",
            series="rho",
            dash="scheme",
            facet=("topology", "intensity", "mice"),
            log=("layers",),
            rows=partial(varied, by=("scheme",), key="layers"),
        ),
    ),
    takes_s=45,
    check=check,
)
