"""The slotted model of CLOS(n,r,m) written a second time, for clarity alone: packets are objects in
lists, and what is known of them is found by looking at all of them.  Flows are moved by
daemons/dar/iteration.py, which has its own tests.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from weft.daemons.dar.iteration import (
    COUNTERS,
    DEST,
    NOWHERE,
    ClosFlows,
    draw,
    first_spine,
    invert,
    move,
    request,
)
from weft.daemons.routing.selection import below, drill, shortest
from weft.experiments.dar.slotted_control import (
    COUNT,
    D_MOD_K,
    DRILL,
    GIVEN,
    HASH,
    QUEUE,
    RANDOM,
    SpineScheme,
)

Link = tuple[str, int, int]


@dataclass
class Packet:
    """via: the link over which it came to where it waits."""

    source: int
    message: int
    number: int
    destination: int
    born: int
    via: Link


@dataclass
class Request:
    """An EAR under way to the leaf of `host`."""

    host: int
    message: int
    spine: int
    arrival: int


@dataclass
class SlowClos:
    """Runs as slotted_model.many_slots() does."""

    n: int
    r: int
    m: int
    room: int
    way: SpineScheme
    state: list[int]
    given: list[list[int]]
    queues: dict[Link, list[Packet]] = field(default_factory=dict)
    arrived: list[tuple[int, Packet]] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    wanted: set[int] = field(default_factory=set)
    asked: dict[tuple[int, int], int] = field(default_factory=dict)
    reroutes: list[tuple[int, int]] = field(default_factory=list)  # slot, flows
    sent: int = 0
    stale: int = 0
    resting: int = 0

    def __post_init__(self) -> None:
        n, r, m = self.n, self.r, self.m
        for leaf in range(r):
            self.queues |= {("up", leaf, spine): [] for spine in range(m)}
        for leaf in range(r):
            self.queues |= {("down", leaf, spine): [] for spine in range(m)}
        self.queues |= {("to", host, 0): [] for host in range(n * r)}
        sizes = (n * r, r * m, r * m, (m + 1) * r, r * m, n * r)
        self.flows = ClosFlows(
            n, r, m, list(range(n * r)), list(range(n * r)), *([0] * size for size in sizes)
        )
        self.flows.spine[:] = [NOWHERE] * (n * r)
        self.message = [-1] * (n * r)
        self.remembered = [m] * r
        self.table = {(leaf, host): host % m for leaf in range(r) for host in range(n * r)}

    def taken(self, link: Link) -> int:
        """Packets in the room behind `link`."""
        return sum(packet.via == link for queue in self.queues.values() for packet in queue)

    def begin(self, host: int, destination: int) -> None:
        """`host` begins a message."""
        flows, leaf = self.flows, host // self.n
        if flows.spine[host] != NOWHERE:
            self.table[leaf, flows.destination[host]] = flows.spine[host]
        self.message[host] += 1
        flows.destination[host], flows.spine[host], flows.rest[host] = destination, NOWHERE, 0
        self.recount()
        if destination // self.n == leaf:
            return
        others = [
            h
            for h in range(leaf * self.n, leaf * self.n + self.n)
            if flows.destination[h] == destination
        ]
        same = [flows.spine[h] for h in others if flows.spine[h] != NOWHERE]
        kind = self.way.kind
        if kind == GIVEN:
            flows.spine[host] = self.given[self.message[host]][host]
        elif kind == HASH:
            flows.spine[host] = below(draw(self.state), self.m)
        elif kind == D_MOD_K:
            flows.spine[host] = destination % self.m
        elif self.way.rules.key == DEST:
            flows.spine[host] = same[0] if same else self.table[leaf, destination]
        else:
            flows.spine[host] = first_spine(flows, self.way.rules, host, self.state)
        self.recount()

    def recount(self) -> None:
        """Count the flows on every link anew."""
        flows = self.flows
        flows.up[:], flows.down[:] = [0] * len(flows.up), [0] * len(flows.down)
        for host, spine in enumerate(flows.spine):
            if spine != NOWHERE:
                flows.up[host // self.n * self.m + spine] += 1
                flows.down[flows.destination[host] // self.n * self.m + spine] += 1

    def spine(self, packet: Packet) -> int:
        """The spine that `packet` takes."""
        if self.way.kind <= D_MOD_K:
            return self.flows.spine[packet.source]
        leaf, first = packet.source // self.n, draw(self.state)
        loads = [len(self.queues["up", leaf, spine]) for spine in range(self.m)]
        if self.way.kind == RANDOM:
            return below(first, self.m)
        if self.way.kind == DRILL:
            self.remembered[leaf] = drill(loads, self.remembered[leaf], [first, draw(self.state)])
            return self.remembered[leaf]
        return shortest(loads, first)

    def at_leaf(self, packet: Packet) -> None:
        """`packet` has come from its host."""
        leaf, host = packet.source // self.n, packet.source
        if packet.destination // self.n == leaf:
            self.queues["to", packet.destination, 0].append(packet)
            return
        queue = self.queues["up", leaf, self.spine(packet)]
        queue.append(packet)
        if self.way.kind == QUEUE and len(queue) > self.way.queue:
            self.wanted.add(host)

    def arrive(self, packet: Packet, link: Link, slot: int) -> None:
        """`packet` has come over `link`."""
        side, leaf, spine = link
        if side == "to":
            self.arrived.append((slot, packet))
            return
        packet.via = link
        if side == "down":
            self.queues["to", packet.destination, 0].append(packet)
            return
        queue = self.queues["down", packet.destination // self.n, spine]
        queue.append(packet)
        last = self.asked.get((spine, packet.source))
        if (
            self.way.kind == QUEUE
            and len(queue) > self.way.queue
            and (last is None or slot - last >= self.way.rules.rest)
        ):
            self.asked[spine, packet.source] = slot
            waiting = 0 if self.way.ears_first else len(self.queues["down", leaf, spine])
            self.ask(Request(packet.source, packet.message, spine, slot + 1 + waiting))

    def ask(self, wanted: Request) -> None:
        """An EAR is sent, unless one of the same spine about the same host is under way."""
        about = wanted.host, wanted.spine
        if all((other.host, other.spine) != about for other in self.requests):
            self.requests.append(wanted)
            self.sent += 1

    def obey(self, slot: int, first: int) -> None:
        """Leaves move flows."""
        if self.way.kind not in (QUEUE, COUNT):
            return
        flows, hosts = self.flows, self.n * self.r
        if self.way.kind == COUNT and (slot + 1) % self.way.period == 0:
            invert(flows)
            of_outputs, count = request(flows, self.way.rules, self.state)
            if self.way.rules.informed:
                flows.room[:] = list(flows.down)
            for at, host in enumerate(list(flows.requested)[:count]):
                if at < of_outputs:
                    self.ask(Request(host, self.message[host], flows.spine[host], slot + 2))
                else:
                    self.wanted.add(host)
        flows.rest[:] = [max(0, left - 1) for left in flows.rest]
        for host in [(first + at) % hosts for at in range(hosts)]:
            wanted = host in self.wanted and flows.spine[host] != NOWHERE and flows.rest[host] == 0
            informed = 0
            for one in [one for one in self.requests if one.host == host and one.arrival == slot]:
                self.requests.remove(one)
                if (one.message, one.spine) != (self.message[host], flows.spine[host]):
                    self.stale += 1
                elif flows.rest[host]:
                    self.resting += 1
                else:
                    wanted, informed = True, self.way.rules.informed
            if wanted:
                counts = [0] * COUNTERS
                move(flows, self.way.rules, host, informed, counts, self.state)
                self.reroutes += [(slot, counts[1] + counts[2])]
        self.wanted = set()

    def run(
        self,
        due: list[float],
        rate: float,
        size: int,
        destination: list[list[int]],
        starts: list[int],
    ) -> None:
        """A slot for each of `starts`."""
        links, hosts = list(self.queues), self.n * self.r
        left = [0] * hosts
        for slot, start in enumerate(starts):
            free = {link for link in links if link[0] == "to" or self.taken(link) < self.room}
            moving = {
                link: self.queues[link].pop(0)
                for link in links
                if self.queues[link] and link in free
            }
            first = start * len(links) >> 32
            for link in links[first:] + links[:first]:
                if link in moving:
                    self.arrive(moving[link], link, slot)
            first = start * hosts >> 32
            self.obey(slot, first)
            for host in [(first + at) % hosts for at in range(hosts)]:
                due[host] += rate
                if due[host] < 1:
                    continue
                if self.taken(("from", host, 0)) >= self.room:
                    due[host] = 1.0
                    continue
                if left[host] == 0:
                    if self.message[host] + 1 == len(destination):
                        continue
                    self.begin(host, destination[self.message[host] + 1][host])
                    left[host] = size
                due[host] -= 1
                message, number = self.message[host], size - left[host]
                left[host] -= 1
                to = destination[message][host]
                self.at_leaf(Packet(host, message, number, to, slot, ("from", host, 0)))
