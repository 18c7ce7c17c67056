"""What can go wrong with a part of a server-centric network that is up in the kernel, and whom it
concerns.

link         a link between two servers loses its carrier at both ends
silent-link  packets vanish on it, carriers stay
one-way      packets vanish in one direction
flap         packets vanish for FLAP_DEAD_S, then pass for FLAP_ALIVE_S, again and again, carriers
stay
node         a server loses its power: far ends of its own links lose their carrier, those behind
             its switch hear nothing any more
rack         so do a switch and all its servers
daemon       the routing daemon of a server is killed; the server goes on forwarding by the routes
that it has
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from weft.topologies.core.failures import fail_links, fail_nodes, fail_racks, racks
from weft.topologies.core.topology import Topology

if TYPE_CHECKING:
    from weft.testbed.mininet.net import Net

FLAP_DEAD_S, FLAP_ALIVE_S = 0.2, 0.3


@dataclass(frozen=True)
class ElementFailure:
    """name: of the link or node that fails.  nodes: whose own traffic is nobody's to save, and not
    measured.

    passes: whether a path, servers from source to destination, leads through what fails.
    after: the topology as those who know of the failure see it.
    lasts: whether it stays as it is until it is mended, so that one can tell who is cut off.
    happen, mend: do it to a network that is up, and undo it; daemons may need time to see either.
    """

    name: str
    nodes: frozenset[int]
    passes: Callable[[Sequence[int]], bool]
    after: Topology
    happen: Callable[[Net], None]
    mend: Callable[[Net], None]
    lasts: bool = True


class Flaps:
    """`failure` and its mending in turns, by a thread of its own between happen() and mend(), or
    until the network has gone."""

    def __init__(self, failure: ElementFailure) -> None:
        self._failure = failure
        self._over = threading.Event()
        self._pool: ThreadPoolExecutor | None = None
        self._turns: Future[bool] | None = None

    def happen(self, net: Net) -> None:
        """The first time at once."""
        self._over.clear()
        self._failure.happen(net)
        self._pool = ThreadPoolExecutor(1)
        self._turns = self._pool.submit(self._take_turns, net)

    def mend(self, net: Net) -> None:
        """For good; raises what went wrong meanwhile."""
        assert self._pool
        assert self._turns
        self._over.set()
        self._pool.shutdown()
        if self._turns.result():
            self._failure.mend(net)

    def _take_turns(self, net: Net) -> bool:
        """Whether it is dead in the end."""
        while not self._over.wait(FLAP_DEAD_S):
            self._failure.mend(net)
            if self._over.wait(FLAP_ALIVE_S):
                return False
            self._failure.happen(net)
        return True


def links(
    topology: Topology, generator: np.random.Generator, *, silent: bool = False
) -> Iterator[ElementFailure]:
    """Each link between two servers, in random order."""
    for link in generator.permutation(np.flatnonzero(topology.level > 0)).tolist():
        yield of_link(topology, link, silent=silent)


def silent_links(topology: Topology, generator: np.random.Generator) -> Iterator[ElementFailure]:
    """The same, in silence."""
    return links(topology, generator, silent=True)


def one_way(topology: Topology, generator: np.random.Generator) -> Iterator[ElementFailure]:
    """Each link between two servers, in random order, in silence and towards a random end only."""
    for link in generator.permutation(np.flatnonzero(topology.level > 0)).tolist():
        yield of_link(
            topology, link, silent=True, only_to=int(generator.choice(topology.links[link, [0, 2]]))
        )


def flapping(topology: Topology, generator: np.random.Generator) -> Iterator[ElementFailure]:
    """Each link between two servers, in random order."""
    for failure in links(topology, generator, silent=True):
        flaps = Flaps(failure)
        yield replace(failure, happen=flaps.happen, mend=flaps.mend, lasts=False)


def servers(topology: Topology, generator: np.random.Generator) -> Iterator[ElementFailure]:
    """Each server, in random order."""
    for server in generator.permutation(topology.servers).tolist():
        yield of_nodes(topology, [server], fail_nodes(topology, [server]))


def whole_racks(topology: Topology, generator: np.random.Generator) -> Iterator[ElementFailure]:
    """Each switch with its servers, in random order."""
    for switch in generator.permutation(racks(topology)).tolist():
        behind = [peer for _, peer, _, _ in topology.ports(switch)]
        yield of_nodes(topology, [switch, *behind], fail_racks(topology, [switch]))


def daemons(topology: Topology, generator: np.random.Generator) -> Iterator[ElementFailure]:
    """The daemon of each server, in random order: its neighbours give the server up as a way to
    anywhere."""
    return map(of_daemon, servers(topology, generator))


def of_link(
    topology: Topology, link: int, *, silent: bool, only_to: int | None = None
) -> ElementFailure:
    """The death of one link between two servers."""
    ends = {int(topology.links[link, 0]), int(topology.links[link, 2])}
    name = topology.link_name(link)
    hears_nothing = None if only_to is None else topology.naming.name(only_to)
    return ElementFailure(
        name=name if hears_nothing is None else f"{name} to {hears_nothing}",
        nodes=frozenset(),
        passes=lambda path: any(ends == set(hop) for hop in pairwise(path)),
        after=fail_links(topology, [link]),
        happen=lambda net: net.fail(name, silent=silent, only_to=hears_nothing),
        mend=lambda net: net.restore(name),
    )


def of_nodes(topology: Topology, members: Sequence[int], after: Topology) -> ElementFailure:
    """The loss of power of all `members`, named after the first."""
    gone, names = frozenset(members), [topology.naming.name(node) for node in members]

    def happen(net: Net) -> None:
        for name in names:
            net.fail(name)

    def mend(net: Net) -> None:
        for name in names:
            net.restore(name)

    return ElementFailure(
        names[0], gone, lambda path: not gone.isdisjoint(path), after, happen, mend
    )


def of_daemon(server: ElementFailure) -> ElementFailure:
    """The death of the daemon of the server whose failure is given, instead."""
    name = server.name
    return replace(
        server, happen=lambda net: net.kill_daemon(name), mend=lambda net: net.start_daemon(name)
    )


KINDS: Mapping[str, Callable[[Topology, np.random.Generator], Iterator[ElementFailure]]] = {
    "link": links,
    "silent-link": silent_links,
    "one-way": one_way,
    "flap": flapping,
    "node": servers,
    "rack": whole_racks,
    "daemon": daemons,
}
