"""Which layer a packet takes after which answers, by hand; C is compared in test_network."""

from __future__ import annotations

import numpy as np
import pytest

from tests.daemons.transport.endpoint import Endpoint
from tests.daemons.transport.packet_layers import (
    Answer,
    GoodLayers,
    RecycledLayers,
    ScoutedLayers,
    TurnedLayers,
    layers_of,
)
from tests.daemons.transport.packets import Ack, Data, Nack
from weft.daemons.transport.endpoint import LayerChoice, Parameters

SECOND, GOOD = 10**9, Answer.GOOD


def test_reps_recycles_each_good_layer_once_the_oldest_first() -> None:
    reps = RecycledLayers(9, window=2)
    assert [reps.next(0, word) for word in (4, 5)] == [4, 5]
    for layer, answer in ((4, GOOD), (5, Answer.MARKED), (6, Answer.TRIMMED), (7, GOOD)):
        reps.answered(layer, answer, 0)
    assert [reps.next(0, word) for word in (0, 1, 2, 3)] == [4, 7, 2, 3]


def test_reps_reuses_its_last_layers_after_a_silence_and_explores_again_later() -> None:
    reps = RecycledLayers(9, window=2)
    for layer in (3, 6):
        reps.answered(layer, GOOD, 0)
    reps.silent(8, SECOND)
    assert [reps.next(0, 0) for _ in range(6)] == [3, 6, 3, 6, 3, 6]
    reps.answered(5, GOOD, SECOND)
    assert [reps.next(SECOND, word) for word in (1, 2, 3, 4)] == [1, 2, 5, 4]


def test_scout_stays_on_a_layer_until_a_packet_was_trimmed() -> None:
    scout = ScoutedLayers(9, window=8)
    assert [scout.next(0, word) for word in (2, 5, 7)] == [2, 5, 7]
    for layer in (2, 5, 2):
        scout.answered(layer, GOOD, 0)
    assert [scout.next(0, 0) for _ in range(3)] == [2, 2, 2]
    scout.answered(2, Answer.TRIMMED, 0)
    assert [scout.next(0, 0) for _ in range(3)] == [5, 5, 5]


def test_scout_bears_eight_marks() -> None:
    scout = ScoutedLayers(9, window=8)
    for layer in (2, 5):
        scout.answered(layer, GOOD, 0)
    for _ in range(8):
        scout.answered(2, Answer.MARKED, 0)
    assert scout.next(0, 0) == 2
    scout.answered(2, Answer.MARKED, 0)
    assert scout.next(0, 0) == 5


def test_spray_uses_each_good_layer_once() -> None:
    spray = GoodLayers(9, window=8)
    for layer in (2, 5, 7):
        spray.answered(layer, GOOD, 0)
    spray.answered(5, Answer.TRIMMED, 0)
    assert [spray.next(0, word) for word in (0, 0, 0, 4)] == [2, 5, 7, 4]


@pytest.mark.parametrize("kind", [GoodLayers, ScoutedLayers])
def test_spritz_explores_with_every_twelfth_packet(kind: type[GoodLayers]) -> None:
    spritz, taken = kind(9, window=8), []
    for _ in range(24):
        spritz.answered(3, GOOD, 0)
        taken.append(spritz.next(0, 8))
    assert [place for place, layer in enumerate(taken) if layer == 8] == [11, 23]


def test_a_silent_layer_is_not_explored_while_another_one_is_left() -> None:
    spray = GoodLayers(3, window=8)
    spray.silent(1, SECOND)
    assert [spray.next(0, word) for word in range(3)] == [0, 2, 0]
    spray.silent(0, SECOND)
    spray.silent(2, SECOND)
    assert [spray.next(0, word) for word in range(3)] == [2, 2, 2]


def test_mrc_takes_all_layers_in_turn_but_silent_ones() -> None:
    mrc = TurnedLayers(8, window=8, last=6)
    assert [mrc.next(0, 0) for _ in range(4)] == [6, 7, 0, 1]
    mrc.silent(3, SECOND)
    assert [mrc.next(0, 0) for _ in range(8)] == [2, 4, 5, 6, 7, 0, 1, 2]
    mrc.answered(3, GOOD, 0)  # of a probe
    assert [mrc.next(0, 0) for _ in range(2)] == [3, 4]


def test_mrc_lets_a_marked_layer_miss_a_turn_and_keeps_one_that_was_trimmed() -> None:
    mrc = TurnedLayers(4, window=8)
    mrc.answered(1, Answer.MARKED, 0)
    mrc.answered(2, Answer.TRIMMED, 0)
    assert [mrc.next(0, 0) for _ in range(7)] == [0, 2, 3, 0, 1, 2, 3]


def test_mrc_keeps_a_quarter_of_the_layers() -> None:
    mrc = TurnedLayers(8, window=8)
    for layer in range(8):
        mrc.silent(layer, SECOND)
    assert [mrc.next(0, 0) for _ in range(3)] == [6, 7, 6]


def test_mrc_probes_silent_layers_each_timeout_until_they_answer() -> None:
    parameters = Parameters(
        rate_bps=10**10, timeout_ns=10**6, layers=4, window=4, choice=LayerChoice.MRC
    )
    endpoint = Endpoint(parameters)
    endpoint.send(0, 1, 5, 100 * 1450)
    sent = [endpoint.poll(endpoint.deadline())[0] for _ in range(4)]
    lost = sent[2].packet
    for transmission in sent[:2] + sent[3:]:
        packet = transmission.packet
        endpoint.receive(10**5, 5, Ack(1, packet.sequence, packet.layer, 0, False), True)
    times: dict[int, list[int]] = {}
    while (now := endpoint.deadline()) < 4 * 10**6:
        for transmission in endpoint.poll(now):
            assert transmission.payload_bytes == 0
            if transmission.packet.layer == lost.layer:
                times.setdefault(transmission.packet.sequence, []).append(now)
                if len(times[transmission.packet.sequence]) == 2:
                    answer = Ack(1, transmission.packet.sequence, lost.layer, 0, False)
                    endpoint.receive(now, 5, answer, True)
    ((probed, when),) = times.items()
    assert probed == sent[3].packet.sequence  # a packet that has arrived
    assert np.diff(when).tolist() == [10**6]


@pytest.mark.parametrize("choice", LayerChoice)
def test_a_message_leaves_a_layer_that_is_silent(choice: LayerChoice) -> None:
    parameters = Parameters(
        rate_bps=10**10, timeout_ns=10**6, layers=2, window=1, attempts=9, choice=choice
    )
    endpoint = Endpoint(parameters)
    endpoint.send(0, 1, 5, 1450)
    sent = endpoint.poll(0)
    while (deadline := endpoint.deadline()) is not None:
        sent += endpoint.poll(deadline)
    taken = [transmission.packet.layer for transmission in sent]
    assert len(taken) == 10
    assert set(taken) == {0, 1}


def test_refusals_do_not_move_a_message_whose_packets_choose_their_layers() -> None:
    assert layers_of(LayerChoice.FLOW, 9, 8) is None
    endpoint = Endpoint(
        Parameters(rate_bps=10**10, timeout_ns=10**6, layers=9, choice=LayerChoice.SCOUT)
    )
    endpoint.send(0, 1, 5, 14_500)
    first = endpoint.poll(0)[0].packet
    assert isinstance(first, Data)
    endpoint.receive(1, 5, Nack(1, first.sequence, first.layer, 1, False), True)
    again = endpoint.poll(10**5)[0].packet
    assert again.layer == first.layer  # trimmed before the receiver's own link
