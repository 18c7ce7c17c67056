"""Two or more neighbourhoods joined by hand; time is whatever the test says."""

import random
from itertools import pairwise

import pytest

from weft.daemons.control.hello import MOST_OWN_LATENESS, NeighbourChanged, Neighbourhood
from weft.daemons.core import wire
from weft.daemons.core.actions import Hop, NeighbourNote, Note, Send

INTERVAL_S, GAP_S, DEAD_S = 0.030, 0.003, 0.092


class Bus:
    """Nodes 0, 1, ... that all hear one another at port 0 after `delay_s`, each run as the contract
    wants it."""

    def __init__(self, nodes, delay_s=0.0001, **options):
        self.delay_s, self.now, self.deaf, self.dead, self.asleep = delay_s, 0.0, set(), set(), {}
        self.flying, self.changes, self.sent = [], [], []
        self.nodes = {}
        for node in range(nodes):
            others = [other for other in range(nodes) if other != node]
            self.nodes[node] = Neighbourhood(
                node, {0: others}, incarnation=1, phase_fraction=(node + 1) / nodes, **options
            )
        for node, machine in self.nodes.items():
            self.do(node, machine.start(0.0))

    def do(self, node, events):
        for event in events:
            if isinstance(event, Send):
                self.sent.append((self.now, node))
                heard_by = [
                    other
                    for other in self.nodes
                    if other != node and (node, other) not in self.deaf
                ]
                self.flying += [
                    (self.now + self.delay_s, other, event.payload) for other in heard_by
                ]
            if isinstance(event, NeighbourChanged):
                self.changes.append((self.now, node, event.hop.node, event.up))

    def run_until(self, end):
        while True:
            awake = {node: machine for node, machine in self.nodes.items() if node not in self.dead}
            ticks = [
                (max(machine.deadline, self.asleep.get(node, 0.0)), node)
                for node, machine in awake.items()
            ]
            arrivals = [
                (max(at, self.asleep.get(node, 0.0)), node)
                for at, node, _ in self.flying
                if node in awake
            ]
            self.now = min(at for at, _ in ticks + arrivals)
            if self.now > end:
                self.now = end
                return
            for flight in [*self.flying]:  # all that is queued, and only then the tick
                at, node, payload = flight
                if max(at, self.asleep.get(node, 0.0)) <= self.now:
                    self.flying.remove(flight)
                    if node in awake:
                        self.hear(node, payload)
            for at, node in ticks:
                if at <= self.now:
                    self.do(node, awake[node].tick(self.now))

    def hear(self, node, payload):
        machine = self.nodes[node]
        if not machine.refresh(payload, 0, self.now):
            self.do(node, machine.receive(wire.decode(payload), payload, 0, self.now))

    def ups(self, node):
        return [neighbour.hop.node for neighbour in self.nodes[node].neighbours() if neighbour.up]


def hello(sender, heard=(), sequence=1, incarnation=1, digest=0, interval_ms=30):
    return wire.Hello(sender, incarnation, interval_ms, digest, tuple(heard), sequence)


def say(machine, message, now, port=0):
    """Let `machine` hear `message` as a carrier would; the changes that come of it."""
    payload = wire.encode(message)
    if machine.refresh(payload, port, now):
        return []
    return changes(machine.receive(message, payload, port, now))


def changes(events):
    return [(event.hop.node, event.up) for event in events if isinstance(event, NeighbourChanged)]


def sends(events):
    return [wire.decode(event.payload) for event in events if isinstance(event, Send)]


def node_0(nodes=(1,), **options):
    machine = Neighbourhood(0, {0: nodes}, incarnation=5, **options)
    machine.start(0.0)
    return machine


def run(machine, until):
    """Tick in time; the changes that come of it."""
    lost_hops = []
    while machine.deadline < until:
        lost_hops += changes(machine.tick(machine.deadline))
    return lost_hops


US = (0, 5)


