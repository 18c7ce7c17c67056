"""Load-balancing schemes of a switch fabric: drill:d=2,m=1, ttc:delta=2,tie=stay,load=packets, ...

The data plane chooses a port for each packet (daemons/routing/selection.py,
testbed/data_plane/select.bpf.c).  The daemons of ecmp tell it which ports lead to a destination.
Every scheme also takes ecn=K: a packet that meets K or more in the queue is marked (0: never).

CONTRIBUTING.md lists the files of a new selection rule.  Parameters reach the program by name:
`gap_us` of a scheme is the field `gap_us` of struct switch_.  A word becomes its position among the
words.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from enum import IntEnum
from typing import TYPE_CHECKING

from weft.daemons.core.actions import Hop
from weft.daemons.core.node_config import Options
from weft.daemons.core.scheme import (
    DAR,
    ECN,
    FLOW_HASH,
    KERNEL,
    OWN,
    RANDOM,
    RoutedPath,
    Scheme,
    Selection,
    SelectionRule,
    for_switches,
)
from weft.daemons.routing import path_shares, selection, updown
from weft.daemons.shortest_paths import scheme as shortest_paths
from weft.topologies.core.address import FabricNaming
from weft.topologies.core.family import IntegerParameter

if TYPE_CHECKING:
    from pathlib import Path

    from weft.topologies.core.topology import Topology

MOST_SAMPLES = 8
MOST = 1 << 24
# (hops, the destination's number at this tier) -> hops with their shares of packets
Choose = Callable[[Sequence[Hop], int], path_shares.Chosen]

D = IntegerParameter("compared candidates", 1, MOST_SAMPLES, default=2)
LOAD = IntegerParameter.word("unit of a load", ("packets", "bytes"))
FLOWLET_GAP = IntegerParameter(
    "silence that ends a flowlet, in microseconds; 0: each packet chooses", 0, MOST, default=0
)


class ChoiceRule(IntEnum):
    """Rules by which a switch chooses a packet's port, with the numbers of select.h."""

    KERNEL = KERNEL
    D_MOD_K = 1
    FLOW_HASH = FLOW_HASH
    RANDOM = RANDOM
    ROUND_ROBIN = 4
    DRILL = 5
    TTC = 6
    SHORTEST = 7
    FLOWLET = 8
    LBSP = 9
    DAR = DAR
    VALIANT = 11
    UGAL = 12
    OWN = OWN


COMPARE_QUEUES = frozenset({ChoiceRule.DRILL, ChoiceRule.TTC, ChoiceRule.SHORTEST, ChoiceRule.UGAL})


def _rule_of(base: SelectionRule) -> Callable[[Options], SelectionRule]:
    compares = base.compares_queues or base.rule in COMPARE_QUEUES
    return lambda options: replace(
        base, parameters={**base.parameters, **options}, compares_queues=compares
    )


def _vlb(options: Options) -> SelectionRule:
    return SelectionRule(
        ChoiceRule.RANDOM if options["per"] else ChoiceRule.FLOW_HASH, {"ecn": options["ecn"]}
    )


def to_any(hops: Sequence[Hop], number: int) -> path_shares.Chosen:
    """Return equal shares: with queues of equal length, no port is preferred."""
    return path_shares.evenly(hops)


def to_digit(hops: Sequence[Hop], number: int) -> path_shares.Chosen:
    """Return the port that the destination's digit names."""
    return [(hops[selection.d_mod_k(number, len(hops))], 1.0)]


def to_digit_first(hops: Sequence[Hop], number: int) -> path_shares.Chosen:
    """Return the port that the destination's digit names, and the others with share 0.

    Packets take another port only if the first one's queue is longer.
    """
    default = selection.d_mod_k(number, len(hops))
    return [(hop, float(index == default)) for index, hop in enumerate(hops)]


def _paths(name: str, choose: Choose) -> Callable[[Topology, Options, int, int], list[RoutedPath]]:
    def paths(topology: Topology, options: Options, src: int, dst: int) -> list[RoutedPath]:
        """Return the paths of packets whose switches choose among hops on shortest paths."""
        for_switches(name, topology, has_planes=True)
        naming = topology.naming
        assert isinstance(naming, FabricNaming)
        address = naming.address(dst)

        def shares(switch: int) -> path_shares.Chosen:
            hops = updown.hops_to(topology, switch, dst)
            number = selection.host_number(
                address, selection.digits(naming.layout, naming.tier(switch))
            )
            return choose(hops, number) if hops else ()

        return path_shares.paths(topology, src, dst, shares)

    return paths


def balancing(
    name: str,
    summary: str,
    source: str,
    base: SelectionRule,
    own: Mapping[str, IntegerParameter] | None = None,
    *,
    choose: Choose = to_any,
    rule: Callable[[Options], SelectionRule] | None = None,
) -> Scheme:
    """Return a scheme that differs from ecmp in its data plane only.

    Args:
        name: name of the scheme.
        summary: one line for people.
        source: paper and section.
        base: its selection rule, with parameters that a spec cannot set.
        own: parameters beside `ecn`.
        choose: shares of the hops when all queues are equally long.
        rule: (options) -> selection rule; by default `base` with these options.
    """
    own = own or {}

    def check(topology: Topology, options: Options) -> None:
        for_switches(name, topology, has_planes=True)

    return Scheme(
        name=name,
        summary=summary,
        source=source,
        parameters={**own, "ecn": ECN, **shortest_paths.PARAMETERS},
        check=check,
        configure=shortest_paths.configure,
        machine=shortest_paths.machine,
        selection=Selection(parameters={**own, "ecn": ECN}, rule=rule or _rule_of(base)),
        path=_paths(name, choose),
    )


