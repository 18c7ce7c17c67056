"""Paths between two hosts of a switch fabric, each with its share of packets or flows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from weft.daemons.core.actions import Hop
from weft.daemons.core.node_config import Options
from weft.daemons.core.scheme import RoutedPath, Scheme
from weft.daemons.routing import updown

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
