"""Losses that were none, as Linux finds out: RFC 5682, 6937, 7323, 8985, and its undo."""

from __future__ import annotations

from ctypes import CDLL, c_uint64
from itertools import chain
from pathlib import Path

import pytest

from tests.testbed.packets.flow_by_hand import Flow
from weft.testbed.packets.network import CLASSIC_ECN, DCTCP, NO_ECN, RACK

MS_NS = 1_000_000
FIRST = list(range(10))  # the initial window


@pytest.fixture
def flow(compiled: Path, request: pytest.FixtureRequest) -> Flow:
    """Return a flow that has sent the initial window."""
    library, ecn = CDLL(str(compiled)), getattr(request, "param", NO_ECN)
    flow = Flow(library, ecn, recovery=RACK, frame_bytes=1514)
    assert flow.send() == FIRST
    return flow


def time_out(flow: Flow) -> list[int]:
    """Let the first packet time out, after a probe; return what is sent then."""
    sent = flow.expire()
    assert sent == [10]  # the probe is a new packet
    sent = flow.expire()
    assert sent == [0]
    return flow.answer(1)


def test_after_a_timeout_new_packets_come_before_those_that_may_be_late(flow: Flow) -> None:
    assert time_out(flow) == [11, 12]


def test_an_original_that_arrives_after_a_timeout_takes_it_back(flow: Flow) -> None:
    """The window was 10, and grows by what is answered; nothing is sent again."""
    time_out(flow)
    assert flow.answer(2) == []
    assert flow.answer(13) == list(range(13, 35))


def test_only_new_packets_that_arrive_after_a_timeout_confirm_it(flow: Flow) -> None:
    time_out(flow)
    assert flow.answer(1, (11, 12)) == [1]
    assert flow.answer(2, (11, 12)) == [2, 3, 4]  # 12, sent before 1, is taken for lost, too


def test_an_original_that_arrives_after_new_packets_did_takes_no_timeout_back(flow: Flow) -> None:
    time_out(flow)
    assert flow.answer(1, (11, 12)) == [1]
    assert flow.answer(1, (5, 6), (11, 12)) == [2]


def test_what_a_timeout_took_for_lost_and_a_block_for_late_may_be_lost(flow: Flow) -> None:
    time_out(flow)
    assert flow.answer(2) == []
    sent = {*flow.answer(2, (11, 12)), *flow.answer(2, (11, 13))}
    assert 2 in sent
    assert flow.library.tcp_counters(flow.flow).contents.timeouts == 1


def lose_the_second(flow: Flow) -> None:
    """Let packet 1 seem to be lost, so that it is sent again."""
    flow.answer(1)
    flow.now += 5 * MS_NS
    assert any(1 in flow.answer(1, (2, arrived)) for arrived in range(3, 8))


@pytest.mark.parametrize("flow", [CLASSIC_ECN], indirect=True)
@pytest.mark.parametrize("is_marked", [False, True])
def test_a_repetition_restores_the_window_unless_marks_ask_for_less(
    flow: Flow, is_marked: bool
) -> None:
    """All arrives, after the recovery packet 1 a second time."""
    lose_the_second(flow)
    flow.answer(1, (2, 9), congested=is_marked)
    end = 14
    sent = flow.answer(end)
    repeated = flow.answer(end, (1, 2), repeated=True)
    assert sent
    assert bool(repeated) is not is_marked


@pytest.mark.parametrize("flow", [CLASSIC_ECN], indirect=True)
def test_a_reduction_by_marks_ends_behind_what_was_sent_before_it(flow: Flow) -> None:
    """An echo on the last packet that was sent before is of the same round trip."""
    sent = flow.answer(1, congested=True)
    reductions = flow.library.tcp_counters(flow.flow).contents.reductions
    end = max([*FIRST, *sent]) + 1 - len(sent)
    flow.answer(end, congested=True)
    assert flow.library.tcp_counters(flow.flow).contents.reductions == reductions == 1
    flow.answer(end + 1, congested=True)
    assert flow.library.tcp_counters(flow.flow).contents.reductions == 2


