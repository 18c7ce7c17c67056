"""Random campaigns in the simulator end as predicted, and planted faults are detected."""

import pytest

from weft.daemons.control.hello import Neighbourhood
from weft.daemons.control.link_state import Database
from weft.daemons.core import registry
from weft.daemons.proxy.path_selection import Paths
from weft.daemons.shortest_paths.daemon import Bfs
from weft.experiments.chaos import simulated
from weft.experiments.chaos.campaign import Campaign, parse
from weft.experiments.chaos.drawing import campaign
from weft.experiments.chaos.prediction import machines
from weft.experiments.chaos.shrinking import shrink
from weft.experiments.chaos.simulated import simulate
from weft.experiments.chaos.state_size import entries
from weft.experiments.demo.chaos import NETWORKS, eager
from weft.topologies import build

CAMPAIGNS = 40


def network_for(name):
    """The smallest of NETWORKS that the scheme `name` can route."""
    for spec in sorted(NETWORKS, key=lambda spec: build(spec).nodes):
        try:
            registry.checked(build(spec), eager(name))
        except ValueError:
            continue
        return spec
    raise ValueError(f"no network for {name}")


@pytest.mark.parametrize("name", machines())
@pytest.mark.slow
def test_every_campaign_ends_as_predicted(name):
    for seed in range(CAMPAIGNS):
        one = campaign(network_for(name), eager(name), seed, steps=3, pairs=20)
        assert not simulate(one), one.command("fabric")


@pytest.mark.parametrize("name", machines())
def test_a_few_campaigns_end_as_predicted(name):
    for seed in range(2000, 2003):
        one = campaign(network_for(name), eager(name), seed, steps=5, pairs=20)
        assert not simulate(one), one.command("fabric")


def test_a_seed_repeats_a_campaign():
    one = campaign("dcell:n=3,k=1", eager("bfs"), 3, steps=10)
    told = []
    for _ in range(2):
        run = simulated.SimulatedCampaign(one)
        assert not run.run()
        told.append((run.settled_s, run.simulator.counters, run.simulator.now))
    assert told[0] == told[1]


HARMLESS = {
    # h8 has no daemon, and h11, which hears nobody, for 5 s the routes that its last one set.
    "dcell:n=3,k=1 dfr 23108": "0:start:h10+0:silent:h11-w3+0:kill:h8+0.0032:start:h11",
    # h8's new daemon hears nothing of h11, which hears h8: what still goes there by routes of
    # before arrives, and until these are taken away sources leave that path and take it again.
    "dcell:n=3,k=1 pr-gpi 20344": "0.05:deaf:h8-h11:h8+0.05:stop:h9:400+0.08:down:h1-h6+0.08:kill:h7+0.08:start:h8",  # noqa: E501
    # The routes of before serve until neighbours notice that h9 has started again, by a link that
    # they damp for 2 s.
    "ficonn:n=4,k=1 tar 20541": "0:down:h9-w2+0:up:h9-w2+0.04:down:h9-w2+0.04:up:h9-w2+0.44:down:h9-w2+0.64:up:h9-w2"  # noqa: E501
    "+1.941:start:h9",
}


@pytest.mark.parametrize("which", HARMLESS)
def test_what_is_right_may_be_wrong_once_more_before_it_stays_right(which):
    spec, name, seed = which.split()
    one = Campaign(spec, eager(name), parse(HARMLESS[which], build(spec)), int(seed), pairs=12)
    assert not simulate(one), one.command("fabric")


def test_routes_that_flap_are_found(monkeypatch):
    one = simulated.SimulatedCampaign(Campaign("dcell:n=3,k=1", eager("dr"), ()))
    calls = iter(range(10**6))
    monkeypatch.setattr(
        one, "_unlike", lambda wanted, unsure: "" if next(calls) % 2 == 0 else "1 pair lost"
    )
    with pytest.raises(simulated.Failed, match="right 3 times: 1 pair lost"):
        one.settle(set(), "what is broken")


def fails(one, kind):
    return any(finding.kind == kind for finding in simulate(one))


def found(name, spec, count=40, steps=8):
    """The first campaign that fails, made smaller, and what is found then."""
    for seed in range(count):
        one = campaign(spec, eager(name), seed, steps=steps, pairs=20)
        if findings := simulate(one):
            smaller = shrink(one, lambda each, kind=findings[0].kind: fails(each, kind))
            return smaller, simulate(smaller)[0]
    return None, None


