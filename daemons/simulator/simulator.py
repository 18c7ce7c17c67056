"""Simulator: the state machines of a whole network on wires in memory, in simulated time.

At one instant packets come before ticks, as the contract requires of a runtime.  As on Linux,
routine packets stay unread until the machine wakes for another reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING, Any

from weft.daemons.core import registry
from weft.daemons.core.actions import Action, FiveTuple, Hop, Note, Send, SetRoute
from weft.daemons.core.contract import DaemonEvent, Refused, StateMachine
from weft.daemons.core.wire import MalformedMessage
from weft.daemons.simulator import packet_walk
from weft.daemons.simulator.flows import Flows, FlowTables
from weft.daemons.simulator.node import Node
from weft.daemons.simulator.packet_walk import PacketWalk, SimulatedNetwork
from weft.daemons.simulator.wires import CALL, TICK, EventQueue, Listener, Randomness, Wire, Wires
from weft.topologies.core.address import Prefix
from weft.topologies.core.topology import require_one_plane

if TYPE_CHECKING:
    from weft.topologies.core.topology import Topology

START_SPREAD_S = 0.010
SWEEP_S = 5.0  # latest removal of inherited routes that a new daemon has not set
MOST_TICKS = 10_000  # ticks of one daemon at one instant
QUIET_WITHIN_S = 60.0
REPORT_S = 0.5  # shortest time between two events about one destination


def in_words(value: Any) -> str:
    """Return a status, of mappings and lists, as one line without brackets."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {in_words(part)}" for key, part in value.items())
    return "; ".join(map(in_words, value)) if isinstance(value, list) else str(value)


