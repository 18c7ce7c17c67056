"""Oracle of testbed/data_plane/layer_choice.h: the choice of a flow's layer, on integers.

A FatPaths sender draws a random layer for each flowlet (sections III-B, V-F).  A
flowlet ends at one of these events, or when an ICMP error reports a broken path:

    gap   a silence longer than gap_us, as in LetFlow
    cut   TCP cuts its window (section VIII-A1): a packet with CWR, or a retransmission.
          Retransmissions of packets sent before a cut belong to it, as before Linux' high_seq and
          RFC 6582's recover.  The packet with CWR itself was sent after.  A recovery sends packets
          again in order: one at or before the last that was sent again shows that a retransmission
          was lost, which is another cut (RFC 5681, section 4.3).  The first retransmission of the
          newest packet is a tail-loss probe (RFC 8985, section 7), which cuts no window.
    repeat  an end that only acknowledges has no window, and hears of its peer's cut: the timer
          sends what was acknowledged, so the acknowledgements were lost.  The paper does not say
          that they move.  The rule is that of Linux, where such data draw another hash of the
          socket (tcp_rcv_spurious_retrans): the same data came again twice, and no new data since.
          Once is not enough, for that may be a tail-loss probe, or data that others overtook.
    drained  all that the flow has sent is acknowledged (Flowcut), so that no packet of it can be
          overtaken by the next one
    bytes  the flow has sent a cell of cell_kb (Presto); a packet that is too long for the rest of a
          cell begins the next one
    ecn   as Linux' tcp_plb: in each of ecn_rounds rounds, each a window of packets, at least
          ecn_percent of the acknowledgements carry ECN echoes

The choice "least marked" keeps, for each layer between two hosts, an average of the fraction of
acknowledgements with echoes.  It fades by an eighth whenever layers are compared, so that all are
tried again.  Ties go to the first layer from a random one on.  A flow that leaves a layer never
draws that layer.
"""

from __future__ import annotations

from collections.abc import MutableSequence
from dataclasses import dataclass
from enum import IntEnum

from weft.daemons.routing.selection import WORD, another, below

MARKS_SHIFT, FADE_SHIFT, ALL_MARKED = 4, 3, 1 << 16
MOST_WINDOW = 1 << 30


class Start(IntEnum):
    """A flow's first layer: 0, a random one, or the next after the last flow of these hosts."""

    FIRST = 0
    RANDOM = 1
    TURN = 2


class Choice(IntEnum):
    """Rules for a flowlet's layer."""

    RANDOM = 0
    LEAST = 1
    TURN = 2


@dataclass
class LayerFlowState:
    """State of a flow at its source; sequence numbers have 32 bits."""

    layer: int = 0
    known: bool = False
    next_seq: int = 0
    acked: int = 0
    recover: int = 0
    again_seq: int = 0
    round_end: int = 0
    acks: int = 0
    echoes: int = 0
    rounds: int = 0
    bytes: int = 0
    sent_ack: int = 0
    repeat_seq: int = 0


def comes_before(a: int, b: int) -> bool:
    """Return True if sequence number `a` is older than `b`, which is less than 2^31 away."""
    return (a - b) & WORD >= 1 << 31


def ends_gap(idle_ns: int, gap_us: int) -> bool:
    """Return True if a silence of `idle_ns` ends a flowlet."""
    return idle_ns > gap_us * 1000


