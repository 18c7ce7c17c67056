"""Paths of layers: how long, how disjoint, how evenly spread, and what traffic they carry.

For all ordered pairs of routers with hosts, over all layers.  Paths of a pair that are the same
count once among distinct ones.  With `layers` paths of each pair, a direction of a link has as many
crossing paths as lead over it.

lnmp is the routing of the installation by the defaults of its subnet manager, lnmp-longer the same
if every added path has D + 1 links.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.daemons.core import registry
from weft.daemons.fatpaths import scheme
from weft.daemons.fatpaths.layers import RouterTable, distinct_paths, path
from weft.experiments.engines.arrays import Ints
from weft.experiments.fatpaths import achievable_throughput, layered_throughput
from weft.experiments.fatpaths.router_graph import RouterGraph
from weft.experiments.fatpaths.table_iv import NETWORK
from weft.experiments.report.panels import Bars
from weft.experiments.runner.definition import Experiment, Result, Row, Run
from weft.experiments.runner.parameters import Integer, Word

COLUMNS = {
    "hops_shares": "list: which share of the paths has 0, 1, 2, ... links",
    "mean_hops": "links of a path, mean",
    "single_path_fraction": "pairs whose paths are the same in all layers",
    "mean_distinct_paths": "different paths of a pair, mean",
    "two_disjoint_fraction": "pairs with two paths that have no link in common",
    "three_disjoint_fraction": "pairs with three of which no two have a link in common",
    "least_crossing_paths": "paths over the direction of a link that has fewest",
    "mean_crossing_paths": "paths over a direction of a link, mean",
    "most_crossing_paths": "paths over the direction of a link that has most",
    "worst_case_throughput": (
        "T: how many times the worst-case demands of all hosts can be sent over the paths (MAT)"
    ),
}


class LayerPaths(NamedTuple):
    """Paths of all ordered pairs of routers with hosts, by their number of links, and by arc."""

    by_hops: Ints
    crossing: Ints


def measure(run: Run) -> Result:
    """Return the figures of all pairs and links, and T."""
    topology = run.topology
    graph = RouterGraph.of(topology)
    tables = scheme.tables(topology, registry.scheme(scheme_of(run))[1])
    rng = run.generator(0)
    demands = achievable_throughput.worst_case_demands(graph, rng, 1.0, 0.0)
    paths = achievable_throughput.table_paths(graph, tables, demands)
    optimum = achievable_throughput.maximum(paths, demands, len(graph.peer))
    return Result(
        {
            **pair_figures(graph, tables),
            **link_figures(graph, tables),
            "worst_case_throughput": optimum.throughput,
        }
    )


def pair_figures(graph: RouterGraph, tables: RouterTable) -> Row:
    """Return the columns on the paths of pairs."""
    disjoint, mean_hops = layered_throughput.disjoint_paths(graph, tables)
    counts = distinct_paths(tables)[np.ix_(graph.endpoints, graph.endpoints)]
    distinct = counts[counts > 0]
    return {
        "mean_hops": mean_hops,
        "single_path_fraction": (distinct == 1).mean(),
        "mean_distinct_paths": distinct.mean(),
        "two_disjoint_fraction": (disjoint >= 2).mean(),
        "three_disjoint_fraction": (disjoint >= layered_throughput.THREE).mean(),
    }


def link_figures(graph: RouterGraph, tables: RouterTable) -> Row:
    """Return the columns on lengths, and on paths that cross links."""
    by_hops, crossing = walk(graph, tables)
    return {
        "hops_shares": (by_hops / by_hops.sum()).tolist(),
        "least_crossing_paths": crossing.min(),
        "mean_crossing_paths": crossing.mean(),
        "most_crossing_paths": crossing.max(),
    }


def walk(graph: RouterGraph, tables: RouterTable) -> LayerPaths:
    """Return the paths of `tables`, shape (layers, routers t, routers s)."""
    arc_of: NDArray[np.int32] = achievable_throughput.arcs(graph)
    crossing, lengths = np.zeros(len(graph.peer), dtype=np.int64), []
    for table in tables:
        for t in graph.endpoints:
            for s in graph.endpoints[graph.endpoints != t]:
                way = np.array(path(table, int(s), int(t)))
                crossing[arc_of[way[:-1], way[1:]]] += 1  # a path crosses an arc once
                lengths.append(len(way) - 1)
    return LayerPaths(np.bincount(lengths), crossing)


def scheme_of(run: Run) -> str:
    """Return the scheme whose layers are those of `run`."""
    settings = ",".join(f"{key}={run.parameters[key]}" for key in ("construction", "layers"))
    return f"fatpaths:{settings},seed={1 + run.seed}"


EXPERIMENT = Experiment(
    name="layer_paths",
    question="How long, how disjoint and how evenly spread are the paths of layers, and how much "
    "do they carry?",
    source="Blach et al., NSDI 2024",
    engines=("graph",),
    axes={
        "topology": NETWORK.over("slimfly:q=5,p=4"),
        "construction": Word("how layers are made", words=scheme.WORDS).over(
            "lnmp", "lnmp-longer", "random", "overlap", "past-valiant", "intree"
        ),
        "layers": Integer("n, layer 0 counted", unit="layers", least=1, most=63).over(4, 8, 16),
    },
    columns=COLUMNS,
    seeds=3,
    measure=measure,
    plot=Bars(
        columns={
            "three_disjoint_fraction": "pairs with three disjoint paths",
            "mean_hops": "length of a path (links)",
            "worst_case_throughput": "T (of a link's rate)",
        },
        by=("construction",),
        facet=("topology", "layers"),
    ),
    takes_s=60,
)
