"""DAR's daemon at one switch of a folded Clos network: flow counts, and requests to move flows.

Routes are shortest paths by link state.  Each flow in the data plane's table has a spine, which the
leaf of its source assigns; other flows follow their hash.

Once a period the runtime reports the flows.  As an output leaf, a leaf counts the flows by spine,
and sends an Explicit Adaptation Request for a flow of a bad link to the flow's input leaf, over any
spine that leads there.  As an input leaf it moves the flow to another spine (leaf.py).  The next
period repeats requests that were lost.

In section 4 switches detect bad links by their queues instead, and act on each packet (figure 8).
The runtime reports a packet that joins a queue beyond the threshold at once, unless its flow rests.
A spine then sends a request to the leaf by which the flow came.  A leaf moves the flow.

If a link, a spine or a leaf fails, routes change, and flows without a usable spine move.

The paper gives a request (EAR, section 4) 8 bytes and leaves the layout open.  Ours has the flow's
5-tuple, because an input leaf moves single flows, and its spine, so that a late or repeated request
has no effect.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf
from typing import Annotated, Any, NamedTuple

from weft.daemons.control.hello import Neighbourhood
from weft.daemons.control.link_state import Database
from weft.daemons.core import wire
from weft.daemons.core.actions import NOTHING, Action, FiveTuple, Hop, Send, SetFlowPort, SetRoute
from weft.daemons.core.contract import DaemonEvent, FlowPlacement, FlowsSeen, LongQueue, SeenFlow
from weft.daemons.core.message_formats import (
    U16,
    U32,
    U64,
    Bits,
    Format,
    MessageField,
    NodeNumber,
    decoded,
)
from weft.daemons.core.wire import DAR_EAR, FlowAddresses, MalformedMessage
from weft.daemons.dar.leaf import LeafFlows, LeafSettings, Random
from weft.daemons.shortest_paths.scheme import Bfs
from weft.topologies.core.address import Prefix

MOST_SPINES = 64


class Ear(NamedTuple):
    """Request of `origin` to input leaf `leaf` to move `flow` to another spine.

    `sender` passes it on to `target`.

    sequence: grows with each request of `origin`, also across its restarts.
    spine: spine of the flow.
    count: flows on this spine, at most 65,535.
    spines, room: number of spines, and those with room towards `origin`, bit j for spine j; 0 and 0
        if unknown.
    """

    sender: U32
    target: U32
    origin: NodeNumber
    leaf: U32
    sequence: U64
    flow: FlowAddresses
    spine: U32
    count: U16  # type: ignore[assignment]  # hides tuple.count()
    spines: Annotated[int, MessageField("u8", most=MOST_SPINES)] = 0
    room: Annotated[int, Bits("spines")] = 0


EAR = Format(DAR_EAR, "dar_ear", Ear)


def encode(ear: Ear) -> bytes:
    """Return `ear` as bytes; struct.error or OverflowError if a field is too large."""
    return EAR.encode(ear)


def decode(payload: bytes, nodes: int = 1 << 32) -> Ear | None:
    """Return the request in `payload`; None for a message of another type.

    Raises:
        wire.MalformedMessage: not a message, or its origin is none of the first `nodes` nodes.
    """
    ear: Ear | None = decoded(payload, {DAR_EAR: EAR}, nodes)
    return ear


EAR_START = wire.START + bytes([wire.DAR_EAR])
MOST_COUNT = 0xFFFF


class Dar(Bfs):
    """State machine of DAR for one leaf, or for one spine, which has no hosts.

    destinations, local: see Bfs.
    looks: times of the runtime's reports of flows; None for a switch without them.
    first_spine: node number of spine 0.
    spines: number of spines.
    """

    def __init__(
        self,
        neighbourhood: Neighbourhood,
        database: Database,
        destinations: Sequence[tuple[Prefix, int]],
        local: Sequence[tuple[Prefix, tuple[Hop, ...]]],
        *,
        hold_s: float,
        settings: LeafSettings,
        looks: FlowPlacement | None,
        first_spine: int,
        spines: int,
        incarnation: int,
    ) -> None:
        super().__init__(neighbourhood, database, destinations, local, hold_s=hold_s)
        self._settings = settings
        self._looks = looks
        self._first_spine = first_spine
        self._spines = spines
        self._own = {prefix.network for prefix, _ in local}
        self._random = Random(database.node, incarnation)
        self._leaf = LeafFlows(settings, self._random)
        self._far = {
            neighbour.hop.port: neighbour.hop.node for neighbour in neighbourhood.neighbours()
        }
        self._ears = {"sent": 0, "passed_on": 0, "heard": 0, "stale": 0}
        self._sequence = incarnation
        self._leaves: dict[int, tuple[Prefix, int]] = {}  # cache, by address of a host
        self._look_s = looks.next_s(0.0) if looks else inf

    @property
    def deadline(self) -> float:
        return min(super().deadline, self._look_s)

    def start(self, now: float) -> Sequence[Action]:
        if self._looks:
            self._look_s = self._looks.next_s(now)
        return super().start(now)

    def receive(self, payload: bytes, port: int, now: float) -> Sequence[Action]:
        if not payload.startswith(EAR_START):
            return self._with_flows(super().receive(payload, port, now), now)
        ear = decode(payload, self._first_spine + self._spines)
        if ear is None or ear.target != self._node:
            return NOTHING
        if all(near.hop != (port, ear.sender) for near in self._neighbourhood.neighbours()):
            raise MalformedMessage(f"switch {ear.sender} is no neighbour at port {port}")
        return self._adapt(ear, now) if ear.leaf == self._node else self._pass_on(ear)

    def link_changed(self, port: int, up: bool, now: float) -> Sequence[Action]:
        return self._with_flows(super().link_changed(port, up, now), now)

    def tick(self, now: float) -> Sequence[Action]:
        if self._looks and now >= self._look_s:
            self._look_s = self._looks.next_s(now)
        return self._with_flows(super().tick(now), now)

    def event(self, event: DaemonEvent, now: float) -> Sequence[Action]:
        if isinstance(event, LongQueue):
            return self._leave_queue(event, now)
        if not isinstance(event, FlowsSeen):
            return super().event(event, now)
        return self._look(event.flows, now) if self._own else NOTHING

    def status(self) -> dict[str, Any]:
        """Return flows of each link by its far end, and bad links, those with more than p flows."""
        name = self._neighbourhood.name
        load = {"up": self._leaf.up(), "down": self._leaf.down()}
        flows = {
            direction: {name(self._far[port]): count for port, count in sorted(counts.items())}
            for direction, counts in load.items()
        }
        bad = {
            direction: sorted(far for far, count in counts.items() if count > self._settings.p)
            for direction, counts in flows.items()
        }
        return {
            **super().status(),
            "ears": self._ears,
            "flows": flows,
            "bad": bad,
            **self._leaf.counters,
        }

    def _look(self, flows: Iterable[SeenFlow], now: float) -> list[Action]:
        """Do a leaf's work of one period: relieve its uplinks, and request moves from bad links."""
        outgoing: list[SeenFlow] = []
        incoming: list[SeenFlow] = []
        for entry in flows:
            if entry.port in self._far:
                (outgoing if entry.flow.source in self._own else incoming).append(entry)
        self._leaf.learn(outgoing, incoming, now)
        links = self._links()
        actions: list[Action] = [*self._leaf.joined(now), *self._flows_moved_from_dead_links(now)]
        actions += self._leaf.spread(links, now, self._usable)
        for flow in self._leaf.crowded(links, now):
            actions += self._relieve(flow, links, now)
        if not self._settings.by_queue:
            load = self._leaf.down()
            for entry in self._leaf.requests(links):
                actions += self._ask(entry, load[entry.port])
        return actions

    def _relieve(self, flow: FiveTuple, links: int, now: float) -> Sequence[Action]:
        """Move a flow of an overfull uplink, unless it was swapped a moment ago."""
        usable = self._usable(flow.destination)
        if not usable or not self._leaf.rested(flow, now):
            return NOTHING
        load = self._leaf.up()
        room = [port for port in usable if load[port] < self._leaf.most(load, links)]
        return self._leaf.adapt(flow, usable, links, now, uplinks_to=self._usable, room=room)

    def _leave_queue(self, event: LongQueue, now: float) -> Sequence[Action]:
        """Move a flow of this leaf out of a long queue, or request that of its leaf."""
        if event.port not in self._far:
            return NOTHING
        if not self._own:
            back, leaf = Hop(event.port, self._far[event.port]), self._leaf_of(event.flow.source)
            if leaf is None or leaf[1] != back.node:  # a detour after a failure
                return NOTHING
            return [self._request(event.flow, back, back.node, self._node, 1)]
        if event.flow.source not in self._own:
            return NOTHING
        self._leaf.meet(event.flow, event.port)
        return self._relieve(event.flow, self._links(), now)

    def _ask(self, entry: SeenFlow, count: int) -> list[Action]:
        """Request a move of an incoming flow, over any spine that leads to its input leaf."""
        source, hops = self._leaf_of(entry.flow.source), self._hops(entry.flow.source)
        if source is None or not hops:
            return []
        spine = self._far[entry.port]
        return [self._request(entry.flow, self._random.pick(hops), source[1], spine, count)]

    def _request(self, flow: FiveTuple, by: Hop, leaf: int, spine: int, count: int) -> Send:
        self._sequence += 1
        self._ears["sent"] += 1
        spines, room = (
            (self._spines, self._room())
            if self._settings.informed and not self._settings.by_queue
            else (0, 0)
        )
        count = min(count, MOST_COUNT)
        ear = Ear(
            self._node, by.node, self._node, leaf, self._sequence, flow, spine, count, spines, room
        )
        return Send(by.port, encode(ear), queued=self._settings.ears_queued)

    def _room(self) -> int:
        """Return the spines with a live link to this leaf and room on it, bit j for spine j."""
        full = set(self._leaf.full_ports(self._links()))
        free = [
            near.hop.node - self._first_spine
            for near in self._neighbourhood.neighbours()
            if near.up and near.hop.port not in full
        ]
        return sum(1 << spine for spine in free)

    def _pass_on(self, ear: Ear) -> Sequence[Action]:
        """Send a request from this spine on to its leaf, if that is up."""
        for near in self._neighbourhood.neighbours():
            if near.up and near.hop.node == ear.leaf and not self._own:
                self._ears["passed_on"] += 1
                passed_on = ear._replace(sender=self._node, target=ear.leaf)
                return [Send(near.hop.port, encode(passed_on))]
        return NOTHING

    def _adapt(self, ear: Ear, now: float) -> Sequence[Action]:
        """Move the flow of a request if it is still on the same spine and may move."""
        self._ears["heard"] += 1
        port = next((port for port, node in self._far.items() if node == ear.spine), None)
        usable, output = self._usable(ear.flow.destination), self._leaf_of(ear.flow.destination)
        # only the spine and the output leaf see the flow; requests of others leave no state
        authorised = output is not None and ear.origin in (ear.spine, output[1])
        if (
            port is None
            or not authorised
            or not usable
            or not self._leaf.accepts(ear.flow, port, ear.origin, ear.sequence, now)
        ):
            self._ears["stale"] += 1
            return NOTHING
        room = [port for port in usable if self._is_in(ear, self._far[port])]
        links = self._links()
        return self._leaf.adapt(ear.flow, usable, links, now, uplinks_to=self._usable, room=room)

    def _is_in(self, ear: Ear, node: int) -> bool:
        spine = node - self._first_spine
        return 0 <= spine < ear.spines and bool(ear.room >> spine & 1)

    def _with_flows(self, actions: Sequence[Action], now: float) -> Sequence[Action]:
        """Return `actions` and, if they change routes, moves of flows from dead links."""
        if self._own and any(isinstance(action, SetRoute) for action in actions):
            return [*actions, *self._flows_moved_from_dead_links(now)]
        return actions

    def _flows_moved_from_dead_links(self, now: float) -> list[SetFlowPort]:
        actions: list[SetFlowPort] = []
        for flow, state in list(self._leaf.outgoing.items()):
            usable = self._usable(flow.destination)
            if usable and state.port not in usable:
                actions += self._leaf.replace(flow, usable, self._links(), now)
        return actions

    def _links(self) -> int:
        """Return the number of live links to other switches."""
        return sum(near.up for near in self._neighbourhood.neighbours())

    def _hops(self, address: int) -> tuple[Hop, ...]:
        leaf = self._leaf_of(address)
        return self._routes.get(leaf[0], ()) if leaf else ()

    def _usable(self, address: int) -> list[int]:
        """Return the ports that lead to `address`."""
        return [hop.port for hop in self._hops(address)]

    def _leaf_of(self, address: int) -> tuple[Prefix, int] | None:
        """Return the prefix and the leaf of another leaf's host; None for any other address."""
        if address not in self._leaves:
            for prefix, node in self._destinations:
                if prefix.holds(address):
                    self._leaves[address] = prefix, node
                    break
        return self._leaves.get(address)
