"""Proxy routing, PR (CCRDN, section 5): DR, or a better route by way of a proxy.

A proxy is a third sub-network.

Let `src` and `dst` part in an X(h): server p of its sub-network a, an X(h-1), and server q of its
sub-network b.  The route by way of sub-network c is DR to the server of a that is joined to c, that
link, DR to the server of c that is joined to b, that link, and DR to `dst`.  The method GP selects
the proxies c (5.1 to 5.3):

    GP_E  every c
    GP_I  joined to the X(h-2) of src in a (Property 1) or to the X(h-2) of dst in b (Property 2)
    GP_0  joined to the X(0) of src or to the X(0) of dst

All three are one search: the c joined to the X(s) of src or of dst, with s = h-1, h-2 and 0.  With
h = 1 there is no X(h-2); we let GP_I use the X(0).  The servers of an X(s) have consecutive
numbers, so the connection rule gives the proxies without a search.

The same source runs interpreted, on tuples and bytes, and compiled, on arrays.
"""

from __future__ import annotations

from collections.abc import Callable, MutableSequence, Sequence
from typing import Any, NamedTuple

from weft.daemons.routing import dr
from weft.daemons.routing.path_tables import PathTables, StepFunction, fullest, length, path
from weft.topologies.recursive.ccrdn import FICONN, bridge, far_subnetwork, gateway

GP_E, GP_I, GP_0 = 0, 1, 2

DISCONNECTED = 1 << 62
NO_ROUTE = 1 << 30  # more hops than any route
NEVER = 1 << 38  # greater than any load; as `dead`: no channel is dead

# (hops, greatest load on a channel) -> cost
RouteCost = Callable[[int, int], int]


class Policy(NamedTuple):
    """Selection of the proxies.

    method: GP_E, GP_I or GP_0.
    least_level: least level h of the X(h) in which src and dst part.  2 is Algorithm 1; k is "at
        the top level only"; 1 also finds routes around a dead level-1 link.
    condition1: no proxies if src is near to dst (5.2, condition 1).
    choice: rule of 5.4 for the choice among routes.
    """

    method: int
    least_level: int
    condition1: bool
    choice: int = 0


class Parting(NamedTuple):
    """A pair of servers that part in the X(level) that begins at server `base`.

    Source is server p of sub-network a, destination server q of sub-network b.

    Within one X(0), level is 0, a and b are the servers, p and q are 0.
    """

    level: int
    base: int
    a: int
    p: int
    b: int
    q: int


def parting(t: Sequence[int], src: int, dst: int) -> Parting:
    """Return the sub-networks in which `src` and `dst` part."""
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
    """Return the number of servers 0 .. p-1 of an X(level-1) with a level-`level` link."""
    return (p + (1 << (level - 1))) >> level if rule == FICONN else p


def joined(rule: int, level: int, i: int) -> int:
    """Return the i-th server of an X(level-1) with a level-`level` link."""
    return (i << level) + (1 << (level - 1)) - 1 if rule == FICONN else i


def near(rule: int, t: Sequence[int], pair: Parting) -> bool:
    """Return True if src is near to dst (condition 1).

    That is, the link from a to b joins the X(h-2) of src to the X(h-2) of dst.
    """
    if pair.level == 0:
        return True
    size = t[pair.level - 2] if pair.level > 1 else 1
    return (
        gateway(rule, t, pair.level, pair.a, pair.b) // size == pair.p // size
        and gateway(rule, t, pair.level, pair.b, pair.a) // size == pair.q // size
    )


class Span(NamedTuple):
    """Links to candidate proxies, as numbers of joined().

    They are a_from .. a_to - 1 from sub-network a (Property 1) and b_from .. b_to - 1 from
    sub-network b (Property 2).
    """

    a_from: int
    a_to: int
    b_from: int
    b_to: int


def span(rule: int, t: Sequence[int], policy: Policy, pair: Parting) -> Span:
    """Return the links to the candidates of `policy`; empty if it has none."""
    level = pair.level
    if level == 0 or level < policy.least_level or (policy.condition1 and near(rule, t, pair)):
        return Span(0, 0, 0, 0)
    within = 0
    if policy.method == GP_E:
        within = level - 1
    elif policy.method == GP_I:
        within = max(level - 2, 0)
    size = t[within]
    p = pair.p - pair.p % size
    q = pair.q - pair.q % size
    b_from = joined_below(rule, level, q)
    # sub-network a as a whole is joined to all others; links from b would add none
    b_to = b_from if within == level - 1 else joined_below(rule, level, q + size)
    return Span(joined_below(rule, level, p), joined_below(rule, level, p + size), b_from, b_to)


def candidates(links: Span) -> int:
    """Return the upper limit of candidate()'s index."""
    return links.a_to - links.a_from + links.b_to - links.b_from


