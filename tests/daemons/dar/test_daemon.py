"""DAR's daemons in whole Clos networks: who is asked, who answers, what is stale, what fails."""

import random

import numpy as np
import pytest

from tests.daemons.dar.dar_fabric import Fabric
from weft.daemons.core import wire
from weft.daemons.core.actions import FiveTuple, Send, SetFlowPort
from weft.daemons.core.contract import FlowsSeen, LinkDegraded, LongQueue, SeenFlow
from weft.daemons.core.registry import configure, scheme
from weft.daemons.dar import daemon
from weft.daemons.dar.daemon import Ear
from weft.daemons.simulator.flows import Packet
from weft.daemons.simulator.wires import Wire
from weft.topologies import build

SPEC = "clos:n=4,r=4,m=4"


def crowd(fabric, output=0, hosts=None):
    """One flow of each other leaf, each from the host of the same number, to hosts of leaf
    `output`: all come by spine 0, as the start has it."""
    n = fabric.n
    leaves = [leaf for leaf in range(fabric.r) if leaf != output]
    return [fabric.flows.begin(leaf * n, output * n + at) for at, leaf in enumerate(leaves)]


def test_flows_begin_where_figure_9_has_them_and_move_off_a_bad_link():
    fabric = Fabric(SPEC)
    flows = crowd(fabric)
    assert [fabric.spine_of(flow) for flow in flows] == [0, 0, 0]
    assert fabric.settle() > 0
    assert fabric.worst() == 2
    assert fabric.total("moves") == 1
    assert fabric.total("swaps") == 0


def test_leaves_look_once_a_period_in_phases_of_their_own_and_ask_while_a_link_is_bad():
    fabric = Fabric(SPEC, "period_us=50000")
    fabric.filter_ears(lambda node, ear: False)
    fabric.simulator.run_until(1.001)
    crowd(fabric)
    fabric.simulator.run_for(1.0)
    # at the look after a request it may have been answered
    assert fabric.total("ears", "sent") == 10
    assert fabric.total("moves") == 0
    looks = {
        tuple(config.needs) for config in configure(build(SPEC), "dar").values() if config.needs
    }
    assert len(looks) == 4  # spines do not look


def test_what_is_lost_is_made_good_two_periods_later():
    fabric = Fabric(SPEC)
    lost = []
    fabric.filter_ears(lambda node, ear: len(lost) >= 6 or lost.append(ear))
    crowd(fabric)
    assert 0.11 < fabric.settle() < 0.16
    assert len({ear.sequence for ear in lost}) == 6


def test_requests_go_by_way_of_spines_that_work():
    fabric = Fabric(SPEC)
    heard = []
    fabric.filter_ears(lambda node, ear: heard.append((node, ear)) or True)
    fabric.simulator.fail(fabric.link(0, 1))
    fabric.simulator.fail(fabric.link(2, 2))
    fabric.simulator.run_for(0.3)
    for _ in range(20):
        flows = crowd(fabric)
        fabric.settle()
        for flow in flows:
            fabric.flows.end(flow)
        fabric.simulator.run_for(0.1)
    asked = [ear for node, ear in heard if node == fabric.leaf(0)]
    by_leaf = {
        leaf: {ear.target for ear in asked if ear.leaf == fabric.leaf(leaf)} for leaf in (1, 2)
    }
    assert by_leaf[1] == {fabric.spine(0), fabric.spine(2), fabric.spine(3)}
    assert by_leaf[2] == {fabric.spine(0), fabric.spine(3)}
    assert fabric.total("ears", "heard") == len(asked) == fabric.total("ears", "passed_on")


def alone(options="", m=4):
    """The first leaf of a network by itself, its neighbours being up, and one of its flows on spine
    1."""
    fabric = Fabric(f"clos:n=4,r=4,m={m}", options)
    machine, now = fabric.simulator.protocol(fabric.leaf(0)), fabric.simulator.now
    address = fabric.topology.naming.address
    flow = FiveTuple(address(0), address(5), 6, 77)
    machine.event(FlowsSeen((SeenFlow(flow, 4 + 1, rested_s=1.0),)), now)
    ear = Ear(
        fabric.spine(3), fabric.leaf(0), fabric.leaf(1), fabric.leaf(0), 1, flow, fabric.spine(1), 3
    )
    return fabric, machine, flow, ear, now


