"""Addresses that say by way of whom a packet goes, so that the servers on its way need not know
whose it is.

A server has its address 10.x.y.z, and one more for each copy of each level that may be a proxy: 64
+ p in place of 10, where p is 0 for no proxy (DR), and the copies of level 1, of level 2, ... are
numbered from 1 on.  In DCell_{1,4}, whose copies are 0 .. 4, a packet for 10.0.1.3 by way of copy 2
carries the address 67.0.1.3.

What a server does with such an address follows from prefixes alone.  By way of copy c of level h,
outside c:

    to a server of its own copy of level h      DR within that copy
    to anybody else in its X(h)                 DR to c, the same for all of them

and within c: DR.  So the steered path is DR to c, the link out of c, DR on: CCRDN's route of order
3 (definition 5.1).

Ours: the paper leaves open how the packets of a flow are kept on the path chosen.  These prefixes
cost a server, beside those of DR, (g_h - 1)(1 + s) + g_h - 1 + s routes for each h, s the sum of
g_l - 1 over l < h: 23 in DCell_{1,4}, 103 in DCell_{2,3}.
"""

from __future__ import annotations

from weft.daemons.core.actions import Hop
from weft.daemons.routing import dr, first_octets
from weft.daemons.routing.first_octets import BELOW_LOOPBACK, LABEL
from weft.topologies.core.address import SERVER_BLOCK, Prefix
from weft.topologies.recursive.ccrdn import Ccrdn, common_level

DIRECT = 0


def ways(network: Ccrdn) -> int:
    """How many values p has; ValueError if there are more than first octets."""
    count = 1 + sum(network.copies[1:])
    if count > BELOW_LOOPBACK:
        raise ValueError(
            f"steering has addresses for {BELOW_LOOPBACK - 1} proxies; n={network.n}, "
            f"k={network.k} has {count - 1}"
        )
    return count


def number(network: Ccrdn, level: int, copy: int) -> int:
    """p for copy `copy` of level `level`; DIRECT if `copy` is -1."""
    return 1 + sum(network.copies[1:level]) + copy if copy >= 0 else DIRECT


def proxy(network: Ccrdn, p: int) -> tuple[int, int]:
    """(level, copy) of p; (0, -1) of DIRECT."""
    level, copy = 0, p - 1
    while copy >= 0:
        level += 1
        if copy < network.copies[level]:
            return level, copy
        copy -= network.copies[level]
    return 0, -1


def address(server: int, p: int) -> int:
    """Where a packet for the server with the address `server` goes by way of `p`."""
    return first_octets.with_octet(server, first_octets.first_octet(p))


def server_address(steered: int) -> int:
    """The server's own address."""
    return SERVER_BLOCK | steered & LABEL


def prefix(own: Prefix, p: int) -> Prefix:
    """The prefix of the servers of `own`, by way of `p`."""
    return Prefix(address(own.network, p), own.length)


def next_hop(network: Ccrdn, cur: int, dst: int, p: int) -> int:
    """The server after `cur` on the path to `dst` by way of `p`; cur != dst."""
    level, copy = proxy(network, p)
    if level:
        whole, sub = network.t[level], network.t[level - 1]
        own, base = cur // sub, cur - cur % whole
        if own != dst // sub and own != base // sub + copy:
            dst = base + copy * sub
    return dr.next_hop(network.rule, network.t, cur, dst)


def stretch(network: Ccrdn, cur: int, dst: int, p: int) -> tuple[int, int] | None:
    """Where `cur` is within the copy by way of which p leads to `dst`, beyond it: what the path
    through that copy is the same for, p and the destination's copy; else None."""
    level, copy = proxy(network, p)
    if not level:
        return None
    sub, base = network.t[level - 1], cur - cur % network.t[level]
    inside = cur // sub == base // sub + copy and dst - dst % network.t[level] == base
    return (p, dst // sub) if inside and dst // sub != cur // sub else None


def prefix_routes(network: Ccrdn, server: int) -> list[tuple[Prefix, Hop]]:
    """The routes of `server` for all p."""
    t, label = network.t, network.layout.label_of(server)
    direct = []
    for own, hop in dr.prefix_routes(network, server):
        sibling = network.layout.number_of(network.layout.digits(own.network))
        direct.append((own, hop, common_level(t, server, sibling)))
    found = []
    for p in range(ways(network)):
        level, copy = proxy(network, p)
        inside = level == 0 or server % t[level] // t[level - 1] == copy
        reach = network.k if level == 0 else level if inside else level - 1
        found += [(prefix(own, p), hop) for own, hop, apart in direct if apart <= reach]
        if not inside:
            first = server - server % t[level] + copy * t[level - 1]
            hop = dr.hop_to(network, server, dr.next_hop(network.rule, t, server, first))
            found.append((prefix(network.layout.prefix(label[: network.k - level]), p), hop))
    return found
