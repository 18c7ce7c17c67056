"""Endpoints of the purified transport on a network of switches that trim: packet by packet, in
simulated time.

Times are integers, nanoseconds.  Switches route as they are told: by any shortest path, packet by
packet, or by layers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol

from weft.daemons.routing import updown
from weft.daemons.routing.selection import below, mix
from weft.daemons.simulator.event_queue import CALL, PACKET, TICK, EventQueue
from weft.daemons.simulator.trimming_queue import (
    Frame,
    LinkModel,
    TrimmingCounters,
    TrimmingQueue,
    frame_of,
)
from weft.daemons.simulator.wires import Randomness
from weft.daemons.transport.endpoint import (
    Delivered,
    Endpoint,
    EndpointCounters,
    Finished,
    Transmission,
)
from weft.daemons.transport.packets import TRIMMABLE, TRIMMED_AT_HOST, Data, TransportPacket
from weft.daemons.transport.parameters import Parameters

if TYPE_CHECKING:
    from weft.topologies.core.topology import Topology

# switch, frame, uniform in [0, 1) -> the port by which it goes on
RouteFunction = Callable[[int, Frame, float], int]


class HostTransport(Protocol):
    """What a host runs: an Endpoint, or its like in C."""

    counters: EndpointCounters
    events: list[Delivered | Finished]

    def send(self, now: int, flow: int, peer: int, size_bytes: int) -> None: ...
    def receive(
        self, now: int, peer: int, packet: TransportPacket, whole: bool, at_host: bool = False
    ) -> None: ...
    def poll(self, now: int) -> list[Transmission]: ...
    def deadline(self) -> int | None: ...


@dataclass(frozen=True, kw_only=True)
class Trouble:
    """What wires do to a frame beside carrying it: lose it, deliver it twice, or delay it by up to
    jitter_ns, so that it is overtaken."""

    loss_fraction: float = 0.0
    duplicate_fraction: float = 0.0
    jitter_ns: int = 0


class TransportNetwork:
    """`topology`, a switch fabric, whose links are like `link`; hosts send without limit, switches
    trim.

    make: (parameters) -> the transport of a host.
    delivered, finished: events of all hosts as they come: (host, event).
    """

    def __init__(
        self,
        topology: Topology,
        link: LinkModel,
        parameters: Parameters,
        route: RouteFunction,
        random: Randomness,
        *,
        trouble: Trouble | None = None,
        make: Callable[[Parameters], HostTransport] = Endpoint,
    ) -> None:
        self.topology, self.random, self.events = topology, random, EventQueue()
        self.hosts = [make(parameters) for _ in range(topology.servers)]
        self.delivered: list[tuple[int, Delivered]] = []
        self.finished: list[tuple[int, Finished]] = []
        self._route, self._trouble = route, trouble
        self._wakes: list[int | None] = [None] * topology.servers
        self._queues: dict[tuple[int, int], TrimmingQueue] = {}
        for node in range(topology.nodes):
            for port, peer, _, _ in topology.live_ports(node):
                is_host = node < topology.servers
                self._queues[node, port] = TrimmingQueue(
                    link.unlimited() if is_host else link,
                    peer < topology.servers,
                    random.random,
                    self._at,
                    partial(self._on_wire, peer),
                )
        self._out = [topology.live_ports(host)[0][0] for host in range(topology.servers)]

    @property
    def now(self) -> int:
        """Nanoseconds since the beginning."""
        return int(self.events.now)

    def send(self, at: int, src: int, dst: int, flow: int, size_bytes: int) -> None:
        """Let host `src` send a message to host `dst` when it is `at`."""
        self.events.push(at, CALL, self._begin, src, dst, flow, size_bytes)

    def run_until(self, time_ns: int) -> None:
        """Let everything happen up to then."""
        self.events.run_until(time_ns)

    def ports(self) -> Mapping[tuple[int, int], TrimmingCounters]:
        """The counters of every port, by node and port."""
        return {where: queue.counters for where, queue in self._queues.items()}

    def _at(self, time_ns: int, call: Callable[[], None]) -> None:
        self.events.push(time_ns, PACKET, call)

    def _begin(self, src: int, dst: int, flow: int, size_bytes: int) -> None:
        self.hosts[src].send(self.now, flow, dst, size_bytes)
        self._poll(src)

    def _on_wire(self, peer: int, frame: Frame) -> None:
        """A frame has come to the far end, if nothing happens to it."""
        trouble, draw = self._trouble, self.random.random
        if not trouble:
            self._arrive(peer, frame)
            return
        for _ in range(2 if draw() < trouble.duplicate_fraction else 1):
            if draw() >= trouble.loss_fraction:
                late_ns = int(draw() * trouble.jitter_ns)
                self.events.push(self.now + late_ns, PACKET, self._arrive, peer, frame)

    def _arrive(self, node: int, frame: Frame) -> None:
        if node >= self.topology.servers:
            port = self._route(node, frame, self.random.random())
            self._queues[node, port].put(self.now, frame)
            return
        assert node == frame.dst, "a switch has sent a frame to the wrong host"
        whole = not isinstance(frame.packet, Data) or frame.code_point == TRIMMABLE
        self.hosts[node].receive(
            self.now, frame.src, frame.packet, whole, frame.code_point == TRIMMED_AT_HOST
        )
        self._poll(node)

    def _poll(self, host: int) -> None:
        transport = self.hosts[host]
        for peer, packet, payload_bytes in transport.poll(self.now):
            self._queues[host, self._out[host]].put(
                self.now, frame_of(host, peer, packet, payload_bytes)
            )
        for event in transport.events:
            if isinstance(event, Delivered):
                self.delivered.append((host, event))
            else:
                self.finished.append((host, event))
        transport.events.clear()
        at = transport.deadline()
        wake = self._wakes[host]
        if at is not None and (wake is None or at < wake):
            self._wakes[host] = at
            self.events.push(max(at, self.now), TICK, self._wake, host, at)

    def _wake(self, host: int, at: int) -> None:
        if self._wakes[host] == at:  # else superseded by an earlier one
            self._wakes[host] = None
            self._poll(host)


def sprayed(topology: Topology) -> RouteFunction:
    """Each packet by any shortest path."""
    switches = range(topology.servers, topology.nodes)
    hops = {
        node: [[hop.port for hop in each] for each in updown.next_hops(topology, node)]
        for node in switches
    }

    def route(switch: int, frame: Frame, draw: float) -> int:
        ports = hops[switch][frame.dst]
        return ports[int(draw * len(ports))]

    return route


def hashed(topology: Topology) -> RouteFunction:
    """The packets of a flow in one direction by one shortest path, which its number chooses
    (ECMP)."""
    switches = range(topology.servers, topology.nodes)
    hops = {
        node: [[hop.port for hop in each] for each in updown.next_hops(topology, node)]
        for node in switches
    }

    def route(switch: int, frame: Frame, draw: float) -> int:
        ports = hops[switch][frame.dst]
        return ports[below(mix(mix(frame.packet.flow, frame.src), switch), len(ports))]

    return route


def layered(
    topology: Topology, ports_of: Sequence[Mapping[int, Mapping[int, int]]]
) -> RouteFunction:
    """Each packet by the routes of its layer.

    ports_of: for each layer, for each switch, the port to each other switch
        (daemons/fatpaths/layers.py, routes()).
    """
    below = {}
    for host in range(topology.servers):
        ((_, switch, port, _),) = topology.live_ports(host)
        below[host] = (switch, port)

    def route(switch: int, frame: Frame, draw: float) -> int:
        edge, port = below[frame.dst]
        return port if edge == switch else ports_of[frame.packet.layer][switch][edge]

    return route
