"""Links that do to packets what others do not, and daemons that end while their nodes go on."""

import random

import pytest

from weft.daemons.core.actions import Send
from weft.daemons.simulator.simulator import SWEEP_S, Simulator
from weft.daemons.simulator.wires import MOST_REMEMBERED, EventQueue, Wire, Wires, flipped
from weft.topologies import build
from weft.topologies.core.address import Prefix

DCELL = build("dcell:n=3,k=1")
PAYLOAD = bytes(range(20))


class Said:
    """The messages of one node that arrive over a link of its own."""

    def __init__(self, altered, seed=1):
        self.heard, self.events = [], EventQueue()
        self.wires = Wires(DCELL, Wire(delay_s=0.001), random.Random(seed), self.events, self.hear)
        self.link = DCELL.link("h0-h3")
        self.wires.alter(self.link, altered)
        self.port = next(port for port, _, _, link in DCELL.ports(0) if link == self.link)

    def hear(self, listeners, sent):
        self.heard += [(self.events.now, listener.node, sent.payload) for listener in listeners]

    def say(self, count, payload=lambda number: PAYLOAD):
        for number in range(count):
            self.wires.send(0, Send(self.port, payload(number)))
            self.events.run_until(self.events.now + 1.0)
        return [payload for _, _, payload in self.heard]


def test_packets_of_an_altered_link_are_lost_and_no_others():
    said = Said(Wire(loss_fraction=1.0))
    assert said.say(20) == []
    crossbar = next(port for port, peer, _, _ in DCELL.ports(0) if DCELL.is_crossbar(peer))
    said.wires.send(0, Send(crossbar, PAYLOAD))
    said.events.run_until(100.0)
    assert [node for _, node, _ in said.heard] == [1, 2]


def test_of_what_is_changed_one_bit_is():
    heard = Said(Wire(corrupt_fraction=1.0)).say(50)
    assert len(heard) == 50
    ones = [
        bin(int.from_bytes(each, "big") ^ int.from_bytes(PAYLOAD, "big")).count("1")
        for each in heard
    ]
    assert set(ones) == {1}
    assert len(set(heard)) > 20
    assert flipped(b"", 0.5) == b""


def test_what_comes_twice_is_the_same_and_what_is_late_is_late():
    assert Said(Wire(duplicate_fraction=1.0)).say(5) == [PAYLOAD] * 10
    late = Said(Wire(delay_s=0.3, jitter_s=0.2))
    late.say(30)
    delays = [at - round(at - 0.4) for at, _, _ in late.heard]
    assert 0.3 <= min(delays) < max(delays) <= 0.5


def test_what_is_said_again_has_passed_before():
    said = [
        int(each)
        for each in Said(Wire(replay_fraction=1.0)).say(100, lambda number: b"%d" % number)
    ]
    new = [number for place, number in enumerate(said) if number not in said[:place]]
    assert new == [*range(100)]
    assert len(said) == 199, "one with each but the first"
    newest = [max(said[: place + 1]) for place in range(len(said))]
    assert all(most - number <= MOST_REMEMBERED for number, most in zip(said, newest, strict=True))


def test_a_link_that_is_cleared_is_like_all_others():
    said = Said(Wire(loss_fraction=1.0))
    said.wires.alter(said.link, None)
    assert said.say(3) == [PAYLOAD] * 3


def test_without_random_numbers_packets_may_be_late_and_nothing_else():
    simulator = Simulator(DCELL, "dr")
    simulator.alter(0, Wire(delay_s=0.010))
    simulator.run_until_converged()
    with pytest.raises(ValueError, match="need a random generator"):
        simulator.alter(0, Wire(corrupt_fraction=0.1))


def test_a_node_forwards_without_its_daemon_and_neighbours_leave_it():
    simulator = Simulator(DCELL, "bfs")
    simulator.run_until_converged()
    through = simulator.walk(1, 3).path
    assert through == (1, 0, 3)
    simulator.stop_daemon(0)
    assert simulator.walk(1, 3).path == through
    simulator.run_for(1.0)
    assert simulator.walk(1, 3).lost == ""
    assert 0 not in simulator.walk(1, 3).path
    assert simulator.walk(0, 3).path == (0, 3), "by the routes that it has"
    with pytest.raises(ValueError, match="h0 has no daemon"):
        simulator.protocol(0)
    simulator.start_daemon(0)
    simulator.run_until_converged(within_s=1.0)
    assert simulator.walk(1, 3).path == through


def test_a_daemon_takes_away_the_routes_that_it_found_and_did_not_set():
    simulator, stale = Simulator(DCELL, "dr"), Prefix(0x0A630000, 16)
    simulator.run_until_converged()
    node = simulator.node(0)
    simulator.stop_daemon(0)
    node.fib.set(stale, ())
    simulator.start_daemon(0)
    assert stale in simulator.routes(0)
    simulator.run_until_converged(within_s=0.5)
    simulator.run_for(0.1)
    assert stale not in simulator.routes(0)
    simulator.fail(0, silent=True)  # it cannot converge
    simulator.stop_daemon(0)
    node.fib.set(stale, ())
    simulator.start_daemon(0)
    simulator.run_for(SWEEP_S - 0.1)
    assert stale in simulator.routes(0)
    simulator.run_for(0.2)
    assert stale not in simulator.routes(0)


@pytest.mark.parametrize("scheme", ["dr", "bfs", "pr-gpi", "dfr"])
def test_daemons_that_start_one_after_the_other_lose_nobody(scheme):
    simulator = Simulator(DCELL, scheme)
    simulator.run_until_converged()
    for node in range(DCELL.servers):
        simulator.stop_daemon(node)
        simulator.start_daemon(node)
        simulator.run_until_converged(within_s=2.0)
        others = [server for server in range(DCELL.servers) if server != node]
        assert not any(simulator.walk(node, other).lost for other in others)


def test_a_clock_that_is_set_moves_what_lies_unread_no_further_than_it_can_be():
    simulator = Simulator(DCELL, "dr:hello_ms=100")
    simulator.run_until_converged()
    simulator.run_for(0.05)
    simulator.stall(0, 0.250)
    simulator.run_for(0.200)
    node = simulator.node(0)
    assert len(node.unread) > 2
    for by_s in (3600.0, -3600.0):
        simulator.step_clock(0, by_s)
        assert all(node.read_s <= when <= simulator.now for _, _, when in node.unread)
    simulator.run_for(1.0)
    assert simulator.status(0)["garbage"] == 0
    assert simulator.protocol(0).converged()


def test_a_replayed_or_changed_hello_is_over_soon():
    simulator = Simulator(DCELL, "bfs", random=random.Random(1))
    simulator.run_until_converged()
    for link in range(len(DCELL.links)):
        simulator.alter(link, Wire(corrupt_fraction=0.2, replay_fraction=0.5))
    simulator.run_for(2.0)
    assert sum(simulator.status(node)["garbage"] for node in range(DCELL.servers)) > 10
    for link in range(len(DCELL.links)):
        simulator.alter(link, None)
    simulator.run_until_converged(within_s=40.0)
