"""Proxy routing, PR (CCRDN, section 5): DR or, where that is better, DR by way of a third copy, the
proxy.

Let `src` and `dst` part in an X(h): server p of copy a of X(h-1) and server q of its copy b.  The
route by way of copy c is DR to the server of copy a that is joined to c, over that link, DR to the
server of c that is joined to b, over that link, DR on to `dst`.  A method GP says which c are tried
(5.1 to 5.3):

    GP_E  every c
    GP_I  those joined to the X(h-2) of src in copy a (Property 1) or to the X(h-2) of dst in copy b
    (Property 2) GP_0  those joined to the X(0) of src or to the X(0) of dst

All three are one search: the c joined to the X(s) of src or of dst, with s = h-1, h-2 and 0.  Ours:
where h = 1 there is no X(h-2), and GP_I takes the X(0).  The numbers of the servers of an X(s) are
consecutive, so the connection rule turns them into the c's without a search.

Written so that the same source runs as it stands, on tuples and bytes, and compiled, on arrays.
"""

from __future__ import annotations

from collections.abc import Callable, MutableSequence, Sequence
from typing import Any, NamedTuple

from weft.daemons.routing import dr
from weft.daemons.routing.path_tables import PathTables, StepFunction, fullest, length, path
from weft.topologies.recursive.ccrdn import FICONN, bridge, far_subnetwork, gateway

GP_E, GP_I, GP_0 = 0, 1, 2

DISCONNECTED = 1 << 62
NO_ROUTE = 1 << 30  # hops that no route has
NEVER = 1 << 38  # a load that no channel has: nothing is dead


class Policy(NamedTuple):
    """Which proxies are tried.

    method: GP_E, GP_I or GP_0.
    least_level: proxies are tried where src and dst part in an X(h), h >= least_level.  2 is
        Algorithm 1; k is "at the top level only"; 1 also finds ways around a dead level-1 link.
    condition1: DR alone where src is near to dst (5.2, condition 1).
    dr_first: where src is near to dst, proxies are tried only if DR's route is not connected (5.4).
    """

    method: int
    least_level: int
    condition1: bool
    dr_first: bool = False


class Parting(NamedTuple):
    """src is server p of copy a, dst server q of copy b, in the X(level) that begins at server
    `base`.

    Within one X(0), level is 0, a and b are the servers, p and q are 0.
    """

    level: int
    base: int
    a: int
    p: int
    b: int
    q: int


def parting(t: Sequence[int], src: int, dst: int) -> Parting:
    """Where `src` and `dst` part."""
    level, base = len(t) - 1, 0
    while level > 0:
        sub = t[level - 1]
        a, b = src // sub, dst // sub
        src -= a * sub
        dst -= b * sub
        if a != b:
            return Parting(level, base, a, src, b, dst)
        base += a * sub
        level -= 1
    return Parting(0, base, src, 0, dst, 0)


def joined_below(rule: int, level: int, p: int) -> int:
    """How many of the servers 0 .. p-1 of an X(level-1) have a level-`level` link."""
    return (p + (1 << (level - 1))) >> level if rule == FICONN else p


def joined(rule: int, level: int, i: int) -> int:
    """The i-th server of an X(level-1) that has a level-`level` link."""
    return (i << level) + (1 << (level - 1)) - 1 if rule == FICONN else i


def near(rule: int, t: Sequence[int], at: Parting) -> bool:
    """Condition 1: the link from copy a to copy b joins the X(h-2) of src to the X(h-2) of dst;
    also within an X(0)."""
    if at.level == 0:
        return True
    size = t[at.level - 2] if at.level > 1 else 1
    return (
        gateway(rule, t, at.level, at.a, at.b) // size == at.p // size
        and gateway(rule, t, at.level, at.b, at.a) // size == at.q // size
    )


class Span(NamedTuple):
    """The servers whose links lead to candidates: of those that joined() counts, a_from .. a_to - 1
    of copy a (Property 1) and b_from .. b_to - 1 of copy b (Property 2)."""

    a_from: int
    a_to: int
    b_from: int
    b_to: int