def placed(actions):
    return [(action.flow, action.port) for action in actions if isinstance(action, SetFlowPort)]


def heard(machine, ear, now):
    """Return the actions on a request that came by the uplink to its sender, a spine.

    Ports 0 to 3 lead to hosts.
    """
    return machine.receive(daemon.encode(ear), 4 + ear.sender - (16 + 4), now)


def moved(machine, ear, now):
    """Return the actions on a request; if the present spine was drawn, ask again."""
    for sequence in range(ear.sequence, ear.sequence + 100):
        if found := placed(heard(machine, ear._replace(sequence=sequence), now)):
            return found
    return []


def test_a_request_moves_a_flow_that_is_where_it_was_and_has_rested():
    _, machine, flow, ear, now = alone()
    ((found, port),) = moved(machine, ear, now)
    assert (found, port) in [(flow, 4), (flow, 6), (flow, 7)]
    assert machine.status()["moves"] == 1


@pytest.mark.parametrize(
    "change",
    [
        {"spine": 16 + 4 + 2},  # it goes by another
        {"spine": 3},  # that is no spine
        {"flow": FiveTuple(1, 2, 6, 3)},
        {"target": 16 + 1},
        {"leaf": 16 + 1},
        {"origin": 16 + 2},  # the flow does not go there
        {"origin": 16 + 4 + 2},
    ],
)
def test_a_request_that_does_not_fit_has_no_effect(change):
    _, machine, _, ear, now = alone()
    assert not moved(machine, ear._replace(**change), now)
    assert machine.status()["moves"] == 0


def test_a_request_that_comes_twice_or_late_has_no_effect():
    _, machine, flow, ear, now = alone("cool=0")
    first = ear._replace(sequence=500)
    stale = machine.status()["ears"]["stale"]
    heard(machine, first, now)
    # wherever it went, it is back
    machine.event(FlowsSeen((SeenFlow(flow, 5, rested_s=1.0),)), now)
    for sequence in (500, 499, 1):
        assert not heard(machine, ear._replace(sequence=sequence), now + 1)
    assert machine.status()["ears"]["stale"] == stale + 3
    assert machine.status()["ears"]["heard"] == 4


def test_requests_of_different_switches_have_numbers_of_their_own():
    """A spine whose daemon has run for longer counts from a lower number, and is heard
    nevertheless."""
    fabric, machine, _, ear, now = alone("detect=queue,rest_us=0")
    of_spine = ear._replace(origin=fabric.spine(1), sender=fabric.spine(1), sequence=5 << 32)
    ((_, port),) = moved(machine, of_spine, now)
    there = fabric.spine(port - 4)
    older = ear._replace(origin=there, sender=there, spine=there, sequence=1 << 32)
    assert moved(machine, older, now + 0.01)


def test_requests_in_any_number_of_names_are_not_remembered():
    fabric, machine, flow, ear, now = alone("cool=1000")
    for origin in range(16 + 4 + 4):
        for spine in (1, 2):
            forged = ear._replace(origin=origin, spine=fabric.spine(spine), sequence=1)
            heard(machine, forged, now)
    assert len(machine._leaf.outgoing[flow].last_requests) <= 1 + 2


def test_a_forged_request_of_a_late_number_is_forgotten():
    fabric, machine, _, ear, now = alone("cool=0")
    heard(machine, ear._replace(spine=fabric.spine(2), sequence=(1 << 64) - 1), now)
    assert not moved(machine, ear, now + 9.9)
    assert moved(machine, ear, now + 10.1)


