"""The graph engine for (Generalized) DCell and FiConn: pairs routed by the functions of daemons.

    net = graph("dcell:n=3,k=3")
    net.route(policy("pr-gpi"), pairs("uniform:flows=1000000", net.servers, rng)).mean_hops

The network is not stored.  Memory goes to the tables of the DR paths within an X(k-1) or a smaller
one (wiring.py); where flows are counted, to 8 bytes a channel and 4 more for each core; in a
breadth-first search, to 6 bytes a server for each core; and while faults are drawn, to 20 bytes a
link.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, lru_cache
from typing import cast

import numpy as np

from weft.daemons.dfr.routing import FIELDS, Dfr
from weft.daemons.proxy.routing import (
    GP_0,
    GP_E,
    GP_I,
    NEVER,
    SHORTEST,
    Policy,
    most_routes,
    shortest_first,
)
from weft.daemons.routing.path_tables import PathTables
from weft.daemons.tar.routing import most_hops
from weft.experiments.engines import flow_placement
from weft.experiments.engines import loops as loops
from weft.experiments.engines.arrays import Ints, int_zeros
from weft.experiments.engines.flow_placement import Placement, PlacementState
from weft.experiments.engines.loops import (
    LONGEST,
    Book,
    ChannelView,
    Faults,
    PairRange,
    SearchRoom,
    Tally,
    batches,
    chunks,
    new_book,
    post,
    tally,
)
from weft.experiments.engines.pairs import Pairs
from weft.experiments.engines.wiring import (
    NO_FAULTS,
    Wiring,
    compiled_for,
    require_crossbar,
    with_channels,
    with_lengths,
    with_stretches,
)
from weft.experiments.runner.definition import Run
from weft.topologies import family
from weft.topologies.core.grammar import parse, unknown
from weft.topologies.recursive import dcell as dcell  # numbers its rules
from weft.topologies.recursive.ccrdn import FAMILY, FICONN, Ccrdn

Cost = Callable[[int, int], int]
Task = Callable[[int, int, int], None]  # of first, last and thread

METHODS = {"pr-gpe": GP_E, "pr-gpi": GP_I, "pr-gp0": GP_0}
NOWHERE = 1 << 10  # a level that no network has
MOST_CROSSINGS = 1 << 32  # of a channel that a thread can count before they are posted
FLOWS_IN_A_CALL = 1 << 16  # of compiled code, which hears no interrupt
DEFAULT_PLACEMENT = Placement()


def policy(
    routing: str, *, least_level: int = 2, condition1: bool = False, choice: int = SHORTEST
) -> Policy:
    """Return the routes that `routing` tries: dr, pr-gpe, pr-gpi or pr-gp0.

    Args:
        routing: name of the scheme.
        least_level: lowest level at which proxies are tried.
        condition1: leave out pairs that condition 1 excludes.
        choice: rule of CCRDN 5.4; for LEAST_LOADED pass cost_of(choice) to Graph.route().

    Raises:
        ValueError: another scheme.
    """
    if routing == "dr":
        return Policy(GP_E, NOWHERE, False)
    if routing not in METHODS:
        raise ValueError(unknown("proxy scheme", routing, ["dr", *METHODS]))
    return Policy(METHODS[routing], least_level, condition1, choice)


def graph_of(run: Run) -> Graph:
    """Return the network of `run`."""
    return graph(run.text("topology"))


@lru_cache(maxsize=4)
def graph(spec: str) -> Graph:
    """Return the network `spec`, such as dcell:n=3,k=3.

    Raises:
        ValueError: it is no (Generalized) DCell or FiConn.
    """
    name, texts = parse(spec)
    rules = {name: rule for rule, name in FAMILY.items()}
    if name not in rules:
        raise ValueError(unknown("recursively-defined network", name, rules))
    parameters = family(name).parameters_from(texts)
    if rules[name] == FICONN and parameters["n"] % 2:
        raise ValueError(f"ficonn: n must be even, got {parameters['n']}")
    network = Ccrdn(rules[name], parameters["n"], parameters["k"])
    require_crossbar(network)
    return Graph(network)


class Graph(Wiring):
    """One network, ready to route.

    threads: how many share the work; results do not depend on it.
    """

    def __init__(self, network: Ccrdn, threads: int | None = None) -> None:
        super().__init__(network)
        self.threads = threads or len(os.sched_getaffinity(0))

    @cached_property
    def tables(self) -> PathTables:
        """Return the tables with channels."""
        return with_channels(self.network, self._share)

    @cached_property
    def lengths(self) -> PathTables:
        """Return the tables without channels."""
        return with_lengths(self.network, self._share)

    @cached_property
    def stretches(self) -> PathTables | None:
        """Return the tables with stretches; None if they would take too many counters."""
        return with_stretches(self.network, self._share)

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
        """Route `pairs` by DR or PR.

        Args:
            policy: routes that the scheme tries.
            pairs: pairs of servers.
            faults: dead channels and servers.
            loads: count the flows on each channel.
            balanced: let `cost` see the flows on each channel before the batch of the pair (see
                batches()); otherwise all channels look idle (CCRDN 5.4).
            cost: of a route, from its hops and the load of its fullest channel.
        """
        faulty = len(faults.down) > 0
        in_stretches = self.stretches if loads and not balanced and not faulty else None
        tables = in_stretches or (self.tables if loads or balanced or faulty else self.lengths)
        channels = self.servers * tables.ports
        dead = self._dead(faults) if balanced or faulty else int_zeros(0)
        counted = dead if balanced else int_zeros(channels if loads else 0)
        books = [new_book(channels if loads or balanced else 0) for _ in range(self.threads)]
        views = self._views(dead, loops.DEAD if faulty else NEVER)
        routed = compiled_for(self.rule, loops.route, cost=cost)

        def task(first: int, last: int, thread: int) -> None:
            part = PairRange(pairs, first, last)
            routed(tables, policy, part, faults, views[thread], books[thread])

        parts = batches(pairs.total) if balanced else chunks(pairs.total, MOST_CROSSINGS - 1)
        self._count(parts, task, books, counted)
        if balanced and faulty:
            counted[faults.down > 0] = 0
        if in_stretches:
            counted = self._take_apart(counted, in_stretches)
        return self._tally(books, counted if loads or balanced else None)

    def _views(self, load: Ints, dead: int) -> list[ChannelView]:
        """Return what a search sees of the channels, with room of its own for each thread."""
        routes = most_routes(self.network.t) if len(load) else 0
        rooms = np.zeros((self.threads, routes), np.int32)
        return [ChannelView(load, dead, room) for room in rooms]

    def _count(
        self,
        parts: Iterable[tuple[int, int]],
        task: Task,
        books: Sequence[Book],
        counted: Ints,
    ) -> None:
        """Run `task` on each part; after each part add the flows of `books` to `counted`."""
        for first, last in parts:
            self._share(first, last, task)
            post(books, counted)

    def _take_apart(self, counted: Ints, stretches: PathTables) -> Ints:
        """Return the flows on each channel from those `counted` on the `stretches`."""
        load = int_zeros(self.channels)
        inner = self.network.t.index(stretches.ports - self.ports)

        def task(first: int, last: int, _: int) -> None:
            compiled_for(self.rule, loops.take_apart)(
                self.tables, inner, first, last, counted, load
            )

        self._share(0, self.servers // self.network.t[inner], task)
        return load

    def survey(self, policy: Policy, pairs: Pairs) -> Ints:
        """Return the sums of loops.survey() over `pairs`."""
        sums = int_zeros(self.threads, 5)
        tables = self.lengths

        def task(first: int, last: int, thread: int) -> None:
            part = PairRange(pairs, first, last)
            compiled_for(self.rule, loops.survey)(tables, policy, part, sums[thread])

        self._share(0, pairs.total, task)
        return cast(Ints, sums.sum(axis=0))

    def reroute(
        self, dfr: Dfr, pairs: Pairs, faults: Faults = NO_FAULTS, *, loads: bool = False
    ) -> Tally:
        """Route `pairs` by DFR."""
        if dfr.ttl > LONGEST or dfr.b > self.k:
            raise ValueError(
                f"dfr: ttl must be at most {LONGEST} and b at most {self.k}, got {dfr.ttl} "
                f"and {dfr.b}"
            )
        load = int_zeros(self.channels if loads else 0)
        books = [new_book(len(load)) for _ in range(self.threads)]
        room = int_zeros(self.threads, 3, self.network.t[dfr.b] + FIELDS)

        def task(first: int, last: int, thread: int) -> None:
            part = PairRange(pairs, first, last)
            state = (faults, books[thread], room[thread])
            compiled_for(self.rule, loops.reroute)(self.rule, self.t, dfr, part, *state)

        # a packet may cross a channel again
        self._count(chunks(pairs.total, MOST_CROSSINGS // LONGEST), task, books, load)
        return self._tally(books, load if loads else None)

    def probe(
        self, pairs: Pairs, faults: Faults = NO_FAULTS, placement: Placement = DEFAULT_PLACEMENT
    ) -> Tally:
        """Place `pairs` by TAR: each flow sees those that began before it."""
        if self.rule != FICONN:
            raise ValueError("tar: its servers have two ports, those of a ficonn")
        path = int_zeros(len(self.t) + most_hops(self.k) + 1)
        state = PlacementState(int_zeros(self.channels), int_zeros(self.servers), path)
        book = new_book(0)
        for first, last in chunks(pairs.total, FLOWS_IN_A_CALL):
            part = PairRange(pairs, first, last)
            compiled_for(self.rule, flow_placement.place)(
                self.rule, self.t, placement, part, faults, state, book.hops
            )
        return self._tally([book], state.load)

    def shortest(self, sources: Sequence[int], faults: Faults = NO_FAULTS) -> list[Tally]:
        """Return the lengths of shortest paths from each of `sources` to every other server."""
        hops = int_zeros(len(sources), LONGEST + 3)
        distance = np.zeros((self.threads, self.servers), np.int16)
        queue = np.zeros((self.threads, self.servers), np.int32)

        def task(first: int, last: int, thread: int) -> None:
            room = SearchRoom(distance[thread], queue[thread])
            search = compiled_for(self.rule, loops.search_breadth_first)
            for i in range(first, last):
                search(self.rule, self.t, sources[i], faults, hops[i], room)

        self._share(0, len(sources), task)
        return [tally(histogram) for histogram in hops]

    def _dead(self, faults: Faults) -> Ints:
        """Return the load of each channel before the first flow: DEAD on a dead one."""
        load = int_zeros(self.channels)
        load[: len(faults.down)] = faults.down.astype(np.int64) * loops.DEAD
        return load

    def _tally(self, books: Sequence[Book], load: Ints | None) -> Tally:
        """Return the tally of all `books`, with the flows `load` on each channel if counted."""
        hops = np.sum([book.hops for book in books], axis=0)
        return tally(hops, None if load is None else load.reshape(-1, self.ports))

    def _share(self, first: int, last: int, task: Task) -> None:
        """Run `task` on parts of first .. last-1, each with the number of its thread."""
        bounds = np.linspace(first, last, self.threads + 1).astype(np.int64).tolist()
        parts = [(bounds[i], bounds[i + 1], i) for i in range(self.threads)]
        if self.threads == 1:
            task(*parts[0])
            return
        with ThreadPoolExecutor(self.threads) as pool:
            for future in [pool.submit(task, *part) for part in parts]:
                future.result()
