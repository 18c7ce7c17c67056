"""The hosts on which the ranks of a parallel program run."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the commands' help needs the names below, and not numpy
    import numpy as np
    from numpy.typing import NDArray

    from weft.topologies.core.topology import Topology

LINEAR, RANDOM, LEAF = "linear", "random", "leaf"
PLACEMENTS = (LINEAR, RANDOM, LEAF)


def place_ranks(
    topology: Topology, ranks: int, *, placement: str = LINEAR, per_host: int = 1, seed: int = 1
) -> list[int]:
    """Return the host of each rank; consecutive ranks fill a host.

    Args:
        topology: the network.
        ranks: how many.
        placement: order of hosts: `linear`, by number; `random`; `leaf`, one of each leaf in turn,
            where a leaf is the hosts of one switch.
        per_host: ranks on each host.
        seed: of a random placement.

    Raises:
        ValueError: no such placement, or the hosts have no room for all ranks.
    """
    import numpy as np

    if placement not in PLACEMENTS:
        raise ValueError(f"placement {placement!r}: there are {', '.join(PLACEMENTS)}")
    if ranks < 1 or per_host < 1:
        raise ValueError(f"ranks and ranks per host are 1 or more, not {ranks} and {per_host}")
    if ranks > topology.servers * per_host:
        raise ValueError(
            f"{ranks} ranks, but {topology.spec} has {topology.servers} hosts with {per_host} each"
        )
    hosts: list[int] = np.repeat(_order(topology, placement, seed), per_host)[:ranks].tolist()
    return hosts


def _order(topology: Topology, placement: str, seed: int) -> NDArray[np.int64]:
    import numpy as np

    if placement == RANDOM:
        return np.random.default_rng(seed).permutation(topology.servers)
    if placement == LINEAR:
        return np.arange(topology.servers)
    leaves = np.full(topology.servers, -1)
    at_hosts = topology.host_links
    leaves[at_hosts[:, 0]] = at_hosts[:, 2]
    # hosts of a leaf in order of number, and how many precede each
    order = np.argsort(leaves, kind="stable")
    _, first, counts = np.unique(leaves[order], return_index=True, return_counts=True)
    turn = np.arange(topology.servers) - np.repeat(first, counts)
    return order[np.lexsort((leaves[order], turn))]
