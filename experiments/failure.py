"""What can go wrong with a part of a server-centric network that is up in the kernel, and whom it concerns.

link         a link between two servers loses its carrier at both ends
silent-link  packets vanish on it, carriers stay
one-way      packets vanish in one direction
node         a server loses its power: far ends of its own links lose their carrier, those behind its switch hear
             nothing any more
rack         so do a switch and all its servers
daemon       the routing daemon of a server is killed; the server goes on forwarding by the routes that it has
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from topologies.failures import fail_links, fail_nodes, fail_racks, racks
from topologies.graph import Topology

if TYPE_CHECKING:
    from testbed.net import Net


@dataclass(frozen=True)
class Failure:
    """name: of the link or node that fails.  nodes: whose own traffic is nobody's to save, and not measured.

    passes: whether a path, servers from source to destination, leads through what fails.
    after: the topology as those who know of the failure see it.
    happen, mend: do it to a network that is up, and undo it; daemons may need time to see either.
    """

    name: str
    nodes: frozenset[int]
    passes: Callable[[Sequence[int]], bool]
    after: Topology
    happen: Callable[[Net], None]
    mend: Callable[[Net], None]


def links(topology: Topology, generator: np.random.Generator, *, silent: bool = False) -> Iterator[Failure]:
    """Each link between two servers, in random order."""
    for link in generator.permutation(np.flatnonzero(topology.level > 0)).tolist():
        yield of_link(topology, link, silent=silent)


def silent_links(topology: Topology, generator: np.random.Generator) -> Iterator[Failure]:
    """The same, in silence."""
    return links(topology, generator, silent=True)


def one_way(topology: Topology, generator: np.random.Generator) -> Iterator[Failure]:
    """Each link between two servers, in random order, in silence and towards a random end only."""
    for link in generator.permutation(np.flatnonzero(topology.level > 0)).tolist():
        yield of_link(topology, link, silent=True, only_to=int(generator.choice(topology.links[link, [0, 2]])))


def servers(topology: Topology, generator: np.random.Generator) -> Iterator[Failure]:
    """Each server, in random order."""
    for server in generator.permutation(topology.servers).tolist():
        yield of_nodes(topology, [server], fail_nodes(topology, [server]))


def whole_racks(topology: Topology, generator: np.random.Generator) -> Iterator[Failure]:
    """Each switch with its servers, in random order."""
    for switch in generator.permutation(racks(topology)).tolist():
        behind = [peer for _, peer, _, _ in topology.ports(switch)]
        yield of_nodes(topology, [switch, *behind], fail_racks(topology, [switch]))


def daemons(topology: Topology, generator: np.random.Generator) -> Iterator[Failure]:
    """The daemon of each server, in random order: its neighbours give the server up as a way to anywhere."""
    return map(of_daemon, servers(topology, generator))


def of_link(topology: Topology, link: int, *, silent: bool, only_to: int | None = None) -> Failure:
    """The death of one link between two servers."""
    ends = {int(topology.links[link, 0]), int(topology.links[link, 2])}
    name = topology.link_name(link)
    hears_nothing = None if only_to is None else topology.naming.name(only_to)
    return Failure(
        name=name if hears_nothing is None else f"{name} to {hears_nothing}",
        nodes=frozenset(),
        passes=lambda path: any(ends == set(hop) for hop in pairwise(path)),
        after=fail_links(topology, [link]),
        happen=lambda net: net.fail(name, silent=silent, only_to=hears_nothing),
        mend=lambda net: net.restore(name),
    )


def of_nodes(topology: Topology, members: Sequence[int], after: Topology) -> Failure:
    """The loss of power of all `members`, named after the first."""
    gone, names = frozenset(members), [topology.naming.name(node) for node in members]

    def happen(net: Net) -> None:
        for name in names:
            net.fail_node(name)

    def mend(net: Net) -> None:
        for name in names:
            net.restore_node(name)

    return Failure(names[0], gone, lambda path: not gone.isdisjoint(path), after, happen, mend)


def of_daemon(server: Failure) -> Failure:
    """The death of the daemon of the server whose failure is given, instead."""
    name = server.name
    return replace(server, happen=lambda net: net.kill_daemon(name), mend=lambda net: net.start_daemon(name))


KINDS: Mapping[str, Callable[[Topology, np.random.Generator], Iterator[Failure]]] = {
    "link": links,
    "silent-link": silent_links,
    "one-way": one_way,
    "node": servers,
    "rack": whole_racks,
    "daemon": daemons,
}
