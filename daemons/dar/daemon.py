"""DAR's daemon at one switch of a folded Clos network: flows counted, requests made, passed on and
answered.

Routes are those of shortest paths by link state.  Flows that the data plane has in its table have a
spine each, which a leaf gives those of its own hosts; all others go by their hash.

Once a period the carrier tells which flows there are.  As an output leaf, a leaf counts those that
come by each spine, and sends an Explicit Adaptation Request for one of a bad link by way of a spine
that works to the flow's input leaf. As an input leaf it moves the flow to another spine (leaf.py).
What is lost on the way the next period makes good.

Section 4 has the spines find out instead, by their queues: of the flows that found a queue too
long, a spine sends a request for one per queue and period out of the port by which the flow came.
Leaves do the same with their uplinks.

Where a link, a spine or a leaf fails, routes change, and with them go the flows whose spine leads
nowhere any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from weft.daemons.control.hello import Neighbourhood
from weft.daemons.control.link_state import Database
from weft.daemons.core import wire
from weft.daemons.core.actions import NOTHING, Action, FiveTuple, Hop, Send, SetFlowPort, SetRoute
from weft.daemons.core.capabilities import FlowPlacement
from weft.daemons.core.events import DaemonEvent, FlowsSeen, SeenFlow
from weft.daemons.core.wire import MalformedMessage, within
from weft.daemons.dar import messages
from weft.daemons.dar.leaf import LeafFlows, LeafSettings, Random
from weft.daemons.dar.messages import Ear
from weft.daemons.shortest_paths.daemon import Bfs
from weft.topologies.core.address import Prefix

EAR = bytes((wire.MAGIC, wire.VERSION, wire.DAR_EAR))
MOST_COUNT = 0xFFFF


class Dar(Bfs):
    """A state machine for one leaf, or for one spine, which has no hosts.

    destinations, local: see Bfs.
    looks: when the carrier tells of flows; None if it does not.
    first_spine, spines: the node number of spine 0, and how many there are.
    """

    def __init__(
        self,
        neighbourhood: Neighbourhood,
        database: Database,
        destinations: Sequence[tuple[Prefix, int]],
        local: Sequence[tuple[Prefix, tuple[Hop, ...]]],
        *,
        hold_s: float,
        choices: LeafSettings,
        looks: FlowPlacement | None,
        first_spine: int,
        spines: int,
        incarnation: int,
    ) -> None:
        super().__init__(neighbourhood, database, destinations, local, hold_s=hold_s)
        self._choices, self._looks = choices, looks
        self._first_spine, self._spines = first_spine, spines
        self._own = {prefix.network for prefix, _ in local}
        self._random = Random(database.node, incarnation)
        self._leaf = LeafFlows(choices, self._random)
        self._far = {
            neighbour.hop.port: neighbour.hop.node for neighbour in neighbourhood.neighbours()
        }
        self._ears = {"sent": 0, "passed_on": 0, "heard": 0, "stale": 0}
        self._sequence = incarnation
        # by host's address, once it was looked for
        self._leaves: dict[int, tuple[Prefix, int]] = {}
        self._look_s = looks.next_s(0.0) if looks else float("inf")

    @property
    def deadline(self) -> float:
        return min(super().deadline, self._look_s)

    def start(self, now: float) -> Sequence[Action]:
        if self._looks:
            self._look_s = self._looks.next_s(now)
        return super().start(now)

    def receive(self, payload: bytes, port: int, now: float) -> Sequence[Action]:
        if not payload.startswith(EAR):
            return self._with_flows(super().receive(payload, port, now), now)
        ear = messages.decode(payload)
        if ear is None or ear.target != self._node:
            return NOTHING
        if all(near.hop != (port, ear.sender) for near in self._neighbourhood.neighbours()):
            raise MalformedMessage(f"switch {ear.sender} is no neighbour at port {port}")
        within((ear.origin,), self._first_spine + self._spines)
        return self._adapt(ear, now) if ear.leaf == self._node else self._pass_on(ear)

    def link_changed(self, port: int, up: bool, now: float) -> Sequence[Action]:
        return self._with_flows(super().link_changed(port, up, now), now)

    def tick(self, now: float) -> Sequence[Action]:
        if self._looks and now >= self._look_s:
            self._look_s = self._looks.next_s(now)
        return self._with_flows(super().tick(now), now)

    def event(self, event: DaemonEvent, now: float) -> Sequence[Action]:
        if not isinstance(event, FlowsSeen):
            return super().event(event, now)
        return self._look(event.flows, now) if self._own else self._look_at_queues(event.flows)

    def status(self) -> dict[str, Any]:
        """flows: on each link, by its far end.  bad: those with more than p."""
        load = {"up": self._leaf.up(), "down": self._leaf.down()}
        flows = {
            way: {
                self._neighbourhood.name(self._far[port]): count
                for port, count in sorted(counts.items())
            }
            for way, counts in load.items()
        }
        bad = {
            way: sorted(name for name, count in of.items() if count > self._choices.p)
            for way, of in flows.items()
        }
        return {
            **super().status(),
            "ears": self._ears,
            "flows": flows,
            "bad": bad,
            **self._leaf.counters,
        }

    def _look(self, flows: Iterable[SeenFlow], now: float) -> list[Action]:
        """A period of a leaf: move flows of its own uplinks that are too full, and ask for those of
        bad links down."""
        outgoing: list[SeenFlow] = []
        incoming: list[SeenFlow] = []
        for seen in flows:
            if seen.port in self._far:
                (outgoing if seen.flow.source in self._own else incoming).append(seen)
        self._leaf.learn(outgoing, incoming, now)
        links = self._links()
        actions: list[Action] = [*self._leaf.joined(now), *self._flows_moved_from_dead_links(now)]
        actions += self._leaf.spread(links, now, self._usable)
        for flow in self._leaf.crowded(links, now):
            # One that was swapped for another, a moment ago, rests.
            if (usable := self._usable(flow.destination)) and self._leaf.rested(flow, now):
                load = self._leaf.up()
                room = [port for port in usable if load[port] < self._leaf.most(load, links)]
                actions += self._leaf.adapt(flow, usable, links, now, ways=self._usable, room=room)
        if not self._choices.by_queue:
            load = self._leaf.down()
            for seen in self._leaf.wanted(links):
                actions += self._ask(seen, load[seen.port])
        return actions

    def _look_at_queues(self, flows: Iterable[SeenFlow]) -> list[Action]:
        """A period of a spine."""
        waiting: dict[int, list[SeenFlow]] = {}
        for seen in flows:
            hops = self._hops(seen.flow.destination)
            if (
                seen.queued
                and seen.rested_s >= self._choices.cool_s
                and len(hops) == 1
                and seen.port in self._far
            ):
                waiting.setdefault(hops[0].port, []).append(seen)
        actions: list[Action] = []
        for _, found in sorted(waiting.items()):
            seen = self._random.pick(found)
            back = Hop(seen.port, self._far[seen.port])
            actions.append(self._request(seen.flow, back, back.node, self._node, len(found)))
        return actions

    def _ask(self, seen: SeenFlow, count: int) -> list[Action]:
        """Ask for a flow that comes to this output leaf, by way of any spine that leads to its
        input leaf."""
        towards, hops = self._towards(seen.flow.source), self._hops(seen.flow.source)
        if towards is None or not hops:
            return []
        return [
            self._request(
                seen.flow, self._random.pick(hops), towards[1], self._far[seen.port], count
            )
        ]

    def _request(self, flow: FiveTuple, by: Hop, leaf: int, spine: int, count: int) -> Send:
        self._sequence += 1
        self._ears["sent"] += 1
        spines, room = (
            (self._spines, self._room())
            if self._choices.informed and not self._choices.by_queue
            else (0, 0)
        )
        count = min(count, MOST_COUNT)
        ear = Ear(
            self._node, by.node, self._node, leaf, self._sequence, flow, spine, count, spines, room
        )
        return Send(by.port, messages.encode(ear))

    def _room(self) -> int:
        """The spines with room towards this leaf whose link to it works, bit j for spine j."""
        full = set(self._leaf.room(self._links()))
        free = [
            near.hop.node - self._first_spine
            for near in self._neighbourhood.neighbours()
            if near.up and near.hop.port not in full
        ]
        return sum(1 << spine for spine in free)

    def _pass_on(self, ear: Ear) -> Sequence[Action]:
        """A spine sends a request to the leaf that it is for, if that is there."""
        for near in self._neighbourhood.neighbours():
            if near.up and near.hop.node == ear.leaf and not self._own:
                self._ears["passed_on"] += 1
                return [
                    Send(
                        near.hop.port,
                        messages.encode(replace(ear, sender=self._node, target=ear.leaf)),
                    )
                ]
        return NOTHING

    def _adapt(self, ear: Ear, now: float) -> Sequence[Action]:
        """Move the flow that is asked for, if it is still where it was and has rested."""
        self._ears["heard"] += 1
        port = next((port for port, node in self._far.items() if node == ear.spine), None)
        usable, towards = self._usable(ear.flow.destination), self._towards(ear.flow.destination)
        # Only the spine and the output leaf see the flow; what others ask in its name is not even
        # remembered.
        told = towards is not None and ear.origin in (ear.spine, towards[1])
        if (
            port is None
            or not told
            or not usable
            or not self._leaf.accepts(ear.flow, port, ear.origin, ear.sequence, now)
        ):
            self._ears["stale"] += 1
            return NOTHING
        room = [port for port in usable if self._is_in(ear, self._far[port])]
        return self._leaf.adapt(ear.flow, usable, self._links(), now, ways=self._usable, room=room)

    def _is_in(self, ear: Ear, node: int) -> bool:
        spine = node - self._first_spine
        return 0 <= spine < ear.spines and bool(ear.room >> spine & 1)

    def _with_flows(self, actions: Sequence[Action], now: float) -> Sequence[Action]:
        """`actions`, and where they change routes the flows that have to follow."""
        if self._own and any(isinstance(action, SetRoute) for action in actions):
            return [*actions, *self._flows_moved_from_dead_links(now)]
        return actions

    def _flows_moved_from_dead_links(self, now: float) -> list[SetFlowPort]:
        found: list[SetFlowPort] = []
        for flow, each in list(self._leaf.outgoing.items()):
            usable = self._usable(flow.destination)
            if usable and each.port not in usable:
                found += self._leaf.replace(flow, usable, self._links(), now)
        return found

    def _links(self) -> int:
        """How many spines this switch reaches."""
        return sum(near.up for near in self._neighbourhood.neighbours())

    def _hops(self, address: int) -> tuple[Hop, ...]:
        towards = self._towards(address)
        return self._routes.get(towards[0], ()) if towards else ()

    def _usable(self, address: int) -> list[int]:
        """The ports by which `address` can be reached."""
        return [hop.port for hop in self._hops(address)]

    def _towards(self, address: int) -> tuple[Prefix, int] | None:
        """The prefix of another leaf's host, and that leaf; None for any other address."""
        if address not in self._leaves:
            found = [(prefix, node) for prefix, node in self._destinations if prefix.holds(address)]
            if not found:
                return None
            self._leaves[address] = found[0]
        return self._leaves[address]