def own_rule(
    name: str,
    summary: str,
    source: str,
    code: Path,
    parameters: Mapping[str, IntegerParameter] | None = None,
    *,
    compares_queues: bool = True,
    choose: Choose = to_any,
) -> Scheme:
    """Return a scheme of another package, whose switches choose by a C function.

    Args:
        name: name of the scheme.
        summary: one line for people.
        source: paper and section.
        code: file that defines choose() of testbed/data_plane/own_rule.h.
        parameters: its own, at most 8, which struct parameters has; and `load` as LOAD, if users
            may let load_of() return bytes.
        compares_queues: False if it never calls load_of(), so that links need no rate.
        choose: shares of the hops when all queues are equally long.
    """
    rule = SelectionRule(ChoiceRule.OWN, compares_queues=compares_queues, code=code)
    return balancing(name, summary, source, rule, parameters, choose=choose)


def with_detours(scheme: Scheme) -> Scheme:
    """Return `scheme`, made by balancing(), with its checks, and the paths of its detours.

    Where all queues are equally long, UGAL takes shortest paths.
    """

    def check(topology: Topology, options: Options) -> None:
        path_shares.check(scheme.name, topology)

    def path(topology: Topology, options: Options, src: int, dst: int) -> list[RoutedPath]:
        """Return the paths of packets that visit a random switch."""
        check(topology, options)
        return path_shares.detour_paths(topology, src, dst)

    assert scheme.selection
    return replace(
        scheme,
        check=check,
        selection=replace(scheme.selection, check=check),
        path=scheme.path if scheme.name == "ugal" else path,
    )


SCHEMES = (
    balancing(
        "dmodk",
        "the destination's digit, as TTC's default path",
        "TTC, section 2.1",
        SelectionRule(ChoiceRule.D_MOD_K),
        choose=to_digit,
    ),
    balancing(
        "vlb",
        "Valiant: a random path up for each flow, or for each packet",
        "TTC, section 4",
        SelectionRule(ChoiceRule.FLOW_HASH),
        {"per": IntegerParameter.word("unit that keeps its path", ("flow", "packet"))},
        rule=_vlb,
    ),
    balancing(
        "rps",
        "a random port for each packet",
        "Dixit et al., INFOCOM 2013",
        SelectionRule(ChoiceRule.RANDOM),
    ),
    balancing(
        "rr",
        "the ports in turn, packet by packet",
        "DRB (Cao et al., CoNEXT 2013)",
        SelectionRule(ChoiceRule.ROUND_ROBIN),
    ),
    balancing(
        "spray",
        "the ports in turn, packet by packet: the baseline of LBSP",
        "LBSP, section 4",
        SelectionRule(ChoiceRule.ROUND_ROBIN),
    ),
    balancing(
        "micro",
        "the shorter queue of two random ports",
        "HotNets 2015; TTC, section 4",
        SelectionRule(ChoiceRule.DRILL, {"d": 2}),
        {"load": LOAD},
    ),
    balancing(
        "drill",
        "the shortest queue of d random ports and the last winner",
        "Ghorbani et al., SIGCOMM 2017",
        SelectionRule(ChoiceRule.DRILL),
        {
            "d": D,
            "m": IntegerParameter("remembered winners", 0, 1, default=1),
            "load": LOAD,
        },
    ),
    balancing(
        "ttc",
        "D-mod-k's port, unless its queue is over delta longer than that of a random other port",
        "TTC, section 3",
        SelectionRule(ChoiceRule.TTC),
        {
            "delta": IntegerParameter("threshold, in packets or bytes", 0, MOST, default=2),
            "tie": IntegerParameter.word(
                "choice at a difference of exactly delta", ("stay", "redirect")
            ),
            "load": LOAD,
        },
        choose=to_digit_first,
    ),
    balancing(
        "jsq",
        "the shortest of all queues",
        "a baseline",
        SelectionRule(ChoiceRule.SHORTEST),
        {"load": LOAD},
    ),
    balancing(
        "letflow",
        "a random port for each flowlet",
        "Vanini et al., NSDI 2017",
        SelectionRule(ChoiceRule.FLOWLET),
        {
            "gap_us": IntegerParameter(
                "silence that ends a flowlet, in microseconds", 1, MOST, default=500
            )
        },
    ),
    with_detours(
        balancing(
            "valiant",
            "shortest paths to a random switch and on, for each packet or flowlet",
            "Valiant, SIAM J. Comput. 1982; Kim et al., ISCA 2008",
            SelectionRule(ChoiceRule.VALIANT, has_detours=True),
            {"gap_us": FLOWLET_GAP},
        )
    ),
    with_detours(
        balancing(
            "ugal",
            "UGAL-L: a shortest path or a random detour, by queue of the first port times hops",
            "Singh, Stanford 2005; Kim et al., ISCA 2008, section 4",
            SelectionRule(ChoiceRule.UGAL, has_detours=True),
            {
                "d": IntegerParameter("compared detours", 1, path_shares.MOST_DETOURS, default=1),
                "delta": IntegerParameter(
                    "threshold in favour of shortest paths, in packets or bytes, times hops",
                    0,
                    MOST,
                    default=0,
                ),
                "load": LOAD,
                "gap_us": FLOWLET_GAP,
            },
        )
    ),
)