def test_two_are_up_within_two_gaps():
    bus = Bus(2)
    bus.run_until(2 * GAP_S)
    assert bus.ups(0) == [1]
    assert bus.ups(1) == [0]


def test_up_needs_three_ways():
    machine = node_0()
    assert say(machine, hello(1), 0.001) == []
    assert say(machine, hello(1, [(7, 5)], 2), 0.002) == []
    assert say(machine, hello(1, [(0, 4)], 3), 0.003) == [], (
        "it heard the daemon that ran here before"
    )
    assert say(machine, hello(1, [US], 4), 0.004) == [(1, True)]
    assert say(machine, hello(1, [], 5), 0.005) == [(1, False)], "it does not hear us any more"


def test_what_is_heard_is_said():
    machine = node_0([1, 2])
    events = machine.receive(
        hello(2, incarnation=9), wire.encode(hello(2, incarnation=9)), 0, 0.010
    )
    (said,) = sends(events)
    assert said.heard == ((2, 9),)
    assert said == hello(0, [(2, 9)], sequence=2, incarnation=5)


def test_hellos_leave_every_interval_in_phase_even_after_a_stall():
    machine = Neighbourhood(0, {0: [1], 1: [2]}, incarnation=1, phase_fraction=0.5)
    assert len(sends(machine.start(1.0))) == 2
    times_s = []
    for _ in range(4):
        times_s.append(machine.deadline)
        assert len(sends(machine.tick(machine.deadline))) == 2
    assert times_s == pytest.approx([1.015, 1.045, 1.075, 1.105])
    machine.tick(1.300)
    assert machine.deadline == pytest.approx(1.315)


def test_ticks_too_early_do_no_harm():
    machine = node_0()
    say(machine, hello(1, [US]), 0.010)
    assert [machine.tick(at) for at in (0.011, 0.020, 0.029)] == [[], [], []]
    assert machine.deadline == INTERVAL_S


def test_the_dead_are_noticed_when_they_should_be():
    machine = node_0()
    say(machine, hello(1, [US]), 0.010)
    assert run(machine, 0.010 + DEAD_S - 0.0001) == []
    assert run(machine, 0.010 + DEAD_S + 0.0001) == [(1, False)]


def test_the_third_hello_after_two_lost_ones_still_counts():
    bus = Bus(2)
    bus.run_until(0.1)
    del bus.changes[:]
    for _ in range(20):
        bus.deaf = {(0, 1)}
        bus.run_until(bus.now + 2 * INTERVAL_S - 0.001)
        bus.deaf = set()
        bus.run_until(bus.now + 2 * INTERVAL_S)
    assert bus.changes == []


def test_a_link_of_one_direction_is_down_at_both_ends():
    bus = Bus(2)
    bus.run_until(0.2)
    bus.deaf = {(0, 1)}
    bus.run_until(0.2 + DEAD_S + GAP_S + 2 * bus.delay_s)
    assert bus.ups(0) == bus.ups(1) == []
    bus.run_until(1.0)
    assert bus.ups(0) == bus.ups(1) == []
    bus.deaf = set()
    bus.run_until(1.0 + INTERVAL_S + 3 * GAP_S)
    assert (bus.ups(0), bus.ups(1)) == ([1], [0])


def test_one_of_many_behind_a_crossbar_dies_and_the_others_stay():
    bus = Bus(6)
    bus.run_until(0.2)
    assert all(len(bus.ups(node)) == 5 for node in range(6))
    del bus.changes[:]
    bus.dead = {3}
    bus.run_until(1.0)
    assert sorted(change[1:] for change in bus.changes) == [
        (node, 3, False) for node in (0, 1, 2, 4, 5)
    ]
    assert max(at for at, *_ in bus.changes) <= 0.2 + bus.delay_s + DEAD_S


def test_a_change_of_a_neighbour_is_logged_with_its_fields():
    machine = node_0(names={1: "e0.1"})
    say(machine, hello(1, [US]), 0.001)
    notes = [event for event in machine.link_changed(0, False, 0.002) if isinstance(event, Note)]
    text = "port 0: neighbour e0.1 down: no carrier"
    assert notes == [NeighbourNote(text, 0, "e0.1", False, "no carrier")]


