"""Proxy routing, PR (CCRDN, section 5), as a daemon.

Every server routes the addresses of all ways (daemons/routing/proxy_addresses.py) over the links
that live, and knows nothing of anybody's flows.  A source asks the paths to the destinations that
are in use how they are, and lets its own packets for each of them carry the address of the best
one:

    first packet    DR at once; meanwhile ask, routinely, DR and the candidates that are no longer
    answers         take the best connected path by `choice`: by default the shortest, of those the
                    one with the least congested bottleneck (5.4)
    refresh         each `refresh_ms`, or as often as `probes_per_s` allows, ask the present path
                    and those that are no longer again, routinely
    refusal         of a packet on its way: ask the present path, urgently
    failure         a hop that died (its server tells: probe.py), a question refused, two questions
                    without an answer: take the best path that is known to be connected, else the
                    first unverified, and ask it and the next ones, urgently, until one is connected
    nothing sent    for `idle_s`: forget the destination

No packet ever runs in circles, whatever fails and whatever is lost: where a steered address leads
follows from the address alone, and a server whose hop died has no other for it.  The bound on loops
is 0 s.  A path that is lost without anybody telling the source is left after two questions that are
not answered.

What it costs is bounded, whatever happens: in the long run a server asks `probes_per_s` +
`urgent_per_s` questions a second, and wakes others `wakes_per_s` times for all questions and bad
news that it passes on (probe_queue.py, probe.py).  After a rest it may do at once what it may do in
a second, what is urgent in BURST_S.

The server's own routes to 10.x.y.z, which its packets follow until they are given the address on
the wire, must let them leave even where DR has no way: what DR's hop cannot take, any other that
lives does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from math import inf
from typing import Any

from weft.daemons.control.candidate_routes import LiveRoutes
from weft.daemons.control.hello import Neighbourhood
from weft.daemons.core import wire
from weft.daemons.core.actions import NOTHING, Action, Hop, Note, Send, SetRoute, SetSourceRewrite
from weft.daemons.core.contract import Adjacencies, useless
from weft.daemons.core.events import DaemonEvent, DestinationInUse, Measured, Refused
from weft.daemons.core.token_bucket import TokenBucket
from weft.daemons.proxy import routing as proxy
from weft.daemons.proxy.path_selection import NOT_ASKED, CandidatePath, Paths
from weft.daemons.proxy.probe import HopLost, ProbeAnswer, ProbeOutcome, Probes
from weft.daemons.proxy.probe_queue import Lane, ProbeQueue, Question
from weft.daemons.proxy.settings import ProbeSettings
from weft.daemons.routing import dr, proxy_addresses
from weft.daemons.routing.path_tables import PathTables, tabulate
from weft.topologies.core.address import SERVER_BLOCK, Prefix
from weft.topologies.recursive.ccrdn import Ccrdn

FIRST_TARGETED = bytes([wire.FIRST_TARGETED])
TRIES = 2  # questions without an answer, and the path counts as broken
FAN = 2  # paths asked at a time by a source that has none
# hello intervals that a routine answer may take: over twice what it needs on the longest paths
SLOW_INTERVALS = 64
BURST_S = 4.0
# sources told that a hop died; who is not told finds out by a packet refused
NEWS_PER_S, NEWS_AT_ONCE = 8, 128
FORGET_S = 1.0  # between two looks for destinations that are not in use
# longer than between two questions about a path, with hundreds of destinations in use
REMEMBER_S = 120.0
MOST_DESTINATIONS = 4096


@lru_cache(maxsize=4)
def tables(network: Ccrdn) -> PathTables:
    """Lengths of DR's paths within an X(1)."""
    return tabulate(network.rule, network.t, min(network.k, 1))