@pytest.mark.slow
def test_a_daemon_that_does_not_notice_silence_is_found_and_shrunk_to_one_event(monkeypatch):
    tick = Neighbourhood.tick

    def deaf(self, now):
        for neighbour in self.neighbours():
            neighbour.heard_s = now
        return tick(self, now)

    monkeypatch.setattr(Neighbourhood, "tick", deaf)
    smaller, finding = found("dr", "dcell:n=3,k=1")
    assert (len(smaller.events), finding.kind) == (1, "unlike")


def test_a_daemon_that_ticks_on_and_on_at_one_instant_is_found(monkeypatch):
    monkeypatch.setattr(Neighbourhood, "_silence", lambda self, neighbour, why, now: [])
    smaller, finding = found("dr", "dcell:n=3,k=1")
    assert (len(smaller.events), finding.kind) == (1, "crash")
    assert "wants to tick at once" in str(finding)


@pytest.mark.slow
def test_a_database_that_believes_the_first_of_two_is_found(monkeypatch):
    """Of two advertisements with one number, which a flipped bit made differ, neither wins."""
    learn = Database._learn

    def older(self, heard, port, now):
        held = self.entries.get(heard.origin)
        if held is None or heard.sequence > held.sequence:
            learn(self, heard, port, now)

    monkeypatch.setattr(Database, "_learn", older)
    one = parse(
        "0.002:die:h2+0.502:live:h2+0.532:down:h3-w0+0.5322:down:h10-w2+0.5322:down:h11-w2+0.5322:corrupt:all:5"
        "+0.7822:silent:h6-h10+0.8322:up:h6-h10",
        build("ficonn:n=4,k=1"),
    )
    kinds = {
        f.kind
        for seed in range(8)
        for f in simulate(Campaign("ficonn:n=4,k=1", eager("dfr"), one, seed))
    }
    assert kinds == {"unlike"}


@pytest.mark.slow
def test_a_loop_that_stays_a_crash_and_state_that_grows_are_found(monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(Bfs, "_routes_now", lambda self: [])
        assert found("bfs", "complete:n=4,p=1", count=1)[1].kind in ("converged", "unlike")
    with monkeypatch.context() as patched:
        patched.setattr(Bfs, "link_changed", lambda self, port, up, now: 1 / 0)
        smaller, finding = found("bfs", "complete:n=4,p=1")
        assert (len(smaller.events), finding.kind) == (1, "crash")
        assert "ZeroDivisionError" in str(finding)
    with monkeypatch.context() as patched:
        receive = Bfs.receive

        def keeping(self, payload, port, now):
            self.__dict__.setdefault("kept", []).append(payload)
            return receive(self, payload, port, now)

        patched.setattr(Bfs, "receive", keeping)
        assert found("bfs", "complete:n=4,p=1", steps=12)[1].kind == "state"


def test_packets_that_go_round_are_found(monkeypatch):
    """Two servers that lead what is for a third to each other, under a scheme that has no loops."""
    one = simulated.SimulatedCampaign(Campaign("dcell:n=3,k=1", eager("dr"), ()))
    one.converge()
    for node, other in ((1, 2), (2, 1)):
        for prefix, hops in list(one.simulator.routes(node).items()):
            if prefix.length < 32:
                mate = next(
                    hop
                    for hops in one.simulator.routes(node).values()
                    for hop in hops
                    if hop.node == other
                )
                one.simulator.node(node).fib.set(prefix, (mate,) if hops else ())
    with pytest.raises(simulated.Failed, match="loop at"):
        one.look(0)


@pytest.mark.slow
def test_a_path_that_is_never_chosen_again_is_found(monkeypatch):
    monkeypatch.setattr(Paths, "choose", lambda self, now: False)
    smaller, finding = found("pr-gpe", "dcell:n=3,k=1")
    assert finding.kind == "unlike"
    assert len(smaller.events) <= 2


def test_entries_count_what_is_reached_once():
    class Machine:
        __module__ = "weft.daemons.test"
        __slots__ = ("a", "b")

    machine = Machine()
    machine.a = {1: [1, 2, 3], 2: b"four"}
    machine.b = machine.a
    assert entries(machine) == 2 + 3 + 4
