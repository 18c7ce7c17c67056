"""Daemons of a scheme in the time of simulated packets, whose tables they change.

The daemons are those of daemons/simulator.  Their own packets take the delay of each link, and pass
its queue, as on Linux (testbed/linux/tc.py).  At one instant packets come before daemons.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from weft.daemons.core import registry
from weft.daemons.core.actions import Action, FiveTuple, Note, Send, SetFlowPort
from weft.daemons.core.contract import FlowPlacement, FlowsSeen, LongQueue, Refused, SeenFlow
from weft.daemons.core.node_config import routers
from weft.daemons.core.scheme import SelectionRule
from weft.daemons.routing.selection import flow_hash
from weft.daemons.simulator.node import SimulatedFlowPlacements
from weft.daemons.simulator.simulator import REPORT_S, Simulator
from weft.daemons.simulator.wires import Wire
from weft.daemons.transport.endpoint import Delivered
from weft.testbed.packets.forwarding import Forwarding, check_forwarding
from weft.testbed.packets.network import (
    DaemonCalls,
    LookUp,
    NextHops,
    PacketNetwork,
    PortTable,
    TableFlow,
    departures,
)
from weft.topologies.core.grammar import parse
from weft.topologies.core.link import LinkSpec
from weft.topologies.core.topology import Topology

TCP = 6
MOST_PORT = (1 << 16) - 1
MEMOS_OF_FLOW, LEAST_MEMOS, MOST_MEMOS = 32, 1 << 12, 1 << 22
FIRST_ROOM = 1 << 16  # numbers in sets of next hops
REQUEST_BYTES = 64  # of a packet of a daemon that waits with data, as a frame


class ControlPlane:
    """Daemons that have converged, at 0 s of a simulation of packets.

    Args:
        topology: the network.
        scheme: routing.
        links: specification of each link.

    Attributes:
        forwarding: tables of a fabric's switches, which change in place.

    Raises:
        ValueError: the scheme has no daemons, or its packets cannot be simulated.
    """

    def __init__(self, topology: Topology, scheme: str, links: Sequence[LinkSpec]) -> None:
        check_daemons(topology, scheme)
        self._topology = topology
        self._wire_s = links[0].delay_us / 1e6
        self._simulator = converged(topology, scheme, links)
        self._simulator.on_action = self._note
        self._routers = routers(topology)  # hosts of a fabric run no daemon
        self._origin_s = self._simulator.now
        self._changed: set[int] = set()
        self._refused_s: dict[tuple[int, ...], float] = {}
        self._flows: list[FiveTuple] = []
        self._nodes: dict[int, int] = {}  # by address
        self._ports = PortTable.of(topology)
        self._error: BaseException | None = None
        self._tables: LiveTables | None = None
        self._placed: PlacedFlows | None = None
        self.forwarding = Forwarding(None)
        registered, options = registry.checked(topology, scheme)
        if rule := registered.rule(options):
            self._tables = LiveTables(topology, self._simulator, rule)
            self._follows_flows = rule.reads_daemons
            self.forwarding = Forwarding(self._tables.next_hops, rule["ecn"])

    def attach(
        self,
        network: PacketNetwork,
        flows: Sequence[tuple[float, int, int]],
        is_live: Callable[[int], bool],
    ) -> None:
        """Route the packets of `network`.

        Args:
            network: with the tables of `forwarding`.
            flows: start, source and destination of each message.
            is_live: (message) -> True if it has not arrived.
        """
        self._network, self._is_live = network, is_live
        self._name_flows(flows)
        if self._tables:
            network.live()
            if self._follows_flows:
                self._placed = PlacedFlows(
                    network, self._topology, self._simulator, self._flows, self._origin_s
                )
            return
        memos = 1 << (MEMOS_OF_FLOW * len(flows)).bit_length()
        network.live(LookUp(self._look_up), min(max(memos, LEAST_MEMOS), MOST_MEMOS))
        for number, (start_s, src, dst) in enumerate(flows):
            for back, sender in enumerate((src, dst)):
                if sender in self._routers:
                    self._simulator.at(self._origin_s + start_s, partial(self._use, number, back))

    def _name_flows(self, flows: Sequence[tuple[float, int, int]]) -> None:
        """Give each message addresses and ports of its own."""
        address = self._topology.naming.address
        for number, (_, src, dst) in enumerate(flows):
            ports = (1 + number % MOST_PORT) << 16 | (1 + number // MOST_PORT)
            self._flows.append(FiveTuple(address(src), address(dst), TCP, ports))
            self._nodes |= {address(src): src, address(dst): dst}

    def fail(self, links: Sequence[int], *, silent: bool) -> None:
        """Fail links now; unless `silent`, both ends lose the carrier."""
        for link in links:
            self._simulator.fail(link, silent=silent)
        self._apply()

    def restore(self, links: Sequence[int]) -> None:
        """Restore links now."""
        for link in links:
            self._simulator.restore(link)
        self._apply()

    def statuses(self) -> list[dict[str, Any]]:
        """Return the status of each router's daemon, in order of nodes."""
        return [self._simulator.status(node) for node in sorted(self._routers)]

    def run_until(
        self,
        time_s: float,
        on_delivered: Callable[[Delivered], object],
        watch: Callable[[], object],
        goes_on: Callable[[], bool],
    ) -> None:
        """Run packets and daemons up to and including `time_s`, or while `goes_on`.

        on_delivered, watch: see PacketNetwork.run_until().
        """
        end_s = self._origin_s + time_s
        while goes_on():
            next_s = min(self._simulator.next_s, end_s)
            more = self._network.run_some(round(1e9 * (next_s - self._origin_s)), on_delivered)
            self._raise()
            if more:
                watch()
                continue
            self._simulator.run_until(next_s)
            self._apply()
            if next_s == end_s:
                return

    def _raise(self) -> None:
        """Raise the error of a look-up, through which the library cannot raise."""
        if self._error:
            raise self._error

    def _note(self, now: float, node: int, action: Action) -> None:
        if isinstance(action, SetFlowPort):
            if self._placed:
                self._placed.place(node, action)
        elif not isinstance(action, Send | Note):
            self._changed.add(node)

    def _apply(self) -> None:
        """Let packets take the routes that daemons have changed."""
        for node in sorted(self._changed):
            if self._tables:
                self._tables.update(node)
            else:
                self._network.forget(node)
        self._changed.clear()
        if self._tables and self._tables.is_new:
            self._network.reroute(self._tables.next_hops)
            self._tables.is_new = False

    def _flow(self, number: int, back: int) -> FiveTuple:
        """Return the flow of a message's packets, or of the answers."""
        flow = self._flows[number]
        if not back:
            return flow
        ports = (flow.ports & MOST_PORT) << 16 | flow.ports >> 16
        return FiveTuple(flow.destination, flow.source, flow.protocol, ports)

    def _look_up(self, node: int, number: int, back: int, address: int, hop: Any) -> int:
        try:
            return self._fill_in(node, self._flow(number, back), address, hop[0])
        except BaseException as error:  # the library goes on; run_until() raises it
            self._error = self._error or error
            return 0

    def _fill_in(self, node: int, flow: FiveTuple, address: int, hop: Any) -> int:
        """Fill in where `node` sends a packet of `flow`, as packet_walk.walk() has it."""
        if not address:
            address = flow.destination
            if node in self._routers:
                router = self._simulator.node(node)
                if router.refuses(address):
                    return 0
                address = router.leaving(address)
        choice = flow_hash(node, *flow[:2], flow.ports, flow.protocol)
        address, onward = self._simulator.forward(node, address, flow, choice)
        if not onward:
            self._refuse(flow)
            return 0
        port = self._ports.place(node, onward.port)
        peer = int(self._ports.peer[port])
        hop.port, hop.address = port, address
        if peer != onward.node:
            first, last = self._ports.first[peer : peer + 2]
            hop.crossing = int((self._ports.peer[first:last] == onward.node).argmax())
        return 1

    def _refuse(self, flow: FiveTuple) -> None:
        """Tell the source of `flow` that a server has no route, unless it was told just now."""
        src = self._nodes[flow.source]
        if src not in self._routers:
            return
        now_s = max(self._simulator.now, self._origin_s + self._network.now_ns / 1e9)
        told_s = self._refused_s.get(flow[:2], -math.inf)
        if now_s >= told_s + REPORT_S and self._simulator.node(src).sent(flow):
            self._refused_s[flow[:2]] = now_s
            event = Refused(flow.destination)
            self._simulator.at(now_s + self._wire_s, partial(self._simulator.tell, src, event))

    def _use(self, number: int, back: int) -> None:
        """Report the packets of a flow, now and then, to the daemon of their source."""
        flow = self._flow(number, back)
        src = self._nodes[flow.source]
        events = self._simulator.node(src).sent(flow)
        if events and self._is_live(number):
            for event in events:
                self._simulator.tell(src, event)
            self._simulator.at(self._simulator.now + REPORT_S, partial(self._use, number, back))


