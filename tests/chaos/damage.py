"""Broken elements of a network, and the pairs of servers that still reach each other."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from weft.experiments.engines.routes import PairSet, connects
from weft.topologies.core.failures import fail_links, fail_nodes

if TYPE_CHECKING:
    from weft.topologies.core.topology import Topology


@dataclass
class Damage:
    """Everything that is broken.

    down: links without a carrier.
    deaf: (link, end) for each end that hears nothing although it has a carrier; both ends of a
        silent link.
    dead: nodes without power.
    headless: nodes that forward without a daemon.
    """

    down: set[int] = field(default_factory=set)
    deaf: set[tuple[int, int]] = field(default_factory=set)
    dead: set[int] = field(default_factory=set)
    headless: set[int] = field(default_factory=set)

    def links(self) -> set[int]:
        """Return the links that do not carry packets both ways."""
        return self.down | {link for link, _ in self.deaf}

    def nodes(self) -> set[int]:
        """Return the nodes without power or without a daemon."""
        return self.dead | self.headless


def all_pairs(topology: Topology) -> PairSet:
    """Return all ordered pairs of servers."""
    servers = range(topology.servers)
    return {(src, dst) for src in servers for dst in servers if src != dst}


def hosts_of(topology: Topology, nodes: Iterable[int]) -> set[int]:
    """Return the servers whose packets enter the network at one of `nodes`.

    These are the nodes themselves where servers forward.
    """
    entries = set(nodes)
    if topology.server_centric:
        return {node for node in entries if node < topology.servers}
    return {host for host in range(topology.servers) if topology.ports(host)[0][1] in entries}


def doubtful(topology: Topology, damage: Damage) -> PairSet:
    """Return the pairs without a prediction: one end enters at a node without a daemon.

    Such a node sends by its old routes, while no neighbour routes towards it.
    """
    hosts = hosts_of(topology, damage.headless)
    return {pair for pair in all_pairs(topology) if hosts.intersection(pair)}


def reachable(
    topology: Topology, routing: str, damage: Damage, pairs: Iterable[tuple[int, int]] = ()
) -> PairSet:
    """Return those of `pairs`, or of all, that reach each other once daemons know of `damage`.

    Doubtful pairs are left out.  Routers treat a link that is deaf at one end as dead.  The link of
    a host has a router at one end only, which learns nothing but its carrier: if such a link is
    deaf, one direction is lost.
    """
    host_links = set()
    if not topology.server_centric:
        host_links = {link for link, _ in damage.deaf if topology.level[link] == 0}
    broken = fail_links(topology, sorted(damage.links() - (host_links - damage.down)))
    broken = fail_nodes(broken, sorted(damage.nodes()))
    connected = connects(broken, routing, pairs or all_pairs(topology))
    deaf_ends = {(link, end) for link, end in damage.deaf if link in host_links}
    hosts = {(int(topology.links[link, [0, 2]].min()), end) for link, end in deaf_ends}
    deaf_hosts = {host for host, end in hosts if end == host}
    unheard_hosts = {host for host, end in hosts if end != host}
    return {
        (src, dst)
        for src, dst in connected - doubtful(topology, damage)
        if src not in unheard_hosts and dst not in deaf_hosts
    }