def test_a_flow_is_not_swapped_back_to_where_its_destination_is_not_reached():
    """Flows on spines 1 and 0; the link from spine 1 to where the second goes is dead."""
    fabric, machine, _, ear, _ = alone("p=1")
    first, second = seen(fabric, [1, 0])
    second = second._replace(
        flow=second.flow._replace(destination=fabric.topology.naming.address(12))
    )
    fabric.simulator.fail(fabric.link(3, 1))
    fabric.simulator.run_for(0.5)
    now, swaps = fabric.simulator.now, 0
    for sequence in range(1000, 1100):
        machine.event(FlowsSeen((first, second)), now)
        asked = ear._replace(flow=first.flow, sequence=sequence)
        found = dict(placed(heard(machine, asked, now)))
        assert found.get(second.flow) != 4 + 1
        swaps += second.flow in found
        machine.event(FlowsSeen(()), now)  # and both begin anew
    assert swaps == 0
    assert machine.status()["moves"] > 50


def test_a_flow_that_was_swapped_back_rests_as_one_that_was_moved():
    """All four uplinks have long queues and a flow each, so that every move is a swap."""
    fabric, machine, _, _, now = alone("p=1,detect=queue")
    swapped = 0
    for turn in range(20):
        flows = seen(fabric, [0, 1, 2, 3])
        machine.event(FlowsSeen(tuple(flows)), now + turn)
        ports = {entry.flow: entry.port for entry in flows}
        rests = set()
        for entry in flows:
            report = LongQueue(entry.flow, ports[entry.flow])
            moves = dict(placed(machine.event(report, now + turn)))
            assert not (moves and entry.flow in rests)  # though it may be swapped back
            rests |= moves.keys()
            ports |= moves
            swapped += len(moves) == 2
        machine.event(FlowsSeen(()), now + turn)  # and all begin anew
    assert swapped == machine.status()["moves"] == machine.status()["swaps"] > 20


def test_a_flow_rests_when_it_has_been_moved():
    fabric, machine, _, ear, now = alone("cool=3,period_us=10000")
    ((_, port),) = moved(machine, ear, now)
    asked = ear._replace(spine=fabric.spine(port - 4), sequence=1000)
    assert not moved(machine, asked, now + 0.0299)
    assert moved(machine, asked._replace(sequence=2000), now + 0.0301)


def test_a_new_daemon_knows_from_the_table_how_long_a_flow_has_rested():
    _, machine, flow, ear, now = alone("cool=3,period_us=10000")
    other = flow._replace(ports=78)
    machine.event(FlowsSeen((SeenFlow(other, 5, rested_s=0.02),)), now)
    assert not moved(machine, ear._replace(flow=other), now + 0.009)
    assert moved(machine, ear._replace(flow=other, sequence=2000), now + 0.011)


def seen(fabric, spines, rested_s=1.0):
    """Flows of leaf 0's hosts, one on each of these spines."""
    address = fabric.topology.naming.address
    return [
        SeenFlow(FiveTuple(address(at % 4), address(4 + at), 6, at), 4 + spine, rested_s=rested_s)
        for at, spine in enumerate(spines)
    ]


def test_a_flow_that_comes_to_a_full_uplink_changes_places_with_one_there():
    for sequence in range(40):
        fabric, machine, _, ear, now = alone("p=1")
        flows = seen(fabric, [1, 0, 2, 3])
        machine.event(FlowsSeen(tuple(flows)), now)
        found = placed(
            heard(machine, ear._replace(flow=flows[0].flow, sequence=10 + sequence), now)
        )
        if found:
            (first, port), (second, back) = found
            there = next(each.flow for each in flows if each.port == port)
            assert (first, second, back) == (flows[0].flow, there, 5)
            assert machine.status()["swaps"] == 1
            assert sorted(machine.status()["flows"]["up"].values()) == [1, 1, 1, 1]
            return
    pytest.fail("never drawn")


def of_destinations(fabric, ways, new=()):
    """Flows of leaf 0's hosts to hosts of leaf 1, by the numbers of the host and of the spine."""
    address = fabric.topology.naming.address
    return [
        SeenFlow(FiveTuple(address(at % 4), address(4 + host), 6, at), 4 + spine, rested_s=1.0)
        for at, (host, spine) in enumerate([*ways, *new])
    ]


