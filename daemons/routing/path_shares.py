"""Paths between two hosts of a switch fabric, each with its share of packets or flows.

Valiant's and UGAL's lead by way of a random switch, in networks of equal routers.  A packet of
Valiant goes over a shortest path to a random switch, its waypoint, and over another
one to its destination.  UGAL takes such a detour only if that costs less than a shortest path.  The
cost of a path is the queue of its first port times its hops (Singh, "Load-balanced routing in
interconnection networks", Stanford 2005; Kim et al., ISCA 2008, section 4).

The choices are those of testbed/data_plane/select.h, and tests compare the two.  Switches are
numbered from 0.  Random numbers have 32 bits.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from weft.daemons.core.actions import Hop
from weft.daemons.core.node_config import Options
from weft.daemons.core.scheme import RoutedPath, Scheme, for_switches
from weft.daemons.routing import updown
from weft.daemons.routing.selection import IntSequence, below
from weft.topologies.core.address import FabricNaming

if TYPE_CHECKING:
    from weft.topologies.core.topology import Topology


Chosen = Iterable[tuple[Hop, float]]
LEAST = 1e-12  # resolution of shares


def evenly(hops: Sequence[Hop]) -> Chosen:
    """Return `hops` with equal shares; a hop listed twice has two."""
    return [(hop, 1 / len(hops)) for hop in hops]


def paths(
    topology: Topology, src: int, dst: int, choose: Callable[[int], Chosen]
) -> list[RoutedPath]:
    """Return the paths from host `src` to host `dst`, the likeliest first, then in order of ports.

    Args:
        topology: a switch fabric, with its failed links.
        src: source host.
        dst: destination host.
        choose: (switch) -> hops by which packets for `dst` leave it, with their shares.

    Returns:
        Paths whose shares may add up to less than 1: packets on a dead link, or at a switch for the
        second time, are lost.
    """
    if src == dst:
        return [RoutedPath((src,))]
    live = topology.adjacency
    shares: dict[tuple[int, ...], float] = defaultdict(float)

    def follow(path: tuple[int, ...], hops: Chosen, path_share: float) -> None:
        for hop, hop_share in hops:
            if hop.node not in live[path[-1]]:
                continue
            longer = (*path, hop.node)
            if hop.node == dst:
                shares[longer] += path_share * hop_share
            elif hop.node not in path and hop.node >= topology.servers:
                follow(longer, choose(hop.node), path_share * hop_share)

    follow((src,), evenly([Hop(port, peer) for port, peer, *_ in topology.live_ports(src)]), 1.0)
    paths = [RoutedPath(nodes, share) for nodes, share in shares.items()]
    return sorted(paths, key=lambda path: -round(path.share / LEAST))


def shortest(topology: Topology, src: int, dst: int) -> list[RoutedPath]:
    """Return the paths of switches that choose evenly among next hops on live shortest paths."""
    return paths(topology, src, dst, lambda switch: evenly(updown.hops_to(topology, switch, dst)))


def polarised(topology: Topology, src: int, dst: int) -> list[RoutedPath]:
    """Return the paths of switches on which one hash of a flow chooses at every hop.

    The hash is a number below 1, of which n next hops have an equal part each, in order of ports.
    So a flow that took the upper half at one switch takes it at the next switch, too.
    """

    def follow(
        path: tuple[int, ...], low: Fraction, high: Fraction
    ) -> Iterator[tuple[tuple[int, ...], Fraction]]:
        if path[-1] == dst:
            yield path, high - low
            return
        for hop, begin, end in _parts(updown.hops_to(topology, path[-1], dst), low, high):
            yield from follow((*path, hop.node), begin, end)

    if src == dst:
        return [RoutedPath((src,))]
    starts = [(src, switch) for switch in topology.adjacency[src]]
    shares = [share for start in starts for share in follow(start, Fraction(0), Fraction(1))]
    paths = [RoutedPath(nodes, float(share / len(starts))) for nodes, share in shares]
    return sorted(paths, key=lambda path: -round(path.share / LEAST))


def _parts(
    hops: Sequence[Hop], low: Fraction, high: Fraction
) -> Iterator[tuple[Hop, Fraction, Fraction]]:
    """Yield each of `hops` with its part of the interval of hashes from `low` to `high`."""
    for index, hop in enumerate(hops):
        begin = max(low, Fraction(index, len(hops)))
        end = min(high, Fraction(index + 1, len(hops)))
        if begin < end:
            yield hop, begin, end


def named(topology: Topology, nodes: Sequence[int]) -> dict[str, Any]:
    """Return the names of the `nodes` of a path, and of its `links`; JSON-able."""
    links = [link for hop in pairwise(nodes) for link in topology.hop_links(*hop)]
    return {
        "nodes": [topology.naming.name(node) for node in nodes],
        "links": [topology.link_name(link) for link in links],
    }


def several(
    topology: Topology, scheme: Scheme, options: Options, src: int, dst: int
) -> dict[str, Any]:
    """Return the paths that packets of a pair may take under `scheme`, JSON-able.

    Returns:
        Empty if all take one path.  Else `paths`: `nodes`, `links` and `share` of each, over the
        healthy links of `topology`; `by_queues`: True if these are shares with equal queues.
    """
    shares: dict[tuple[int, ...], float] = defaultdict(float)
    for path in () if scheme.fixed_path else scheme.path(topology, options, src, dst):
        shares[path.nodes] += path.share
    if len(shares) < 2:
        return {}
    rows = [{**named(topology, nodes), "share": share} for nodes, share in shares.items()]
    rule = scheme.rule(options)
    return {"paths": rows, "by_queues": bool(rule and rule.compares_queues)}


MOST_DETOURS = 4  # that UGAL compares
LEAST_SWITCHES = 3


class Trip(NamedTuple):
    """Switches at which a packet enters and leaves a network of so many switches."""

    source: int
    destination: int
    switches: int


class Detour(NamedTuple):
    """The switch that a packet visits first, + 1, or 0 for none; and a candidate towards it."""

    waypoint: int
    candidate: int


# (waypoint as in Detour) -> loads of the candidates towards it; empty without a route
Loads = Callable[[int], IntSequence]


def random_waypoint(random: int, trip: Trip) -> int:
    """Return a switch that is at neither end of `trip`, all equally likely."""
    chosen = below(random, trip.switches - 2)
    for end in sorted((trip.source, trip.destination)):
        chosen += chosen >= end
    return chosen


def valiant(loads: Loads, trip: Trip, draws: Iterator[int]) -> Detour:
    """Return a random detour (Valiant, SIAM J. Comput. 11, 1982).

    A shortest path, if the waypoint cannot be reached.

    Args:
        loads: of candidates, whose number alone is used.
        trip: its ends differ.
        draws: random numbers.
    """
    waypoint = 1 + random_waypoint(next(draws), trip)
    if len(loads(waypoint)):
        return Detour(waypoint, below(next(draws), len(loads(waypoint))))
    return Detour(0, below(next(draws), len(loads(0))))


def ugal(
    loads: Loads,
    hops: Callable[[int, int], int],
    trip: Trip,
    draws: Iterator[int],
    d: int,
    delta: int,
) -> Detour:
    """Return the choice of UGAL-L between a shortest path and the best of `d` random detours.

    The shortest path is taken iff its queue times its hops is at most that of the detour plus
    `delta` (Singh, section 4.2; with d = 4 Besta and Hoefler, SC 2014, section IV-C).

    Args:
        loads: of candidates.
        hops: between two switches.
        trip: its ends differ.
        draws: random numbers.
        d: compared detours.
        delta: threshold, in the unit of loads times hops.
    """
    direct = Detour(0, below(next(draws), len(loads(0))))
    cost = loads(0)[direct.candidate] * hops(trip.source, trip.destination)
    best = None
    for _ in range(d):
        other = random_waypoint(next(draws), trip)
        towards = loads(other + 1)
        if not len(towards):
            continue
        candidate = below(next(draws), len(towards))
        length = hops(trip.source, other) + hops(other, trip.destination)
        other_cost = towards[candidate] * length
        if best is None or other_cost < best[0]:
            best = other_cost, Detour(other + 1, candidate)
    return direct if best is None or cost <= best[0] + delta else best[1]


def check(name: str, topology: Topology) -> None:
    """Raise ValueError unless every switch of `topology` has hosts, as scheme `name` needs."""
    for_switches(name, topology)
    naming, servers = topology.naming, topology.servers
    if not isinstance(naming, FabricNaming) or len(naming.tiers) > 1:
        raise ValueError(
            f"scheme {name} visits a random switch, and in {topology.spec} shortest paths go up to "
            "one already; take vlb"
        )
    hosts = topology.host_links
    with_hosts = {
        (naming.layout.digits(naming.address(host))[0], switch - servers)
        for host, switch in hosts[:, [0, 2]].tolist()
    }
    if topology.switches < LEAST_SWITCHES or len(with_hosts) < topology.switches:
        raise ValueError(
            f"scheme {name} needs {LEAST_SWITCHES} switches or more, all with hosts, and "
            f"{topology.spec} lacks them; take ecmp"
        )
    assert all(digit == switch for digit, switch in with_hosts), "addresses name switches"


def detour_paths(topology: Topology, src: int, dst: int) -> list[RoutedPath]:
    """Return the paths of Valiant between two hosts, each with its share, the likeliest first.

    A path may visit a switch twice.
    """
    first, last = topology.edge(src), topology.edge(dst)
    direct = shortest(topology, src, dst)
    if src == dst or first == last or not direct:
        return direct
    host_of = dict(topology.host_links[:, [2, 0]].tolist())
    others = sorted(host_of.keys() - {first, last})
    shares: dict[tuple[int, ...], float] = defaultdict(float)
    for switch in others:
        for path in _by_way_of(topology, src, host_of[switch], dst) or direct:
            shares[path.nodes] += path.share / len(others)
    routed = [RoutedPath(nodes, share) for nodes, share in shares.items()]
    return sorted(routed, key=lambda path: -round(path.share / LEAST))


def _by_way_of(topology: Topology, src: int, host: int, dst: int) -> list[RoutedPath]:
    """Return shortest paths from `src` to the switch of `host`, and on to `dst`."""
    onward = shortest(topology, host, dst)
    return [
        RoutedPath((*there.nodes[:-1], *rest.nodes[2:]), there.share * rest.share)
        for there in shortest(topology, src, host)
        for rest in onward
    ]