def test_carrier():
    machine = Neighbourhood(0, {0: [1, 2], 1: [3]}, incarnation=5)
    machine.start(0.0)
    for node, port in ((1, 0), (2, 0), (3, 1)):
        say(machine, hello(node, [US]), 0.010, port)
    assert machine.complete()
    gone = machine.link_changed(0, False, 0.050)
    assert changes(gone) == [(1, False), (2, False)], "at once"
    assert sends(gone) == []
    assert say(machine, hello(1, [US], 2), 0.051) == [], "it was queued before the carrier went"
    assert [message.sender for message in sends(machine.tick(0.060))] == [0], (
        "and nothing is sent there"
    )
    back = machine.link_changed(0, True, 0.100)
    assert [
        (event.port, wire.decode(event.payload).heard) for event in back if isinstance(event, Send)
    ] == [(0, ())]
    assert say(machine, hello(1, [US], 3), 0.101) == [(1, True)]
    assert machine.link_changed(0, True, 0.102) == machine.link_changed(9, True, 0.102) == []


def test_old_and_repeated_hellos_are_ignored():
    machine = node_0()
    say(machine, hello(1, [US], 7), 0.010)
    assert say(machine, hello(1, [], 7), 0.011) == say(machine, hello(1, [], 6), 0.012) == []
    assert say(machine, hello(1, [], 9, incarnation=0), 0.013) == []
    assert run(machine, 0.080) == []
    for sequence in (5, 6, 7):
        assert say(machine, hello(1, [US], sequence), 0.080) == [], "and do not count as life"
    assert run(machine, 0.104) == [(1, False)]


def test_a_neighbour_that_started_again_is_down_until_it_hears_us():
    machine = node_0()
    say(machine, hello(1, [US], 900), 0.010)
    assert say(machine, hello(1, [], 1, incarnation=2), 0.020) == [(1, False)]
    assert say(machine, hello(1, [US], 901), 0.021) == [], "from before"
    assert say(machine, hello(1, [US], 2, incarnation=2), 0.022) == [(1, True)]


def test_a_neighbour_whose_clock_went_back_is_heard_once_its_predecessor_is_dead():
    machine = node_0()
    say(machine, hello(1, [US], 900, incarnation=50), 0.010)
    assert say(machine, hello(1, [US], 1, incarnation=40), 0.020) == []
    run(machine, 0.104)
    assert say(machine, hello(1, [US], 3, incarnation=40), 0.105) == [(1, True)]


def test_a_stranger_is_noted_once_and_not_used():
    machine = node_0()
    message = hello(8, [US])
    first = machine.receive(message, wire.encode(message), 0, 0.010)
    assert first == [Note("port 0: hello from 8, which the topology does not promise there")]
    assert machine.receive(message, wire.encode(message), 0, 0.011) == []
    assert machine.receive(message, wire.encode(message), 7, 0.012) == []
    many = [hello(name) for name in range(100, 1000)]
    assert (
        len(
            [event for each in many for event in machine.receive(each, wire.encode(each), 0, 0.013)]
        )
        < 100
    )
    assert machine.status()["strangers"] == 902
    assert not machine.complete()


def test_the_interval_of_the_neighbour_counts():
    machine = node_0()
    say(machine, hello(1, [US], interval_ms=100), 0.010)
    assert run(machine, 0.3119) == []
    assert run(machine, 0.3121) == [(1, False)]
    say(machine, hello(1, [US], 5, interval_ms=10), 0.400)
    assert run(machine, 0.4309) == []
    assert run(machine, 0.4311) == [(1, False)]


