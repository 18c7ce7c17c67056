"""DAR: leaves move flows until no link has more than p (Zahavi et al., ANCS 2012)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from weft.daemons.control import parameters
from weft.daemons.core.contract import FlowPlacement, StateMachine
from weft.daemons.core.node_config import (
    GOLDEN_FRACTION,
    NodeConfig,
    Options,
    node_configs,
    own_hosts,
)
from weft.daemons.core.scheme import ECN, RoutedPath, Scheme, Selection, SelectionRule, for_switches
from weft.daemons.dar.daemon import EAR, MOST_SPINES, Dar
from weft.daemons.dar.leaf import LeafSettings
from weft.topologies.core.address import FabricNaming
from weft.topologies.core.family import IntegerParameter

if TYPE_CHECKING:
    from weft.topologies.core.topology import Topology

QUEUE = 1  # among the words of `detect`
LIMITED = 2  # among those of `start`
OWN = {
    "p": IntegerParameter("flows that a link carries", 1, 64, default=2),
    "period_us": IntegerParameter(
        "time between looks at a switch's flows, in us", 1, 10_000_000, default=10_000
    ),
    "cool": IntegerParameter(
        "periods that a flow rests after a move, with detect=count", 0, 1000, default=2
    ),
    "ears": IntegerParameter.word(
        "requests of spines: behind packets, as in section 4, or ahead of them",
        ("behind", "first"),
    ),
    "every": IntegerParameter.flag(
        "1: an output leaf asks for a flow of each bad link at once, not only of the fullest"
    ),
    "swap": IntegerParameter.flag(
        "1: a flow that is moved to an uplink with p flows changes places with one of them",
        default=True,
    ),
    "informed": IntegerParameter.flag(
        "1: requests carry the map of spines with room; not in the paper"
    ),
    "pause": IntegerParameter(
        "looks at a bad link, in percent, at which a leaf requests nothing; from 5 on informed "
        "requests settle every permutation (persistent walk); not in the paper",
        0,
        99,
        default=0,
    ),
    "active_us": IntegerParameter(
        "silence after which a flow does not count, in us", 1, 60_000_000, default=50_000
    ),
    "idle_ms": IntegerParameter(
        "silence after which a flow is forgotten, in ms", 1, 600_000, default=1000
    ),
    "together": IntegerParameter.flag("1: all leaves look at the same time, as in the iteration"),
}
PLANE = {
    "detect": IntegerParameter.word(
        "what makes a link bad: too many flows by count (section 2), or a long queue (section 4)",
        ("count", "queue"),
    ),
    "start": IntegerParameter.word(
        "spine of a new flow: source mod n, as in figure 9; its hash; its hash if that uplink has "
        "room, else one with room (section 2); or destination mod m, as InfiniBand routes",
        ("modulo", "hash", "limited", "destination"),
    ),
    "key": IntegerParameter.word(
        "what a leaf places and moves: a flow, or all of its flows to one host (section 4)",
        ("flow", "dest"),
    ),
    "elephant_kb": IntegerParameter(
        "data after which a flow is counted and moved, in kB; until then it goes by its hash",
        0,
        1 << 20,
        default=100,
    ),
    "queue": IntegerParameter(
        "full packets that make a queue too long, with detect=queue",
        1,
        1 << 24,
        default=8,
    ),
    "rest_us": IntegerParameter(
        "time for which a flow is not moved again after a long queue, nor requested by the "
        "same spine, in us",
        0,
        60_000_000,
        default=10_000,
    ),
    "ecn": ECN,
}


def rule(options: Options) -> SelectionRule:
    """Return the selection rule."""
    from weft.daemons.load_balancing.scheme import ChoiceRule  # unused by daemons

    return SelectionRule(
        ChoiceRule.DAR, options, compares_queues=options["detect"] == QUEUE, reads_daemons=True
    )


def sizes(topology: Topology) -> tuple[int, int, int]:
    """Return n, r and m of the folded Clos network `topology`; ValueError unless it is one."""
    for_switches("dar", topology)
    naming, radices = topology.naming, topology.naming.layout.radices
    assert isinstance(naming, FabricNaming)
    layers = {naming.tier(node) for node in range(topology.servers, topology.nodes)}
    if layers != {1, 2} or len(radices) != 2:
        raise ValueError(
            f"scheme dar runs on folded Clos networks of two tiers, such as "
            f"clos:n=4,r=4,m=4; {topology.spec} is none"
        )
    r, n = radices
    return n, r, topology.switches - r


def check(topology: Topology, options: Options) -> None:
    """Raise ValueError unless each permutation has a routing on the Clos network `topology`."""
    from weft.daemons.dar import iteration

    n, r, m = sizes(topology)
    iteration.check(n, r, m, iteration.IterationRules(p=options["p"]))
    if m > MOST_SPINES:
        raise ValueError(
            f"scheme dar: a request has a map of at most {MOST_SPINES} spines, "
            f"{topology.spec} has {m}"
        )


def configure(topology: Topology, options: Options, link_kbps: int) -> dict[int, NodeConfig]:
    """Return configurations with the times of each switch's reports of flows.

    Each has a phase of its own.  Spines have reports only if queues detect bad links; their tables
    only forget flows then.
    """
    configs = node_configs(
        topology, "dar", __name__, options, candidates=own_hosts, all_destinations=True
    )
    needed = {}
    for node, config in configs.items():
        phase = 0.0 if options["together"] else node * GOLDEN_FRACTION % 1
        looks = FlowPlacement(
            options["period_us"] / 1e6,
            phase,
            options["idle_ms"] / 1000,
            by_destination=bool(options["key"]),
        )
        has_use = bool(config.candidates) or options["detect"] == QUEUE
        needed[node] = replace(config, needs=(looks,) if has_use else ())
    return needed


def machine(config: NodeConfig, incarnation: int) -> StateMachine:
    """Return the state machine of DAR for one switch."""
    options = config.options
    leaves, hosts = config.radices
    spines = [node for _, (node,) in config.ports]
    by_queue = options["detect"] == QUEUE
    choices = LeafSettings(
        p=options["p"],
        by_queue=by_queue,
        ears_queued=by_queue and not options["ears"],
        by_destination=bool(options["key"]),
        limited=options["start"] == LIMITED,
        every_link=bool(options["every"]),
        swap=bool(options["swap"]),
        informed=bool(options["informed"]),
        pause_percent=options["pause"],
        cool_s=(options["rest_us"] if by_queue else options["cool"] * options["period_us"]) / 1e6,
        active_s=options["active_us"] / 1e6,
    )
    return Dar(
        parameters.neighbourhood(config, incarnation),
        parameters.database(config, incarnation),
        config.destinations,
        config.candidates,
        hold_s=options["hold_ms"] / 1000,
        settings=choices,
        looks=next((need for need in config.needs if isinstance(need, FlowPlacement)), None),
        first_spine=leaves * hosts + leaves,
        spines=len(spines),
        incarnation=incarnation,
    )


def path(topology: Topology, options: Options, src: int, dst: int) -> list[RoutedPath]:
    """All shortest paths: a flow may be moved to any of them."""
    from weft.daemons.routing import path_shares

    sizes(topology)
    return path_shares.shortest(topology, src, dst)


def any_daemons(daemons: Options, options: Options) -> None:
    """Accept all daemons of DAR: they move the flows that the rule notes."""


def flow_row(topology: Topology, node: int, status: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the flows on the links of a leaf, and the spines of links with more than p."""
    if all(peer >= topology.servers for _, peer, *_ in topology.ports(node)):
        return None
    bad = [f"{way} {spine}" for way, spines in status["bad"].items() for spine in spines]
    counters = {key: status[key] for key in ("moves", "swaps", "replaced")}
    requests = {f"requests_{key}": status["ears"][key] for key in ("sent", "stale")}
    return {**status["flows"], "bad": bad, **counters, **requests}


SCHEMES = (
    Scheme(
        name="dar",
        summary="leaves move flows to other spines on request, until no link has more than p "
        "(Zahavi et al.)",
        source="DAR, sections 2 and 4",
        parameters=parameters.HELLO | parameters.LINK_STATE | OWN | PLANE,
        check=check,
        configure=configure,
        machine=machine,
        selection=Selection(parameters=PLANE, rule=rule, check_daemons=any_daemons),
        path=path,
        needs=frozenset({FlowPlacement}),
        messages=(EAR,),
        flow_row=flow_row,
    ),
)
