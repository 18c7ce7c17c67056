"""When a flow takes another layer, and which: what hosts decide for each packet, on integers.

testbed/data_plane/layer_choice.h is the same in C, held equal by a test; this is its specification,
and what models use.

FatPaths' senders draw a layer uniformly at random for each flowlet (sections III-B, V-F).  Where a
flowlet ends:

    gap   the flow was silent for longer than gap_us, as in LetFlow
    cut   TCP cut its window (section VIII-A1).  On the wire that is a packet with CWR, or one that
          is sent again.  What is sent again of all that was sent before a cut belongs to it; the
          packet with which a recovery began, sent once more, is another cut.
    ecn   as Linux' tcp_plb: in each of ecn_rounds rounds, a window of packets long, at least
          ecn_percent of the acknowledgements carried ECN echoes

Besides, a flow draws again when an ICMP error says that its path is broken.

Least marked: for each layer between two hosts, an average of how many of the acknowledgements
carried echoes while a flow was in that layer; it fades by an eighth whenever layers are compared,
so that all are tried again.  Of layers that are as good, that is the first from a random one on.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableSequence
from dataclasses import dataclass
from enum import IntEnum, IntFlag

from weft.daemons.routing.selection import WORD, below

MARKS_SHIFT, FADE_SHIFT, ALL_MARKED = 4, 3, 1 << 16


class Trigger(IntFlag):
    """What ends a flowlet."""

    NONE = 0
    GAP = 1
    CUT = 2
    ECN = 4


class Start(IntEnum):
    """A flow's first layer: layer 0, a random one, or the next after the last flow between the same
    hosts."""

    FIRST = 0
    RANDOM = 1
    TURN = 2


class Choice(IntEnum):
    """Which layer a flowlet takes."""

    RANDOM = 0
    LEAST = 1


@dataclass
class LayerFlowState:
    """What a host knows of a flow of its own; sequence numbers have 32 bits."""

    layer: int = 0
    known: bool = False
    next_seq: int = 0
    recover: int = 0
    again_seq: int = 0
    round_end: int = 0
    acks: int = 0
    echoes: int = 0
    rounds: int = 0


def comes_before(a: int, b: int) -> bool:
    """Whether sequence number `a` is older than `b`, which lies less than 2^31 from it."""
    return (a - b) & WORD >= 1 << 31


def ends_gap(idle_ns: int, gap_us: int) -> bool:
    """Whether a flow that was silent for so long begins a flowlet."""
    return idle_ns > gap_us * 1000


def shows_cut(flow: LayerFlowState, seq: int, end: int, reduced: bool) -> bool:
    """Whether a packet with the sequence numbers from `seq` up to, not including, `end` shows that
    its window was cut.

    reduced: it carries CWR.
    """
    if not flow.known:
        flow.known = True
        flow.next_seq = flow.round_end = end
        flow.recover, flow.again_seq = seq, (seq - 1) & WORD
        return False
    cut = reduced
    again = comes_before(seq, flow.next_seq)
    if again and (not comes_before(seq, flow.recover) or seq == flow.again_seq):
        cut = True
        flow.recover, flow.again_seq = flow.next_seq, seq
    if comes_before(flow.next_seq, end):
        flow.next_seq = end
    if reduced:
        flow.recover = flow.next_seq
    return cut


def ends_congested_rounds(
    flow: LayerFlowState, ack: int, echo: bool, *, percent: int, rounds: int
) -> bool:
    """Whether the acknowledgement of all before `ack` ends the last of `rounds` congested rounds;
    `echo`: it carries ECE."""
    flow.acks += 1
    flow.echoes += echo
    if not flow.known or comes_before(ack, flow.round_end):
        return False
    flow.rounds = flow.rounds + 1 if flow.echoes * 100 >= percent * flow.acks else 0
    flow.acks = flow.echoes = 0
    flow.round_end = flow.next_seq
    if flow.rounds < rounds:
        return False
    flow.rounds = 0
    return True


def note_echo(marks: MutableSequence[int], layer: int, echo: bool) -> None:
    """Count an acknowledgement, with or without ECE, for `layer`; `marks` are the averages of a
    pair of hosts."""
    marks[layer] += -(marks[layer] >> MARKS_SHIFT) + (ALL_MARKED >> MARKS_SHIFT if echo else 0)


def least_marked(marks: MutableSequence[int], layers: int, random: int) -> int:
    """The layer with the lowest average, which fade."""
    start = below(random, layers)
    order = [(start + i) % layers for i in range(layers)]
    best = min(order, key=lambda layer: marks[layer])
    for layer in order:
        marks[layer] -= (marks[layer] + (1 << FADE_SHIFT) - 1) >> FADE_SHIFT
    return best


def next_layer(
    choice: Choice, marks: MutableSequence[int], layers: int, random: Iterator[int]
) -> int:
    """The layer of a flowlet, one of `layers`; `random`: words."""
    word = next(random)
    return least_marked(marks, layers, word) if choice == Choice.LEAST else below(word, layers)


def first_layer(
    start: Start,
    choice: Choice,
    marks: MutableSequence[int],
    layers: int,
    turn: int,
    random: Iterator[int],
) -> int:
    """The first layer of a flow; `turn`: of flows between the same hosts before it."""
    if start == Start.FIRST:
        return 0
    return turn % layers if start == Start.TURN else next_layer(choice, marks, layers, random)
