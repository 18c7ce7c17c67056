"""Failures of one element of a server-centric network in the kernel, and the paths they affect.

link         a link between two servers loses its carrier at both ends
silent-link  packets on it are lost, carriers stay
one-way      packets in one direction are lost
flap         packets are lost for FLAP_DEAD_S, then pass for FLAP_ALIVE_S, in turns; carriers stay
node         a server loses power: the far ends of its own links lose their carrier, servers behind
             its switch receive nothing
rack         a switch and all its servers lose power
daemon       the routing daemon of a server is killed; the server still forwards by its routes
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

import numpy as np
from numpy.random import Generator

from weft.experiments.engines.arrays import Ints
from weft.testbed.network.network import RunningNetwork
from weft.testbed.node_daemon import control
from weft.topologies.core.failures import fail_links, fail_nodes, fail_racks, racks
from weft.topologies.core.topology import Topology

FLAP_DEAD_S, FLAP_ALIVE_S = 0.2, 0.3


@dataclass(frozen=True)
class ElementFailure:
    """A failure of one element.

    name: of the link or node that fails.
    nodes: failed nodes; their own traffic is not measured.
    passes: returns whether a path, servers from source to destination, crosses the element.
    after: the topology without the element.
    happen, mend: cause and repair the failure in a running network; daemons may react later.
    lasts: the failure stays until the repair, so the pairs that it cuts off are predictable.
    """

    name: str
    nodes: frozenset[int]
    passes: Callable[[Sequence[int]], bool]
    after: Topology
    happen: Callable[[RunningNetwork], object]
    mend: Callable[[RunningNetwork], object]
    lasts: bool = True


class Flaps:
    """A failure and its repair in turns, by a thread, from happen() until mend()."""

    def __init__(self, failure: ElementFailure) -> None:
        self._failure = failure
        self._over = threading.Event()
        self._pool: ThreadPoolExecutor | None = None
        self._turns: Future[bool] | None = None

    def happen(self, net: RunningNetwork) -> None:
        """Fail at once, then take turns."""
        self._over.clear()
        self._failure.happen(net)
        self._pool = ThreadPoolExecutor(1)
        self._turns = self._pool.submit(self._take_turns, net)

    def mend(self, net: RunningNetwork) -> None:
        """Stop with a working element; raise an error of the thread."""
        assert self._pool
        assert self._turns
        self._over.set()
        self._pool.shutdown()
        if self._turns.result():
            self._failure.mend(net)

    def _take_turns(self, net: RunningNetwork) -> bool:
        """Take turns until mend(); return whether the element is dead in the end."""
        while not self._over.wait(FLAP_DEAD_S):
            self._failure.mend(net)
            if self._over.wait(FLAP_ALIVE_S):
                return False
            self._failure.happen(net)
        return True


def links(topology: Topology) -> Ints:
    """Return the links between two servers; of BCube, those above level 0, which are alike."""
    return np.flatnonzero(topology.level > 0)


def servers(topology: Topology) -> Ints:
    return np.arange(topology.servers)


def link_fails(
    topology: Topology, link: int, _: Generator, *, silent: bool = False, only_to: str | None = None
) -> ElementFailure:
    """Return the failure of one link."""
    a, port, *_far = topology.ends(link)
    hops = [{a, b} for b in topology.neighbours(a)[port]]  # several through a crossbar
    name = topology.link_name(link)
    return ElementFailure(
        name=f"{name} to {only_to}" if only_to else name,
        nodes=frozenset(),
        passes=lambda path: any(set(hop) in hops for hop in pairwise(path)),
        after=fail_links(topology, [link]),
        happen=lambda net: net.fail(name, silent=silent, only_to=only_to),
        mend=lambda net: net.restore(name),
    )


def one_way(topology: Topology, link: int, generator: Generator) -> ElementFailure:
    """Return the silent failure of a link in a random direction."""
    deaf = int(generator.choice(topology.links[link, [0, 2]]))
    only_to = topology.naming.name(deaf)
    return link_fails(topology, link, generator, silent=True, only_to=only_to)


def flapping(topology: Topology, link: int, generator: Generator) -> ElementFailure:
    """Return the silent failure of a link and its repair in turns."""
    failure = link_fails(topology, link, generator, silent=True)
    flaps = Flaps(failure)
    return replace(failure, happen=flaps.happen, mend=flaps.mend, lasts=False)


def server_fails(topology: Topology, server: int, _: Generator) -> ElementFailure:
    """Return the loss of power of a server."""
    return of_nodes(topology, [server], fail_nodes(topology, [server]))


def rack_fails(topology: Topology, switch: int, _: Generator) -> ElementFailure:
    """Return the loss of power of a switch and its servers."""
    behind = [peer for _, peer, _, _ in topology.ports(switch)]
    return of_nodes(topology, [switch, *behind], fail_racks(topology, [switch]))


def daemon_dies(topology: Topology, server: int, generator: Generator) -> ElementFailure:
    """Return the death of the daemon of a server; neighbours then avoid the server."""
    failure = server_fails(topology, server, generator)
    return replace(
        failure,
        happen=lambda net: control.kill(net.run.directory, failure.name),
        mend=lambda net: control.start(net.run.directory, failure.name),
    )


def of_nodes(topology: Topology, members: Sequence[int], after: Topology) -> ElementFailure:
    """Return the loss of power of all `members`, named after the first."""
    gone, names = frozenset(members), [topology.naming.name(node) for node in members]

    def happen(net: RunningNetwork) -> None:
        for name in names:
            net.fail(name)

    def mend(net: RunningNetwork) -> None:
        for name in names:
            net.restore(name)

    return ElementFailure(
        names[0], gone, lambda path: not gone.isdisjoint(path), after, happen, mend
    )


# elements of a topology, and the failure of one of them
KINDS: Mapping[str, tuple[Callable[[Topology], Ints], Callable[..., ElementFailure]]] = {
    "link": (links, link_fails),
    "silent-link": (links, partial(link_fails, silent=True)),
    "one-way": (links, one_way),
    "flap": (links, flapping),
    "node": (servers, server_fails),
    "rack": (racks, rack_fails),
    "daemon": (servers, daemon_dies),
}


def failures(kind: str, topology: Topology, generator: Generator) -> Iterator[ElementFailure]:
    """Yield the failure of each element of a kind, in random order."""
    elements, fails = KINDS[kind]
    for element in generator.permutation(elements(topology)).tolist():
        yield fails(topology, element, generator)
