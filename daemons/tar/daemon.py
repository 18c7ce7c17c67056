"""TAR, traffic-aware routing on FiConn (daemons/tar/routing.py), as a daemon.

Packets of which nothing is known go by DR.  For each flow of its own a source sends a probe, at once and again every
`refresh_ms`, or as often as `refreshes_per_s` for all its flows allow; each server on its way decides where it goes, by
what its own two ports have sent of late and by the flows that it has booked.  The destination answers along the path
that was found, and each server there, the last one first, lets the flow's packets follow it, until `refreshes` such
times have passed without another answer:

    probe     source -> ... -> destination     decides
    answer    source <- ... <- destination     sets the flow's state; a server that has it leads to none that has not

so that packets which change from one path to another never go in circles.  Where the probe can go no further, or a hop
of the path dies later, the server there says so, back to the source, which asks again: every failed attempt draws other
third copies, and after ATTEMPTS of them it rests until it would ask anyway.  Where no answer comes at all, within a
few times what answers take and at most `probe_ms`, a message got lost or the servers have too much to do: the source
asks again, with twice as much patience each time.

It asks `probes_per_s` at most, and first about the flow without a path that was used last.  One that was not used for
ACTIVE_S is asked about once more, so that its path stays for as long as it may come back, and then when it does: where
hundreds of paths break at once, servers have ten and more messages about each to pass on, and most of the flows may
have ended.

Ours: a path that passes a server twice is cut short there, for a flow's state is one next hop.  A flow is taken to have
an equal share of what its link carries, and its own share does not stand in its way.  What a
bypass gains must be more than `step_percent` of the capacity, lest hellos and one packet more or less decide.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf
from typing import Any

from daemons.control.candidate_routes import LiveRoutes
from daemons.control.hello import Neighbourhood
from daemons.core import wire
from daemons.core.contract import NOTHING, Action, Adjacencies, Flow, Hop, Note, Send, SetFlow, SetRoute
from daemons.core.rto_estimator import Patience
from daemons.dfr import dfr_addresses
from daemons.routing import proxy_addresses
from daemons.tar import messages
from daemons.tar import routing as tar
from daemons.tar.flow_states import State, States
from daemons.tar.messages import FlowBreaks, FlowProbe
from topologies.core.address import SERVER_BLOCK, Prefix
from topologies.recursive.ccrdn import Ccrdn

ATTEMPTS = 8
MOST_HOPS = 64
ACTIVE_S = 2.5  # since a flow was last seen: the data plane shows one that goes on every second
MOST_FLOWS = 4096  # of our own; others go by DR
MOST_STATES = 65_536
MOST_DOUBLINGS, MOST_PATIENCE_S = 8, 6.4  # with an answer, when several before it did not come
AGAIN_S = 0.050  # refusals of a flow are heard that often
LEAST_PATIENCE_S = 0.030  # with an answer: a server may be as late as that
GATE = Prefix(SERVER_BLOCK, 8)  # packets of our own, before they bear another address
FIRST_TARGETED = bytes([wire.FIRST_TARGETED])


@dataclass(slots=True)
class Own:
    """A flow at its source.

    failures: in a row; silences: those of them since the last answer, of whatever kind.
    asking: whether a question is on its way.  due_s: when that is given up, or the next one leaves.
    urgent: whether that is to be as soon as may be.
    """

    destination: int
    token: int
    used_s: float
    attempt: int = 0
    failures: int = 0
    silences: int = 0
    asking: bool = False
    asked_s: float = -inf
    due_s: float = inf
    urgent: bool = False
    path: tuple[int, ...] = ()

    def active(self, now: float) -> bool:
        """Whether its packets go on, as far as one can know."""
        return self.used_s + ACTIVE_S >= now


class TarRouting:
    """A FlowProtocol for the server of `neighbourhood`.

    routes: DR's, to the servers' own addresses.
    """

    def __init__(
        self,
        neighbourhood: Neighbourhood,
        network: Ccrdn,
        routes: Sequence[tuple[Prefix, tuple[Hop, ...]]],
        *,
        incarnation: int,
        capacity_kbps: int,
        step_percent: int,
        refresh_ms: int,
        refreshes: int,
        refreshes_per_s: int,
        probes_per_s: int,
        probe_ms: int,
        idle_s: int,
    ) -> None:
        self.node = neighbourhood.node
        self._target = self.node.to_bytes(4, "big")
        self._network = network
        self._hops = {neighbour.hop.node: neighbour.hop for neighbour in neighbourhood.neighbours()}
        self._octets = {node: dfr_addresses.octet(1 + i) for i, node in enumerate(self._hops)}
        direct = [(proxy_addresses.prefix(prefix, proxy_addresses.DIRECT), hops) for prefix, hops in routes]
        onward = [(dfr_addresses.everybody(self._octets[hop.node]), (hop,)) for hop in self._hops.values()]
        self._routes = LiveRoutes(neighbourhood, [*direct, *onward])
        self._alive: frozenset[Hop] = frozenset()
        self._ports: frozenset[int] = frozenset()  # by which somebody alive is reached
        self._numbers: dict[int, int] = {}  # servers by address, as far as asked for
        self._gate: tuple[Hop, ...] | None = None
        self._token = incarnation >> 24 & 0x7FFFFFFF  # of the last question, whichever flow it was about
        self._states = States(capacity_kbps=capacity_kbps, gain_kbps=capacity_kbps * step_percent // 100)
        self._refresh_s, self._refreshes, self._refresh_gap_s = refresh_ms / 1000, refreshes, 1 / refreshes_per_s
        self._patience = Patience(min(LEAST_PATIENCE_S, probe_ms / 1000), probe_ms / 1000)
        self._gap_s, self._ask_s = 1 / probes_per_s, -inf
        self._idle_s = idle_s
        self._own: dict[Flow, Own] = {}
        self._due: list[tuple[float, Flow]] = []  # when our own flows are, old thoughts among them
        self._urgent: list[tuple[float, float, Flow]] = []  # in a hurry, by last use, and since when; likewise
        self._counters = {"probes_sent": 0, "answers": 0, "timeouts": 0, "breaks": 0, "garbage": 0}

    @property
    def deadline(self) -> float:
        due_s = self._urgent[0][1] if self._urgent else self._due[0][0] if self._due else inf
        return min(self._routes.deadline, max(due_s, self._ask_s), self._states.deadline)

    def start(self, now: float) -> Sequence[Action]:
        return self._follow(self._routes.start(now), now)

    def receive(self, payload: bytes, port: int, now: float) -> Sequence[Action]:
        if payload[2:3] < FIRST_TARGETED:
            return self._follow(self._routes.receive(payload, port, now), now)
        if payload[wire.TARGET] != self._target:
            return NOTHING
        try:
            told = messages.decode(payload)
            if told is None:
                return NOTHING
            if isinstance(told, FlowBreaks):
                return self._broke(told.flows, now)
            if told.verdict == wire.ASKING:
                return self._asked(told, now)
            return self._answered(told, now, payload)
        except ValueError:  # garbage, or what cannot be in this network
            self._counters["garbage"] += 1
            return NOTHING

    def link_changed(self, port: int, up: bool, now: float) -> Sequence[Action]:
        return self._follow(self._routes.link_changed(port, up, now), now)

    def tick(self, now: float) -> Sequence[Action]:
        actions: list[Action] = []
        if now >= self._routes.deadline:
            actions += self._follow(self._routes.tick(now), now)
        for expired in self._states.expired(now):
            actions += self._forget(expired)
        while self._ask_s <= now and (flow := self._next(now)):
            actions += self._turn(flow, self._own[flow], now)
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
        return {**self._routes.status(), "flows": flows, "states": len(self._states), **self._counters}

    def in_use(self, flow: Flow, now: float) -> Sequence[Action]:
        own = self._own.get(flow)
        if own:
            active, own.used_s = own.active(now), now
            if own.urgent or not (active or own.asking):
                self._hurry(flow, own, now)
            return NOTHING
        try:
            destination = self._number(flow.destination)
        except ValueError:
            return NOTHING
        if destination == self.node or self._number(flow.source) != self.node or len(self._own) >= MOST_FLOWS:
            return NOTHING
        own = self._own[flow] = Own(destination, self._token, now)
        self._hurry(flow, own, now)
        return NOTHING

    def refused(self, destination: int, now: float) -> Sequence[Action]:
        for flow, own in self._own.items():
            concerned = flow.destination == destination and own.path and own.active(now)
            if concerned and not own.asking and own.asked_s + AGAIN_S < now:
                self._hurry(flow, own, now)
        return NOTHING

    def measured(self, loads: Mapping[int, int]) -> None:
        self._states.loads = loads

    def _number(self, address: int) -> int:
        """The server that has `address`; ValueError if nobody has."""
        if (number := self._numbers.get(address)) is None:
            layout = self._network.layout
            number = self._numbers[address] = layout.number_of(layout.digits(address))
        return number

    def _hop(self, node: int) -> Hop:
        """How `node` is reached; ValueError if it is no neighbour."""
        if (hop := self._hops.get(node)) is None:
            raise ValueError(f"server {node} is no neighbour")
        return hop

    # -- links

    def _follow(self, actions: Sequence[Action], now: float) -> list[Action]:
        """Do `actions`, and what follows from hops that died or came to life, which changes routes."""
        if not actions and self._gate is not None:
            return []
        alive = frozenset(hop for hop in self._hops.values() if self._routes.lives(hop))
        if alive == self._alive and self._gate is not None:
            return list(actions)
        died, self._alive = self._alive - alive, alive
        self._ports = frozenset(hop.port for hop in alive)
        done = list(actions)
        gate = tuple(sorted(alive))[:1]
        if gate != (self._gate or ()):  # what was never set stays as a daemon before this one left it
            done.append(SetRoute(GATE, gate))
        self._gate = gate
        return done + self._broke([(flow, state.token) for flow, state in self._states.by(died)], now)

    # -- probes

    def _next(self, now: float) -> Flow | None:
        """Whose turn it is, of our own flows."""
        while self._urgent:
            _, _, flow = heappop(self._urgent)
            if (own := self._own.get(flow)) and own.urgent:
                return flow
        while self._due and self._due[0][0] <= now:
            due_s, flow = heappop(self._due)
            if (own := self._own.get(flow)) and own.due_s == due_s:
                return flow
        return None

    def _turn(self, flow: Flow, own: Own, now: float) -> list[Action]:
        """One of our own flows is due: ask, or give up the question that has no answer."""
        if own.asking:
            self._counters["timeouts"] += 1
            own.silences += 1
            self._failed(flow, own, now)
            return []
        if own.used_s + self._idle_s < now:
            del self._own[flow]
            return []
        self._token += 1
        own.token, own.asking, own.asked_s = self._token, True, now
        self._ask_s = now + self._gap_s
        wait_s = self._patience.wait_s * 2 ** min(own.silences, MOST_DOUBLINGS)
        self._plan(flow, own, now + min(wait_s, MOST_PATIENCE_S))
        self._counters["probes_sent"] += 1
        marks = [0] * (self._network.k + 1)
        tar.start(marks)
        lifetime_s = self._interval_s(now) * self._refreshes if own.active(now) else self._idle_s
        question = (flow, own.token, own.attempt, int(1000 * lifetime_s), wire.ASKING, tuple(marks), (self.node,))
        return self._onward(FlowProbe(self.node, self.node, *question), own.destination, now)

    def _plan(self, flow: Flow, own: Own, due_s: float) -> None:
        own.due_s, own.urgent = due_s, False
        heappush(self._due, (due_s, flow))

    def _hurry(self, flow: Flow, own: Own, now: float) -> None:
        """Ask about it before all that were used longer ago."""
        own.due_s, own.urgent, own.asking = inf, True, False
        heappush(self._urgent, (-own.used_s, now, flow))

    def _interval_s(self, now: float) -> float:
        """Time between questions about a flow whose packets go on."""
        return max(self._refresh_s, sum(own.active(now) for own in self._own.values()) * self._refresh_gap_s)

    def _failed(self, flow: Flow, own: Own, now: float) -> None:
        """Draw anew and ask again: at once or, if nobody waits for it or after many failures, later."""
        own.asking = False
        own.attempt = (own.attempt + 1) % ATTEMPTS
        own.failures += 1
        if own.failures % ATTEMPTS and own.active(now):
            self._hurry(flow, own, now)
        else:
            self._plan(flow, own, now + self._interval_s(now))

    def _asked(self, probe: FlowProbe, now: float) -> list[Action]:
        """A probe came by."""
        if probe.visited[-1] != probe.sender or len(probe.marks) != self._network.k + 1:
            raise ValueError("no such probe")
        self._hop(probe.sender)
        visited = (*probe.visited, self.node)
        destination = self._number(probe.flow.destination)
        if destination != self.node:
            return self._onward(probe._replace(visited=visited), destination, now)
        return self._back(probe, wire.CONNECTED, tuple(tar.shortcut(visited)))

    def _onward(self, probe: FlowProbe, destination: int, now: float) -> list[Action]:
        """Decide where a probe that is here, and for whom, goes."""
        network, marks = self._network, list(probe.marks)
        free, free_link = self._states.available(probe.flow, self._ports)
        draw = tar.drawn(self.node, tar.number(*probe.flow), probe.attempt)
        to = tar.next_hop(network.rule, network.t, self.node, destination, marks, free, free_link, draw)
        hop = None if to == tar.DROP else self._hop(to)
        if hop is None or hop not in self._alive or len(probe.visited) >= MOST_HOPS:
            path = tuple(tar.shortcut(probe.visited))
            return self._answered(probe._replace(verdict=wire.BROKEN, marks=(), visited=path), now)
        return [Send(hop.port, messages.encode(probe._replace(sender=self.node, target=to, marks=tuple(marks))))]

    def _back(self, probe: FlowProbe, verdict: int, path: tuple[int, ...]) -> list[Action]:
        """Let an answer begin here, for the server before this one."""
        at = path.index(self.node)
        if at == 0:
            return []
        hop = self._hop(path[at - 1])
        answer = probe._replace(sender=self.node, target=hop.node, verdict=verdict, marks=(), visited=path)
        return [Send(hop.port, messages.encode(answer))]

    # -- answers

    def _answered(self, probe: FlowProbe, now: float, payload: bytes = b"") -> list[Action]:
        """An answer came by as `payload`, or began here."""
        path = probe.visited
        if self.node not in path or len(set(path)) < len(path):
            raise ValueError("no such answer")
        flow, verdict, state = probe.flow, probe.verdict, self._states.get(probe.flow)
        actions: list[Action] = []
        at = path.index(self.node)
        if verdict == wire.CONNECTED:
            hop = self._hop(path[at + 1]) if at + 1 < len(path) else None
            if hop is None or (state and state.token > probe.token):
                return []
            if hop in self._alive and (state or len(self._states) < MOST_STATES):
                expires_s = now + probe.lifetime_ms / 1000
                new = State(path, at, probe.token, hop, self._virtual(path, at, hop), expires_s)
                if self._states.put(flow, new):
                    actions.append(SetFlow(flow, self._octets[hop.node]))
            else:
                verdict = wire.BROKEN
        if verdict == wire.BROKEN and state is not None and state.token == probe.token:
            actions += self._forget(flow)
        if at == 0:
            return actions + self._told(probe, verdict, now)
        if payload and verdict == probe.verdict:
            hop = self._hop(path[at - 1])
            return [*actions, Send(hop.port, messages.passed_on(payload, self.node, hop.node))]
        return actions + self._back(probe, verdict, path)

    def _told(self, probe: FlowProbe, verdict: int, now: float) -> list[Action]:
        """An answer to a question of our own has come."""
        flow, own = probe.flow, self._own.get(probe.flow)
        if own is None or own.token != probe.token:
            return []
        own.silences = 0
        if verdict == wire.BROKEN:
            self._counters["breaks"] += 1
            if own.asking:
                self._failed(flow, own, now)
            return []
        self._counters["answers"] += 1
        if own.asking:
            self._patience.heard(now - own.asked_s)
        own.asking, own.failures = False, 0
        spread = 0.75 + 0.25 * (tar.number(*flow) % 256) / 256
        self._plan(flow, own, now + (self._interval_s(now) if own.active(now) else self._idle_s) * spread)
        if probe.visited != own.path:
            own.path = probe.visited
            hops = " ".join(f"h{node}" for node in own.path)
            return [Note(f"flow to h{own.destination}, protocol {flow.protocol}: by way of {hops}")]
        return []

    def _broke(self, flows: Iterable[tuple[Flow, int]], now: float) -> list[Action]:
        """The paths of `flows` that questions of these tokens found have ended here, or beyond the next hop."""
        actions: list[Action] = []
        before: dict[int, list[tuple[Flow, int]]] = {}
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
                if own.active(now):  # if asked about already, that may have got lost on the same path
                    self._hurry(flow, own, now)
        for node, ended in before.items():
            hop = self._hop(node)
            actions += [Send(hop.port, each) for each in messages.breaks(self.node, node, ended)]
        return actions

    # -- states

    def _forget(self, flow: Flow) -> list[Action]:
        self._states.forget(flow)
        return [SetFlow(flow, None)]

    def _virtual(self, path: tuple[int, ...], at: int, hop: Hop) -> bool:
        came_in = self._hop(path[at - 1]).port if at else -1
        return tar.is_virtual(came_in, hop.port)