def test_a_longer_interval_is_told_at_once_and_a_neighbour_waits_in_proportion():
    machine = node_0()
    assert [said.interval_ms for said in sends(machine.slow_down(4, 0.010))] == [120]
    assert machine.deadline == pytest.approx(INTERVAL_S)  # the hello that was due is not put off
    times = [0.010]
    while times[-1] < 1.0:
        said = sends(machine.tick(machine.deadline))
        times += [machine.deadline] * bool(said)
    assert {round(after - before, 6) for before, after in pairwise(times[1:])} == {0.120}
    now = times[-1] - 0.110
    assert [said.interval_ms for said in sends(machine.slow_down(1, now))] == [30]
    assert machine.deadline == pytest.approx(now + INTERVAL_S)
    assert machine.slow_down(1, now) == []


def test_one_that_slows_down_and_goes_on_is_lost_by_nobody_and_its_death_is_noticed():
    bus = Bus(2)
    bus.run_until(0.5)
    for factor in (2, 4, 8, 4, 2, 1):
        bus.do(0, bus.nodes[0].slow_down(factor, bus.now))
        bus.run_until(bus.now + 0.73)
    assert bus.changes[2:] == []
    bus.do(0, bus.nodes[0].slow_down(8, bus.now))
    bus.run_until(bus.now + 0.25)
    last_s = max(at for at, by in bus.sent if by == 0)
    bus.dead.add(0)
    bus.run_until(last_s + 8 * 3 * INTERVAL_S)
    assert bus.changes[2:] == []
    bus.run_until(last_s + 8 * 3 * INTERVAL_S + 0.01)
    assert [(node, other, up) for _, node, other, up in bus.changes[2:]] == [(1, 0, False)]


