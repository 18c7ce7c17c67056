"""Flows between hosts of a switch fabric, as the flow tables of switches report them.

A flow sends continuously, and its packets take no time: a moved flow is on its new path in the next
report.  Packets are followed only where the scheme looks at queues.

In a packet time each link sends a packet, and a flow of rate f joins its first queue with f of a
packet.  A packet that finds ROOM_PACKETS waiting is lost.  As the data plane does, a switch reports
a packet that joins a queue beyond the threshold, unless its flow rests (LongQueue).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from math import inf
from typing import NamedTuple, Protocol

from weft.daemons.core.actions import FiveTuple, Hop, Send
from weft.daemons.core.contract import DaemonEvent, FlowsSeen, LongQueue, SeenFlow
from weft.daemons.core.node_config import GOLDEN_FRACTION
from weft.daemons.routing.selection import below, flow_hash
from weft.daemons.simulator import packet_walk
from weft.daemons.simulator.node import Node, SimulatedFlowPlacements
from weft.daemons.simulator.packet_walk import PacketWalk, SimulatedNetwork
from weft.daemons.simulator.wires import CALL, EventQueue, Wires

ROOM_PACKETS = 32
BY_SOURCE, BY_DESTINATION = 0, 3  # enum start of testbed/data_plane/select.h
SwitchLink = tuple[int, int]  # sending and receiving switch
TCP = 6


class Packet(NamedTuple):
    """leaf: of the sender; links: those that are left to go."""

    flow: FiveTuple
    leaf: int
    links: list[SwitchLink]


class Senders(Protocol):
    """Flows that send packets (flows.py)."""

    def live(self) -> list[FiveTuple]: ...
    def path(self, flow: FiveTuple) -> PacketWalk: ...
    def option(self, key: str) -> int: ...
    def rate_of(self) -> float: ...
    def packet_time_s(self) -> float: ...
    def node(self, number: int) -> Node: ...
    def port(self, node: int, peer: int) -> int: ...


class FlowTables(Protocol):
    """Flow tables of switches, of flows without packets (Flows) or of simulated packets."""

    def look(self, number: int, now: float) -> Iterable[FlowsSeen]:
        """Return the report of a switch's flows, if a period has begun since the last one."""

    def send(self, node: int, action: Send) -> None:
        """Send a packet of the daemon of `node` behind those that wait at its port."""


class PacketQueues:
    """Queues of packets of `flows`; `tell` delivers an event to a node's daemon."""

    def __init__(
        self, flows: Senders, events: EventQueue, tell: Callable[[int, DaemonEvent], None]
    ) -> None:
        self._flows, self._events, self._tell = flows, events, tell
        self._queues: dict[SwitchLink, deque[Packet]] = {}
        self._due: dict[FiveTuple, float] = {}  # packets that each flow may send
        self._running = False

    def begin(self, flow: FiveTuple) -> None:
        """Let `flow` send, in a phase of its own."""
        self._due[flow] = len(self._due) * GOLDEN_FRACTION % 1
        if not self._running:
            self._running = True
            self._events.push(self._events.now, CALL, self._packet_time)

    def waiting(self, link: SwitchLink) -> int:
        """Return the packets that wait for `link`."""
        return len(self._queues.get(link, ()))

    def _packet_time(self) -> None:
        """Send a packet of each queue, and let flows send theirs."""
        now, live = self._events.now, self._flows.live()
        for packet in [queue.popleft() for queue in self._queues.values() if queue]:
            self._join(packet, now)
        self._due = {flow: self._due[flow] + self._flows.rate_of() for flow in live}
        for flow in live:
            if self._due[flow] >= 1:
                self._due[flow] -= 1
                links = list(pairwise(self._flows.path(flow).path[1:-1]))
                if links:
                    self._join(Packet(flow, links[0][0], links), now)
        self._running = bool(live) or any(self._queues.values())
        if self._running:
            self._events.push(now + self._flows.packet_time_s(), CALL, self._packet_time)

    def _join(self, packet: Packet, now: float) -> None:
        """Let a packet wait for its next link, if one is left."""
        if not packet.links:
            return
        link = packet.links[0]
        queue = self._queues.setdefault(link, deque())
        if len(queue) >= self._flows.option("queue") and packet.flow in self._due:
            self._report(packet, link, now)
        if len(queue) < ROOM_PACKETS:
            queue.append(packet._replace(links=packet.links[1:]))

    def _report(self, packet: Packet, link: SwitchLink, now: float) -> None:
        node, flow = self._flows.node(link[0]), packet.flow
        placements = node.capability(SimulatedFlowPlacements)
        placements.now = now
        port = self._flows.port(link[0], packet.leaf if packet.leaf != link[0] else link[1])
        last_s = placements.reported_s.get(flow, -inf)
        if packet.leaf == link[0]:
            _, last_s = placements.ports.get(flow, (port, -inf))
        if now - last_s < self._flows.option("rest_us") / 1e6 or node.protocol is None:
            return
        placements.reported_s[flow] = now
        self._tell(link[0], LongQueue(flow, port))


