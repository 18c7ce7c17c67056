"""Packets of flows in the queues between switches, where a scheme looks at queues (DAR, section 4).

In a packet time each link sends a packet, and a flow of rate f joins its first queue with f of a
packet.  A packet that finds ROOM_PACKETS waiting is lost.  As the data plane does, a switch reports
a packet that joins a queue beyond the threshold, unless its flow rests (LongQueue).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import pairwise
from math import inf
from typing import NamedTuple, Protocol

from weft.daemons.core.actions import FiveTuple
from weft.daemons.core.events import DaemonEvent, LongQueue
from weft.daemons.core.node_config import GOLDEN_FRACTION
from weft.daemons.simulator.capabilities import SimulatedFlowPlacements
from weft.daemons.simulator.node import Node
from weft.daemons.simulator.packet_walk import PacketWalk
from weft.daemons.simulator.wires import CALL, EventQueue

ROOM_PACKETS = 32
SwitchLink = tuple[int, int]  # sending and receiving switch


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
