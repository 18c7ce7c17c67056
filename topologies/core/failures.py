"""A network less some of its links, nodes or racks.

Failed links stay in the arrays, with `failed` True, so that every number and name still means the
same.  A node that has failed is one all of whose links have failed.  What fails is drawn by a
generator that is passed in:

    fail_links(topology, random_links(topology, fraction=0.1, generator=generator))
    fail_racks(topology, draw(racks(topology), count=2, generator=generator))
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from weft.topologies.core.topology import Topology


def fail_links(topology: Topology, links: ArrayLike) -> Topology:
    """Return `topology` with the links numbered `links` failed, too.

    ValueError if there is no such link.
    """
    numbers = _numbers("link", links, len(topology.links))
    failed = topology.failed.copy()
    failed[numbers] = True
    return replace(topology, failed=failed)


def fail_nodes(topology: Topology, nodes: ArrayLike) -> Topology:
    """Return `topology` with every link of `nodes` failed; ValueError if there is no such node."""
    numbers = _numbers("node", nodes, topology.nodes)
    return fail_links(
        topology, np.flatnonzero(np.isin(topology.links[:, [0, 2]], numbers).any(axis=1))
    )


def fail_racks(topology: Topology, switches: ArrayLike) -> Topology:
    """Return `topology` with the racks of `switches` failed: these and all their servers."""
    numbers = _numbers("node", switches, topology.nodes)
    if others := np.setdiff1d(numbers, racks(topology)).tolist():
        raise ValueError(
            f"{topology.naming.name(others[0])} is no switch with servers, so there is no such rack"
        )
    host_links = topology.host_links
    servers = host_links[np.isin(host_links[:, 2], numbers), 0]
    return fail_nodes(topology, np.concatenate([servers, numbers]))


def racks(topology: Topology) -> NDArray[np.int64]:
    """Return the switches with servers attached, in order of number."""
    return np.unique(topology.links[topology.level == 0, 2])


def random_links(
    topology: Topology,
    *,
    count: int | None = None,
    fraction: float | None = None,
    generator: np.random.Generator,
) -> NDArray[np.int64]:
    """Draw `count` healthy links, or `fraction` of them, uniformly (CCRDN, section 6.4)."""
    return draw(
        np.flatnonzero(~topology.failed), count=count, fraction=fraction, generator=generator
    )


def draw(
    among: ArrayLike,
    *,
    count: int | None = None,
    fraction: float | None = None,
    generator: np.random.Generator,
) -> NDArray[np.int64]:
    """Draw `count` items of `among`, or a `fraction`, uniformly and without replacement.

    Returns:
        The items, sorted.

    Raises:
        ValueError: not exactly one of `count` and `fraction`, or more than there are.
    """
    numbers = np.asarray(among, dtype=np.int64)
    if (count is None) == (fraction is None):
        raise ValueError("give either how many fail or which fraction of them")
    failures = round(fraction * len(numbers)) if fraction is not None else count or 0
    if not 0 <= failures <= len(numbers):
        raise ValueError(f"cannot let {failures} of {len(numbers)} fail")
    return np.sort(generator.choice(numbers, failures, replace=False))


def _numbers(kind: str, items: ArrayLike, count: int) -> NDArray[np.int64]:
    """Return `items` as an array; ValueError names the first that is not in 0 .. count - 1."""
    numbers = np.asarray(items, dtype=np.int64).reshape(-1)
    if others := numbers[(numbers < 0) | (numbers >= count)].tolist():
        raise ValueError(f"there is no {kind} {others[0]}: they are 0 .. {count - 1}")
    return numbers