class Flows:
    """Flows in a network; none at first.

    rate: of a flow, as a fraction of a link's; None: 1/p.
    packet_s: time of a packet on a link; None: a 16th of a period.
    """

    rate: float | None = None
    packet_s: float | None = None

    def __init__(
        self,
        network: SimulatedNetwork,
        events: EventQueue,
        tell: Callable[[int, DaemonEvent], None],
        wires: Wires,
    ) -> None:
        self._network, self._events, self._wires = network, events, wires
        self._topology = network.topology
        self._nodes = network.nodes
        self._live: dict[FiveTuple, tuple[int, int]] = {}
        # Asked for at every packet and report, so computed once.
        self._leaves = [
            network.topology.neighbours(host)[0][0] for host in range(network.topology.servers)
        ]
        self._queues = PacketQueues(self, events, tell)

    def begin(self, src: int, dst: int, ports: int = 0) -> FiveTuple:
        """Start a flow from host `src` to host `dst` with these TCP ports."""
        address = self._topology.naming.address
        flow = FiveTuple(address(src), address(dst), TCP, ports)
        self._live[flow] = src, dst
        self._share(flow)
        if self.option("detect"):
            self._queues.begin(flow)
        return flow

    def end(self, flow: FiveTuple) -> None:
        del self._live[flow]

    def live(self) -> list[FiveTuple]:
        """Return the flows that have not ended."""
        return list(self._live)

    def path(self, flow: FiveTuple) -> PacketWalk:
        """Return the present path of `flow`."""
        src, dst = self._live[flow]

        def placed(node: int) -> Hop | None:
            port = self._placed(node, flow)
            return None if port is None else Hop(port, self._topology.neighbours(node)[port][0])

        return packet_walk.walk(self._network, src, dst, self._start(flow), placed=placed)

    def loads(self) -> Counter[tuple[int, int]]:
        """Return the number of flows on each link from switch to switch."""
        counts: Counter[tuple[int, int]] = Counter()
        for flow in self._live:
            counts.update(pairwise(self.path(flow).path[1:]))
        return Counter(
            {ends: count for ends, count in counts.items() if min(ends) >= self._topology.servers}
        )

    def look(self, number: int, now: float) -> Iterator[FlowsSeen]:
        """Yield the report of a switch's flows, if a period has begun since the last one."""
        node = self._nodes[number]
        if not any(
            isinstance(capability, SimulatedFlowPlacements) for capability in node.capabilities
        ):
            return
        placements = self._placements(number)
        placements.now = now
        turn = placements.config.turn(now)
        if turn != placements.turn:
            placements.turn = turn
            yield FlowsSeen(tuple(self._seen(number, placements, now)))

    def send(self, node: int, action: Send) -> None:
        """Send a packet of the daemon of `node` when those that wait at its port have left."""
        (peer,) = self._topology.neighbours(node)[action.port]
        wait_s = self._queues.waiting((node, peer)) * self.packet_time_s()
        if wait_s:
            self._events.push(self._events.now + wait_s, CALL, self._wires.send, node, action)
        else:
            self._wires.send(node, action)

    def option(self, key: str) -> int:
        """Return an option of the scheme, 0 without it."""
        return next(iter(self._nodes.values())).config.options.get(key, 0)

    def rate_of(self) -> float:
        """Return the rate of a flow, as a fraction of a link's."""
        return self.rate or 1 / self.option("p")

    def packet_time_s(self) -> float:
        """Return the time of a packet on a link."""
        return self.packet_s or self.option("period_us") / 16e6

    def node(self, number: int) -> Node:
        return self._nodes[number]

    def port(self, node: int, peer: int) -> int:
        """Return the port of `node` that leads to `peer`."""
        return next(
            port for port, peers in self._topology.neighbours(node).items() if peer in peers
        )

    def _start(self, flow: FiveTuple) -> int:
        """Return the number of the hop, modulo their number, that an unplaced flow takes."""
        src, dst = self._live[flow]
        leaf = self._leaves[src]
        start = self._nodes[leaf].config.options["start"]
        if start == BY_SOURCE:
            return src - self._topology.neighbours(leaf)[0][0]  # hosts are on the first ports
        if start == BY_DESTINATION:
            return dst
        count = len(self._nodes[leaf].fib.lookup(flow.destination)) or 1
        return below(flow_hash(leaf, *flow[:2], flow.ports, flow.protocol), count)

    def _share(self, flow: FiveTuple) -> None:
        """Set the shared port of a destination by its first flow, if flows share ports."""
        src, dst = self._live[flow]
        leaf = self._leaves[src]
        hops = self._nodes[leaf].fib.lookup(flow.destination)
        placements = self._nodes[leaf].capability(SimulatedFlowPlacements) if hops else None
        if placements and placements.config.by_destination and self._leaves[dst] != leaf:
            placements.shared.setdefault(flow.destination, hops[self._start(flow) % len(hops)].port)

    def _placed(self, leaf: int, flow: FiveTuple) -> int | None:
        """Return the port of `flow` at its leaf, its own or its destination's; None if unplaced."""
        placements = self._placements(leaf)
        port, _ = placements.ports.get(flow, (None, 0.0))
        if port is not None or not placements.config.by_destination:
            return port
        return placements.shared.get(flow.destination)

    def _placements(self, node: int) -> SimulatedFlowPlacements:
        return self._nodes[node].capability(SimulatedFlowPlacements)

    def _seen(
        self, number: int, placements: SimulatedFlowPlacements, now: float
    ) -> Iterator[SeenFlow]:
        """Yield the entries of the flow table of a switch."""
        placements.forget_flows(self._live)
        for flow, leaf in self._reported(number):
            path = self.path(flow).path
            onward = dict(pairwise(path)).get(number)
            if number == leaf:
                entry = self._outgoing(number, flow, onward, placements)
            elif onward is None:
                continue
            else:
                port = self.port(number, path[path.index(number) - 1])
                entry = placements.arrived(flow, port)
            if entry:
                yield SeenFlow(flow, entry[0], 0.0, now - entry[1])
        placements.forget_destinations()
        yield from self._idle(placements, now)

    def _reported(self, number: int) -> Iterator[tuple[FiveTuple, int]]:
        """Yield the flows of a switch's own hosts, each with the leaf of its source."""
        for flow, (src, dst) in self._live.items():
            leaf = self._leaves[src]
            if number in (leaf, self._leaves[dst]):
                yield flow, leaf

    def _outgoing(
        self, number: int, flow: FiveTuple, onward: int | None, placements: SimulatedFlowPlacements
    ) -> tuple[int, float] | None:
        """Return output port and time of placement of a flow from a host of switch `number`.

        A flow in the table keeps its port, also without a route.
        """
        if flow not in placements.ports and onward is not None and onward >= self._topology.servers:
            placements.ports[flow] = self.port(number, onward), -inf
        return placements.ports.get(flow)

    def _idle(self, placements: SimulatedFlowPlacements, now: float) -> Iterator[SeenFlow]:
        """Yield recent flows that have stopped coming in."""
        for flow, (port, since_s, last_s) in list(placements.arrivals.items()):
            if now - last_s > placements.config.idle_s:
                del placements.arrivals[flow]
            elif last_s < now:
                yield SeenFlow(flow, port, now - last_s, now - since_s)
