"""LBSP: symmetric path groups of a fat-tree, by destination (Lim, Appl. Sci. 2021)."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from weft.daemons.control import parameters
from weft.daemons.core.actions import Hop
from weft.daemons.core.contract import Capability, LinkRates, QueueState, StateMachine
from weft.daemons.core.node_config import NodeConfig, Options, node_configs, own_hosts, settings_of
from weft.daemons.core.scheme import (
    ECN,
    RoutedPath,
    Scheme,
    Selection,
    SelectionRule,
    arrives_by,
    for_switches,
)
from weft.daemons.lbsp import messages
from weft.daemons.lbsp import routing as lbsp
from weft.daemons.lbsp.daemon import Lbsp, LbspTimes
from weft.daemons.lbsp.routing import LbspShape, Uplink, shape_of
from weft.topologies.core.address import Prefix, covering
from weft.topologies.core.family import IntegerParameter

if TYPE_CHECKING:
    from weft.daemons.routing.path_shares import Chosen
    from weft.topologies.core.topology import Topology

OWN = {
    "patience_ms": IntegerParameter(
        "how long links may take to come up at first before others are told, in ms",
        0,
        60_000,
        default=1000,
    ),
    "rate_kbps": IntegerParameter(
        "rate of the links: those found slower count as degraded, in kbit/s; 0: "
        "links are not watched",
        0,
        2_000_000,
        default=0,
    ),
    "lifetime_ms": IntegerParameter(
        "how long a failure message is believed, in ms", 30, 3_600_000, default=3000
    ),
}
PLANE = {
    "groups": IntegerParameter("link groups of a switch, a power of two", 2, 64, default=2),
    "hash": IntegerParameter.flag("1: a flow's hash chooses the link group (section 3.4)"),
    "states": IntegerParameter.flag("1: crowded link groups give packets away (section 5)"),
    "edge_packets": IntegerParameter(
        "packets that may make a link group of an edge switch crowded", 0, 1 << 24, default=5
    ),
    "edge_percent": IntegerParameter(
        "packets of a crowded link group, in % of the other group's", 100, 1_000_000, default=150
    ),
    "above_packets": IntegerParameter("the same of aggregation switches", 0, 1 << 24, default=20),
    "above_percent": IntegerParameter(
        "the same of aggregation switches, in %", 100, 1_000_000, default=200
    ),
    "ecn": ECN,
}


def rule(options: Options) -> SelectionRule:
    """Return the selection rule; ValueError unless the number of groups is a power of two."""
    from weft.daemons.load_balancing.scheme import ChoiceRule  # unused by daemons

    groups = options["groups"]
    if groups & (groups - 1):
        raise ValueError(f"lbsp: groups must be a power of two, got {groups}")
    if groups != 2 and options["states"]:
        raise ValueError(f"lbsp: states need two link groups, got groups={groups}")
    return SelectionRule(
        ChoiceRule.LBSP,
        {**options, "group_bits": groups.bit_length() - 1},
        reads_from_first_digit=True,
        reads_daemons=bool(options["states"]),
    )


def shape(topology: Topology, options: Options) -> LbspShape:
    """Return the sizes of the fat-tree `topology`; ValueError if LBSP cannot group its paths."""
    for_switches("lbsp", topology)
    return shape_of(topology, options["groups"])


def check(topology: Topology, options: Options) -> None:
    """Raise ValueError unless LBSP can group the paths of `topology`."""
    shape(topology, options)


def configure(topology: Topology, options: Options, link_kbps: int) -> dict[int, NodeConfig]:
    """Return configurations with the sizes of the fat-tree and, for a switch, its own hosts."""
    needs: tuple[Capability, ...] = (QueueState(),)
    if options["rate_kbps"]:
        needs += (LinkRates(1000 * options["rate_kbps"]),)
    return node_configs(topology, "lbsp", __name__, options, candidates=own_hosts, needs=needs)


def machine(config: NodeConfig, incarnation: int) -> StateMachine:
    """Return the state machine of LBSP for one switch."""
    options, interval_s = config.options, config.interval_ms / 1000
    return Lbsp(
        parameters.neighbourhood(config, incarnation),
        LbspShape.of(config.radices, options["groups"]),
        config.candidates,
        incarnation=incarnation,
        times=settings_of(
            LbspTimes, options, begin_s=(config.dead + 2) * interval_s, gap_s=interval_s
        ),
    )


def dead_uplinks(topology: Topology, fabric: LbspShape) -> list[Uplink]:
    """Return the failed links between switches of `topology`."""
    ends = [topology.ends(link) for link in topology.failed_links()]
    return [fabric.link(a, b) for a, _, b, _ in ends if a >= topology.servers]


def routes(
    topology: Topology, options: Options, switch: int, degraded: Collection[int]
) -> dict[Prefix, list[int]]:
    """Return the ports of `switch` by prefix, in columns of link groups, and those of its hosts."""
    fabric = shape(topology, options)
    ends = [topology.ends(link) for link in sorted(degraded)]
    slow = [fabric.link(a, b) for a, _, b, _ in ends]
    table = lbsp.table(fabric, fabric.position(switch), dead_uplinks(topology, fabric), slow)
    ports = {prefix: list(route.ports) for prefix, route in table.items()}
    layout = topology.naming.layout
    for port, peer, *_ in topology.ports(switch):
        if peer < topology.servers:
            ports[layout.prefix(layout.label_of(peer))] = [port]
    return ports


def check_groups(daemons: Options, options: Options) -> None:
    """Raise ValueError unless daemons and rule part the uplinks of a switch alike."""
    if options["groups"] != daemons["groups"]:
        raise ValueError(
            f"the daemons of this run part a switch's uplinks into {daemons['groups']} link groups"
        )


def path(topology: Topology, options: Options, src: int, dst: int) -> list[RoutedPath]:
    """Return the paths over the destination's link groups, or over all groups with `hash`.

    Every switch knows all dead links.
    """
    from weft.daemons.routing import path_shares

    fabric = shape(topology, options)
    dead = dead_uplinks(topology, fabric)
    destination = Prefix(topology.naming.address(dst), 32)

    def choose(switch: int) -> Chosen:
        peers = {port: peer for port, peer, *_ in topology.ports(switch)}
        if dst in peers.values():
            return [(Hop(port, peer), 1.0) for port, peer in peers.items() if peer == dst]
        position = fabric.position(switch)
        table = lbsp.table(fabric, position, dead)
        columns = table[covering(destination, table)].columns
        if len(columns) > 1 and not options["hash"]:
            columns = (columns[fabric.link_group(position.tier, dst)],)
        hops = [Hop(port, peers[port]) for column in columns for port in column]
        return path_shares.evenly(hops)

    return path_shares.paths(topology, src, dst, choose)


SCHEMES = (
    Scheme(
        name="lbsp",
        summary="symmetric path groups by destination: packets take turns in a group, and "
        "another group where a link fails (Lim)",
        source="LBSP, sections 3.2, 3.3 and 5",
        parameters=parameters.HELLO | OWN | PLANE,
        check=check,
        configure=configure,
        machine=machine,
        selection=Selection(
            parameters=PLANE,
            rule=rule,
            check=check,
            routes=routes,
            check_daemons=check_groups,
        ),
        path=path,
        needs=frozenset({QueueState}),
        messages=messages.FORMATS,
        connects=arrives_by(path),
        handles_degraded_links=True,
    ),
)
