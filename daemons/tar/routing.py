"""TAR, traffic-aware routing on FiConn, as pure functions (CCRDN 4.2.3, after Li et al., FiConn,
ToN 2011).

A flow's path is set up by a probe, hop by hop.  The probe follows DR, which is called TOR there.
Let TOR's next hop at server s be s's own level-l link, l >= 1, to another X(l-1).  If more
bandwidth is available on the level-0 link of s than on its level-l link, s bypasses its level-l
link: another server s' of the same switch takes its place.

    Source Re-route    Where the flow came to s by level 0, the server before s sits at the same
                       switch.  It sends to s' directly, and s leaves the path.  Where s is the
                       flow's source, s itself sends to s'.
    Virtual flows      A flow that came to s by level 0 and that s bypassed counts on the outgoing
                       level-0 link of s, for as long as it is kept fresh, although s is not on its
                       path.  Without this rule a server whose level-0 link is idle would bypass
                       every flow for ever.  The caller keeps the count and gives the bandwidth that
                       real and virtual flows leave.
    Progressive Route  The probe has one mark for each level.  A level is bypassed at most once in
                       one X(l); a flow that crosses a level-l link begins anew with the levels
                       below l.
    Bound              No path is longer than 2 * 3^m - 1 hops, where m is the level at which source
                       and destination part.  A bypass that could lead to a longer path is not made.

The text leaves open what s' does, and says only that it is drawn at random from the servers of the
switch.  From any server of an X(l-1), TOR leads to the same level-l link, that of s.  So the path
from s' has to lead elsewhere, to a third X(l-1), as by the proxies of DFR, to which the text
compares it.  `relay` chooses the reading:

    COPY     A third X(l-1) is drawn, and s' is the first server of TOR's path to it.  The default.
    LINKED   s' is drawn from the servers of the switch that have a level-l link, and the flow takes
             that link.  Where there is none, as at the top level of most switches, nothing is
             bypassed.  Where there are few, all flows from everywhere to one X(l-1) are led through
             the same other one.
    ANY      s' is any other server of the switch and goes on by TOR: the text's words and nothing
             else.  The flow comes back to s and takes the busy link after all, one hop later.

Dead links and servers.  A dead level-l link has no bandwidth available.  Where the dead server s
itself is TOR's next hop behind the switch, the server before it decides as s would: s leaves the
path as by Source Re-route.

Written so that the same source runs as it stands, on lists, and compiled, on arrays.
"""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence

from weft.daemons.core.mixing import mixed
from weft.daemons.routing.dr import next_hop as dr_next_hop
from weft.topologies.recursive.ccrdn import common_level, far_subnetwork, gateway, peer

ANY, LINKED, COPY = 0, 1, 2

# What a probe carries for each level: the server by which it enters the third copy, or one of these
# two.
NOT_BYPASSED = -1
BYPASSED = -2

NO_RELAY = -1

# What next_hop() gives in place of a neighbour.
DROP = -1
BACK = -2


def start(marks: MutableSequence[int]) -> None:
    """Fill in a probe's marks, k + 1 of them, at its source."""
    for level in range(len(marks)):
        marks[level] = NOT_BYPASSED


def most_hops(level: int) -> int:
    """The most hops of a path between two servers that part at `level` (Li et al., theorem 7)."""
    hops = 1
    for _ in range(level):
        hops = 3 * hops + 2
    return hops


def extend(path: MutableSequence[int], length: int, server: int) -> int:
    """Let a path of `length` servers go on to `server`, and return its new length.

    A path that comes to a server again is cut back to it, because a flow has one next hop at a
    server.  path: room for length + 1 numbers.
    """
    for at in range(length):
        if path[at] == server:
            return at + 1
    path[length] = server
    return length + 1


def towards(marks: MutableSequence[int], cur: int, dst: int) -> int:
    """Where a probe for `dst` goes first from server `cur`: the innermost third copy that it has
    still to enter, or `dst`.  What it has reached with `cur` is marked as bypassed."""
    target = dst
    for level in range(len(marks) - 1, 0, -1):
        if marks[level] == cur:
            marks[level] = BYPASSED
        elif marks[level] >= 0:
            target = marks[level]
    return target


