"""Layered routing by daemons in simulated time: the tables as made, and what becomes of them when
links die."""

import random

import pytest

from weft.daemons.fatpaths import scheme
from weft.daemons.fatpaths.layers import path
from weft.daemons.simulator.simulator import Simulator
from weft.topologies import build

SLIMFLY = build("slimfly:q=3,p=1")
SPEC = "fatpaths:layers=5"
LAYERS = range(5)
FIRST_OCTET = 64


@pytest.fixture
def fabric():
    simulator = Simulator(SLIMFLY, SPEC, random=random.Random(1))
    simulator.run_until_converged()
    simulator.run_for(0.5)
    return simulator


def pairs(topology=SLIMFLY):
    hosts = range(topology.servers)
    return [(src, dst) for src in hosts for dst in hosts if src != dst]


def walks(fabric):
    return {
        (layer, src, dst): fabric.walk(src, dst, first_octet=FIRST_OCTET + layer)
        for layer in LAYERS
        for src, dst in pairs()
    }


def router_links(fabric):
    return [
        link
        for link, (a, _, b, _) in enumerate(SLIMFLY.links.tolist())
        if min(a, b) >= SLIMFLY.servers
    ]


def lost_walks(fabric):
    return {where: way.lost for where, way in walks(fabric).items() if way.lost}


def test_every_layer_takes_its_own_path_and_each_route_is_set_once(fabric):
    options = scheme.SCHEMES[0].options({"layers": "5"})
    tables = scheme.tables(SLIMFLY, options)
    at = SLIMFLY.servers
    for (layer, src, dst), way in walks(fabric).items():
        edges = [SLIMFLY.ports(host)[0][1] - at for host in (src, dst)]
        assert way.path == (src, *(at + router for router in path(tables[layer], *edges)), dst)
    routes = 6 * 18 * 18  # of each switch: five layers and none, 17 others and a host
    # those without a layer come as links come up
    assert fabric.counters["routes_set"] <= routes + 3 * 18 * 17
    assert all(fabric.walk(src, dst).lost == "" for src, dst in pairs())


def test_status_says_how_the_layers_are(fabric):
    status = fabric.status(SLIMFLY.servers)
    assert [each["layer"] for each in status["layers"]] == list(LAYERS)
    assert all(
        (each["own"], each["detours"], each["lost"]) == (17, 0, 0) for each in status["layers"]
    )
    assert status["routes"] == 6 * 18
    dead = router_links(fabric)[0]
    a, _, b, _ = SLIMFLY.links[dead].tolist()
    fabric.fail(dead)
    fabric.run_until_quiet()
    for end in (a, b):
        layers = fabric.status(end)["layers"]
        assert all(layer["own"] + layer["detours"] == 17 for layer in layers)
        assert sum(layer["detours"] for layer in layers) > 0


@pytest.mark.slow
def test_an_announced_failure_is_healed_by_the_routers_at_the_link_alone(fabric):
    """Before any message can have arrived anywhere, wherever a neighbour has an intact path."""
    healed, broken = 0, 0
    for link in router_links(fabric)[::3]:
        fabric.fail(link)  # nothing more happens at this instant
        broken += len(lost_walks(fabric))
        healed += 1
        fabric.run_for(0.010)
        assert not lost_walks(fabric), SLIMFLY.link_name(link)
        fabric.restore(link)
        fabric.run_for(0.5)
    assert broken <= 0.03 * healed * len(LAYERS) * len(pairs())


def test_layers_come_back_with_the_link(fabric):
    before = {where: way.path for where, way in walks(fabric).items()}
    dead = router_links(fabric)[4]
    fabric.fail(dead)
    fabric.run_until_quiet()
    during = {where: way.path for where, way in walks(fabric).items()}
    assert not lost_walks(fabric)
    assert before != during
    fabric.restore(dead)
    fabric.run_until_quiet()
    assert {where: way.path for where, way in walks(fabric).items()} == before


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 5))]
)
def test_whatever_happens_what_can_be_reached_is_reached_in_every_layer(seed):
    draw = random.Random(seed)
    fabric = Simulator(SLIMFLY, SPEC, random=random.Random(seed))
    fabric.run_until_converged()
    dead = set()
    for _ in range(12):
        link = draw.choice(router_links(fabric))
        if link in dead:
            fabric.restore(link)
        else:
            fabric.fail(link, silent=draw.random() < 0.5)
        dead ^= {link}
        if draw.random() < 0.3:
            fabric.restart(draw.randrange(SLIMFLY.servers, SLIMFLY.nodes))
        fabric.run_for(draw.choice([0.0, 0.002, 0.05]))
    fabric.run_for(3.0)
    near = {node: set() for node in range(SLIMFLY.nodes)}
    for link, (a, _, b, _) in enumerate(SLIMFLY.links.tolist()):
        if link not in dead:
            near[a].add(b)
            near[b].add(a)
    for (layer, src, dst), way in walks(fabric).items():
        assert (way.lost == "") == reaches(near, src, dst), (layer, src, dst, way)


def reaches(near, src, dst):
    seen, todo = {src}, [src]
    while todo:
        for other in near[todo.pop()] - seen:
            seen.add(other)
            todo.append(other)
    return dst in seen


def test_links_that_are_dead_from_the_beginning_do_not_keep_layers_from_coming_up():
    fabric = Simulator(SLIMFLY, SPEC, random=random.Random(1))
    fabric.fail(router_links(fabric)[2])
    fabric.fail(router_links(fabric)[9], silent=True)
    fabric.run_for(3.0)
    assert not lost_walks(fabric)


def test_a_daemon_that_starts_again_sets_all_layers_again(fabric):
    switch = SLIMFLY.servers + 3
    before = dict(fabric.routes(switch))
    fabric.restart(switch)
    assert not fabric.routes(switch).keys() & before.keys() - {
        prefix for prefix in before if prefix.length == 32
    }
    fabric.run_until_converged()
    fabric.run_until_quiet()
    assert dict(fabric.routes(switch)) == before


def test_a_host_that_is_cut_off_is_refused_in_every_layer(fabric):
    link = next(at for at, (a, _, b, _) in enumerate(SLIMFLY.links.tolist()) if 4 in (a, b))
    fabric.fail(link)
    fabric.run_until_quiet()
    assert {where[2] for where in lost_walks(fabric) if where[1] != 4} == {4}
    fabric.restore(link)
    fabric.run_until_quiet()
    assert not lost_walks(fabric)