def test_flows_to_one_host_go_together_if_they_are_moved_so():
    fabric, machine, _, ear, now = alone("key=dest")
    flows = of_destinations(fabric, [(0, 1), (1, 2)])
    assert not placed(machine.event(FlowsSeen(tuple(flows)), now))
    more = of_destinations(fabric, [(0, 1), (1, 2)], [(0, 3), (2, 0), (2, 3)])
    joined = placed(machine.event(FlowsSeen(tuple(more)), now))
    # the last is the first by address
    assert sorted(joined) == sorted([(more[2].flow, 4 + 1), (more[3].flow, 4 + 3)])
    for sequence in range(40):
        if actions := heard(machine, ear._replace(flow=flows[0].flow, sequence=10 + sequence), now):
            break
    moves = dict(placed(actions))
    assert {flow for flow in moves if flow.destination == flows[0].flow.destination} == {
        more[0].flow,
        more[2].flow,
    }
    assert len({moves[more[0].flow], moves[more[2].flow]}) == 1
    assert machine.status()["moves"] == 2


def test_as_many_flows_are_swapped_back_as_have_moved_together():
    fabric, machine, _, ear, now = alone("key=dest")
    flows = of_destinations(
        fabric, [(0, 1), (0, 1), (1, 0), (2, 0), (3, 2), (4, 2), (5, 3), (6, 3)]
    )
    machine.event(FlowsSeen(tuple(flows)), now)
    for sequence in range(40):
        if actions := heard(machine, ear._replace(flow=flows[0].flow, sequence=10 + sequence), now):
            break
    found = dict(placed(actions))
    port = found[flows[0].flow]
    assert found == {
        one.flow: port if one.port == 5 else 5 for one in flows if one.port in (5, port)
    }
    assert (machine.status()["moves"], machine.status()["swaps"]) == (2, 2)


def test_flows_to_one_host_leave_a_dead_link_together():
    fabric, machine, _, _, now = alone("key=dest,p=3")
    flows = of_destinations(fabric, [(0, 1), (0, 1), (1, 1)])
    machine.event(FlowsSeen(tuple(flows)), now)
    left = dict(placed(machine.link_changed(5, False, now)))
    assert left.keys() == {one.flow for one in flows}
    assert left[flows[0].flow] == left[flows[1].flow] != 5
    assert machine.status()["replaced"] == 3


def test_an_informed_request_leads_to_a_spine_with_room_at_both_ends():
    fabric, machine, _, ear, now = alone("p=1,informed=1")
    flows = seen(fabric, [1, 0])
    machine.event(FlowsSeen(tuple(flows)), now)
    asked = ear._replace(flow=flows[0].flow, spines=4, room=0b0101)
    assert moved(machine, asked, now) == [(flows[0].flow, 4 + 2)]
    machine.event(FlowsSeen(tuple(flows)), now)
    full = asked._replace(room=0b0001, sequence=1000)
    assert moved(machine, full, now + 1) == [(flows[0].flow, 4), (flows[1].flow, 5)]


def test_an_informed_request_bears_the_spines_with_room_that_are_there():
    fabric = Fabric(SPEC, "informed=1")
    asked = []
    fabric.filter_ears(lambda node, ear: asked.append(ear))
    fabric.simulator.fail(fabric.link(0, 2))
    fabric.simulator.run_for(0.2)
    crowd(fabric)
    for leaf in (1, 2):
        # by spine 3, the third of those left, which two fill
        fabric.flows.begin(4 * leaf + 2, leaf, 9)
    fabric.simulator.run_for(0.05)
    assert {(ear.spines, ear.room, ear.count) for ear in asked} == {(4, 0b0010, 3)}


def test_an_uplink_that_is_overfull_is_left_for_one_with_room():
    fabric, machine, _, _, now = alone()
    actions = machine.event(FlowsSeen(tuple(seen(fabric, [1, 1, 1, 0, 0, 2]))), now)
    ((_, port),) = placed(actions)
    assert port in (4 + 2, 4 + 3)


