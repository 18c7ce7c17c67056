"""Flooding by hand: nodes in a row or a ring, and what passes between them."""

import pytest

from weft.daemons.control.scoped_flooding import Notice, Notices
from weft.daemons.core.wire import MalformedMessage
from weft.daemons.lbsp import messages
from weft.daemons.lbsp.messages import Crowding, Failures, LinkFailure
from weft.topologies.core.address import Prefix

NONE = Failures(())
ONE = Failures((LinkFailure(1, False, Prefix(10 << 24, 24), 7),))


def empty(body):
    return not body.failures if isinstance(body, Failures) else not body.state


def node(number=1, neighbours=(2, 3, 4), *, scope=3, **more):
    """Its neighbour at port i is neighbours[i]."""
    ports = dict(enumerate(neighbours))
    onward = {"onward": lambda notice, port: list(ports)}
    more = {"says_at": ports, **onward, "lifetime_ms": 3000, "incarnation": 100} | more
    return Notices(number, ports, scope=scope, empty=empty, encode=messages.encode, **more)


def messages_by_port(sends):
    """Return the messages sent, by port."""
    return {send.port: messages.decode(send.payload) for send in sends}


def heard(origin=9, *, sender=2, sequence=5, hops=2, body=ONE, lifetime_ms=3000, target=1):
    return Notice(sender, target, origin, sequence, lifetime_ms, hops, body)


def test_a_notice_leaves_every_port_for_who_is_there_with_the_hops_that_are_left():
    sends = messages_by_port(node().say(ONE, 0.0))
    assert {
        port: (message.sender, message.target, message.origin, message.hops)
        for port, message in sends.items()
    } == {port: (1, port + 2, 1, 2) for port in range(3)}


def test_what_says_nothing_is_said_only_by_who_said_something_before():
    flooding = node()
    assert flooding.say(NONE, 0.0) == []
    assert flooding.say(ONE, 0.0)
    assert flooding.say(ONE, 0.0) == []
    assert len(flooding.say(NONE, 0.0)) == 3


def test_what_is_new_is_passed_on_where_it_did_not_come_from():
    flooding = node()
    is_news, sends = flooding.hear(heard(), 0, 1.0)
    assert is_news
    assert {
        port: (message.sender, message.target, message.origin, message.hops)
        for port, message in messages_by_port(sends).items()
    } == {
        1: (1, 3, 9, 1),
        2: (1, 4, 9, 1),
    }
    assert flooding.hear(heard(), 0, 1.0) == (False, [])
    assert flooding.hear(heard(sequence=4, body=NONE), 0, 1.0) == (False, [])
    assert flooding.hear(heard(sequence=6), 0, 1.0)[0] is False  # a refresh
    assert flooding.hear(heard(sequence=7, body=NONE), 0, 1.0)[0] is True


def test_the_last_hop_keeps_it():
    is_news, sends = node().hear(heard(hops=0), 0, 1.0)
    assert is_news
    assert sends == []


def test_the_shorter_way_counts_also_if_it_was_slower():
    flooding = node()
    flooding.hear(heard(hops=0), 0, 1.0)
    is_news, sends = flooding.hear(heard(hops=2, sender=3), 1, 1.1)
    assert not is_news
    assert [message.hops for message in messages_by_port(sends).values()] == [1, 1]
    assert flooding.hear(heard(hops=1, sender=4), 2, 1.2) == (False, [])


def test_strangers_and_what_is_for_others_are_not_heard():
    flooding = node()
    with pytest.raises(MalformedMessage, match="node 3 is no neighbour at port 0"):
        flooding.hear(heard(sender=3), 0, 0.0)
    assert flooding.hear(heard(target=5), 0, 0.0) == (False, [])
    assert flooding.hear(heard(lifetime_ms=0), 0, 0.0) == (False, [])
    assert not flooding.notices


def test_what_changed_is_repeated_and_what_is_not_empty_is_refreshed():
    flooding = node(gap_s=0.030, repeats=3, lifetime_ms=3000)
    sequences = [messages_by_port(flooding.say(ONE, 0.0))[0].sequence]
    times = []
    for _ in range(4):
        times.append(flooding.deadline)
        _, sends = flooding.tick(flooding.deadline)
        sequences.append(messages_by_port(sends)[0].sequence)
    assert [round(time, 3) for time in times] == [0.03, 0.06, 1.06, 2.06]
    assert sequences == sorted(set(sequences))
    flooding.say(NONE, 3.0)
    for _ in range(2):
        assert len(flooding.tick(flooding.deadline)[1]) == 3
    assert flooding.deadline == float("inf")


def test_what_is_not_renewed_is_forgotten_with_the_time_it_has_used_up_on_its_way():
    flooding = node()
    flooding.hear(heard(lifetime_ms=500), 0, 1.0)
    flooding.hear(heard(origin=8, lifetime_ms=700, body=NONE), 0, 1.0)
    assert flooding.deadline == 1.5
    assert [message.lifetime_ms for message in messages_by_port(flooding.tell(1, 1.2)).values()]
    assert flooding.tick(1.4) == (False, [])
    assert flooding.tick(1.5) == (True, [])
    assert flooding.tick(1.8) == (False, [])
    assert not flooding.notices


def test_a_neighbour_that_comes_up_is_told_everything_but_its_own():
    flooding = node()
    flooding.hear(heard(origin=9), 0, 1.0)
    flooding.hear(heard(origin=8, hops=0), 0, 1.0)
    flooding.hear(heard(origin=3), 0, 1.0)
    flooding.say(ONE, 1.0)
    sends = [messages.decode(send.payload) for send in flooding.tell(1, 2.0)]
    assert [(send.origin, send.hops, send.lifetime_ms) for send in sends] == [
        (1, 2, 3000),
        (9, 1, 2000),
    ]


def test_a_node_goes_on_from_its_predecessors_numbers():
    flooding = node(incarnation=100)
    assert flooding.hear(heard(origin=1, sequence=500), 0, 0.0) == (False, [])
    assert messages_by_port(flooding.say(ONE, 0.0))[0].sequence == 501


def test_ports_may_be_told_apart():
    flooding = node(says_at=[0], onward=lambda notice, port: [2] if port == 0 else [])
    assert list(messages_by_port(flooding.say(Crowding(1), 0.0))) == [0]
    assert list(messages_by_port(flooding.hear(heard(body=Crowding(2)), 0, 0.0)[1])) == [2]
    assert [message.origin for message in messages_by_port(flooding.tell(2, 0.0)).values()] == [9]


def test_a_ring_is_crossed_from_both_sides_and_the_flood_ends():
    ring = {
        number: node(number, ((number - 1) % 8, (number + 1) % 8), scope=3) for number in range(8)
    }
    waiting, sent = [(0, send) for send in ring[0].say(ONE, 0.0)], 0
    while waiting:
        at, send = waiting.pop(0)
        sent += 1
        notice = messages.decode(send.payload)
        to = (at - 1) % 8 if send.port == 0 else (at + 1) % 8
        assert notice == notice._replace(sender=at, target=to)
        waiting += [(to, more) for more in ring[to].hear(notice, 1 - send.port, 0.0)[1]]
    assert sorted(number for number, flooding in ring.items() if flooding.notices) == [
        1,
        2,
        3,
        5,
        6,
        7,
    ]
    assert sent == 6
