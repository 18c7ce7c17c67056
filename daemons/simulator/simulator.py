"""Wires in memory between the state machines of a whole network, in simulated time.

Events wait in a heap, ordered by time; at one instant packets come before ticks, as the contract asks of a carrier.  As
Linux does it, what is routine lies unread until the machine wakes for something else.  A packet is delivered to whoever
the wires lead to when it is sent: what is in flight when a link dies still arrives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from heapq import heappop, heappush
from itertools import count
from math import inf
from typing import TYPE_CHECKING, Any, Protocol, cast

from daemons.core import schemes
from daemons.core.contract import (
    Action,
    Flow,
    FlowProtocol,
    Hop,
    Note,
    Readdress,
    RoutingProtocol,
    Send,
    SetFlow,
    SetRoute,
    SetState,
    Steer,
    SteeringProtocol,
)
from daemons.dfr import dfr_addresses
from daemons.routing import proxy_addresses
from topologies.core.address import Prefix

if TYPE_CHECKING:
    from topologies.core.topology import Topology

TOLD_AGAIN_S = 0.5  # a daemon is told that often that a destination is in use
ICMP = 1  # the protocol of packets that walk
PACKET, TICK, CALL = range(3)  # kinds of event, in the order in which they come at one instant


class Randomness(Protocol):
    """random.Random, or numpy's Generator."""

    def random(self) -> float:
        """Uniform in [0, 1)."""


@dataclass(frozen=True, kw_only=True)
class Wire:
    """What a link does to a packet, in each direction.

    jitter_s: up to this much is added to the delay of each packet, which may then overtake others.
    """

    delay_s: float = 50e-6
    jitter_s: float = 0.0
    loss_fraction: float = 0.0
    duplicate_fraction: float = 0.0


@dataclass(frozen=True)
class Walk:
    """Where a packet went: the nodes that it visited, crossbars left out, and why it went no further; "" if it
    arrived."""

    path: tuple[int, ...]
    lost: str


class Fib:
    """A forwarding table: the longest prefix wins."""

    def __init__(self) -> None:
        self.routes: dict[Prefix, tuple[Hop, ...]] = {}
        self._lengths: list[int] = []  # of prefixes, longest first

    def set(self, prefix: Prefix, hops: tuple[Hop, ...]) -> None:
        self.routes[prefix] = hops
        if prefix.length not in self._lengths:
            self._lengths = sorted([prefix.length, *self._lengths], reverse=True)

    def lookup(self, address: int) -> tuple[Hop, ...]:
        """The hops for `address`; none if there is no route, or one that refuses."""
        for length in self._lengths:
            hops = self.routes.get(Prefix(address >> (32 - length) << (32 - length), length))
            if hops is not None:
                return hops
        return ()


class Machine:
    """One node that routes: its protocol, its forwarding table, and what the outside did to it."""

    def __init__(self, incarnation: int = 0) -> None:
        self.incarnation = incarnation  # of its last daemon
        self.protocol: RoutingProtocol | None = None  # None while it has no power
        self.fib = Fib()
        self.octets: dict[Prefix, int] = {}  # what packets for a prefix bear from here on
        self.state = 0  # of LBSP's switches
        self.flows: dict[Flow, int] = {}  # what packets of a flow bear from here on
        self.steered: dict[int, int] = {}  # by destination, the address that our own packets for it bear
        self.told_s: dict[int, float] = {}  # by destination, when the daemon was told that it is in use
        self.tick_s = inf  # when the tick event lies in the heap that counts
        self.unread: list[tuple[bytes, int, float]] = []  # payload, port, when it came
        self.stalled_s = -inf  # until when its process does not run

    def readdressed(self, address: int) -> int:
        """What a packet for `address` bears when its route is looked up here."""
        for _ in range(2):
            for prefix, octet in self.octets.items():
                if prefix.holds(address):
                    address = dfr_addresses.readdressed(address, octet)
                    break
        return address


