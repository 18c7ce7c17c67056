"""Simulated network of endpoints in Python, slow: the oracle of testbed/packets/network.c.

Times are integers in nanoseconds.  Switches spray packets, hash flows, or route by layers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol

from tests.daemons.transport.endpoint import Endpoint, Transmission
from tests.daemons.transport.packets import Data, TransportPacket
from tests.daemons.transport.trimming_queue import (
    Frame,
    LinkModel,
    LinkRoom,
    TrimmingCounters,
    TrimmingQueue,
    frame_of,
)
from weft.daemons.core.scheme import SelectionRule
from weft.daemons.load_balancing.scheme import ChoiceRule
from weft.daemons.routing import path_shares, selection, updown
from weft.daemons.routing.selection import below, mix
from weft.daemons.simulator.wires import CALL, PACKET, TICK, EventQueue, Randomness
from weft.daemons.transport.endpoint import (
    TRIMMABLE,
    TRIMMED,
    Delivered,
    EndpointCounters,
    Finished,
    Parameters,
)

if TYPE_CHECKING:
    from weft.topologies.core.topology import Topology

FLOWLETS, UDP = 1 << 12, 17  # of each switch in network.c; of its hash

# (switch, frame, random number in [0, 1)) -> output port
RouteFunction = Callable[[int, Frame, Callable[[], float]], int]  # node, frame, draw


class HostTransport(Protocol):
    """Transport of a host: an Endpoint, or the one in C."""

    counters: EndpointCounters
    events: list[Delivered | Finished]

    def send(self, now: int, flow: int, peer: int, size_bytes: int) -> None: ...
    def receive(
        self, now: int, peer: int, packet: TransportPacket, whole: bool, congested: bool = False
    ) -> None: ...
    def poll(self, now: int) -> list[Transmission]: ...
    def deadline(self) -> int | None: ...


@dataclass(frozen=True, kw_only=True)
class Trouble:
    """Impairments of wires; a frame delayed by up to `jitter_ns` may be overtaken."""

    loss_fraction: float = 0.0
    duplicate_fraction: float = 0.0
    jitter_ns: int = 0


class TransportNetwork:
    """Network whose nodes trim packets that they forward, and whose hosts queue without limit.

    Args:
        topology: a network; hosts of several links forward, too.
        link: properties of all links.
        parameters: of the transport.
        route: choice of ports.
        random: random numbers.
        trouble: impairments of wires.
        make: (parameters) -> transport of a host.

    Attributes:
        delivered, finished: (host, event) of all hosts, in order of time.
        failed: ports of switches, as (node, port), that lose all packets.
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
        self.failed: set[tuple[int, int]] = set()
        self._route, self._trouble = route, trouble
        self._wakes: list[int | None] = [None] * topology.servers
        self._queues: dict[tuple[int, int], TrimmingQueue] = {}
        for node in range(topology.nodes):
            for port, peer, _, _ in topology.live_ports(node):
                self._queues[node, port] = TrimmingQueue(
                    link,
                    peer < topology.servers,
                    random.random,
                    self._at,
                    partial(self._on_wire, peer),
                    peer,
                )

    @property
    def now(self) -> int:
        """Time since the beginning, in ns."""
        return int(self.events.now)

    def send(self, time_ns: int, src: int, dst: int, flow: int, size_bytes: int) -> None:
        """Schedule a message from host `src` to host `dst` at `time_ns`."""
        self.events.push(time_ns, CALL, self._begin, src, dst, flow, size_bytes)

    def fail(self, links: Sequence[Sequence[int]]) -> None:
        """Let links, rows of Topology.links, lose all packets."""
        for a, port_a, b, port_b in links:
            for end in ((a, port_a), (b, port_b)):
                self.failed.add(end)
                self._queues[end].clear(self.now)

    def reroute(self, route: RouteFunction) -> None:
        """Choose ports by `route` from now on."""
        self._route = route

    def run_until(self, time_ns: int) -> None:
        """Run all events up to and including `time_ns`."""
        self.events.run_until(time_ns)

    def ports(self) -> Mapping[tuple[int, int], TrimmingCounters]:
        """Return the counters of all ports by node and port."""
        return {where: queue.counters for where, queue in self._queues.items()}

    def rooms(self) -> Mapping[tuple[int, int], LinkRoom]:
        """Return the room behind all ports by node and port."""
        return {where: queue.room for where, queue in self._queues.items()}

    def load(self, node: int, port: int, in_bytes: int) -> int:
        """Return the packets, or the bytes, that wait at a port."""
        return self._queues[node, port].load(in_bytes)

    def _at(self, time_ns: int, call: Callable[[], None]) -> None:
        self.events.push(time_ns, PACKET, call)

    def _begin(self, src: int, dst: int, flow: int, size_bytes: int) -> None:
        self.hosts[src].send(self.now, flow, dst, size_bytes)
        self._poll(src)

    def _on_wire(self, peer: int, frame: Frame) -> None:
        """Deliver a frame at the far end, subject to impairments."""
        trouble, draw = self._trouble, self.random.random
        if not trouble:
            self._arrive(peer, frame)
            return
        for _ in range(2 if draw() < trouble.duplicate_fraction else 1):
            if draw() >= trouble.loss_fraction:
                late_ns = int(draw() * trouble.jitter_ns)
                self.events.push(self.now + late_ns, PACKET, self._arrive, peer, frame)

    def _arrive(self, node: int, frame: Frame) -> None:
        if node != frame.dst:
            is_leaf = node < self.topology.servers and len(self.topology.live_ports(node)) == 1
            assert not is_leaf, "a switch has sent a frame to the wrong host"
            if frame.room:
                frame.room.take(self.now, frame.length_bytes)
            port = self._route(node, frame, self.random.random)
            if (node, port) not in self.failed:
                self._queues[node, port].put(self.now, frame)
            elif frame.room:
                frame.room.free(self.now, frame.length_bytes)
            return
        whole = not isinstance(frame.packet, Data) or frame.code_point == TRIMMABLE
        congested = frame.marked if whole else frame.code_point == TRIMMED
        self.hosts[node].receive(self.now, frame.src, frame.packet, whole, congested)
        self._poll(node)

    def _poll(self, host: int) -> None:
        transport = self.hosts[host]
        for transmission in transport.poll(self.now):
            frame = frame_of(host, transmission)
            ports = self.topology.live_ports(host)
            port = ports[0][0] if len(ports) == 1 else self._route(host, frame, self.random.random)
            if (host, port) not in self.failed:
                self._queues[host, port].put(self.now, frame, own=True)
        for event in transport.events:
            if isinstance(event, Delivered):
                self.delivered.append((host, event))
            else:
                self.finished.append((host, event))
        transport.events.clear()
        deadline = transport.deadline()
        wake = self._wakes[host]
        if deadline is not None and (wake is None or deadline < wake):
            self._wakes[host] = deadline
            self.events.push(max(deadline, self.now), TICK, self._wake, host, deadline)

    def _wake(self, host: int, deadline: int) -> None:
        if self._wakes[host] == deadline:  # else superseded by an earlier one
            self._wakes[host] = None
            self._poll(host)


