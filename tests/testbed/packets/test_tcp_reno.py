"""Reno of simulated TCP, packet by packet, against the numbers of RFC 5681."""

from __future__ import annotations

from ctypes import CDLL
from pathlib import Path

import pytest

from tests.testbed.packets.flow_by_hand import NEVER, RTT_NS, Flow
from weft.testbed.packets.network import CLASSIC_ECN, NO_ECN


@pytest.fixture
def flow(compiled: Path, request: pytest.FixtureRequest) -> Flow:
    library = CDLL(str(compiled))
    return Flow(library, getattr(request, "param", NO_ECN))


def with_eight_in_flight(flow: Flow) -> None:
    """Acknowledge packets 0 to 5, so that 6 to 13 are on their way."""
    assert flow.send() == [0, 1]
    assert [flow.answer(n) for n in range(1, 7)] == [[2 * n, 2 * n + 1] for n in range(1, 7)]


def test_slow_start_sends_two_packets_for_each_that_arrives(flow: Flow) -> None:
    with_eight_in_flight(flow)


def test_the_third_repetition_sends_the_packet_again_and_halves_the_window(flow: Flow) -> None:
    with_eight_in_flight(flow)
    assert flow.answer(6) == flow.answer(6) == []
    assert flow.answer(6) == [6]
    # ssthresh 4, cwnd 4 + 3: a fourth repetition makes 8, all of which are out, a fifth 9
    assert flow.answer(6) == []
    assert [flow.answer(6) for _ in range(3)] == [[14], [15], [16]]
    # cwnd 4, and three are out
    assert flow.answer(14) == [17]


def test_the_first_new_answer_ends_recovery_though_more_was_lost(flow: Flow) -> None:
    """Packets 6 and 8 are lost: 8 waits for three repetitions of its own, or for the timer."""
    with_eight_in_flight(flow)
    sent = [flow.answer(6) for _ in range(7)]
    assert sent == [[], [], [6], [], [14], [15], [16]]
    assert [flow.answer(8) for _ in range(4)] == [[], [], [], [8]]
    assert flow.expire() == [8]
    assert flow.library.tcp_sender_deadline(flow.flow) != NEVER


def test_a_timeout_begins_with_one_packet_and_sends_all_again_in_order(flow: Flow) -> None:
    with_eight_in_flight(flow)
    assert flow.expire() == [6]
    assert flow.answer(7) == [7, 8]
    assert flow.answer(8) == [9, 10]
    assert flow.answer(14) == [14, 15, 16, 17]  # all had arrived; ssthresh 4


def test_a_timeout_in_recovery_halves_the_window_again(flow: Flow) -> None:
    with_eight_in_flight(flow)
    assert [flow.answer(6) for _ in range(3)] == [[], [], [6]]
    assert flow.expire() == [6]
    assert flow.answer(7) == [7, 8]
    assert flow.answer(8) == [9]  # ssthresh 2, so that slow start has ended


def test_a_timeout_repeats_what_was_sent_a_moment_ago(flow: Flow) -> None:
    with_eight_in_flight(flow)
    flow.now = flow.library.tcp_sender_deadline(flow.flow) - 5 * RTT_NS // 10 - 1
    assert [flow.answer(6) for _ in range(5)] == [[], [], [6], [], [14]]
    assert flow.expire() == [6]
    assert flow.answer(14) == [14, 15]


@pytest.mark.parametrize("flow", [CLASSIC_ECN], indirect=True)
def test_an_echo_halves_the_window_once_in_a_round_trip(flow: Flow) -> None:
    with_eight_in_flight(flow)
    sent = [flow.answer(n, congested=True) for n in range(7, 15)]
    # cwnd 4 while 7, 6, 5 and 4 are out; 2 when packet 14, the first that was sent since, is next
    assert sent == [[], [], [], [], [14], [15], [16], []]


def test_every_packet_is_answered_without_blocks(flow: Flow) -> None:
    expected = {0: 1, 2: 1, 3: 1, 1: 4, 4: 5}
    answers = {packet: flow.receive(packet) for packet in expected}
    assert all(answer and answer.n_blocks == 0 for answer in answers.values())
    assert {packet: answer.sequence for packet, answer in answers.items() if answer} == expected