class Fabric:
    """The network `topology`, every router of which runs the scheme `spec`; time is in seconds and begins at 0.

    random: decides about loss, jitter and duplicates of `wire`; needed if there are any.
    start_spread_s: the machines start one after the other within this time.
    Links that have failed in `topology` have no carrier from the beginning.
    """

    def __init__(
        self,
        topology: Topology,
        spec: str,
        *,
        wire: Wire | None = None,
        random: Randomness | None = None,
        start_spread_s: float = 0.010,
    ) -> None:
        self.topology = topology
        self.now = 0.0
        self.changed_s = 0.0  # when a route was set last
        self.counters = {"messages": 0, "bytes": 0, "deliveries": 0, "routes_set": 0}
        self.on_note: Callable[[float, int, str], None] | None = None
        self._views = schemes.views(topology, spec)
        scheme, options = schemes.scheme(spec)
        self._steers = scheme.steers
        self._flows = scheme.flows
        self._readdressed = scheme.readdressed
        self._notice_s = (options["dead"] + 1) * options["hello_ms"] / 1000
        self._wire = wire or Wire()
        self._random = random
        if random is None and (self._wire.jitter_s or self._wire.loss_fraction or self._wire.duplicate_fraction):
            raise ValueError("wires that lose, delay or duplicate at random need a random generator")
        self._ports = [topology.ports(node) for node in range(topology.nodes)]
        self._dead: set[tuple[int, int]] = set()  # (link, end): nothing that this end sends arrives
        self._no_carrier: set[int] = set()
        self._listeners: dict[tuple[int, int], list[tuple[int, int, float]]] = {}
        self._heap: list[tuple[float, int, int, Any, Any]] = []
        self._number = count()
        self._machines = {node: Machine() for node in self._views}
        for node, _ in enumerate(self._ports):
            self._rewire(node)
        for link in topology.failed.nonzero()[0].tolist():
            self.fail(link)
        for at, node in enumerate(self._machines):
            self._push(start_spread_s * at / len(self._machines), CALL, partial(self._boot, node))

    def fail(self, link: int, *, silent: bool = False, sender: int | None = None) -> None:
        """`link` passes nothing more; unless `silent`, both its ends see the carrier go.

        sender: a silent failure of one direction only, what this end sends.
        """
        ends = self._ends(link)
        if sender is not None and not silent:
            raise ValueError("a failure of one direction is silent")
        self._dead |= {(link, end) for end in (ends if sender is None else (sender,))}
        if not silent:
            self._no_carrier.add(link)
        self._wires_changed(link, None if silent else False)

    def restore(self, link: int) -> None:
        """`link` works again."""
        self._dead -= {(link, end) for end in self._ends(link)}
        had_carrier = link not in self._no_carrier
        self._no_carrier.discard(link)
        self._wires_changed(link, None if had_carrier else True)

    def kill(self, node: int) -> None:
        """`node` loses power: it neither speaks nor forwards, and forgets everything.  Its links keep their carrier."""
        incarnation = self._machines[node].incarnation
        self._machines[node] = Machine(incarnation)

    def restart(self, node: int) -> None:
        """`node` runs a new daemon, with empty tables, in place of the one it had if any."""
        self.kill(node)
        self._boot(node)

    def stall(self, node: int, for_s: float) -> None:
        """The daemon of `node` does not run for a while; what arrives is queued."""
        machine = self._machines[node]
        machine.stalled_s = self.now + for_s
        self.at(machine.stalled_s, lambda: self._read(node, machine))

    def run_until(self, time_s: float) -> None:
        """Let everything happen up to and including `time_s`."""
        heap = self._heap
        while heap and heap[0][0] <= time_s:
            self.now, kind, _, what, sent = heappop(heap)
            if kind == PACKET:
                self._deliver(what, sent)
            elif kind == TICK:
                self._tick(what)
            else:
                what()
        self.now = max(self.now, time_s)

    def run_for(self, seconds: float) -> None:
        self.run_until(self.now + seconds)

    def at(self, time_s: float, call: Callable[[], None]) -> None:
        """Do `call` when it is `time_s`."""
        self._push(time_s, CALL, call)

    def run_until_converged(self, within_s: float = 10.0, every_s: float = 0.001) -> float:
        """Run until every daemon has converged and say when that was; TimeoutError names one that has not."""
        end = self.now + within_s
        while (waiting := self._unconverged()) is not None:
            if self.now >= end:
                name = self.topology.naming.name(waiting)
                raise TimeoutError(f"{name} has not converged within {within_s} s: {self.status(waiting)}")
            self.run_for(every_s)
        return self.now

    def run_until_quiet(self, quiet_s: float | None = None, within_s: float = 60.0) -> float:
        """Run until no route has been set for `quiet_s`, and say when the last one was; TimeoutError if it never ends.

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
        """What the daemon of `node` says of itself; empty if it has no power."""
        running = self._machines[node].protocol
        return running.status() if running else {}

    def protocol(self, node: int) -> RoutingProtocol:
        """The state machine of `node`; ValueError if it has no power."""
        running = self._machines[node].protocol
        if running is None:
            raise ValueError(f"{self.topology.naming.name(node)} has no power")
        return running

    def routes(self, node: int) -> Mapping[Prefix, tuple[Hop, ...]]:
        """The forwarding table of `node`, routes that refuse included."""
        return self._machines[node].fib.routes

    def walk(self, src: int, dst: int, choice: int = 0) -> Walk:
        """Where a packet from server `src` to server `dst` goes; of several hops it takes number `choice`, modulo how
        many there are.
        """
        name = self.topology.naming.name
        address = self.topology.naming.address(dst)
        flow = self._flow(src, dst)
        if self._readdressed and src != dst:
            if not self._hops(src, address):
                return Walk((src,), f"no route at {name(src)}")
            address = self._machines[src].steered.get(address, proxy_addresses.address(address, proxy_addresses.DIRECT))
        path = [src]
        been = {(src, address)}
        while path[-1] != dst:
            node = path[-1]
            if node in self._machines:
                machine = self._machines[node]
                if self._flows:
                    address = proxy_addresses.address(address, proxy_addresses.DIRECT)
                    if (octet := machine.flows.get(flow)) is not None:
                        address = dfr_addresses.readdressed(address, octet)
                address = machine.readdressed(address)
            hops = self._hops(node, address)
            if not hops:
                return Walk(tuple(path), f"no route at {name(node)}")
            hop = hops[choice % len(hops)]
            if hop.node not in [listener for listener, _, _ in self._listeners[node, hop.port]]:
                return Walk(tuple(path), f"link dead from {name(node)} to {name(hop.node)}")
            path.append(hop.node)
            if hop.node in self._machines and self._machines[hop.node].protocol is None:
                return Walk(tuple(path), f"{name(hop.node)} has no power")
            if (hop.node, address) in been:
                return Walk(tuple(path), f"loop at {name(hop.node)}")
            been.add((hop.node, address))
        return Walk(tuple(path), "")

    def send(self, src: int, dst: int) -> Walk:
        """Let an application on server `src` send a packet to server `dst`, and the daemon there learn of it as from
        Linux: that the destination is in use, and that a server on the way refused the packet.
        """
        machine = self._machines[src]
        address = self.topology.naming.address(dst)
        protocol = machine.protocol
        walk = self.walk(src, dst)
        if not (self._steers or self._flows) or protocol is None:
            return walk
        if self.now >= machine.told_s.get(address, -inf) + TOLD_AGAIN_S:
            machine.told_s[address] = self.now
            if self._flows:
                actions = cast(FlowProtocol, protocol).in_use(self._flow(src, dst), self.now)
            else:
                actions = cast(SteeringProtocol, protocol).in_use(address, self.now)
            self._act(src, machine, actions)
        if walk.lost.startswith("no route"):
            back_s = 2 * self._wire.delay_s * (len(walk.path) - 1)
            self.at(self.now + back_s, lambda: self._refuse(src, protocol, address))
        return walk

    def _flow(self, src: int, dst: int) -> Flow:
        """The pings of `src` to `dst`."""
        address = self.topology.naming.address
        return Flow(address(src), address(dst), ICMP, 0)

    def _refuse(self, src: int, protocol: RoutingProtocol, address: int) -> None:
        machine = self._machines[src]
        if machine.protocol is protocol:
            self._act(src, machine, cast(SteeringProtocol | FlowProtocol, protocol).refused(address, self.now))

    def _hops(self, node: int, address: int) -> tuple[Hop, ...]:
        if node in self._machines:
            return self._machines[node].fib.lookup(address)
        port, peer, _, _ = self._ports[node][0]  # a host has one way out
        return (Hop(port, peer),)

    def _unconverged(self) -> int | None:
        for node, machine in self._machines.items():
            if machine.protocol is None or not machine.protocol.converged():
                return node
        return None

    def _ends(self, link: int) -> tuple[int, int]:
        a, _, b, _ = self.topology.links[link].tolist()
        return a, b

    def _push(self, time_s: float, kind: int, what: Any, sent: Send | None = None) -> None:
        heappush(self._heap, (time_s, kind, next(self._number), what, sent))

    # -- wires

    def _wires_changed(self, link: int, carrier: bool | None) -> None:
        """Find anew who hears whom around `link`, and tell its ends if the carrier came or went."""
        for end in self._ends(link):
            self._rewire(end)
            for _, peer, _, _ in self._ports[end] if self.topology.is_crossbar(end) else ():
                self._rewire(peer)
        if carrier is not None:
            a, port_a, b, port_b = self.topology.links[link].tolist()
            for end, port in ((a, port_a), (b, port_b)):
                self._tell_carrier(end, port, link)

    def _rewire(self, node: int) -> None:
        """Who hears what `node` sends at each port, at which port of theirs, after how long."""
        if self.topology.is_crossbar(node):
            return
        delay = self._wire.delay_s
        for port, peer, peer_port, link in self._ports[node]:
            found = self._listeners[node, port] = []
            if (link, node) in self._dead:
                continue
            if not self.topology.is_crossbar(peer):
                found.append((peer, peer_port, delay))
                continue
            for _, other, other_port, onward in self._ports[peer]:
                if other != node and (onward, peer) not in self._dead:
                    found.append((other, other_port, 2 * delay))

    def _send(self, node: int, send: Send) -> None:
        self.counters["messages"] += 1
        self.counters["bytes"] += len(send.payload)
        listeners = self._listeners[node, send.port]
        if not listeners:
            return
        if self._random is None:
            self._push(self.now + listeners[0][2], PACKET, listeners, send)
            return
        wire, draw = self._wire, self._random.random
        for listener in listeners:
            links = round(listener[2] / wire.delay_s)
            for _ in range(2 if draw() < wire.duplicate_fraction else 1):
                if draw() < (1 - wire.loss_fraction) ** links:
                    delay = listener[2] + sum(wire.jitter_s * draw() for _ in range(links))
                    self._push(self.now + delay, PACKET, (listener,), send)

    # -- machines

    def _boot(self, node: int) -> None:
        machine = self._machines[node]
        machine.incarnation += 1
        # Spaced so that no sequence number that begins at one incarnation reaches the next.
        machine.protocol = schemes.protocol(self._views[node], machine.incarnation << 32)
        self._act(node, machine, machine.protocol.start(self.now))
        for port, _, _, link in self._ports[node]:
            if link in self._no_carrier:
                self._tell_carrier(node, port, link)

    def _tell_carrier(self, node: int, port: int, link: int) -> None:
        """Tell how the carrier of `link` is, which may have changed again while the daemon was stalled."""
        machine = self._machines.get(node)
        if machine is None or machine.protocol is None:
            return
        if machine.stalled_s > self.now:
            self.at(machine.stalled_s, lambda: self._tell_carrier(node, port, link))
            return
        up = link not in self._no_carrier
        self._act(node, machine, machine.protocol.link_changed(port, up, self.now))

    def _deliver(self, listeners: Iterable[tuple[int, int, float]], sent: Send) -> None:
        for node, port, _ in listeners:
            machine = self._machines.get(node)
            if machine is not None and machine.protocol is not None:
                self.counters["deliveries"] += 1
                machine.unread.append((sent.payload, port, self.now))
                if not sent.routine and machine.stalled_s <= self.now:
                    self._read(node, machine)

    def _read(self, node: int, machine: Machine) -> None:
        """Hand over all that has come."""
        if machine.protocol is None:
            return
        unread, machine.unread = machine.unread, []
        actions: list[Action] = []
        for payload, port, when in unread:
            actions += machine.protocol.receive(payload, port, when)
        self._act(node, machine, actions)

    def _tick(self, node: int) -> None:
        machine = self._machines[node]
        if machine.tick_s != self.now or machine.protocol is None:
            return  # a later thought has replaced this event
        if machine.stalled_s > self.now:
            machine.tick_s = machine.stalled_s
            self._push(machine.tick_s, TICK, node)
            return
        machine.tick_s = inf
        self._read(node, machine)
        if machine.protocol.deadline <= self.now:
            self._act(node, machine, machine.protocol.tick(self.now))

    def _act(self, node: int, machine: Machine, actions: Iterable[Action]) -> None:
        """Do `actions`, and have the machine ticked in time."""
        for action in actions:
            match action:
                case Send():
                    self._send(node, action)
                case SetRoute(prefix, hops, unless_set):
                    if unless_set and prefix in machine.fib.routes:
                        continue
                    machine.fib.set(prefix, hops)
                    self.changed_s = self.now
                    self.counters["routes_set"] += 1
                case Steer(destination, None):
                    machine.steered.pop(destination, None)
                    self.changed_s = self.now
                case Steer(destination, int(steered)):
                    machine.steered[destination] = steered
                    self.changed_s = self.now
                case Readdress(prefix, None):
                    machine.octets.pop(prefix, None)
                    self.changed_s = self.now
                case Readdress(prefix, int(octet)):
                    machine.octets[prefix] = octet
                    self.changed_s = self.now
                case SetState(state):
                    machine.state = state
                case SetFlow(flow, None):
                    machine.flows.pop(flow, None)
                    self.changed_s = self.now
                case SetFlow(flow, int(octet)):
                    machine.flows[flow] = octet
                    self.changed_s = self.now
                case Note():
                    if self.on_note:
                        self.on_note(self.now, node, action.text)
        if machine.protocol and machine.protocol.deadline < machine.tick_s:
            machine.tick_s = max(self.now, machine.protocol.deadline)
            self._push(machine.tick_s, TICK, node)
