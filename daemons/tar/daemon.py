"""TAR, traffic-aware routing on FiConn (daemons/tar/routing.py), as a daemon.

Packets of unknown flows follow DR.  A source sends a probe for each of its flows (flows.py).
Each server chooses the probe's next hop from the recent load of its two ports and its virtual flows
(flows.py).  The destination answers along the path, and each server, the last one first, sets
the flow's next hop.  The state expires after several refresh intervals without another answer:

    probe     source -> ... -> destination     chooses the path
    answer    source <- ... <- destination     sets the flow's state

A server with a state leads only to servers with a state, so packets that change paths never go in
circles.  A server that bypasses its own link sends the probe back to the server before it, which is
on the same switch and decides in its place.  If a probe can go no further, or a hop of a path dies
later, the server there tells the source, which probes again.

A path that returns to a server is cut short there, because a flow's state is one next hop.  The
paper does not say so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from weft.daemons.control.candidate_routes import LiveRoutes
from weft.daemons.control.hello import HelloOutcome, Neighbourhood
from weft.daemons.core import wire
from weft.daemons.core.actions import (
    NOTHING,
    Action,
    FiveTuple,
    Hop,
    Note,
    Send,
    SetFlowRewrite,
    SetRoute,
)
from weft.daemons.core.contract import DaemonEvent, FlowInUse, Measured, Refused, useless
from weft.daemons.core.node_config import Routes
from weft.daemons.routing import route_addresses
from weft.daemons.tar import messages
from weft.daemons.tar import routing as tar
from weft.daemons.tar.flows import FlowState, FlowStates, OwnFlow, OwnFlows, TarSettings
from weft.daemons.tar.messages import FlowBreaks, FlowProbe
from weft.topologies.core.address import SERVER_BLOCK, Prefix
from weft.topologies.recursive.ccrdn import Ccrdn

MOST_STATES = 4096  # at one server
MOST_STATES_OF_ALL = 1 << 20  # of all servers, because they share the runtime's table
MOST_ADDRESSES = 65_536  # in the cache of servers by address
OWN_PACKETS = Prefix(SERVER_BLOCK, 8)  # our own packets, before they carry another address
FIRST_TARGETED = bytes([wire.FIRST_TARGETED])
COUNTERS = ("probes_sent", "answers", "timeouts", "breaks", "bypasses")


def _flow_states(settings: TarSettings, servers: int) -> FlowStates:
    return FlowStates(
        capacity_kbps=settings.capacity_kbps,
        gain_kbps=settings.gain_kbps,
        most=min(MOST_STATES, MOST_STATES_OF_ALL // servers),
    )


def _candidates(
    routes: Routes, hops: Mapping[int, Hop], octets: Mapping[int, int]
) -> list[tuple[Prefix, tuple[Hop, ...]]]:
    """Return DR's routes for packets of unknown flows, and the route of each next hop."""
    direct = [
        (route_addresses.prefix(prefix, route_addresses.DIRECT), dr_hops)
        for prefix, dr_hops in routes
    ]
    return direct + [
        (route_addresses.all_addresses(octets[node]), (hop,)) for node, hop in hops.items()
    ]