class PlacedFlows:
    """Flows at a fabric's switches, whose daemons read and place them (FlowPlacement).

    In the simulator they take the place of flows without packets (daemons/simulator/flows.py).

    Args:
        network: whose switches note flows.
        topology: the network.
        simulator: its daemons.
        flows: of each message.
        origin_s: time of the daemons at 0 s.
    """

    def __init__(
        self,
        network: PacketNetwork,
        topology: Topology,
        simulator: Simulator,
        flows: Sequence[FiveTuple],
        origin_s: float,
    ) -> None:
        self._network, self._simulator = network, simulator
        self._flows, self._origin_s = flows, origin_s
        self._number = {flow: number for number, flow in enumerate(flows)}
        self._ports = ports = network.ports
        ends = topology.links[ports.link]
        is_first = (ends[:, 0] == ports.node) & (ends[:, 1] == ports.number)
        self._port_of_peer: list[int] = np.where(is_first, ends[:, 3], ends[:, 1]).tolist()
        self._port_number: list[int] = ports.number.tolist()
        self._port_node: list[int] = ports.node.tolist()
        self._turns: dict[int, int] = {}
        self._sent: list[tuple[int, bytes]] = []  # receiving port and payload of each packet
        simulator.flow_tables = self
        network.calls = DaemonCalls(self._meet, self._hear)

    def look(self, number: int, now: float) -> list[FlowsSeen]:
        need = self._simulator.node(number).capability(SimulatedFlowPlacements).config
        turn = need.turn(now)
        if turn == self._turns.get(number):
            return []
        self._turns[number] = turn
        since_s = now - self._origin_s
        rows = self._network.table(number, round(1e9 * need.idle_s))
        return [FlowsSeen(tuple(self._seen(number, row, since_s) for row in rows))]

    def _seen(self, node: int, row: TableFlow, since_s: float) -> SeenFlow:
        rested_s = since_s - row.moved_ns / 1e9 if row.moved_ns else math.inf
        flow, port = self._flows[row.message], self._port(node, row.port)
        return SeenFlow(flow, port, since_s - row.last_ns / 1e9, rested_s)

    def _port(self, node: int, place: int) -> int:
        """Return the port of `node` that a TableFlow names."""
        if self._port_node[place] == node:
            return self._port_number[place]
        return self._port_of_peer[place]

    def send(self, node: int, action: Send) -> None:
        place = self._ports.place(node, action.port)
        self._network.tell(place, REQUEST_BYTES, len(self._sent))
        self._sent.append((self._port_of_peer[place], action.payload))

    def place(self, node: int, action: SetFlowPort) -> None:
        """Let a flow leave by a port of `node`."""
        need = self._simulator.node(node).capability(SimulatedFlowPlacements).config
        place = self._ports.place(node, action.port)
        number = self._number[action.flow]
        self._network.place(node, number, place, with_destination=need.by_destination)

    def _meet(self, node: int, message: int, place: int) -> None:
        """Tell the daemon of `node` that a packet joined a long queue."""
        self._advance()
        self._simulator.tell(node, LongQueue(self._flows[message], self._port(node, place)))

    def _hear(self, node: int, number: int) -> None:
        """Deliver a packet of a daemon."""
        self._advance()
        port, payload = self._sent[number]
        self._simulator.hear(node, payload, port)

    def _advance(self) -> None:
        now_s = self._origin_s + self._network.now_ns / 1e9
        self._simulator.run_until(max(self._simulator.now, now_s))


