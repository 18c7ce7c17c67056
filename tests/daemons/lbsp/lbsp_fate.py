"""Random failures of a fat-tree that LBSP routes, and the pairs that are unreachable afterwards."""

import random
from dataclasses import replace

from weft.daemons.core.node_config import routers
from weft.daemons.routing.shortest import distances
from weft.daemons.simulator.simulator import Simulator
from weft.daemons.simulator.wires import Wire

SPEC = "lbsp:lifetime_ms=300,patience_ms=150"
MOST_DEAD_LINKS, MOST_DEAD_SWITCHES = 12, 3


class Fate:
    """Things that go wrong with a simulator, and sometimes right again, at random times, while
    packets are lost.

    A daemon that dies is one that is stalled for longer than its neighbours wait: its switch goes
    on forwarding.
    """

    def __init__(self, topology, seed, loss_fraction=0.02):
        self.draw = random.Random(seed)
        self.wire = Wire(loss_fraction=loss_fraction, jitter_s=200e-6, duplicate_fraction=0.02)
        self.simulator = Simulator(topology, SPEC, wire=self.wire, random=self.draw)
        self.simulator.run_for(0.3)
        self.dead_links, self.dead_switches = set(), set()

    def strike(self, times):
        acts = [
            self.fail,
            self.fail,
            self.fail,
            self.restore,
            self.restore,
            self.kill,
            self.restart,
            self.stall,
        ]
        for _ in range(times):
            self.draw.choice(acts)()
            self.simulator.run_for(self.draw.choice([0.0, 0.001, 0.02, 0.1]))

    def fail(self):
        links = [
            link
            for link in range(len(self.simulator.topology.links))
            if self.between_switches(link)
        ]
        link = self.draw.choice(links)
        if link in self.dead_links or len(self.dead_links) >= MOST_DEAD_LINKS:
            return self.restore()
        ends = self.simulator.topology.links[link][[0, 2]].tolist()
        how = self.draw.randrange(4)
        sender = ends[how - 2] if how > 1 else None
        self.simulator.fail(link, silent=how > 0, sender=sender)
        self.dead_links.add(link)

    def between_switches(self, link):
        return self.simulator.topology.level[link] > 0

    def restore(self):
        if self.dead_links:
            link = self.draw.choice(sorted(self.dead_links))
            self.simulator.restore(link)
            self.dead_links.discard(link)

    def a_switch(self):
        return self.draw.choice(routers(self.simulator.topology))

    def kill(self):
        if len(self.dead_switches) >= MOST_DEAD_SWITCHES:
            return self.restart()
        switch = self.a_switch()
        self.simulator.kill(switch)
        self.dead_switches.add(switch)

    def restart(self):
        switch = (
            self.draw.choice(sorted(self.dead_switches)) if self.dead_switches else self.a_switch()
        )
        self.simulator.restart(switch)
        self.dead_switches.discard(switch)

    def stall(self):
        if (switch := self.a_switch()) not in self.dead_switches:
            self.simulator.stall(switch, self.draw.choice([0.02, 0.2]))

    def settle(self):
        """Until the last daemon runs again, what was lost is noticed, and what nobody says any more
        is forgotten.

        No packet is lost meanwhile: three hellos in a row would be a failure that is noticed at
        this very moment.
        """
        self.simulator._wire = replace(self.wire, loss_fraction=0.0)
        self.simulator.run_for(0.2 + 0.15 + 0.3 + 0.15)
        self.simulator._wire = self.wire

    def unreached(self):
        return unreached_pairs(self.simulator, self.dead_links, self.dead_switches)


def unreached_pairs(simulator, dead_links, dead_switches):
    """Pairs of edge switches that an up-down path joins, while not every way that packets may take
    ends there."""
    topology = simulator.topology
    layout, servers = topology.naming.layout, topology.servers
    alive = living(topology, dead_links, dead_switches)
    edges = [
        switch
        for switch in routers(topology)
        if topology.naming.tier(switch) == 1 and switch not in dead_switches
    ]
    pairs = []
    for dst in edges:
        host = next(peer for _, peer, _, _ in topology.ports(dst) if peer < servers)
        address = layout.address(layout.label_of(host))
        onward = {
            switch: {hop.node for hop in best(simulator.routes(switch), address)}
            for switch in alive
        }
        joined = up_down(topology, alive, dst) - {dst}
        pairs += [
            (src, dst) for src in edges if src in joined and not arrives(src, dst, onward, alive)
        ]
    return [(topology.naming.name(src), topology.naming.name(dst)) for src, dst in pairs]


def living(topology, dead_links, dead_switches):
    """For each switch with power, the neighbours that it has."""
    reached = {switch: set() for switch in routers(topology) if switch not in dead_switches}
    for link, (a, _, b, _) in enumerate(topology.links.tolist()):
        if topology.level[link] and link not in dead_links and a in reached and b in reached:
            reached[a].add(b)
            reached[b].add(a)
    return reached


def best(routes, address):
    prefix = max(
        (prefix for prefix in routes if prefix.holds(address)),
        key=lambda one: one.length,
        default=None,
    )
    return routes[prefix] if prefix else ()


def up_down(topology, alive, dst):
    """The edge switches from which a path first leads only up and then only down to `dst`: those
    from which what is above `dst` can be climbed to."""
    tier = topology.naming.tier
    rising = {
        switch: tuple(other for other in near if tier(other) > tier(switch))
        for switch, near in alive.items()
    }
    above = distances(rising, dst).keys()
    return {
        switch for switch in alive if tier(switch) == 1 and above & distances(rising, switch).keys()
    }


def arrives(src, dst, onward, alive):
    """Return whether every path that a packet may take from `src` ends at `dst`."""
    state = {}

    def follow(switch):
        if switch == dst:
            return True
        if switch in state:
            return state[switch]  # False while it is on the way: a loop
        state[switch] = False
        hops = onward[switch]
        state[switch] = bool(hops) and all(hop in alive[switch] and follow(hop) for hop in hops)
        return state[switch]

    return follow(src)