def test_new_flows_that_fill_an_uplink_by_their_hashes_leave_it_at_the_first_look():
    fabric, machine, _, _, now = alone("start=limited")
    old = seen(fabric, [1, 1])
    assert not placed(machine.event(FlowsSeen(tuple(old)), now))
    flows = seen(fabric, [1, 1, 1, 1, 1, 0, 0])
    moves = placed(machine.event(FlowsSeen(tuple(flows)), now + 0.01))
    assert {flow for flow, _ in moves} == {one.flow for one in flows[2:5]}
    assert {port for _, port in moves} <= {4 + 2, 4 + 3}
    assert machine.status()["moves"] == 3
    assert sorted(machine.status()["flows"]["up"].values()) == [1, 2, 2, 2]
    then = [one._replace(port=dict(moves).get(one.flow, one.port)) for one in flows]
    assert not placed(machine.event(FlowsSeen(tuple(then)), now + 0.02))


def test_new_flows_to_one_host_leave_an_overfull_uplink_together_and_with_none_that_was_there():
    fabric, machine, _, _, now = alone("start=limited,key=dest")
    machine.event(FlowsSeen(tuple(of_destinations(fabric, [(0, 1)]))), now)
    flows = of_destinations(fabric, [(0, 1)], [(0, 1), (1, 1), (1, 1), (2, 0)])
    moves = placed(machine.event(FlowsSeen(tuple(flows)), now + 0.01))
    assert {flow for flow, _ in moves} == {flows[2].flow, flows[3].flow}
    assert len({port for _, port in moves} & {4 + 2, 4 + 3}) == 1


def test_no_more_new_flows_leave_an_uplink_than_must_and_they_go_where_there_is_room():
    fabric, machine, _, _, now = alone("start=limited")
    assert len(placed(machine.event(FlowsSeen(tuple(seen(fabric, [3, 3, 3]))), now + 1))) == 1
    fabric, machine, _, _, now = alone("start=limited")
    machine.event(FlowsSeen(tuple(seen(fabric, [2] * 8))), now + 1)
    assert sorted(machine.status()["flows"]["up"].values()) == [2, 2, 2, 2]
    fabric, machine, _, _, now = alone("start=limited,key=dest")
    flows = of_destinations(fabric, [(1, 1), (1, 1), (0, 1), (2, 0), (3, 2)])
    moves = placed(machine.event(FlowsSeen(tuple(flows)), now + 1))
    assert moves == [(flows[0].flow, 4 + 3), (flows[1].flow, 4 + 3)]


@pytest.mark.parametrize("seed", range(5))
def test_limited_a_leafs_uplinks_carry_what_they_may_after_its_first_look(seed):
    fabric = Fabric("clos:n=8,r=8,m=8", "start=limited,period_us=50000")
    fabric.filter_ears(lambda node, ear: False)
    hashed = Fabric("clos:n=8,r=8,m=8", "start=hash,period_us=50000,hello_ms=1000")
    for src, dst in enumerate(random.Random(seed).sample(range(64), 64)):
        for each in (fabric, hashed):
            each.flows.begin(src, dst, seed)
    leaves = range(fabric.leaf(0), fabric.leaf(8))
    over = [
        max(count for (at, _), count in hashed.flows.loads().items() if at == leaf) > 2
        for leaf in leaves
    ]
    assert any(over)
    fabric.simulator.run_for(0.051)
    assert max(count for (at, _), count in fabric.flows.loads().items() if at in leaves) == 2
    assert fabric.total("moves") >= sum(over)


def test_flows_that_rest_or_are_silent_are_not_asked_for():
    fabric, machine, _, _, now = alone()
    address = fabric.topology.naming.address

    def come(**more):
        flows = [
            SeenFlow(FiveTuple(address(4 + at), address(0), 6, at), 5, **more) for at in range(3)
        ]
        return [
            action
            for action in machine.event(FlowsSeen(tuple(flows)), now)
            if isinstance(action, Send)
        ]

    assert not come(rested_s=0.01)
    assert not come(rested_s=1.0, idle_s=0.06)
    assert not come(rested_s=1.0)  # it was silent at the last look
    (sent,) = come(rested_s=1.0)
    ear = daemon.decode(sent.payload)
    assert (ear.spine, ear.count, ear.leaf) == (fabric.spine(1), 3, fabric.leaf(1))


