"""Endpoints, alone and in twos, in simulated time."""

import re
import tracemalloc
from pathlib import Path

import pytest

from tests.daemons.transport.endpoint import Endpoint
from tests.daemons.transport.packets import Ack, Data, Nack, Pull
from weft.daemons.transport.endpoint import (
    MOST_INCOMING,
    MOST_INCOMING_OF_PEER,
    MOST_PACKETS,
    Backoff,
    Delivered,
    Finished,
    LayerChoice,
    Parameters,
    timeout_ns,
)

MBIT = 1_000_000
PAYLOAD = 1450
GAP = 121_120  # ns of a full frame at 100 Mbit/s


def parameters(**changed):
    return Parameters(**{"rate_bps": 100 * MBIT, "timeout_ns": 50_000_000, **changed})


def endpoint(**changed):
    return Endpoint(parameters(**changed))


def poll_until(sender, now, until):
    """All that `one` sends from `now` on, with when."""
    frames = []
    while True:
        frames += [(now, sent) for sent in sender.poll(now)]
        at = sender.deadline()
        if at is None or max(at, now) > until:
            return frames
        now = max(at, now)


def data(frames):
    return [
        sent.packet.sequence
        for _, sent in frames
        if isinstance(sent.packet, Data) and sent.payload_bytes
    ]


def pulls(frames):
    return [(sent.peer, sent.packet.pulls) for _, sent in frames if isinstance(sent.packet, Pull)]


def packet(sequence, flow=1, packets=20, window=8, layer=0):
    return Data(flow, sequence, layer, window, packets * PAYLOAD, PAYLOAD)


def test_a_window_goes_out_at_the_rate_of_the_link_and_no_more():
    sender = endpoint()
    sender.send(0, 1, 5, 20 * PAYLOAD)
    frames = poll_until(sender, 0, 40_000_000)
    assert data(frames) == list(range(8))
    assert [at for at, _ in frames] == [GAP * i for i in range(8)]
    assert {sent.peer for _, sent in frames} == {5}


def test_a_late_timer_catches_up_but_for_a_burst():
    sender = endpoint(window=50, burst=8)
    sender.send(0, 1, 5, 50 * PAYLOAD)
    assert len(sender.poll(0)) == 1
    assert len(sender.poll(100 * GAP)) == 9  # the one that is due, and eight that should have gone


def test_a_short_packet_is_short():
    sender = endpoint()
    sender.send(0, 1, 5, PAYLOAD + 7)
    assert [sent.payload_bytes for _, sent in poll_until(sender, 0, MBIT)] == [PAYLOAD, 7]


def test_two_messages_share_the_senders_link():
    sender = endpoint()
    sender.send(0, 1, 5, 9 * PAYLOAD)
    sender.send(0, 2, 6, 9 * PAYLOAD)
    assert [sent.peer for _, sent in poll_until(sender, 0, 20 * GAP)] == [5, 6] * 8


def test_every_packet_is_answered_at_once_and_pulled_at_the_rate_of_the_link():
    sender = endpoint()
    for sequence in range(4):
        sender.receive(0, 7, packet(sequence), whole=True)
    frames = poll_until(sender, 0, 100 * GAP)
    assert [sent.packet for at, sent in frames if at == 0] == [
        *(Ack(1, i, 0, 0) for i in range(4)),
        Pull(1, 0, 1),
    ]
    assert [at for at, sent in frames if isinstance(sent.packet, Pull)] == [
        0,
        GAP,
        2 * GAP,
        3 * GAP,
    ]
    assert pulls(frames) == [(7, 1), (7, 2), (7, 3), (7, 4)]


def test_no_more_is_pulled_than_the_message_needs():
    sender = endpoint()
    for sequence in range(8):
        sender.receive(0, 7, packet(sequence, packets=10), whole=True)
    assert len(pulls(poll_until(sender, 0, 100 * GAP))) == 2
    sender.receive(200 * GAP, 7, packet(8, packets=10), whole=False)  # it must come once more
    assert len(pulls(poll_until(sender, 200 * GAP, 300 * GAP))) == 1


def test_pulls_are_fair_among_senders_not_messages():
    sender = endpoint()
    for flow, peer in ((1, 7), (2, 7), (3, 8)):
        for sequence in range(4):
            sender.receive(0, peer, packet(sequence, flow=flow), whole=True)
    assert [peer for peer, _ in pulls(poll_until(sender, 0, 100 * GAP))] == [7, 8] * 4 + [7] * 4