class Pr:
    """PR's state machine for the server of `neighbourhood`.

    routes: DR's, to the servers' own addresses.
    """

    def __init__(
        self,
        neighbourhood: Neighbourhood,
        network: Ccrdn,
        routes: Sequence[tuple[Prefix, tuple[Hop, ...]]],
        settings: ProbeSettings,
    ) -> None:
        self.node = neighbourhood.node
        self._target = self.node.to_bytes(4, "big")
        self._network, self._settings = network, settings
        self._ways = proxy_addresses.ways(network)
        # of DR's path to a proxy, and of one from there
        self._most_servers = 2 * (2 ** (network.k + 1) - 1) + 1
        steered = [
            (prefix, (hop,)) for prefix, hop in proxy_addresses.prefix_routes(network, self.node)
        ]
        self._routes = LiveRoutes(neighbourhood, steered)
        self._own_addresses = {prefix: hops[0] for prefix, hops in routes}
        self._open: dict[Prefix, tuple[Hop, ...]] = {}
        self._hops = [neighbour.hop for neighbour in neighbourhood.neighbours()]
        self._alive: frozenset[Hop] = frozenset()
        self._loads: Mapping[int, int] = {}
        self._probes = self._make_probes(settings.wakes_per_s, settings.table_s)
        # by the destination's number, those first that were asked longest ago
        self._paths: dict[int, Paths] = {}
        urgent_per_s, probes_per_s = settings.urgent_per_s, settings.probes_per_s
        self._probe_queue = ProbeQueue(
            urgent=Lane(TokenBucket(urgent_per_s, urgent_per_s * BURST_S), settings.probe_s),
            routine=Lane(
                TokenBucket(probes_per_s, probes_per_s), SLOW_INTERVALS * settings.hello_s
            ),
        )
        self._forget_s = inf  # when to look for destinations that are not in use
        self._counters = {"probes_sent": 0, "answers": 0, "timeouts": 0, "breaks": 0}

    def _make_probes(self, wakes_per_s: int, table_s: float) -> Probes:
        network = self._network
        return Probes(
            self.node,
            next_hop=self._next_hop,
            hop_to=lambda node: dr.hop_to(network, self.node, node),
            lives=self._routes.lives,
            load=lambda port: self._loads.get(port, 0),
            wakes=TokenBucket(wakes_per_s, wakes_per_s * BURST_S),
            news=TokenBucket(NEWS_PER_S, NEWS_AT_ONCE),
            remember_s=REMEMBER_S,
            stretch=lambda destination, way, server: proxy_addresses.stretch(
                network, server, destination, way
            ),
            table_s=table_s,
        )

    @property
    def deadline(self) -> float:
        # what can wait is done with the hellos
        return min(self._routes.deadline, self._probe_queue.deadline)

    def start(self, now: float) -> Sequence[Action]:
        return self._follow(self._routes.start(now), now)

    def receive(self, payload: bytes, port: int, now: float) -> Sequence[Action]:
        if payload[2:3] < FIRST_TARGETED:
            if heard := self._routes.receive(payload, port, now):
                return self._follow(heard, now)
            return NOTHING
        if payload[wire.TARGET] != self._target:
            return NOTHING
        message = wire.decode(payload, self._network.t[-1])
        if not isinstance(message, wire.HopDied | wire.Probe):
            return NOTHING
        if Hop(port, message.sender) not in self._hops:
            raise wire.MalformedMessage(f"server {message.sender} is no neighbour at port {port}")
        if isinstance(message, wire.Probe) and message.way >= self._ways:
            raise wire.MalformedMessage(f"there is no way {message.way}, only {self._ways}")
        if len(message.visited) > self._most_servers:
            raise wire.MalformedMessage(
                f"no path has {len(message.visited)} servers, at most {self._most_servers}"
            )
        return self._follow_outcomes(self._probes.receive(message, now), now) + self._ask(now)

    def link_changed(self, port: int, up: bool, now: float) -> Sequence[Action]:
        return self._follow(self._routes.link_changed(port, up, now), now)

    def tick(self, now: float) -> Sequence[Action]:
        actions: list[Action] = []
        if now >= self._routes.deadline:
            actions += self._follow(self._routes.tick(now), now)
        while question := self._probe_queue.expired(now):
            self._counters["timeouts"] += 1
            actions += self._unanswered(question, now)
        if now >= self._forget_s:
            actions += self._forget(now)
        self._refresh_oldest(now)
        return actions + self._ask(now)

    def converged(self) -> bool:
        return self._routes.converged()

    def adjacencies(self) -> Adjacencies:
        return self._routes.adjacencies()

    def status(self) -> dict[str, Any]:
        steered = {
            f"h{paths.node}": {
                "hops": paths.current.hops,
                "proxy": proxy_addresses.proxy(self._network, paths.current.number)[1],
                "connected": paths.current.load is not None,
                "load_kbps": paths.current.load,
                "changes": paths.changes,
            }
            for paths in self._paths.values()
        }
        return {**self._routes.status(), "destinations": steered, **self._counters}

    def event(self, event: DaemonEvent, now: float) -> Sequence[Action]:
        match event:
            case DestinationInUse(destination):
                return self._in_use(destination, now)
            case Refused(destination):
                return self._refused(destination, now)
            case Measured(loads):
                self._loads = loads
                return NOTHING
        raise useless(event)

    def _in_use(self, destination: int, now: float) -> Sequence[Action]:
        node = self._number(destination)
        if node is None:
            return NOTHING
        paths = self._paths.get(node)
        if paths is None:
            at = proxy.parting(self._network.t, self.node, node)
            alternatives = [
                (hops, proxy_addresses.number(self._network, at.level, copy))
                for hops, copy in proxy.alternatives(
                    tables(self._network), self._settings.policy, self.node, node
                )
            ]
            if len(alternatives) == 1 or len(self._paths) >= MOST_DESTINATIONS:
                return NOTHING
            paths = self._paths[node] = Paths(
                node,
                destination,
                alternatives,
                proxy_addresses.DIRECT,
                cost=self._settings.cost,
                hold_s=self._settings.hold_s,
                most_hold_s=self._settings.most_hold_s,
                direct_first=self._settings.policy.dr_first
                and proxy.near(self._network.rule, self._network.t, at),
            )
            self._refresh(paths, now)
            self._forget_s = min(self._forget_s, now + FORGET_S)
        paths.used_s = now
        return self._ask(now)

    def _refused(self, destination: int, now: float) -> Sequence[Action]:
        node = self._number(destination)
        paths = None if node is None else self._paths.get(node)
        if paths is None:
            return NOTHING
        # The packet may have gone by the path before the present one; so ask.
        self._probe_queue.want(paths, [paths.current], urgent=True)
        return self._ask(now)

    def _number(self, address: int) -> int | None:
        """The other server that has `address`, None if nobody has."""
        try:
            node = self._network.layout.number_of(self._network.layout.digits(address))
        except ValueError:
            return None
        return None if node == self.node or address >> 24 != SERVER_BLOCK >> 24 else node

    def _next_hop(self, destination: int, way: int) -> Hop:
        return dr.hop_to(
            self._network,
            self.node,
            proxy_addresses.next_hop(self._network, self.node, destination, way),
        )

    # -- links

    def _follow(self, actions: Sequence[Action], now: float) -> list[Action]:
        """Do `actions`, and what follows from hops that died or came to life, of which there is a
        Note."""
        if self._open and all(isinstance(action, Send) for action in actions):
            return list(actions)
        alive = frozenset(hop for hop in self._hops if self._routes.lives(hop))
        if alive == self._alive and self._open:
            return list(actions)
        died = self._alive - alive
        self._alive = alive
        done = [*actions, *self._own_address_routes()]
        for hop in sorted(died):
            # Also for paths that are used unverified.
            done += self._lost((self.node, hop.node), self.node, now)
            done += self._follow_outcomes(self._probes.hop_died(hop, now), now)
        return done + self._ask(now)

    def _own_address_routes(self) -> list[Action]:
        """Routes to the servers' own addresses: DR's hop, or any that lives."""
        changed: list[Action] = []
        other = tuple(hop for hop in self._hops if hop in self._alive)[:1]
        for prefix, hop in self._own_addresses.items():
            hops = (hop,) if hop in self._alive else other
            if self._open.get(prefix) != hops:
                self._open[prefix] = hops
                changed.append(SetRoute(prefix, hops))
        return changed

    # -- asking

    def _refresh(self, paths: Paths, now: float) -> None:
        self._probe_queue.want(paths, paths.worth_asking(), urgent=False)
        paths.refreshed_s = now
        self._paths[paths.node] = self._paths.pop(paths.node)

    def _refresh_oldest(self, now: float) -> None:
        if self._paths and self._probe_queue.idle(now):
            oldest = next(iter(self._paths.values()))
            if oldest.refreshed_s + self._settings.refresh_s <= now:
                self._refresh(oldest, now)

    def _ask(self, now: float) -> list[Action]:
        """Let leave what may leave now."""
        actions: list[Action] = []
        while question := self._probe_queue.leaving(now):
            self._counters["probes_sent"] += 1
            asked = (question.paths.node, question.way.number, question.token)
            actions += self._follow_outcomes(
                self._probes.ask(*asked, now, urgent=question.urgent), now
            )
        return actions

    def _forget(self, now: float) -> list[Action]:
        """Forget what is not in use."""
        actions: list[Action] = []
        for paths in [
            paths for paths in self._paths.values() if paths.used_s + self._settings.idle_s < now
        ]:
            del self._paths[paths.node]
            self._probe_queue.forget(paths)
            actions.append(SetSourceRewrite(paths.address, None))
        self._forget_s = now + FORGET_S if self._paths else inf
        return actions

    def _unanswered(self, question: Question, now: float) -> list[Action]:
        """Ask once more; then it counts as broken."""
        paths, way = question.paths, question.way
        if way.asking == NOT_ASKED:
            return []  # another question has been answered
        way.asking = NOT_ASKED
        way.tries += 1
        if way.tries < TRIES:
            self._probe_queue.want(paths, [way], urgent=question.urgent)
            return []
        return self._broke(paths, way, now)

    # -- answers

    def _follow_outcomes(self, events: Iterable[ProbeOutcome], now: float) -> list[Action]:
        actions: list[Action] = []
        for event in events:
            if isinstance(event, ProbeAnswer):
                actions += self._answered(event, now)
            elif isinstance(event, HopLost):
                actions += self._lost((event.near, event.far), event.by, now)
            else:
                actions.append(event)
        return actions

    def _lost(self, hop: tuple[int, int], by: int, now: float) -> list[Action]:
        """What is known of paths over that hop is not true any more, says server `by`; where
        packets went over it, the destination's may come back over it."""
        actions: list[Action] = []
        for paths in self._paths.values():
            before = paths.current
            for way in paths.ways.values():
                if (way.load is not None or way is paths.current) and hop in self._hops_of(
                    paths, way
                ):
                    actions += self._broke(paths, way, now)
            if paths.current is not before and paths.node != by:
                told = self._probes.tell(self._route(paths, paths.current), hop[::-1], now)
                actions += self._follow_outcomes(told, now)
        return actions

    def _hops_of(self, paths: Paths, way: CandidatePath) -> frozenset[tuple[int, int]]:
        """The hops of a path, from server to server."""
        if not way.over:
            way.over = frozenset(pairwise(self._route(paths, way)))
        return way.over

    def _route(self, paths: Paths, way: CandidatePath) -> list[int]:
        """The servers of a path, this one first."""
        route = [self.node]
        while route[-1] != paths.node:
            route.append(proxy_addresses.next_hop(self._network, route[-1], paths.node, way.number))
        return route

    def _answered(self, answer: ProbeAnswer, now: float) -> list[Action]:
        question = self._probe_queue.answered(answer.token, now)
        paths = self._paths.get(answer.destination)
        way = paths.ways.get(answer.way) if paths else None
        if paths is None or way is None:
            return []
        self._counters["answers"] += 1
        if not answer.connected:
            return self._broke(paths, way, now)
        if question is None:
            return []  # too late: who knows what has happened since
        paths.connected(way, answer.load)
        self._hops_of(paths, way)  # now, so that it takes no time when a hop dies
        return self._choose(paths, now)

    def _broke(self, paths: Paths, way: CandidatePath, now: float) -> list[Action]:
        """`way` is not connected."""
        self._counters["breaks"] += 1
        paths.broke(way, now)
        actions = self._choose(paths, now)
        self._probe_queue.want(paths, paths.next_to_ask(FAN, now), urgent=True)
        return actions

    def _choose(self, paths: Paths, now: float) -> list[Action]:
        if not paths.choose(now):
            return []
        way = paths.current
        level, copy = proxy_addresses.proxy(self._network, way.number)
        by = f"by way of copy {copy} of level {level}" if level else "by DR"
        steered = proxy_addresses.address(paths.address, way.number) if level else None
        return [
            SetSourceRewrite(paths.address, steered),
            Note(f"h{paths.node}: {by}, {way.hops} hops"),
        ]