class TarRouting(LiveRoutes):
    """State machine of TAR for the server of `neighbourhood`.

    routes: DR's routes to the servers' own addresses.
    """

    def __init__(
        self,
        neighbourhood: Neighbourhood,
        network: Ccrdn,
        routes: Routes,
        settings: TarSettings,
        *,
        incarnation: int,
    ) -> None:
        hops = {neighbour.hop.node: neighbour.hop for neighbour in neighbourhood.neighbours()}
        octets = {node: route_addresses.first_octet(1 + i) for i, node in enumerate(hops)}
        super().__init__(neighbourhood, _candidates(routes, hops, octets))
        self._target = self.node.to_bytes(4, "big")
        self._network = network
        self._relay = settings.relay
        self._most_servers = tar.most_hops(network.k) + 1  # of a path
        self._hops = hops
        self._octets = octets
        self._live_hops: frozenset[Hop] = frozenset()
        self._dead: Sequence[int] = ()  # 1 for each dead server of the switch; empty if all live
        self._servers_by_address: dict[int, int] = {}  # cache
        self._default_hop: tuple[Hop, ...] | None = None
        self._states = _flow_states(settings, network.t[-1])
        self._own = OwnFlows(settings, token=incarnation >> 24 & 0x7FFFFFFF)
        self._counters = dict.fromkeys(COUNTERS, 0)

    @property
    def deadline(self) -> float:
        return min(super().deadline, self._own.deadline, self._states.deadline)

    def receive(self, payload: bytes, port: int, now: float) -> Sequence[Action]:
        if payload[2:3] < FIRST_TARGETED:
            return super().receive(payload, port, now)
        if payload[wire.TARGET] != self._target:
            return NOTHING
        message = messages.decode(payload, self._network.t[-1])
        if message is None:
            return NOTHING
        if self._hops.get(message.sender) != (port, message.sender):
            raise wire.MalformedMessage(f"server {message.sender} is no neighbour at port {port}")
        if isinstance(message, FlowBreaks):
            flows = [pair for pair in message.flows if self._leads_to(*pair, message.sender)]
            return self._paths_broken(flows, now)
        most_lifetime_ms = int(1000 * self._own.most_lifetime_s)
        probe = message._replace(lifetime_ms=min(message.lifetime_ms, most_lifetime_ms))
        try:
            if probe.verdict == wire.ASKING:
                return self._receive_probe(probe, now)
            return self._process_answer(probe, now, payload)
        except ValueError as error:  # impossible in this network
            raise wire.MalformedMessage(str(error)) from None

    def tick(self, now: float) -> Sequence[Action]:
        actions: list[Action] = []
        if now >= super().deadline:
            actions += super().tick(now)
        for expired in self._states.expired(now):
            actions += self._forget(expired)
        while flow := self._own.next(now):
            actions += self._probe(flow, now)
        return actions

    def status(self) -> dict[str, Any]:
        flows = [
            {
                "destination": f"h{own.destination}",
                "protocol": flow.protocol,
                "ports": [flow.ports >> 16, flow.ports & 0xFFFF],
                "path": [f"h{node}" for node in own.path],
                "attempt": own.attempt,
            }
            for flow, own in self._own.items()
        ]
        return {
            **super().status(),
            "capacity_kbps": self._states.capacity_kbps,
            "flows": flows,
            "states": len(self._states),
            **self._counters,
        }

    def event(self, event: DaemonEvent, now: float) -> Sequence[Action]:
        match event:
            case FlowInUse(flow):
                return self._flow_in_use(flow, now)
            case Refused(destination):
                self._own.refused(destination, now)
                return NOTHING
            case Measured(loads):
                self._states.loads = loads
                return NOTHING
        raise useless(event)

    def _flow_in_use(self, flow: FiveTuple, now: float) -> Sequence[Action]:
        if own := self._own.get(flow):
            self._own.used(flow, own, now)
            return NOTHING
        try:
            destination = self._server_of(flow.destination)
        except ValueError:
            return NOTHING
        if destination != self.node and self._server_of(flow.source) == self.node:
            self._own.add(flow, destination, now)
        return NOTHING

    def _server_of(self, address: int) -> int:
        """Return the server with `address`; ValueError if there is none."""
        if (server := self._servers_by_address.get(address)) is None:
            layout = self._network.layout
            server = layout.number_of(layout.digits(address))
            if len(self._servers_by_address) < MOST_ADDRESSES:
                self._servers_by_address[address] = server
        return server

    def _hop(self, node: int) -> Hop:
        """Return the hop to `node`; ValueError if it is no neighbour."""
        if (hop := self._hops.get(node)) is None:
            raise ValueError(f"server {node} is no neighbour")
        return hop

    # -- links

    def _follow(self, outcomes: Iterable[HelloOutcome], now: float) -> list[Action]:
        """Add the consequences of hops that died; actions tell when live hops change."""
        actions = super()._follow(outcomes, now)
        if not actions and self._default_hop is not None:
            return []
        alive = frozenset(hop for hop in self._hops.values() if self.lives(hop))
        if alive == self._live_hops and self._default_hop is not None:
            return actions
        died = self._live_hops - alive
        self._live_hops = alive

        self._dead = self._dead_servers()
        broken = [(flow, state.token) for flow, state in self._states.by(died)]
        return [*actions, *self._set_default_hop(), *self._paths_broken(broken, now)]

    def _dead_servers(self) -> Sequence[int]:
        """Return 1 for each dead server of the switch, 0 for others; empty if all are alive."""
        first = self.node - self.node % self._network.n
        mates = range(first, first + self._network.n)
        dead = [
            int(mate != self.node and self._hops[mate] not in self._live_hops) for mate in mates
        ]
        return dead if any(dead) else ()

    def _set_default_hop(self) -> list[Action]:
        previous = self._default_hop or ()  # a route of the previous daemon stays until a hop lives
        self._default_hop = tuple(sorted(self._live_hops))[:1]
        if self._default_hop == previous:
            return []
        return [SetRoute(OWN_PACKETS, self._default_hop)]

    # -- probes

    def _probe(self, flow: FiveTuple, now: float) -> list[Action]:
        """Probe for an own flow that is due, or give up its probe without an answer."""
        own = self._own.get(flow)
        assert own
        if own.asking:
            self._counters["timeouts"] += 1
            own.silences += 1
            self._own.failed(flow, own, now)
            return []
        if self._own.forget_if_idle(flow, own, now):
            return []
        lifetime_ms = int(1000 * self._own.ask(flow, own, now))
        self._counters["probes_sent"] += 1
        probe = FlowProbe(
            sender=self.node,
            target=self.node,
            flow=flow,
            token=own.token,
            attempt=own.attempt,
            lifetime_ms=lifetime_ms,
            verdict=wire.ASKING,
            marks=(tar.NOT_BYPASSED,) * (self._network.k + 1),
            visited=(self.node,),
        )
        return self._forward_probe(probe, own.destination, now)

    def _receive_probe(self, probe: FlowProbe, now: float) -> list[Action]:
        """Handle a probe on its way, or back from the next server, which left the path."""
        self._check(probe)
        if probe.visited[-1] == probe.sender:
            room = [*probe.visited, 0]
            length = tar.extend(room, len(probe.visited), self.node)
            probe = probe._replace(visited=tuple(room[:length]))
        elif probe.visited[-1] != self.node:
            raise ValueError("the path of the probe does not lead here")
        destination = self._server_of(probe.flow.destination)
        if destination == self.node:
            return self._send_answer(probe, wire.CONNECTED)
        return self._forward_probe(probe, destination, now)

    def _check(self, probe: FlowProbe) -> None:
        """Raise ValueError unless a neighbour may have sent this probe."""
        if len(probe.marks) != self._network.k + 1 or min(probe.marks) < tar.BYPASSED:
            raise ValueError(f"a probe has {self._network.k + 1} marks, and none like these")
        if len(probe.visited) > self._most_servers:
            raise ValueError(f"a path has at most {self._most_servers} servers")

    def _forward_probe(self, probe: FlowProbe, destination: int, now: float) -> list[Action]:
        """Send a probe, whose path ends at this server, to its next hop."""
        path = probe.visited
        marks = list(probe.marks)
        server = self._next_server(probe, marks, destination, now)
        if server == tar.BACK:
            self._counters["bypasses"] += 1
            self._states.bypassed(probe.flow, now + probe.lifetime_ms / 1000)
            path = path[:-1]
            server = path[-1]
        else:
            self._states.passed(probe.flow)
        hop = None if server == tar.DROP else self._hop(server)
        if hop is None or hop not in self._live_hops:
            return self._process_answer(probe._replace(verdict=wire.BROKEN, marks=()), now)
        forwarded = probe._replace(
            sender=self.node, target=server, marks=tuple(marks), visited=path
        )
        return [Send(hop.port, messages.encode(forwarded))]

    def _next_server(self, probe: FlowProbe, marks: list[int], destination: int, now: float) -> int:
        """Return next_hop() of a probe at this server; update `marks`."""
        rule, t, relay, path = self._network.rule, self._network.t, self._relay, probe.visited
        ports = {hop.port for hop in self._live_hops}
        free = self._states.available(probe.flow, ports, now)
        draw = tar.draw_at(self.node, tar.flow_hash(*probe.flow), probe.attempt)
        site = tar.Site(rule, t, relay, path[-1], *free, self._dead, draw)
        return tar.next_hop(site, path, len(path), destination, marks)

    def _send_answer(self, probe: FlowProbe, verdict: int) -> list[Action]:
        """Send an answer from here to the server before this one; none at the source."""
        position = probe.visited.index(self.node)
        if position == 0:
            return []
        hop = self._hop(probe.visited[position - 1])
        answer = probe._replace(sender=self.node, target=hop.node, verdict=verdict, marks=())
        return [Send(hop.port, messages.encode(answer))]

    # -- answers

    def _process_answer(self, answer: FlowProbe, now: float, payload: bytes = b"") -> list[Action]:
        """Handle an answer that arrived as `payload`, or begins here."""
        path = answer.visited
        if self.node not in path or len(set(path)) < len(path) or len(path) > self._most_servers:
            raise ValueError("the path of the answer is impossible, or does not lead here")
        position = path.index(self.node)
        # raises before any state is set
        previous = self._hop(path[position - 1]) if position else None
        hop = None
        if answer.verdict == wire.CONNECTED:
            if position + 1 == len(path):
                return []
            hop = self._hop(path[position + 1])
            state = self._states.get(answer.flow)
            if state and state.token > answer.token:
                return []
        verdict, actions = self._apply(answer, hop, now)
        if previous is None:
            return actions + self._receive_own_answer(answer, verdict, now)
        if payload and verdict == answer.verdict:
            passed_on = messages.passed_on(payload, self.node, previous.node)
            return [*actions, Send(previous.port, passed_on)]
        return actions + self._send_answer(answer, verdict)

    def _apply(self, answer: FlowProbe, hop: Hop | None, now: float) -> tuple[int, list[Action]]:
        """Set the flow's state to `hop`, or forget it if the path is broken.

        Returns:
            The verdict to pass on, and the actions.
        """
        flow, token, path = answer.flow, answer.token, answer.visited
        state = self._states.get(flow)
        if hop in self._live_hops and (state or self._states.have_room()):
            expires_s = now + answer.lifetime_ms / 1000
            new_state = FlowState(path, path.index(self.node), token, hop, expires_s)
            if not self._states.put(flow, new_state):
                return wire.CONNECTED, []
            return wire.CONNECTED, [SetFlowRewrite(flow, self._octets[hop.node])]
        if state is None or state.token != token:
            return wire.BROKEN, []
        return wire.BROKEN, self._forget(flow)

    def _receive_own_answer(self, probe: FlowProbe, verdict: int, now: float) -> list[Action]:
        """Handle an answer to a probe of this server."""
        flow, own = probe.flow, self._own.get(probe.flow)
        if own is None or own.token != probe.token:
            return []
        if verdict == wire.BROKEN:
            self._counters["breaks"] += 1
            own.silences = 0
            if own.asking:
                self._own.failed(flow, own, now)
            return []
        self._counters["answers"] += 1
        self._own.answered(flow, own, now)
        return self._set_path(flow, own, probe.visited)

    def _set_path(self, flow: FiveTuple, own: OwnFlow, path: tuple[int, ...]) -> list[Action]:
        if path == own.path:
            return []
        own.path = path
        hops = " ".join(f"h{node}" for node in path)
        return [Note(f"flow to h{own.destination}, protocol {flow.protocol}: by way of {hops}")]

    def _paths_broken(self, flows: Iterable[tuple[FiveTuple, int]], now: float) -> list[Action]:
        """Forget broken paths, each a flow and its probe's token, and tell the servers before."""
        actions: list[Action] = []
        broken: dict[int, list[tuple[FiveTuple, int]]] = {}  # by server before this one
        for flow, token in flows:
            state = self._states.get(flow)
            if state is None or state.token != token:  # replaced by another path
                continue
            actions += self._forget(flow)
            if state.position:
                broken.setdefault(state.path[state.position - 1], []).append((flow, token))
            elif own := self._own.get(flow):
                self._counters["breaks"] += 1
                own.silences = 0
                # an outstanding probe may have been lost on the same path
                if own.active(now):
                    self._own.hurry(flow, own, now)
        for node, pairs in broken.items():
            port = self._hop(node).port
            actions += [Send(port, payload) for payload in messages.breaks(self.node, node, pairs)]
        return actions

    def _leads_to(self, flow: FiveTuple, token: int, node: int) -> bool:
        """Return True if the path that this probe set up for `flow` goes on to neighbour `node`."""
        state = self._states.get(flow)
        return state is not None and state.token == token and state.hop.node == node

    def _forget(self, flow: FiveTuple) -> list[Action]:
        self._states.forget(flow)
        return [SetFlowRewrite(flow, None)]
