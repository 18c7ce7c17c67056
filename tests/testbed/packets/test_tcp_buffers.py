"""Buffers, timers, marks and acknowledgements of simulated TCP, segment by segment."""

from __future__ import annotations

from ctypes import CDLL, byref, c_uint64
from pathlib import Path

import pytest

from tests.testbed.packets.flow_by_hand import DATA, Flow, Segment
from weft.testbed.packets.network import CLASSIC_ECN, DCTCP, NO_ECN, RACK

MS_NS = 1_000_000
MEMORY_BYTES = 2280  # of a packet of 1448 bytes, by SO_MEMINFO of Linux 6.12
SEND_BUFFER_BYTES, RECEIVE_BUFFER_BYTES = 46_080, 131_072  # of a new socket, by the same


def flow_of(compiled: Path, ecn: int = NO_ECN, **parameters: int) -> Flow:
    """Return a flow of packets of 1514 bytes, with timers of Linux."""
    values = {"rto_min_ns": 10 * MS_NS, "jiffy_ns": MS_NS, **parameters}
    return Flow(CDLL(str(compiled)), ecn, recovery=RACK, frame_bytes=1514, **values)


def delayed_until(flow: Flow) -> int:
    """Return when the receiver acknowledges what it has not."""
    flow.library.tcp_receiver_deadline.restype = c_uint64
    return flow.library.tcp_receiver_deadline(flow.flow)


def end_quick_answers(flow: Flow) -> int:
    """Receive packets until an acknowledgement is delayed; return the number of that packet."""
    packet = 0
    while flow.receive(packet):
        packet += 1
    return packet


def expire(flow: Flow) -> list[Segment]:
    """Let the sender's timer expire; return what is sent then."""
    flow.now = flow.library.tcp_sender_deadline(flow.flow)
    flow.library.tcp_expire(flow.flow, c_uint64(flow.now))
    return [Segment.from_buffer_copy(segment) for segment in flow.segments()]


def test_a_sender_waits_for_its_buffer_behind_a_hole(compiled: Path) -> None:
    """Packets after the first arrive; the window stays 10, and the buffer holds 20 and one more."""
    flow = flow_of(compiled)
    sent = max(flow.send())
    for _ in range(100):
        sent = max([sent, *flow.answer(0, (1, sent + 1))])
    assert sent == SEND_BUFFER_BYTES // MEMORY_BYTES


def test_a_send_buffer_is_twice_the_window_that_was_not_full(compiled: Path) -> None:
    flow = flow_of(compiled)
    sent = max(flow.send())
    while sent < 200:
        sent = max([sent, *flow.answer(sent + 1)])
    acknowledged = sent + 1 - 10
    for _ in range(400):
        sent = max([sent, *flow.answer(acknowledged, (acknowledged + 1, sent + 1))])
    assert 60 < sent - acknowledged < 1000


def test_a_receiver_offers_no_more_than_its_buffer_holds(compiled: Path) -> None:
    """The first packet is missing; the window neither shrinks nor exceeds what the buffer holds."""
    flow = flow_of(compiled)
    windows = []
    for packet in range(1, 60):
        answer = flow.receive(packet)
        assert answer
        windows.append(answer.window)
    assert windows == sorted(windows)
    assert windows[0] == 47  # 65,535 bytes, and two packets for the one that has come
    assert windows[-1] <= RECEIVE_BUFFER_BYTES // MEMORY_BYTES == 57


def test_what_waits_behind_a_hole_moves_no_window(compiled: Path) -> None:
    """Packets 60 and 61 are missing, and 29 wait behind them.  Packet 60 comes: the end stays.

    They come so slowly that the buffer does not grow.
    """
    flow = flow_of(compiled)
    for packet in (*range(60), *range(62, 91)):
        flow.now += MS_NS // 5
        before = flow.receive(packet)
    after = flow.receive(60)
    assert before
    assert after
    assert (before.sequence, after.sequence) == (60, 61)
    assert after.window == before.window - 1


