"""FatPaths: the source chooses a layer for each flowlet, and each layer has one path to each router (Besta et al.)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

from daemons.control import parameters
from daemons.control.candidate_routes import LiveRoutes
from daemons.core.contract import StateMachine
from daemons.core.node_config import NodeConfig, Options, node_configs
from daemons.core.scheme import Path, Scheme, for_switches
from daemons.fatpaths import construction
from daemons.fatpaths.forwarding import MOST_LAYERS, layer_routes
from daemons.fatpaths.layers import Graph
from daemons.fatpaths.layers import path as path_in
from topologies.core.family import Parameter

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from topologies.core.topology import Topology

WORDS = tuple(construction.CONSTRUCTIONS)
RHO_DECIMALS = 3
OWN = {
    "layers": Parameter(meaning="n, layer 0 with all links counted", least=1, most=MOST_LAYERS, default=9),
    "construction": Parameter(
        meaning="how layers are made", least=0, most=len(WORDS) - 1, default=WORDS.index("random"), words=WORDS
    ),
    "rho": Parameter(
        meaning="links of a random layer, as a fraction of all",
        least=1,
        most=10**RHO_DECIMALS,
        default=600,
        decimals=RHO_DECIMALS,
    ),
    "seed": Parameter(meaning="of the random numbers by which layers are made", least=0, default=1),
}


@dataclass(frozen=True)
class Wiring:
    """A network by what joins what: two of the same links are equal."""

    spec: str
    links: bytes
    topology: Topology = field(compare=False)


def tables(topology: Topology, options: Options) -> NDArray[np.int32]:
    """The tables of all layers, see layers.py, of the network as it is wired, failed links or not: layers are made
    before anything fails (section V-G).

    ValueError, in one line, where layers cannot be made.
    """
    for_switches("fatpaths", topology)
    intact = replace(topology, failed=topology.failed & False)
    wiring = Wiring(topology.spec, topology.links.tobytes(), intact)
    return _tables(wiring, *(options[key] for key in OWN))


@lru_cache(maxsize=4)
def _tables(wiring: Wiring, layers: int, kind: int, rho: int, seed: int) -> NDArray[np.int32]:
    import numpy as np

    found = construction.layers_of(
        WORDS[kind],
        Graph.of(wiring.topology),
        layers,
        np.random.Generator(np.random.PCG64(seed)),
        rho=rho / 10**RHO_DECIMALS,
    )
    found.setflags(write=False)
    return found


def check(topology: Topology, options: Options) -> None:
    """ValueError unless `topology` is a switch fabric of which there can be such layers."""
    tables(topology, options)


def configure(topology: Topology, options: Options, link_kbps: int) -> Mapping[int, NodeConfig]:
    """Every switch knows its one hop for each router in each layer."""
    return node_configs(topology, "fatpaths", __name__, options, candidates=layer_routes(tables(topology, options)))


def machine(config: NodeConfig, incarnation: int) -> StateMachine:
    """The routes of all layers, kept to the hops that live."""
    return LiveRoutes(parameters.neighbourhood(config, incarnation), config.candidates)


def path(topology: Topology, options: Options, src: int, dst: int) -> list[Path]:
    """The path of each layer in which no link of it is dead, all of them taken equally often: flowlets that leave by
    another are lost, and a flow goes on in a layer that works (section V-G)."""
    live = topology.adjacency
    found: list[tuple[tuple[int, ...], int | None]] = []
    edges = [next(peer for _, peer, _, _ in topology.ports(host)) - topology.servers for host in (src, dst)]
    if src == dst:
        found = [((src,), None)]
    elif edges[0] == edges[1]:
        found = [((src, edges[0] + topology.servers, dst), None)]
    else:
        for layer, table in enumerate(tables(topology, options)):
            between = (topology.servers + router for router in path_in(table, edges[0], edges[1]))
            found.append(((src, *between, dst), layer))
    working = [(nodes, layer) for nodes, layer in found if all(b in live[a] for a, b in pairwise(nodes))]
    return [Path(nodes, 1 / len(working), layer) for nodes, layer in working]


SCHEMES = (
    Scheme(
        name="fatpaths",
        summary="layers with one path each to every router, between which sources balance",
        source="FatPaths, section V",
        parameters=parameters.HELLO | OWN,
        check=check,
        configure=configure,
        machine=machine,
        path=path,
    ),
)
