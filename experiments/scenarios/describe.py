"""What there is to say about a network in a few numbers."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from weft.experiments.runner.definition import Row
from weft.topologies.core.address import dotted
from weft.topologies.core.topology import Topology

MOST_NODES = 1500  # beyond, the diameter is not worth the seconds that it takes


def describe(topology: Topology) -> dict[str, Any]:
    """Name, sizes, degrees and diameter, JSON-able.

    server_degree, switch_degree: how many of them have how many ports.  links_of_level: how many links each level has.
    links_of_role: how many are host links, local and global ones.
    link_rates_bps: how many links carry how much, 0 where nothing is said; only if a user's graph says so.
    diameter_hops: of the longest of all shortest paths between servers: moves from server to server in a server-centric
        network, links in a switch fabric; None for networks of more than 1500 nodes.
    """
    degree = np.bincount(topology.links[:, [0, 2]].ravel(), minlength=topology.nodes)
    levels = np.bincount(topology.level)
    rates = {"link_rates_bps": histogram(topology.rates_bps.tolist())} if len(topology.rates_bps) else {}
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
        "diameter_hops": diameter_hops(topology) if topology.nodes <= MOST_NODES else None,
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


def diameter_hops(topology: Topology) -> int:
    """The longest of all shortest paths between servers; all pairs at once, by products of the adjacency matrix."""
    adjacent = np.eye(topology.nodes, dtype=np.float32)
    adjacent[topology.links[:, 0], topology.links[:, 2]] = 1
    adjacent[topology.links[:, 2], topology.links[:, 0]] = 1
    if topology.server_centric:  # two servers of a crossbar are one hop apart
        behind = adjacent[: topology.servers, topology.servers :]
        adjacent = adjacent[: topology.servers, : topology.servers] + behind @ behind.T
    adjacent = np.minimum(adjacent, 1)
    reached = np.eye(len(adjacent), dtype=np.float32)[: topology.servers]
    hops = 0
    while not reached[:, : topology.servers].all():
        further = np.minimum(reached @ adjacent, 1)
        if (further == reached).all():
            raise ValueError(f"{topology.spec} is not connected")
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
