"""Parts of a network that threads simulate at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from weft.daemons.core.scheme import DAR
from weft.testbed.packets.forwarding import Forwarding
from weft.testbed.packets.switching import Switching
from weft.testbed.packets.transport import Transport
from weft.topologies.core.topology import Topology

MOST_THREADS = 8  # EVENT_PARTS of event_queue.h


def parts_of(topology: Topology, parts: int) -> NDArray[np.uint8]:
    """Return the part of each node, so that parts have as many hosts.

    Hosts of neighbouring numbers share a part.  A switch is where most of its neighbours nearer to
    the hosts are; those without a majority are dealt out in order of their numbers.

    Returns:
        Part by node, shape (nodes,), uint8.
    """
    owner = np.full(topology.nodes, parts, dtype=np.uint8)
    owner[: topology.servers] = np.arange(topology.servers) * parts // topology.servers
    near, far = np.concatenate([topology.links[:, [0, 2]], topology.links[:, [2, 0]]]).T
    while (owner == parts).any():
        votes = np.zeros((topology.nodes, parts), dtype=np.int64)
        known = owner[far] < parts
        np.add.at(votes, (near[known], owner[far[known]]), 1)
        most = votes.max(axis=1)
        reached = (owner == parts) & (most > 0)
        if not reached.any():
            reached = owner == parts  # switches without a way to a host
        tied = reached & ((votes == most[:, None]).sum(axis=1) > 1)
        owner[reached] = votes[reached].argmax(axis=1)
        owner[tied] = np.arange(tied.sum()) * parts // max(1, tied.sum())
    return owner


def check_parts(
    threads: int, hosts: Transport, passing: Switching, tables: Forwarding, *, daemons: bool
) -> None:
    """Raise ValueError if `threads` cannot simulate such a network."""
    rule = tables.next_hops.rule if tables.next_hops else None
    alone = {
        "daemons": daemons or (rule is not None and rule.rule == DAR),
        "flow control": passing.room_bytes > 0,
        "go-back-N": hosts.name == "plain" and hosts.go_back_ns > 0,
        "hosts that choose layers by their other flows": tables.remembers_pairs,
    }
    if not 1 <= threads <= MOST_THREADS:
        raise ValueError(f"threads must be 1 to {MOST_THREADS}, got {threads}")
    for what, is_so in alone.items():
        if is_so:
            raise ValueError(f"one thread simulates {what}: leave threads out")