def remaining(rule: int, t: Sequence[int], cur: int, dst: int, marks: Sequence[int]) -> int:
    """The hops that a probe has still to go from `cur` if it makes no further bypass."""
    hops, level = 0, 1
    while cur != dst:
        while level < len(marks) and (marks[level] < 0 or marks[level] == cur):
            level += 1
        cur = dr_next_hop(rule, t, cur, marks[level] if level < len(marks) else dst)
        hops += 1
    return hops


def reachable(cur: int, to: int, n: int, free_level_0: int, dead: Sequence[int]) -> bool:
    """Whether server `cur` is, or reaches by its switch, the server `to` of the same switch;
    arguments as in next_hop()."""
    return to == cur or (free_level_0 > 0 and not (len(dead) and dead[to % n]))


def mate(
    rule: int,
    t: Sequence[int],
    cur: int,
    leaving: int,
    level: int,
    free_level_0: int,
    dead: Sequence[int],
    draw: int,
) -> int:
    """A server of the switch of `cur` that is drawn to take the place of `leaving`, one that has a
    level- `level` link too; NO_RELAY if there is none.  level: 0 for any server.  The other
    arguments as in next_hop()."""
    n, first, fit = t[0], cur - cur % t[0], 0
    for _ in range(2):  # count those that fit, then go to the one that is drawn
        left = draw % fit if fit else -1
        fit = 0
        for server in range(first, first + n):
            if server == leaving or not reachable(cur, server, n, free_level_0, dead):
                continue
            if level == 0 or peer(rule, t, server, level) >= 0:
                if fit == left:
                    return server
                fit += 1
    return NO_RELAY


def third_subnetwork(rule: int, t: Sequence[int], server: int, level: int, draw: int) -> int:
    """The server by which TOR enters a copy of X(level-1), drawn from those that are neither
    `server`'s own nor the one at the far end of its level- `level` link; NO_RELAY if there is no
    third."""
    sub, base = t[level - 1], server - server % t[level]
    i = (server - base) // sub
    j = far_subnetwork(rule, t, level, i, server % sub)
    others = t[level] // sub - 2
    if others == 0:
        return NO_RELAY
    c = draw % others
    c += c >= min(i, j)
    c += c >= max(i, j)
    return base + c * sub + gateway(rule, t, level, c, i)


def waypoint(
    rule: int,
    t: Sequence[int],
    relay: int,
    cur: int,
    leaving: int,
    level: int,
    free_level_0: int,
    dead: Sequence[int],
    draw: int,
) -> int:
    """The server to which a flow goes first that is at `cur` and bypasses the level- `level` link
    of `leaving`: the one by which it enters a third copy, or with ANY s' itself; NO_RELAY if
    nothing fits.  Arguments as in next_hop()."""
    if relay == COPY:
        return third_subnetwork(rule, t, leaving, level, draw)
    server = mate(rule, t, cur, leaving, 0 if relay == ANY else level, free_level_0, dead, draw)
    return server if relay == ANY or server < 0 else peer(rule, t, server, level)


def bypass(
    rule: int,
    t: Sequence[int],
    relay: int,
    path: Sequence[int],
    before: int,
    dst: int,
    marks: MutableSequence[int],
    cur: int,
    leaving: int,
    level: int,
    free_level_0: int,
    dead: Sequence[int],
    draw: int,
) -> bool:
    """Whether a probe that is at `cur`, and was to go on over the level- `level` link of the server
    `leaving`, may go elsewhere from place `before` of its path; marks where to.  Arguments as in
    next_hop()."""
    if marks[level] != NOT_BYPASSED:
        return False
    to = waypoint(rule, t, relay, cur, leaving, level, free_level_0, dead, draw)
    if to < 0:
        return False
    marks[level] = to
    if before + remaining(rule, t, path[before], dst, marks) > most_hops(
        common_level(t, path[0], dst)
    ):
        marks[level] = NOT_BYPASSED
        return False
    return True


