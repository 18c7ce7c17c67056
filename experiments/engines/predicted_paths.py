"""Which pairs of a small network the daemons of a scheme can connect, and over how many hops, by
the graph engine.

Its loops run as they stand, uncompiled, for one pair at a time, with the parameters of the daemons'
scheme: compiling them takes seconds, the pairs of a small network milliseconds.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial

import numpy as np

from weft.daemons.core import registry
from weft.daemons.core.actions import FiveTuple
from weft.daemons.dfr.routing import FIELDS, Dfr
from weft.daemons.proxy.routing import most_routes
from weft.daemons.routing import shortest
from weft.daemons.routing.path_tables import tabulate
from weft.daemons.routing.scope import dead_channels
from weft.daemons.tar import routing as tar
from weft.daemons.tar.own_flows import ATTEMPTS
from weft.experiments.engines import loops as loops
from weft.experiments.engines.graph import METHODS, Graph, graph, policy
from weft.experiments.engines.pairs import ONE_TO_ALL, Pairs
from weft.experiments.engines.tally import LONGEST
from weft.experiments.engines.wiring import NO_FAULTS
from weft.topologies.core.grammar import parse, unparse
from weft.topologies.core.topology import Topology
from weft.topologies.recursive.ccrdn import CcrdnNaming

Pair = tuple[int, int]
BUDGETS = ("probes_per_s", "urgent_per_s", "wakes_per_s")
# on every recursively-defined network
EVERYWHERE = ("dr", "pr-gp0", "pr-gpi", "pr-gpe", "dfr", "bfs")
# of the one pair of a traffic; counts its hops in a histogram
Ask = Callable[[Pairs, list[int]], None]


def routings() -> list[str]:
    """The schemes of daemons that an experiment sweeps where nobody asks for others, such as tar on
    ficonn."""
    return [name for name in EVERYWHERE if name in registry.schemes()]


def asking(routing: str, per_s: int) -> str:
    """`routing` with so many questions a second for each source, of those that PR asks about paths,
    where it does not say itself how many; as it is if `per_s` is 0 or the scheme asks none."""
    name, given = parse(routing)
    known = registry.scheme(routing)[0].parameters
    budgets = {key: str(per_s) for key in BUDGETS if key in known and per_s}
    return unparse(name, {**budgets, **given})


def some_pairs(servers: int, most: int, generator: np.random.Generator) -> list[Pair]:
    """At most `most` unordered pairs at random, each in both directions; neighbours in the list
    begin at different servers."""
    half = [(src, src + step) for step in range(1, servers) for src in range(servers - step)]
    drawn = [half[i] for i in generator.permutation(len(half))[:most].tolist()]
    return [*drawn, *((dst, src) for src, dst in drawn)]


def lengths(topology: Topology, routing: str, pairs: Iterable[Pair]) -> dict[Pair, int] | None:
    """The hops from server to server of each of `pairs` that `routing` connects over the live links
    of `topology`.

    None for a scheme whose paths do not follow from the live links alone.
    """
    if registry.scheme(routing)[0].name == "bfs":
        distances = lru_cache(maxsize=None)(lambda src: shortest.distances(topology.adjacency, src))
        found = {(src, dst): distances(src).get(dst) for src, dst in pairs}
    elif not isinstance(topology.naming, CcrdnNaming):
        return None
    else:
        net = graph(topology.spec)
        ask = loop(net, routing, dead_channels(topology, net.network))
        if ask is None:
            return None
        found = {pair: hops(ask, net.servers, pair) for pair in pairs}
    return {pair: length for pair, length in found.items() if length is not None}


def connects(topology: Topology, routing: str, pairs: Iterable[Pair]) -> set[Pair] | None:
    """Return those of `pairs` that `routing` connects over the live links of `topology`; None if it
    depends on more.

    Of tar: those whose pings some attempt finds a path for where no link is busy.
    A scheme that the graph engine does not have, and that only sets routes, answers by its own
    `path`.
    """
    scheme, options = registry.scheme(routing)
    if scheme.name == "tar" and isinstance(topology.naming, CcrdnNaming):
        probe = partial(
            probed,
            topology.naming,
            dead_channels(topology, topology.naming.network),
            options["relay"],
        )
        return {pair for pair in pairs if probe(*pair)}
    known = lengths(topology, routing, pairs)
    if known is None and not scheme.needs:
        return {pair for pair in pairs if scheme.path(topology, options, *pair)}
    return None if known is None else set(known)


def probed(naming: CcrdnNaming, down: Sequence[int], relay: int, src: int, dst: int) -> bool:
    """Whether one of the probes that TAR sends for pings of `src` to `dst` arrives, where the
    channels `down` are dead and flows that are bypassed go where `relay` says
    (daemons/tar/routing.py)."""
    network, address = naming.network, naming.address
    flow = tar.number(*FiveTuple(address(src), address(dst), socket.IPPROTO_ICMP, 0))
    return any(
        tar.route(network.rule, network.t, down, src, dst, relay=relay, flow=flow, attempt=attempt)[
            1
        ]
        for attempt in range(ATTEMPTS)
    )


def loop(net: Graph, routing: str, down: Sequence[int]) -> Ask | None:
    """How the graph engine carries `routing` out where the channels `down` are dead; None if it
    depends on more."""
    scheme, options = registry.scheme(routing)
    rule, t, nobody = net.network.rule, net.network.t, NO_FAULTS.servers
    if scheme.name == "dr" or scheme.name in METHODS:
        tables = tabulate(rule, t, 1, with_channels=True)
        least, condition1 = options.get("level", 0) or net.k, bool(options.get("condition1", 0))
        tries = policy(
            scheme.name, least_level=least, condition1=condition1, choice=options.get("choice", 0)
        )
        load = [loops.DEAD * dead for dead in down]
        state, lengths = (load, loops.DEAD, nobody, nobody), [0] * most_routes(t)
        return lambda pairs, histogram: loops.route(
            tables, tries, pairs, 0, 1, *state, histogram, lengths
        )
    if scheme.name == "dfr" and options.get("nearest", 1):
        dfr = dfr_of(options)
        room = np.zeros((3, t[dfr.b] + FIELDS), np.int64)
        return lambda pairs, histogram: loops.reroute(
            rule, t, dfr, pairs, 0, 1, down, nobody, nobody, histogram, room
        )
    return None


def dfr_of(options: Mapping[str, int]) -> Dfr:
    """The parameters of DFR among those of the daemons' scheme."""
    usual = Dfr()
    b, retry, ttl = (options.get(key, getattr(usual, key)) for key in ("b", "retry", "ttl"))
    return Dfr(b, retry, ttl, bool(options.get("nearest", 1)))


def hops(ask: Ask, servers: int, pair: Pair) -> int | None:
    """Of a pair; None if it is not connected."""
    histogram = [0] * (LONGEST + 3)
    with np.errstate(over="ignore"):  # of unsigned words
        ask(Pairs(ONE_TO_ALL, servers, 1, np.uint64(0), pair, 0), histogram)
    length = histogram.index(1)
    return None if length == len(histogram) + loops.LOST else length


def both_ways(found: Iterable[Pair]) -> set[Pair]:
    """Those of `found` whose reverse is there as well: a ping goes there and back."""
    there = set(found)
    return {(src, dst) for src, dst in there if (dst, src) in there}