def timeout_ms(library: CDLL, *round_trips_ms: int) -> float:
    """Return the timeout after round trips of single packets; it is at least 1 ms."""
    flow = Flow(library, NO_ECN, recovery=RACK, rto_min_ns=MS_NS, jiffy_ns=1_000)
    acknowledged = len(flow.send())
    while flow.answer(acknowledged):
        acknowledged += 1
    for round_trip_ms in round_trips_ms:
        flow.library.tcp_write(flow.flow, c_uint64(flow.now), c_uint64(1))
        (packet,) = flow.send()
        flow.now += round_trip_ms * MS_NS
        flow.answer(packet + 1)
    flow.library.tcp_write(flow.flow, c_uint64(flow.now), c_uint64(1))
    assert flow.send() == flow.expire()  # a probe repeats it
    return (library.tcp_sender_deadline(flow.flow) - flow.now) / MS_NS


def test_a_timeout_comes_near_a_steady_round_trip(compiled: Path) -> None:
    """At last it is the round trip and the least timeout, in ticks of the kernel's timers."""
    library = CDLL(str(compiled))
    assert timeout_ms(library, *200 * [10]) == pytest.approx(11, rel=0.05)
    assert 15 < timeout_ms(library, *200 * [10], 30) < 40


def test_a_shorter_round_trip_makes_a_timeout_hardly_longer(compiled: Path) -> None:
    library = CDLL(str(compiled))
    steady = timeout_ms(library, *200 * [30])
    assert timeout_ms(library, *200 * [30], 1) < steady + 1
    assert timeout_ms(library, *200 * [30], 59) > steady + 20


@pytest.mark.parametrize("flow", [CLASSIC_ECN, DCTCP], indirect=True)
@pytest.mark.parametrize("is_marked", [False, True])
def test_a_recovery_is_taken_back_also_while_marks_reduce_the_window(
    flow: Flow, is_marked: bool
) -> None:
    """Packets 1 to 4 seem to be lost, and 1 is sent again; then the originals arrive."""
    flow.answer(1, congested=is_marked)
    sent_ms = flow.stamp_ms
    flow.now += 5 * MS_NS
    arrived = 6
    while 1 not in flow.answer(1, (5, arrived)):
        arrived += 1
        assert arrived < 10
    sent = [flow.answer(packet, (5, arrived), stamp_ms=sent_ms) for packet in (2, 3, 4)]
    assert not set(chain.from_iterable(sent)) & {2, 3, 4}
    # the window is restored, or stays as the marks have it
    assert bool(sent[0]) is not is_marked


def test_packets_older_than_the_last_in_order_are_refused(flow: Flow) -> None:
    """Packet 0 is of time 3, 2 of 1; one of 2 is taken, since stamps may differ by 1."""
    assert flow.receive(0, 3)
    refused = flow.receive(2, 1)
    assert refused
    assert (refused.sequence, refused.n_blocks) == (1, 0)
    taken = flow.receive(2, 2)
    assert taken
    assert (taken.sequence, taken.n_blocks, list(taken.blocks[:2])) == (1, 1, [2, 3])


def test_an_old_copy_of_a_packet_makes_no_other_one_old(flow: Flow) -> None:
    for packet in range(3):
        flow.receive(packet, 1)
    copy = flow.receive(0, 9)
    assert copy
    assert (copy.repeated, list(copy.blocks[:2])) == (1, [0, 1])
    following = flow.receive(3, 1)
    assert following
    assert following.sequence == 4


def test_the_window_grows_by_blocks_once_a_packet_was_overtaken_by_four(flow: Flow) -> None:
    """Packets 2 and 3 come before 0, which is then four before the end of what has arrived."""
    flow.answer(0, (2, 4))
    flow.answer(4)
    assert len(flow.answer(4, (5, 6))) == 2