def come_to_leaf_0(fabric, machine, now, ports, rested_s=1.0):
    """The flows that leaf 0 asks for where its flows, numbered, come by these ports."""
    address = fabric.topology.naming.address
    flows = [
        SeenFlow(FiveTuple(address(4 + at), address(0), 6, at), port, rested_s=rested_s)
        for at, port in ports.items()
    ]
    sent = [
        action for action in machine.event(FlowsSeen(tuple(flows)), now) if isinstance(action, Send)
    ]
    return [daemon.decode(action.payload).flow.ports for action in sent]


def test_until_a_request_is_answered_no_other_flow_of_the_link_is_asked_for():
    """Of four flows on a link two have to go: the second once the first, which may still seem to be
    there, has left."""
    fabric, machine, _, _, now = alone()
    assert not come_to_leaf_0(fabric, machine, now, dict.fromkeys(range(3), 5))
    (first,) = come_to_leaf_0(fabric, machine, now + 0.01, dict.fromkeys(range(3), 5))
    assert not come_to_leaf_0(fabric, machine, now + 0.02, dict.fromkeys(range(3), 5))
    assert come_to_leaf_0(fabric, machine, now + 0.03, dict.fromkeys(range(3), 5))  # it was lost
    elsewhere = {**dict.fromkeys(range(4), 5), first: 6}
    assert not come_to_leaf_0(fabric, machine, now + 0.04, elsewhere)  # the fourth is new
    (second,) = come_to_leaf_0(fabric, machine, now + 0.05, elsewhere)
    assert second != first


def test_a_flow_that_leaves_for_a_full_link_counts_there_at_once():
    fabric, machine, _, _, now = alone()
    ports = {0: 5, 1: 5, 2: 5, 3: 6, 4: 6}
    come_to_leaf_0(fabric, machine, now, ports)
    (first,) = come_to_leaf_0(fabric, machine, now + 0.01, ports)
    (second,) = come_to_leaf_0(fabric, machine, now + 0.02, {**ports, first: 6})
    assert second in (3, 4, first)


def test_where_flows_do_not_rest_each_look_asks():
    fabric, machine, _, _, now = alone("cool=0")
    for _ in range(5):
        assert come_to_leaf_0(fabric, machine, now, dict.fromkeys(range(3), 5), 0.0)


def test_links_carry_more_where_there_are_too_few_of_them():
    """Eight flows on three spines: three on one of them are no reason to move any."""
    fabric, machine, _, _, now = alone(m=3)
    assert not placed(machine.event(FlowsSeen(tuple(seen(fabric, [0, 0, 0, 1, 1, 1, 2, 2]))), now))
    assert placed(machine.event(FlowsSeen(tuple(seen(fabric, [0, 0, 0, 0, 1, 1, 2, 2]))), now))


