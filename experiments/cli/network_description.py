"""What there is to say about a network in a few numbers."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.experiments.runner.definition import Row
from weft.topologies.core.address import dotted
from weft.topologies.core.topology import Topology

MOST_NODES = 1500  # beyond, the diameter is not worth the seconds that it takes
MOST_SWITCHES = 2500  # the same of a switch fabric, whose hosts have one link each


def describe(topology: Topology) -> dict[str, Any]:
    """Name, sizes, degrees and diameter, JSON-able.

    server_degree, switch_degree: how many of them have how many ports.  links_of_level: how many
        links each level has.
    links_of_role: how many are host links, local and global ones.
    link_rates_bps: how many links carry how much, 0 where nothing is said; only if a user's graph
        says so.
    diameter_hops: of the longest of all shortest paths between servers: moves from server to server
        in a server-centric network, links in a switch fabric; None for server-centric networks of
        more than 1500 nodes and for fabrics of more than 2500 switches.
    """
    degree = np.bincount(topology.links[:, [0, 2]].ravel(), minlength=topology.nodes)
    levels = np.bincount(topology.level)
    rates = (
        {"link_rates_bps": histogram(topology.rates_bps.tolist())}
        if len(topology.rates_bps)
        else {}
    )
    return {
        "name": topology.spec,
        "family": topology.family,
        "parameters": dict(topology.parameters),
        "servers": topology.servers,
        "switches": topology.switches,
        "links": len(topology.links),
        "server_centric": topology.server_centric,
        "links_of_level": {str(level): int(count) for level, count in enumerate(levels)},
        "links_of_role": roles(topology),
        "server_degree": histogram(degree[: topology.servers].tolist()),
        "switch_degree": histogram(degree[topology.servers :].tolist()),
        **rates,
        "diameter_hops": diameter_hops(topology) if is_small(topology) else None,
    }


def roles(topology: Topology) -> dict[str, int]:
    """How many links have each role, see Topology."""
    counts = np.bincount(topology.level, minlength=len(topology.roles)).tolist()
    found = dict.fromkeys(topology.roles, 0)
    for role, count in zip(topology.roles, counts, strict=True):
        found[role] += count
    return found


def histogram(values: list[int]) -> dict[str, int]:
    """How often each value occurs, smallest value first."""
    return {str(value): count for value, count in sorted(Counter(values).items())}


def is_small(topology: Topology) -> bool:
    """Whether the diameter is worth the time that it takes."""
    return (
        topology.nodes <= MOST_NODES
        if topology.server_centric
        else topology.switches <= MOST_SWITCHES
    )


def diameter_hops(topology: Topology) -> int:
    """The longest of all shortest paths between servers; all pairs at once, by products of the
    adjacency matrix.
    """
    servers, a, b = topology.servers, topology.links[:, 0], topology.links[:, 2]
    if topology.server_centric:  # two servers of a crossbar are one hop apart
        adjacent = np.zeros((topology.nodes, topology.nodes), dtype=np.float32)
        adjacent[a, b] = adjacent[b, a] = 1
        behind = adjacent[:servers, servers:]
        return longest(
            adjacent[:servers, :servers] + behind @ behind.T, np.arange(servers), topology.spec
        )
    of_host = a < servers  # each host has one link, to a switch
    homes, count = np.unique(b[of_host] - servers, return_counts=True)
    adjacent = np.zeros((topology.switches, topology.switches), dtype=np.float32)
    a, b = a[~of_host] - servers, b[~of_host] - servers
    adjacent[a, b] = adjacent[b, a] = 1
    hops = longest(adjacent, homes, topology.spec)
    return 2 + hops if hops or count.max() > 1 else 0


def longest(adjacent: NDArray[np.float32], among: NDArray[np.int64], spec: str) -> int:
    """The longest of all shortest paths between the nodes `among`.

    ValueError if there is none between two of them.

    adjacent: above 0 where a link joins two nodes, shape (nodes, nodes).
    """
    step = np.minimum(adjacent + np.eye(len(adjacent), dtype=np.float32), 1)
    reached = np.eye(len(adjacent), dtype=np.float32)[among]
    hops = 0
    while not reached[:, among].all():
        further = np.minimum(reached @ step, 1)
        if (further == reached).all():
            raise ValueError(f"{spec} is not connected")
        reached, hops = further, hops + 1
    return hops


def nodes(topology: Topology) -> list[Row]:
    """Name, label and address of every node; a crossbar has no address."""
    naming = topology.naming
    return [
        {
            "name": naming.name(node),
            "label": naming.label(node),
            "address": None if topology.is_crossbar(node) else dotted(naming.address(node)),
        }
        for node in range(topology.nodes)
    ]