def shows_cut(flow: LayerFlowState, seq: int, end: int, reduced: bool) -> bool:
    """Return True if a packet shows a cut of its flow's window.

    Args:
        flow: state of the flow.
        seq: first sequence number of the packet.
        end: sequence number after its last.
        reduced: the packet carries CWR.
    """
    if not flow.known:
        flow.known = True
        flow.next_seq = flow.round_end = end
        flow.recover, flow.acked, flow.again_seq = seq, seq, (seq - 1) & WORD
        return False
    is_repeated = comes_before(seq, flow.next_seq)
    is_old = is_repeated and comes_before(seq, flow.recover)
    is_probe = end == flow.next_seq and seq != flow.again_seq
    was_repeated = comes_before(flow.again_seq, flow.recover)  # since that cut
    is_lost_again = was_repeated and not comes_before(flow.again_seq, seq)
    cut = reduced or (is_repeated and (is_lost_again if is_old else not is_probe))
    if is_repeated:
        flow.again_seq = seq
    elif reduced and flow.recover != flow.next_seq:
        flow.again_seq = (flow.next_seq - MOST_WINDOW) & WORD
    if cut:
        flow.recover = flow.next_seq
    if comes_before(flow.next_seq, end):
        flow.next_seq = end
    if (flow.next_seq - flow.recover) & WORD > MOST_WINDOW:
        flow.recover = (flow.next_seq - MOST_WINDOW) & WORD
    return cut


def note_answer(flow: LayerFlowState, ack: int) -> None:
    """Note the acknowledgement number of a packet that this end sends."""
    if ack != flow.sent_ack:
        flow.sent_ack = flow.repeat_seq = ack


def shows_lost_answers(flow: LayerFlowState, seq: int, end: int) -> bool:
    """Return True if a packet that arrives shows that the acknowledgements of this end are lost.

    Args:
        flow: state of the flow that this end sends.
        seq: first sequence number of the packet.
        end: sequence number after its last.
    """
    if seq == end or comes_before(flow.sent_ack, end):
        return False
    came_twice = seq == flow.repeat_seq
    flow.repeat_seq = seq
    return came_twice


def is_drained(flow: LayerFlowState) -> bool:
    """Return True if all that the flow has sent is acknowledged."""
    return flow.known and not comes_before(flow.acked, flow.next_seq)


def begins_cell(flow: LayerFlowState, cell_kb: int, length: int) -> bool:
    """Return True if a packet of `length` bytes begins another cell of its flow."""
    is_too_long = flow.bytes + length > 1000 * cell_kb
    flow.bytes = length + (0 if is_too_long else flow.bytes)
    return is_too_long


def note_acknowledgement(flow: LayerFlowState, ack: int) -> None:
    """Take an acknowledgement number."""
    if comes_before(flow.acked, ack):
        flow.acked = ack


def ends_congested_rounds(
    flow: LayerFlowState, ack: int, echo: bool, *, percent: int, rounds: int
) -> bool:
    """Return True if an acknowledgement ends the last of `rounds` congested rounds.

    Args:
        flow: state of the flow.
        ack: acknowledgement number.
        echo: the acknowledgement carries ECE.
        percent: fraction of echoes from which on a round is congested.
        rounds: consecutive congested rounds.
    """
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
    """Update `marks`, the averages of a pair of hosts, by an acknowledgement in `layer`."""
    marks[layer] += -(marks[layer] >> MARKS_SHIFT) + (ALL_MARKED >> MARKS_SHIFT if echo else 0)


def least_marked(marks: MutableSequence[int], layers: int, left: int, random: int) -> int:
    """Return the layer with the lowest average but `left`, and let all averages fade."""
    start = below(random, layers)
    order = [(start + i) % layers for i in range(layers)]
    best = min(order, key=lambda layer: marks[layer] if layer != left else ALL_MARKED + 1)
    for layer in order:
        marks[layer] -= (marks[layer] + (1 << FADE_SHIFT) - 1) >> FADE_SHIFT
    return best


def next_layer(
    choice: Choice, marks: MutableSequence[int], layers: int, left: int, word: int
) -> int:
    """Return the layer of a flowlet.

    Args:
        choice: the rule.
        marks: averages of the pair of hosts.
        layers: number of layers.
        left: layer that the flow leaves; `layers` or more for a new flow.
        word: 32 random bits, of the flow, its draws so far and the seed of the hosts.
    """
    if choice == Choice.LEAST:
        return least_marked(marks, layers, left, word)
    if left >= layers or layers == 1:
        return below(word, layers)
    if choice == Choice.TURN:
        return (left + 1) % layers
    return another(left, word, layers)
