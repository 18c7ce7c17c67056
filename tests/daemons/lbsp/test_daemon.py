"""LBSP's daemons in whole fat-trees: found, told, avoided, mended; alone where a fat-tree would say
too little."""

import random

import pytest

from tests.daemons.lbsp.lbsp_fate import Fate, unreached_pairs
from weft.daemons.control.hello import Neighbourhood
from weft.daemons.control.scoped_flooding import Notice
from weft.daemons.core import wire
from weft.daemons.core.actions import NOTHING, Hop, Note, Send, SetQueueState, SetRoute
from weft.daemons.core.contract import LinkDegraded, QueuesCall
from weft.daemons.core.node_config import routers
from weft.daemons.core.registry import configure
from weft.daemons.lbsp import messages
from weft.daemons.lbsp import routing as lbsp
from weft.daemons.lbsp.daemon import Lbsp
from weft.daemons.lbsp.messages import Crowding, Failures, LinkFailure
from weft.daemons.lbsp.routing import AGGREGATION, EDGE, LbspShape, SwitchPosition
from weft.daemons.simulator.node import SimulatedQueueStates
from weft.daemons.simulator.simulator import Simulator
from weft.daemons.simulator.wires import Wire
from weft.topologies import build
from weft.topologies.core.address import Prefix, covering

FOUR, EIGHT = build("fattree:k=4"), build("fattree:k=8")
SHAPE = LbspShape(4, 2, 2)


def converge(topology=FOUR, spec="lbsp", **more):
    simulator = Simulator(topology, spec, **more)
    simulator.run_until_converged()
    return simulator


def node(name, topology=FOUR):
    return topology.naming.node(name)


def known_failures(simulator, name):
    return [
        failure["link"] for failure in simulator.status(node(name, simulator.topology))["failures"]
    ]


def failures_known(simulator):
    return {
        name
        for switch in routers(simulator.topology)
        if known_failures(simulator, name := simulator.topology.naming.name(switch))
    }


def expected_routes(topology, switch, *dead):
    """The routes that the pure function gives."""
    shape = LbspShape.of(topology.naming.layout.radices)
    links = [shape.link(*topology.links[topology.link(name)][[0, 2]].tolist()) for name in dead]
    return {
        prefix: route.ports
        for prefix, route in lbsp.table(shape, shape.position(switch), links).items()
    }


def ports(simulator, switch):
    """The routes of a switch as ports, those of its hosts left out."""
    return {
        prefix: tuple(hop.port for hop in hops)
        for prefix, hops in simulator.routes(switch).items()
        if prefix.length < 32
    }


@pytest.mark.parametrize("topology", [FOUR, EIGHT])
def test_all_are_reached_and_the_routes_are_the_tables(topology):
    simulator = converge(topology)
    assert not unreached_pairs(simulator, set(), set())
    for switch in routers(topology):
        table = expected_routes(topology, switch)
        assert ports(simulator, switch) == table
        status = simulator.status(switch)
        assert (status["routes"], status["routes_lost"]) == (sum(map(bool, table.values())), [])


@pytest.mark.parametrize("link", ["e1.0-a1.1", "a1.1-c3"])
@pytest.mark.parametrize("silent", [False, True])
def test_a_failure_is_told_to_all_whom_it_concerns_and_avoided_and_mended(link, silent):
    simulator = converge()
    simulator.run_for(0.1)
    simulator.fail(FOUR.link(link), silent=silent)
    simulator.run_for(0.100 if silent else 0.002)
    for switch in routers(FOUR):
        if FOUR.naming.tier(switch) < 3:
            if FOUR.naming.tier(switch) == 1:
                assert known_failures(simulator, FOUR.naming.name(switch)) == [link]
            table = expected_routes(FOUR, switch, link)
            assert {prefix: ports(simulator, switch)[prefix] for prefix in table} == table
    assert not unreached_pairs(simulator, {FOUR.link(link)}, set())
    simulator.restore(FOUR.link(link))
    simulator.run_until_converged(within_s=0.2)
    assert not failures_known(simulator)
    for switch in routers(FOUR):
        for prefix, held in ports(simulator, switch).items():
            assert (
                held
                == expected_routes(FOUR, switch)[covering(prefix, expected_routes(FOUR, switch))]
            )


def test_in_the_end_only_hellos_are_sent():
    simulator = converge()
    simulator.run_for(0.5)
    before = simulator.counters["messages"]
    simulator.run_for(3.0)
    assert simulator.counters["messages"] - before == pytest.approx(64 * 100, abs=70)


