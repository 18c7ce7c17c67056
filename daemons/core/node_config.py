"""Configuration of a node's daemon: plain data, computed once from the whole graph.

registry.machine() makes the state machine from it alone, without the graph and without an array
library.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from weft.daemons.core.actions import Hop
from weft.daemons.core.contract import Capability
from weft.topologies.core.address import Prefix
from weft.topologies.recursive.ccrdn import Ccrdn, CcrdnNaming

if TYPE_CHECKING:
    from weft.topologies.core.topology import Topology

Settings = TypeVar("Settings")
Options = Mapping[str, int]  # by name of a parameter; a word is its position among the words
Routes = tuple[tuple[Prefix, tuple[Hop, ...]], ...]
# its multiples modulo 1 are spread evenly, however many there are
GOLDEN_FRACTION = 0.6180339887498949


@dataclass(frozen=True, kw_only=True)
class NodeConfig:
    """Configuration of `node` under `scheme`; plain tuples and integers.

    module: module that registers the scheme.
    interval_ms: time between hellos.
    dead: number of intervals without a hello after which a neighbour is dead.
    needs: capabilities that the node's runtime must have.
    ports: each port that carries hellos, with the nodes that the topology has there.
    network: sizes of a DCell, beta-DCell or FiConn.
    candidates: prefixes with the hops that may be used for each.
    destinations: prefixes with the router that each leads to, for a scheme that computes the hops
        itself.
    names: names of this node and its neighbours, for logs.
    phase_fraction: offset of this node's hellos within an interval.
    radices: radices of host labels in a switch fabric.
    tables: tables common to all nodes, packed by the scheme.
    routers: numbers of all nodes that run daemons; messages from other origins are dropped.
    """

    scheme: str
    module: str
    options: Options
    interval_ms: int
    dead: int
    needs: tuple[Capability, ...]
    node: int
    network: Ccrdn | None
    ports: tuple[tuple[int, tuple[int, ...]], ...]
    candidates: Routes
    destinations: tuple[tuple[Prefix, int], ...]
    names: Mapping[int, str]
    phase_fraction: float
    radices: tuple[int, ...] = ()
    tables: bytes = b""
    routers: range = range(1 << 32)


def settings_of(kind: type[Settings], options: Options, **derived: Any) -> Settings:
    """Return the dataclass `kind` with the options of its fields' names, and `derived` fields.

    A field in seconds, `x_s`, may have an option in milliseconds, `x_ms`.
    """
    values: dict[str, Any] = {}
    for name in kind.__annotations__:
        in_ms = f"{name.removesuffix('_s')}_ms"
        if name in options:
            values[name] = options[name]
        elif name.endswith("_s") and in_ms in options:
            values[name] = options[in_ms] / 1000
    return kind(**values | derived)


def routers(topology: Topology) -> range:
    """Return the nodes that run a daemon: servers of a server-centric network, else switches."""
    return (
        range(topology.servers)
        if topology.server_centric
        else range(topology.servers, topology.nodes)
    )


def no_routes(topology: Topology, node: int) -> Routes:
    """Return no candidates, for a scheme that computes its prefixes itself."""
    return ()


def own_hosts(topology: Topology, node: int) -> Routes:
    """Return the routes of a switch to its own hosts; none for a server."""
    if topology.server_centric:
        return ()
    naming = topology.naming
    return tuple(
        (Prefix(naming.address(host), 32), (Hop(port, host),))
        for port, host, _, _ in topology.ports(node)
        if host < topology.servers
    )


def node_configs(
    topology: Topology,
    scheme: str,
    module: str,
    options: Options,
    *,
    candidates: Callable[[Topology, int], Iterable[tuple[Prefix, tuple[Hop, ...]]]] = no_routes,
    all_destinations: bool = False,
    needs: tuple[Capability, ...] = (),
) -> dict[int, NodeConfig]:
    """Return the configuration of every router, for a scheme whose daemons send hellos.

    Args:
        topology: the network as it is wired.
        scheme: name of the scheme.
        module: module that registers it.
        options: options of the scheme, hello_ms and dead among them.
        candidates: (topology, node) -> routes that the node may use.
        all_destinations: True gives every node the prefixes of all routers.
        needs: capabilities that the nodes' runtime must have.
    """
    naming, nodes = topology.naming, routers(topology)
    config_of = partial(
        NodeConfig,
        scheme=scheme,
        module=module,
        options=options,
        interval_ms=options["hello_ms"],
        dead=options["dead"],
        needs=needs,
        network=naming.network if isinstance(naming, CcrdnNaming) else None,
        destinations=tuple(router_prefixes(topology)) if all_destinations else (),
        radices=() if topology.server_centric else naming.layout.radices,
        routers=nodes,
    )
    configs = {}
    for node in nodes:
        ports = _router_ports(topology, node)
        configs[node] = config_of(
            node=node,
            ports=ports,
            candidates=tuple(candidates(topology, node)),
            names=_names(topology, node, ports),
            phase_fraction=1 - node * GOLDEN_FRACTION % 1,
        )
    return configs


def _router_ports(topology: Topology, node: int) -> tuple[tuple[int, tuple[int, ...]], ...]:
    """Return the ports of `node` that carry hellos, each with the routers there."""
    nodes = routers(topology)
    wired = topology.neighbours(node).items()
    return tuple((port, near) for port, near in wired if all(other in nodes for other in near))


def _names(
    topology: Topology, node: int, ports: Iterable[tuple[int, tuple[int, ...]]]
) -> dict[int, str]:
    known = {node, *(other for _, near in ports for other in near)}
    return {other: topology.naming.name(other) for other in known}


def router_prefixes(topology: Topology) -> list[tuple[Prefix, int]]:
    """Return the prefix of each router: its own address, or in a fabric that of its hosts.

    Raises:
        ValueError: hosts of several switches share a prefix; no built-in fabric does.
    """
    naming = topology.naming
    if topology.server_centric:
        return [(Prefix(naming.address(server), 32), server) for server in range(topology.servers)]
    layout = naming.layout
    within: dict[Prefix, set[int]] = {}
    for host in range(topology.servers):
        within.setdefault(layout.prefix(layout.label_of(host)[:-1]), set()).add(topology.edge(host))
    prefixes = [(prefix, switch) for prefix, switches in within.items() for switch in switches]
    if len(prefixes) != len(within):
        raise ValueError(f"{topology.spec}: hosts of several switches share a prefix")
    return prefixes
