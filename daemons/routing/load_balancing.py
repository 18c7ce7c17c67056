"""Load-balancing schemes of a switch fabric by their specs: ecmp, drill:d=2,m=1, ttc:delta=2,tie=stay,load=packets ...

Every scheme but ecmp is carried out by the data plane (select.py, testbed/bpf/select.bpf.c); ecmp by Linux multipath
routes.  Any of the data plane's takes ecn=K as well: packets that find K or more waiting are marked (0: none).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import NamedTuple

from topologies.core.grammar import integer, parse, unknown, unparse

MOST_SAMPLES = 8


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


@dataclass(frozen=True)
class Scheme:
    """A scheme with its parameters, those that do not concern its rule being 0.

    d, m: DRILL's samples and memory.  delta: TTC's threshold, in packets, or in bytes if `in_bytes`.
    ecn_packets: the queue from which on packets are marked, 0 for never.
    groups, hashed, states: LBSP's link groups, whether a flow's hash chooses among them instead of its destination, and
        whether crowded groups give packets away (section 5).
    crowded: from when on they do, in packets and per cent of the other group's; of edge switches, and of others.
    """

    rule: Rule
    d: int = 0
    m: int = 0
    delta: int = 0
    ties_redirect: bool = False
    in_bytes: bool = False
    gap_us: int = 0
    ecn_packets: int = 0
    groups: int = 0
    hashed: bool = False
    states: bool = False
    crowded: tuple[tuple[int, int], tuple[int, int]] = ((5, 150), (20, 200))

    @property
    def asks_queues(self) -> bool:
        """Whether it needs to know what waits in queues."""
        return self.rule in (Rule.DRILL, Rule.TTC, Rule.SHORTEST) or self.ecn_packets > 0 or self.states


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


class Kind(NamedTuple):
    """A scheme as `weft list` shows it."""

    summary: str
    source: str
    scheme: Scheme
    keys: Mapping[str, Key] = {}


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
        },
    ),
    "micro": Kind(
        "the shorter queue of two random ports", "HotNets 2015; TTC, section 4", Scheme(Rule.DRILL, d=2), {"load": LOAD}
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
    rules = {"tie": "ties_redirect", "load": "in_bytes", "ecn": "ecn_packets", "hash": "hashed"}
    marks = {"stay": False, "redirect": True, "packets": False, "bytes": True}
    groups = found.get("groups", 2)
    if not isinstance(groups, int) or groups & (groups - 1):
        raise ValueError(f"{name}: groups must be a power of two, got {groups}")
    if groups != 2 and found.get("states"):
        raise ValueError(f"{name}: states are those of two link groups, got groups={groups}")
    told = {rules.get(key, key): marks.get(str(value), value) for key, value in found.items() if key != "per"}
    base = KINDS[name].scheme
    if found.get("per") == "packet":
        base = replace(base, rule=Rule.RANDOM)
    return replace(base, **told)  # type: ignore[arg-type]  # the keys of KINDS are Scheme's