def test_an_interval_is_never_longer_than_a_hello_can_say():
    machine = node_0(interval_ms=wire.MOST_INTERVAL_MS // 2)
    (said,) = sends(machine.slow_down(32, 1.0))
    assert said.interval_ms == wire.MOST_INTERVAL_MS


def test_a_storm_of_changes_is_said_in_few_hellos():
    machine = node_0([*range(1, 101)])
    said = 0
    for node in range(1, 101):
        message = hello(node)
        said += len(sends(machine.receive(message, wire.encode(message), 0, 0.0005 + node * 1e-5)))
    assert said == 0
    assert machine.deadline == pytest.approx(GAP_S)
    (only,) = sends(machine.tick(machine.deadline))
    assert len(only.heard) == 100


def test_the_time_that_we_did_not_run_is_no_silence():
    machine = node_0()
    say(machine, hello(1, [US]), 0.010)
    dies = 0.010 + DEAD_S + (0.500 - machine.deadline)
    assert changes(machine.tick(0.500)) == run(machine, dies - 0.0001) == []
    assert run(machine, dies + 2 * MOST_OWN_LATENESS * INTERVAL_S + 0.0001) == [(1, False)]


def test_what_was_heard_while_we_did_not_run_excuses_little_more_silence_than_usual():
    machine = node_0()
    say(machine, hello(1, [US], 1), 0.010)
    say(machine, hello(1, [US], 17), 0.490)
    assert changes(machine.tick(0.500)) == run(machine, 0.500 + DEAD_S - 0.0001) == []
    assert run(machine, 0.500 + DEAD_S + 2 * MOST_OWN_LATENESS * INTERVAL_S + 0.0001) == [
        (1, False)
    ]


def heard_until(machine, sequences):
    """Let neighbour 1 say the hellos with these numbers at these times, and `machine` tick in time;
    what changed."""
    losses_seen = []
    for sequence, now in sequences:
        while machine.deadline < now:
            losses_seen += changes(machine.tick(machine.deadline))
        payload = wire.encode(hello(1, [US], sequence))
        if not machine.refresh(payload, 0, now):
            losses_seen += changes(machine.receive(wire.decode(payload), payload, 0, now))
    return losses_seen


def test_a_neighbour_whose_numbers_say_that_it_is_late_is_lost_at_most_once():
    """A machine at a tenth of the speed: a hello each 300 ms, where each 30 ms was promised."""
    times = [(number, 0.010 + 0.300 * number) for number in range(1, 40)]
    assert heard_until(node_0(), times) == [(1, True), (1, False), (1, True)]


def test_a_neighbour_that_is_later_each_time_is_not_lost():
    now, times = 0.010, []
    for number in range(1, 30):
        times.append((number, now))
        now += INTERVAL_S * 1.2**number if number < 20 else 1.0
    assert heard_until(node_0(), times) == [(1, True)]


def test_lost_hellos_are_no_lateness():
    """Nine of ten are lost, and the numbers say so."""
    machine = node_0()
    times = [(10 * number, 10 * INTERVAL_S * number) for number in range(1, 10)]
    assert heard_until(machine, times) == [(1, True)] + 8 * [(1, False), (1, True)]
    last_s = times[-1][1]
    assert run(machine, last_s + DEAD_S - 0.0001) == []
    assert run(machine, last_s + DEAD_S + 0.0001) == [(1, False)]


def test_a_neighbour_that_is_in_time_again_is_judged_as_before():
    machine = node_0()
    heard_until(machine, [(number, 0.3 * number) for number in range(1, 10)])
    begin_s = 0.3 * 9
    heard_until(machine, [(9 + number, begin_s + INTERVAL_S * number) for number in range(1, 100)])
    last_s = begin_s + INTERVAL_S * 99
    assert run(machine, last_s + DEAD_S - 0.0001) == []
    assert run(machine, last_s + DEAD_S + 0.0001) == [(1, False)]


def test_a_neighbour_without_carrier_was_not_late():
    machine = node_0()
    say(machine, hello(1, [US], 1), 0.010)
    machine.link_changed(0, False, 0.020)
    run(machine, 5.0)
    machine.link_changed(0, True, 5.0)
    say(machine, hello(1, [US], 2), 5.010)
    assert run(machine, 5.010 + DEAD_S - 0.0001) == []
    assert run(machine, 5.010 + DEAD_S + 0.0001) == [(1, False)]


def test_one_that_is_always_late_notices_all_the_same():
    machine = node_0()
    say(machine, hello(1, [US]), 0.010)
    ticks = 0
    while not changes(machine.tick(machine.deadline + 0.040)):
        ticks += 1
    assert ticks < 12


def test_nobody_is_blamed_when_the_whole_machine_stands_still():
    bus = Bus(4)
    draw = random.Random(1)
    bus.run_until(0.2)
    del bus.changes[:]
    for _ in range(30):
        wake = bus.now + draw.uniform(0.05, 0.5)
        bus.asleep = {node: wake + draw.uniform(0, 0.025) for node in range(4)}
        bus.run_until(wake + draw.uniform(0.03, 0.3))
    assert bus.changes == []


def test_nobody_is_blamed_by_one_that_sleeps_while_the_others_speak():
    bus = Bus(3)
    bus.run_until(0.2)
    del bus.changes[:]
    bus.asleep = {0: 0.280}
    bus.run_until(1.0)
    assert bus.changes == []


def test_a_change_of_digest_is_told_with_the_next_hello_and_changes_nothing_else():
    first, two = node_0(), Neighbourhood(1, {0: [0]}, incarnation=1)
    two.start(0.0)
    assert say(first, hello(1, [US]), 0.001) == [(1, True)]
    first.set_digest(77)
    (said,) = sends(first.tick(first.deadline))
    assert (said.digest, said.heard) == (77, ((1, 1),))
    assert say(first, hello(1, [US], 2, digest=99), 0.031) == []
    assert first.digest(Hop(0, 1)) == 99
    assert first.digest(Hop(4, 4)) == 0


def test_only_news_is_urgent():
    machine = node_0()
    (routine,) = [event for event in machine.tick(0.030) if isinstance(event, Send)]
    message = hello(1)
    events = machine.receive(message, wire.encode(message), 0, 0.040)
    (news,) = [event for event in events if isinstance(event, Send)]
    assert (routine.routine, news.routine) == (True, False)


def test_status_says_what_a_person_wants_to_see():
    machine = Neighbourhood(0, {0: [1, 2], 1: [3]}, incarnation=5, names={1: "h1", 2: "h2"})
    machine.start(0.0)
    say(machine, hello(1, [US]), 0.010)
    say(machine, hello(2), 0.010)
    assert machine.status()["neighbours"] == [
        {"port": 0, "node": "h1", "state": "up"},
        {"port": 0, "node": "h2", "state": "heard"},
        {"port": 1, "node": "3", "state": "silent"},
    ]


def ups(bus, begin_s, end_s):
    """Return the time for which node 0 took node 1 to be up, and the number of changes."""
    up_s, up, since = 0.0, True, begin_s
    changes = [(at, up) for at, node, _, up in bus.changes if node == 0 and begin_s <= at < end_s]
    for at, now_up in [*changes, (end_s, False)]:
        up_s += (at - since) * up
        up, since = now_up, at
    return up_s, len(changes)


def flapping(bus, times, dead_s=0.2, alive_s=0.3):
    """Let the link die and come back so often; when it began."""
    begin_s = bus.now
    for _ in range(times):
        bus.deaf = {(0, 1), (1, 0)}
        bus.run_until(bus.now + dead_s)
        bus.deaf = set()
        bus.run_until(bus.now + alive_s)
    return begin_s


def test_a_link_that_dies_once_is_up_again_as_soon_as_without_damping():
    for options in ({}, {"damp_s": 0.5, "most_damp_s": 4.0}):
        bus = Bus(2, **options)
        bus.run_until(1.0)
        flapping(bus, 1)
        assert [up for _, _, _, up in bus.changes[2:]] == [False, False, True, True]
        assert bus.changes[-1][0] < 1.2 + INTERVAL_S + GAP_S


def test_a_link_that_flaps_is_used_ever_more_seldom_and_again_when_it_has_been_steady():
    plain, damped = Bus(2), Bus(2, damp_s=0.5, most_damp_s=4.0)
    for bus in (plain, damped):
        bus.run_until(1.0)
        flapping(bus, 40)
    assert ups(plain, 1.0, bus.now)[1] == 80
    assert ups(damped, 1.0, bus.now)[1] <= 16  # 0.5, 1, 2 s, and then every 4 s
    assert damped.nodes[0].status()["neighbours"][0]["state"] in ("damped", "up", "silent")
    damped.run_until(damped.now + 4.1)
    assert damped.nodes[0].complete()
    assert damped.nodes[1].complete()
    damped.run_until(damped.now + 5.0)  # ten times 0.5 s
    began_s = flapping(damped, 1)
    # the first time again
    assert max(at for at, *_ in damped.changes) < began_s + 0.2 + INTERVAL_S + GAP_S


def test_a_damped_neighbour_that_dies_is_not_taken_back():
    bus = Bus(2, damp_s=0.5, most_damp_s=4.0)
    bus.run_until(1.0)
    flapping(bus, 2)
    assert bus.nodes[0].status()["neighbours"][0]["state"] == "damped"
    bus.deaf = {(0, 1), (1, 0)}
    bus.run_until(bus.now + 2.0)
    assert bus.nodes[0].status()["neighbours"][0]["state"] == "silent"
    assert not bus.changes[-1][3]


def test_neighbours_that_are_damped_return_in_the_same_order_each_time():
    """The order of advertisements follows from it, and a seed must repeat a campaign."""
    others = [*range(1, 40)]
    machine = Neighbourhood(0, {0: others}, incarnation=1, damp_s=0.5, most_damp_s=4.0)
    machine.start(0.0)
    for turn in range(3):
        machine.link_changed(0, False, turn * 0.1)
        machine.link_changed(0, True, turn * 0.1)
        for other in others:
            say(machine, hello(other, [(0, 1)], sequence=turn + 1, interval_ms=10_000), turn * 0.1)
    assert {neighbour["state"] for neighbour in machine.status()["neighbours"]} == {"damped"}
    assert [node for node, _ in changes(machine.tick(5.0))] == others
