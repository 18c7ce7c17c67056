import pytest

from weft.daemons.control.candidate_routes import LiveRoutes
from weft.daemons.control.hello import Neighbourhood
from weft.daemons.core import wire
from weft.daemons.core.actions import NOTHING, UNCHANGED, Hop, Send, SetRoute
from weft.topologies.core.address import Prefix

NEAR, FAR, HOST = Prefix(10 << 24 | 1, 32), Prefix(10 << 24 | 1 << 16, 16), Prefix(10 << 24 | 7, 32)
A, B, C = Hop(0, 1), Hop(0, 2), Hop(1, 3)
AT_HOST = Hop(2, 7)


@pytest.fixture
def node():
    """Node 0: neighbours 1 and 2 at port 0, 3 at port 1, host 7 at port 2, which says no hellos."""
    neighbourhood = Neighbourhood(0, {0: [1, 2], 1: [3]}, incarnation=5)
    return LiveRoutes(neighbourhood, [(NEAR, (A,)), (FAR, (A, C)), (HOST, (AT_HOST,))])


def routes(actions):
    return {action.prefix: action.hops for action in actions if isinstance(action, SetRoute)}


def say(node, hop, sequence, hears_us=True, now=0.010):
    heard = ((0, 5),) if hears_us else ()
    payload = wire.encode(wire.Hello(hop.node, 1, 30, 0, heard, sequence))
    return node.receive(payload, hop.port, now)


def test_a_host_has_its_route_from_the_start_and_while_its_port_has_a_carrier(node):
    assert routes(node.start(0.0)) == {HOST: (AT_HOST,)}
    assert routes(node.link_changed(2, False, 0.1)) == {HOST: ()}
    assert node.link_changed(2, False, 0.1) == []
    assert routes(node.link_changed(2, True, 0.2)) == {HOST: (AT_HOST,)}


def test_routes_follow_the_neighbours(node):
    node.start(0.0)
    assert routes(say(node, A, 1)) == {NEAR: (A,), FAR: (A,)}
    assert routes(say(node, C, 1)) == {FAR: (A, C)}
    assert routes(say(node, B, 1)) == {}, "no route uses it"
    assert routes(say(node, A, 2, hears_us=False)) == {NEAR: (), FAR: (C,)}
    assert routes(node.link_changed(1, False, 0.02)) == {FAR: ()}


def test_of_hops_in_order_of_preference_the_first_live_one_is_set():
    neighbourhood = Neighbourhood(0, {0: [1, 2], 1: [3]}, incarnation=5)
    node = LiveRoutes(neighbourhood, [(FAR, (C, A))], first_only=True)
    node.start(0.0)
    assert routes(say(node, A, 1)) == {FAR: (A,)}
    assert routes(say(node, C, 1)) == {FAR: (C,)}
    assert node.converged() is False, "node 2 is not up"
    assert routes(node.link_changed(1, False, 0.02)) == {FAR: (A,)}
    assert routes(say(node, A, 2, hears_us=False)) == {FAR: ()}


def test_until_its_neighbour_is_up_a_route_is_not_replaced_by_the_one_that_covers_it():
    """Server 2 of a rack starts: packets for its neighbour must not go back to where all others
    go."""
    all_others, own, hosts = (
        Prefix(64 << 24, 8),
        Prefix(64 << 24 | 2 << 16, 16),
        Prefix(64 << 24 | 2 << 16 | 1, 32),
    )
    elsewhere = Prefix(65 << 24 | 1, 32)
    candidates = [(all_others, (C,)), (hosts, (A,)), (own, (B,)), (elsewhere, (A,))]
    node = LiveRoutes(Neighbourhood(0, {0: [1, 2], 1: [3]}, incarnation=5), candidates)
    node.start(0.0)
    first = [action for action in say(node, C, 1) if isinstance(action, SetRoute)]
    assert {action.prefix: action.unless_set for action in first} == {
        own: True,
        hosts: True,
        all_others: False,
    }
    assert first[-1].prefix == all_others
    assert routes(first) == {own: (), hosts: (), all_others: (C,)}
    assert routes(say(node, B, 1)) == {own: (B,)}, "what is known to be unset is not said again"


def test_a_port_that_loses_two_neighbours_sets_a_route_once():
    node = LiveRoutes(Neighbourhood(0, {0: [1, 2]}, incarnation=5), [(FAR, (A, B))])
    node.start(0.0)
    say(node, A, 1)
    say(node, B, 1)
    assert [
        action for action in node.link_changed(0, False, 0.02) if isinstance(action, SetRoute)
    ] == [SetRoute(FAR, ())]


def test_converged_when_all_are_up_and_every_hop_lives(node):
    node.start(0.0)
    for hop in (A, B, C):
        assert not node.converged()
        say(node, hop, 1)
    assert node.converged()
    node.link_changed(2, False, 0.02)
    assert not node.converged()
    assert node.status()["routes_lost"] == ["10.0.0.7/32"]
    assert node.status()["routes"] == 2


def test_what_is_said_again_costs_nothing_and_neither_do_other_schemes_messages(node):
    node.start(0.0)
    say(node, A, 1)
    assert say(node, A, 2) is UNCHANGED
    for port in (0, 2, 9):
        for payload in (b"\x77\x01\xff", wire.encode(wire.Summary(1, 0, 0, 9, ()))):
            assert node.receive(payload, port, 0.02) is NOTHING
        for payload in (b"", b"\0" * 40):
            with pytest.raises(wire.MalformedMessage):
                node.receive(payload, port, 0.02)


def test_it_says_hello_only_where_there_are_daemons(node):
    assert [action.port for action in node.start(0.0) if isinstance(action, Send)] == [0, 1]
    assert node.deadline == pytest.approx(0.030)
    assert [action.port for action in node.tick(node.deadline) if isinstance(action, Send)] == [
        0,
        1,
    ]