class NoFlows:
    """Empty flow tables, which cost nothing while daemons converge."""

    def look(self, number: int, now: float) -> Sequence[FlowsSeen]:
        return ()

    def send(self, node: int, action: Send) -> None:
        raise RuntimeError("a request about a flow, and there are none")


class LiveTables:
    """Next hops of a fabric's switches, from the routes of their daemons.

    Attributes:
        next_hops: for the library, which sees changes in place.
        is_new: True if there was no room for another set, so that next_hops has been replaced.
    """

    def __init__(self, topology: Topology, simulator: Simulator, rule: SelectionRule) -> None:
        self._servers, self._simulator = topology.servers, simulator
        self._ports = PortTable.of(topology)
        host_links = topology.links[topology.level == 0]
        last_switches, rows = np.unique(host_links[:, 2], return_index=True)
        self._address_of = {
            last - topology.servers: topology.naming.address(host)
            for last, host in zip(last_switches.tolist(), host_links[rows, 0].tolist(), strict=True)
        }
        shape = 1, topology.switches, topology.switches
        sets = np.zeros(FIRST_ROOM, dtype=np.uint16)
        hops = np.zeros(shape, dtype=np.uint32)
        self.next_hops = NextHops(hops, sets, rule, departures(topology))
        self.is_new = False
        self._places: dict[tuple[int, tuple[int, ...]], int] = {}
        self._used = 0
        for switch in range(topology.switches):
            self.update(topology.servers + switch)

    def update(self, node: int) -> None:
        """Take over the routes of a switch."""
        switch = node - self._servers
        lookup = self._simulator.node(node).fib.lookup
        first = int(self._ports.first[node])
        for last, address in self._address_of.items():
            hops = () if last == switch else lookup(address)
            ports = [self._ports.place(node, hop.port) - first for hop in hops]
            if not self.next_hops.rule["groups"]:  # LBSP's columns are in order
                ports.sort()
            self.next_hops.hops[0, switch, last] = self._place(switch, tuple(ports))

    def _place(self, switch: int, ports: tuple[int, ...]) -> int:
        """Return the place of a set of ports of a switch, in which its memory is, too."""
        key = switch, ports
        if key in self._places:
            return self._places[key]
        place = self._used
        self._used += 1 + len(ports)
        if self._used > len(self.next_hops.sets):
            room = np.zeros_like(self.next_hops.sets, shape=2 * self._used)
            room[:place] = self.next_hops.sets[:place]
            self.next_hops = self.next_hops._replace(sets=room)
            self.is_new = True
        self.next_hops.sets[place : self._used] = (len(ports), *ports)
        self._places[key] = place
        return place


def converged(topology: Topology, scheme: str, links: Sequence[LinkSpec]) -> Simulator:
    """Return daemons that have converged, on wires with the delays of `links`."""
    first_us = links[0].delay_us
    simulator = Simulator(topology, scheme, wire=Wire(delay_s=first_us / 1e6))
    for number, link in enumerate(links):
        if link.delay_us != first_us:
            simulator.alter(number, Wire(delay_s=link.delay_us / 1e6))
    simulator.flow_tables = NoFlows()
    simulator.run_until_quiet()
    begin_s = simulator.now
    # link state backs off for longer than quick hellos take to be missed
    has_flow_tables = FlowPlacement in registry.find(parse(scheme)[0]).needs
    if has_flow_tables and simulator.run_until_converged() > begin_s:
        simulator.run_until_quiet()
    return simulator


def check_daemons(topology: Topology, scheme: str) -> None:
    """Raise ValueError unless daemons of `scheme` can set the tables of simulated packets."""
    check_forwarding(topology, scheme, daemons=True)
    registered, options = registry.checked(topology, scheme)
    rule = registered.rule(options)
    if rule and rule.hosts:
        raise ValueError(f"daemons beside simulated packets do not set the layers of {scheme}")
