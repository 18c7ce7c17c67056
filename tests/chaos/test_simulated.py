"""Random campaigns in the simulator end as predicted, and planted faults are detected."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

import pytest

from tests.chaos import simulated_network
from tests.chaos.campaign import FaultCampaign, campaign_on, run_campaigns
from tests.chaos.faulty_network import CampaignError
from tests.chaos.schemes import eager
from tests.chaos.simulated_network import SimulatedNetwork
from tests.chaos.state_size import entries
from weft.daemons.control.hello import Neighbourhood
from weft.daemons.control.link_state import Database
from weft.daemons.proxy.path_selection import Paths
from weft.daemons.shortest_paths.scheme import Bfs
from weft.daemons.simulator import simulator

MANY, FEW = 40, 3


def simulator_campaign(spec: str, routing: str) -> type[FaultCampaign]:
    """Return the campaigns of `routing` on `spec` in the simulator."""
    title = "".join(
        part for part in f"{routing.partition(':')[0]}_on_{spec}" if part.isidentifier()
    )
    return campaign_on(title, partial(SimulatedNetwork, spec, routing))


@pytest.mark.slow
def test_every_campaign_ends_as_predicted(routing, spec, campaigns):
    run_campaigns(simulator_campaign(spec, routing), campaigns or MANY)


def test_a_few_campaigns_end_as_predicted(routing, spec):
    run_campaigns(simulator_campaign(spec, routing), FEW, derandomize=True, database=None)


def pr_gpi(network: SimulatedNetwork) -> None:
    """The new daemon of h8 hears nothing of h11, which hears h8.

    Old routes to h11 still work; until they are removed, sources leave that path and return to it.
    """
    network.wait(0.05)
    network.deafen(network.topology.link("h8-h11"), 8)
    network.stall([9], 0.4)
    network.wait(0.03)
    network.fail_link(network.topology.link("h1-h6"), silent=False)
    network.kill_daemon(7)
    network.start_daemon(8)


def tar(network: SimulatedNetwork) -> None:
    """Old routes serve until neighbours notice that h9 has restarted; they hold the link down."""
    link = network.topology.link("h9-w2")
    for dead_s, alive_s in ((0.0, 0.04), (0.0, 0.4), (0.2, 1.301)):
        network.fail_link(link, silent=False)
        network.wait(dead_s)
        network.restore_link(link)
        network.wait(alive_s)
    network.start_daemon(9)


TWICE_RIGHT = [
    (pr_gpi, "dcell:n=3,k=1", "pr-gpi", 20344),
    (tar, "ficonn:n=4,k=1", "tar", 20541),
]


@pytest.mark.parametrize(("faults", "spec", "name", "seed"), TWICE_RIGHT)
def test_a_network_may_differ_once_more(faults, spec, name, seed, monkeypatch):
    def judge():
        network = SimulatedNetwork(spec, eager(name), seed, pairs=12)
        faults(network)
        network.judge()

    judge()
    monkeypatch.setattr(simulated_network, "MOST_TIMES_RIGHT", 1)
    with pytest.raises(CampaignError, match="right 1 times"):
        judge()


def test_a_seed_repeats_a_campaign():
    ends = []
    for _ in range(2):
        network = SimulatedNetwork("dcell:n=3,k=1", eager("bfs"), 3)
        network.alter(range(12), jitter_s=0.02, corrupt_fraction=0.05)
        network.power_off(4)
        network.wait(1.0)
        network.judge()
        ends.append((network.settled_s, network.simulator.counters, network.now()))
    assert ends[0] == ends[1]


def test_routes_that_flap_are_detected(monkeypatch):
    network = SimulatedNetwork("dcell:n=3,k=1", eager("dr"), 0)
    calls = iter(range(10**6))
    monkeypatch.setattr(network, "difference", lambda _: "1 pair lost" if next(calls) % 2 else "")
    with pytest.raises(CampaignError, match="right 3 times: 1 pair lost"):
        network.settle("after the last fault")


def smallest(spec: str, routing: str, error: type[Exception], match: str = ".*") -> list[str]:
    """Return the rules of the smallest campaign that fails with `error`."""
    with pytest.raises(error, match=match) as failure:
        run_campaigns(simulator_campaign(spec, eager(routing)), 60, derandomize=True, database=None)
    steps = [line for line in failure.value.__notes__ if line.startswith("state.")]
    return [step.removeprefix("state.").partition("(")[0] for step in steps[1:-1]]


@pytest.mark.slow
def test_a_daemon_that_does_not_notice_silence_is_detected(monkeypatch):
    tick = Neighbourhood.tick

    def deaf(self, now):
        for neighbour in self.neighbours():
            neighbour.heard_s = now
        return tick(self, now)

    monkeypatch.setattr(Neighbourhood, "tick", deaf)
    assert len(smallest("dcell:n=3,k=1", "dr", CampaignError, "reached|lost")) == 1


@pytest.mark.slow
def test_a_daemon_that_ticks_without_end_is_detected(monkeypatch):
    monkeypatch.setattr(simulator, "MOST_TICKS", 500)
    monkeypatch.setattr(Neighbourhood, "_silence", lambda self, neighbour, why, now: [])
    assert len(smallest("dcell:n=3,k=1", "dr", RuntimeError, "wants to tick at once")) <= 2


@pytest.mark.slow
def test_a_database_that_keeps_the_first_of_two_advertisements_is_detected(monkeypatch):
    """A flipped bit makes two advertisements of one number differ, and neither wins."""
    learn = Database._learn

    def older(self, heard, port, now):
        known = self.entries.get(heard.origin)
        if known is None or heard.sequence > known.sequence:
            learn(self, heard, port, now)

    monkeypatch.setattr(Database, "_learn", older)
    failures = []
    for seed in range(8):
        network = SimulatedNetwork("ficonn:n=4,k=1", eager("dfr"), seed, pairs=1000)
        flip_bits(network)
        with suppress(CampaignError):
            network.judge()
            continue
        failures.append(seed)
    assert failures


def flip_bits(network: SimulatedNetwork) -> None:
    """Flip bits of advertisements while h2 restarts and links fail."""
    link = network.topology.link
    network.power_off(2)
    network.wait(0.5)
    network.power_on(2)
    network.wait(0.03)
    for name in ("h3-w0", "h10-w2", "h11-w2"):
        network.fail_link(link(name), silent=False)
    network.alter(range(len(network.topology.links)), corrupt_fraction=0.05)
    network.wait(0.25)
    network.fail_link(link("h6-h10"), silent=True)
    network.wait(0.05)
    network.restore_link(link("h6-h10"))


@pytest.mark.slow
def test_routes_that_do_not_change_a_crash_and_growing_state_are_detected(monkeypatch):
    spec = "complete:n=4,p=1"
    with monkeypatch.context() as patched:
        patched.setattr(Bfs, "_routes_now", lambda self: [])
        smallest(spec, "bfs", CampaignError, "converged|lost")
    with monkeypatch.context() as patched:
        patched.setattr(Bfs, "link_changed", lambda self, port, up, now: 1 / 0)
        assert len(smallest(spec, "bfs", ZeroDivisionError)) == 1
    receive = Bfs.receive

    def keep(self, payload, port, now):
        self.__dict__.setdefault("kept", []).append(payload)
        return receive(self, payload, port, now)

    monkeypatch.setattr(Bfs, "receive", keep)
    smallest(spec, "bfs", CampaignError, "entries")


def test_packets_that_loop_are_detected():
    """Two servers route towards each other for a third, under a scheme without loops."""
    network = SimulatedNetwork("dcell:n=3,k=1", eager("dr"), 0, pairs=1000)
    fabric = network.simulator
    for node, other in ((1, 2), (2, 1)):
        every_hop = [hop for hops in fabric.routes(node).values() for hop in hops]
        mate = next(hop for hop in every_hop if hop.node == other)
        for prefix, hops in list(fabric.routes(node).items()):
            if prefix.length < 32:
                fabric.node(node).fib.set(prefix, (mate,) if hops else ())
    with pytest.raises(CampaignError, match="loop at"):
        network.reached(0)


@pytest.mark.slow
def test_a_path_that_is_never_chosen_again_is_detected(monkeypatch):
    monkeypatch.setattr(Paths, "choose", lambda self, now: False)
    assert len(smallest("dcell:n=3,k=1", "pr-gpe", CampaignError, "lost")) <= 2


def test_each_entry_is_counted_once():
    class Machine:
        __module__ = "weft.daemons.test"
        __slots__ = ("a", "b")

    machine = Machine()
    machine.a = {1: [1, 2, 3], 2: b"four"}
    machine.b = machine.a
    assert entries(machine) == 2 + 3 + 4