def test_a_receive_buffer_grows_with_what_a_round_trip_brings(compiled: Path) -> None:
    """A measurement needs a round trip, and packets in order."""
    flow = flow_of(compiled)
    answers = []
    for packet in range(400):
        flow.now += MS_NS // 20
        answers += flow.take(Segment(sequence=packet, kind=DATA, stamp_ms=1, window=1000))
    assert answers[-1].window > 2 * RECEIVE_BUFFER_BYTES // MEMORY_BYTES


def test_an_acknowledgement_is_delayed_less_than_a_timeout(compiled: Path) -> None:
    """By 9 jiffies and one more of the timer wheel; 40 where a timeout takes 200."""
    for rto_min_ms, delay_ms in ((10, 9), (200, 40)):
        flow = flow_of(compiled, rto_min_ns=rto_min_ms * MS_NS)
        end_quick_answers(flow)
        assert delayed_until(flow) == (delay_ms + 1) * MS_NS


@pytest.mark.parametrize(
    ("rto_min_ms", "deadline_ms"), [(10, 11 + 1), (70, 64 + 8), (600, 576 + 64)]
)
def test_a_timer_expires_at_the_next_tick_of_its_wheel(
    compiled: Path, rto_min_ms: int, deadline_ms: int
) -> None:
    """A probe after 10.2 ms waits for 11 ticks.  From 63 on they count by 8, from 504 on by 64."""
    flow = flow_of(compiled, rto_min_ns=rto_min_ms * MS_NS, size_bytes=1)
    assert flow.send() == [0]  # one packet, whose probe waits for a delayed acknowledgement
    assert flow.library.tcp_sender_deadline(flow.flow) == deadline_ms * MS_NS


def test_old_packets_make_the_next_acknowledgements_quick(compiled: Path) -> None:
    flow = flow_of(compiled)
    packet = end_quick_answers(flow)
    assert flow.receive(0)
    assert all(flow.receive(packet + 1 + number) for number in range(16))
    assert not flow.receive(packet + 17)


def test_packets_after_a_pause_are_acknowledged_at_once(compiled: Path) -> None:
    flow = flow_of(compiled)
    packet = end_quick_answers(flow)
    flow.now += 11 * MS_NS
    assert all(flow.receive(packet + 1 + number) for number in range(16))


@pytest.mark.parametrize(("ecn", "is_capable"), [(DCTCP, True), (CLASSIC_ECN, False)])
def test_a_retransmission_may_be_marked_with_dctcp_alone(
    compiled: Path, ecn: int, is_capable: bool
) -> None:
    flow = flow_of(compiled, ecn)
    first = [Segment.from_buffer_copy(segment) for segment in flow.segments()]
    assert all(segment.capable for segment in first)
    assert [segment.capable for segment in expire(flow)] == [True]  # a probe, of a new packet
    again = [(segment.sequence, bool(segment.capable)) for segment in expire(flow)]
    assert again == [(0, is_capable)]


def test_a_probe_tells_of_a_reduction(compiled: Path) -> None:
    """Marks reduce the window; the next new packet is a probe."""
    flow = flow_of(compiled, DCTCP)
    flow.send()
    assert flow.answer(0, congested=True) == []
    assert [(segment.sequence, segment.reduced) for segment in expire(flow)] == [(10, 1)]


def test_a_mark_on_an_old_packet_is_not_echoed(compiled: Path) -> None:
    flow = flow_of(compiled, DCTCP)
    flow.receive(0)
    old = flow.receive(0, marked=True)
    assert old
    assert not old.congested
    new = flow.receive(1, marked=True)
    assert new
    assert new.congested


def test_what_waits_for_its_acknowledgement_has_it_before_the_other_mark(compiled: Path) -> None:
    """RFC 8257, section 3.2: a packet without a mark waits, then one with a mark arrives."""
    flow = flow_of(compiled, DCTCP)
    packet = end_quick_answers(flow)
    answers = flow.take(Segment(sequence=packet + 1, kind=DATA, capable=True, marked=True))
    assert [(answer.sequence, answer.congested) for answer in answers] == [
        (packet + 1, 0),
        (packet + 2, 1),
    ]


