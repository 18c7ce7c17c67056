"""DFR's daemons: installed state sends packets where the pure function sends them."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from tests.daemons.simulator.trouble import befall
from weft.daemons.core.actions import SetRoute
from weft.daemons.core.registry import configure
from weft.daemons.core.registry import machine as make_machine
from weft.daemons.dfr import routing as dfr
from weft.daemons.dfr.routing import Dfr
from weft.daemons.routing.shortest import dead_channels
from weft.daemons.simulator.simulator import Simulator
from weft.daemons.simulator.wires import Wire
from weft.topologies import build
from weft.topologies.core.failures import fail_links

CASES = [
    ("dcell:n=4,k=1", 1),
    ("dcell:n=4,k=1", 0),
    ("beta-dcell:n=4,k=1", 0),
    pytest.param("ficonn:n=4,k=2", 1, marks=pytest.mark.slow),
]


def differences(simulator, settings, links, servers):
    """Return walks that differ from route() with `links` dead, each with the expected path."""
    topology = simulator.topology
    network = topology.naming.network
    down = dead_channels(fail_links(topology, list(links)), network)
    wrong = []
    for src in servers:
        for dst in servers:
            if src != dst:
                walk = simulator.walk(src, dst)
                path, arrives = dfr.route(network.rule, network.t, settings, down, src, dst)
                if walk.path != tuple(path) or bool(walk.lost) == arrives:
                    wrong.append((walk, path))
    return wrong


@pytest.mark.parametrize(("spec", "b"), CASES)
@pytest.mark.parametrize("nearest", [0, 1])
def test_every_packet_goes_where_dfr_sends_it_also_with_a_tenth_of_the_links_dead(spec, b, nearest):
    topology, settings = build(spec), Dfr(b=b, nearest=bool(nearest))
    simulator = Simulator(topology, f"dfr:b={b},nearest={nearest}")
    simulator.run_until_converged()
    servers = range(topology.servers)
    assert not differences(simulator, settings, [], servers)
    dead = random.Random(b).sample(range(len(topology.links)), len(topology.links) // 10)
    for link in dead:
        simulator.fail(link, silent=link % 2 == 0)
    simulator.run_until_quiet()
    assert not differences(simulator, settings, dead, servers)
    assert (
        any(simulator.status(server)["rerouted"] for server in servers)
        or b == topology.naming.network.k
    )
    for link in dead:
        simulator.restore(link)
    simulator.run_until_converged(within_s=0.5)
    assert not differences(simulator, settings, [], servers)


def test_a_server_knows_of_its_own_sub_network_and_no_more():
    simulator = Simulator(build("ficonn:n=4,k=2"), "dfr")
    simulator.run_until_converged()
    assert {simulator.status(server)["origins"] for server in range(48)} == {12}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.slow
def test_after_random_failures_and_lost_messages_packets_go_where_dfr_sends_them_and_never_in_circles(  # noqa: E501
    seed,
):
    topology, settings = build("ficonn:n=4,k=2"), Dfr()
    draw = random.Random(seed)
    simulator = Simulator(
        topology, "dfr", wire=Wire(loss_fraction=0.01, jitter_s=0.001), random=random.Random(seed)
    )
    simulator.run_for(0.5)
    dead = set()
    for _ in range(10):
        befall(simulator, draw, dead)
        simulator.run_for(draw.choice([0.001, 0.02, 0.1]))
        for _ in range(20):
            assert (
                len(simulator.walk(*draw.sample(range(topology.servers), 2)).path) <= settings.ttl
            )
    # A hello may be lost three times in a row: look until a moment without that.
    for _ in range(20):
        simulator.run_for(0.3)
        if not (wrong := differences(simulator, settings, dead, range(0, 48, 3))):
            break
    assert not wrong


def test_a_server_that_died_is_gone_around():
    topology = build("dcell:n=4,k=1")
    simulator = Simulator(topology, "dfr:b=0")
    simulator.run_until_converged()
    through = simulator.walk(1, 7).path[1]
    simulator.kill(through)
    simulator.run_until_quiet()
    walk = simulator.walk(1, 7)
    assert (walk.lost, through in walk.path) == ("", False)


def test_a_failure_is_gone_around_a_few_ms_after_it_was_announced():
    topology = build("dcell:n=4,k=1")
    for b in (0, 1):
        simulator = Simulator(topology, f"dfr:b={b}")
        simulator.run_until_converged()
        simulator.run_until(1.0)
        path = simulator.walk(0, 19).path
        a, b = next((a, b) for a, b in pairwise(path) if a // 4 != b // 4)
        simulator.fail(topology.link_between(a, b))
        simulator.run_until(1.010)
        assert simulator.walk(0, 19).lost == ""


def test_nothing_is_set_twice():
    simulator = Simulator(build("dcell:n=4,k=1"), "dfr:b=0")
    simulator.run_until_converged()
    changed_s = simulator.changed_s
    simulator.run_for(1.0)
    assert simulator.changed_s == changed_s


@pytest.mark.parametrize("scheme", ["dfr", "dfr:b=0", "tar"])
def test_a_daemon_that_starts_leaves_routes_alone_until_it_knows_better(scheme):
    machine = make_machine(configure(build("ficonn:n=4,k=1"), scheme)[0], 1)
    actions = [*machine.start(0.0)]
    while machine.deadline < 0.025:
        actions += machine.tick(machine.deadline)
    assert not [action for action in actions if isinstance(action, SetRoute)]


@pytest.mark.parametrize(
    ("spec", "scheme", "message"),
    [
        (
            "dcell:n=4,k=1",
            "dfr:b=2",
            "scheme dfr: b must be at most 1, the levels of the network, got 2",
        ),
        ("dcell:n=8,k=2", "dfr", "take fewer retries than 3"),
        ("fattree:k=4", "dfr", "scheme dfr runs on server-centric networks"),
    ],
)
def test_an_impossible_configuration_is_refused(spec, scheme, message):
    with pytest.raises(ValueError, match=message):
        configure(build(spec), scheme)