class Simulator:
    """Network whose routers run a scheme; time is in seconds and begins at 0.

    Args:
        topology: the network; its failed links have no carrier from the beginning.
        spec: the scheme and its options.
        wire: properties of all links.
        random: source of loss, jitter and duplicates; required if `wire` has any.
        starts_s: start of each machine by node; None: within START_SPREAD_S, one by one.

    Attributes:
        on_action: called with the time, a node and each action of its daemon, before that is
            performed; None: not called.

    Raises:
        ValueError: the scheme cannot route the network, or has no daemons.
    """

    def __init__(
        self,
        topology: Topology,
        spec: str,
        *,
        wire: Wire | None = None,
        random: Randomness | None = None,
        starts_s: Mapping[int, float] | None = None,
    ) -> None:
        require_one_plane("the simulator of daemons", topology)
        configs = registry.configure(topology, spec)
        if not configs:
            raise ValueError(f"scheme {spec} has no daemons that could be simulated")
        self.topology = topology
        self.changed_s = 0.0  # time of the last change of forwarding
        self.on_action: Callable[[float, int, Action], None] | None = None
        self._counters = {"deliveries": 0, "routes_set": 0}
        self._wire = wire or Wire()
        self._events = EventQueue()
        self._wires = Wires(topology, self._wire, random, self._events, self._deliver)
        self._nodes = {node: Node(config) for node, config in configs.items()}
        self._network = SimulatedNetwork(topology, self._wires, self._nodes)
        self.flows = Flows(self._network, self._events, self.tell, self._wires)
        self.flow_tables: FlowTables = self.flows
        for link in topology.failed_links():
            self.fail(link)
        self._boot_all(starts_s or {})

    @property
    def now(self) -> float:
        return self._events.now

    @property
    def next_s(self) -> float:
        """Return the time of the next event."""
        return self._events.next_s

    @property
    def counters(self) -> dict[str, int]:
        """Messages and bytes sent, deliveries, and routes set."""
        return {**self._wires.counters, **self._counters}

    def version(self) -> tuple[object, ...]:
        """Return a value that differs after each change of forwarding, but for losses of power."""
        nodes = self._nodes.values()
        return self.changed_s, self._wires.changes, sum([node.fib.changes for node in nodes])

    def fail(self, link: int, *, silent: bool = False, sender: int | None = None) -> None:
        """Fail `link`; unless `silent`, both ends lose the carrier.

        Args:
            link: number of the link.
            silent: True keeps the carrier.
            sender: the end whose packets are lost, for a silent failure of one direction.
        """
        if self._wires.fail(link, silent=silent, sender=sender):
            self._tell_ends(link)

    def restore(self, link: int) -> None:
        if self._wires.restore(link):
            self._tell_ends(link)

    def kill(self, node: int) -> None:
        """Cut the power of `node`, which forgets everything; its links keep their carrier."""
        before = self._nodes[node]
        self._nodes[node] = Node(before.config, before.incarnation)

    def restart(self, node: int) -> None:
        """Start a new daemon on `node`, with empty tables."""
        self.kill(node)
        self._boot(node)

    def stop_daemon(self, node: int) -> None:
        """End the daemon of `node`, which goes on forwarding."""
        stopped = self._nodes[node]
        stopped.protocol = None
        stopped.unread = []
        stopped.reported_s = {}
        stopped.stalled_s = -inf
        stopped.tick_s = inf

    def start_daemon(self, node: int) -> None:
        """Start a new daemon on `node`, which inherits the routes of the last one."""
        self.stop_daemon(node)
        self._boot(node)

    def alter(self, link: int, wire: Wire | None) -> None:
        """Set the properties of `link`; None: those of all links.

        Raises:
            ValueError: the wire is random, and the simulator has no `random`.
        """
        self._wires.alter(link, wire)

    def step_clock(self, node: int, by_s: float) -> None:
        """Step the clock of `node` that stamps packets.

        Unread packets seem newer or older by that, but not newer than now nor older than the last
        read.
        """
        stepped = self._nodes[node]
        stepped.unread = [
            (payload, port, min(max(when + by_s, stepped.read_s), self.now))
            for payload, port, when in stepped.unread
        ]

    def stall(self, node: int, for_s: float) -> None:
        """Stall the daemon of `node` for a time; packets wait."""
        stalled = self._nodes[node]
        stalled.stalled_s = self.now + for_s
        self.at(stalled.stalled_s, lambda: self._read(node, stalled))

    def run_until(self, time_s: float) -> None:
        """Run all events up to and including `time_s`."""
        self._events.run_until(time_s)

    def run_for(self, seconds: float) -> None:
        self.run_until(self.now + seconds)

    def at(self, time_s: float, call: Callable[[], None]) -> None:
        """Schedule `call` at `time_s`."""
        self._events.push(time_s, CALL, call)

    def run_until_converged(self, within_s: float = 10.0, every_s: float = 0.001) -> float:
        """Run until every daemon has converged; return that time.

        Raises:
            TimeoutError: a daemon has not converged `within_s`; the message names it.
        """
        end = self.now + within_s
        while (waiting := self._unconverged()) is not None:
            if self.now >= end:
                name = self.topology.naming.name(waiting)
                status = in_words(self.status(waiting))
                raise TimeoutError(f"{name} has not converged within {within_s} s: {status}")
            self.run_for(every_s)
        return self.now

    def run_until_quiet(self) -> float:
        """Run until no route changed for twice the time to detect a silent failure.

        Returns:
            The time of the last change.

        Raises:
            TimeoutError: routes still change after QUIET_WITHIN_S.
        """
        configs = [node.config for node in self._nodes.values()]
        quiet_s = max(2 * (config.dead + 1) * config.interval_ms / 1000 for config in configs)
        begin = self.now
        while self.now < (quiet_from := max(self.changed_s, begin)) + quiet_s:
            if self.now > begin + QUIET_WITHIN_S:
                raise TimeoutError(f"routes still change after {QUIET_WITHIN_S} s")
            self.run_until(quiet_from + quiet_s)
        return self.changed_s

    def status(self, node: int) -> dict[str, Any]:
        """Return the status of the daemon of `node`; empty without one."""
        router = self._nodes[node]
        return {**router.protocol.status(), "garbage": router.garbage} if router.protocol else {}

    def protocol(self, node: int) -> StateMachine:
        """Return the state machine of `node`; ValueError if it has none."""
        running = self._nodes[node].protocol
        if running is None:
            raise ValueError(f"{self.topology.naming.name(node)} has no daemon")
        return running

    def node(self, node: int) -> Node:
        """Return the node with this number."""
        return self._nodes[node]

    def routes(self, node: int) -> Mapping[Prefix, tuple[Hop, ...]]:
        """Return the forwarding table of `node`, with unreachable routes."""
        return self._nodes[node].fib.routes

    def forward(
        self, node: int, address: int, flow: FiveTuple, choice: int
    ) -> tuple[int, Hop | None]:
        """Return address and next hop, None without a route, of a packet that leaves `node` now."""
        return self._network.forward(node, address, flow, choice)

    def tell(self, node: int, event: DaemonEvent) -> None:
        """Deliver `event` to the daemon of `node` now."""
        self._act(node, self._nodes[node], self.protocol(node).event(event, self.now))

    def slow_down(self, node: int, factor: int) -> None:
        """Have the daemon of `node` send hellos in `factor` times their interval."""
        self._act(node, self._nodes[node], self.protocol(node).slow_down(factor, self.now))

    def hear(self, node: int, payload: bytes, port: int) -> list[Action]:
        """Deliver a packet to `node` at `port` now; return the actions of its daemon."""
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
        """Return the path of a packet from server `src` to server `dst`; see packet_walk.walk()."""
        return packet_walk.walk(
            self._network, src, dst, choice, first_octet=first_octet, known=known
        )

    def send(self, src: int, dst: int) -> PacketWalk:
        """Send a packet of an application on server `src` to server `dst`; return its path.

        The daemon of `src` gets the events that Linux would report: the destination is in use, or a
        server on the path refused the packet.
        """
        sent = self.walk(src, dst)
        sender = self._nodes.get(src)
        if sender is None or sender.protocol is None:
            return sent
        flow = packet_walk.pings(self.topology, src, dst)
        events = sender.sent(flow)
        if events and self.now >= sender.reported_s.get(flow.destination, -inf) + REPORT_S:
            sender.reported_s[flow.destination] = self.now
            for event in events:
                self.tell(src, event)
        if events and sent.lost.startswith("no route"):
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

    def _boot_all(self, starts_s: Mapping[int, float]) -> None:
        for index, node in enumerate(self._nodes):
            start_s = START_SPREAD_S * index / len(self._nodes)
            self._events.push(starts_s.get(node, start_s), CALL, self._boot, node)

    def _boot(self, number: int) -> None:
        node = self._nodes[number]
        node.incarnation += 1
        # far apart: sequence numbers of one incarnation never reach the next
        protocol = registry.machine(node.config, node.incarnation << 32)
        node.take_over(protocol)
        if node.inherited:
            self._events.push(self.now + SWEEP_S, CALL, self._sweep, number, protocol)
        self._act(number, node, protocol.start(self.now))
        for port, _, _, link in self._wires.ports(number):
            if not self._wires.has_carrier(link):
                self._tell_carrier(number, port, link)

    def _tell_ends(self, link: int) -> None:
        """Report the carrier of `link` to both ends."""
        a, port_a, b, port_b = self.topology.ends(link)
        for end, port in ((a, port_a), (b, port_b)):
            self._tell_carrier(end, port, link)

    def _tell_carrier(self, number: int, port: int, link: int) -> None:
        """Report the present carrier of `link`, after a stall if the daemon is stalled."""
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
        """Deliver all waiting packets."""
        if node.protocol is not None:
            self._act(number, node, self._heard(node, node.protocol))

    def _heard(self, node: Node, protocol: StateMachine) -> Sequence[Action]:
        """Return the actions on all waiting packets."""
        unread = node.unread
        node.unread = []
        node.read_s = self._events.now
        actions: list[Action] = []
        for payload, port, arrival_s in unread:
            try:
                actions += protocol.receive(payload, port, arrival_s)
            except MalformedMessage:
                node.garbage += 1
        return actions

    def _tick(self, number: int) -> None:
        node = self._nodes[number]
        now = self._events.now
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
                for event in self.flow_tables.look(number, now):
                    self._do(number, node, node.protocol.event(event, now))
        self._await(number, node)

    def _count_ticks(self, number: int, node: Node) -> None:
        """Raise RuntimeError if ticks do not move the deadline of the state machine."""
        at_s, count = node.ticks
        node.ticks = self.now, count + 1 if at_s == self.now else 1
        if count > MOST_TICKS:
            raise RuntimeError(
                f"{self.topology.naming.name(number)} wants to tick at once, {count} times over"
            )

    def _act(self, number: int, node: Node, actions: Sequence[Action]) -> None:
        """Perform `actions`, and schedule the next tick."""
        self._do(number, node, actions)
        self._await(number, node)

    def _do(self, number: int, node: Node, actions: Sequence[Action]) -> None:
        for action in actions:
            if self.on_action:
                self.on_action(self.now, number, action)
            if isinstance(action, Send):
                if action.queued:
                    self.flow_tables.send(number, action)
                else:
                    self._wires.send(number, action)
            elif not isinstance(action, Note) and node.carry_out(action):
                self.changed_s = self.now
                self._counters["routes_set"] += isinstance(action, SetRoute)

    def _await(self, number: int, node: Node) -> None:
        """Schedule the next tick."""
        if node.protocol is None:
            return
        if node.inherited and node.protocol.converged():
            node.sweep()
        deadline = node.protocol.deadline
        if deadline < node.tick_s:
            node.tick_s = max(self._events.now, deadline)
            self._events.push(node.tick_s, TICK, self._tick, number)
