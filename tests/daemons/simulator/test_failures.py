"""Whole networks under failures: what the daemons end with is what the graph predicts."""

import random
from dataclasses import replace
from functools import partial
from itertools import pairwise

import pytest

from weft.daemons.routing import dr, shortest
from weft.daemons.simulator.simulator import Simulator
from weft.daemons.simulator.wires import Wire
from weft.topologies import build

SERVER_CENTRIC = [
    "dcell:n=4,k=1",
    "dcell:n=3,k=1",
    "beta-dcell:n=4,k=1",
    "ficonn:n=4,k=1",
    "ficonn:n=4,k=2",
]


def links_of_hop(topology, a, b):
    """The links that a hop from server `a` to server `b` crosses: one, or two where a crossbar is
    between."""
    for _, peer, _, link in topology.ports(a):
        if peer == b:
            return {link}
    (crossbar,) = {peer for _, peer, _, _ in topology.ports(a) if topology.is_crossbar(peer)}
    return {topology.link_between(a, crossbar), topology.link_between(b, crossbar)}


def dr_loses(topology, src, dst, dead_links, dead_nodes):
    network = topology.naming.network
    route = dr.route(network.rule, network.t, src, dst)
    crossed = set().union(*(links_of_hop(topology, a, b) for a, b in pairwise(route)))
    return bool(crossed & dead_links or set(route) & dead_nodes)


def live_graph(topology, dead_links, dead_nodes):
    failed = topology.failed.copy()
    failed[list(dead_links)] = True
    adjacency = replace(topology, failed=failed).adjacency
    return {
        node: ()
        if node in dead_nodes
        else tuple(other for other in near if other not in dead_nodes)
        for node, near in adjacency.items()
    }


def live_pairs(topology, dead_nodes):
    servers = [server for server in range(topology.servers) if server not in dead_nodes]
    return [(src, dst) for src in servers for dst in servers if src != dst]


class Fate:
    """Things that go wrong with `simulator`, and sometimes right again, at random times."""

    def __init__(self, simulator, seed):
        self.simulator, self.draw = simulator, random.Random(seed)
        self.dead_links, self.dead_nodes = set(), set()

    def strike(self, times):
        for _ in range(times):
            self.draw.choice(
                [self.fail, self.fail, self.fail, self.restore, self.kill, self.restart]
            )()
            self.simulator.run_for(self.draw.choice([0.0, 0.001, 0.02, 0.15]))

    def fail(self):
        topology = self.simulator.topology
        links = [link for link in range(len(topology.links)) if link not in self.dead_links]
        link = self.draw.choice(links)
        how = self.draw.randrange(4)
        if how < 2:
            self.simulator.fail(link, silent=bool(how))
        else:
            self.simulator.fail(link, silent=True, sender=int(topology.links[link][2 * (how - 2)]))
        self.dead_links.add(link)

    def restore(self):
        if self.dead_links:
            link = self.draw.choice(sorted(self.dead_links))
            self.simulator.restore(link)
            self.dead_links.discard(link)

    def kill(self):
        if len(self.dead_nodes) < 2:
            node = self.draw.randrange(self.simulator.topology.servers)
            self.simulator.kill(node)
            self.dead_nodes.add(node)

    def restart(self):
        node = self.draw.choice(sorted(self.dead_nodes) or [0])
        self.simulator.restart(node)
        self.dead_nodes.discard(node)


def simulate_fate(topology, scheme, seed, times=8):
    simulator = Simulator(
        topology,
        scheme,
        wire=Wire(jitter_s=0.002, duplicate_fraction=0.05),
        random=random.Random(seed),
    )
    simulator.run_until_converged()
    fate = Fate(simulator, seed)
    fate.strike(times)
    simulator.run_until_quiet()
    return simulator, fate


@pytest.mark.parametrize("spec", SERVER_CENTRIC)
@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 3))]
)
def test_dr_loses_exactly_the_pairs_whose_route_crosses_what_is_dead(spec, seed):
    topology = build(spec)
    simulator, fate = simulate_fate(topology, "dr", seed)
    for src, dst in live_pairs(topology, fate.dead_nodes):
        walk = simulator.walk(src, dst)
        assert bool(walk.lost) == dr_loses(topology, src, dst, fate.dead_links, fate.dead_nodes), (
            walk
        )
        assert walk.lost[:8] in ("", "no route")
    for link in fate.dead_links:
        simulator.restore(link)
    for node in fate.dead_nodes:
        simulator.restart(node)
    simulator.run_until_converged(within_s=0.2)
    assert not any(simulator.walk(src, dst).lost for src, dst in live_pairs(topology, set()))