@pytest.mark.parametrize("what", ["link", "silent link", "far link", "spine"])
def test_what_fails_is_left_at_once_and_flows_settle_again(what):
    fabric = Fabric(SPEC)
    generator = random.Random(3)
    order = generator.sample(range(16), 16)
    flows = [fabric.flows.begin(src, dst) for src, dst in enumerate(order) if src // 4 != dst // 4]
    fabric.settle()
    spine, simulator = 1, fabric.simulator
    simulator.run_for(0.050)
    hit = [flow for flow in flows if fabric.spine_of(flow) == spine]
    assert len(hit) > 1
    match what:
        case "link":
            simulator.fail(fabric.link(0, spine))
            within_s = 0.005
        case "silent link":
            simulator.fail(fabric.link(0, spine), silent=True)
            within_s = 0.110
        case "far link":
            # or others would hold their computation back, as after any change
            simulator.run_for(0.5)
            simulator.fail(fabric.link(3, spine))
            within_s = 0.005
        case "spine":
            simulator.kill(fabric.spine(spine))
            within_s = 0.110
    simulator.run_for(within_s)
    assert all(fabric.spine_of(flow) != spine for flow in hit if what == "spine")
    assert not [walk for flow in flows if (walk := fabric.flows.path(flow)).lost]
    assert fabric.total("replaced") > 0
    fabric.settle()
    before = {flow: fabric.spine_of(flow) for flow in flows}
    match what:
        case "spine":
            simulator.restart(fabric.spine(spine))
        case _:
            simulator.restore(fabric.link(3 if what == "far link" else 0, spine))
    simulator.run_for(0.5)
    # nothing is bad, so nobody moves
    assert {flow: fabric.spine_of(flow) for flow in flows} == before


def test_a_leaf_that_loses_power_forgets_its_flows_and_counts_them_anew():
    fabric = Fabric(SPEC)
    flows = crowd(fabric)
    fabric.settle()
    fabric.simulator.kill(fabric.leaf(0))
    fabric.simulator.run_for(0.2)
    assert fabric.flows.path(flows[0]).lost
    fabric.simulator.restart(fabric.leaf(0))
    fabric.simulator.run_for(0.2)
    for leaf in (1, 2, 3):
        fabric.simulator.restart(fabric.leaf(leaf))  # and with them where flows were put
    fabric.simulator.run_until_converged()
    fabric.settle()
    assert not any(fabric.flows.path(flow).lost for flow in flows)


@pytest.mark.parametrize(
    "options", ["detect=queue", "detect=queue,rest_us=0", "detect=queue,start=hash,swap=0"]
)
def test_spines_ask_where_their_queues_are_long(options):
    fabric = Fabric(SPEC, options)
    asked = []
    fabric.filter_ears(lambda node, ear: asked.append((node, ear)) or True)
    generator = random.Random(5)
    for _ in range(20):
        for flow in fabric.flows.live():
            fabric.flows.end(flow)
        order = generator.sample(range(16), 16)
        for src, dst in enumerate(order):
            fabric.flows.begin(src, dst, generator.randrange(1 << 32))
        fabric.settle()
    assert asked
    assert {node for node, _ in asked} <= {fabric.spine(spine) for spine in range(4)}
    assert all(node == ear.spine == ear.origin for node, ear in asked)  # by one hop
    assert fabric.total("ears", "passed_on") == 0


def test_a_spine_asks_for_every_flow_of_a_long_queue_and_then_rests():
    """Three flows at half rate have a queue that grows by a packet in two packet times."""
    fabric = Fabric(SPEC, "detect=queue,rest_us=30000,queue=3,ears=first")
    asked = []
    fabric.filter_ears(lambda node, ear: asked.append((fabric.simulator.now, ear.flow)))
    flows = crowd(fabric)
    fabric.simulator.run_for(0.2)
    assert {flow for _, flow in asked} == set(flows)
    for flow in flows:
        times = [now for now, other in asked if other == flow]
        assert len(times) > 4  # not once a period of 10 ms, nor each packet
        assert min(np.diff(times)) >= 0.03 - 1e-9
        assert max(np.diff(times)) < 0.04


@pytest.mark.parametrize("ears", ["behind", "first"])
def test_a_request_waits_behind_the_packets_for_its_leaf_or_goes_ahead(ears):
    fabric = Fabric(SPEC, f"detect=queue,queue=3,ears={ears}")
    sent, arrived = [], []
    simulator, machine = fabric.simulator, fabric.simulator.protocol(fabric.leaf(1))
    receive, event = machine.receive, fabric.simulator.protocol(fabric.spine(0)).event

    def noted(payload, port, now):
        if daemon.decode(payload):
            arrived.append(now)
        return receive(payload, port, now)

    def reported(report, now):
        sent.extend([now] if isinstance(report, LongQueue) else [])
        return event(report, now)

    machine.receive, simulator.protocol(fabric.spine(0)).event = noted, reported
    address = fabric.topology.naming.address
    queues = fabric.flows._queues
    back = FiveTuple(address(4), address(0), 6, 1)
    for _ in range(6):  # packets for the leaf that is asked
        queues._join(Packet(back, fabric.leaf(0), [(fabric.spine(0), fabric.leaf(1))]), 0.0)
    simulator.tell(fabric.spine(0), LongQueue(back, 1))
    simulator.run_for(0.05)
    packets = 6 if ears == "behind" else 0
    assert arrived[0] - sent[-1] == pytest.approx(packets * 0.010 / 16 + 50e-6)


def test_daemons_settle_over_wires_that_lose_and_reorder():
    wire = Wire(delay_s=1e-4, jitter_s=5e-3, loss_fraction=0.05, duplicate_fraction=0.1)
    fabric = Fabric(SPEC, "dead=8", wire=wire, random=random.Random(4))
    crowd(fabric)
    fabric.settle()
    assert fabric.worst() <= 2


def test_what_is_cut_is_garbage_and_what_is_no_event_of_ours_is_refused():
    _, machine, _, ear, now = alone()
    with pytest.raises(wire.MalformedMessage):
        machine.receive(daemon.encode(ear)[:-1], 4, now)
    with pytest.raises(ValueError, match="does not use"):
        machine.event(LinkDegraded(4, True), now)


def test_status_tells_flows_by_spine_and_bad_links():
    fabric = Fabric(SPEC, "period_us=50000")
    fabric.filter_ears(lambda node, ear: False)
    crowd(fabric)
    fabric.simulator.run_for(0.2)
    told = fabric.status(fabric.leaf(0))
    assert told["flows"] == {"up": {}, "down": {"c0": 3}}
    assert told["bad"] == {"up": [], "down": ["c0"]}
    assert fabric.status(fabric.leaf(1))["flows"] == {"up": {"c0": 1}, "down": {}}


@pytest.mark.parametrize(
    ("network", "spec", "message"),
    [
        (
            "fattree:k=4",
            "dar",
            "scheme dar runs on folded Clos networks of two tiers, such as clos:n=4,r=4,m=4; ",
        ),
        ("star:n=4", "dar", "scheme dar runs on folded Clos networks of two tiers"),
        ("hyperx:l=2,s=3", "dar", "scheme dar runs on folded Clos networks of two tiers"),
        ("dcell:n=4,k=1", "dar", "scheme dar runs on switch fabrics"),
        (
            "clos:n=8,r=2,m=3",
            "dar",
            "dar: 3 spines carry 6 of a leaf's 8 flows at p=2: take m >= 4",
        ),
        ("clos:n=2,r=2,m=65", "dar", "scheme dar: a request has a map of at most 64 spines"),
        (
            "clos:n=4,r=4,m=4",
            "dar:start=x",
            "scheme dar: start must be modulo or hash or limited or destination, got 'x'",
        ),
    ],
)
def test_networks_that_are_no_clos_network_are_refused(network, spec, message):
    with pytest.raises(ValueError, match=message) as refused:
        configure(build(network), spec)
    assert "\n" not in str(refused.value)


def test_a_fat_tree_of_two_tiers_is_a_clos_network():
    fabric = Fabric("fattree:n=2,d=4")
    assert (fabric.n, fabric.r, fabric.m) == (4, 8, 4)
    crowd(fabric)
    fabric.settle()


def test_paths_are_all_that_a_flow_may_be_moved_to():
    topology = build(SPEC)
    chosen, options = scheme("dar")
    found = chosen.path(topology, options, 0, 5)
    assert len(found) == 4
    assert {path.share for path in found} == {0.25}
    assert {len(path.nodes) for path in found} == {5}


def test_by_destination_a_flow_begins_where_others_to_its_host_go():
    fabric = Fabric("clos:n=4,r=4,m=4", "key=dest")
    first = fabric.flows.begin(1, 4)
    others = [fabric.flows.begin(src, 4, ports) for ports, src in enumerate((0, 2, 3), 7)]
    # figure 9's start of the first
    assert [fabric.spine_of(flow) for flow in [first, *others]] == [1] * 4
    assert fabric.spine_of(fabric.flows.begin(2, 5)) == 2
    fabric.simulator.run_for(0.1)
    fabric.simulator.fail(fabric.link(0, 1))
    fabric.simulator.run_for(0.1)
    moved = {fabric.spine_of(flow) for flow in [first, *others]}
    assert len(moved) == 1
    assert moved != {1}
    assert fabric.spine_of(fabric.flows.begin(1, 4, 99)) in moved  # before the next look
    for flow in fabric.flows.live():
        fabric.flows.end(flow)
    fabric.simulator.restore(fabric.link(0, 1))
    fabric.simulator.run_for(0.5)
    assert fabric.spine_of(fabric.flows.begin(1, 4)) == 1  # nothing is left of the others