def spray_routing(topology: Topology) -> RouteFunction:
    """Return routing of each packet over a random shortest path."""
    switches = range(topology.servers, topology.nodes)
    hops = {
        node: [[hop.port for hop in row] for row in updown.next_hops(topology, node)]
        for node in switches
    }

    def route(switch: int, frame: Frame, draw: Callable[[], float]) -> int:
        ports = hops[switch][frame.dst]
        return ports[int(draw() * len(ports))]

    return route


def ecmp_routing(topology: Topology, seed: int) -> RouteFunction:
    """Return routing of each flow over one shortest path, by its hash (ECMP)."""
    switches = range(topology.servers, topology.nodes)
    hops = {
        node: [[hop.port for hop in row] for row in updown.next_hops(topology, node)]
        for node in switches
    }

    def route(switch: int, frame: Frame, draw: Callable[[], float]) -> int:
        draw()  # as the library does for each packet at a switch
        ports = hops[switch][frame.dst]
        own = mix(seed & 0xFFFFFFFF, switch - topology.servers)
        flow = frame.packet.flow ^ frame.packet.layer << 24  # its entropy value, or 0
        return ports[below(selection.flow_hash(own, frame.src, frame.dst, flow, UDP), len(ports))]

    return route


def plane_routing(topology: Topology, route: RouteFunction) -> RouteFunction:
    """Return routing of packets to a host's healthy links by entropy value, then by `route`."""

    def routed(node: int, frame: Frame, draw: Callable[[], float]) -> int:
        if node >= topology.servers:
            return route(node, frame, draw)
        assert node == frame.src, "a host has been sent the packet of another"
        alive = [port for port, *_ in topology.live_ports(node)]
        return alive[frame.packet.layer % len(alive)]

    return routed