def test_the_first_mark_alone_hurries_acknowledgements(compiled: Path) -> None:
    """Classic marks: the echo goes on, and of the next packets two are answered at once."""
    flow = flow_of(compiled, CLASSIC_ECN)
    packet = end_quick_answers(flow)
    marked = [bool(flow.receive(packet + 1 + number, marked=True)) for number in range(6)]
    assert marked == [True, True, False, True, False, True]


def test_of_an_overtaken_acknowledgement_the_blocks_alone_count(compiled: Path) -> None:
    """Its echo of a mark reduces nothing, and its block shows what is lost."""
    flow = flow_of(compiled, CLASSIC_ECN)
    flow.send()
    sent = flow.answer(4)
    flow.answer(2, (5, 6), congested=True)
    counters = flow.library.tcp_counters(flow.flow).contents
    assert counters.reductions == 0
    flow.now += 5 * MS_NS
    end = max(sent) + 1
    again = flow.answer(3, (end - 3, end), congested=True)
    assert 4 in again


def test_a_probe_for_which_a_host_has_no_room_is_none(compiled: Path) -> None:
    """It is not sent later, when the packet that it would repeat may be acknowledged."""
    flow = flow_of(compiled, size_bytes=1448)
    assert flow.send() == [0]
    flow.now = flow.library.tcp_sender_deadline(flow.flow)
    flow.library.tcp_expire(flow.flow, c_uint64(flow.now))
    flow.library.tcp_pause(flow.flow, c_uint64(flow.now))
    assert flow.send() == []
    assert flow.library.tcp_sender_deadline(flow.flow) > flow.now


def test_small_queues_hold_twice_as_many_that_are_sent_again(compiled: Path) -> None:
    flow = flow_of(compiled, DCTCP)
    flow.send()

    def most(sequence: int) -> int:
        segment = Segment(sequence=sequence, kind=DATA)
        return flow.library.tcp_most_waiting(flow.flow, byref(segment))

    rate = 2 * 10 * 1448 * 10_000  # bytes a second: twice the window in a round trip
    assert most(10) == (rate // 1024 - 1) // MEMORY_BYTES
    assert most(0) == (2 * (rate // 1024) - 1) // MEMORY_BYTES
    flow.library.tcp_expire(flow.flow, c_uint64(flow.library.tcp_sender_deadline(flow.flow)))
    assert most(9) == -1  # a probe does not ask: the greatest number, as one with a sign


def test_a_packet_that_may_not_be_marked_hurries_acknowledgements(compiled: Path) -> None:
    """With classic marks it was probably sent again; two are answered at once."""
    flow = flow_of(compiled, CLASSIC_ECN)
    packet = end_quick_answers(flow)
    assert flow.receive(packet + 1, capable=False)
    assert flow.receive(packet + 2)
    assert not flow.receive(packet + 3)


def test_a_packet_that_comes_twice_makes_acknowledgements_quick(compiled: Path) -> None:
    flow = flow_of(compiled)
    packet = end_quick_answers(flow)
    assert flow.receive(packet)
    assert all(flow.receive(packet + 1 + number) for number in range(15))
    assert not flow.receive(packet + 16)


def test_a_hole_that_is_filled_frees_the_buffer(compiled: Path) -> None:
    flow = flow_of(compiled)
    for packet in range(1, 31):
        flow.receive(packet)
    answer = flow.receive(0)
    assert answer
    assert answer.sequence == 31
    assert answer.window > RECEIVE_BUFFER_BYTES // MEMORY_BYTES - 30 / 2


@pytest.mark.parametrize("ecn", [CLASSIC_ECN, DCTCP])
def test_a_packet_that_tells_of_a_reduction_is_acknowledged_at_once(
    compiled: Path, ecn: int
) -> None:
    """The sender's window may be of one packet (tcp_ecn_accept_cwr)."""
    flow = flow_of(compiled, ecn)
    packet = end_quick_answers(flow)
    assert flow.receive(packet + 1)
    assert not flow.receive(packet + 2)
    assert flow.receive(packet + 3)
    assert flow.take(Segment(sequence=packet + 4, kind=DATA, capable=True, reduced=True))
