"""FatPaths (Besta et al.): the source chooses a layer for each flowlet.

Each layer has one path to each router.  Hosts choose in eBPF (testbed/data_plane/layers.bpf.c), by
layer_choice.h.  At trigger `cut` acknowledgements that are lost leave their layer, too, of which
the paper says nothing (section VIII-A1).  What they are compared with is here, too:

    data alone, as the paper  trigger=data-cut
    one path a flow     trigger=none,start=random
    minimal paths only  construction=random,rho=1, or layers=1
    Linux' tcp_plb      trigger=ecn,ecn=K, and a congestion control that does ECN
    a subflow a layer   start=turn,trigger=none, and MPTCP
    Flowcut             trigger=drained (arXiv 2506.21406)
    Presto's cells      trigger=bytes,start=random,choice=turn (SIGCOMM 2015)

Parameters of constructions that carry the most worst-case traffic were measured by `weft run
layered_throughput`, see docs/notes/fatpaths_graphs.md.  In FatPaths rho "needs to be tuned at least
for a given topology and a given number of layers n" (section V-B1).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import IntFlag
from functools import lru_cache
from itertools import permutations
from math import log
from typing import TYPE_CHECKING, NamedTuple

from weft.daemons.control import parameters
from weft.daemons.core.contract import StateMachine
from weft.daemons.core.node_config import NodeConfig, Options, node_configs, own_hosts
from weft.daemons.core.scheme import (
    ECN,
    FLOW_HASH,
    KERNEL,
    RoutedPath,
    Scheme,
    Selection,
    SelectionRule,
    for_switches,
)
from weft.daemons.fatpaths.daemon import Layered
from weft.daemons.fatpaths.live_layers import LayerTables, packed
from weft.daemons.routing.route_addresses import MOST_LAYERS
from weft.topologies.core.family import IntegerParameter

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from weft.daemons.fatpaths.layers import LayerOptions
    from weft.topologies.core.topology import Topology

# CONSTRUCTIONS of construction.py, which needs arrays, as a daemon does not
WORDS = (
    *("random", "overlap", "intree", "spain", "past", "past-valiant", "k-shortest"),
    *("lnmp", "lnmp-longer"),
)
DECIMALS = 3
MOST_UNCOMPILED = 60  # routers up to which layers are there before a compiler is
WAIT = 3  # times how long it takes to find a neighbour dead
OWN = {
    "layers": IntegerParameter("n, layer 0 with all links counted", 1, MOST_LAYERS, default=9),
    "construction": IntegerParameter.word("how layers are made", WORDS, default="random"),
    "rho": IntegerParameter(
        "links of a random layer, as a fraction of all; 0: the best measured for this "
        "family of networks and n",
        0,
        10**DECIMALS,
        default=0,
        decimals=DECIMALS,
    ),
    "paths": IntegerParameter(
        "most paths of a layer of `overlap`, M, as a multiple of the routers; 0: the best",
        0,
        100 * 10**DECIMALS,
        default=0,
        decimals=DECIMALS,
    ),
    "extra_links": IntegerParameter(
        "links of a path of `overlap` beyond the diameter, L_min - D; of `lnmp` at the most",
        0,
        8,
        default=1,
    ),
    "seed": IntegerParameter(
        "seed of the random numbers that make and choose layers", 0, default=1
    ),
}
LEAST_TREES = 1.15  # links of a random layer, over those of a tree


class Trigger(IntFlag):
    """Events that end a flowlet, with the numbers of layer_choice.h."""

    NONE = 0
    GAP = 1
    CUT = 2
    ECN = 4
    DRAINED = 8
    BYTES = 16
    REPEAT = 32  # data come again, of acknowledgements


BY_CUT = Trigger.CUT | Trigger.REPEAT
TRIGGERS = {
    "gap-cut": Trigger.GAP | BY_CUT,
    "none": Trigger.NONE,
    "gap": Trigger.GAP,
    "cut": BY_CUT,
    "ecn": Trigger.ECN,
    "gap-ecn": Trigger.GAP | Trigger.ECN,
    "cut-ecn": BY_CUT | Trigger.ECN,
    "gap-cut-ecn": Trigger.GAP | BY_CUT | Trigger.ECN,
    "drained": Trigger.DRAINED,
    "bytes": Trigger.BYTES,
    "data-cut": Trigger.CUT,
}
HOSTS = {
    "trigger": IntegerParameter.word("what makes a flow take another layer", TRIGGERS),
    "gap_us": IntegerParameter(
        "silence that ends a flowlet, in microseconds", 1, 1 << 24, default=500
    ),
    "cell_kb": IntegerParameter(
        "data after which a flow takes another layer with trigger=bytes, in kB", 1, 4000, default=64
    ),
    "start": IntegerParameter.word(
        "a flow's first layer: layer 0, any, or the next after the last flow between the "
        "same hosts",
        ("first", "random", "turn"),
    ),
    "choice": IntegerParameter.word(
        "which layer a flowlet takes: any, the one whose packets were marked least, or the next",
        ("random", "least", "turn"),
    ),
    "ecn_percent": IntegerParameter(
        "echoes among a round's acknowledgements that make it congested, in per cent",
        1,
        100,
        default=50,
    ),
    "ecn_rounds": IntegerParameter(
        "congested rounds in a row that are a trigger", 1, 1000, default=1
    ),
}
FORWARDING = IntegerParameter.word(
    "who forwards: the data plane's program, or the kernel's own table", ("ebpf", "kernel")
)
PLANE = {
    "layers": OWN["layers"],
    "seed": OWN["seed"],
    **HOSTS,
    "forwarding": FORWARDING,
    "ecn": ECN,
}


@dataclass(frozen=True)
class LayerWiring:
    """A network, equal to another with the same spec and links."""

    spec: str
    links: bytes
    topology: Topology = field(compare=False)


def tables(topology: Topology, options: Options) -> NDArray[np.int32]:
    """Return the tables of all layers, see layers.py, of the network without failures.

    Layers are made before anything fails (section V-G).

    Raises:
        ValueError: there are no such layers.
    """
    from weft.daemons.fatpaths.layers import LayerOptions

    for_switches("fatpaths", topology)
    intact = replace(topology, failed=topology.failed & False)
    wiring = LayerWiring(topology.spec, topology.links.tobytes(), intact)
    best = tuned(topology.family, options["layers"])
    links = int((topology.level > 0).sum())
    least_rho = connecting_rho(topology.switches, links)
    sizes = LayerOptions(
        layers=options["layers"],
        rho=options["rho"] / 10**DECIMALS or max(best.rho, least_rho),
        paths=options["paths"] / 10**DECIMALS or best.paths,
        extra_links=options["extra_links"],
    )
    return _tables(wiring, sizes, WORDS[options["construction"]], options["seed"])


def live_routers(topology: Topology) -> list[set[int]]:
    """Return the neighbours of each router over live links, for live_layers.py."""
    first, live = topology.servers, topology.adjacency
    return [
        {peer - first for peer in live[node] if peer >= first}
        for node in range(first, topology.nodes)
    ]


def live_tables(topology: Topology, options: Options) -> NDArray[np.int32]:
    """Return tables() with the hops of daemons that know the failed links (live_layers.py).

    Routers that failed links separate keep their hops to each other.
    """
    hops = tables(topology, options)
    if not topology.failed.any():
        return hops
    known, live = LayerTables(packed(hops, topology.servers)), live_routers(topology)
    hops = hops.copy()
    for t, u in permutations(range(topology.switches), 2):
        for layer, way in known.live_paths(t, u, live).items():
            hops[layer, t, u] = way[1]
    return hops


@lru_cache(maxsize=4)
def _tables(wiring: LayerWiring, sizes: LayerOptions, kind: str, seed: int) -> NDArray[np.int32]:
    import numpy as np

    from weft.daemons.core.compiled import compiled
    from weft.daemons.fatpaths import construction
    from weft.daemons.fatpaths.layers import RouterArrays, as_it_is

    layers = construction.layers_of(
        kind,
        RouterArrays.of(wiring.topology),
        sizes,
        np.random.Generator(np.random.PCG64(seed)),
        as_it_is if wiring.topology.switches <= MOST_UNCOMPILED else compiled,
    )
    layers.setflags(write=False)
    return layers


def check(topology: Topology, options: Options) -> None:
    """Raise ValueError unless `topology` is a switch fabric in which such layers exist."""
    tables(topology, options)


def configure(topology: Topology, options: Options, link_kbps: int) -> Mapping[int, NodeConfig]:
    """Return configurations with the tables of all layers, the prefixes of switches, and hosts.

    The hosts of a configuration are those of its own switch.
    """
    known = packed(tables(topology, options), topology.servers)
    configs = node_configs(
        topology, "fatpaths", __name__, options, candidates=own_hosts, all_destinations=True
    )
    return {node: replace(config, tables=known) for node, config in configs.items()}


def machine(config: NodeConfig, incarnation: int) -> StateMachine:
    """Return the state machine of layered routing."""
    hello_s = config.interval_ms / 1000
    return Layered(
        parameters.neighbourhood(config, incarnation),
        parameters.database(config, incarnation),
        config.destinations,
        config.candidates,
        LayerTables(config.tables),
        hold_s=config.options["hold_ms"] / 1000,
        wait_s=WAIT * config.dead * hello_s,
    )


def rule(options: Options) -> SelectionRule:
    """Return the rule for packets at hosts and switches.

    ValueError if the kernel were to forward and to mark.

    A route of a layer has one port; where addresses without a layer have several, a flow's hash
    chooses, as under ecmp.
    """
    if options["forwarding"] and options["ecn"]:
        raise ValueError(
            "fatpaths: the kernel's own table does not mark packets; take forwarding=ebpf, or ecn=0"
        )
    hosts = {name: options[name] for name in ("layers", "seed", *HOSTS)}
    hosts["trigger"] = int(tuple(TRIGGERS.values())[options["trigger"]])
    return SelectionRule(
        KERNEL if options["forwarding"] else FLOW_HASH, {"ecn": options["ecn"]}, hosts=hosts
    )


def path(topology: Topology, options: Options, src: int, dst: int) -> list[RoutedPath]:
    """Return the path of each layer over live links (live_layers.py), with equal shares."""
    if src == dst:
        return [RoutedPath((src,))]
    first, live = topology.servers, topology.adjacency
    edges = [topology.edge(host) for host in (src, dst)]
    if any(edge not in live[host] for host, edge in zip((src, dst), edges, strict=True)):
        return []
    if edges[0] == edges[1]:
        return [RoutedPath((src, edges[0], dst))]
    known = LayerTables(packed(tables(topology, options), first))
    paths = known.live_paths(edges[1] - first, edges[0] - first, live_routers(topology))
    return [
        RoutedPath((src, *(first + router for router in way), dst), 1 / len(paths), layer)
        for layer, way in paths.items()
    ]


def check_layers(daemons: Options, options: Options) -> None:
    """Raise ValueError unless daemons have routes in as many layers as hosts choose among."""
    if options["layers"] > daemons["layers"]:
        raise ValueError(f"the daemons of this run have routes in {daemons['layers']} layers")


SCHEMES = (
    Scheme(
        name="fatpaths",
        summary="layers with one path each to every router; hosts choose a layer for each flowlet",
        source="FatPaths, section V",
        parameters=OWN | PLANE | parameters.HELLO | parameters.LINK_STATE,
        check=check,
        configure=configure,
        machine=machine,
        selection=Selection(parameters=PLANE, rule=rule, check_daemons=check_layers),
        path=path,
    ),
)


class Tuned(NamedTuple):
    """rho: fraction of links in a random layer.  paths: M of listing 2, of the routers."""

    rho: float
    paths: float


DEFAULT = Tuned(0.6, 1.0)
BEST: Mapping[str, Mapping[int, Tuned]] = {
    "slimfly": {4: Tuned(0.4, 1.0), 9: Tuned(0.45, 1.4), 16: Tuned(0.5, 1.4)},
    "dragonfly": {4: Tuned(0.5, 1.4), 9: Tuned(0.6, 1.4), 16: Tuned(0.55, 1.0)},
    "hyperx": {4: Tuned(0.4, 0.7), 9: Tuned(0.4, 1.0)},
    "xpander": {4: Tuned(0.6, 2.0), 9: Tuned(0.5, 2.0), 16: Tuned(0.55, 2.0), 32: Tuned(0.5, 2.0)},
    "jellyfish": {
        4: Tuned(0.5, 2.0),
        9: Tuned(0.6, 4.0),
        16: Tuned(0.55, 4.0),
        32: Tuned(0.5, 4.0),
    },
    "fattree": {4: Tuned(0.9, 1.0), 16: Tuned(0.9, 1.4), 32: Tuned(0.8, 1.4)},
}


def connecting_rho(routers: int, links: int) -> float:
    """Return the least density that is tuned to: that of layers which join all routers."""
    return min(1.0, LEAST_TREES * (routers - 1) / max(1, links))


def tuned(family: str, layers: int) -> Tuned:
    """Return the best parameters of this family at the nearest measured number of layers."""
    measured = BEST.get(family)
    if not measured:
        return DEFAULT
    return measured[min(measured, key=lambda n: abs(log(n / layers)))]
