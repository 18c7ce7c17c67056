"""Max-min fair rates of the kernel's flows, as fluids on the paths of their packets.

Flows without an end have one path each: the one of the layer that the host has drawn, or the only
shortest one.  A fluid has full frames with the headers of TCP, and no acknowledgements, queues or
windows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing

import numpy as np
from numpy.typing import NDArray

from weft.daemons.core import registry
from weft.daemons.fatpaths import scheme
from weft.daemons.fatpaths.scheme import Trigger
from weft.experiments.engines.arrays import Floats, Ints
from weft.experiments.engines.fluid import fair_rates
from weft.testbed.data_plane.layer_program import FlowKey, LayerProgram, program_of
from weft.testbed.network.network import RunningNetwork
from weft.topologies.core.topology import Topology

TCP = 6
NONE = -1  # no channel


def channels(topology: Topology, tables: NDArray[np.int32], ends: Ints, layers: Ints) -> Ints:
    """Return the channels that each flow takes in its layer, numbered from 0.

    Args:
        topology: the network.
        tables: of the layers.
        ends: source and destination of each flow.
        layers: layer of each flow.

    Returns:
        shape (flows, hops): links from and to hosts, then those between routers, NONE behind the
        last hop.
    """
    hosts, routers = topology.servers, tables.shape[1]
    router_of = np.array([topology.ports(host)[0][1] - hosts for host in range(hosts)])
    src, dst = router_of[ends.T]
    hops = [*(routers**2 + ends + [0, hosts]).T]
    while (src != dst).any():
        after = tables[layers, dst, src]
        hops.append(np.where(src == dst, NONE, src * routers + after))
        src = after
    used, numbers = np.unique(np.stack(hops, axis=1), return_inverse=True)
    return np.asarray(numbers.reshape(len(ends), -1) - int(used[0] == NONE), np.int64)


def fair_shares(routes: Ints) -> Floats:
    """Return the rate of each flow, as a fraction of a channel's.

    `fair_rates` is not compiled here: that takes a second under the virtual clock, a thousand flows
    without it milliseconds.

    routes: shape (flows, hops), NONE behind the last hop.
    """
    rates, used = np.zeros(len(routes)), np.bincount(routes[routes != NONE])
    fair_rates(np.arange(len(routes)), routes, (routes != NONE).sum(axis=1), None, used, 1.0, rates)
    return rates


def shares(
    network: RunningNetwork, spec: str, pairs: Sequence[tuple[int, int]], port: int
) -> Floats | None:
    """Return the fair share of a link of the flow to `port` of each of `pairs`.

    None where paths are not known: flows change their paths, a pair of hosts that choose no layers
    has several shortest paths, a pair has several flows, or the hosts' program has forgotten one.

    spec: scheme of `network`.
    """
    topology = network.topology
    layers: Ints | None = np.zeros(len(pairs), dtype=np.int64)
    if program_of(network) is None:
        spec = "fatpaths:layers=1"
        if not all(only_one_shortest(topology, src, dst) for src, dst in set(pairs)):
            return None
    else:
        with closing(LayerProgram.open(network)) as program:
            settings = program.settings()
            if settings["trigger"] != Trigger.NONE and settings["layers"] > 1:
                return None
            layers = chosen_layers(topology, program.layers_of_flows(), pairs, port)
    if layers is None:
        return None
    tables = scheme.tables(topology, registry.scheme(spec)[1])
    return fair_shares(channels(topology, tables, np.array(pairs, dtype=np.int64), layers))


def chosen_layers(
    topology: Topology, flows: Mapping[FlowKey, int], pairs: Sequence[tuple[int, int]], port: int
) -> Ints | None:
    """Return the layer of the TCP flow to `port` of each pair of hosts.

    None if a pair occurs twice or has no flow.

    flows: layers of the flows that were used last.
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
