"""Paths between two hosts of a switch fabric, each with its share of packets or flows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from weft.daemons.core.actions import Hop
from weft.daemons.core.scheme import RoutedPath
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

    follow((src,), [(Hop(port, peer), 1.0) for port, peer, *_ in topology.live_ports(src)], 1.0)
    paths = [RoutedPath(nodes, share) for nodes, share in shares.items()]
    return sorted(paths, key=lambda path: -round(path.share / LEAST))


def shortest(topology: Topology, src: int, dst: int) -> list[RoutedPath]:
    """Return the paths of switches that choose evenly among next hops on live shortest paths."""
    return paths(topology, src, dst, lambda switch: evenly(updown.next_hops(topology, switch)[dst]))
