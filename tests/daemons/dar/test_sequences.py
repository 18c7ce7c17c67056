"""Random sequences of arrivals, departures, failures and lost requests: no flow is lost or doubled
or goes round, and where a flow of 1/p finds room whatever the others do, no link has more than p
flows in the end."""

import random
from collections import Counter

import pytest

from tests.daemons.dar.dar_fabric import Fabric

NETWORKS = ["clos:n=2,r=3,m=3", "clos:n=3,r=3,m=3", "clos:n=4,r=4,m=4", "clos:n=3,r=4,m=5"]
OPTIONS = [
    "",
    "informed=1",
    "every=1",
    "cool=0",
    "start=hash",
    "start=limited",
    "swap=0",
    "key=dest",
    "p=1",
]
NOTICE_S = 0.4  # three hellos and a half, and what follows from that
STEPS = 8


class Sequence:
    """One network, and what is known to have happened to it."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        network = self.random.choice(NETWORKS)
        options = self.random.choice(OPTIONS)
        if options == "p=1":
            network = "clos:n=2,r=3,m=4"
        self.fabric = Fabric(network, f"{options},hello_ms=100".strip(","))
        self.loss_fraction = self.random.choice([0.0, 0.2, 0.6])
        self.fabric.filter_ears(lambda _, ear: self.random.random() >= self.loss_fraction)
        self.dead_links: set[tuple[int, int]] = set()
        self.dead_spines: set[int] = set()
        self.ports = 0
        self.has_room = False

    def run(self) -> None:
        for _ in range(STEPS):
            steps = [
                self.arrive,
                self.arrive,
                self.arrive,
                self.depart,
                self.fail,
                self.mend,
                self.kill,
                self.start,
            ]
            self.random.choice(steps)()
            self.fabric.simulator.run_for(self.random.choice([0.003, 0.02, 0.1]))
        self.fabric.simulator.run_for(NOTICE_S)
        self.check()

    def arrive(self) -> None:
        """Half a permutation's flows that there are not: each host sends one and hears one at
        most."""
        hosts = range(self.fabric.topology.servers)
        ends = [self.fabric.flows._live[flow] for flow in self.fabric.flows.live()]
        sources = sorted(set(hosts) - {src for src, _ in ends})
        sinks = sorted(set(hosts) - {dst for _, dst in ends})
        self.random.shuffle(sinks)
        for src, dst in zip(sources, sinks, strict=True):
            if src != dst and self.random.random() < 0.7:
                self.ports += 1
                self.fabric.flows.begin(src, dst, self.ports)

    def depart(self) -> None:
        for flow in self.fabric.flows.live():
            if self.random.random() < 0.4:
                self.fabric.flows.end(flow)

    def fail(self) -> None:
        leaf, spine = self.random.randrange(self.fabric.r), self.random.randrange(self.fabric.m)
        lost = self.dead_links | {(leaf, spine)}
        if self.connected(lost, self.dead_spines):
            self.fabric.simulator.fail(
                self.fabric.link(leaf, spine), silent=self.random.random() < 0.3
            )
            self.dead_links = lost

    def mend(self) -> None:
        if self.dead_links:
            leaf, spine = self.random.choice(sorted(self.dead_links))
            self.fabric.simulator.restore(self.fabric.link(leaf, spine))
            self.dead_links.discard((leaf, spine))

    def kill(self) -> None:
        spine = self.random.randrange(self.fabric.m)
        if self.connected(self.dead_links, self.dead_spines | {spine}):
            self.fabric.simulator.kill(self.fabric.spine(spine))
            self.dead_spines.add(spine)

    def start(self) -> None:
        if self.dead_spines:
            spine = self.random.choice(sorted(self.dead_spines))
            self.fabric.simulator.restart(self.fabric.spine(spine))
            self.dead_spines.discard(spine)

    def usable(self, one: int, other: int, dead_links=None, dead_spines=None) -> int:
        """Return the number of spines that join two leaves."""
        links = self.dead_links if dead_links is None else dead_links
        spines = self.dead_spines if dead_spines is None else dead_spines
        live = set(range(self.fabric.m)) - spines
        return sum((one, spine) not in links and (other, spine) not in links for spine in live)

    def connected(self, links, spines) -> bool:
        leaves = range(self.fabric.r)
        return all(self.usable(one, other, links, spines) > 0 for one in leaves for other in leaves)

    def finds_room(self, crossing) -> bool:
        """Return whether every flow finds room, whichever paths the others take."""
        sent, heard = Counter(one for one, _ in crossing), Counter(other for _, other in crossing)
        p = self.fabric.p
        return all(
            self.usable(one, other) > (sent[one] - 1) // p + (heard[other] - 1) // p
            for one, other in set(crossing)
        )

    def check(self) -> None:
        fabric, flows = self.fabric, self.fabric.flows
        ends = [flows._live[flow] for flow in flows.live()]
        crossing = [
            (src // fabric.n, dst // fabric.n)
            for src, dst in ends
            if src // fabric.n != dst // fabric.n
        ]
        for flow, (src, dst) in zip(flows.live(), ends, strict=True):
            walk = flows.path(flow)
            assert not walk.lost, walk
            assert len(walk.path) == (5 if src // fabric.n != dst // fabric.n else 3)
        self.has_room = self.finds_room(crossing)
        if self.has_room:
            fabric.settle(within_s=4.0)
            moves = fabric.total("moves"), fabric.total("replaced")
            fabric.simulator.run_for(0.1)
            assert (fabric.total("moves"), fabric.total("replaced")) == moves
            assert fabric.worst() <= fabric.p
        fabric.simulator.run_for(0.1)  # until those that ended do not count any more
        for way in ("up", "down"):
            told = {
                (leaf, name): count
                for leaf in range(fabric.r)
                for name, count in fabric.status(fabric.leaf(leaf))["flows"][way].items()
            }
            assert sum(told.values()) == len(crossing)
        for leaf in range(fabric.r):
            up = fabric.status(fabric.leaf(leaf))["flows"]["up"]
            loads = flows.loads()
            at = fabric.leaf(leaf)
            wired = {
                fabric.topology.naming.name(peer): count
                for (node, peer), count in loads.items()
                if node == at
            }
            if self.has_room:
                assert up == wired


@pytest.mark.slow
@pytest.mark.parametrize("part", range(20))
def test_flows_settle_whatever_happens(part):
    sequences = [Sequence(seed) for seed in range(1000 + 50 * part, 1050 + 50 * part)]
    for sequence in sequences:
        sequence.run()
    # where more than p flows a link would be an error
    assert sum(sequence.has_room for sequence in sequences) >= 30