def test_what_was_refused_goes_first_and_only_if_pulled():
    sender = endpoint()
    sender.send(0, 1, 5, 20 * PAYLOAD)
    poll_until(sender, 0, 9 * GAP)
    now = 10 * GAP
    sender.receive(now, 5, Nack(1, 3, 0, 0, False), whole=True)
    sender.receive(now, 5, Nack(1, 6, 0, 0, False), whole=True)
    assert data(poll_until(sender, now, 100 * GAP)) == []
    sender.receive(101 * GAP, 5, Pull(1, 0, 3), whole=True)
    assert data(poll_until(sender, 101 * GAP, 200 * GAP)) == [3, 6, 8]
    assert sender.counters.retransmissions == 2


def test_a_lost_pull_is_made_good_by_the_next():
    sender = endpoint()
    sender.send(0, 1, 5, 20 * PAYLOAD)
    poll_until(sender, 0, 9 * GAP)
    sender.receive(10 * GAP, 5, Pull(1, 0, 1), whole=True)
    sender.receive(10 * GAP, 5, Pull(1, 0, 4), whole=True)
    sender.receive(10 * GAP, 5, Pull(1, 0, 2), whole=True)  # overtaken
    assert data(poll_until(sender, 10 * GAP, 50 * GAP)) == [8, 9, 10, 11]


def test_a_pull_that_comes_before_its_nack_is_kept_for_it():
    sender = endpoint()
    sender.send(0, 1, 5, 4 * PAYLOAD)
    poll_until(sender, 0, 9 * GAP)
    sender.receive(10 * GAP, 5, Pull(1, 0, 1), whole=True)
    sender.receive(11 * GAP, 5, Nack(1, 2, 0, 1, False), whole=True)
    assert data(poll_until(sender, 11 * GAP, 20 * GAP)) == [2]


@pytest.mark.parametrize("congested", [True, False])
def test_a_header_moves_the_message_to_another_layer_unless_it_was_trimmed_at_the_host(congested):
    sender = endpoint(layers=4)
    sender.send(0, 1, 5, 20 * PAYLOAD)
    layer = poll_until(sender, 0, 9 * GAP)[0][1].packet.layer
    sender.receive(10 * GAP, 5, Nack(1, 0, layer, 1, congested), whole=True)
    (moved,) = (sent.packet.layer for _, sent in poll_until(sender, 10 * GAP, 20 * GAP))
    assert (moved != layer) == congested
    # of the layer that was left
    sender.receive(30 * GAP, 5, Nack(1, 1, layer, 2, congested), whole=True)
    assert [sent.packet.layer for _, sent in poll_until(sender, 30 * GAP, 40 * GAP)] == [moved]


def test_the_receiver_says_where_a_header_was_made():
    sender = endpoint(layers=4)
    sender.receive(0, 7, packet(0, layer=3), whole=False, congested=True)
    sender.receive(0, 7, packet(1, layer=3), whole=False)
    assert [sent.packet for sent in sender.poll(0)][:2] == [
        Nack(1, 0, 3, 0, True),
        Nack(1, 1, 3, 0, False),
    ]


def test_layers_are_drawn_evenly():
    sender = endpoint(layers=4, window=1)
    for flow in range(400):
        sender.send(0, flow, 5, PAYLOAD)
    drawn = [sent.packet.layer for _, sent in poll_until(sender, 0, 40_000_000)]
    assert all(60 < drawn.count(layer) < 140 for layer in range(4))


def test_a_silent_packet_is_asked_after_by_its_header():
    sender = endpoint(attempts=3)
    sender.send(0, 1, 5, 2 * PAYLOAD)
    frames = poll_until(sender, 0, 60_000_000)
    assert [(at, sent.packet.sequence, sent.payload_bytes) for at, sent in frames] == [
        (0, 0, PAYLOAD),
        (GAP, 1, PAYLOAD),
        (50_000_000, 0, 0),
        # the other waits twice as long, for nothing was heard
    ]
    assert sender.counters.timeouts == 1


