"""Addresses whose first octet carries routing state: proxy, DFR's state, TAR's next hop, layer.

A server has its address 10.x.y.z, and one more for each other first octet in use, from 64 to 191
without the loopback's 127.  The other three octets are always the same.

PR's name the proxy of a packet, so that servers on its path need no state.  A server has one for
each copy of each level that may be a proxy: 64 + p in place of 10.  p is 0 for no proxy (DR); the
copies of level 1, of level 2 and so on are numbered from 1.  In DCell_{1,4}, whose copies are 0 ..
4, a packet for 10.0.1.3 by way of copy 2 carries the address 67.0.1.3.

Servers forward such an address by prefixes alone.  For copy c of level h, a server outside c uses

    DR within its copy of level h      for a server of that copy
    DR to c                            for all other servers of its X(h)

and a server within c uses DR.  The path is CCRDN's route of order 3 (definition 5.1).  Ours: the
paper leaves open how packets of a flow stay on the chosen path.

FatPaths deploys layers by partitioning the address space (section V-D).  In layer l the server with
10 is at 64 + l, so that the tag takes no bytes and every router needs no more than a longest-prefix
match.  Layer 63 would be 127, so there are 63 layers, 0 .. 62.  The address with 10 is in no layer
and takes any shortest path, as under ecmp.  A switch has, for each layer, a route to each router
with hosts, which is one prefix, and one to each host of its own.
"""

from __future__ import annotations

from weft.daemons.core.actions import Hop
from weft.daemons.routing import dr
from weft.topologies.core.address import SERVER_BLOCK, Prefix
from weft.topologies.recursive.ccrdn import Ccrdn, common_level

LABEL = 0xFFFFFF  # mask of the octets that all addresses of a server share
FIRST, LOOPBACK, LAST = 64, 127, 191
COUNT = LAST - FIRST  # number of first octets
BELOW_LOOPBACK = LOOPBACK - FIRST  # number of those below 127: number i is FIRST + i
MOST_LAYERS = BELOW_LOOPBACK


def first_octet(number: int) -> int:
    """Return the first octet with number `number`, 0 <= number < COUNT."""
    return FIRST + number + (FIRST + number >= LOOPBACK)


def with_octet(address: int, octet: int) -> int:
    """Return `address` with another first octet."""
    return octet << 24 | address & LABEL


def with_octets(own: Prefix, octet: int) -> Prefix:
    """Return the prefix of the servers of `own` with another first octet."""
    return Prefix(with_octet(own.network, octet), own.length)


def all_addresses(octet: int) -> Prefix:
    """Return the prefix of all addresses that begin with `octet`."""
    return Prefix(octet << 24, 8)


DIRECT = 0


def ways(network: Ccrdn) -> int:
    """Return the number of values of p; ValueError if there are more than first octets."""
    count = 1 + sum(network.copies[1:])
    if count > BELOW_LOOPBACK:
        raise ValueError(
            f"steering has addresses for {BELOW_LOOPBACK - 1} proxies; n={network.n}, "
            f"k={network.k} has {count - 1}"
        )
    return count


def number(network: Ccrdn, level: int, copy: int) -> int:
    """Return p of copy `copy` of level `level`; DIRECT if `copy` is -1."""
    return 1 + sum(network.copies[1:level]) + copy if copy >= 0 else DIRECT


def proxy(network: Ccrdn, p: int) -> tuple[int, int]:
    """Return (level, copy) of p; (0, -1) for DIRECT."""
    level, copy = 0, p - 1
    while copy >= 0:
        level += 1
        if copy < network.copies[level]:
            return level, copy
        copy -= network.copies[level]
    return 0, -1


def address(server: int, p: int) -> int:
    """Return the address that a packet for the address `server` carries by way of `p`."""
    return with_octet(server, first_octet(p))


def server_address(steered: int) -> int:
    """Return the own address of the server with the address `steered`."""
    return SERVER_BLOCK | steered & LABEL


def prefix(own: Prefix, p: int) -> Prefix:
    """Return the prefix of the servers of `own` by way of `p`."""
    return Prefix(address(own.network, p), own.length)


def next_hop(network: Ccrdn, cur: int, dst: int, p: int) -> int:
    """Return the server after `cur` on the path to `dst` by way of `p`; cur != dst."""
    level, copy = proxy(network, p)
    if level:
        whole, sub = network.t[level], network.t[level - 1]
        own, base = cur // sub, cur - cur % whole
        if own != dst // sub and own != base // sub + copy:
            dst = base + copy * sub
    return dr.next_hop(network.rule, network.t, cur, dst)


def stretch(network: Ccrdn, cur: int, dst: int, p: int) -> tuple[int, int] | None:
    """Return p and the copy of `dst` if `cur` is in the proxy's copy of p and `dst` beyond it.

    All paths with the same result share their way through the proxy's copy.  Otherwise None.
    """
    level, copy = proxy(network, p)
    if not level:
        return None
    sub, base = network.t[level - 1], cur - cur % network.t[level]
    inside = cur // sub == base // sub + copy and dst - dst % network.t[level] == base
    return (p, dst // sub) if inside and dst // sub != cur // sub else None


def _hop_to_copy(network: Ccrdn, server: int, level: int, copy: int) -> Hop:
    """Return the next hop of `server` on DR's route to copy `copy` of its X(level)."""
    t = network.t
    first = server - server % t[level] + copy * t[level - 1]
    return dr.hop_to(network, server, dr.next_hop(network.rule, t, server, first))


def prefix_routes(network: Ccrdn, server: int) -> list[tuple[Prefix, Hop]]:
    """Return the routes of `server` for all p."""
    t = network.t
    label = network.layout.label_of(server)
    direct = []
    for own, hop in dr.prefix_routes(network, server):
        sibling = network.layout.number_of(network.layout.digits(own.network))
        direct.append((own, hop, common_level(t, server, sibling)))
    routes = []
    for p in range(ways(network)):
        level, copy = proxy(network, p)
        inside = level == 0 or server % t[level] // t[level - 1] == copy
        reach = network.k if level == 0 else level if inside else level - 1
        routes += [(prefix(own, p), hop) for own, hop, apart in direct if apart <= reach]
        if not inside:
            whole = network.layout.prefix(label[: network.k - level])
            routes.append((prefix(whole, p), _hop_to_copy(network, server, level, copy)))
    return routes


def in_layer(address: int, layer: int) -> int:
    """Return the address in layer `layer`, 0 .. 62, of the server with the address `address`.

    ValueError for any other layer.
    """
    if not 0 <= layer < MOST_LAYERS:
        raise ValueError(f"layered routing: there are layers 0 .. {MOST_LAYERS - 1}, got {layer}")
    return with_octet(address, first_octet(layer))


def tagged(prefix: Prefix, layer: int) -> Prefix:
    """Return `prefix`, of servers, in layer `layer`."""
    return Prefix(in_layer(prefix.network, layer), prefix.length)
