"""TAR, traffic-aware routing on FiConn, as pure functions (CCRDN 4.2.3).

The source is Li et al., FiConn, ToN 2011.

A probe sets up a flow's path, hop by hop.  It follows DR (TOR in the paper).  Let TOR's next hop at
server s be s's own level-l link, l >= 1, to another X(l-1).  If more bandwidth is available on the
level-0 link of s than on its level-l link, s bypasses its level-l link: another server s' of the
same switch takes its place.

    Source Re-route    If the flow came to s by level 0, the server before s is at the same switch.
                       It sends to s' directly, and s leaves the path.  At the flow's source, s
                       itself sends to s'.
    Virtual flows      A bypassed flow that came to s by level 0 still counts on the outgoing
                       level-0 link of s until it expires.  Otherwise a server with an idle level-0
                       link would bypass every flow forever.  The caller counts these flows.
    Progressive Route  The probe has one mark for each level.  A level is bypassed at most once in
                       one X(l); crossing a level-l link clears the marks of the levels below l.
    Bound              A path has at most 2 * 3^m - 1 hops; source and destination part at level m.
                       A bypass that could exceed the bound is not made.

The paper draws s' from the servers of the switch, and leaves open where the path goes from there.
TOR leads from any server of an X(l-1) to the same level-l link, that of s.  So the path must lead
to a third X(l-1), as with DFR's proxies, to which the paper compares it.  `relay` is the reading:

    SUBNETWORK  Draw a third X(l-1); s' is the first server of TOR's path to it.  The default.
    LINKED      Draw s' from the servers of the switch with a level-l link; the flow takes that
                link.  Without such a server, as at the top level of most switches, nothing is
                bypassed.  With few, all flows to one X(l-1) pass the same other one.
    ANY         Draw s' from all servers of the switch; it goes on by TOR.  The flow comes back to
                s and takes the busy link one hop later.

A dead level-l link has no bandwidth available.  If a dead server s is TOR's next hop behind the
switch, the server before it decides in its place, and s leaves the path as by Source Re-route.

The same source runs interpreted, on lists, and compiled, on arrays.
"""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence
from typing import NamedTuple

from weft.daemons.core.mixing import mixed
from weft.daemons.routing.dr import next_hop as dr_next_hop
from weft.topologies.recursive.ccrdn import common_level, far_subnetwork, gateway, peer

ANY, LINKED, SUBNETWORK = 0, 1, 2

# A probe's mark for a level: the server by which it enters the third sub-network, or one of these.
NOT_BYPASSED = -1
BYPASSED = -2

NO_RELAY = -1

# Results of next_hop() in place of a neighbour.
DROP = -1
BACK = -2


def start(marks: MutableSequence[int]) -> None:
    """Fill in a probe's marks, k + 1 of them, at its source."""
    for level in range(len(marks)):
        marks[level] = NOT_BYPASSED


def most_hops(level: int) -> int:
    """Return the most hops between servers that part at `level` (Li et al., theorem 7)."""
    hops = 1
    for _ in range(level):
        hops = 3 * hops + 2
    return hops


def extend(path: MutableSequence[int], length: int, server: int) -> int:
    """Append `server` to a path of `length` servers; return the new length.

    A path that returns to a server is cut back to it, because a flow has one next hop at a server.
    `path` has room for length + 1 numbers.
    """
    for position in range(length):
        if path[position] == server:
            return position + 1
    path[length] = server
    return length + 1


def towards(marks: MutableSequence[int], cur: int, dst: int) -> int:
    """Return a probe's next target: the entry of the innermost third sub-network ahead, or `dst`.

    Marks the target that it has reached at `cur` as bypassed.
    """
    target = dst
    for level in range(len(marks) - 1, 0, -1):
        if marks[level] == cur:
            marks[level] = BYPASSED
        elif marks[level] >= 0:
            target = marks[level]
    return target


