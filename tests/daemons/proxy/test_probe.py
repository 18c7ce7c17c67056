"""Questions on a line of servers 0 - 1 - 2 - 3; port 0 leads to the left, port 1 to the right."""

import pytest

from weft.daemons.core import wire
from weft.daemons.core.actions import Hop, Send
from weft.daemons.core.timers import TokenBucket
from weft.daemons.proxy.probe import HopLost, ProbeAnswer, Probes


class Line:
    def __init__(self, servers=4, wakes=100, news=100, **options):
        self.dead = set()
        self.loads = {}
        self.nodes = [
            Probes(
                node,
                next_hop=lambda dst, way, node=node: self.hop(
                    node, node + 1 if dst > node else node - 1
                ),
                hop_to=lambda to, node=node: self.hop(node, to),
                lives=lambda hop, node=node: (node, hop.node) not in self.dead,
                load=lambda port, node=node: self.loads.get((node, port), 0),
                wakes=TokenBucket(1, wakes),
                news=TokenBucket(1, news),
                remember_s=10.0,
                **options,
            )
            for node in range(servers)
        ]
        self.steps = []
        self.woken = []

    def hop(self, node, to):
        if abs(node - to) != 1:
            raise ValueError
        return Hop(int(to > node), to)

    def carry(self, node, events, now=0.0):
        """Deliver what is sent until nothing is; what comes out at the end, and who it is that says
        so."""
        out = []
        for event in events:
            if not isinstance(event, Send):
                out.append((node, event))
                continue
            to = node + (1 if event.port else -1)
            self.steps.append((node, to))
            if not event.routine:
                self.woken.append((node, to))
            message = wire.decode(event.payload)
            assert (message.sender, message.target) == (node, to)
            out += self.carry(to, self.nodes[to].receive(message, now), now)
        return out


@pytest.fixture
def line():
    return Line()


def test_the_question_goes_there_and_the_answer_comes_back_the_same_way(line):
    assert line.carry(0, line.nodes[0].ask(3, 1, 77, 0.0, urgent=True)) == [
        (0, ProbeAnswer(3, 1, 77, True, 0))
    ]
    assert line.steps == [(0, 1), (1, 2), (2, 3), (3, 2), (2, 1), (1, 0)]


def test_it_brings_the_greatest_load_of_the_ports_it_leaves_by(line):
    line.loads = {(0, 1): 5, (1, 1): 9, (2, 1): 7, (2, 0): 100, (3, 0): 100}
    ((_, answer),) = line.carry(0, line.nodes[0].ask(3, 1, 77, 0.0, urgent=True))
    assert answer.load == 9


def test_where_there_is_no_way_on_the_answer_is_that(line):
    line.dead = {(2, 3)}
    assert line.carry(0, line.nodes[0].ask(3, 1, 77, 0.0, urgent=True)) == [
        (0, ProbeAnswer(3, 1, 77, False, 0))
    ]
    assert line.steps == [(0, 1), (1, 2), (2, 1), (1, 0)]


def test_the_source_itself_may_have_no_way(line):
    line.dead = {(0, 1)}
    assert line.carry(0, line.nodes[0].ask(3, 1, 77, 0.0, urgent=True)) == [
        (0, ProbeAnswer(3, 1, 77, False, 0))
    ]


def test_a_hop_that_dies_is_told_to_each_source_once(line):
    for source, destination in ((0, 3), (0, 3), (1, 3), (3, 0)):
        line.carry(source, line.nodes[source].ask(destination, 1, 1, 0.0, urgent=True))
    assert line.carry(2, line.nodes[2].hop_died(Hop(1, 3), 1.0)) == [
        (0, HopLost(2, 3, by=2)),
        (1, HopLost(2, 3, by=2)),
    ]
    assert line.carry(2, line.nodes[2].hop_died(Hop(1, 3), 1.0)) == []


def test_the_far_end_of_a_path_is_told_what_broke_elsewhere(line):
    assert line.carry(1, line.nodes[1].tell([1, 2, 3], (9, 8), 0.0)) == [(3, HopLost(9, 8, by=1))]
    assert line.steps == [(1, 2), (2, 3)]
    scarce = Line(news=1).nodes[1]
    assert scarce.tell([1, 2, 3], (9, 8), 0.0)
    assert not scarce.tell([1, 2, 3], (9, 8), 0.0)


