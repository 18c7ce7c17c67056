"""TAR's daemons: flows go where the pure function, asked at every server, would send them."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from tests.daemons.simulator.trouble import befall
from weft.daemons.core import wire
from weft.daemons.core.actions import NOTHING, FiveTuple, SetFlowRewrite
from weft.daemons.core.contract import FlowInUse, Measured
from weft.daemons.core.registry import configure
from weft.daemons.core.registry import machine as make_machine
from weft.daemons.routing import dr
from weft.daemons.routing.shortest import dead_channels
from weft.daemons.simulator.node import FlowRewrites
from weft.daemons.simulator.packet_walk import ICMP
from weft.daemons.simulator.simulator import Simulator
from weft.daemons.simulator.wires import Wire
from weft.daemons.tar import messages
from weft.daemons.tar import routing as tar
from weft.daemons.tar.flows import ATTEMPTS, LEAST_RTO_S
from weft.topologies import build
from weft.topologies.core.failures import fail_links

FICONN = build("ficonn:n=4,k=2")
ADDRESS = FICONN.naming.address
NETWORK = FICONN.naming.network
ITS_OWN = (1, NETWORK.peer(1, 2))  # by the source's own level-2 link


def running(options="idle_s=100", **given):
    simulator = Simulator(FICONN, f"tar:{options}", **given)
    simulator.run_until(0.3)
    return simulator


def sample(count, seed=1):
    draw = random.Random(seed)
    return [tuple(draw.sample(range(FICONN.servers), 2)) for _ in range(count)]


def use(simulator, pairs, for_s):
    """Let every pair send now and then."""
    for _ in range(round(for_s / 0.1)):
        for pair in pairs:
            simulator.send(*pair)
        simulator.run_for(0.1)


def arriving_paths(links, src, dst):
    """The paths of all attempts that arrive, with `links` dead."""
    down = dead_channels(fail_links(FICONN, list(links)), NETWORK)
    flow = tar.flow_hash(ADDRESS(src), ADDRESS(dst), ICMP, 0)
    tried = [
        tar.route(NETWORK.rule, NETWORK.t, down, src, dst, flow=flow, attempt=attempt)
        for attempt in range(ATTEMPTS)
    ]
    return [tuple(path) for path, arrives in tried if arrives]


def wrong(simulator, links, pairs):
    walks = [(simulator.walk(*pair), arriving_paths(links, *pair)) for pair in pairs]
    return [
        (walk, paths)
        for walk, paths in walks
        if (walk.path not in paths if paths else not walk.lost)
    ]


def the_flow(simulator, src, dst):
    (flow_row,) = [
        flow for flow in simulator.status(src)["flows"] if flow["destination"] == f"h{dst}"
    ]
    return flow_row


def test_without_failures_every_flow_goes_by_tor_and_every_server_on_it_knows_it():
    simulator, pairs = running(), sample(100)
    use(simulator, pairs, 0.1)
    for src, dst in pairs:
        route = dr.route(NETWORK.rule, NETWORK.t, src, dst)
        assert simulator.walk(src, dst).path == tuple(route)
        assert the_flow(simulator, src, dst)["path"] == [f"h{node}" for node in route]
    hops = sum(len(simulator.walk(*pair).path) - 1 for pair in set(pairs))
    assert sum(simulator.status(server)["states"] for server in range(FICONN.servers)) == hops


# With 3 and 7, some flows' first attempts fail and later ones do not.
@pytest.mark.parametrize("seed", [0, 3, 7])
@pytest.mark.slow
def test_with_a_tenth_of_the_links_dead_no_flow_is_lost_that_a_probe_can_set_up(seed):
    simulator, pairs = running(), sample(60, seed)
    use(simulator, pairs, 0.1)
    dead = random.Random(seed).sample(range(len(FICONN.links)), len(FICONN.links) // 10)
    for link in dead:
        simulator.fail(link, silent=link % 2 == 0)
    use(simulator, pairs, 3.0)
    assert not wrong(simulator, dead, pairs)
    for link in dead:
        simulator.restore(link)
    use(simulator, pairs, 3.0)
    assert not wrong(simulator, [], pairs)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.slow
def test_after_random_failures_lost_messages_and_restarts_no_flow_stays_lost_or_goes_in_circles(
    seed,
):
    draw = random.Random(seed)
    simulator = running(
        "idle_s=100,refresh_ms=300", wire=Wire(loss_fraction=0.005, jitter_s=0.001), random=draw
    )
    pairs, dead = sample(40, seed), set()
    for _ in range(10):
        befall(simulator, draw, dead)
        use(simulator, pairs, draw.choice([0.1, 0.2]))
    # a hello may be lost three times in a row: look until a moment without that
    for _ in range(12):
        use(simulator, pairs, 1.0)
        if not (lost := wrong(simulator, dead, pairs)):
            break
    assert not lost


def load_pair(pair, filling=0):
    """A network in which `pair` is in use, also by so many other flows, its path, and the first
    server there that leaves its switch."""
    simulator = running("refresh_ms=200,refreshes_per_s=1000,probes_per_s=1000,idle_s=100")
    src, dst = pair
    for port in range(filling):
        flow = FiveTuple(ADDRESS(src), ADDRESS(dst), 17, port)
        simulator.tell(src, FlowInUse(flow))
    use(simulator, [pair], 0.2)
    path = simulator.walk(*pair).path
    return simulator, path, next(a for a, b in pairwise(path) if a // 4 != b // 4)


def follow(simulator, flow, src, dst):
    """The servers that packets of `flow` visit as states are now, at most 50."""
    path = [src]
    while path[-1] != dst and len(path) < 50:
        octet = simulator.node(path[-1]).capability(FlowRewrites).values.get(flow)
        octets = simulator.protocol(path[-1])._octets
        onward = [node for node, its in octets.items() if its == octet]
        path += onward or [dr.next_hop(NETWORK.rule, NETWORK.t, path[-1], dst)]
    return path


@pytest.mark.slow
def test_flows_leave_a_link_until_it_is_as_busy_as_the_other_and_none_goes_in_circles_meanwhile():
    """States are set from the destination on: whatever packets meet, old states or new ones, leads
    there."""
    simulator, path, leaving = load_pair(ITS_OWN, filling=20)
    server, most = simulator.protocol(leaving), 0

    def hop_count(port):
        states = [server._states.get(flow) for flow, _ in server._own.items()]
        return sum(state is not None and state.hop.port == port for state in states)

    for _ in range(4000):
        server.event(Measured({port: 45_000 * hop_count(port) for port in (0, 1)}), simulator.now)
        simulator.run_for(0.0005)
        for flow, _ in list(server._own.items()):
            taken = follow(simulator, flow, *ITS_OWN)
            assert taken[-1] == ITS_OWN[1]
            most = max(most, len(taken))
    assert most > len(path)
    assert abs(hop_count(0) - hop_count(1)) <= 2
    for _ in range(1000):
        server.event(Measured({0: 0, 1: 0}), simulator.now)
        simulator.run_for(0.0005)
    assert hop_count(0) == 0


def test_its_own_traffic_does_not_drive_a_flow_away():
    simulator, path, leaving = load_pair(ITS_OWN)
    simulator.protocol(leaving).event(Measured({0: 0, 1: 900_000}), simulator.now)
    use(simulator, [ITS_OWN], 1.0)
    assert simulator.walk(*ITS_OWN).path == path


def test_a_server_bypasses_flows_from_its_switch_until_real_and_virtual_ones_are_as_many():
    """Its level-0 link stays idle all the while: flows that it bypassed do not come to it any
    more."""
    simulator, path, leaving = load_pair((1, 40), filling=20)
    assert leaving == path[1]
    server, flows = simulator.protocol(leaving), 21
    for _ in range(4000):
        real = len(server._states)
        server.event(Measured({0: 0, 1: 45_000 * real}), simulator.now)
        simulator.run_for(0.0005)
    assert real + server._states.virtual(simulator.now) == flows
    assert abs(2 * real - flows) <= 3
    assert simulator.status(leaving)["bypasses"] > 0


def test_a_bypassed_flow_goes_on_from_the_server_before_and_no_server_has_a_state_that_is_not_on_its_path():  # noqa: E501
    simulator, path, leaving = load_pair((1, 40))
    simulator.protocol(leaving).event(Measured({0: 0, 1: 900_000}), simulator.now)
    flow = FiveTuple(ADDRESS(1), ADDRESS(40), 17, 7)
    simulator.tell(1, FlowInUse(flow))
    simulator.run_for(0.1)
    taken = follow(simulator, flow, 1, 40)
    assert taken[0] == 1
    assert leaving not in taken
    assert taken[-1] == 40
    assert [
        server for server in range(48) if simulator.protocol(server)._states.get(flow)
    ] == sorted(taken[:-1])
    # a flow that was there before has no reason to leave: it is alone
    assert simulator.walk(1, 40).path == path


@pytest.mark.parametrize("dead", [0, 1, 3])
def test_a_server_without_power_is_avoided_in_both_directions(dead):
    """Also where it was entered through its switch: the server before it takes its place."""
    simulator = running("idle_s=100,refresh_ms=300")
    through = [
        (src, dst)
        for src in range(FICONN.servers)
        for dst in range(FICONN.servers)
        if src != dst and dead in dr.route(NETWORK.rule, NETWORK.t, src, dst)[1:-1]
    ]
    through = random.Random(1).sample(through, min(len(through), 40))
    use(simulator, through, 0.2)
    simulator.kill(dead)
    use(simulator, through, 3.0)
    assert not [(pair, walk) for pair in through if (walk := simulator.walk(*pair)).lost]


def test_small_differences_do_not_count():
    simulator, path, leaving = load_pair(ITS_OWN, filling=20)
    simulator.protocol(leaving).event(Measured({0: 0, 1: 40_000}), simulator.now)
    use(simulator, [ITS_OWN], 0.6)
    assert simulator.walk(*ITS_OWN).path == path


def test_states_are_forgotten_when_nobody_uses_them():
    simulator = running("idle_s=1,refresh_ms=200")
    use(simulator, [ITS_OWN], 0.2)
    assert sum(simulator.status(server)["states"] for server in range(48)) > 0
    simulator.run_for(3.0)
    assert sum(simulator.status(server)["states"] for server in range(48)) == 0
    assert simulator.status(1)["flows"] == []


def test_a_flow_that_comes_back_before_its_states_are_forgotten_is_answered_at_once():
    simulator = running("idle_s=1,refresh_ms=200,refreshes=100")
    use(simulator, [(1, 40)], 0.2)
    simulator.run_for(2.0)
    assert simulator.status(1)["flows"] == []
    use(simulator, [(1, 40)], 0.1)
    assert the_flow(simulator, 1, 40)["path"]


def probe_ports(simulator, server, for_s, every_s=0.001):
    """The ports of the flows that `server` asks about meanwhile, in order."""
    asked, own = [], simulator.protocol(server)._own._own
    tokens = {flow: own_flow.token for flow, own_flow in own.items()}
    for _ in range(round(for_s / every_s)):
        simulator.run_for(every_s)
        for flow, own_flow in own.items():
            if own_flow.token != tokens.get(flow):
                asked.append(flow.ports)
                tokens[flow] = own_flow.token
    return asked


def using(simulator, src, dst, ports):
    """The daemon of `src` learns that flows with these ports go on to `dst`."""
    for port in ports:
        flow = FiveTuple(ADDRESS(src), ADDRESS(dst), 17, port)
        simulator.tell(src, FlowInUse(flow))


def test_the_status_tells_a_flow_by_its_protocol_and_both_ports():
    simulator = running()
    using(simulator, 1, 40, [40_000 << 16 | 53])
    flow_row = the_flow(simulator, 1, 40)
    assert (flow_row["protocol"], flow_row["ports"]) == (17, [40_000, 53])


@pytest.fixture
def crowd():
    """A network in which (1, 40) has ten flows, of which those with even ports go on and went on
    last in this order: 8, 2, 6, 0, 4; and the link that they leave the first sub-network by."""
    simulator = running("refresh_ms=2000,refreshes_per_s=1000,probes_per_s=100,idle_s=20")
    using(simulator, 1, 40, range(10))
    simulator.run_for(4.0)
    for port in (8, 2, 6, 0, 4):
        using(simulator, 1, 40, [port])
        simulator.run_for(0.01)
    simulator.run_for(0.3)
    path = simulator.walk(1, 40).path
    return simulator, next(
        FICONN.link_between(a, b) for a, b in pairwise(path) if a // 16 != b // 16
    )


def test_a_source_asks_first_about_the_flow_that_was_used_last_and_not_about_those_that_rest(crowd):
    simulator, link = crowd
    simulator.fail(link)
    assert probe_ports(simulator, 1, 0.1)[:5] == [4, 0, 6, 2, 8]
    assert not {1, 3, 5, 7, 9} & set(probe_ports(simulator, 1, 0.5))


def test_a_flow_that_rested_while_its_path_broke_is_asked_about_when_it_goes_on(crowd):
    simulator, link = crowd
    simulator.fail(link)
    simulator.run_for(1.0)
    flow = FiveTuple(ADDRESS(1), ADDRESS(40), 17, 5)
    assert simulator.protocol(1)._states.get(flow) is None
    using(simulator, 1, 40, [5])
    assert probe_ports(simulator, 1, 0.02)[0] == 5
    simulator.run_for(0.3)
    assert simulator.protocol(1)._states.get(flow)


@pytest.mark.slow
def test_a_flow_that_rests_keeps_its_path_for_as_long_as_it_may_come_back_and_no_longer():
    simulator = running("refresh_ms=200,refreshes_per_s=1000,refreshes=2,idle_s=12")
    using(simulator, 1, 40, [7])
    flow = FiveTuple(ADDRESS(1), ADDRESS(40), 17, 7)
    asked = probe_ports(simulator, 1, 11.5)
    assert simulator.protocol(1)._states.get(flow)
    assert len(asked) < 3 * 5 + 3  # those of the time in which it may have gone on, and a few more
    simulator.run_for(15.0)
    assert not [server for server in range(48) if simulator.protocol(server)._states.get(flow)]


@pytest.mark.slow
def test_many_paths_that_break_at_once_are_told_of_together():
    simulator = running("refresh_ms=2000,refreshes_per_s=1000,probes_per_s=1000,idle_s=100")
    using(simulator, 1, 40, range(200))
    simulator.run_for(8.0)  # no more is asked about them
    path = simulator.walk(1, 40).path
    link = next(FICONN.link_between(a, b) for a, b in pairwise(path) if a // 16 != b // 16)
    before = simulator.counters["messages"]
    simulator.run_for(0.03)
    quiet = simulator.counters["messages"] - before
    simulator.fail(link)
    simulator.run_for(0.03)
    message_count = simulator.counters["messages"] - before - 2 * quiet
    assert simulator.status(1)["breaks"] == 200
    assert message_count <= 3 * len(path) + 10
    assert simulator.protocol(1)._states.get(FiveTuple(ADDRESS(1), ADDRESS(40), 17, 0)) is None


def test_a_daemon_that_is_in_a_hurry_says_when_it_wants_to_be_called():
    machine = make_machine(configure(FICONN, "tar")[1], 1)
    machine.start(0.0)
    machine.event(FlowInUse(FiveTuple(ADDRESS(1), ADDRESS(40), 17, 0)), 0.001)
    assert machine.deadline == 0.001


def test_what_is_no_answer_or_no_question_is_garbage():
    machine = make_machine(configure(FICONN, "tar")[0], 1)
    machine.start(0.0)
    flow = FiveTuple(ADDRESS(1), ADDRESS(40), 17, 0)
    for verdict, marks, visited in [
        (wire.ASKING, (0, 0, 0), (1, 2)),
        (wire.ASKING, (0,), (1,)),
        (wire.ASKING, (0, 48, 0), (1,)),
        (wire.ASKING, (0, -3, 0), (1,)),
        (wire.ASKING, (0, 0, 0), (48, 1)),
        (wire.ASKING, (0, 0, 0), (*range(2, 20), 1)),
        (wire.CONNECTED, (), (1, 2)),
        (wire.CONNECTED, (), (1, 0, 47)),
        (wire.CONNECTED, (), (1, 0, 1)),
    ]:
        probe = messages.FlowProbe(1, 0, flow, 1, 0, 1000, verdict, marks, visited)
        with pytest.raises(wire.MalformedMessage):
            machine.receive(messages.encode(probe), 0, 0.1)
    nowhere = FiveTuple(ADDRESS(1), 10 << 24 | 0xFFFFFF, 17, 0)
    probe = messages.FlowProbe(1, 0, nowhere, 1, 0, 1000, wire.ASKING, (0, 0, 0), (1,))
    with pytest.raises(wire.MalformedMessage):
        machine.receive(messages.encode(probe), 0, 0.1)
    assert machine.event(FlowInUse(nowhere), 0.1) == NOTHING


def test_a_question_that_was_lost_with_its_path_is_not_waited_for():
    simulator = running("refresh_ms=100,refreshes_per_s=10,probe_ms=5000,idle_s=100")
    use(simulator, [(1, 40)], 0.2)
    path = simulator.walk(1, 40).path
    near, far = next((a, b) for a, b in pairwise(path) if a // 4 != b // 4 and a != 1)
    simulator.fail(FICONN.link_between(near, far), silent=True)
    use(simulator, [(1, 40)], 1.0)
    assert simulator.walk(1, 40).path in arriving_paths([FICONN.link_between(near, far)], 1, 40)


def test_a_message_that_got_lost_is_missed_by_what_answers_take_and_not_by_what_they_may_take():
    simulator = running("refresh_ms=100,refreshes_per_s=10,probe_ms=5000,idle_s=100")
    use(simulator, [ITS_OWN], 1.0)

    def does_rise(name, link=None):
        """Until that has gone up, `link` swallows everything."""
        before, end = simulator.status(1)[name], simulator.now + 0.15
        if link is not None:
            simulator.fail(link, silent=True)
        while simulator.status(1)[name] == before and simulator.now < end:
            simulator.run_for(0.001)
        if link is not None:
            simulator.restore(link)
        return simulator.now < end

    assert does_rise("answers")
    simulator.run_for(0.07)  # the next question leaves soon
    assert does_rise("probes_sent", FICONN.link(f"h{ITS_OWN[0]}-h{ITS_OWN[1]}"))
    began_s = simulator.now
    assert does_rise("answers")
    assert simulator.now - began_s < 2 * LEAST_RTO_S
    assert simulator.status(1)["timeouts"] == 1


def test_an_answer_that_comes_late_changes_nothing():
    machine, flow = running().protocol(0), FiveTuple(ADDRESS(2), ADDRESS(1), 17, 0)

    def answer(token, path):
        probe = messages.FlowProbe(1, 0, flow, token, 0, 1000, wire.CONNECTED, (), path)
        return [
            action
            for action in machine.receive(messages.encode(probe), 0, 0.4)
            if isinstance(action, SetFlowRewrite)
        ]

    assert answer(5, (2, 0, 1))
    assert machine.status()["states"] == 1
    assert not answer(4, (2, 0, 3))
    assert answer(6, (2, 0, 3))


def test_a_path_that_another_has_replaced_may_break():
    simulator = running("idle_s=100,refresh_ms=60000,refreshes_per_s=1000")
    use(simulator, [(1, 40)], 0.2)
    flow, between = FiveTuple(ADDRESS(1), ADDRESS(40), ICMP, 0), simulator.walk(1, 40).path[1]
    machine = simulator.protocol(between)
    state = machine._states.get(flow)
    for token, ends in ((state.token - 1, False), (state.token, True)):
        (message,) = messages.breaks(state.path[state.position + 1], between, [(flow, token)])
        actions = machine.receive(message, state.hop.port, simulator.now)
        assert [action for action in actions if isinstance(action, SetFlowRewrite)] == [
            SetFlowRewrite(flow, None)
        ] * ends
        assert (machine._states.get(flow) is None) == ends


def test_links_carry_what_they_are_shaped_to_unless_something_else_is_said():
    for spec, given, meant in [
        ("tar", {}, 10**6),
        ("tar", {"link_kbps": 5}, 5),
        ("tar:capacity_kbps=7", {}, 7),
    ]:
        assert {
            view.options["capacity_kbps"] for view in configure(FICONN, spec, **given).values()
        } == {meant}


@pytest.mark.parametrize("spec", ["dcell:n=4,k=1", "gqstar:n=2,k=2"])
def test_tar_is_for_ficonn(spec):
    with pytest.raises(ValueError, match=f"^scheme tar needs a ficonn, .*; {spec} is none$"):
        configure(build(spec), "tar")
