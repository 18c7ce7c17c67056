"""TAR, traffic-aware routing on FiConn (daemons/tar/routing.py), as a daemon.

Packets of which nothing is known go by DR.  For each flow of its own a source sends a probe
(own_flows.py); each server on its way decides where it goes, by what its own two ports have sent of
late and by the virtual flows that it counts (flow_states.py).  The destination answers along the
path that was found, and each server there, the last one first, lets the flow's packets follow it,
until several refreshes have passed without another answer:

    probe     source -> ... -> destination     decides
    answer    source <- ... <- destination     sets the flow's state; a server that has it leads to
    none that has not

so that packets which change from one path to another never go in circles.  A server that bypasses
its own link sends the probe back to the server before it, which is on the same switch and goes on
in its place.  Where the probe can go no further, or a hop of the path dies later, the server there
says so, back to the source, which asks again.

Ours: a path that comes to a server again is cut short there, for a flow's state is one next hop.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from weft.daemons.control.candidate_routes import LiveRoutes
from weft.daemons.control.hello import Neighbourhood
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
from weft.daemons.core.contract import Adjacencies, useless
from weft.daemons.core.events import DaemonEvent, FlowInUse, Measured, Refused
from weft.daemons.routing import first_octets, proxy_addresses
from weft.daemons.tar import messages
from weft.daemons.tar import routing as tar
from weft.daemons.tar.flow_states import FlowState, States
from weft.daemons.tar.messages import FlowBreaks, FlowProbe
from weft.daemons.tar.own_flows import Own, OwnFlows
from weft.daemons.tar.settings import TarSettings
from weft.topologies.core.address import SERVER_BLOCK, Prefix
from weft.topologies.recursive.ccrdn import Ccrdn

# at one server, and at all: the carriers' table is one for all
MOST_STATES, MOST_STATES_OF_ALL = 4096, 1 << 20
MOST_ADDRESSES = 65_536  # whose servers are remembered
OWN_PACKETS = Prefix(SERVER_BLOCK, 8)  # packets of our own, before they carry another address
FIRST_TARGETED = bytes([wire.FIRST_TARGETED])


class TarRouting:
    """TAR's state machine for the server of `neighbourhood`.

    routes: DR's, to the servers' own addresses.
    """

    def __init__(
        self,
        neighbourhood: Neighbourhood,
        network: Ccrdn,
        routes: Sequence[tuple[Prefix, tuple[Hop, ...]]],
        settings: TarSettings,
        *,
        incarnation: int,
    ) -> None:
        self.node = neighbourhood.node
        self._target = self.node.to_bytes(4, "big")
        self._network = network
        self._relay = settings.relay
        self._most_servers = tar.most_hops(network.k) + 1  # of a path
        self._hops = {neighbour.hop.node: neighbour.hop for neighbour in neighbourhood.neighbours()}
        self._octets = {node: first_octets.first_octet(1 + i) for i, node in enumerate(self._hops)}
        direct = [
            (proxy_addresses.prefix(prefix, proxy_addresses.DIRECT), hops)
            for prefix, hops in routes
        ]
        onward = [
            (first_octets.everybody(self._octets[hop.node]), (hop,)) for hop in self._hops.values()
        ]
        self._routes = LiveRoutes(neighbourhood, [*direct, *onward])
        self._alive: frozenset[Hop] = frozenset()
        self._ports: frozenset[int] = frozenset()  # by which a live neighbour is reached
        self._dead: Sequence[int] = ()  # 1 for each dead server of the switch; empty if all live
        self._numbers: dict[int, int] = {}  # servers by address, as far as asked for
        self._default_hop: tuple[Hop, ...] | None = None
        self._states = States(
            capacity_kbps=settings.capacity_kbps,
            gain_kbps=settings.gain_kbps,
            most=min(MOST_STATES, MOST_STATES_OF_ALL // network.t[-1]),
        )
        self._own = OwnFlows(settings, token=incarnation >> 24 & 0x7FFFFFFF)
        self._counters = {"probes_sent": 0, "answers": 0, "timeouts": 0, "breaks": 0, "bypasses": 0}

    @property
    def deadline(self) -> float:
        return min(self._routes.deadline, self._own.deadline, self._states.deadline)

    def start(self, now: float) -> Sequence[Action]:
        return self._follow(self._routes.start(now), now)

    def receive(self, payload: bytes, port: int, now: float) -> Sequence[Action]:
        if payload[2:3] < FIRST_TARGETED:
            return self._follow(self._routes.receive(payload, port, now), now)
        if payload[wire.TARGET] != self._target:
            return NOTHING
        told = messages.decode(payload, self._network.t[-1])
        if told is None:
            return NOTHING
        if self._hops.get(told.sender) != (port, told.sender):
            raise wire.MalformedMessage(f"server {told.sender} is no neighbour at port {port}")
        if isinstance(told, FlowBreaks):
            return self._broke(
                [each for each in told.flows if self._leads(*each, told.sender)], now
            )
        told = told._replace(
            lifetime_ms=min(told.lifetime_ms, int(1000 * self._own.most_lifetime_s))
        )
        try:
            return (
                self._asked(told, now)
                if told.verdict == wire.ASKING
                else self._answered(told, now, payload)
            )
        except ValueError as error:  # it cannot be in this network
            raise wire.MalformedMessage(str(error)) from None

    def link_changed(self, port: int, up: bool, now: float) -> Sequence[Action]:
        return self._follow(self._routes.link_changed(port, up, now), now)

    def tick(self, now: float) -> Sequence[Action]:
        actions: list[Action] = []
        if now >= self._routes.deadline:
            actions += self._follow(self._routes.tick(now), now)
        for expired in self._states.expired(now):
            actions += self._forget(expired)
        while flow := self._own.next(now):
            actions += self._turn(flow, now)
        return actions

    def converged(self) -> bool:
        return self._routes.converged()

    def adjacencies(self) -> Adjacencies:
        return self._routes.adjacencies()

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
        own = {
            "capacity_kbps": self._states.capacity_kbps,
            "flows": flows,
            "states": len(self._states),
        }
        return {**self._routes.status(), **own, **self._counters}

    def event(self, event: DaemonEvent, now: float) -> Sequence[Action]:
        match event:
            case FlowInUse(flow):
                return self._in_use(flow, now)
            case Refused(destination):
                self._own.refused(destination, now)
                return NOTHING
            case Measured(loads):
                self._states.loads = loads
                return NOTHING
        raise useless(event)

    def _in_use(self, flow: FiveTuple, now: float) -> Sequence[Action]:
        if own := self._own.get(flow):
            self._own.used(flow, own, now)
            return NOTHING
        try:
            destination = self._number(flow.destination)
        except ValueError:
            return NOTHING
        if destination != self.node and self._number(flow.source) == self.node:
            self._own.add(flow, destination, now)
        return NOTHING

    def _number(self, address: int) -> int:
        """The server that has `address`; ValueError if nobody has."""
        if (number := self._numbers.get(address)) is None:
            layout = self._network.layout
            number = layout.number_of(layout.digits(address))
            if len(self._numbers) < MOST_ADDRESSES:
                self._numbers[address] = number
        return number

    def _hop(self, node: int) -> Hop:
        """How `node` is reached; ValueError if it is no neighbour."""
        if (hop := self._hops.get(node)) is None:
            raise ValueError(f"server {node} is no neighbour")
        return hop

    # -- links

    def _follow(self, actions: Sequence[Action], now: float) -> list[Action]:
        """Do `actions`, and what follows from hops that died or came to life, which changes
        routes."""
        if not actions and self._default_hop is not None:
            return []
        alive = frozenset(hop for hop in self._hops.values() if self._routes.lives(hop))
        if alive == self._alive and self._default_hop is not None:
            return list(actions)
        died, self._alive = self._alive - alive, alive
        self._ports = frozenset(hop.port for hop in alive)
        first = self.node - self.node % self._network.n
        mates = range(first, first + self._network.n)
        dead = [int(mate != self.node and self._hops[mate] not in alive) for mate in mates]
        self._dead = dead if any(dead) else ()
        done = list(actions)
        default_hop = tuple(sorted(alive))[:1]
        # what was never set stays as a daemon before this one left it
        if default_hop != (self._default_hop or ()):
            done.append(SetRoute(OWN_PACKETS, default_hop))
        self._default_hop = default_hop
        return done + self._broke(
            [(flow, state.token) for flow, state in self._states.by(died)], now
        )

    # -- probes

    def _turn(self, flow: FiveTuple, now: float) -> list[Action]:
        """One of our own flows is due: ask, or give up the question that has no answer."""
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
        marks = [0] * (self._network.k + 1)
        tar.start(marks)
        question = (
            flow,
            own.token,
            own.attempt,
            lifetime_ms,
            wire.ASKING,
            tuple(marks),
            (self.node,),
        )
        return self._onward(FlowProbe(self.node, self.node, *question), own.destination, now)

    def _asked(self, probe: FlowProbe, now: float) -> list[Action]:
        """A probe came by, on its way or back from the next server, which left the path."""
        self._check(probe)
        if probe.visited[-1] == probe.sender:
            room = [*probe.visited, 0]
            probe = probe._replace(
                visited=tuple(room[: tar.extend(room, len(probe.visited), self.node)])
            )
        elif probe.visited[-1] != self.node:
            raise ValueError("the probe was not sent here")
        destination = self._number(probe.flow.destination)
        if destination == self.node:
            return self._back(probe, wire.CONNECTED, probe.visited)
        return self._onward(probe, destination, now)

    def _check(self, probe: FlowProbe) -> None:
        """ValueError unless a neighbour may have sent this probe."""
        if len(probe.marks) != self._network.k + 1 or min(probe.marks) < tar.BYPASSED:
            raise ValueError("no such marks")
        if len(probe.visited) > self._most_servers:
            raise ValueError("no such path")

    def _onward(self, probe: FlowProbe, destination: int, now: float) -> list[Action]:
        """Decide where a probe that is here, the last server of its path, and for whom, goes."""
        network, marks, path = self._network, list(probe.marks), probe.visited
        free, free_link = self._states.available(probe.flow, self._ports, now)
        draw = tar.drawn(self.node, tar.number(*probe.flow), probe.attempt)
        state = (marks, free, free_link, self._dead, draw)
        to = tar.next_hop(
            network.rule, network.t, self._relay, path, len(path), destination, *state
        )
        if to == tar.BACK:
            self._counters["bypasses"] += 1
            self._states.bypassed(probe.flow, now + probe.lifetime_ms / 1000)
            path = path[:-1]
            to = path[-1]
        else:
            self._states.passed(probe.flow)
        hop = None if to == tar.DROP else self._hop(to)
        if hop is None or hop not in self._alive:
            return self._answered(probe._replace(verdict=wire.BROKEN, marks=()), now)
        onward = probe._replace(sender=self.node, target=to, marks=tuple(marks), visited=path)
        return [Send(hop.port, messages.encode(onward))]

    def _back(self, probe: FlowProbe, verdict: int, path: tuple[int, ...]) -> list[Action]:
        """Let an answer begin here, for the server before this one."""
        at = path.index(self.node)
        if at == 0:
            return []
        hop = self._hop(path[at - 1])
        answer = probe._replace(
            sender=self.node, target=hop.node, verdict=verdict, marks=(), visited=path
        )
        return [Send(hop.port, messages.encode(answer))]

    # -- answers

    def _answered(self, probe: FlowProbe, now: float, payload: bytes = b"") -> list[Action]:
        """An answer came by as `payload`, or began here."""
        path = probe.visited
        if self.node not in path or len(set(path)) < len(path) or len(path) > self._most_servers:
            raise ValueError("no such answer")
        flow, verdict, state = probe.flow, probe.verdict, self._states.get(probe.flow)
        actions: list[Action] = []
        at = path.index(self.node)
        before = self._hop(path[at - 1]) if at else None  # a path from a stranger leaves no state
        if verdict == wire.CONNECTED:
            hop = self._hop(path[at + 1]) if at + 1 < len(path) else None
            if hop is None or (state and state.token > probe.token):
                return []
            if hop in self._alive and (state or self._states.have_room()):
                new = FlowState(path, at, probe.token, hop, now + probe.lifetime_ms / 1000)
                if self._states.put(flow, new):
                    actions.append(SetFlowRewrite(flow, self._octets[hop.node]))
            else:
                verdict = wire.BROKEN
        if verdict == wire.BROKEN and state is not None and state.token == probe.token:
            actions += self._forget(flow)
        if before is None:
            return actions + self._told(probe, verdict, now)
        if payload and verdict == probe.verdict:
            return [
                *actions,
                Send(before.port, messages.passed_on(payload, self.node, before.node)),
            ]
        return actions + self._back(probe, verdict, path)

    def _told(self, probe: FlowProbe, verdict: int, now: float) -> list[Action]:
        """An answer to a question of our own has come."""
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
        return self._new_path(flow, own, probe.visited)

    def _new_path(self, flow: FiveTuple, own: Own, path: tuple[int, ...]) -> list[Action]:
        if path == own.path:
            return []
        own.path = path
        hops = " ".join(f"h{node}" for node in path)
        return [Note(f"flow to h{own.destination}, protocol {flow.protocol}: by way of {hops}")]

    def _broke(self, flows: Iterable[tuple[FiveTuple, int]], now: float) -> list[Action]:
        """The paths of `flows` that questions of these tokens found have ended here, or beyond the
        next hop."""
        actions: list[Action] = []
        before: dict[int, list[tuple[FiveTuple, int]]] = {}
        for flow, token in flows:
            state = self._states.get(flow)
            if state is None or state.token != token:  # there is another path by now
                continue
            actions += self._forget(flow)
            if state.at:
                before.setdefault(state.path[state.at - 1], []).append((flow, token))
            elif own := self._own.get(flow):
                self._counters["breaks"] += 1
                own.silences = 0
                # if asked about already, that may have got lost on the same path
                if own.active(now):
                    self._own.hurry(flow, own, now)
        for node, ended in before.items():
            hop = self._hop(node)
            actions += [Send(hop.port, each) for each in messages.breaks(self.node, node, ended)]
        return actions

    def _leads(self, flow: FiveTuple, token: int, to: int) -> bool:
        """Whether the path of `flow` that the question of this token found goes on to the neighbour
        `to`."""
        state = self._states.get(flow)
        return state is not None and state.token == token and state.hop.node == to

    def _forget(self, flow: FiveTuple) -> list[Action]:
        self._states.forget(flow)
        return [SetFlowRewrite(flow, None)]