@pytest.mark.parametrize(("link", "count"), [("e1.0-a1.1", 77), ("a1.1-c5", 189)])
def test_a_failure_is_told_to_those_whom_it_may_concern_and_not_to_all(link, count):
    """Said three times; at k = 8 flooding over three hops would take 230 messages each time."""
    simulator = converge(EIGHT)
    simulator.run_for(0.1)

    def notice_count():
        hellos = sum(simulator.status(switch)["hellos_sent"] for switch in routers(EIGHT))
        return simulator.counters["messages"] - hellos

    before = notice_count()
    simulator.fail(EIGHT.link(link))
    simulator.run_for(0.5)
    assert notice_count() - before == 3 * count
    assert not unreached_pairs(simulator, {EIGHT.link(link)}, set())


def test_what_failed_is_said_again_before_it_is_forgotten():
    simulator = converge(spec="lbsp:lifetime_ms=300")
    simulator.fail(FOUR.link("e1.0-a1.1"))
    for _ in range(20):
        simulator.run_for(0.1)
        assert known_failures(simulator, "e3.1") == ["e1.0-a1.1"]


def test_what_a_switch_without_power_said_is_forgotten():
    simulator = converge(spec="lbsp:lifetime_ms=300")
    simulator.fail(FOUR.link("a1.1-c3"))
    simulator.run_for(0.1)
    simulator.kill(node("c3"))
    simulator.kill(node("a1.1"))
    simulator.run_for(1.0)
    assert "a1.1-c3" not in known_failures(simulator, "e3.1")
    assert not unreached_pairs(simulator, {FOUR.link("a1.1-c3")}, {node("c3"), node("a1.1")})


def test_a_switch_that_starts_again_is_told_what_failed():
    simulator = converge()
    simulator.fail(FOUR.link("e1.0-a1.1"))
    simulator.run_for(0.5)
    simulator.restart(node("e3.1"))
    simulator.run_for(0.02)
    assert known_failures(simulator, "e3.1") == ["e1.0-a1.1"]


def one_by_one(topology, within_s):
    """Start times of the switches, spread over `within_s`."""
    switches = range(topology.servers, topology.nodes)
    return {node: within_s * at / len(switches) for at, node in enumerate(switches)}


def test_a_switch_that_starts_sets_no_routes_before_its_neighbours_had_time_to_answer():
    simulator = Simulator(FOUR, "lbsp", starts_s=one_by_one(FOUR, 0.0))
    simulator.fail(FOUR.link("e0.0-a0.0"), silent=True)
    simulator.run_until(0.100)
    assert not ports(simulator, node("e0.0"))
    assert known_failures(simulator, "e3.0") == []
    simulator.run_until(0.200)
    assert ports(simulator, node("e0.0")) == expected_routes(FOUR, node("e0.0"), "e0.0-a0.0")
    assert known_failures(simulator, "e3.0") == []
    simulator.run_until(1.010)
    assert known_failures(simulator, "e3.0") == ["e0.0-a0.0"]


def test_a_network_that_begins_switch_after_switch_is_not_flooded():
    simulator = Simulator(EIGHT, "lbsp", starts_s=one_by_one(EIGHT, 0.6))
    simulator.run_until_converged(within_s=2.0, every_s=0.05)
    hellos = sum(simulator.status(switch)["hellos_sent"] for switch in routers(EIGHT))
    assert simulator.counters["messages"] == hellos


def test_a_lost_message_is_made_good_within_a_few_hellos():
    simulator = converge(
        wire=Wire(loss_fraction=0.2), random=random.Random(5), spec="lbsp:hello_ms=30,dead=12"
    )
    simulator.fail(FOUR.link("a1.1-c3"))
    simulator.run_for(0.100)
    assert all(
        known_failures(simulator, name) == ["a1.1-c3"]
        for name in ("a0.1", "a2.1", "a3.1", "e0.0", "e2.1")
    )


def test_degraded_links_are_avoided_while_others_are_left():
    simulator = converge()
    edge, link = node("e1.0"), FOUR.link("e1.0-a1.1")
    port = next(port for port, _, _, at in FOUR.ports(edge) if at == link)
    simulator.tell(edge, LinkDegraded(port, True))
    simulator.run_for(0.010)
    assert simulator.status(node("e3.0"))["failures"] == [
        {"link": "e1.0-a1.1", "type": 1, "degraded": True}
    ]
    assert not unreached_pairs(simulator, {link}, set())
    simulator.fail(FOUR.link("e1.0-a1.0"))
    simulator.run_for(0.010)
    assert not unreached_pairs(simulator, {FOUR.link("e1.0-a1.0")}, set())
    simulator.tell(edge, LinkDegraded(port, False))
    simulator.restore(FOUR.link("e1.0-a1.0"))
    simulator.run_until_converged(within_s=0.2)


