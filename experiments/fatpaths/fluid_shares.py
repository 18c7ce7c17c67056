"""Max-min fair rates of the kernel's flows, as fluids on the paths of their packets.

Max-min fair rates of flows without an end, each on one path: the one of the layer that its host has
drawn, or the only shortest one.  A fluid has full frames with the headers of TCP, and no
acknowledgements, queues or windows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from weft.daemons.core import registry
from weft.daemons.fatpaths import scheme
from weft.daemons.fatpaths.scheme import Trigger
from weft.experiments.engines.arrays import Ints
from weft.experiments.engines.fluid import fair_rates
from weft.experiments.fatpaths.fatpaths_large import NONE, channels

if TYPE_CHECKING:
    from weft.testbed.data_plane.layer_program import FlowKey
    from weft.testbed.network.network import RunningNetwork
    from weft.topologies.core.topology import Topology

TCP = 6


def fair_shares(routes: Ints) -> NDArray[np.float64]:
    """The rate of each flow, of a channel's.

    `routes`: shape (flows, hops), NONE where there is no further hop.

    Not compiled: that takes a second under the virtual clock, a thousand flows without it
    milliseconds.
    """
    packed = np.take_along_axis(routes, np.argsort(routes == NONE, axis=1, kind="stable"), axis=1)
    used = np.bincount(routes[routes != NONE], minlength=int(routes.max()) + 1)
    rates = np.zeros(len(routes))
    fair_rates(np.arange(len(routes)), packed, (routes != NONE).sum(axis=1), used, 1.0, True, rates)
    return rates


def shares(
    network: RunningNetwork, spec: str, pairs: Sequence[tuple[int, int]], port: int
) -> NDArray[np.float64] | None:
    """The fair share of a link of each of `pairs`, whose flows go to `port` under the scheme `spec`
    of `network`.

    None where the paths of flows are not known: they change, or hosts choose no layers and a pair
    has several shortest paths, or they do and a pair has several flows, or one that the hosts'
    program no longer remembers.
    """
    from weft.testbed.data_plane.layer_program import LayerProgram, program_of

    topology, who = network.topology, np.array(pairs, dtype=np.int64).reshape(-1, 2)
    if program_of(network) is None:
        if not all(only_one_shortest(topology, src, dst) for src, dst in set(pairs)):
            return None
        tables = scheme.tables(topology, registry.scheme("fatpaths:layers=1")[1])
        layers = np.zeros(len(who), dtype=np.int64)
    else:
        with closing(LayerProgram.open(network)) as program:
            settings = program.settings()
            if settings["trigger"] != Trigger.NONE and settings["layers"] > 1:
                return None
            layer_paths = chosen_layers(topology, program.layers_of_flows(), pairs, port)
        if layer_paths is None:
            return None
        layers = layer_paths
        tables = scheme.tables(topology, registry.scheme(spec)[1])
    return fair_shares(channels(topology, tables, who, layers)[:, 0])


def chosen_layers(
    topology: Topology, flows: Mapping[FlowKey, int], pairs: Sequence[tuple[int, int]], port: int
) -> Ints | None:
    """The layer of the TCP flow to `port` of each pair of hosts, of `flows` with their layers.

    None where that is not known: a pair is there twice, or `flows`, which holds those used last,
    has none of a pair.
    """
    if len(set(pairs)) < len(pairs):
        return None
    layer_of = {
        (key.source, key.destination): layer
        for key, layer in flows.items()
        if key[3:] == (port, TCP)
    }
    address = topology.naming.address
    layers = [layer_of.get((address(src), address(dst))) for src, dst in pairs]
    return None if None in layers else np.array(layers, dtype=np.int64)


def only_one_shortest(topology: Topology, src: int, dst: int) -> bool:
    """Return True if exactly one shortest path joins two hosts."""
    count, level, reached = {src: 1}, {src}, {src}
    while dst not in level and level:
        following: dict[int, int] = {}
        for node in level:
            for _, peer, *_ in topology.ports(node):
                if peer not in reached:
                    following[peer] = following.get(peer, 0) + count[node]
        reached |= following.keys()
        count, level = following, set(following)
    return count.get(dst) == 1