def test_a_message_that_is_not_answered_is_given_up_and_says_so():
    sender = endpoint(attempts=3)
    sender.send(0, 1, 5, 20 * PAYLOAD)
    frames = poll_until(sender, 0, 10**12)
    assert sender.deadline() is None
    (event,) = sender.events
    assert event.failed.startswith("host 5 has not answered for")
    assert "20 of 20 packets not acknowledged" in event.failed
    assert event.at_ns > 50_000_000 * (1 + 2 + 4)
    assert sender.counters.timeouts == len(frames) - 8


def test_a_lost_window_is_one_timeout_in_a_row_or_one_for_each_packet():
    timeout, given_up_at = 50_000_000, {}
    for backoff in Backoff:
        sender = endpoint(attempts=6, backoff=backoff)
        sender.send(0, 1, 5, 20 * PAYLOAD)
        frames = poll_until(sender, 0, 10**12)
        (event,) = sender.events
        given_up_at[backoff] = event.at_ns
    rounds = [timeout * (2**n - 1) for n in range(5)]
    rounds += [rounds[-1] + 16 * timeout * n for n in (1, 2)]
    assert [at for at, _ in frames] == [round_ns + GAP * n for round_ns in rounds for n in range(8)]
    assert given_up_at[Backoff.WINDOW] == rounds[-1] + 16 * timeout
    assert given_up_at[Backoff.PACKET] < given_up_at[Backoff.WINDOW] / 2


def test_a_lost_last_pull_is_asked_for():
    sender = endpoint()
    sender.send(0, 1, 5, 9 * PAYLOAD)
    poll_until(sender, 0, 9 * GAP)
    for sequence in range(8):
        sender.receive(10 * GAP, 5, Ack(1, sequence, 0, 0), whole=True)
    (((at, asked)),) = poll_until(sender, 10 * GAP, 10 * GAP + 60_000_000)
    assert (at, asked.packet.sequence, asked.payload_bytes) == (10 * GAP + 50_000_000, 8, 0)


def test_a_lost_ack_costs_no_second_copy():
    sender, receiver = endpoint(), endpoint()
    sender.send(0, 1, 1, PAYLOAD)
    (first,) = sender.poll(0)
    receiver.receive(0, 0, first.packet, whole=True)
    receiver.poll(0)
    (asked,) = sender.poll(50_000_000)
    receiver.receive(50_000_000, 0, asked.packet, whole=False)
    (answer,) = receiver.poll(50_000_000)
    sender.receive(50_000_000, 1, answer.packet, whole=True)
    assert receiver.events == [Delivered(0, 1, PAYLOAD, 0)]
    assert sender.events == [Finished(1, 1, 50_000_000, None)]
    assert receiver.counters.duplicates == 0


def test_what_belongs_to_no_message_is_counted_and_left():
    sender = endpoint()
    sender.send(0, 1, 5, PAYLOAD)
    sender.poll(0)
    sender.receive(0, 6, Ack(1, 0, 0, 0), whole=True)  # of another host
    sender.receive(0, 5, Ack(2, 0, 0, 0), whole=True)
    sender.receive(0, 5, packet(0, flow=9, packets=20), whole=True)
    sender.receive(0, 5, packet(0, flow=9, packets=21), whole=True)
    sender.receive(0, 5, Data(8, 0, 0, 8, 1 << 40, 1), whole=True)
    assert sender.counters.strange == 4
    assert sender.events == []
    sender.receive(0, 5, Ack(1, 0, 0, 0), whole=True)
    sender.receive(0, 5, Ack(1, 7, 0, 0), whole=True)
    assert sender.events == [Finished(5, 1, 0, None)]


def test_a_packet_of_a_layer_that_is_none_is_counted_and_left():
    sender = endpoint(layers=3)
    sender.send(0, 1, 5, PAYLOAD)
    sender.poll(0)
    for hostile in (packet(0, layer=3), Ack(1, 0, 200, 0), Nack(1, 0, 255, 0, True), Pull(1, 3, 1)):
        sender.receive(0, 5, hostile, whole=True)
    assert (sender.counters.strange, sender.poll(0), sender.events) == (4, [], [])


def test_headers_that_claim_large_messages_cost_under_a_kilobyte_each():
    sender = endpoint()
    tracemalloc.start()
    for flow in range(200):
        sender.receive(0, 5, Data(flow, (1 << 24) - 1, 0, 8, PAYLOAD << 24, PAYLOAD), whole=False)
    largest_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(sender.incoming) == 200
    assert largest_bytes < 200_000


