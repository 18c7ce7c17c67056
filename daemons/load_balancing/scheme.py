"""Load-balancing schemes of a switch fabric: drill:d=2,m=1, ttc:delta=2,tie=stay,load=packets, ...

The data plane carries them out (daemons/routing/selection.py, testbed/data_plane/select.bpf.c);
which ports lead to a destination, the daemons of ecmp tell it.  Any of them takes ecn=K as well:
packets that find K or more waiting are marked (0: none).

A new selection rule of the data plane takes this file, for its number, its name and its parameters,
and testbed/data_plane/select.bpf.c, for the choice.  Parameters reach the program by their names:
`gap_us` of a scheme here is the field `gap_us` of struct switch_ there, a word being its place
among the words.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from enum import IntEnum
from typing import TYPE_CHECKING

from weft.daemons.core.actions import Hop
from weft.daemons.core.node_config import Options
from weft.daemons.core.scheme import ECN, RoutedPath, Scheme, Selection, for_switches
from weft.daemons.core.selection_rule import FLOW_HASH, KERNEL, SelectionRule
from weft.daemons.routing import path_shares, selection, updown
from weft.daemons.shortest_paths import scheme as shortest_paths
from weft.topologies.core.address import FabricNaming
from weft.topologies.core.family import IntegerParameter

if TYPE_CHECKING:
    from weft.topologies.core.topology import Topology

MOST_SAMPLES = 8
MOST = 1 << 24
# of hops, and the destination's number at this tier
Choose = Callable[[Sequence[Hop], int], path_shares.Chosen]

D = IntegerParameter(meaning="candidates that are compared", least=1, most=MOST_SAMPLES, default=2)
LOAD = IntegerParameter.word("what a load counts", ("packets", "bytes"))


class ChoiceRule(IntEnum):
    """How a packet's port is chosen; the numbers are those of select.h."""

    KERNEL = KERNEL
    D_MOD_K = 1
    FLOW_HASH = FLOW_HASH
    RANDOM = 3
    ROUND_ROBIN = 4
    DRILL = 5
    TTC = 6
    SHORTEST = 7
    FLOWLET = 8
    LBSP = 9
    DAR = 10


COMPARE_QUEUES = frozenset({ChoiceRule.DRILL, ChoiceRule.TTC, ChoiceRule.SHORTEST})


def _rule_of(base: SelectionRule) -> Callable[[Options], SelectionRule]:
    compares = base.rule in COMPARE_QUEUES
    return lambda options: replace(
        base, parameters={**base.parameters, **options}, compares_queues=compares
    )


def _vlb(options: Options) -> SelectionRule:
    return SelectionRule(
        ChoiceRule.RANDOM if options["per"] else ChoiceRule.FLOW_HASH, {"ecn": options["ecn"]}
    )


def to_any(hops: Sequence[Hop], number: int) -> path_shares.Chosen:
    """Where no queue is longer than another, every port gets its share."""
    return path_shares.evenly(hops)


def to_digit(hops: Sequence[Hop], number: int) -> path_shares.Chosen:
    """The destination's digit names the port."""
    return [(hops[selection.d_mod_k(number, len(hops))], 1.0)]


def to_digit_first(hops: Sequence[Hop], number: int) -> path_shares.Chosen:
    """The destination's digit names the port, and packets leave it for any other only where its
    queue is longer."""
    default = selection.d_mod_k(number, len(hops))
    return [(hop, float(at == default)) for at, hop in enumerate(hops)]


def _paths(name: str, choose: Choose) -> Callable[[Topology, Options, int, int], list[RoutedPath]]:
    def paths(topology: Topology, options: Options, src: int, dst: int) -> list[RoutedPath]:
        """Those of switches that choose among the hops on shortest paths."""
        for_switches(name, topology)
        naming = topology.naming
        assert isinstance(naming, FabricNaming)
        address = naming.address(dst)

        def chosen(switch: int) -> path_shares.Chosen:
            hops = updown.next_hops(topology, switch)[dst]
            number = selection.host_number(
                address, selection.digits(naming.layout, naming.tier(switch))
            )
            return choose(hops, number) if hops else ()

        return path_shares.paths(topology, src, dst, chosen)

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
    """A scheme of the data plane, whose daemons are those of ecmp.

    base: its rule, and parameters that a spec does not set.  own: parameters beside `ecn`.
    choose: which of the hops a packet takes where no queue is longer than another.
    rule: (options) -> the rule, where that is not `base` with them.
    """
    own = own or {}

    def check(topology: Topology, options: Options) -> None:
        for_switches(name, topology)

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
        "Valiant: a random way up for each flow, or for each packet",
        "TTC, section 4",
        SelectionRule(ChoiceRule.FLOW_HASH),
        {"per": IntegerParameter.word("what keeps its way", ("flow", "packet"))},
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
        "the ports in turn, packet by packet: what LBSP is compared with",
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
            "m": IntegerParameter(
                meaning="winners that are remembered", least=0, most=1, default=1
            ),
            "load": LOAD,
        },
    ),
    balancing(
        "ttc",
        "D-mod-k's port, unless its queue exceeds a random other's by over delta",
        "TTC, section 3",
        SelectionRule(ChoiceRule.TTC),
        {
            "delta": IntegerParameter(
                meaning="threshold, in packets or bytes", least=0, most=MOST, default=2
            ),
            "tie": IntegerParameter.word(
                "what becomes of a packet at exactly delta", ("stay", "redirect")
            ),
            "load": LOAD,
        },
        choose=to_digit_first,
    ),
    balancing(
        "jsq",
        "the shortest of all queues",
        "a yard-stick",
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
                meaning="silence that ends a flowlet, in microseconds",
                least=1,
                most=MOST,
                default=500,
            )
        },
    ),
)
