"""TAR, traffic-aware routing on FiConn (Li et al., ToN 2011; CCRDN 4.2.3).

A flow's path is set up by a probe.  Each server on the way compares its own two outgoing links: where DR, called TOR
there, says to leave by the server's level-l link and its level-0 link has more bandwidth available, the probe
bypasses the level-l link and reaches its aim by way of a third copy of X(l-1).  The probe carries one mark for each
level, so that a level is bypassed once at the most on any path through an X(l) (progressive route); a source does the
same for its own link (source re-route).

A flow that comes in on a server's level-0 link and leaves on its level-l link is booked on the outgoing level-0 link
too (virtual flow), for that is the link that it would load if it were bypassed.  Available bandwidth is what is left
of the capacity by real and virtual flows; its owner keeps the books.

So a dead link of a server's own is bypassed, and with it what lies beyond; a dead server behind the same switch is not.
Where a server dies that a pair's packets pass, one of the two directions enters it through its switch, and is lost.

Ours: the ToN paper is not at hand.  The third copy is that of another server of the same switch that has a level-l
link, drawn at random; where there is none, a copy drawn at random.

Written so that the same source runs as it stands, on lists, and compiled, on arrays.
"""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence

from daemons.core.mixing import mixed
from daemons.routing.dr import next_hop as dr_next_hop
from topologies.recursive.ccrdn import common_level, far_copy, gateway, peer

# What a probe carries for each level: the server by which it enters the third copy, or one of these two.
NOT_BYPASSED = -1
BYPASSED = -2

DROP = -1


def start(marks: MutableSequence[int]) -> None:
    """Fill in a probe's marks, k + 1 of them, at its source."""
    for level in range(len(marks)):
        marks[level] = NOT_BYPASSED


def third_copy(rule: int, t: Sequence[int], cur: int, level: int, draw: int) -> int:
    """The server by which a path from `cur` enters a copy of X(level-1) other than its own and the one that its
    level- `level` link leads to; -1 if there is no third."""
    sub, n = t[level - 1], t[0]
    base = cur - cur % t[level]
    i, p = (cur - base) // sub, cur % sub
    j = far_copy(rule, t, level, i, p)
    mates = 0
    for q in range(p - p % n, p - p % n + n):
        mates += q != p and far_copy(rule, t, level, i, q) >= 0
    if mates:
        left = draw % mates
        c = -1
        for q in range(p - p % n, p - p % n + n):
            if q != p and far_copy(rule, t, level, i, q) >= 0:
                if left == 0:
                    c = far_copy(rule, t, level, i, q)
                left -= 1
    else:
        others = t[level] // sub - 2
        if others == 0:
            return -1
        c = draw % others
        c += c >= min(i, j)
        c += c >= max(i, j)
    return base + c * sub + gateway(rule, t, level, c, i)


def next_hop(
    rule: int,
    t: Sequence[int],
    cur: int,
    dst: int,
    marks: MutableSequence[int],
    available_level_0: int,
    available_link: int,
    draw: int,
) -> int:
    """The neighbour to which server `cur` hands a probe for `dst`, whose `marks` it changes; DROP if the link is
    dead.

    available_level_0, available_link: bandwidth left on the two outgoing links of `cur`, in any one unit; 0 if dead.
    draw: any number, drawn for this server and this probe.
    """
    for level in range(1, len(marks)):
        if marks[level] == cur:
            marks[level] = BYPASSED
    target = dst
    for level in range(len(marks) - 1, 0, -1):
        if marks[level] >= 0:
            target = marks[level]
    to = dr_next_hop(rule, t, cur, target)
    link = common_level(t, cur, to)
    if link and marks[link] == NOT_BYPASSED and available_level_0 > available_link:
        relay = third_copy(rule, t, cur, link, draw)
        if relay >= 0:
            marks[link] = relay
            to = dr_next_hop(rule, t, cur, relay)
            link = 0  # the server's one other link does not lead there
    for level in range(1, link):
        marks[level] = NOT_BYPASSED
    return to if (available_link if link else available_level_0) > 0 else DROP


def is_virtual(came_in: int, goes_out: int) -> bool:
    """Whether a flow that comes in by a server's port `came_in`, -1 at its source, and leaves by port `goes_out` is
    booked on the outgoing level-0 link as well."""
    return came_in == 0 and goes_out != 0


def number(*parts: int) -> int:
    """32 bits that tell a flow, given by what is special to it, from others."""
    found = 0
    for part in parts:
        found = mixed(found & 0xFFFFFFFF, part)
    return found & 0xFFFFFFFF


def drawn(server: int, flow: int, attempt: int) -> int:
    """The number that `server` draws for the probe of a flow: any, but the same for everybody who asks.

    flow: up to 32 bits that tell it from others.  attempt: probes of this flow that have failed before, below 2^31.
    """
    return mixed(server, flow << 31 | attempt) >> 1


def shortcut(path: Sequence[int]) -> list[int]:
    """`path` less its circles: at a server that it visits more than once it goes on as after the last time."""
    last = {server: at for at, server in enumerate(path)}
    found, at = [], 0
    while at < len(path):
        found.append(path[at])
        at = last[path[at]] + 1
    return found


def route(
    rule: int, t: Sequence[int], down: Sequence[int], src: int, dst: int, *, flow: int = 0, attempt: int = 0
) -> tuple[list[int], bool]:
    """The servers that a probe visits where no link is busier than another, `src` first, and whether it arrives.

    down: 1 for each dead channel of the whole network, as in daemons/routing/scope.py.
    """
    ports = len(t) + 1
    marks = [0] * len(t)
    start(marks)
    path = [src]
    while path[-1] != dst:
        cur = path[-1]
        links = [level for level in range(1, len(t)) if peer(rule, t, cur, level) >= 0]
        free_link = int(any(not down[cur * ports + level] for level in links))
        to = next_hop(rule, t, cur, dst, marks, 1 - down[cur * ports], free_link, drawn(cur, flow, attempt))
        if to == DROP or (common_level(t, cur, to) == 0 and down[(to + 1) * ports - 1]):
            return path, False
        path.append(to)
    return path, True
