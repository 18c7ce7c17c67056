"""Parts of a network that threads simulate at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from weft.topologies.core.topology import Topology

MOST_THREADS = 8  # EVENT_PARTS of event_queue.h
Votes = NDArray[np.int64]


def parts_of(topology: Topology, parts: int) -> NDArray[np.uint8]:
    """Return the part of each node, so that parts have as many hosts.

    Hosts of neighbouring numbers share a part.  A switch is where most of its neighbours nearer to
    the hosts are; those without a majority are dealt out in order of their numbers.

    Returns:
        Part by node, shape (nodes,), uint8.

    Raises:
        ValueError: there cannot be as many parts.
    """
    if not 1 <= parts <= MOST_THREADS:
        raise ValueError(f"threads must be 1 to {MOST_THREADS}, got {parts}")
    owner = np.full(topology.nodes, parts, dtype=np.uint8)
    owner[: topology.servers] = np.arange(topology.servers) * parts // topology.servers
    while (owner == parts).any():
        votes = votes_of(topology, owner, parts)
        most = votes.max(axis=1)
        reached = (owner == parts) & (most > 0)
        if not reached.any():
            reached = owner == parts  # switches without a way to a host
        tied = reached & ((votes == most[:, None]).sum(axis=1) > 1)
        owner[reached] = votes[reached].argmax(axis=1)
        owner[tied] = np.arange(tied.sum()) * parts // max(1, tied.sum())
    return owner


def votes_of(topology: Topology, owner: NDArray[np.uint8], parts: int) -> Votes:
    """Return how many neighbours of each node are in each part, shape (nodes, parts)."""
    near, far = np.concatenate([topology.links[:, [0, 2]], topology.links[:, [2, 0]]]).T
    votes = np.zeros((topology.nodes, parts), dtype=np.int64)
    known = owner[far] < parts
    np.add.at(votes, (near[known], owner[far[known]]), 1)
    return votes