def test_a_destination_without_a_whole_group_is_told():
    simulator, notes = converge(EIGHT), []
    simulator.on_action = lambda now, at, action: (
        notes.append((EIGHT.naming.name(at), action.text)) if isinstance(action, Note) else None
    )
    for name in ("e1.0-a1.1", "e1.0-a1.0"):
        simulator.fail(EIGHT.link(name))
    simulator.run_for(0.5)
    assert (
        "e3.0",
        "10.1.0.0/24: no link group is intact; its packets take all ports that lead there",
    ) in notes
    assert simulator.status(node("e3.0", EIGHT))["asymmetric"] == ["10.1.0.0/24"]
    simulator.restore(EIGHT.link("e1.0-a1.1"))
    simulator.run_for(0.5)
    assert ("e3.0", "10.1.0.0/24: a link group is intact again") in notes


@pytest.mark.parametrize(("topology", "rounds"), [(FOUR, 12), (EIGHT, 1)])
@pytest.mark.slow
def test_after_whatever_happened_all_that_are_connected_reach_each_other(topology, rounds, times):
    """Also 10,000 --times; a network of its own for each 20 sequences keeps them apart."""
    for number in range(times or rounds):
        if number % 20 == 0:
            fate = Fate(topology, seed=1 + number)
        fate.strike(8)
        fate.settle()
        assert not fate.unreached()


def test_the_hosts_of_an_edge_switch_follow_their_carrier():
    machine = alone("e0.0")
    host = Prefix(10 << 24 | 1, 32)
    assert SetRoute(host, (Hop(1, 1),)) in machine.start(0.0)
    assert machine.link_changed(1, False, 0.1) == [SetRoute(host, ())]
    assert machine.link_changed(1, False, 0.1) is NOTHING
    assert machine.link_changed(1, True, 0.2) == [SetRoute(host, (Hop(1, 1),))]


def alone(name, states=False):
    """The machine of one switch, without neighbours that answer."""
    switch = node(name)
    view = configure(FOUR, "lbsp")[switch]
    return Lbsp(
        Neighbourhood(switch, dict(view.ports), incarnation=1),
        SHAPE,
        view.candidates,
        incarnation=1,
    )


def notice(origin, body, *, to, sender=None, hops=1, sequence=9):
    sender = node(origin) if sender is None else node(sender)
    return messages.encode(Notice(sender, node(to), node(origin), sequence, 1000, hops, body))


def port_to(name, other):
    return next(port for port, peer, _, _ in FOUR.ports(node(name)) if peer == node(other))


def test_aggregation_switches_that_choose_alike_change_state_together():
    """Section 5.1; at k = 8 a0.0 and a0.2 do, and a0.1 and a0.3."""
    shape = LbspShape(8, 4, 4)
    switch = EIGHT.naming.node("a0.0")
    view = configure(EIGHT, "lbsp")[switch]
    machine = Lbsp(Neighbourhood(switch, dict(view.ports), incarnation=1), shape, (), incarnation=1)
    machine.start(0.0)
    edge, port = shape.node(SwitchPosition(EDGE, 0, 0)), 0

    def hear(number, state, sequence):
        origin = shape.node(SwitchPosition(AGGREGATION, 0, number))
        payload = messages.encode(Notice(edge, switch, origin, sequence, 1000, 0, Crowding(state)))
        return list(machine.receive(payload, port, 0.1))

    assert hear(1, 1, 1) == []
    assert hear(2, 1, 1) == [SetQueueState(1)]
    assert hear(2, 1, 2) == []
    actions = machine.event(QueuesCall(2), 0.2)
    assert actions[0] == SetQueueState(0)
    assert [send.port for send in actions[1:]] == [0, 1, 2, 3]
    assert hear(2, 2, 3) == [SetQueueState(2)]
    assert [
        action for action in machine.event(QueuesCall(0), 0.3) if isinstance(action, SetQueueState)
    ] == []
    assert machine.status()["state"] == 2
    assert [action for action in machine.tick(1.09) if isinstance(action, SetQueueState)] == []
    # nobody has heard of a0.2 for as long as it may be believed
    assert SetQueueState(0) in machine.tick(1.2)


