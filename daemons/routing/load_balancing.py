"""Load-balancing schemes of a switch fabric by their specs: ecmp, drill:d=2,m=1, ttc:delta=2,tie=stay,load=packets ...

Every scheme but ecmp is carried out by the data plane (selection.py, testbed/bpf/select.bpf.c); ecmp by Linux multipath
routes.  Any of the data plane's takes ecn=K as well: packets that find K or more waiting are marked (0: none).

A new selection rule of the data plane takes this file, for its number, its name and its parameters, and
testbed/bpf/select.bpf.c, for the choice.  Parameters reach the program by their names: what a Kind calls `gap_us` is
the field `gap_us` of struct switch_ there, a word being its place among the words.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from topologies.core.grammar import integer, parse, unknown, unparse

MOST_SAMPLES = 8
NO_QUEUES = "it chooses by what waits in queues, and links without a rate have none; give them a rate such as 20mbit"


class Rule(IntEnum):
    """How a packet's port is chosen; the numbers are those of select.h."""

    KERNEL = 0
    D_MOD_K = 1
    FLOW_HASH = 2
    RANDOM = 3
    ROUND_ROBIN = 4
    DRILL = 5
    TTC = 6
    SHORTEST = 7
    FLOWLET = 8
    LBSP = 9


COMPARE_QUEUES = frozenset({Rule.DRILL, Rule.TTC, Rule.SHORTEST})
FROM_FIRST_DIGIT = frozenset({Rule.LBSP})


@dataclass(frozen=True)
class Scheme:
    """A rule with its parameters, which are named and counted as in specs; those that are not given are 0."""

    rule: Rule
    parameters: Mapping[str, int] = field(default_factory=dict)

    def __getitem__(self, name: str) -> int:
        return self.parameters.get(name, 0)

    @property
    def asks_queues(self) -> bool:
        """Whether it needs to know what waits in queues."""
        return self.rule in COMPARE_QUEUES or self["ecn"] > 0 or self["states"] > 0

    @property
    def reads_from_first_digit(self) -> bool:
        """Whether switches of every tier read a destination's whole number, not only what tells their own tier."""
        return self.rule in FROM_FIRST_DIGIT


class Key(NamedTuple):
    """A parameter: what it means, its default, and the range of an integer or the words that it may be."""

    meaning: str
    default: int | str
    least: int = 0
    most: int = 1 << 24
    words: tuple[str, ...] = ()

    def value(self, scheme: str, key: str, text: str) -> int | str:
        """`text` as a value of this parameter, or ValueError."""
        if not self.words:
            return integer(scheme, key, text, least=self.least, most=self.most)
        if text not in self.words:
            raise ValueError(f"{scheme}: {key} must be {' or '.join(self.words)}, got {text!r}")
        return text

    def number(self, value: int | str) -> int:
        """A value of this parameter as the data plane's program has it."""
        return self.words.index(value) if isinstance(value, str) else value


def _per(scheme: Scheme) -> Scheme:
    """VLB: the rule is another one for packets."""
    return Scheme(Rule.RANDOM if scheme["per"] else scheme.rule, {"ecn": scheme["ecn"]})


def _link_groups(scheme: Scheme) -> Scheme:
    """LBSP, with the logarithm of the number of its groups; ValueError unless that is an integer."""
    groups = scheme["groups"]
    if groups & (groups - 1):
        raise ValueError(f"lbsp: groups must be a power of two, got {groups}")
    if groups != 2 and scheme["states"]:
        raise ValueError(f"lbsp: states are those of two link groups, got groups={groups}")
    return Scheme(scheme.rule, {**scheme.parameters, "group_bits": groups.bit_length() - 1})


class Kind(NamedTuple):
    """A scheme as `weft list` shows it.

    scheme: its rule, and parameters that a spec does not set.
    finish: what becomes of it with all its parameters; may raise ValueError.
    """

    summary: str
    source: str
    scheme: Scheme
    keys: Mapping[str, Key] = {}
    finish: Callable[[Scheme], Scheme] = lambda scheme: scheme


