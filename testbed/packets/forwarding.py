"""Where the packets of a scheme go: tables of switches, or a route for each flow."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cache
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from weft.daemons.core import registry
from weft.daemons.core.scheme import DAR, RoutedPath, SelectionRule
from weft.daemons.fatpaths import scheme as fatpaths
from weft.testbed.packets.network import NextHops, TcpLayers, layered, routed, shortest
from weft.testbed.packets.transport import Transport
from weft.topologies.core.topology import Topology, require_one_plane

Nodes = tuple[int, ...]


class Forwarding(NamedTuple):
    """Tables of a scheme's switches.

    next_hops: None if each flow has a route of its own, see FlowRoutes.
    mark_packets: packets in a queue from which on those that arrive are marked; 0: never.
    settings: of hosts' choice among layers, as in SelectionRule.hosts.
    """

    next_hops: NextHops | None
    mark_packets: int = 0
    settings: Mapping[str, int] = MappingProxyType({})

    @property
    def layers(self) -> int:
        """Return the number of layers among which hosts choose."""
        return self.settings.get("layers", 1)

    @property
    def remembers_flows(self) -> bool:
        """Return True if hosts choose a layer by their other flows to the same host."""
        words = {"start": "turn", "choice": "least"}
        return any(
            fatpaths.HOSTS[name].written(self.settings[name]) == word
            for name, word in words.items()
            if name in self.settings
        )

    @property
    def moves(self) -> TcpLayers | None:
        """Return how simulated hosts of TCP choose layers; None without layers."""
        if not self.settings:
            return None
        return TcpLayers(*(self.settings[field[0]] for field in TcpLayers._fields_))


def forwarding(topology: Topology, spec: str, degraded: Collection[int] = ()) -> Forwarding:
    """Return the tables of the scheme `spec` over the healthy links of `topology`.

    degraded: links that its switches avoid, if it does.  ValueError as check_forwarding() has it.
    """
    check_forwarding(topology, spec)
    scheme, options = registry.checked(topology, spec)
    rule = scheme.rule(options)
    if not rule:
        return Forwarding(None)
    routes = scheme.selection.routes if scheme.selection else None
    if routes:
        switches = range(topology.servers, topology.nodes)
        by_switch = {node: routes(topology, options, node, degraded) for node in switches}
        return Forwarding(routed(topology, rule, by_switch), rule["ecn"])
    if not rule.hosts:
        return Forwarding(shortest(topology, rule), rule["ecn"])
    hops = layered(topology, fatpaths.live_tables(topology, options))
    return Forwarding(hops, rule["ecn"], rule.hosts)


def check_forwarding(
    topology: Topology, spec: str, hosts: Transport | None = None, *, daemons: bool = False
) -> None:
    """Raise ValueError unless simulated nodes carry the scheme `spec` on `topology`.

    hosts: with their transport, which may have no choice of layers; None: it has.
    daemons: True if the scheme's daemons run beside the packets.
    """
    scheme, options = registry.checked(topology, spec)
    rule = scheme.rule(options)
    if rule and rule.reads_daemons and not (daemons and rule.rule == DAR):
        advice = "run its daemons, too" if rule.rule == DAR else "take states=0"
        raise ValueError(
            f"simulated switches do not run {spec}, which reads what daemons write; {advice}"
        )
    if hosts and hosts.name == "plain":
        require_one_plane("hosts without a transport", topology)
    if not rule and topology.planes > 1:
        raise ValueError(f"scheme {spec} has one path; on several planes take ecmp, rps or drill")
    if hosts:
        check_layers(rule, hosts)


def check_layers(rule: SelectionRule | None, hosts: Transport) -> None:
    """Raise ValueError if hosts choose layers by `rule`, and packets of `hosts` have none."""
    if not (rule and rule.hosts):
        return
    if hosts.name == "plain":
        raise ValueError("hosts without a transport choose no layers")
    if hosts.label != "none":
        raise ValueError(f"tcp: label={hosts.label} is for switches without layers")


class FlowRoutes:
    """Routes of flows as the scheme `spec` gives them over the healthy links of `topology`.

    A flow takes one of its pair's paths, with the probability of its share.
    """

    def __init__(self, topology: Topology, spec: str, seed: int) -> None:
        self._seed = seed
        scheme, options = registry.checked(topology, spec)

        @cache
        def paths(src: int, dst: int) -> list[RoutedPath]:
            return list(scheme.path(topology, options, src, dst))

        self._paths = paths

    def route(self, flow: int, src: int, dst: int) -> Nodes | None:
        """Return the nodes of the path of flow `flow`; None if the pair has none."""
        paths = self._paths(src, dst)
        if len(paths) < 2:
            return paths[0].nodes if paths else None
        shares = np.array([path.share for path in paths])
        generator = np.random.default_rng([self._seed, flow, src])
        return paths[int(generator.choice(len(paths), p=shares / shares.sum()))].nodes

    def both_ways(self, flow: int, src: int, dst: int) -> tuple[Nodes, Nodes]:
        """Return the routes there and back; ValueError if there is none."""
        there, back = self.route(flow, src, dst), self.route(flow, dst, src)
        if not there or not back:
            raise ValueError(f"no route between hosts {src} and {dst}")
        return there, back