def candidate(rule: int, t: Sequence[int], pair: Parting, links: Span, index: int) -> int:
    """Return the `index`-th candidate proxy, a sub-network other than a and b; -1 for none.

    No sub-network has two indices.
    """
    level = pair.level
    i = links.a_from + index
    if i < links.a_to:
        c = far_subnetwork(rule, t, level, pair.a, joined(rule, level, i))
        return -1 if c == pair.b else c
    c = far_subnetwork(rule, t, level, pair.b, joined(rule, level, i - links.a_to + links.b_from))
    if (
        c == pair.a
        or links.a_from
        <= joined_below(rule, level, gateway(rule, t, level, pair.a, c))
        < links.a_to
    ):
        return -1
    return c


def hops(tables: PathTables, pair: Parting, proxy: int) -> int:
    """Return the length of the route by way of sub-network `proxy`; -1 is DR's route."""
    rule, t, level, a, b = tables.rule, tables.t, pair.level, pair.a, pair.b
    if level == 0:
        return 1 if a != b else 0
    if proxy < 0:
        to_b, from_a = bridge(rule, t, level, a, b)
        return (
            length(tables, level - 1, pair.p, to_b) + 1 + length(tables, level - 1, from_a, pair.q)
        )
    to_proxy, from_a = bridge(rule, t, level, a, proxy)
    from_proxy, to_b = bridge(rule, t, level, b, proxy)
    return (
        length(tables, level - 1, pair.p, to_proxy)
        + length(tables, level - 1, from_a, to_b)
        + length(tables, level - 1, from_proxy, pair.q)
        + 2
    )


def channels(
    tables: PathTables, pair: Parting, proxy: int, step: StepFunction, into: Any, value: int
) -> int:
    """Fold `step` over the channels of the route by way of sub-network `proxy`; -1 is DR's route.

    Returns:
        The last value of value = step(into, value, channel), in the order of the route.
    """
    rule, t, level = tables.rule, tables.t, pair.level
    if level == 0:
        return path(tables, 0, pair.base, pair.a, pair.b, step, into, value)
    ports, sub = tables.ports, t[level - 1]
    current, p = pair.a, pair.p
    while current != pair.b:
        target = pair.b if proxy < 0 or current == proxy else proxy
        leave = gateway(rule, t, level, current, target)
        base = pair.base + current * sub
        value = path(tables, level - 1, base, p, leave, step, into, value)
        value = step(into, value, (base + leave) * ports + level)
        p = gateway(rule, t, level, target, current)
        current = target
    return path(tables, level - 1, pair.base + current * sub, p, pair.q, step, into, value)


def most_channels(t: Sequence[int]) -> int:
    """Return an upper limit on the channels of a route."""
    return 9 << max(len(t) - 2, 0)


def most_routes(t: Sequence[int]) -> int:
    """Return an upper limit on the routes that search() compares."""
    return t[-1] // t[-2] if len(t) > 1 else 1


def shortest_first(hops: int, load: int) -> int:
    """Return the cost of the paper's choice (5.4): length first, then congestion."""
    return hops << 40 | load


def least_loaded_first(hops: int, load: int) -> int:
    """Return the cost of the alternative in 5.4: congestion first, then length."""
    return load << 16 | hops


# choice rules of 5.4.  DR_FIRST and SHORTER are SHORTEST, but near pairs keep DR with DR_FIRST, and
# with SHORTER all pairs keep it unless a route is shorter, as the title of Algorithm 1 says.
SHORTEST, LEAST_LOADED, DR_FIRST, SHORTER = range(4)


def cost_of(choice: int) -> RouteCost:
    """Return the function of hops and load that is a route's cost under a choice rule."""
    return least_loaded_first if choice == LEAST_LOADED else shortest_first


def measure(
    tables: PathTables, pair: Parting, links: Span, lengths: MutableSequence[int]
) -> tuple[int, int, int]:
    """Return the hops of the shortest routes, the first one's proxy, and their number.

    DR's route, with proxy -1, is one of the routes.  If not empty, `lengths` is filled with the
    hops of all routes: DR's, then each candidate()'s, or NO_ROUTE.
    """
    rule, t, store = tables.rule, tables.t, len(lengths) > 0
    fewest, shortest, count = hops(tables, pair, -1), -1, 1
    if store:
        lengths[0] = fewest
    for index in range(candidates(links)):
        proxy, length = candidate(rule, t, pair, links, index), NO_ROUTE
        if proxy >= 0:
            length = hops(tables, pair, proxy)
            if length < fewest:
                fewest, shortest, count = length, proxy, 0
            count += length == fewest
        if store:
            lengths[index + 1] = length
    return fewest, shortest, count


def next_length(lengths: Sequence[int], count: int, length: int) -> int:
    """Return the least of the first `count` lengths above `length`; NO_ROUTE if there is none."""
    longer = NO_ROUTE
    for index in range(count):
        if length < lengths[index] < longer:
            longer = lengths[index]
    return longer


def greatest_load(tables: PathTables, pair: Parting, proxy: int, load: Sequence[int]) -> int:
    """Return the greatest load on the route by way of sub-network `proxy`; -1 is DR's route."""
    return channels(tables, pair, proxy, fullest, load, 0)


