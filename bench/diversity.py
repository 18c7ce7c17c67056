"""Path diversity by arrays and by networkx, side by side: python -m bench.diversity [TOPOLOGY]
[PAIRS].

Both count the same: numbers and lengths of shortest paths, CDP and PI.  The networkx side is as
plain as the definitions, and the tests hold the other equal to it.  Times are the processor's, of
all threads together, so that others on the machine do not count; the arrays' is the best of five.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import pairwise

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from weft.experiments.fatpaths import path_diversity
from weft.experiments.fatpaths.router_graph import RouterGraph
from weft.topologies import build

SOURCE, TARGET = "source", "target"


def as_networkx(graph: RouterGraph) -> nx.Graph:
    """The routers, each with its neighbours in order of number."""
    found = nx.Graph()
    found.add_nodes_from(range(graph.routers))
    found.add_edges_from(
        (u, v) for u, v in zip(graph.tail.tolist(), graph.peer.tolist(), strict=True) if u < v
    )
    return found


def shortest(graph: nx.Graph, src: int) -> dict[int, tuple[int, int]]:
    """Length and number of the shortest paths from `src` to every router."""
    length = nx.single_source_shortest_path_length(graph, src)
    count = dict.fromkeys(graph, 0)
    count[src] = 1
    for node in sorted(length, key=length.__getitem__):
        for other in graph[node]:
            if length[other] == length[node] + 1:
                count[other] += count[node]
    return {node: (length[node], count[node]) for node in length}


def disjoint(
    graph: nx.Graph, sources: Sequence[int], targets: Collection[int], most_hops: int
) -> int:
    """c_l(A, B): shortest path, delete its links, repeat."""
    left = graph.copy()
    left.add_edges_from((SOURCE, node) for node in sources)
    left.add_edges_from((node, TARGET) for node in targets)
    found = 0
    while path := nx.single_source_shortest_path(left, SOURCE, cutoff=most_hops + 2).get(TARGET):
        left.remove_edges_from(list(pairwise(path[1:-1])))
        found += 1
    return found


def lengths_and_counts(graph: nx.Graph) -> tuple[list[list[int]], list[list[int]]]:
    """Lengths and numbers of the shortest paths between all routers."""
    found = [shortest(graph, src) for src in graph]
    lengths, counts = ([[row[node][which] for node in graph] for row in found] for which in (0, 1))
    return lengths, counts


def shortest_by_arrays(graph: RouterGraph) -> tuple[NDArray[np.int8], NDArray[np.int64]]:
    """Lengths and numbers of the shortest paths between all routers, counted anew."""
    anew = replace(graph)
    return anew.distance, anew.path_count


def interference(graph: nx.Graph, four: Sequence[int], most_hops: int) -> int:
    """I^l(ac, bd)."""
    a, b, c, d = four
    one, other, both = (disjoint(graph, [a, c], to, most_hops) for to in ([b], [d], [b, d]))
    return one + other - both


def main() -> None:
    """Print both times, their ratio, and whether the results are equal."""
    spec = sys.argv[1] if len(sys.argv) > 1 else "slimfly:q=11"
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 100
    topology, rng = build(spec), np.random.default_rng(0)
    warm = RouterGraph.of(build("slimfly:q=3"))
    path_diversity.cdp(warm, path_diversity.random_pairs(warm, 3, rng), 3)  # compiles
    graph = RouterGraph.of(topology)
    plain = as_networkx(graph)
    hops = max(2, nx.eccentricity(plain, 0)) + 1
    pairs, fours = (
        draw(graph, count, rng)
        for draw in (path_diversity.random_pairs, path_diversity.random_fours)
    )
    print(f"{spec}: {graph.routers} routers, l = {hops}; {count} pairs and fours")
    measures = [
        (
            "shortest paths",
            lambda: shortest_by_arrays(graph),
            lambda: lengths_and_counts(plain),
        ),
        (
            "CDP",
            lambda: path_diversity.cdp(graph, pairs, hops).values,
            lambda: [disjoint(plain, [a], [b], hops) for a, b in pairs.tolist()],
        ),
        (
            "PI",
            lambda: path_diversity.interference(graph, fours, hops).values,
            lambda: [interference(plain, four, hops) for four in fours.tolist()],
        ),
    ]
    for name, ours, theirs in measures:
        times, results = [], []
        for measure, repeats in ((ours, 5), (theirs, 1)):
            took = []
            for _ in range(repeats):
                began = time.process_time()
                result = measure()
                took.append(time.process_time() - began)
            results.append(result)
            times.append(min(took))
        equal = "equal results" if np.array_equal(*map(np.asarray, results)) else "RESULTS DIFFER"
        told = (
            f"arrays {1000 * times[0]:8.3f} ms, networkx {times[1]:8.3f} s: "
            f"{times[1] / times[0]:6.0f} x"
        )
        print(f"{name:<15} {told}, {equal}")


if __name__ == "__main__":
    main()
