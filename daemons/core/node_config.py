"""What a node's daemon has to know of the network: worked out once from the whole graph, as plain data.

From it alone registry.machine() makes the state machine, without graph and without an array library.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from weft.daemons.core.actions import Hop
from weft.daemons.core.capabilities import Capability
from weft.topologies.core.address import Prefix
from weft.topologies.recursive.ccrdn import Ccrdn, CcrdnNaming

if TYPE_CHECKING:
    from weft.topologies.core.topology import Topology

Options = Mapping[str, int]  # by name of a parameter; a word is its place among the parameter's words
Routes = tuple[tuple[Prefix, tuple[Hop, ...]], ...]
GOLDEN_FRACTION = 0.6180339887498949  # its multiples modulo 1 are spread evenly however many are taken


@dataclass(frozen=True, kw_only=True)
class NodeConfig:
    """What `node` needs to know to route by `scheme`; plain tuples and integers.

    module: where the scheme is registered.
    interval_ms, dead: the time between hellos, and how many may be missing.
    needs: what the scheme needs of the node's carrier.
    ports: each port that carries hellos, and the nodes that the topology promises there.
    network: of a DCell, beta-DCell or FiConn, its sizes.
    candidates: prefixes and the hops that may be used for each.
    destinations: prefixes and the node that each leads to, where the scheme finds the hops itself.
    names: of this node and its neighbours, for those who read logs.
    phase_fraction: where in an interval this node's hellos lie.
    radices: of a switch fabric, those of its hosts' labels.
    tables: what was worked out for all nodes alike, as the scheme packs it.
    routers: the numbers of all nodes that run daemons; messages that name another origin are dropped.
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


def routers(topology: Topology) -> range:
    """The nodes that run a daemon: the servers of a server-centric network, the switches of a fabric."""
    return range(topology.servers) if topology.server_centric else range(topology.servers, topology.nodes)


def no_routes(topology: Topology, node: int) -> Routes:
    """The candidates of a scheme that finds its prefixes itself."""
    return ()


def own_hosts(topology: Topology, node: int) -> Routes:
    """The hosts of a switch, each at its port; none of a server."""
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
    tables: bytes = b"",
) -> dict[int, NodeConfig]:
    """The configuration of every router of `topology` as it is wired, for a scheme whose daemons say hello.

    scheme, module: its name and where it is registered.
    options: of the scheme; hello_ms and dead among them.
    candidates: (topology, node) -> routes that the node may use.
    all_destinations: whether each node is told what leads to every router.
    tables: what every node is told.
    """
    destinations = tuple(router_prefixes(topology)) if all_destinations else ()
    naming, nodes = topology.naming, routers(topology)
    found = {}
    for node in nodes:
        wired = topology.neighbours(node).items()
        ports = {port: near for port, near in wired if all(other in nodes for other in near)}
        known = {node, *(other for near in ports.values() for other in near)}
        found[node] = NodeConfig(
            scheme=scheme,
            module=module,
            options=options,
            interval_ms=options["hello_ms"],
            dead=options["dead"],
            needs=needs,
            node=node,
            network=naming.network if isinstance(naming, CcrdnNaming) else None,
            ports=tuple(ports.items()),
            candidates=tuple(candidates(topology, node)),
            destinations=destinations,
            names={other: naming.name(other) for other in known},
            phase_fraction=1 - node * GOLDEN_FRACTION % 1,
            radices=() if topology.server_centric else naming.layout.radices,
            tables=tables,
            routers=nodes,
        )
    return found


def router_prefixes(topology: Topology) -> list[tuple[Prefix, int]]:
    """What leads to each router: in a server-centric network its own address, in a fabric its hosts'.

    The hosts of a switch are one prefix where no others are in it, which holds for every fabric that there is.
    """
    naming = topology.naming
    if topology.server_centric:
        return [(Prefix(naming.address(server), 32), server) for server in range(topology.servers)]
    layout = naming.layout
    within: dict[Prefix, set[int]] = {}
    for host in range(topology.servers):
        within.setdefault(layout.prefix(layout.label_of(host)[:-1]), set()).add(topology.ports(host)[0][1])
    found = [(prefix, switch) for prefix, switches in within.items() for switch in switches]
    if len(found) != len(within):
        raise ValueError(f"{topology.spec}: hosts of several switches share a prefix")
    return found
