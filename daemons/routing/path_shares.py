"""The paths that packets of one pair of hosts take in a switch fabric where switches choose among
ports, and the share of packets, or of flows, that each of them gets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from weft.daemons.core.actions import Hop
from weft.daemons.core.scheme import RoutedPath
from weft.daemons.routing import updown

if TYPE_CHECKING:
    from weft.topologies.core.topology import Topology

Chosen = Iterable[tuple[Hop, float]]
LEAST = 1e-12  # shares that differ by less are alike


def evenly(hops: Sequence[Hop]) -> Chosen:
    """Each of `hops` as often as it is listed."""
    return [(hop, 1 / len(hops)) for hop in hops]


def paths(
    topology: Topology, src: int, dst: int, choose: Callable[[int], Chosen]
) -> list[RoutedPath]:
    """The paths of packets from host `src` to host `dst`, the likeliest first, and otherwise in
    order of ports.

    choose: switch -> the hops by which packets for `dst` leave it, each with its share of them.
        What goes by a dead link, or comes to a switch a second time, is lost, so that the shares of
        all paths may add up to less than 1.
    """
    if src == dst:
        return [RoutedPath((src,))]
    live = topology.adjacency
    found: dict[tuple[int, ...], float] = {}

    def follow(path: tuple[int, ...], share: float) -> None:
        hops = (
            choose(path[-1])
            if len(path) > 1
            else [(Hop(port, peer), 1.0) for port, peer, *_ in live_out(src)]
        )
        for hop, part in hops:
            onward = (*path, hop.node)
            if hop.node == dst and hop.node in live[path[-1]]:
                found[onward] = found.get(onward, 0.0) + share * part
            elif (
                hop.node in live[path[-1]] and hop.node not in path and hop.node >= topology.servers
            ):
                follow(onward, share * part)

    def live_out(host: int) -> Iterable[tuple[int, int, int, int]]:
        return topology.live_ports(host)

    follow((src,), 1.0)
    listed = [RoutedPath(nodes, share) for nodes, share in found.items()]
    return sorted(listed, key=lambda path: -round(path.share / LEAST))


def shortest(topology: Topology, src: int, dst: int) -> list[RoutedPath]:
    """Those of switches that choose evenly among the hops on shortest paths over links that
    live."""
    return paths(topology, src, dst, lambda switch: evenly(updown.next_hops(topology, switch)[dst]))
