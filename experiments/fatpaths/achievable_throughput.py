"""Maximum achievable throughput (MAT) by linear programming, and the traffic that stresses a
network most.

MAT is the largest T for which every demand d_i between two routers can be sent T times with no arc
carrying more than a link's rate, 1 (FatPaths, section VI-A).  Where the paths of each demand are
given, that is

    max T   with   sum of x_p over the paths p of i >= T d_i,   sum of x_p over the paths through an
    arc <= 1.

In a layer a demand has one path, so equations (5) - (9) of the paper come to this.  Without given
paths it is a multi-commodity flow, solved by generating columns: the duals y of the arcs price the
cheapest new path of each demand, and sum y / sum d_i dist_y(i) bounds T from above, so that it is
known how far the optimum may be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from weft.experiments.engines.arrays import Floats, Ints
from weft.experiments.engines.compiled import compiled
from weft.experiments.fatpaths.router_graph import RouterGraph

RouterPath = tuple[int, ...]  # arcs, in order

GAP = 1e-4  # relative, between T and its bound, at which column generation ends
MOST_ROUNDS = 500


@dataclass(frozen=True, eq=False)
class Demands:
    """src, dst: routers.  amount: of each, in rates of a link."""

    src: Ints
    dst: Ints
    amount: Floats

    def __len__(self) -> int:
        return len(self.src)


@dataclass(frozen=True, eq=False)
class Optimum:
    """T; the duals of arcs and of demands; what each path carries at T."""

    throughput: float
    arc_price: Floats
    demand_price: Floats
    flow: Floats


def worst_case(graph: RouterGraph, rng: Generator) -> Ints:
    """For each router with hosts another one to send to, no two the same, so that distances sum to
    the most.

    The longest matching of Jyothi et al. (SC 2016), which FatPaths uses (section VI-C), by routers:
    all hosts of a router send to those of another.  One of all that are longest, drawn with `rng`.
    """
    among = graph.endpoints
    far = graph.distance[np.ix_(among, among)].astype(np.float64)
    cost = -far + rng.random(far.shape) / (2 * len(among))
    np.fill_diagonal(cost, far.size)
    return among[compiled(assignment)(cost)]


def worst_case_demands(graph: RouterGraph, rng: Generator, intensity: float = 1.0) -> Demands:
    """worst_case() as demands: each host sends at a link's rate, but only a fraction `intensity` of
    them, drawn with `rng`; FatPaths has 0.55 in figure 9.  ValueError for an intensity outside (0,
    1].
    """
    if not 0 < intensity <= 1:
        raise ValueError(f"intensity must lie in (0, 1], got {intensity:g}")
    to, hosts = worst_case(graph, rng), graph.hosts[graph.endpoints]
    active = np.zeros(int(hosts.sum()), dtype=np.int64)
    active[rng.permutation(len(active))[: max(1, round(intensity * len(active)))]] = 1
    amount = np.bincount(
        np.repeat(np.arange(len(hosts)), hosts), weights=active, minlength=len(hosts)
    )
    chosen = amount > 0
    return Demands(graph.endpoints[chosen], to[chosen], amount[chosen].astype(np.float64))


def demands_of(pairs: Sequence[tuple[int, int]], router_of: Ints) -> Demands:
    """What hosts that send along `pairs` at a link's rate ask between routers.

    Flows within a router are left out.
    """
    ends = router_of[np.asarray(pairs, dtype=np.int64).reshape(-1, 2)]
    ends = ends[ends[:, 0] != ends[:, 1]]
    unique, amount = np.unique(ends, axis=0, return_counts=True)
    return Demands(unique[:, 0], unique[:, 1], amount.astype(np.float64))


def assignment(cost: Floats) -> Ints:
    """The column of each row in the assignment of least cost, by shortest augmenting paths (Jonker
    and Volgenant).
    """
    n = len(cost)
    row_price, column_price = np.zeros(n + 1), np.zeros(n + 1)
    row_of, before = np.full(n + 1, n), np.zeros(n + 1, np.int64)
    for row in range(n):
        row_of[n], column = row, n
        slack, done = np.full(n + 1, np.inf), np.zeros(n + 1, np.bool_)
        while row_of[column] != n:
            done[column] = True
            at, step, following = row_of[column], np.inf, n
            for other in range(n):
                if not done[other]:
                    reduced = cost[at, other] - row_price[at] - column_price[other]
                    if reduced < slack[other]:
                        slack[other], before[other] = reduced, column
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
    found = np.empty(n, np.int64)
    for column in range(n):
        found[row_of[column]] = column
    return found


def table_paths(
    graph: RouterGraph, tables: NDArray[np.int32], demands: Demands
) -> list[list[RouterPath]]:
    """The distinct paths of each demand over the layers of `tables`, see
    daemons/fatpaths/layers.py.
    """
    arc_of = arcs(graph)
    found = []
    for src, dst in zip(demands.src.tolist(), demands.dst.tolist(), strict=True):
        paths: dict[RouterPath, None] = {}
        for table in tables:
            at, path = src, list[int]()
            while at != dst:
                after = int(table[dst, at])
                path.append(int(arc_of[at, after]))
                at = after
            paths[tuple(path)] = None
        found.append(list(paths))
    return found


def arcs(graph: RouterGraph) -> NDArray[np.int32]:
    """The arc from each router to each neighbour, -1 between others."""
    found = np.full((graph.routers, graph.routers), -1, dtype=np.int32)
    found[graph.tail, graph.peer] = np.arange(len(graph.peer))
    return found


def short_paths(graph: RouterGraph, demands: Demands, extra_hops: int) -> list[list[RouterPath]]:
    """All paths of each demand that are at most max(its distance, D + extra_hops) links long and
    enter no router twice.
    """
    found = []
    for src, dst in zip(demands.src.tolist(), demands.dst.tolist(), strict=True):
        far = graph.distance[:, dst].tolist()
        most, paths = graph.diameter + extra_hops, []
        stack: list[tuple[list[int], RouterPath]] = [([src], ())]
        while stack:
            routers, path = stack.pop()
            if routers[-1] == dst:
                paths.append(path)
                continue
            left = most - len(path) - 1
            for arc in range(graph.start[routers[-1]], graph.start[routers[-1] + 1]):
                peer = int(graph.peer[arc])
                if far[peer] <= left and peer not in routers:
                    stack.append(([*routers, peer], (*path, arc)))
        found.append(paths)
    return found


def minimal_paths(graph: RouterGraph, demands: Demands) -> list[list[RouterPath]]:
    """All shortest paths of each demand: what ECMP may use."""
    found = []
    for paths in short_paths(graph, demands, 0):
        least = min(map(len, paths))
        found.append([path for path in paths if len(path) == least])
    return found


def maximum(paths: Sequence[Sequence[RouterPath]], demands: Demands, arc_count: int) -> Optimum:
    """The largest T over these paths of each demand.

    RuntimeError if the solver does not find an optimum, which exists.
    """
    import highspy

    columns = [(number, path) for number, each in enumerate(paths) for path in each]
    solver: Any = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("threads", 1)
    # and crossover, so exact: five times as fast as simplex here
    solver.setOptionValue("solver", "ipm")
    lp: Any = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = len(columns) + 1, arc_count + len(demands)
    lp.sense_ = highspy.ObjSense.kMaximize
    lp.col_cost_ = np.concatenate([np.zeros(len(columns)), [1.0]])
    lp.col_lower_, lp.col_upper_ = np.zeros(lp.num_col_), np.full(lp.num_col_, highspy.kHighsInf)
    lp.row_lower_ = np.concatenate([np.full(arc_count, -highspy.kHighsInf), np.zeros(len(demands))])
    lp.row_upper_ = np.concatenate([np.ones(arc_count), np.full(len(demands), highspy.kHighsInf)])
    lengths = [len(path) + 1 for _, path in columns] + [len(demands)]
    index = [row for number, path in columns for row in (*path, arc_count + number)]
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.start_ = np.concatenate([[0], np.cumsum(lengths)])
    lp.a_matrix_.index_ = np.array([*index, *(arc_count + np.arange(len(demands)))])
    lp.a_matrix_.value_ = np.concatenate([np.ones(len(index)), -demands.amount])
    solver.passModel(lp)
    solver.run()
    if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        raise RuntimeError(f"no optimum: {solver.modelStatusToString(solver.getModelStatus())}")
    solution = solver.getSolution()
    price = np.abs(np.array(solution.row_dual))
    value = np.array(solution.col_value)
    return Optimum(float(value[-1]), price[:arc_count], price[arc_count:], value[:-1])


def flow_bound(graph: RouterGraph, demands: Demands) -> tuple[float, float]:
    """The largest T over all paths there are: what was reached, and a bound on it, GAP apart or
    less.
    """
    # few others are worth their links
    columns = [dict.fromkeys(paths) for paths in short_paths(graph, demands, 1)]
    least_bound, found = np.inf, 0.0
    for _ in range(MOST_ROUNDS):
        optimum = maximum([list(each) for each in columns], demands, len(graph.peer))
        found = optimum.throughput
        least_bound = min(least_bound, add_cheapest(graph, demands, columns, optimum))
        if found >= (1 - GAP) * least_bound:
            break
    return found, float(least_bound)


def add_cheapest(
    graph: RouterGraph,
    demands: Demands,
    columns: Sequence[dict[RouterPath, None]],
    optimum: Optimum,
) -> float:
    """Add to each demand's columns the path that costs least at the prices of `optimum`.

    The bound on T that these prices give.
    """
    sources, row_of = np.unique(demands.src, return_inverse=True)
    cost, by = compiled(cheapest_paths)(graph.start, graph.peer, optimum.arc_price, sources)
    for number, (row, src, dst) in enumerate(zip(row_of, demands.src, demands.dst, strict=True)):
        at, path = dst, []
        while at != src:
            path.append(int(by[row, at]))
            at = graph.tail[path[-1]]
        columns[number][tuple(reversed(path))] = None
    return float(optimum.arc_price.sum() / (demands.amount * cost[row_of, demands.dst]).sum())


def cheapest_paths(start: Ints, peer: Ints, price: Floats, sources: Ints) -> tuple[Floats, Ints]:
    """From each of `sources` to every router, the least sum of prices of arcs and the last arc of
    such a path; among paths that cost the same within rounding, one with few links.
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
                    far[peer[arc]], by[row, peer[arc]] = through, arc
    return cost, by