def test_there_is_a_limit_to_bad_news():
    line = Line(news=1)
    for source in (0, 1):
        line.carry(source, line.nodes[source].ask(3, 1, 1, 0.0, urgent=True))
    assert line.carry(2, line.nodes[2].hop_died(Hop(1, 3), 1.0)) == [(0, HopLost(2, 3, by=2))]


def steps_of(line, source, now, destination=5):
    line.steps = []
    (answer,) = line.carry(source, line.nodes[source].ask(destination, 1, 1, now, urgent=True), now)
    assert answer == (source, ProbeAnswer(destination, 1, 1, not line.dead, 0))
    return len(line.steps)


def next_of_copy(destination, way, server):
    """The proxy's copy is 2 and 3, for whoever is not in it."""
    return (way, "beyond") if server in (2, 3) and destination not in (2, 3) else None


def test_only_who_enters_a_copy_remembers():
    line = Line(
        servers=7,
        stretch=lambda destination, way, server: way if server in (2, 3, 4) else None,
        table_s=0.5,
    )
    line.dead = {(4, 5)}
    assert steps_of(line, 0, 1.0, destination=6) == 8
    assert [bool(node._broken_until_s) for node in line.nodes] == [
        server == 2 for server in range(7)
    ]


def test_who_enters_a_copy_through_which_there_is_no_way_is_told_at_once():
    line = Line(servers=6, stretch=next_of_copy, table_s=0.5)
    line.dead = {(3, 4)}
    assert steps_of(line, 0, 1.0) == 6
    assert steps_of(line, 1, 1.1) == 2  # server 2 remembers
    assert steps_of(line, 0, 1.2, destination=4) == 4
    assert steps_of(line, 1, 1.6) == 4  # not for ever
    line.dead = set()
    assert steps_of(line, 1, 2.2) == 8


def test_what_is_broken_elsewhere_says_nothing_of_the_copy():
    for dead, steps in ({(4, 5)}, 8), ({(1, 2)}, 2):
        line = Line(servers=6, stretch=next_of_copy, table_s=0.5)
        line.dead = dead
        assert [steps_of(line, 0, now) for now in (1.0, 1.1)] == [steps, steps]


def test_there_is_no_table_unless_one_is_asked_for():
    line = Line(servers=6, stretch=next_of_copy)
    line.dead = {(3, 4)}
    assert [steps_of(line, 0, now) for now in (1.0, 1.1)] == [6, 6]


def test_who_has_not_asked_for_long_is_not_told(line):
    line.carry(0, line.nodes[0].ask(3, 1, 1, 0.0, urgent=False))
    assert line.carry(2, line.nodes[2].hop_died(Hop(1, 3), 11.0)) == []


@pytest.mark.parametrize(
    "message",
    [
        wire.Probe(0, 2, 0, 3, 1, 0, 0, wire.ASKING, 1, (0,)),  # not for us
        wire.Probe(0, 1, 0, 3, 1, 0, 0, wire.CONNECTED, 1, (0, 2, 3)),  # we are not on that path
        wire.Probe(0, 1, 0, 3, 1, 0, 0, wire.CONNECTED, 1, (3, 1, 2)),  # nor a neighbour of 3
        wire.HopDied(0, 1, 2, 3, (0, 2)),
    ],
)
def test_what_cannot_be_is_dropped(line, message):
    assert line.nodes[1].receive(message, 0.0) == []


def test_only_an_urgent_question_and_its_answer_wake_others(line):
    line.carry(0, line.nodes[0].ask(3, 1, 77, 0.0, urgent=False))
    assert line.woken == []
    line.steps.clear()
    line.carry(0, line.nodes[0].ask(3, 1, 77, 0.0, urgent=True))
    assert line.woken == line.steps


def test_what_wakes_a_neighbour_that_was_woken_just_now_costs_nothing():
    line = Line(wakes=2)
    for _ in range(10):
        line.carry(0, line.nodes[0].ask(3, 1, 77, 0.0, urgent=True))
    assert line.woken == line.steps


def test_beyond_the_budget_nothing_is_lost_but_nobody_is_woken():
    line = Line(wakes=2)
    for at in range(40):
        now = at * 0.1
        assert line.carry(0, line.nodes[0].ask(3, 1, 77, now, urgent=True), now) == [
            (0, ProbeAnswer(3, 1, 77, True, 0))
        ]
    assert len([step for step in line.steps if step[0] == 0]) == 40
    assert len([step for step in line.woken if step[0] == 0]) == 2 + 3  # at once, and one a second
