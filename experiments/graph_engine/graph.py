"""The graph engine for DCell, beta-DCell and FiConn: any number of pairs, routed by the functions that the daemons
run.

    net = graph("dcell:n=3,k=3")
    net.route(policy("pr-gpi"), pairs("uniform:flows=1000000", net.servers, rng)).mean_hops

The network is nowhere stored.  What takes memory are the tables of the DR paths within an X(k-1) or a smaller one
(graph_tables.py); for each core 4 bytes a channel where flows are
counted, and 6 bytes a server where it searches breadth-first; and the links, 20 bytes each, while faults are drawn.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from daemons.dfr.routing import FIELDS, Dfr
from daemons.proxy.routing import GP_0, GP_E, GP_I, NEVER, Policy, most_routes, shortest_first
from daemons.routing.path_tables import Tables
from experiments.graph_engine import loops as loops
from experiments.graph_engine.compiled import compiled
from experiments.graph_engine.pairs import Pairs
from experiments.graph_engine.tables import with_channels, with_lengths, with_stretches
from topologies import family
from topologies.core.failures import draw
from topologies.core.grammar import parse, unknown
from topologies.recursive.ccrdn import FAMILY, FICONN, Ccrdn

Cost = Callable[[int, int], int]
Flags = NDArray[np.uint8]

SMALL_BATCH = 1 << 14  # pairs that are routed by the same loads, to begin with
METHODS = {"pr-gpe": GP_E, "pr-gpi": GP_I, "pr-gp0": GP_0}
NOWHERE = 1 << 10  # a level that no network has
LONGEST = 1021  # hops of any route


@dataclass(frozen=True, eq=False)
class Tally:
    """What became of the pairs.

    hops: how many pairs have a route of so many hops.  lost: how many are not connected.
    left_out: how many have an end that is dead itself.
    loads: flows on each channel, shape (servers, k + 2), if they were asked for.
    """

    hops: NDArray[np.int64]
    lost: int
    left_out: int
    loads: NDArray[np.uint32] | None = None

    @property
    def connected(self) -> int:
        return int(self.hops.sum())

    @property
    def connected_fraction(self) -> float:
        """Of the pairs whose ends are alive."""
        return self.connected / (self.connected + self.lost)

    @property
    def mean_hops(self) -> float:
        return float(np.average(np.arange(len(self.hops)), weights=self.hops))

    @property
    def sd_hops(self) -> float:
        """Standard deviation over the pairs."""
        squares = (np.arange(len(self.hops)) - self.mean_hops) ** 2
        return float(np.sqrt(np.average(squares, weights=self.hops)))


@dataclass(frozen=True, eq=False)
class Faults:
    """What is dead.

    down: 1 for each dead channel, shape (servers * (k + 2),); empty if none is.
    servers: 1 for each server that is dead itself; empty if none is.
    """

    down: Flags
    servers: Flags


NO_FAULTS = Faults(np.zeros(0, np.uint8), np.zeros(0, np.uint8))


def policy(routing: str, *, least_level: int = 2, condition1: bool = False) -> Policy:
    """What `routing`, dr or pr-gpe, pr-gpi, pr-gp0, tries; ValueError if it is none of these."""
    if routing == "dr":
        return Policy(GP_E, NOWHERE, False)
    if routing not in METHODS:
        raise ValueError(unknown("proxy scheme", routing, ["dr", *METHODS]))
    return Policy(METHODS[routing], least_level, condition1)


@lru_cache(maxsize=4)
def graph(spec: str) -> Graph:
    """The network that `spec`, dcell:n=3,k=3 say, describes; ValueError if it is no DCell, beta-DCell or FiConn."""
    name, given = parse(spec)
    rules = {name: rule for rule, name in FAMILY.items()}
    if name not in rules:
        raise ValueError(unknown("recursively-defined network", name, rules))
    parameters = family(name).parameters_from(given)
    if rules[name] == FICONN and parameters["n"] % 2:
        raise ValueError(f"ficonn: n must be even, got {parameters['n']}")
    return Graph(Ccrdn(rules[name], parameters["n"], parameters["k"]))


class Graph:
    """One network, ready to route.

    threads: how many share the work; results do not depend on it.
    """

    def __init__(self, network: Ccrdn, threads: int | None = None) -> None:
        self.network = network
        self.rule, self.k = network.rule, network.k
        self.t: Any = np.array(network.t)
        self.servers = network.t[-1]
        self.ports = network.k + 2
        self.channels = self.servers * self.ports
        self.threads = threads or len(os.sched_getaffinity(0))

    @cached_property
    def tables(self) -> Tables:
        """With channels."""
        return with_channels(self.network, self._share)

    @cached_property
    def lengths(self) -> Tables:
        """Without channels."""
        return with_lengths(self.network, self._share)

    @cached_property
    def stretches(self) -> Tables | None:
        """With stretches instead of channels; None if they would take too many counters."""
        return with_stretches(self.network, self._share)

    @cached_property
    def links(self) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int8]]:
        """Ends and levels of all links, numbered as in the Topology of this network; a level-0 link's ends are both
        its server."""
        ends = [(np.arange(self.servers, dtype=np.int32),) * 2]
        for level in range(1, self.k + 1):
            a, b = np.zeros((2, self.servers // 2), np.int32)
            count = compiled(loops.links)(self.rule, self.t, level, a, b)
            ends.append((a[:count], b[:count]))
        levels = [np.full(len(a), level, np.int8) for level, (a, _) in enumerate(ends)]
        return np.concatenate([a for a, _ in ends]), np.concatenate([b for _, b in ends]), np.concatenate(levels)

    @cached_property
    def wired(self) -> NDArray[np.bool_]:
        """Which channels there are, shape (servers, k + 2); FiConn's servers have no link at most of the levels."""
        return self._down(*self.links).reshape(-1, self.ports).astype(bool)

    @property
    def link_count(self) -> int:
        copies = self.network.copies
        above = [self.servers // self.network.t[level] for level in range(1, self.k + 1)]
        return self.servers + sum(n * g * (g - 1) // 2 for n, g in zip(above, copies[1:], strict=True))

    def link_faults(self, rng: np.random.Generator, *, fraction: float) -> Faults:
        """Both directions of `fraction` of all links, drawn as topologies/core/failures.py draws them (CCRDN 6.4)."""
        a, b, level = self.links
        chosen = draw(np.arange(len(a)), fraction=fraction, generator=rng)
        return Faults(self._down(a[chosen], b[chosen], level[chosen]), NO_FAULTS.servers)

    def faults(self, failed: NDArray[np.bool_]) -> Faults:
        """Both directions of the links that have `failed` in a Topology of this network; no server counts as dead."""
        a, b, level = self.links
        return Faults(self._down(a[failed], b[failed], level[failed]), NO_FAULTS.servers)

    def server_faults(self, servers: NDArray[np.int64]) -> Faults:
        """`servers` dead, with all their links."""
        a, b, level = self.links
        dead = np.zeros(self.servers, np.uint8)
        dead[servers] = 1
        gone = np.flatnonzero(dead[a] | dead[b])
        return Faults(self._down(a[gone], b[gone], level[gone]), dead)

    def node_faults(self, rng: np.random.Generator, *, fraction: float) -> Faults:
        """`fraction` of the servers."""
        return self.server_faults(draw(np.arange(self.servers), fraction=fraction, generator=rng))

    def rack_faults(self, rng: np.random.Generator, *, fraction: float) -> Faults:
        """`fraction` of the X(0)s, each with all its servers."""
        n = self.network.n
        racks = draw(np.arange(self.servers // n), fraction=fraction, generator=rng)
        return self.server_faults((racks[:, None] * n + np.arange(n)).reshape(-1))

    def _down(self, a: NDArray[Any], b: NDArray[Any], level: NDArray[Any]) -> Flags:
        down = np.zeros((self.servers, self.ports), np.uint8)
        down[a, level] = 1
        down[b, np.where(level == 0, self.k + 1, level)] = 1
        return down.reshape(-1)

    def route(
        self,
        policy: Policy,
        pairs: Pairs,
        faults: Faults = NO_FAULTS,
        *,
        loads: bool = False,
        balanced: bool = False,
        cost: Cost = shortest_first,
    ) -> Tally:
        """DR or PR for all of `pairs`.

        loads: count the flows on each channel.
        balanced: let `cost` see these when it chooses, as they were before the flow's batch (see batches()); without
        it,
            all channels look idle (CCRDN 5.4).
        """
        in_stretches = self.stretches if loads and not balanced and not len(faults.down) else None
        tables = in_stretches or (self.tables if loads or balanced or len(faults.down) else self.lengths)
        load = self._loads(faults) if balanced or len(faults.down) else np.zeros(0, np.uint32)
        books = [Book(self.servers * tables.ports if loads or balanced else 0) for _ in range(self.threads)]
        lengths = np.zeros((self.threads, most_routes(self.network.t) if len(load) else 0), np.int32)
        dead = loops.DEAD if len(faults.down) else NEVER
        routed = compiled(loops.route, cost=cost)

        def task(first: int, last: int, thread: int) -> None:
            book = books[thread]
            routed(
                tables, policy, pairs, first, last, load, dead, faults.servers, book.flows, book.hops, lengths[thread]
            )

        for first, last in batches(pairs.total) if balanced else [(0, pairs.total)]:
            self._share(first, last, task)
            if balanced:
                post(books, load)
        if in_stretches:
            load = self._take_apart(books, in_stretches)
        return self._tally(books, load if balanced or in_stretches else None, loads or balanced)

    def _take_apart(self, books: Sequence[Book], stretches: Tables) -> NDArray[np.uint32]:
        """The flows on each channel, from those that `books` has for stretches."""
        counted, load = np.zeros(self.servers * stretches.ports, np.uint32), np.zeros(self.channels, np.uint32)
        post(books, counted)
        inner = self.network.t.index(stretches.ports - self.ports)

        def task(first: int, last: int, _: int) -> None:
            compiled(loops.take_apart)(self.tables, inner, first, last, counted, load)

        self._share(0, self.servers // self.network.t[inner], task)
        return load

    def survey(self, policy: Policy, pairs: Pairs) -> NDArray[np.int64]:
        """Over all of `pairs`, the sums that graph_loops.survey() takes."""
        sums = np.zeros((self.threads, 5), np.int64)
        tables = self.lengths

        def task(first: int, last: int, thread: int) -> None:
            compiled(loops.survey)(tables, policy, pairs, first, last, sums[thread])

        self._share(0, pairs.total, task)
        return cast(NDArray[np.int64], sums.sum(axis=0))

    def reroute(self, dfr: Dfr, pairs: Pairs, faults: Faults = NO_FAULTS, *, loads: bool = False) -> Tally:
        """DFR for all of `pairs`."""
        if dfr.ttl > LONGEST or dfr.b > self.k:
            raise ValueError(f"dfr: ttl must be at most {LONGEST} and b at most {self.k}, got {dfr.ttl} and {dfr.b}")
        books = [Book(self.channels if loads else 0) for _ in range(self.threads)]
        room = np.zeros((self.threads, 3, self.network.t[dfr.b] + FIELDS), np.int64)

        def task(first: int, last: int, thread: int) -> None:
            book = books[thread]
            span = (first, last, faults.down, faults.servers, book.flows, book.hops, room[thread])
            compiled(loops.reroute)(self.rule, self.t, dfr, pairs, *span)

        self._share(0, pairs.total, task)
        return self._tally(books, None, loads)

    def probe(self, pairs: Pairs, faults: Faults = NO_FAULTS) -> Tally:
        """TAR for all of `pairs`; a probe sees the flows that there were before its batch (see batches())."""
        if self.rule != FICONN:
            raise ValueError("tar: its servers have two ports, those of a ficonn")
        load, virtual = np.zeros(self.channels, np.uint32), np.zeros(self.servers, np.uint32)
        books = [Book(self.channels) for _ in range(self.threads)]
        virtual_books = [Book(self.servers) for _ in range(self.threads)]
        marks = np.zeros((self.threads, self.k + 1), np.int64)

        def task(first: int, last: int, thread: int) -> None:
            book, virtual_book = books[thread], virtual_books[thread]
            state = (load, virtual, faults.down, faults.servers, book.flows, virtual_book.flows, book.hops)
            compiled(loops.probe)(self.rule, self.t, pairs, first, last, *state, marks[thread])

        for first, last in batches(pairs.total):
            self._share(first, last, task)
            post(books, load)
            post(virtual_books, virtual)
        return self._tally(books, load, True)

    def shortest(self, sources: Sequence[int], faults: Faults = NO_FAULTS) -> list[Tally]:
        """Breadth-first search from each of `sources` to every other server."""
        hops = np.zeros((len(sources), LONGEST + 3), np.int64)
        distance = np.zeros((self.threads, self.servers), np.int16)
        queue = np.zeros((self.threads, self.servers), np.int32)

        def task(first: int, last: int, thread: int) -> None:
            for i in range(first, last):
                args = (sources[i], faults.down, faults.servers, hops[i], distance[thread], queue[thread])
                compiled(loops.search_breadth_first)(self.rule, self.t, *args)

        self._share(0, len(sources), task)
        return [tally(one) for one in hops]

    def _loads(self, faults: Faults) -> NDArray[np.uint32]:
        load = np.zeros(self.channels, np.uint32)
        load[: len(faults.down)] = faults.down.astype(np.uint32) * loops.DEAD
        return load

    def _tally(self, books: Sequence[Book], load: NDArray[np.uint32] | None, loads: bool) -> Tally:
        """What is in `books`, and in `load` if that is where flows have been posted."""
        if load is None:
            load = np.zeros(self.channels if loads else 0, np.uint32)
            post(books, load)
        load = np.where(load < loops.DEAD, load, 0)
        return tally(np.sum([book.hops for book in books], axis=0), load.reshape(-1, self.ports) if loads else None)

    def _share(self, first: int, last: int, task: Callable[[int, int, int], None]) -> None:
        """Let `task` do first .. last-1 in parts, each with the number of its thread."""
        bounds = np.linspace(first, last, self.threads + 1).astype(np.int64).tolist()
        parts = [(bounds[i], bounds[i + 1], i) for i in range(self.threads)]
        if self.threads == 1:
            task(*parts[0])
            return
        with ThreadPoolExecutor(self.threads) as pool:
            for done in [pool.submit(task, *part) for part in parts]:
                done.result()


class Book:
    """What one thread counts: pairs by hops as graph_loops.py has them, and flows on `channels` channels."""

    def __init__(self, channels: int) -> None:
        self.hops = np.zeros(LONGEST + 3, np.int64)
        self.flows = np.zeros(channels, np.uint32)


def post(books: Sequence[Book], into: NDArray[np.uint32]) -> None:
    """Move the flows of all `books` to `into`."""
    for book in books:
        into += book.flows
        book.flows[:] = 0


def tally(histogram: NDArray[np.int64], loads: NDArray[np.uint32] | None = None) -> Tally:
    """A histogram as graph_loops.py has it, read."""
    hops = histogram[:-2]
    return Tally(np.trim_zeros(hops, "b"), int(histogram[loops.LOST]), int(histogram[loops.LEFT_OUT]), loads)


def batches(count: int) -> Iterator[tuple[int, int]]:
    """0 .. count-1 in batches, as (first, last + 1): a 256th of all, at most SMALL_BATCH, or a 64th of those before.

    Flows of one batch are placed by the same loads.  So they may be routed in any order and on any number of cores,
    and once there are many no flow misses more than 1.6 % of what is there.
    """
    first = 0
    while first < count:
        last = min(count, first + max(1, min(count // 256, SMALL_BATCH), first // 64))
        yield first, last
        first = last
