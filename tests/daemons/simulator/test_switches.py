"""Switch fabrics under random failures, in simulated time: what the switches' daemons end with is
all that there is."""

import random

import pytest

from weft.daemons.routing import shortest
from weft.daemons.simulator.simulator import Simulator
from weft.daemons.simulator.wires import Wire
from weft.topologies import build

FABRICS = ["fattree:k=4", "clos:n=2,r=3,m=3", "fattree:n=3,d=2", "complete:n=4,p=2"]
WAYS = 3  # of the hops of a route, that a packet may take


class Fate:
    """Links between switches, and switches, that fail and are repaired at random times."""

    def __init__(self, simulator, seed):
        self.simulator, self.draw = simulator, random.Random(seed)
        self.topology = simulator.topology
        self.between = [int(link) for link in (self.topology.level > 0).nonzero()[0]]
        self.dead_links, self.dead_nodes = set(), set()

    def strike(self, times):
        for _ in range(times):
            self.draw.choice(
                [self.fail, self.fail, self.fail, self.restore, self.kill, self.restart]
            )()
            self.simulator.run_for(self.draw.choice([0.0, 0.001, 0.02, 0.15]))

    def fail(self):
        link = self.draw.choice(self.between)
        ends = [int(self.topology.links[link][at]) for at in (0, 2)]
        how = self.draw.choice(["announced", "silent", "one way"])
        self.simulator.fail(
            link,
            silent=how != "announced",
            sender=self.draw.choice(ends) if how == "one way" else None,
        )
        self.dead_links.add(link)

    def restore(self):
        if self.dead_links:
            link = self.draw.choice(sorted(self.dead_links))
            self.simulator.restore(link)
            self.dead_links.discard(link)

    def kill(self):
        if len(self.dead_nodes) < 2:
            node = self.draw.randrange(self.topology.servers, self.topology.nodes)
            self.simulator.kill(node)
            self.dead_nodes.add(node)

    def restart(self):
        node = self.draw.choice(sorted(self.dead_nodes) or [self.topology.servers])
        self.simulator.restart(node)
        self.dead_nodes.discard(node)

    def graph(self):
        """Return the graph of nodes that hear each other, hosts included."""
        near = {node: set() for node in range(self.topology.nodes)}
        for link, (a, _, b, _) in enumerate(self.topology.links.tolist()):
            if link not in self.dead_links and not {a, b} & self.dead_nodes:
                near[a].add(b)
                near[b].add(a)
        return near


def check(simulator, graph):
    """Every pair that is joined is joined by shortest paths, whichever of its hops each switch
    takes."""
    hosts = range(simulator.topology.servers)
    for src in hosts:
        far = shortest.distances(graph, src)
        for dst in hosts:
            for choice in range(WAYS):
                walk = simulator.walk(src, dst, choice)
                if dst in far:
                    assert (walk.lost, len(walk.path) - 1) == ("", far[dst])
                else:
                    assert walk.lost
                    assert "loop" not in walk.lost


@pytest.mark.parametrize("spec", FABRICS)
@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 4))]
)
def test_hosts_that_are_joined_reach_each_other_after_any_failures(spec, seed):
    wire = Wire(jitter_s=0.002, duplicate_fraction=0.05, loss_fraction=0.02 if seed % 2 else 0.0)
    # Seven hellos may be missing where some are lost: what is tested is what becomes of failures,
    # not of false alarms.
    simulator = Simulator(
        build(spec), "bfs:dead=7" if seed % 2 else "bfs", wire=wire, random=random.Random(seed)
    )
    simulator.run_until_converged()
    fate = Fate(simulator, seed)
    fate.strike(10)
    simulator.run_until_quiet()
    check(simulator, fate.graph())
    for link in fate.dead_links:
        simulator.restore(link)
    for node in fate.dead_nodes:
        simulator.restart(node)
    simulator.run_until_converged(within_s=2.0)
    fate.dead_links, fate.dead_nodes = set(), set()
    check(simulator, fate.graph())


@pytest.mark.parametrize("silent", [False, True])
def test_nobody_sends_to_a_spine_what_it_cannot_take_down(silent):
    """c0 loses the way down to e1: e0, which has no dead link, leaves it for e1's hosts and keeps
    it for e2's."""
    topology = build("clos:n=2,r=3,m=3")
    simulator = Simulator(topology, "bfs")
    simulator.run_until_converged()
    simulator.run_for(1.0)
    at = simulator.now
    simulator.fail(topology.link("e1-c0"), silent=silent)
    simulator.run_until_quiet()
    node, layout = topology.naming.node, topology.naming.layout
    hops = {
        leaf: {hop.node for hop in simulator.routes(node("e0"))[layout.prefix((leaf,))]}
        for leaf in (1, 2)
    }
    assert hops == {1: {node("c1"), node("c2")}, 2: {node("c0"), node("c1"), node("c2")}}
    assert simulator.changed_s - at < (0.110 if silent else 0.010)


def test_a_failure_is_flooded_once():
    """Each switch passes the news of both ends on at each of its links at most once."""
    topology = build("fattree:k=4")
    simulator = Simulator(topology, "bfs")
    simulator.run_until_converged()
    simulator.run_for(1.0)
    heard = sum(
        simulator.status(node)["advertisements_heard"]
        for node in range(topology.servers, topology.nodes)
    )
    simulator.fail(topology.link("e0.0-a0.0"))
    simulator.run_for(0.020)
    after = sum(
        simulator.status(node)["advertisements_heard"]
        for node in range(topology.servers, topology.nodes)
    )
    directions = 2 * int((topology.level > 0).sum())
    assert 2 * (topology.switches - 1) <= after - heard <= 2 * directions
