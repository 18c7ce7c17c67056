"""The state machines of a whole network on wires in memory, in simulated time.

At one instant packets come before ticks, as the contract asks of a carrier.  As Linux does it, what
is routine lies unread until the machine wakes for something else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING, Any

from weft.daemons.core import registry
from weft.daemons.core.actions import Action, Hop, Note, Send, SetRoute
from weft.daemons.core.contract import StateMachine
from weft.daemons.core.events import DaemonEvent, Refused
from weft.daemons.core.wire import MalformedMessage
from weft.daemons.simulator import packet_walk
from weft.daemons.simulator.event_queue import CALL, TICK, EventQueue
from weft.daemons.simulator.flows import Flows
from weft.daemons.simulator.node import Node
from weft.daemons.simulator.packet_walk import PacketWalk
from weft.daemons.simulator.wires import Listener, Randomness, Wire, Wires
from weft.topologies.core.address import Prefix

if TYPE_CHECKING:
    from weft.topologies.core.topology import Topology

# by then, or once it has converged, a daemon takes away routes that it found and did not set
SWEEP_S = 5.0
MOST_TICKS = 10_000  # of one daemon at one instant
TOLD_AGAIN_S = 0.5  # a daemon is told that often that a destination is in use


class Simulator:
    """The network `topology`, every router of which runs the scheme `spec`; time is in seconds and
    begins at 0.

    random: decides about loss, jitter and duplicates of `wire`; needed if there are any.
    start_spread_s: the machines start one after the other within this time.
    starts_s: when each machine starts, by node, instead.
    Links that have failed in `topology` have no carrier from the beginning.
    ValueError if the scheme is not for such a network, or has no daemons.
    """

    def __init__(
        self,
        topology: Topology,
        spec: str,
        *,
        wire: Wire | None = None,
        random: Randomness | None = None,
        start_spread_s: float = 0.010,
        starts_s: Mapping[int, float] | None = None,
    ) -> None:
        configs = registry.configure(topology, spec)
        if not configs:
            raise ValueError(f"scheme {spec} has no daemons that could be simulated")
        self.topology = topology
        self.changed_s = 0.0  # when a route was set last, or anything else by which packets go
        self.on_note: Callable[[float, int, str], None] | None = None
        self._counters = {"deliveries": 0, "routes_set": 0}
        self._notice_s = max(
            (config.dead + 1) * config.interval_ms / 1000 for config in configs.values()
        )
        self._wire = wire or Wire()
        self._events = EventQueue()
        self._wires = Wires(topology, self._wire, random, self._events, self._deliver)
        self._nodes = {node: Node(config) for node, config in configs.items()}
        self.flows = Flows(topology, self._wires, self._nodes)
        for link in topology.failed.nonzero()[0].tolist():
            self.fail(link)
        starts_s = starts_s or {
            node: start_spread_s * at / len(self._nodes) for at, node in enumerate(self._nodes)
        }
        for node in self._nodes:
            self._events.push(starts_s[node], CALL, self._boot, node)

    @property
    def now(self) -> float:
        return self._events.now

    @property
    def counters(self) -> dict[str, int]:
        """Messages and their bytes that were sent, deliveries of them, and routes that were set."""
        return {**self._wires.counters, **self._counters}

    def version(self) -> tuple[object, ...]:
        """What is another whenever packets may go another way than before, as long as no node loses
        power."""
        nodes = self._nodes.values()
        return self.changed_s, self._wires.changes, sum([node.fib.changes for node in nodes])

    def fail(self, link: int, *, silent: bool = False, sender: int | None = None) -> None:
        """`link` passes nothing more; unless `silent`, both its ends see the carrier go.

        sender: a silent failure of one direction only, what this end sends.
        """
        if self._wires.fail(link, silent=silent, sender=sender):
            self._tell_ends(link)

    def restore(self, link: int) -> None:
        """`link` works again."""
        if self._wires.restore(link):
            self._tell_ends(link)

    def kill(self, node: int) -> None:
        """`node` loses power: it neither speaks nor forwards, and forgets everything.  Its links
        keep their carrier."""
        before = self._nodes[node]
        self._nodes[node] = Node(before.config, before.incarnation)

    def restart(self, node: int) -> None:
        """`node` runs a new daemon, with empty tables, in place of the one it had if any."""
        self.kill(node)
        self._boot(node)

    def stop_daemon(self, node: int) -> None:
        """The daemon of `node` ends; the node goes on forwarding as it did."""
        left = self._nodes[node]
        left.protocol, left.unread, left.told_s, left.stalled_s, left.tick_s = (
            None,
            [],
            {},
            -inf,
            inf,
        )

    def start_daemon(self, node: int) -> None:
        """`node` runs a new daemon, in place of the one it had if any, which finds the routes that
        it left."""
        self.stop_daemon(node)
        self._boot(node)

    def alter(self, link: int, wire: Wire | None) -> None:
        """Let `link` do to packets as `wire` says from now on; None: as all others do.  ValueError
        if that is up to chance, and there is no `random`."""
        self._wires.alter(link, wire)

    def step_clock(self, node: int, by_s: float) -> None:
        """The clock of `node` by which the kernel notes when packets came is set on by so much, or
        back: those that lie unread there seem that much newer or older, though not newer than now
        nor older than it has run."""
        stepped = self._nodes[node]
        stepped.unread = [
            (payload, port, min(max(when + by_s, stepped.read_s), self.now))
            for payload, port, when in stepped.unread
        ]

    def stall(self, node: int, for_s: float) -> None:
        """The daemon of `node` does not run for a while; what arrives is queued."""
        stalled = self._nodes[node]
        stalled.stalled_s = self.now + for_s
        self.at(stalled.stalled_s, lambda: self._read(node, stalled))

    def run_until(self, time_s: float) -> None:
        """Let everything happen up to and including `time_s`."""
        self._events.run_until(time_s)

    def run_for(self, seconds: float) -> None:
        self.run_until(self.now + seconds)

    def at(self, time_s: float, call: Callable[[], None]) -> None:
        """Do `call` when it is `time_s`."""
        self._events.push(time_s, CALL, call)

    def run_until_converged(self, within_s: float = 10.0, every_s: float = 0.001) -> float:
        """Run until every daemon has converged and say when that was; TimeoutError names one that
        has not."""
        end = self.now + within_s
        while (waiting := self._unconverged()) is not None:
            if self.now >= end:
                name = self.topology.naming.name(waiting)
                raise TimeoutError(
                    f"{name} has not converged within {within_s} s: {self.status(waiting)}"
                )
            self.run_for(every_s)
        return self.now

    def run_until_quiet(self, quiet_s: float | None = None, within_s: float = 60.0) -> float:
        """Run until no route has been set for `quiet_s`, and say when the last one was;
        TimeoutError if it never ends.

        By default as long as it takes to notice a silent failure, twice.
        """
        quiet_s = self._notice_s * 2 if quiet_s is None else quiet_s
        begin = self.now
        while self.now < (quiet_from := max(self.changed_s, begin)) + quiet_s:
            if self.now > begin + within_s:
                raise TimeoutError(f"routes still change after {within_s} s")
            self.run_until(quiet_from + quiet_s)
        return self.changed_s

    def status(self, node: int) -> dict[str, Any]:
        """What the daemon of `node` says of itself; empty if it has none."""
        one = self._nodes[node]
        return {**one.protocol.status(), "garbage": one.garbage} if one.protocol else {}

    def protocol(self, node: int) -> StateMachine:
        """The state machine of `node`; ValueError if it has none."""
        running = self._nodes[node].protocol
        if running is None:
            raise ValueError(f"{self.topology.naming.name(node)} has no daemon")
        return running

    def node(self, node: int) -> Node:
        """The node with this number, as it is."""
        return self._nodes[node]

    def routes(self, node: int) -> Mapping[Prefix, tuple[Hop, ...]]:
        """The forwarding table of `node`, unreachable routes included."""
        return self._nodes[node].fib.routes

    def tell(self, node: int, event: DaemonEvent) -> None:
        """Let `event` happen at `node` now."""
        self._act(node, self._nodes[node], self.protocol(node).event(event, self.now))

    def hear(self, node: int, payload: bytes, port: int) -> list[Action]:
        """Let `node` hear `payload` at `port` now, whoever may have said it; what it does about
        that."""
        running = self._nodes[node]
        try:
            actions = list(self.protocol(node).receive(payload, port, self.now))
        except MalformedMessage:
            running.garbage += 1
            return []
        self._act(node, running, actions)
        return actions

    def walk(
        self,
        src: int,
        dst: int,
        choice: int = 0,
        *,
        first_octet: int | None = None,
        known: dict[tuple[int, int], PacketWalk] | None = None,
    ) -> PacketWalk:
        """Where a packet from server `src` to server `dst` goes; of several hops it takes number
        `choice`, modulo how many there are.

        first_octet: what its destination begins with when it leaves a host, such as a layer's;
            None: as the server's address does.
        known: see packet_walk.walk().
        """
        return packet_walk.walk(
            self.topology,
            self._wires,
            self._nodes,
            src,
            dst,
            choice,
            first_octet=first_octet,
            known=known,
        )

    def send(self, src: int, dst: int) -> PacketWalk:
        """Let an application on server `src` send a packet to server `dst`, and the daemon there
        learn of it as from Linux: that the destination is in use, and that a server on the way
        refused the packet.
        """
        sent = self.walk(src, dst)
        sender = self._nodes.get(src)
        if sender is None or sender.protocol is None:
            return sent
        flow = packet_walk.pings(self.topology, src, dst)
        told = sender.sent(flow)
        if told and self.now >= sender.told_s.get(flow.destination, -inf) + TOLD_AGAIN_S:
            sender.told_s[flow.destination] = self.now
            for event in told:
                self.tell(src, event)
        if told and sent.lost.startswith("no route"):
            back_s = 2 * self._wire.delay_s * (len(sent.path) - 1)
            self._events.push(
                self.now + back_s, CALL, self._refuse, src, sender.protocol, flow.destination
            )
        return sent

    def _refuse(self, src: int, protocol: StateMachine, address: int) -> None:
        if self._nodes[src].protocol is protocol:
            self.tell(src, Refused(address))

    def _sweep(self, number: int, protocol: StateMachine) -> None:
        if self._nodes[number].protocol is protocol:
            self._nodes[number].sweep()

    def _unconverged(self) -> int | None:
        for number, node in self._nodes.items():
            if node.protocol is None or not node.protocol.converged():
                return number
        return None

    def _boot(self, number: int) -> None:
        node = self._nodes[number]
        node.incarnation += 1
        # Spaced so that no sequence number that begins at one incarnation reaches the next.
        protocol = registry.machine(node.config, node.incarnation << 32)
        node.take_over(protocol)
        if node.inherited:
            self._events.push(self.now + SWEEP_S, CALL, self._sweep, number, protocol)
        self._act(number, node, protocol.start(self.now))
        for port, _, _, link in self._wires.ports(number):
            if not self._wires.has_carrier(link):
                self._tell_carrier(number, port, link)

    def _tell_ends(self, link: int) -> None:
        """Tell both ends of `link` how its carrier is."""
        a, port_a, b, port_b = self.topology.links[link].tolist()
        for end, port in ((a, port_a), (b, port_b)):
            self._tell_carrier(end, port, link)

    def _tell_carrier(self, number: int, port: int, link: int) -> None:
        """Tell how the carrier of `link` is, which may have changed again while the daemon was
        stalled."""
        node = self._nodes.get(number)
        if node is None or node.protocol is None:
            return
        if node.stalled_s > self.now:
            self._events.push(node.stalled_s, CALL, self._tell_carrier, number, port, link)
            return
        self._act(
            number, node, node.protocol.link_changed(port, self._wires.has_carrier(link), self.now)
        )

    def _deliver(self, listeners: Iterable[Listener], sent: Send) -> None:
        now = self._events.now
        for number, port, _ in listeners:
            node = self._nodes.get(number)
            if node is not None and node.protocol is not None:
                self._counters["deliveries"] += 1
                node.unread.append((sent.payload, port, now))
                if not sent.routine and node.stalled_s <= now:
                    self._read(number, node)

    def _read(self, number: int, node: Node) -> None:
        """Hand over all that has come."""
        if node.protocol is not None:
            self._act(number, node, self._heard(node, node.protocol))

    def _heard(self, node: Node, protocol: StateMachine) -> Sequence[Action]:
        """What is to be done about all that has come."""
        unread, node.unread, node.read_s = node.unread, [], self._events.now
        actions: list[Action] = []
        for payload, port, when in unread:
            try:
                actions += protocol.receive(payload, port, when)
            except MalformedMessage:
                node.garbage += 1
        return actions

    def _tick(self, number: int) -> None:
        node, now = self._nodes[number], self._events.now
        if node.tick_s != now or node.protocol is None:
            return  # superseded by a newer deadline
        if node.stalled_s > now:
            node.tick_s = node.stalled_s
            self._events.push(node.tick_s, TICK, self._tick, number)
            return
        node.tick_s = inf
        if node.unread:
            self._do(number, node, self._heard(node, node.protocol))
        node.read_s = now
        if node.protocol.deadline <= now:
            self._count_ticks(number, node)
            self._do(number, node, node.protocol.tick(now))
            if node.looks_at_flows:
                for event in self.flows.look(number, now):
                    self._do(number, node, node.protocol.event(event, now))
        self._await(number, node)

    def _count_ticks(self, number: int, node: Node) -> None:
        """RuntimeError for a state machine whose deadline no tick moves: its carrier would do
        nothing else any more."""
        at_s, count = node.ticks
        node.ticks = self.now, count + 1 if at_s == self.now else 1
        if count > MOST_TICKS:
            raise RuntimeError(
                f"{self.topology.naming.name(number)} wants to tick at once, {count} times over"
            )

    def _act(self, number: int, node: Node, actions: Sequence[Action]) -> None:
        """Do `actions`, and have the machine ticked in time."""
        self._do(number, node, actions)
        self._await(number, node)

    def _do(self, number: int, node: Node, actions: Sequence[Action]) -> None:
        for action in actions:
            if isinstance(action, Send):
                self._wires.send(number, action)
            elif isinstance(action, Note):
                if self.on_note:
                    self.on_note(self.now, number, action.text)
            elif node.carry_out(action):
                self.changed_s = self.now
                self._counters["routes_set"] += isinstance(action, SetRoute)

    def _await(self, number: int, node: Node) -> None:
        """Have the machine ticked in time."""
        if node.protocol is None:
            return
        if node.inherited and node.protocol.converged():
            node.sweep()
        deadline = node.protocol.deadline
        if deadline < node.tick_s:
            node.tick_s = max(self._events.now, deadline)
            self._events.push(node.tick_s, TICK, self._tick, number)
