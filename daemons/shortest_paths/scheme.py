"""Shortest paths over the links that live: on every network, and on switch fabrics with Linux
multipath routes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.daemons.control import parameters
from weft.daemons.core.contract import StateMachine
from weft.daemons.core.node_config import NodeConfig, Options, node_configs, own_hosts
from weft.daemons.core.scheme import ECN, RoutedPath, Scheme, Selection, for_switches
from weft.daemons.core.selection_rule import FLOW_HASH, KERNEL, SelectionRule
from weft.daemons.routing import shortest
from weft.daemons.shortest_paths.daemon import Bfs

if TYPE_CHECKING:
    from weft.topologies.core.topology import Topology

PARAMETERS = parameters.HELLO | parameters.LINK_STATE


def configure(topology: Topology, options: Options, link_kbps: int) -> dict[int, NodeConfig]:
    """Every router knows which prefix leads to which router; a switch, its hosts."""
    return node_configs(
        topology, "bfs", __name__, options, candidates=own_hosts, all_destinations=True
    )


def machine(config: NodeConfig, incarnation: int) -> StateMachine:
    """Shortest paths by link state."""
    return Bfs(
        parameters.neighbourhood(config, incarnation),
        parameters.database(config, incarnation),
        config.destinations,
        config.candidates,
        hold_s=config.options["hold_ms"] / 1000,
    )


def path(topology: Topology, options: Options, src: int, dst: int) -> list[RoutedPath]:
    """One shortest path."""
    found = shortest.route(topology.adjacency, src, dst)
    return [RoutedPath(tuple(found))] if found else []


def check_fabric(topology: Topology, options: Options) -> None:
    """ValueError unless `topology` is a switch fabric."""
    for_switches("ecmp", topology)


def equal_paths(topology: Topology, options: Options, src: int, dst: int) -> list[RoutedPath]:
    """All shortest paths of a switch fabric, each with the share of flows that hashes give it."""
    from weft.daemons.routing import path_shares

    for_switches("ecmp", topology)
    return path_shares.shortest(topology, src, dst)


def rule(options: Options) -> SelectionRule:
    """Linux multipath routes; or, where packets are to be marked, the data plane's choice by a
    flow's hash."""
    return (
        SelectionRule(FLOW_HASH, {"ecn": options["ecn"]})
        if options["ecn"]
        else SelectionRule(KERNEL)
    )


SCHEMES = (
    Scheme(
        name="bfs",
        summary="shortest paths over the links that live, all of them known to all by link state",
        source="breadth-first search, the yard-stick of the others",
        parameters=PARAMETERS,
        configure=configure,
        machine=machine,
        path=path,
    ),
    Scheme(
        name="ecmp",
        summary="all equal-cost shortest paths of a switch fabric over the links that live, "
        "a flow's by its hash",
        source="RFC 2992",
        parameters={"ecn": ECN, **PARAMETERS},
        check=check_fabric,
        configure=configure,
        machine=machine,
        selection=Selection(parameters={"ecn": ECN}, rule=rule),
        path=equal_paths,
    ),
)