def test_a_packet_that_cannot_have_been_sent_yet_is_refused():
    sender = endpoint()
    # the window is 8, and one question may be lost
    sender.receive(0, 5, packet(9, packets=1000), whole=True)
    assert (sender.counters.strange, sender.poll(0)) == (1, [])
    sender.receive(0, 5, packet(8, packets=1000), whole=True)
    assert (sender.counters.strange, sender.counters.data) == (1, 1)


def test_a_message_is_forgotten_after_its_sender_has_given_it_up():
    one = endpoint(attempts=3)
    sender = endpoint(attempts=3)
    sender.send(0, 1, 5, 20 * PAYLOAD)
    sent = poll_until(sender, 0, 10**12)
    one.receive(0, 7, packet(0), whole=True)
    poll_until(one, 0, 10**9)
    lifetime_ns = one.parameters.lifetime_ns
    assert lifetime_ns == (3 + 1) * 16 * one.parameters.timeout_ns
    assert sender.events[0].failed
    assert sent[-1][0] < sender.events[0].at_ns < lifetime_ns
    one.receive(lifetime_ns, 8, packet(0), whole=True)
    assert list(one.incoming) == [(7, 1), (8, 1)]
    one.receive(lifetime_ns + 1, 8, packet(0, flow=2), whole=True)
    assert list(one.incoming) == [(8, 1), (8, 2)]


def test_messages_of_a_peer_are_bounded_until_some_are_forgotten():
    sender = endpoint()
    for flow in range(MOST_INCOMING_OF_PEER + 3):
        sender.receive(0, 5, packet(0, flow=flow, packets=1), whole=True)
    sender.receive(0, 6, packet(0, packets=1), whole=True)
    assert (len(sender.incoming), sender.counters.refused) == (MOST_INCOMING_OF_PEER + 1, 3)
    sender.receive(
        sender.parameters.lifetime_ns + 1, 5, packet(0, flow=1 << 20, packets=1), whole=True
    )
    assert (len(sender.incoming), sender.counters.refused) == (1, 3)


@pytest.mark.parametrize("size", [0, -1, (1 << 24) * PAYLOAD + 1])
def test_messages_have_a_size(size):
    with pytest.raises(ValueError, match="a message has 1 to"):
        endpoint().send(0, 1, 5, size)


def test_a_number_is_used_once():
    sender = endpoint()
    sender.send(0, 1, 5, 1)
    with pytest.raises(ValueError, match="flow 1 has been used"):
        sender.send(0, 1, 6, 1)


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [
        ("rate_bps", 8_000, 10**15),
        ("frame_bytes", 65, 2**16 - 1),
        ("window", 1, 2**8 - 1),
        ("layers", 1, 256),
        ("timeout_ns", 1, 2**50),
        ("attempts", 1, 1_000),
        ("burst", 1, 1_000),
        ("seed", 0, 2**32 - 1),
    ],
)
def test_parameters_are_checked(name, least, most):
    for value in (least, most):
        assert getattr(parameters(**{name: value}), name) == value
    for value in (least - 1, most + 1):
        with pytest.raises(ValueError, match=f"{name} must be {least} to {most}, got {value}$"):
            parameters(**{name: value})


def test_limits_and_choices_are_those_of_c():
    folder = Path(__file__).parents[3] / "testbed" / "traffic"
    header = (folder / "ndp_machine.h").read_text()
    limits = re.findall(r"#define NDP_(MOST_\w+) \(1u << (\d+)\)", header)
    assert {name: 1 << int(bits) for name, bits in limits} == {
        "MOST_PACKETS": MOST_PACKETS,
        "MOST_INCOMING": MOST_INCOMING,
        "MOST_INCOMING_OF_PEER": MOST_INCOMING_OF_PEER,
    }
    (names,) = re.findall(r"enum \{ BY_(FLOW, .*) \};", (folder / "packet_layers.h").read_text())
    assert [choice.name for choice in sorted(LayerChoice)] == names.split(", ")
    assert sorted(LayerChoice) == list(range(6))


@pytest.mark.parametrize(
    ("rate_bps", "frames_ms"), [(10**7, 484.48), (10**9, 4.8448), (2 * 10**9, 2.4224), (10**10, 1)]
)
def test_the_usual_timeout_is_the_time_of_400_frames_but_at_least_1_ms(rate_bps, frames_ms):
    assert timeout_ns(rate_bps) == round(1_000_000 * frames_ms)