class DetourRoute:
    """Valiant or UGAL with the functions of daemons/routing/path_shares.py.

    Args:
        topology: a network whose switches all have hosts.
        rule: the rule.
        seed: of flows' hashes.
        bits: returns 64 random bits, of the stream that the network draws from, too.

    Attributes:
        network: that these switches belong to; set before it runs.
        waypoints: how often each switch was chosen, numbered from 0.
    """

    network: TransportNetwork

    def __init__(
        self, topology: Topology, rule: SelectionRule, seed: int, bits: Callable[[], int]
    ) -> None:
        self._rule, self._seed, self._bits = rule, seed & 0xFFFFFFFF, bits
        self._first, self._switches = topology.servers, topology.switches
        self._edge = [topology.ports(host)[0][1] for host in range(topology.servers)]
        self._down = {
            peer: port
            for switch in range(topology.servers, topology.nodes)
            for port, peer, _, _ in topology.ports(switch)
            if peer < topology.servers
        }
        graph = {
            switch: {
                peer for _, peer, _, _ in topology.live_ports(switch) if peer >= topology.servers
            }
            for switch in range(topology.servers, topology.nodes)
        }
        whole = {
            switch: {peer for _, peer, _, _ in topology.ports(switch) if peer >= topology.servers}
            for switch in range(topology.servers, topology.nodes)
        }
        self._hops = {switch: breadth_first(whole, switch) for switch in whole}
        live = {switch: breadth_first(graph, switch) for switch in graph}
        self._ports = {
            (switch, last): [
                port
                for port, peer, _, _ in topology.live_ports(switch)
                if peer in live and live[peer].get(last, 999) + 1 == live[switch].get(last)
            ]
            for switch in graph
            for last in graph
        }
        self._flowlets: dict[tuple[int, int], tuple[path_shares.Detour, int]] = {}
        self.waypoints: Counter[int] = Counter()

    def follow(self, before: DetourRoute) -> None:
        """Go on with the packets and flowlets of the routing before."""
        self.network = before.network
        self._flowlets = before._flowlets

    def __call__(self, switch: int, frame: Frame, draw: Callable[[], float]) -> int:
        draw()
        is_new, waypoint = not frame.waypoints, sum(frame.waypoints)
        last = self._edge[frame.dst]
        if waypoint and not self._towards(switch, waypoint, last):
            waypoint = 0
        if not waypoint and switch == last:
            return self._down[frame.dst]
        if is_new:
            waypoint, candidate = self._detour(switch, frame, last)
            self.waypoints[waypoint - 1] += 1
        else:
            n = len(self._towards(switch, waypoint, last))
            number = self._hash(switch, frame) if self._rule["gap_us"] else self._bits() >> 32
            candidate = below(number, n)
        frame.waypoints[:] = [waypoint]
        return self._towards(switch, waypoint, last)[candidate]

    def _towards(self, switch: int, waypoint: int, last: int) -> list[int]:
        return self._ports[switch, self._first + waypoint - 1 if waypoint else last]

    def _hash(self, switch: int, frame: Frame) -> int:
        seed = mix(self._seed, switch - self._first)
        return selection.flow_hash(seed, frame.src, frame.dst, frame.packet.flow, UDP)

    def _detour(self, switch: int, frame: Frame, last: int) -> path_shares.Detour:
        gap_ns, now = 1000 * self._rule["gap_us"], self.network.now
        if not gap_ns:
            return self._new_detour(switch, last)
        slot = switch, self._hash(switch, frame) % FLOWLETS
        kept, last_ns = self._flowlets.get(slot, (None, 0))
        if (
            kept is None
            or now - last_ns > gap_ns
            or kept.candidate >= len(self._towards(switch, kept.waypoint, last))
        ):
            kept = self._new_detour(switch, last)
        self._flowlets[slot] = kept, now
        return kept

    def _new_detour(self, switch: int, last: int) -> path_shares.Detour:
        trip = path_shares.Trip(switch - self._first, last - self._first, self._switches)
        draws = iter(lambda: self._bits() >> 32, None)

        def loads(waypoint: int) -> list[int]:
            ports = self._towards(switch, waypoint, last)
            return [self.network.load(switch, port, self._rule["load"]) for port in ports]

        def hops(a: int, b: int) -> int:
            return self._hops[self._first + a][self._first + b]

        if self._rule.rule == ChoiceRule.VALIANT:
            return path_shares.valiant(loads, trip, draws)
        return path_shares.ugal(loads, hops, trip, draws, self._rule["d"], self._rule["delta"])


def breadth_first(graph: Mapping[int, Iterable[int]], src: int) -> dict[int, int]:
    """Return the hops from `src` to each node within reach."""
    hops, frontier = {src: 0}, [src]
    for node in frontier:
        for peer in graph[node]:
            if peer not in hops:
                hops[peer] = hops[node] + 1
                frontier.append(peer)
    return hops