def next_hop(
    rule: int,
    t: Sequence[int],
    relay: int,
    path: Sequence[int],
    length: int,
    dst: int,
    marks: MutableSequence[int],
    free_level_0: int,
    free_link: int,
    dead: Sequence[int],
    draw: int,
) -> int:
    """The neighbour to which a probe for `dst` goes from the last of the first `length` servers of
    `path`.

    DROP if the probe can go no further.  BACK if this server bypasses its link and leaves the path:
    the probe goes back to the server before it, at the same switch, and that one is asked next.

    marks: the probe's, which are changed.
    free_level_0, free_link: bandwidth available on the server's two outgoing links, in any one
        unit; 0 if dead.
    dead: 1 for each server of the switch, by its place there, that cannot be reached by it; empty
        if all can.
    draw: any number, drawn for this server and this probe.
    """
    cur, n = path[length - 1], t[0]
    while True:
        target = towards(marks, cur, dst)
        to = dr_next_hop(rule, t, cur, target)
        link = common_level(t, cur, to)
        if link:
            leaving, level = cur, link
            before = length - 2 if length > 1 and path[length - 2] // n == cur // n else length - 1
            if free_level_0 <= free_link:
                break
        else:
            leaving, before = to, length - 1
            if reachable(cur, to, n, free_level_0, dead):
                break
            if to == target:
                return DROP
            level = common_level(t, to, dr_next_hop(rule, t, to, target))
        if not bypass(
            rule, t, relay, path, before, dst, marks, cur, leaving, level, free_level_0, dead, draw
        ):
            if link:
                break
            return DROP
        if before < length - 1:
            return BACK
    for level in range(1, link):
        marks[level] = NOT_BYPASSED
    return to if (free_link if link else free_level_0) > 0 else DROP


def number(*parts: int) -> int:
    """32 bits that tell a flow, given by what is special to it, from others."""
    found = 0
    for part in parts:
        found = mixed(found & 0xFFFFFFFF, part)
    return found & 0xFFFFFFFF


def drawn(server: int, flow: int, attempt: int) -> int:
    """The number that `server` draws for the probe of a flow: any, but the same for everybody who
    asks.

    flow: up to 32 bits that tell it from others.  attempt: probes of this flow that have failed
        before, below 2^31.
    """
    return mixed(server, flow << 31 | attempt) >> 1


def unreachable(t: Sequence[int], down: Sequence[int], server: int) -> Sequence[int]:
    """`dead` of next_hop() at `server`, given all dead channels as in daemons/routing/scope.py;
    empty if `down` is."""
    ports, first = len(t) + 1, server - server % t[0]
    return down[(first + 1) * ports - 1 : (first + t[0]) * ports : ports]


def route(
    rule: int,
    t: Sequence[int],
    down: Sequence[int],
    src: int,
    dst: int,
    *,
    relay: int = COPY,
    flow: int = 0,
    attempt: int = 0,
) -> tuple[list[int], bool]:
    """The path that a probe finds where no link is busier than another, `src` first, and whether it
    arrives.

    down: 1 for each dead channel of the whole network, as in daemons/routing/scope.py.
    """
    ports, marks = len(t) + 1, [0] * len(t)
    start(marks)
    path, length = [src, *[0] * most_hops(len(t) - 1)], 1
    while path[length - 1] != dst:
        cur = path[length - 1]
        links = [level for level in range(1, len(t)) if peer(rule, t, cur, level) >= 0]
        free_link = int(any(not down[cur * ports + level] for level in links))
        free, dead = 1 - down[cur * ports], unreachable(t, down, cur)
        to = next_hop(
            rule,
            t,
            relay,
            path,
            length,
            dst,
            marks,
            free,
            free_link,
            dead,
            drawn(cur, flow, attempt),
        )
        if to == DROP:
            return path[:length], False
        length = length - 1 if to == BACK else extend(path, length, to)
    return path[:length], True