def span(rule: int, t: Sequence[int], policy: Policy, at: Parting) -> Span:
    """Where the candidates of `policy` are; empty where it tries none."""
    level = at.level
    if level == 0 or level < policy.least_level or (policy.condition1 and near(rule, t, at)):
        return Span(0, 0, 0, 0)
    within = (
        level - 1 if policy.method == GP_E else max(level - 2, 0) if policy.method == GP_I else 0
    )
    size = t[within]
    p, q = at.p - at.p % size, at.q - at.q % size
    b_from = joined_below(rule, level, q)
    # every copy is joined to the whole of copy a: nothing is left for copy b to add
    b_to = b_from if within == level - 1 else joined_below(rule, level, q + size)
    return Span(joined_below(rule, level, p), joined_below(rule, level, p + size), b_from, b_to)


def candidates(of: Span) -> int:
    """One more than the greatest index for which candidate() may give one."""
    return of.a_to - of.a_from + of.b_to - of.b_from


def candidate(rule: int, t: Sequence[int], at: Parting, of: Span, index: int) -> int:
    """The `index`-th candidate proxy, a copy other than a and b; -1 if this index has none.  No
    copy comes twice."""
    level = at.level
    i = of.a_from + index
    if i < of.a_to:
        c = far_subnetwork(rule, t, level, at.a, joined(rule, level, i))
        return -1 if c == at.b else c
    c = far_subnetwork(rule, t, level, at.b, joined(rule, level, i - of.a_to + of.b_from))
    if (
        c == at.a
        or of.a_from <= joined_below(rule, level, gateway(rule, t, level, at.a, c)) < of.a_to
    ):
        return -1
    return c


def hops(tables: PathTables, at: Parting, proxy: int) -> int:
    """Length of the route by way of copy `proxy`; of DR's route if that is -1."""
    rule, t, level, a, b = tables.rule, tables.t, at.level, at.a, at.b
    if level == 0:
        return 1 if a != b else 0
    if proxy < 0:
        to_b, from_a = bridge(rule, t, level, a, b)
        return length(tables, level - 1, at.p, to_b) + 1 + length(tables, level - 1, from_a, at.q)
    to_proxy, from_a = bridge(rule, t, level, a, proxy)
    from_proxy, to_b = bridge(rule, t, level, b, proxy)
    return (
        length(tables, level - 1, at.p, to_proxy)
        + length(tables, level - 1, from_a, to_b)
        + length(tables, level - 1, from_proxy, at.q)
        + 2
    )


def channels(
    tables: PathTables, at: Parting, proxy: int, step: StepFunction, into: Any, value: int
) -> int:
    """value = step(into, value, channel) for each channel of the route by way of copy `proxy`, of
    DR's if that is -1, in their order; return the last value."""
    rule, t, level = tables.rule, tables.t, at.level
    if level == 0:
        return path(tables, 0, at.base, at.a, at.b, step, into, value)
    ports, sub = tables.ports, t[level - 1]
    copy, p = at.a, at.p
    while copy != at.b:
        to = at.b if proxy < 0 or copy == proxy else proxy
        leave = gateway(rule, t, level, copy, to)
        base = at.base + copy * sub
        value = path(tables, level - 1, base, p, leave, step, into, value)
        value = step(into, value, (base + leave) * ports + level)
        p = gateway(rule, t, level, to, copy)
        copy = to
    return path(tables, level - 1, at.base + copy * sub, p, at.q, step, into, value)


def most_channels(t: Sequence[int]) -> int:
    """The most channels that a route of the network can have."""
    return 9 << max(len(t) - 2, 0)


def most_routes(t: Sequence[int]) -> int:
    """The most routes that a search can have to weigh."""
    return t[-1] // t[-2] if len(t) > 1 else 1


def shortest_first(hops: int, load: int) -> int:
    """The paper's choice (5.4): the least congested bottleneck among the shortest connected
    routes."""
    return hops << 40 | load


def least_loaded_first(hops: int, load: int) -> int:
    """The other choice that 5.4 names: the shortest among the routes with the least congested
    bottleneck."""
    return load << 16 | hops


# the choice rules of 5.4; DR_FIRST chooses else as SHORTEST does
SHORTEST, LEAST_LOADED, DR_FIRST = 0, 1, 2


def cost_of(choice: int) -> Callable[[int, int], int]:
    """The cost of a route by hops and load under a choice rule."""
    return least_loaded_first if choice == LEAST_LOADED else shortest_first


