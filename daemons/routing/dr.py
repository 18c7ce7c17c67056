"""Dimensional routing, DR (CCRDN, definition 4.1): DCellRouting on DCell, TOR on FiConn.

A path from copy i to copy j leads to the server of copy i that is linked to copy j, over that link,
and on within copy j, recursively.  DR is consistent hop by hop: next_hop(u, dst) at each server u
of route(src, dst) is the next server of that route.  Prefix routes in each server implement it.

`rule` and `t` are those of topologies/recursive/ccrdn.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.daemons.core.actions import Hop
from weft.topologies.core.address import Prefix
from weft.topologies.recursive.ccrdn import Ccrdn, common_level, gateway, peer


def next_hop(rule: int, t: Sequence[int], cur: int, dst: int) -> int:
    """Return the server after `cur` on DR's route to `dst`; `cur` and `dst` must differ."""
    target = dst
    while True:
        level = common_level(t, cur, target)
        if level == 0:
            return target
        sub = t[level - 1]
        base = cur - cur % t[level]
        i, j = (cur - base) // sub, (target - base) // sub
        near = base + i * sub + gateway(rule, t, level, i, j)
        if near == cur:
            return base + j * sub + gateway(rule, t, level, j, i)
        target = near


def route(rule: int, t: Sequence[int], src: int, dst: int) -> list[int]:
    """Return the servers from `src` to `dst`, both included; at most 2**(k+1) - 1 hops."""
    path = [src]
    while path[-1] != dst:
        path.append(next_hop(rule, t, path[-1], dst))
    return path


def hop_to(network: Ccrdn, server: int, to: int) -> Hop:
    """Return the hop to the neighbour `to`: port 0 within a crossbar, else the port of their level.

    Raises:
        ValueError: the servers are not neighbours.
    """
    level = common_level(network.t, server, to)
    if level and peer(network.rule, network.t, server, level) != to:
        raise ValueError(f"servers {server} and {to} are not neighbours")
    return Hop(network.port(level), to)


def prefix_routes(network: Ccrdn, server: int) -> list[tuple[Prefix, Hop]]:
    """Return DR's routing table of `server`.

    One prefix for each sibling copy of each level and for each neighbour behind the crossbar: the
    sum of g_l - 1 over all levels l.
    """
    rule, t, layout = network.rule, network.t, network.layout
    label = layout.label_of(server)
    routes = []
    for level in range(network.k, -1, -1):
        above, own = label[: network.k - level], label[network.k - level]
        size = t[level - 1] if level else 1
        for copy in range(network.copies[level]):
            if copy != own:
                first = server - server % t[level] + copy * size
                hop = hop_to(network, server, next_hop(rule, t, server, first))
                routes.append((layout.prefix((*above, copy)), hop))
    return routes