D = Key("candidates that are compared", 2, 1, MOST_SAMPLES)
LOAD = Key("what a load counts", "packets", words=("packets", "bytes"))
ECN = Key("packets in a queue from which on packets are marked, 0 for none", 0)
KINDS: Mapping[str, Kind] = {
    "ecmp": Kind("Linux multipath routes: a flow's hash, seeded per switch", "RFC 2992", Scheme(Rule.KERNEL)),
    "dmodk": Kind("the destination's digit, as TTC's default path", "TTC, section 2.1", Scheme(Rule.D_MOD_K)),
    "vlb": Kind(
        "Valiant: a random way up for each flow, or for each packet",
        "TTC, section 4",
        Scheme(Rule.FLOW_HASH),
        {"per": Key("what keeps its way", "flow", words=("flow", "packet"))},
        _per,
    ),
    "rps": Kind("a random port for each packet", "Dixit et al., INFOCOM 2013", Scheme(Rule.RANDOM)),
    "rr": Kind("the ports in turn, packet by packet", "DRB (Cao et al., CoNEXT 2013)", Scheme(Rule.ROUND_ROBIN)),
    "spray": Kind(
        "the ports in turn, packet by packet: what LBSP is compared with", "LBSP, section 4", Scheme(Rule.ROUND_ROBIN)
    ),
    "lbsp": Kind(
        "the ports of a link group in turn, which the destination's least bits choose",
        "LBSP, sections 3.2 and 5",
        Scheme(Rule.LBSP),
        {
            "groups": Key("link groups of a switch, a power of two", 2, 2, 64),
            "hash": Key("1: a flow's hash chooses the link group (section 3.4)", 0, 0, 1),
            "states": Key("1: crowded link groups give packets away (section 5)", 0, 0, 1),
            "edge_packets": Key("packets from which on a link group of an edge switch may be crowded", 5),
            "edge_percent": Key("and how many it has of the other's, in %", 150, 100, 1_000_000),
            "above_packets": Key("the same of aggregation switches", 20),
            "above_percent": Key("the same of aggregation switches, in %", 200, 100, 1_000_000),
        },
        _link_groups,
    ),
    "micro": Kind(
        "the shorter queue of two random ports",
        "HotNets 2015; TTC, section 4",
        Scheme(Rule.DRILL, {"d": 2}),
        {"load": LOAD},
    ),
    "drill": Kind(
        "the shortest queue of d random ports and the last winner",
        "Ghorbani et al., SIGCOMM 2017",
        Scheme(Rule.DRILL),
        {"d": D, "m": Key("winners that are remembered", 1, 0, 1), "load": LOAD},
    ),
    "ttc": Kind(
        "D-mod-k's port, unless its queue exceeds a random other's by over delta",
        "TTC, section 3",
        Scheme(Rule.TTC),
        {
            "delta": Key("threshold, in packets or bytes", 2),
            "tie": Key("what becomes of a packet at exactly delta", "stay", words=("stay", "redirect")),
            "load": LOAD,
        },
    ),
    "jsq": Kind("the shortest of all queues", "a yard-stick", Scheme(Rule.SHORTEST), {"load": LOAD}),
    "letflow": Kind(
        "a random port for each flowlet",
        "Vanini et al., NSDI 2017",
        Scheme(Rule.FLOWLET),
        {"gap_us": Key("silence that ends a flowlet, in microseconds", 500, 1)},
    ),
}


def keys(name: str) -> dict[str, Key]:
    """The parameters of the scheme called `name`; ValueError names the schemes that exist."""
    if name not in KINDS:
        raise ValueError(unknown("scheme", name, KINDS))
    return {**KINDS[name].keys, **({} if name == "ecmp" else {"ecn": ECN})}


def values(spec: str) -> tuple[str, dict[str, int | str]]:
    """The name and all parameters of `spec`, defaults filled in; ValueError says in one line what is wrong with it."""
    name, given = parse(spec)
    known = keys(name)
    for key in given:
        if key not in known:
            raise ValueError(f"{name}: " + (unknown("parameter", key, known) if known else f"no parameter {key}"))
    return name, {
        key: about.value(name, key, given[key]) if key in given else about.default for key, about in known.items()
    }


def canonical(spec: str) -> str:
    """`spec` with its parameters in order and without those at their defaults: one scheme, one name."""
    name, found = values(spec)
    return unparse(name, {key: value for key, value in found.items() if value != keys(name)[key].default})


def scheme(spec: str) -> Scheme:
    """The scheme that `spec` names; ValueError says in one line what is wrong with it."""
    name, found = values(spec)
    known, kind = keys(name), KINDS[name]
    numbers = {key: known[key].number(value) for key, value in found.items()}
    return kind.finish(Scheme(kind.scheme.rule, {**kind.scheme.parameters, **numbers}))
