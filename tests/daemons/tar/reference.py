"""TAR by lists and searches, as daemons/tar/routing.py describes it; the two have nothing in common
but DR."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

from weft.daemons.routing import dr
from weft.daemons.tar.routing import ANY, SUBNETWORK
from weft.topologies.recursive.ccrdn import Ccrdn


@dataclass
class State:
    """State of a network that a probe meets.

    Attributes:
        available: bandwidth on a server's level-0 link and on its other link, 0 if dead.
        dead: servers.
        draw: the number that is drawn in each turn.
        virtual: flows, counted.
    """

    available: Callable[[int], tuple[int, int]]
    dead: frozenset[int]
    draw: Callable[[int], int]
    virtual: list[int] = field(default_factory=list)


def tor(network: Ccrdn, src: int, dst: int) -> list[int]:
    return dr.route(network.rule, network.t, src, dst)


def level_of(network: Ccrdn, a: int, b: int) -> int:
    """The level of the link between two neighbours, or at which two servers part."""
    return next(level for level, size in enumerate(network.t) if a // size == b // size)


def reaches(network: Ccrdn, cur: int, to: int, state: State) -> bool:
    """Return whether `cur` can send to `to`, which is at its switch."""
    return to == cur or (state.available(cur)[0] > 0 and to not in state.dead)


def goal_of_bypass(
    network: Ccrdn, relay: int, cur: int, server: int, level: int, state: State, draw: int
) -> int | None:
    """Where a flow goes from `cur` that does not take the level-`level` link of `server`, at the
    same switch."""
    mates = [
        mate
        for mate in range(network.t[-1])
        if mate // network.n == server // network.n and mate != server
    ]
    mates = [mate for mate in mates if reaches(network, cur, mate, state)]
    if relay == ANY:
        return mates[draw % len(mates)] if mates else None
    size = network.t[level - 1]
    if relay == SUBNETWORK:
        far = network.peer(server, level)
        copies = {
            other // size
            for other in range(network.t[-1])
            if other // network.t[level] == server // network.t[level]
        }
        third = sorted(copies - {server // size, far // size})
        if not third:
            return None
        copy = third[draw % len(third)]
        ends = [(network.peer(a, level), a) for a in range(copy * size, (copy + 1) * size)]
        return next(a for b, a in ends if b >= 0 and b // size == server // size)
    linked = [mate for mate in mates if level in network.levels(mate)]
    return network.peer(linked[draw % len(linked)], level) if linked else None


def path_of(network: Ccrdn, relay: int, src: int, dst: int, state: State) -> list[int] | None:
    """The path of a flow; None if its probe does not arrive."""
    path, goals, used, turn = [src], [dst], set[int](), -1
    bound = 2 * 3 ** level_of(network, src, dst) - 1
    while path[-1] != dst:
        turn += 1
        cur, stay = path[-1], False
        free, free_link = state.available(cur)
        while True:
            while len(goals) > 1 and goals[-1] == cur:
                goals.pop()
            to = tor(network, cur, goals[-1])[1]
            link = level_of(network, cur, to)
            if link and free <= free_link:
                break
            if not link and reaches(network, cur, to, state):
                break
            if not link and to == goals[-1]:
                return None
            s = cur if link else to
            level = link or level_of(network, to, tor(network, to, goals[-1])[1])
            stay = bool(link) and len(path) > 1 and path[-2] // network.n == cur // network.n
            kept = path[:-1] if stay else path
            goal = (
                None
                if level in used
                else goal_of_bypass(network, relay, cur, s, level, state, state.draw(turn))
            )
            if goal is not None:
                stops = [kept[-1], goal, *reversed(goals)]
                hops = len(kept) - 1 + sum(len(tor(network, a, b)) - 1 for a, b in pairwise(stops))
                if dst in tor(network, kept[-1], goal):
                    hops = len(kept) - 1 + tor(network, kept[-1], goal).index(dst)
                if hops > bound:
                    goal = None
            if goal is None:
                stay = False
                if link:
                    break
                return None
            goals.append(goal)
            used.add(level)
            if stay:
                state.virtual.append(s)
                path = kept
                break
        if stay:
            continue
        if (free_link if link else free) == 0:
            return None
        if link:
            used = {level for level in used if level >= link}
        path = path[: path.index(to) + 1] if to in path else [*path, to]
    return path