@pytest.mark.parametrize("spec", SERVER_CENTRIC)
@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 3))]
)
def test_bfs_joins_exactly_the_pairs_that_are_joined_by_shortest_paths(spec, seed):
    topology = build(spec)
    simulator, fate = simulate_fate(topology, "bfs", seed)
    graph = live_graph(topology, fate.dead_links, fate.dead_nodes)
    far = {src: shortest.distances(graph, src) for src in graph}
    for choice in range(2):
        for src, dst in live_pairs(topology, fate.dead_nodes):
            walk = simulator.walk(src, dst, choice)
            if dst in far[src]:
                assert (walk.lost, len(walk.path) - 1) == ("", far[src][dst])
            else:
                assert walk.lost.startswith("no route"), walk


@pytest.mark.parametrize("scheme", ["bfs", "ecmp"])
def test_a_fat_tree_loses_a_host_with_its_link_and_nothing_else(scheme):
    topology = build("fattree:k=4")
    simulator = Simulator(topology, scheme)
    simulator.run_until_converged()
    assert not any(
        simulator.walk(*pair, choice).lost
        for pair in live_pairs(topology, set())
        for choice in range(4)
    )
    host = topology.naming.node("s0.0.1")
    (_, _, _, link) = topology.ports(host)[0]
    simulator.fail(link)
    simulator.run_until_quiet()
    for pair in live_pairs(topology, set()):
        lost = [simulator.walk(*pair, choice).lost for choice in range(4)]
        assert all(lost) == any(lost) == (host in pair)


@pytest.mark.parametrize("silent", [False, True])
def test_a_fat_tree_with_a_dead_link_between_switches(silent):
    topology = build("fattree:k=4")
    simulator = Simulator(topology, "ecmp")
    simulator.run_until_converged()
    simulator.fail(topology.link("e0.0-a0.0"), silent=silent)
    simulator.run_until_quiet()
    for src, dst in live_pairs(topology, set()):
        assert not any(simulator.walk(src, dst, choice).lost for choice in range(4)), (
            "everybody knows"
        )


@pytest.mark.parametrize("seed", range(3))
def test_link_state_is_the_same_everywhere_under_a_third_of_loss(seed):
    topology = build("dcell:n=3,k=1")
    # a dead interval of 40 hellos, so that loss is seen by link state and not as deaths of
    # neighbours
    simulator = Simulator(
        topology,
        "bfs:dead=40",
        wire=Wire(loss_fraction=0.3, jitter_s=0.001),
        random=random.Random(seed),
    )
    simulator.run_until_converged(within_s=3.0)
    simulator.fail(0)
    simulator.run_for(2.0)
    assert len({simulator.status(server)["digest"] for server in range(topology.servers)}) == 1
    assert {simulator.status(server)["origins"] for server in range(topology.servers)} == {
        topology.servers
    }


def test_a_partition_heals():
    topology = build("dcell:n=3,k=1")
    simulator = Simulator(topology, "bfs")
    simulator.run_until_converged()
    across = [
        link
        for link in range(len(topology.links))
        if topology.level[link] and topology.links[link][0] < 3
    ]
    for link in across:
        simulator.fail(link)
    simulator.run_until_quiet()
    lost = {pair for pair in live_pairs(topology, set()) if simulator.walk(*pair).lost}
    assert lost == {(a, b) for a, b in live_pairs(topology, set()) if (a < 3) != (b < 3)}
    for link in across:
        simulator.restore(link)
    simulator.run_until_converged(within_s=0.2)
    assert not any(simulator.walk(*pair).lost for pair in live_pairs(topology, set()))


@pytest.mark.parametrize("scheme", ["dfr", "tar"])
@pytest.mark.slow
def test_packets_leave_a_link_that_flaps_in_silence_after_a_few_times(scheme):
    """It is dead for 0.2 s in every 0.5 s.  Without damping, packets return to it each time."""
    topology = build("ficonn:n=4,k=2")
    link, pairs = topology.link("h5-h25"), [(1, 25), (32, 0), (4, 33), (5, 31)]
    lost = {}
    for damp_ms in (0, 500):
        simulator = Simulator(topology, f"{scheme}:damp_ms={damp_ms}")
        simulator.run_until_converged()
        counts = []
        for _ in range(12):
            counts.append(0)
            for change in (
                partial(simulator.fail, link, silent=True),
                partial(simulator.restore, link),
            ):
                change()
                for _ in range(20 if change.keywords else 30):
                    counts[-1] += sum(bool(simulator.send(*pair).lost) for pair in pairs)
                    simulator.run_for(0.01)
        lost[damp_ms] = counts
    assert sum(lost[500][1:]) < sum(lost[0][1:]) / 2
    assert sum(lost[500][4:]) < sum(lost[0][4:]) / 3