def measure(
    tables: PathTables, at: Parting, of: Span, lengths: MutableSequence[int]
) -> tuple[int, int, int]:
    """Of the shortest routes, DR's with proxy -1 among them: their hops, the first one's proxy, how
    many they are.

    lengths: if not empty, is given the hops of all: DR's, then each candidate()'s, NO_ROUTE where
        there is none.
    """
    rule, t, kept = tables.rule, tables.t, len(lengths) > 0
    fewest, chosen, alike = hops(tables, at, -1), -1, 1
    if kept:
        lengths[0] = fewest
    for index in range(candidates(of)):
        proxy, length = candidate(rule, t, at, of, index), NO_ROUTE
        if proxy >= 0:
            length = hops(tables, at, proxy)
            if length < fewest:
                fewest, chosen, alike = length, proxy, 0
            alike += length == fewest
        if kept:
            lengths[index + 1] = length
    return fewest, chosen, alike


def search(
    tables: PathTables,
    policy: Policy,
    cost: Callable[[int, int], int],
    at: Parting,
    load: Sequence[int],
    dead: int,
    lengths: MutableSequence[int],
) -> tuple[int, int]:
    """The cheapest route as (its hops, its proxy or -1 for DR); DR if no proxy is better; hops -1
    if none is connected.

    cost: of a route, from its hops and the greatest load on its channels; must not fall when either
        grows.
    load: on each channel, `dead` and more meaning that it is dead, NEVER at the most; if empty, all
        are alive and idle.
    lengths: room for most_routes(t) numbers; for none if `load` is empty.
    """
    direct = policy.dr_first and near(tables.rule, tables.t, at)
    if direct and (not len(load) or channels(tables, at, -1, fullest, load, 0) < dead):
        return hops(tables, at, -1), -1
    of = span(tables.rule, tables.t, policy, at)
    length, shortest, alike = measure(tables, at, of, lengths)
    if not len(load) or (dead == NEVER and alike == 1 and cost(length, dead) < cost(length + 1, 0)):
        return length, shortest  # whatever the load on it is
    least, fewest, chosen = DISCONNECTED, -1, -1
    while length < NO_ROUTE and cost(length, 0) < least:
        longer = NO_ROUTE
        for index in range(candidates(of) + 1):
            if lengths[index] == length:
                proxy = candidate(tables.rule, tables.t, at, of, index - 1) if index else -1
                worst = channels(tables, at, proxy, fullest, load, 0)
                if worst < dead and cost(length, worst) < least:
                    least, fewest, chosen = cost(length, worst), length, proxy
            elif lengths[index] > length:
                longer = min(longer, lengths[index])
        length = longer
    return fewest, chosen


def alternatives(tables: PathTables, policy: Policy, src: int, dst: int) -> list[tuple[int, int]]:
    """All the routes that `policy` allows, as (hops, proxy), in the order in which it takes them on
    idle links: the shortest first, or where it says so DR's, which has proxy -1."""
    at = parting(tables.t, src, dst)
    of = span(tables.rule, tables.t, policy, at)
    tried = [candidate(tables.rule, tables.t, at, of, index) for index in range(candidates(of))]
    found = sorted(
        (hops(tables, at, proxy), proxy) for proxy in [-1, *(c for c in tried if c >= 0)]
    )
    first = policy.dr_first and near(tables.rule, tables.t, at)
    return sorted(found, key=lambda route: route[1] != -1) if first else found


def waypoints(
    rule: int, t: Sequence[int], src: int, dst: int, proxy: int
) -> tuple[int, int, int, int]:
    """The servers of the two links by which a route enters and leaves copy `proxy`, in their order
    on the route."""
    at = parting(t, src, dst)
    a, b, c = (at.base + copy * t[at.level - 1] for copy in (at.a, at.b, proxy))
    return (
        a + gateway(rule, t, at.level, at.a, proxy),
        c + gateway(rule, t, at.level, proxy, at.a),
        c + gateway(rule, t, at.level, proxy, at.b),
        b + gateway(rule, t, at.level, at.b, proxy),
    )


def route(rule: int, t: Sequence[int], src: int, dst: int, proxy: int) -> list[int]:
    """The servers of the route by way of copy `proxy`, both ends included; DR's route if that is
    -1."""
    if proxy < 0:
        return dr.route(rule, t, src, dst)
    leave, enter, depart, arrive = waypoints(rule, t, src, dst, proxy)
    return (
        dr.route(rule, t, src, leave)
        + dr.route(rule, t, enter, depart)
        + dr.route(rule, t, arrive, dst)
    )