class RuleRoute:
    """Choice of ports by a rule of the data plane, with the functions of daemons/routing/selection.

    Args:
        topology: a fabric of switches; in tiers for D-mod-k and TTC.
        rule: the rule.
        seed: of round robin and of flowlets' hashes.
        bits: returns 64 random bits, of the stream that the network draws from, too.

    Attributes:
        network: that these switches belong to; set before it runs.
        moved: packets that did not take the first candidate of those that they had.
    """

    network: TransportNetwork

    def __init__(
        self, topology: Topology, rule: SelectionRule, seed: int, bits: Callable[[], int]
    ) -> None:
        self._naming, self._rule, self._seed = topology.naming, rule, seed & 0xFFFFFFFF
        self._first = topology.servers
        self._draw = lambda: bits() >> 32
        self._turns: Counter[tuple[int, tuple[int, ...]]] = Counter()
        self._winners: dict[tuple[int, tuple[int, ...]], int] = {}
        self._flowlets: dict[tuple[int, int], tuple[int, int]] = {}
        self._hops = {
            node: [tuple(hop.port for hop in row) for row in updown.next_hops(topology, node)]
            for node in range(topology.servers, topology.nodes)
        }
        self.moved = 0

    def __call__(self, switch: int, frame: Frame, draw: Callable[[], float]) -> int:
        draw()
        ports = self._hops[switch][frame.dst]
        if len(ports) == 1:
            return ports[0]
        candidate = self._candidate(switch, frame, ports)
        self.moved += candidate > 0
        return ports[candidate]

    def _candidate(self, switch: int, frame: Frame, ports: tuple[int, ...]) -> int:
        rule, n, group = self._rule, len(ports), (switch, ports)
        if rule.rule == ChoiceRule.ROUND_ROBIN:
            self._turns[group] += 1
            return (mix(self._seed, switch - self._first) + self._turns[group] - 1) % n
        if rule.rule == ChoiceRule.FLOWLET:
            return self._flowlet(switch, frame, n)
        if rule.rule == ChoiceRule.D_MOD_K:
            return self._default(switch, frame, n)
        loads = [self.network.load(switch, port, rule["load"]) for port in ports]
        if rule.rule == ChoiceRule.TTC:
            default = self._default(switch, frame, n)
            return selection.ttc(loads, default, self._draw(), rule["delta"], rule["tie"])
        if rule.rule == ChoiceRule.DRILL:
            remembered = self._winners.get(group, n) if rule["m"] else n
            draws = [self._draw() for _ in range(min(rule["d"], n))]
            self._winners[group] = selection.drill(loads, remembered, draws)
            return self._winners[group]
        return selection.shortest(loads, self._draw())

    def _default(self, switch: int, frame: Frame, n: int) -> int:
        naming = self._naming
        fields = selection.digits(naming.layout, naming.tier(switch))
        return selection.d_mod_k(selection.host_number(naming.address(frame.dst), fields), n)

    def _flowlet(self, switch: int, frame: Frame, n: int) -> int:
        number, now = switch - self._first, self.network.now
        seed = mix(self._seed, number)
        hashed = selection.flow_hash(seed, frame.src, frame.dst, frame.packet.flow, UDP)
        slot = number, hashed % FLOWLETS
        last, last_ns = self._flowlets.get(slot, (n, 0))
        if last == n or now - last_ns > 1000 * self._rule["gap_us"]:
            last = below(self._draw(), n)
        self._flowlets[slot] = last, now
        return last


def path_routing(topology: Topology, path: Callable[[int, int], Sequence[int]]) -> RouteFunction:
    """Return routing along path(src, dst), whose nodes are those that route."""

    def route(node: int, frame: Frame, draw: Callable[[], float]) -> int:
        nodes = path(frame.src, frame.dst)
        if topology.is_crossbar(node):
            peers = {peer: port for port, peer, _, _ in topology.ports(node)}
            (port,) = (peers[b] for a, b in pairwise(nodes) if a in peers and b in peers)
            return port
        following = nodes[nodes.index(node) + 1]
        for port, peers in topology.neighbours(node).items():
            if following in peers:
                return port
        raise AssertionError(f"no link leads from {node} to {following}")

    return route


def layer_routing(
    topology: Topology, ports_of: Sequence[Mapping[int, Mapping[int, int]]]
) -> RouteFunction:
    """Return routing of each packet by the routes of its layer.

    Args:
        topology: a switch fabric.
        ports_of: port to each other switch, by layer and switch; see routes() in
            daemons/fatpaths/layers.py.
    """
    below = {}
    for host in range(topology.servers):
        ((_, switch, port, _),) = topology.live_ports(host)
        below[host] = (switch, port)

    def route(switch: int, frame: Frame, draw: Callable[[], float]) -> int:
        draw()
        edge, port = below[frame.dst]
        return port if edge == switch else ports_of[frame.packet.layer][switch][edge]

    return route


def routes(topology: Topology, table: Any, node: int) -> dict[int, int]:
    """Return the output port of switch `node` for each other switch in one layer."""
    port_to = {
        peer: port for port, peer, _, _ in topology.live_ports(node) if peer >= topology.servers
    }
    own = node - topology.servers
    return {
        t + topology.servers: port_to[int(table[t, own]) + topology.servers]
        for t in range(len(table))
        if t != own
    }
