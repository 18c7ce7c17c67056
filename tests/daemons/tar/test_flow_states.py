import random
from math import inf

from daemons.core.contract import Flow, Hop
from daemons.tar.flow_states import State, States

CAPACITY = 1000


def flow(number):
    return Flow(1, 2, 17, number)


def recounted(known, loads, asked, gain):
    """What States.available() says, worked out anew from all of `known`."""
    out = [[each for each in known.values() if each.hop.port == port] for port in (0, 1)]
    share = [loads[port] // max(1, len(out[port])) for port in (0, 1)]
    load = loads[0] + share[1] * sum(each.virtual for each in known.values())
    load_link = loads[1]
    if own := known.get(asked):
        load -= share[0] if own.hop.port == 0 else share[1] * own.virtual
        load_link -= share[1] if own.hop.port == 1 else 0
    return max(1, CAPACITY - load - gain), max(1, CAPACITY - load_link)


def test_the_books_are_those_of_the_flows_that_are_there():
    draw, states, known = random.Random(1), States(capacity_kbps=CAPACITY, gain_kbps=50), {}
    for _ in range(2000):
        one = flow(draw.randrange(30))
        if one in known and draw.random() < 0.4:
            states.forget(one)
            del known[one]
        else:
            port = draw.randrange(2)
            hop = Hop(port, draw.randrange(3))
            new = State((0, 1), 0, 1, hop, port == 1 and draw.random() < 0.5, draw.random())
            changed = one not in known or known[one].hop != hop
            assert states.put(one, new) == changed
            known[one] = new
        states.loads = {0: draw.randrange(900), 1: draw.randrange(900)}
        asked = flow(draw.randrange(40))
        assert len(states) == len(known)
        assert states.get(asked) == known.get(asked)
        assert states.available(asked, {0, 1}) == recounted(known, states.loads, asked, 50)
        assert dict(states.by([Hop(0, 1)])) == {its: each for its, each in known.items() if each.hop == Hop(0, 1)}


def test_a_dead_link_has_nothing_left():
    states = States(capacity_kbps=CAPACITY, gain_kbps=50)
    assert states.available(flow(0), {0, 1}) == (950, 1000)
    assert states.available(flow(0), {1}) == (0, 1000)
    assert states.available(flow(0), {0}) == (950, 0)


def test_a_flow_expires_when_its_newest_state_does():
    states = States(capacity_kbps=CAPACITY, gain_kbps=0)
    assert states.deadline == inf
    for expires_s in (1.0, 3.0):
        states.put(flow(0), State((0, 1), 0, 1, Hop(0, 1), False, expires_s))
    assert list(states.expired(2.0)) == []
    assert states.deadline == 3.0
    assert list(states.expired(3.0)) == [flow(0)]
