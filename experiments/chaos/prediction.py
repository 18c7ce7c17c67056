"""Pairs that reach each other after a campaign."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from weft.daemons.core import registry
from weft.experiments.chaos.campaign import Damage
from weft.experiments.engines.predicted_paths import connects
from weft.experiments.engines.routes import PairSet
from weft.topologies.core.failures import fail_links, fail_nodes

if TYPE_CHECKING:
    from weft.topologies.core.topology import Topology


def machines() -> list[str]:
    """The schemes that have daemons, one for each kind of daemon: those that differ in the data
    plane alone share theirs.
    """
    found: dict[object, str] = {}
    for name in ("bfs", *registry.schemes()):
        if machine := registry.schemes()[name].machine:
            found.setdefault(machine, name)
    return list(found.values())


def all_pairs(topology: Topology) -> PairSet:
    """All ordered pairs of servers."""
    servers = range(topology.servers)
    return {(src, dst) for src in servers for dst in servers if src != dst}


def hosts_of(topology: Topology, nodes: Iterable[int]) -> set[int]:
    """The servers whose packets enter and leave the network by one of `nodes`: themselves where
    servers forward.
    """
    chosen = set(nodes)
    if topology.server_centric:
        return {node for node in chosen if node < topology.servers}
    return {host for host in range(topology.servers) if topology.ports(host)[0][1] in chosen}


def doubtful(topology: Topology, damage: Damage) -> PairSet:
    """The pairs of which nothing is predicted: a node without a daemon sends by the routes that it
    has, while no neighbour leads there.
    """
    unsure = hosts_of(topology, damage.headless)
    return {pair for pair in all_pairs(topology) if unsure.intersection(pair)}


def reachable(
    topology: Topology, routing: str, damage: Damage, among: Iterable[tuple[int, int]] = ()
) -> PairSet:
    """The pairs, of those `among` or of all, between which packets arrive, once daemons have
    noticed `damage`; doubtful() ones left out.

    A link that is deaf at one end routers take for dead.  That to a host has a router at one end
    only, which learns of its carrier and of nothing else: there what is deaf is one direction.
    """
    lone = (
        set()
        if topology.server_centric
        else {link for link, _ in damage.deaf if topology.level[link] == 0}
    )
    broken = fail_links(topology, sorted(damage.links() - (lone - damage.down)))
    broken = fail_nodes(broken, sorted(damage.dead | damage.headless))
    found = connects(broken, routing, among or all_pairs(topology)) - doubtful(topology, damage)
    ends = {(link, end) for link, end in damage.deaf if link in lone}
    hosts = {(int(topology.links[link, [0, 2]].min()), end) for link, end in ends}
    to_host = {host for host, end in hosts if end == host}
    from_host = {host for host, end in hosts if end != host}
    return {(src, dst) for src, dst in found if src not in from_host and dst not in to_host}
