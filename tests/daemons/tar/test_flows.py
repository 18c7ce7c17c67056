import random
from math import inf

from weft.daemons.core.actions import FiveTuple, Hop
from weft.daemons.tar.flows import ATTEMPTS, FlowState, FlowStates, OwnFlows, TarSettings

CAPACITY = 1000


def flow(number):
    return FiveTuple(1, 2, 17, number)


def recount(known, virtual, loads, asked, gain, now):
    """Return FlowStates.available(), computed anew from all of `known` and `virtual`."""
    out = [[state for state in known.values() if state.hop.port == port] for port in (0, 1)]
    mean = (loads[0] + loads[1]) // max(1, len(known))
    left = [loads[0] + mean * sum(t > now and its != asked for its, t in virtual.items()), loads[1]]
    if own := known.get(asked):
        left[own.hop.port] -= loads[own.hop.port] // len(out[own.hop.port])
    return max(1, CAPACITY - left[0] - gain), max(1, CAPACITY - left[1])


def test_what_is_available_is_what_real_and_virtual_flows_leave():
    draw, states, known, virtual = (
        random.Random(1),
        FlowStates(capacity_kbps=CAPACITY, gain_kbps=50),
        {},
        {},
    )
    for now in range(3000):
        probed_flow = flow(draw.randrange(30))
        act = draw.random()
        if act < 0.2:
            virtual[probed_flow] = now + draw.randrange(1, 60)
            states.bypassed(probed_flow, virtual[probed_flow])
        elif act < 0.3:
            virtual.pop(probed_flow, None)
            states.passed(probed_flow)
        elif probed_flow in known and act < 0.6:
            states.forget(probed_flow)
            del known[probed_flow]
        else:
            hop = Hop(draw.randrange(2), draw.randrange(3))
            new = FlowState((0, 1), 0, 1, hop, draw.random())
            changed = probed_flow not in known or known[probed_flow].hop != hop
            assert states.put(probed_flow, new) == changed
            known[probed_flow] = new
        states.loads = {0: draw.randrange(900), 1: draw.randrange(900)}
        asked = flow(draw.randrange(40))
        assert len(states) == len(known)
        assert states.get(asked) == known.get(asked)
        assert states.virtual(now) == sum(expires_s > now for expires_s in virtual.values())
        assert states.available(asked, {0, 1}, now) == recount(
            known, virtual, states.loads, asked, 50, now
        )
        assert dict(states.by([Hop(0, 1)])) == {
            its: state for its, state in known.items() if state.hop == Hop(0, 1)
        }


def test_a_dead_link_has_nothing_left():
    states = FlowStates(capacity_kbps=CAPACITY, gain_kbps=50)
    assert states.available(flow(0), {0, 1}, 0.0) == (950, 1000)
    assert states.available(flow(0), {1}, 0.0) == (0, 1000)
    assert states.available(flow(0), {0}, 0.0) == (950, 0)


def test_a_flow_expires_when_its_newest_state_does():
    states = FlowStates(capacity_kbps=CAPACITY, gain_kbps=0)
    assert states.deadline == inf
    for expires_s in (1.0, 3.0):
        states.put(flow(0), FlowState((0, 1), 0, 1, Hop(0, 1), expires_s))
    assert list(states.expired(2.0)) == []
    assert states.deadline == 3.0
    assert list(states.expired(3.0)) == [flow(0)]


def test_a_flow_without_a_path_tries_every_draw_at_once_and_then_rests_for_a_refresh():
    rates = {"refreshes_per_s": 1000, "probes_per_s": 1000}
    times = {"refresh_s": 1.0, "refreshes": 3, "probe_s": 0.1, "idle_s": 100.0}
    own_flows = OwnFlows(
        TarSettings(relay=0, capacity_kbps=CAPACITY, gain_kbps=50, **rates, **times), token=0
    )
    own_flows.add(flow(1), 2, 0.0)
    tried = []
    for millisecond in range(2_400):
        now = millisecond / 1000
        if (due := own_flows.next(now)) is None:
            continue
        own = own_flows.get(due)
        own_flows.used(due, own, now)
        own_flows.ask(due, own, now)
        tried.append((own.attempt, int(now)))
        own_flows.failed(due, own, now)
    assert tried == [(attempt, second) for second in range(3) for attempt in range(ATTEMPTS)]
