"""Figures that describe a network."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.experiments.runner.definition import Row
from weft.topologies.core.address import dotted
from weft.topologies.core.topology import Topology

MOST_NODES = 1500  # beyond, the diameter is not worth the seconds that it takes
MOST_SWITCHES = 2500  # the same of a switch fabric, whose hosts have one link to each plane


def describe(topology: Topology) -> dict[str, Any]:
    """Return name, sizes, degrees and diameter, JSON-able.

    server_degree, switch_degree: number of nodes by number of ports.
    links_of_level, links_of_role: number of links of each level and role.
    link_rates_bps: number of links by rate, 0 for an unknown one; only if a user's graph has rates.
    diameter_hops: length of the longest shortest path between servers: moves from server to server
        in a server-centric network, links in a switch fabric; None for large networks.
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
    """Return the number of links of each role, see Topology."""
    counts = np.bincount(topology.level, minlength=len(topology.roles)).tolist()
    role_counts = dict.fromkeys(topology.roles, 0)
    for role, count in zip(topology.roles, counts, strict=True):
        role_counts[role] += count
    return role_counts


def histogram(values: list[int]) -> dict[str, int]:
    """Return the number of times that each value occurs, smallest value first."""
    return {str(value): count for value, count in sorted(Counter(values).items())}


def is_small(topology: Topology) -> bool:
    """Return True if the diameter takes little time."""
    return (
        topology.nodes <= MOST_NODES
        if topology.server_centric
        else topology.switches <= MOST_SWITCHES
    )


def diameter_hops(topology: Topology) -> int:
    """Return the length of the longest shortest path between servers, by matrix products."""
    servers, a, b = topology.servers, topology.links[:, 0], topology.links[:, 2]
    if topology.server_centric:  # two servers of a crossbar are one hop apart
        adjacent = np.zeros((topology.nodes, topology.nodes), dtype=np.float32)
        adjacent[a, b] = adjacent[b, a] = 1
        behind = adjacent[:servers, servers:]
        return longest(
            adjacent[:servers, :servers] + behind @ behind.T, np.arange(servers), topology.spec
        )
    of_host = a < servers  # each host has one link to a switch of each plane, all of them alike
    homes = b[of_host & (topology.links[:, 1] % topology.planes == 0)] - servers
    homes, count = np.unique(homes, return_counts=True)
    adjacent = np.zeros((topology.switches, topology.switches), dtype=np.float32)
    a, b = a[~of_host] - servers, b[~of_host] - servers
    adjacent[a, b] = adjacent[b, a] = 1
    hops = longest(adjacent, homes, topology.spec)
    return 2 + hops if hops or count.max() > 1 else 0


def longest(adjacent: NDArray[np.float32], among: NDArray[np.int64], spec: str) -> int:
    """Return the length of the longest shortest path between the nodes `among`.

    Args:
        adjacent: above 0 where a link joins two nodes, shape (nodes, nodes).
        among: numbers of nodes.
        spec: name of the network.

    Raises:
        ValueError: two of the nodes are not connected.
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
    """Return name, label and address of every node; a crossbar has no address."""
    naming = topology.naming
    return [
        {
            "name": naming.name(node),
            "label": naming.label(node),
            "address": None if topology.is_crossbar(node) else dotted(naming.address(node)),
        }
        for node in range(topology.nodes)
    ]