def weighed_load(
    tables: PathTables, policy: Policy, pair: Parting, proxy: int, load: Sequence[int], dead: int
) -> int:
    """Return greatest_load(); with SHORTER 0 for DR's route if that is connected."""
    worst = greatest_load(tables, pair, proxy, load)
    return 0 if policy.choice == SHORTER and proxy < 0 and worst < dead else worst


def outweighs_load(cost: RouteCost, length: int, dead: int) -> bool:
    """Return True if no channel is dead, and `length` hops beat any longer route."""
    return dead == NEVER and cost(length, dead) < cost(length + 1, 0)


def takes_direct(
    tables: PathTables, policy: Policy, pair: Parting, load: Sequence[int], dead: int
) -> bool:
    """Return True if DR's route is connected and `policy` prefers it."""
    if not (policy.choice == DR_FIRST and near(tables.rule, tables.t, pair)):
        return False
    return not len(load) or greatest_load(tables, pair, -1, load) < dead


def proxy_of(tables: PathTables, pair: Parting, links: Span, index: int) -> int:
    """Return the proxy of route number `index` in measure()'s lengths; -1 for DR's route."""
    return candidate(tables.rule, tables.t, pair, links, index - 1) if index else -1


def search(
    tables: PathTables,
    policy: Policy,
    cost: RouteCost,
    pair: Parting,
    load: Sequence[int],
    dead: int,
    lengths: MutableSequence[int],
) -> tuple[int, int]:
    """Return the cheapest connected route: its hops, and its proxy or -1 for DR's route.

    DR's route wins ties; with SHORTER it is as good as idle.  Hops are -1 if no route is connected.

    Args:
        tables: lengths of DR's paths.
        policy: selection of proxies.
        cost: (hops, greatest load on a channel) -> cost; must not fall when either grows.
        pair: the pair of servers.
        load: load of each channel, at most NEVER; empty if all are alive and idle.
        dead: least load that means a dead channel.
        lengths: room for most_routes(t) numbers; empty if `load` is.
    """
    if takes_direct(tables, policy, pair, load, dead):
        return hops(tables, pair, -1), -1
    links = span(tables.rule, tables.t, policy, pair)
    length, shortest, count = measure(tables, pair, links, lengths)
    if not len(load) or (count == 1 and outweighs_load(cost, length, dead)):
        return length, shortest
    least, cheapest = DISCONNECTED, (-1, -1)
    routes = candidates(links) + 1
    while length < NO_ROUTE and cost(length, 0) < least:
        for index in range(routes):
            if lengths[index] == length:
                proxy = proxy_of(tables, pair, links, index)
                worst = weighed_load(tables, policy, pair, proxy, load, dead)
                price = cost(length, worst)
                if worst < dead and price < least:
                    least, cheapest = price, (length, proxy)
        length = next_length(lengths, routes, length)
    return cheapest


def alternatives(tables: PathTables, policy: Policy, src: int, dst: int) -> list[tuple[int, int]]:
    """Return the routes that `policy` allows, as (hops, proxy), in its order on idle links.

    The shortest come first; with DR_FIRST and near servers, DR's, with proxy -1.
    """
    pair = parting(tables.t, src, dst)
    links = span(tables.rule, tables.t, policy, pair)
    tried = [
        candidate(tables.rule, tables.t, pair, links, index) for index in range(candidates(links))
    ]
    routes = sorted(
        (hops(tables, pair, proxy), proxy) for proxy in [-1, *(c for c in tried if c >= 0)]
    )
    first = policy.choice == DR_FIRST and near(tables.rule, tables.t, pair)
    return sorted(routes, key=lambda route: route[1] != -1) if first else routes


def waypoints(
    rule: int, t: Sequence[int], src: int, dst: int, proxy: int
) -> tuple[int, int, int, int]:
    """Return the servers of the two links by which a route enters and leaves `proxy`.

    They are in the order of the route.
    """
    pair = parting(t, src, dst)
    a, b, c = (pair.base + subnetwork * t[pair.level - 1] for subnetwork in (pair.a, pair.b, proxy))
    return (
        a + gateway(rule, t, pair.level, pair.a, proxy),
        c + gateway(rule, t, pair.level, proxy, pair.a),
        c + gateway(rule, t, pair.level, proxy, pair.b),
        b + gateway(rule, t, pair.level, pair.b, proxy),
    )


def route(rule: int, t: Sequence[int], src: int, dst: int, proxy: int) -> list[int]:
    """Return the servers of the route by way of sub-network `proxy`, both ends included.

    -1 is DR's route.
    """
    if proxy < 0:
        return dr.route(rule, t, src, dst)
    leave, enter, depart, arrive = waypoints(rule, t, src, dst, proxy)
    return (
        dr.route(rule, t, src, leave)
        + dr.route(rule, t, enter, depart)
        + dr.route(rule, t, arrive, dst)
    )
