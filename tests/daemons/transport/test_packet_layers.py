"""Which layer a packet takes after which answers, by hand; C is compared in test_packet_network."""

from __future__ import annotations

import pytest

from tests.daemons.transport.endpoint import Endpoint
from tests.daemons.transport.packet_layers import GoodLayers, RecycledLayers, layers_of
from weft.daemons.transport.packets import Data, Nack
from weft.daemons.transport.parameters import LayerChoice, Parameters

SECOND = 10**9


def test_reps_recycles_each_good_layer_once_the_oldest_first() -> None:
    reps = RecycledLayers(9, window=2)
    assert [reps.next(0, word) for word in (4, 5)] == [4, 5]
    for layer, is_bad in ((4, False), (5, True), (7, False)):
        reps.answered(layer, is_bad, 0)
    assert [reps.next(0, word) for word in (0, 1, 2, 3)] == [4, 7, 2, 3]


def test_reps_reuses_its_last_layers_after_a_silence_and_explores_again_later() -> None:
    reps = RecycledLayers(9, window=1)
    reps.next(0, 8)
    for layer in (3, 6):
        reps.answered(layer, False, 0)
    reps.silent(8, SECOND)
    assert [reps.next(0, 0) for _ in range(6)] == [3, 6, 3, 6, 3, 6]
    reps.answered(6, False, SECOND)
    assert [reps.next(SECOND, 1), reps.next(SECOND, 1), reps.next(SECOND, 2)] == [1, 6, 2]


def test_scout_stays_on_a_layer_until_an_answer_is_bad() -> None:
    scout = GoodLayers(9, window=8)
    assert [scout.next(0, word) for word in (2, 5, 7)] == [2, 5, 7]
    for layer in (2, 5, 7):
        scout.answered(layer, False, 0)
    assert [scout.next(0, 0) for _ in range(3)] == [7, 7, 7]
    scout.answered(7, True, 0)
    assert [scout.next(0, 0) for _ in range(2)] == [2, 2]


def test_spray_takes_the_good_layers_in_turn() -> None:
    spray = GoodLayers(9, window=8, in_turn=True)
    for layer in (2, 5, 7):
        spray.answered(layer, False, 0)
    assert [spray.next(0, 0) for _ in range(5)] == [2, 5, 7, 2, 5]
    spray.answered(2, True, 0)
    assert [spray.next(0, 0) for _ in range(3)] == [7, 5, 7]


def test_a_silent_layer_is_not_explored_for_a_time() -> None:
    scout = GoodLayers(3, window=8)
    scout.silent(1, SECOND)
    assert [scout.next(0, word) for word in range(3)] == [0, 2, 2]
    assert scout.next(SECOND, 1) == 1


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
    taken = [each.packet.layer for each in sent]
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
