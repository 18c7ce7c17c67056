"""A network less some of its links, nodes or racks.

Failed links stay in the arrays, with `failed` True, so that every number and name still means the same.  A node that
has failed is one all of whose links have failed.  What fails is drawn by a generator that is passed in:

    fail_links(topology, random_links(topology, fraction=0.1, generator=generator))
    fail_racks(topology, draw(racks(topology), count=2, generator=generator))
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from weft.topologies.core.topology import Topology


def fail_links(topology: Topology, links: ArrayLike) -> Topology:
    """`topology` with `links`, numbers, failed beside those that already were; ValueError if there is no such link."""
    numbers = _numbers("link", links, len(topology.links))
    failed = topology.failed.copy()
    failed[numbers] = True
    return replace(topology, failed=failed)


def fail_nodes(topology: Topology, nodes: ArrayLike) -> Topology:
    """`topology` with every link of `nodes` failed; ValueError if there is no such node."""
    numbers = _numbers("node", nodes, topology.nodes)
    return fail_links(topology, np.flatnonzero(np.isin(topology.links[:, [0, 2]], numbers).any(axis=1)))


def fail_racks(topology: Topology, switches: ArrayLike) -> Topology:
    """`topology` without the racks of `switches`: each of these crossbars or edge switches, and all its servers."""
    numbers = _numbers("node", switches, topology.nodes)
    if others := np.setdiff1d(numbers, racks(topology)).tolist():
        raise ValueError(f"{topology.naming.name(others[0])} is no switch with servers, so there is no such rack")
    host_links = topology.links[topology.level == 0]
    servers = host_links[np.isin(host_links[:, 2], numbers), 0]
    return fail_nodes(topology, np.concatenate([servers, numbers]))


def racks(topology: Topology) -> NDArray[np.int64]:
    """The switches, in order of number, that servers are attached to."""
    return np.unique(topology.links[topology.level == 0, 2])


def random_links(
    topology: Topology, *, count: int | None = None, fraction: float | None = None, generator: np.random.Generator
) -> NDArray[np.int64]:
    """Links to fail, drawn uniformly from those that have not: `count`, or `fraction` of them (CCRDN, section 6.4)."""
    return draw(np.flatnonzero(~topology.failed), count=count, fraction=fraction, generator=generator)


def draw(
    among: ArrayLike, *, count: int | None = None, fraction: float | None = None, generator: np.random.Generator
) -> NDArray[np.int64]:
    """`count` of `among`, or `fraction` of them rounded, without replacement, each as likely as any other, sorted.

    ValueError unless one of the two is given, and there are so many.
    """
    numbers = np.asarray(among, dtype=np.int64)
    if (count is None) == (fraction is None):
        raise ValueError("give either how many fail or which fraction of them")
    wanted = round(fraction * len(numbers)) if fraction is not None else count or 0
    if not 0 <= wanted <= len(numbers):
        raise ValueError(f"cannot let {wanted} of {len(numbers)} fail")
    return np.sort(generator.choice(numbers, wanted, replace=False))


def _numbers(what: str, given: ArrayLike, there_are: int) -> NDArray[np.int64]:
    """`given` as an array; ValueError names the first that is not one of 0 .. there_are - 1."""
    numbers = np.asarray(given, dtype=np.int64).reshape(-1)
    if others := numbers[(numbers < 0) | (numbers >= there_are)].tolist():
        raise ValueError(f"there is no {what} {others[0]}: they are 0 .. {there_are - 1}")
    return numbers