def remaining(rule: int, t: Sequence[int], cur: int, dst: int, marks: Sequence[int]) -> int:
    """Return the hops of a probe from `cur` to `dst` without a further bypass."""
    hops, level = 0, 1
    while cur != dst:
        while level < len(marks) and (marks[level] < 0 or marks[level] == cur):
            level += 1
        cur = dr_next_hop(rule, t, cur, marks[level] if level < len(marks) else dst)
        hops += 1
    return hops


class Site(NamedTuple):
    """A server that decides on a probe, and what it knows.

    rule: connection rule of the network.
    t: servers of a sub-network of each level.
    relay: reading of the paper, see above.
    server: the last of the path.
    free_level_0: bandwidth available on its level-0 link, in any unit; 0 if dead.
    free_link: the same of its other link.
    dead: 1 for each server that is not reachable by the switch, by position at the switch; empty
        if all are.
    draw: any number, drawn for this server and this probe.
    """

    rule: int
    t: Sequence[int]
    relay: int
    server: int
    free_level_0: int
    free_link: int
    dead: Sequence[int]
    draw: int


def reachable(site: Site, to: int) -> bool:
    """Return True if `to`, at the switch of the site, is its server or reachable by the switch."""
    if to == site.server:
        return True
    return site.free_level_0 > 0 and not (len(site.dead) and site.dead[to % site.t[0]])


def mate(site: Site, leaving: int, level: int) -> int:
    """Return a drawn server of the site's switch to take the place of `leaving`, or NO_RELAY.

    It has a level-`level` link, unless `level` is 0.
    """
    n = site.t[0]
    first = site.server - site.server % n
    count = 0
    for _ in range(2):  # count the candidates, then draw one
        index = site.draw % count if count else -1
        count = 0
        for server in range(first, first + n):
            if server == leaving or not reachable(site, server):
                continue
            if level == 0 or peer(site.rule, site.t, server, level) >= 0:
                if count == index:
                    return server
                count += 1
    return NO_RELAY


def third_subnetwork(rule: int, t: Sequence[int], server: int, level: int, draw: int) -> int:
    """Return the server by which TOR enters a drawn third X(level-1), or NO_RELAY.

    It is neither `server`'s own X(level-1) nor the one at the far end of its level-`level` link.
    """
    sub = t[level - 1]
    base = server - server % t[level]
    i = (server - base) // sub
    j = far_subnetwork(rule, t, level, i, server % sub)
    others = t[level] // sub - 2
    if others == 0:
        return NO_RELAY
    c = draw % others
    c += c >= min(i, j)
    c += c >= max(i, j)
    return base + c * sub + gateway(rule, t, level, c, i)


def waypoint(site: Site, leaving: int, level: int) -> int:
    """Return the next target of a flow that bypasses the level-`level` link of `leaving`.

    With ANY, it is s' itself; otherwise the server by which the flow enters a third sub-network.
    NO_RELAY if there is none.
    """
    if site.relay == SUBNETWORK:
        return third_subnetwork(site.rule, site.t, leaving, level, site.draw)
    server = mate(site, leaving, 0 if site.relay == ANY else level)
    return server if site.relay == ANY or server < 0 else peer(site.rule, site.t, server, level)


def bypass(
    site: Site,
    path: Sequence[int],
    before: int,
    dst: int,
    marks: MutableSequence[int],
    leaving: int,
    level: int,
) -> bool:
    """Mark a bypass of the level-`level` link of `leaving`; return False if there is none.

    The path goes on from its position `before`.  Other arguments as in next_hop().
    """
    if marks[level] != NOT_BYPASSED:  # once in an X(level)
        return False
    target = waypoint(site, leaving, level)
    if target < 0:
        return False
    marks[level] = target
    most = most_hops(common_level(site.t, path[0], dst))
    if before + remaining(site.rule, site.t, path[before], dst, marks) > most:
        marks[level] = NOT_BYPASSED
        return False
    return True


def came_by_switch(t: Sequence[int], path: Sequence[int], length: int) -> bool:
    """Return True if the last two of `length` servers of `path` are at one switch."""
    return length > 1 and path[length - 2] // t[0] == path[length - 1] // t[0]


def link_level(rule: int, t: Sequence[int], server: int, target: int) -> int:
    """Return the level of DR's first link from `server` towards `target`."""
    return common_level(t, server, dr_next_hop(rule, t, server, target))


