"""Maximum achievable throughput (MAT) by linear programming, and worst-case traffic.

MAT is the largest T for which every demand d_i between two routers can be sent T times with no arc
carrying more than a link's rate, 1 (FatPaths, section VI-A).  Over the given paths of each demand
that is

    max T   with   sum of x_p over the paths p of i >= T d_i,   sum of x_p over the paths through an
    arc <= 1.

In a layer a demand has one path, so equations (5) - (9) of the paper come to this.  Over all paths
it is a multi-commodity flow, solved by generating columns: the duals y of the arcs price the
cheapest new path of each demand, and sum y / sum d_i dist_y(i) bounds T from above.

Beside FatPaths' layers stand the k shortest paths, and Valiant's by way of a random router.  No
forwarding table by destination holds them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from weft.daemons.core.compiled import compiled
from weft.daemons.fatpaths import trees
from weft.daemons.fatpaths.layers import RouterArrays, path
from weft.daemons.fatpaths.scheme import MOST_UNCOMPILED
from weft.experiments.engines.arrays import Floats, Ints
from weft.experiments.fatpaths.router_graph import RouterGraph

RouterPath = tuple[int, ...]  # arcs, in order

GAP = 1e-4  # relative, between T and its bound, at which column generation ends
MOST_ROUNDS = 500
MOUSE = 0.1  # of an elephant's rate


@dataclass(frozen=True, eq=False)
class Demands:
    """Traffic between routers; `amount` of each demand is in rates of a link."""

    src: Ints
    dst: Ints
    amount: Floats

    def __len__(self) -> int:
        return len(self.src)

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """Return source and destination of each demand."""
        return list(zip(self.src.tolist(), self.dst.tolist(), strict=True))


@dataclass(frozen=True, eq=False)
class Optimum:
    """T; the duals of arcs; what each path carries at T."""

    throughput: float
    arc_price: Floats
    flow: Floats


def worst_case(graph: RouterGraph, rng: Generator) -> Ints:
    """Return for each router with hosts the router to send to, such that distances sum to the most.

    The longest matching of Jyothi et al. (SC 2016), which FatPaths uses (section VI-C), by routers:
    all hosts of a router send to those of another.  One of all that are longest, drawn with `rng`.
    """
    among = graph.endpoints
    far = graph.distance[np.ix_(among, among)].astype(np.float64)
    cost = -far + rng.random(far.shape) / (2 * len(among))
    np.fill_diagonal(cost, far.size)
    # of few routers it is there before a compiler is
    solve = assignment if len(among) <= MOST_UNCOMPILED else compiled(assignment)
    return among[solve(cost)]


def worst_case_demands(
    graph: RouterGraph, rng: Generator, intensity: float = 1.0, mice: float = 0.0
) -> Demands:
    """Return worst_case() as demands: each active host sends at a link's rate.

    A fraction `intensity` of the hosts, drawn with `rng`, is active; 0.55 in FatPaths' figure 9.
    Of these a fraction `mice` sends at MOUSE of the rate: section VI has elephants and small flows.

    Raises:
        ValueError: an intensity outside (0, 1].
    """
    if not 0 < intensity <= 1:
        raise ValueError(f"intensity must lie in (0, 1], got {intensity:g}")
    to, hosts = worst_case(graph, rng), graph.hosts[graph.endpoints]
    drawn = rng.permutation(int(hosts.sum()))
    active = max(1, round(intensity * len(drawn)))
    elephants = active - min(active - 1, round(mice * active))
    sent = np.zeros(len(drawn))
    sent[drawn[:active]] = MOUSE
    sent[drawn[:elephants]] = 1
    owners = np.repeat(np.arange(len(hosts)), hosts)
    amount = np.bincount(owners, weights=sent, minlength=len(hosts))
    sends = amount > 0
    return Demands(graph.endpoints[sends], to[sends], amount[sends].astype(np.float64))


def assignment(cost: Floats) -> Ints:
    """Return the column of each row in the assignment of least cost.

    By shortest augmenting paths (Jonker and Volgenant).
    """
    n = len(cost)
    row_price, column_price = np.zeros(n + 1), np.zeros(n + 1)
    row_of, before = np.full(n + 1, n), np.zeros(n + 1, np.int64)
    slack, done = np.empty(n + 1), np.empty(n + 1, np.bool_)
    for row in range(n):
        row_of[n] = row
        column = n
        slack[:] = np.inf
        done[:] = False
        while row_of[column] != n:
            done[column] = True
            reached, step, following = row_of[column], np.inf, n
            for other in range(n):
                if not done[other]:
                    reduced = cost[reached, other] - row_price[reached] - column_price[other]
                    if reduced < slack[other]:
                        slack[other] = reduced
                        before[other] = column
                    if slack[other] < step:
                        step, following = slack[other], other
            for other in range(n + 1):
                if done[other]:
                    row_price[row_of[other]] += step
                    column_price[other] -= step
                else:
                    slack[other] -= step
            column = following
        while column != n:
            row_of[column] = row_of[before[column]]
            column = before[column]
    return np.argsort(row_of[:n])


def table_paths(
    graph: RouterGraph, tables: NDArray[np.int32], demands: Demands
) -> list[list[RouterPath]]:
    """Return the distinct paths of each demand over layers, see daemons/fatpaths/layers.py."""
    arc_of = arcs(graph)
    return [
        list(
            dict.fromkeys(
                tuple(int(arc_of[hop]) for hop in pairwise(path(table, src, dst)))
                for table in tables
            )
        )
        for src, dst in demands.pairs
    ]


def arcs(graph: RouterGraph) -> NDArray[np.int32]:
    """Return the arc from each router to each neighbour, -1 between others."""
    arc_of = np.full((graph.routers, graph.routers), -1, dtype=np.int32)
    arc_of[graph.tail, graph.peer] = np.arange(len(graph.peer))
    return arc_of


def short_paths(graph: RouterGraph, demands: Demands, extra_hops: int) -> list[list[RouterPath]]:
    """Return all paths of each demand that enter no router twice.

    They are at most max(the demand's distance, D + extra_hops) links long.
    """
    listed = []
    for src, dst in demands.pairs:
        far = graph.distance[:, dst].tolist()
        most, paths = graph.diameter + extra_hops, []
        stack: list[tuple[list[int], RouterPath]] = [([src], ())]
        while stack:
            routers, way = stack.pop()
            if routers[-1] == dst:
                paths.append(way)
                continue
            hops_left = most - len(way) - 1
            for arc in range(graph.start[routers[-1]], graph.start[routers[-1] + 1]):
                peer = int(graph.peer[arc])
                if far[peer] <= hops_left and peer not in routers:
                    stack.append(([*routers, peer], (*way, arc)))
        listed.append(paths)
    return listed


def minimal_paths(graph: RouterGraph, demands: Demands) -> list[list[RouterPath]]:
    """Return all shortest paths of each demand, as ECMP may use them."""
    return [
        [way for way in paths if len(way) == min(map(len, paths))]
        for paths in short_paths(graph, demands, 0)
    ]


def maximum(paths: Sequence[Sequence[RouterPath]], demands: Demands, arc_count: int) -> Optimum:
    """Return the largest T over these paths of each demand.

    Raises:
        RuntimeError: the solver does not find the optimum, which exists.
    """
    import highspy

    solver: Any = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("threads", 1)
    # and crossover, so exact: five times as fast as simplex here
    solver.setOptionValue("solver", "ipm")
    fill(solver, paths, demands, arc_count)
    solver.changeObjectiveSense(highspy.ObjSense.kMaximize)
    solver.run()
    if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        raise RuntimeError(f"no optimum: {solver.modelStatusToString(solver.getModelStatus())}")
    solution = solver.getSolution()
    value = np.array(solution.col_value)
    return Optimum(float(value[-1]), np.abs(solution.row_dual[:arc_count]), value[:-1])


def fill(
    solver: Any, paths: Sequence[Sequence[RouterPath]], demands: Demands, arc_count: int
) -> None:
    """Give `solver` the linear program: rows for arcs and demands, columns for paths and T."""
    columns = [(*way, arc_count + number) for number, ways in enumerate(paths) for way in ways]
    rows, count = arc_count + len(demands), len(columns) + 1
    is_arc = np.arange(rows) < arc_count
    lower, upper = np.where(is_arc, -np.inf, 0), np.where(is_arc, 1, np.inf)
    starts = np.cumsum([0, *map(len, columns)])
    index = np.concatenate([*columns, np.arange(arc_count, rows)])
    value = np.concatenate([np.ones(starts[-1]), -demands.amount])
    cost = np.append(np.zeros(len(columns)), 1.0)
    none: list[int] = []
    solver.addRows(rows, lower, upper, 0, none, none, none)
    solver.addCols(count, cost, 0 * cost, cost + np.inf, len(index), starts, index, value)


def flow_bound(graph: RouterGraph, demands: Demands) -> tuple[float, float]:
    """Return the largest T over all paths: what was reached, and a bound on it, GAP apart at most.

    The first columns are short paths, as few others are worth their links.
    """
    columns = [dict.fromkeys(paths) for paths in short_paths(graph, demands, 1)]
    least_bound, reached = np.inf, 0.0
    for _ in range(MOST_ROUNDS):
        optimum = maximum([list(paths) for paths in columns], demands, len(graph.peer))
        reached = optimum.throughput
        least_bound = min(least_bound, add_cheapest(graph, demands, columns, optimum))
        if reached >= (1 - GAP) * least_bound:
            break
    return reached, float(least_bound)


def add_cheapest(
    graph: RouterGraph,
    demands: Demands,
    columns: Sequence[dict[RouterPath, None]],
    optimum: Optimum,
) -> float:
    """Add to each demand's columns the path that costs least at the prices of `optimum`.

    Returns the bound on T that these prices give.
    """
    sources, row_of = np.unique(demands.src, return_inverse=True)
    cost, by = compiled(cheapest_paths)(graph.start, graph.peer, optimum.arc_price, sources)
    for paths, row, (src, dst) in zip(columns, row_of, demands.pairs, strict=True):
        u, way = dst, []
        while u != src:
            way.append(int(by[row, u]))
            u = graph.tail[way[-1]]
        paths[tuple(reversed(way))] = None
    return float(optimum.arc_price.sum() / (demands.amount * cost[row_of, demands.dst]).sum())


def cheapest_paths(start: Ints, peer: Ints, price: Floats, sources: Ints) -> tuple[Floats, Ints]:
    """Return the least sum of prices from each source to every router, and the path's last arc.

    Among paths that cost the same within rounding it is one with few links.
    """
    routers = len(start) - 1
    cost, by = np.full((len(sources), routers), np.inf), np.full((len(sources), routers), -1)
    for row in range(len(sources)):
        far, done = cost[row], np.zeros(routers, np.bool_)
        far[sources[row]] = 0
        for _ in range(routers):
            u, least = -1, np.inf
            for v in range(routers):
                if not done[v] and far[v] < least:
                    u, least = v, far[v]
            if u < 0:
                break
            done[u] = True
            for arc in range(start[u], start[u + 1]):
                through = least + price[arc] + 1e-9
                if through < far[peer[arc]]:
                    far[peer[arc]] = through
                    by[row, peer[arc]] = arc
    return cost, by


def k_shortest_paths(
    graph: RouterGraph, demands: Demands, k: int, rng: Generator
) -> list[list[RouterPath]]:
    """Return the k shortest paths of each demand that enter no router twice (appendix C-D).

    There are fewer where the graph has not as many; of equally long ones `rng` draws.
    """
    arc_of = arcs(graph)
    nodes, begin = trees.k_shortest_paths(RouterArrays(graph.start, graph.peer), k, rng, compiled)
    pair = demands.dst * (graph.routers - 1) + demands.src - (demands.src > demands.dst)
    paths = []
    for ends in begin[pair].tolist():
        ways = [nodes[ends[rank] : ends[rank + 1]] for rank in range(k)]
        paths.append([tuple(arc_of[way[:-1], way[1:]].tolist()) for way in ways if len(way)])
    return paths


def valiant_load(graph: RouterGraph, demands: Demands) -> Floats:
    """Return what each arc carries if every demand is sent once by way of random routers.

    Packets go by routers drawn uniformly from all, and from there, as to there, split evenly at
    each router among the next hops of shortest paths (Valiant, SIAM J. Comput. 1982).  1 / max of
    it is the throughput.
    """
    traffic = np.zeros((graph.routers, graph.routers))
    share = demands.amount / graph.routers
    np.add.at(traffic, demands.src, share[:, None])
    np.add.at(traffic.T, demands.dst, share[:, None])
    return shortest_load(graph, traffic)


def shortest_load(graph: RouterGraph, traffic: Floats) -> Floats:
    """Return what each arc carries of `traffic`, shape (routers, routers).

    Every router splits evenly among the next hops of shortest paths.
    """
    load = np.zeros(len(graph.peer))
    compiled(even_load)(graph.start, graph.peer, graph.distance, traffic, load)
    return load


def even_load(
    start: Ints, peer: Ints, distance: NDArray[np.int8], traffic: Floats, load: Floats
) -> None:
    """Add to the load of each arc what `traffic`, shape (routers, routers), brings over it.

    Every router splits evenly among the next hops of shortest paths.
    """
    routers = len(start) - 1
    for dst in range(routers):
        arriving = traffic[:, dst].copy()
        far = distance[:, dst]
        for hops in range(int(far.max()), 0, -1):
            for u in range(routers):
                if far[u] != hops or arriving[u] == 0:
                    continue
                nexts = 0
                for arc in range(start[u], start[u + 1]):
                    nexts += far[peer[arc]] == hops - 1
                for arc in range(start[u], start[u + 1]):
                    if far[peer[arc]] == hops - 1:
                        load[arc] += arriving[u] / nexts
                        arriving[peer[arc]] += arriving[u] / nexts
