"""Shortest paths over live links, on every network; on fabrics also with multipath routes."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
from weft.daemons.routing import shortest
from weft.daemons.shortest_paths.daemon import Bfs
from weft.topologies.core.family import IntegerParameter

if TYPE_CHECKING:
    from weft.topologies.core.topology import Topology

PARAMETERS = parameters.HELLO | parameters.LINK_STATE
SEEDS = IntegerParameter.word(
    "seeds of the switches' hashes; the same one polarises flows", ("own", "same")
)


def configure(topology: Topology, options: Options, link_kbps: int) -> dict[int, NodeConfig]:
    """Return configurations with the prefix of every router and, for a switch, its hosts."""
    return node_configs(
        topology, "bfs", __name__, options, candidates=own_hosts, all_destinations=True
    )


def machine(config: NodeConfig, incarnation: int) -> StateMachine:
    """Return the state machine of shortest paths."""
    return Bfs(
        parameters.neighbourhood(config, incarnation),
        parameters.database(config, incarnation),
        config.destinations,
        config.candidates,
        hold_s=config.options["hold_ms"] / 1000,
    )


def path(topology: Topology, options: Options, src: int, dst: int) -> list[RoutedPath]:
    """Return one shortest path; none if `dst` is unreachable."""
    nodes = shortest.route(topology.adjacency, src, dst)
    return [RoutedPath(tuple(nodes))] if nodes else []


def check_fabric(topology: Topology, options: Options) -> None:
    """Raise ValueError unless `topology` is a switch fabric."""
    for_switches("ecmp", topology, has_planes=True)


def equal_paths(topology: Topology, options: Options, src: int, dst: int) -> list[RoutedPath]:
    """Return all shortest paths of a switch fabric, each with its share of flows by hash."""
    from weft.daemons.routing import path_shares

    paths = path_shares.polarised if options["seeds"] else path_shares.shortest
    return paths(topology, src, dst)


def rule(options: Options) -> SelectionRule:
    """Return the rule of Linux multipath routes, or the data plane's choice by flow hash.

    The kernel's multipath routes cannot mark packets, and before Linux 6.11 take no seeds.
    """
    if not options["ecn"] and not options["seeds"]:
        return SelectionRule(KERNEL)
    return SelectionRule(FLOW_HASH, {"ecn": options["ecn"]}, common_seed=bool(options["seeds"]))


SCHEMES = (
    Scheme(
        name="bfs",
        summary="shortest paths over live links, known by link state",
        source="breadth-first search, the baseline of the other schemes",
        parameters=PARAMETERS,
        configure=configure,
        machine=machine,
        path=path,
        fixed_path=True,
    ),
    Scheme(
        name="ecmp",
        summary="all equal-cost shortest paths of a switch fabric over live links; a hash chooses "
        "each flow's path",
        source="RFC 2992",
        parameters={"ecn": ECN, "seeds": SEEDS, **PARAMETERS},
        check=check_fabric,
        configure=configure,
        machine=machine,
        selection=Selection(parameters={"ecn": ECN, "seeds": SEEDS}, rule=rule),
        path=equal_paths,
    ),
)