@pytest.mark.slow
def test_states_cross_the_edge_switches_of_a_pod_and_go_no_further():
    simulator = converge(EIGHT)
    switch = node("a0.0", EIGHT)

    def crowded_groups(state):
        simulator.tell(switch, QueuesCall(state))
        simulator.run_for(0.001)
        return {
            EIGHT.naming.name(router)
            for router in routers(EIGHT)
            if simulator.node(router).capability(SimulatedQueueStates).state == state
        }

    assert crowded_groups(1) == {"a0.0", "a0.2"}
    simulator.run_for(7.0)
    assert {
        simulator.node(node(name, EIGHT)).capability(SimulatedQueueStates).state
        for name in ("a0.0", "a0.2")
    } == {1}
    assert len(crowded_groups(0)) == 80


def test_an_edge_switch_takes_the_state_that_its_queues_call_for_and_passes_on_those_of_others():
    machine = alone("e0.0")
    machine.start(0.0)
    assert machine.event(QueuesCall(1), 0.1) == [SetQueueState(1)]
    assert machine.event(QueuesCall(1), 0.1) is NOTHING
    passed = machine.receive(notice("a0.0", Crowding(2), to="e0.0"), port_to("e0.0", "a0.0"), 0.2)
    assert [send.port for send in passed] == [port_to("e0.0", "a0.1")]
    assert machine.status()["state"] == 1


def test_core_switches_have_no_state():
    machine = alone("c0")
    machine.start(0.0)
    assert machine.event(QueuesCall(1), 0.1) is NOTHING


@pytest.mark.parametrize(
    "failure",
    [
        LinkFailure(0, False, Prefix(10 << 24 | 1 << 16, 24), node("e1.0")),  # of group 1, not 0
        LinkFailure(1, False, Prefix(10 << 24 | 1 << 16, 16), node("e1.0")),  # affects a /24
        LinkFailure(1, False, Prefix(10 << 24 | 2 << 16, 24), node("e2.0")),  # no such link
        LinkFailure(1, False, Prefix(10 << 24, 32), 0),  # a host
    ],
)
def test_what_contradicts_the_topology_is_not_believed(failure):
    machine = alone("e0.0")
    machine.start(0.0)
    right = LinkFailure(1, False, Prefix(10 << 24 | 1 << 16, 24), node("e1.0"))
    port = port_to("e0.0", "a0.1")
    said = notice("a1.1", Failures((failure,)), to="e0.0", sender="a0.1")
    assert machine.receive(said, port, 0.1) is NOTHING
    assert machine.status()["contradictions"] == 1
    said = notice("a1.1", Failures((right,)), to="e0.0", sender="a0.1")
    assert [send.port for send in machine.receive(said, port, 0.1)] == [port_to("e0.0", "a0.0")]
    assert [
        each["link"] for each in machine.status()["failures"] if each["link"] == "e1.0-a1.1"
    ] == ["e1.0-a1.1"]


def test_garbage_is_told_and_other_schemes_messages_are_not_ours():
    machine = alone("e0.0")
    machine.start(0.0)
    with pytest.raises(wire.MalformedMessage):
        machine.receive(b"junk", 2, 0.1)
    assert machine.receive(wire.encode(wire.LinkStates(node("a0.0"), ())), 2, 0.1) is NOTHING


def test_a_port_that_leads_to_a_host_cannot_be_degraded():
    machine = alone("e0.0")
    with pytest.raises(ValueError, match="leads to no other switch"):
        machine.event(LinkDegraded(0, True), 0.0)
    assert machine.event(LinkDegraded(2, False), 0.0) is NOTHING
    assert isinstance(machine.event(LinkDegraded(2, True), 0.0)[0], Note)


@pytest.mark.parametrize("spec", ["clos:n=2,r=2,m=4", "fattree:n=2,d=4", "fattree:k=6"])
def test_other_networks_are_refused(spec):
    with pytest.raises(ValueError, match="fat-tree"):
        configure(build(spec), "lbsp")


def test_messages_say_who_they_are_for():
    machine = alone("a0.0")
    machine.start(0.0)
    machine.event(QueuesCall(1), 0.1)
    sends = [action for action in machine.event(QueuesCall(2), 0.1) if isinstance(action, Send)]
    assert {messages.decode(send.payload).target for send in sends} == {node("e0.0"), node("e0.1")}