def next_hop(
    site: Site, path: Sequence[int], length: int, dst: int, marks: MutableSequence[int]
) -> int:
    """Return the neighbour to which a probe goes from the last of `length` servers of `path`.

    Updates `marks`.

    Args:
        site: the last server.
        path: servers of the path, with room for more.
        length: number of servers on the path.
        dst: destination.
        marks: the probe's mark for each level.

    Returns:
        The neighbour.  DROP: the probe can go no further.  BACK: this server bypasses its link and
        leaves the path; the server before it, at the same switch, decides next.
    """
    rule, t, cur = site.rule, site.t, site.server
    while True:
        target = towards(marks, cur, dst)
        server = dr_next_hop(rule, t, cur, target)
        link = common_level(t, cur, server)
        leaving, level, before = cur, link, length - 1
        if link:
            if site.free_level_0 <= site.free_link:
                break
            before -= came_by_switch(t, path, length)
        elif reachable(site, server):
            return server
        elif server == target:
            return DROP
        else:
            leaving = server
            level = link_level(rule, t, server, target)
        if not bypass(site, path, before, dst, marks, leaving, level):
            break
        if before < length - 1:
            return BACK
    for level in range(1, link):
        marks[level] = NOT_BYPASSED
    return server if link and site.free_link > 0 else DROP


def flow_hash(*parts: int) -> int:
    """Return 32 bits that tell a flow with these parts from others."""
    value = 0
    for part in parts:
        value = mixed(value & 0xFFFFFFFF, part)
    return value & 0xFFFFFFFF


def draw_at(server: int, flow: int, attempt: int) -> int:
    """Return the number that `server` draws for a flow's probe; a pure function of the arguments.

    Args:
        server: the server.
        flow: the flow's hash, up to 32 bits.
        attempt: failed probes of this flow before this one, below 2^31.
    """
    return mixed(server, flow << 31 | attempt) >> 1


def unreachable(t: Sequence[int], down: Sequence[int], server: int) -> Sequence[int]:
    """Return `dead` of a Site at `server`, from all dead channels (routing/shortest.py).

    Empty if `down` is.
    """
    ports, first = len(t) + 1, server - server % t[0]
    return down[(first + 1) * ports - 1 : (first + t[0]) * ports : ports]


def free_links(rule: int, t: Sequence[int], down: Sequence[int], server: int) -> tuple[int, int]:
    """Return 1 if the level-0 link of `server` is alive, and 1 if its other link is.

    Otherwise 0.
    """
    channels = down[server * (len(t) + 1) : (server + 1) * (len(t) + 1)]
    links = [level for level in range(1, len(t)) if peer(rule, t, server, level) >= 0]
    return 1 - channels[0], int(any(not channels[level] for level in links))


def route(
    rule: int,
    t: Sequence[int],
    down: Sequence[int],
    src: int,
    dst: int,
    *,
    relay: int = SUBNETWORK,
    flow: int = 0,
    attempt: int = 0,
) -> tuple[list[int], bool]:
    """Return a probe's path if all links are equally busy, `src` first, and whether it arrives.

    Args:
        rule: connection rule of the network.
        t: servers of a sub-network of each level.
        down: 1 for each dead channel of the whole network, as in daemons/routing/shortest.py.
        src: source.
        dst: destination.
        relay: reading of the paper, see above.
        flow: the flow's hash.
        attempt: failed probes of this flow before this one.
    """
    marks = [NOT_BYPASSED] * len(t)
    path = [src, *[0] * most_hops(len(t) - 1)]
    length = 1
    while path[length - 1] != dst:
        cur = path[length - 1]
        free, free_link = free_links(rule, t, down, cur)
        dead, draw = unreachable(t, down, cur), draw_at(cur, flow, attempt)
        site = Site(rule, t, relay, cur, free, free_link, dead, draw)
        server = next_hop(site, path, length, dst, marks)
        if server == DROP:
            return path[:length], False
        length = length - 1 if server == BACK else extend(path, length, server)
    return path[:length], True
