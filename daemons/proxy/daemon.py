"""Proxy routing, PR (CCRDN, section 5), as a daemon.

Every server routes the addresses of all candidate paths (daemons/routing/route_addresses.py) over
live links, without state of flows.  A source probes the paths to its active destinations, and its
packets carry the address of the best one:

    first packet    DR at once; routine probes of DR and of candidates of at most its length
    answers         take the best connected path by `choice`: by default the shortest, among those
                    the one with the least congested bottleneck (5.4)
    refresh         every `refresh_ms`, or as `probes_per_s` allows, the same probes again
    refusal         of a packet: probe the current path urgently
    failure         news of a dead hop, a refused probe, or TRIES probes without an answer: take
                    the best connected path, else the first unverified one; urgent probes until
                    one is connected
    idle            for `idle_s`: forget the destination

No packet ever runs in a circle: a steered address alone determines its path, and a server whose hop
died has no other hop for it.

Costs are bounded by token buckets: probes per second of a source, and wake-ups of other servers
(probe.py).  Bursts hold the tokens of one second, urgent ones those of BURST_S.

The server's own packets follow routes to 10.x.y.z until their address is rewritten.  These routes
use any live hop if DR's is dead.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from math import inf
from typing import Any

from weft.daemons.control.candidate_routes import LiveRoutes
from weft.daemons.control.hello import HelloOutcome, Neighbourhood
from weft.daemons.core import wire
from weft.daemons.core.actions import NOTHING, Action, Hop, Note, Send, SetRoute, SetSourceRewrite
from weft.daemons.core.contract import DaemonEvent, DestinationInUse, Measured, Refused, useless
from weft.daemons.core.timers import TokenBucket
from weft.daemons.proxy import routing as proxy
from weft.daemons.proxy.path_selection import NOT_ASKED, CandidatePath, Paths, ProbeSettings
from weft.daemons.proxy.probe import (
    HopLost,
    Lane,
    ProbeAnswer,
    ProbeOutcome,
    ProbeQueue,
    Probes,
    Question,
)
from weft.daemons.routing import dr, route_addresses
from weft.daemons.routing.path_tables import PathTables, tabulate
from weft.topologies.core.address import SERVER_BLOCK, Prefix
from weft.topologies.recursive.ccrdn import Ccrdn

FIRST_TARGETED = bytes([wire.FIRST_TARGETED])
TRIES = 2  # a path is broken after so many probes without an answer
FAN = 2  # paths probed at a time by a source without a connected one
# timeout of a routine probe in hello intervals: over twice the round trip of the longest paths
SLOW_INTERVALS = 64
BURST_S = 4.0
# limit on sources that are told of a dead hop; others learn by a refused packet
NEWS_PER_S, NEWS_AT_ONCE = 8, 128
FORGET_S = 1.0  # time between searches for idle destinations
# more than the time between two probes of a path, with hundreds of active destinations
REMEMBER_S = 120.0
MOST_DESTINATIONS = 4096
COUNTERS = ("probes_sent", "answers", "timeouts", "breaks")


@lru_cache(maxsize=4)
def tables(network: Ccrdn) -> PathTables:
    """Return the lengths of DR's paths within an X(1)."""
    return tabulate(network.rule, network.t, min(network.k, 1))


def _probe_queue(settings: ProbeSettings) -> ProbeQueue:
    urgent_per_s, probes_per_s = settings.urgent_per_s, settings.probes_per_s
    routine_timeout_s = SLOW_INTERVALS * settings.hello_s
    return ProbeQueue(
        urgent=Lane(TokenBucket(urgent_per_s, urgent_per_s * BURST_S), settings.probe_s),
        routine=Lane(TokenBucket(probes_per_s, probes_per_s), routine_timeout_s),
    )


class Pr(LiveRoutes):
    """State machine of PR for the server of `neighbourhood`.

    routes: DR's routes to the servers' own addresses.
    """

    def __init__(
        self,
        neighbourhood: Neighbourhood,
        network: Ccrdn,
        routes: Sequence[tuple[Prefix, tuple[Hop, ...]]],
        settings: ProbeSettings,
    ) -> None:
        steered = route_addresses.prefix_routes(network, neighbourhood.node)
        super().__init__(neighbourhood, [(prefix, (hop,)) for prefix, hop in steered])
        self._target = self.node.to_bytes(4, "big")
        self._network = network
        self._settings = settings
        self._path_count = route_addresses.ways(network)
        self._most_servers = (4 << network.k) - 1  # of DR's path to a proxy and on from there
        self._own_addresses = dict(routes)
        self._own_routes: dict[Prefix, tuple[Hop, ...]] = {}  # to own addresses, set so far
        self._hops = [neighbour.hop for neighbour in neighbourhood.neighbours()]
        self._live_hops: frozenset[Hop] = frozenset()
        self._loads: Mapping[int, int] = {}
        self._probes = self._make_probes()
        # by destination, the least recently refreshed first
        self._paths: dict[int, Paths] = {}
        self._probe_queue = _probe_queue(settings)
        self._forget_s = inf  # time of the next search for idle destinations
        self._counters = dict.fromkeys(COUNTERS, 0)

    def _make_probes(self) -> Probes:
        network, wakes_per_s = self._network, self._settings.wakes_per_s
        return Probes(
            self.node,
            next_hop=self._next_hop,
            hop_to=lambda node: dr.hop_to(network, self.node, node),
            lives=self.lives,
            load=lambda port: self._loads.get(port, 0),
            wakes=TokenBucket(wakes_per_s, wakes_per_s * BURST_S),
            news=TokenBucket(NEWS_PER_S, NEWS_AT_ONCE),
            remember_s=REMEMBER_S,
            stretch=lambda destination, path, server: route_addresses.stretch(
                network, server, destination, path
            ),
            table_s=self._settings.table_s,
        )

    @property
    def deadline(self) -> float:
        # routine work is done with the hellos
        return min(super().deadline, self._probe_queue.deadline)

    def receive(self, payload: bytes, port: int, now: float) -> Sequence[Action]:
        if payload[2:3] < FIRST_TARGETED:
            return super().receive(payload, port, now)
        if payload[wire.TARGET] != self._target:
            return NOTHING
        message = wire.decode(payload, self._network.t[-1])
        if not isinstance(message, wire.HopDied | wire.Probe):
            return NOTHING
        if Hop(port, message.sender) not in self._hops:
            raise wire.MalformedMessage(f"server {message.sender} is no neighbour at port {port}")
        if isinstance(message, wire.Probe) and message.way >= self._path_count:
            raise wire.MalformedMessage(
                f"path {message.way} does not exist; paths are 0 to {self._path_count - 1}"
            )
        if len(message.visited) > self._most_servers:
            raise wire.MalformedMessage(
                f"a path has at most {self._most_servers} servers, got {len(message.visited)}"
            )
        return self._process_outcomes(self._probes.receive(message, now), now) + self._ask(now)

    def tick(self, now: float) -> Sequence[Action]:
        actions: list[Action] = []
        if now >= super().deadline:
            actions += super().tick(now)
        while question := self._probe_queue.expired(now):
            self._counters["timeouts"] += 1
            actions += self._unanswered(question, now)
        if now >= self._forget_s:
            actions += self._forget(now)
        self._refresh_oldest(now)
        return actions + self._ask(now)

    def status(self) -> dict[str, Any]:
        steered = {
            f"h{paths.node}": {
                "hops": paths.current.hops,
                "proxy": route_addresses.proxy(self._network, paths.current.number)[1],
                "connected": paths.current.load is not None,
                "load_kbps": paths.current.load,
                "changes": paths.changes,
            }
            for paths in self._paths.values()
        }
        return {**super().status(), "destinations": steered, **self._counters}

    def event(self, event: DaemonEvent, now: float) -> Sequence[Action]:
        match event:
            case DestinationInUse(destination):
                return self._destination_in_use(destination, now)
            case Refused(destination):
                return self._refused(destination, now)
            case Measured(loads):
                self._loads = loads
                return NOTHING
        raise useless(event)

    def _destination_in_use(self, destination: int, now: float) -> Sequence[Action]:
        node = self._server_of(destination)
        if node is None:
            return NOTHING
        paths = self._paths.get(node)
        if paths is None:
            paths = self._paths_to(node, destination)
            if len(paths.candidates) == 1 or len(self._paths) >= MOST_DESTINATIONS:
                return NOTHING
            self._paths[node] = paths
            self._refresh(paths, now)
            self._forget_s = min(self._forget_s, now + FORGET_S)
        paths.used_s = now
        return self._ask(now)

    def _paths_to(self, node: int, address: int) -> Paths:
        """Return the candidate paths to server `node` at `address`."""
        network, settings = self._network, self._settings
        parting = proxy.parting(network.t, self.node, node)
        routes = proxy.alternatives(tables(network), settings.policy, self.node, node)
        return Paths(
            node,
            address,
            [
                (hops, route_addresses.number(network, parting.level, subnetwork))
                for hops, subnetwork in routes
            ],
            route_addresses.DIRECT,
            settings,
            direct_first=settings.policy.choice == proxy.DR_FIRST
            and proxy.near(network.rule, network.t, parting),
        )

    def _refused(self, destination: int, now: float) -> Sequence[Action]:
        node = self._server_of(destination)
        paths = None if node is None else self._paths.get(node)
        if paths is None:
            return NOTHING
        # the packet may have taken the previous path, so probe first
        self._probe_queue.want(paths, [paths.current], urgent=True)
        return self._ask(now)

    def _server_of(self, address: int) -> int | None:
        """Return the other server with `address`; None if there is none."""
        try:
            node = self._network.layout.number_of(self._network.layout.digits(address))
        except ValueError:
            return None
        return None if node == self.node or address >> 24 != SERVER_BLOCK >> 24 else node

    def _next_hop(self, destination: int, path: int) -> Hop:
        server = route_addresses.next_hop(self._network, self.node, destination, path)
        return dr.hop_to(self._network, self.node, server)

    # -- links

    def _follow(self, outcomes: Iterable[HelloOutcome], now: float) -> list[Action]:
        """Add the consequences of hops that died or came up.

        A change of hops comes with a Note, so actions that are only Sends need no search.
        """
        actions = super()._follow(outcomes, now)
        if self._own_routes and all(isinstance(action, Send) for action in actions):
            return actions
        alive = frozenset(hop for hop in self._hops if self.lives(hop))
        if alive == self._live_hops and self._own_routes:
            return actions
        died = self._live_hops - alive
        self._live_hops = alive
        all_actions = [*actions, *self._own_address_routes()]
        for hop in sorted(died):
            # includes paths that are used unverified
            all_actions += self._hop_lost((self.node, hop.node), self.node, now)
            all_actions += self._process_outcomes(self._probes.hop_died(hop, now), now)
        return all_actions + self._ask(now)

    def _own_address_routes(self) -> list[Action]:
        """Set routes to the servers' own addresses: DR's hop, or any live one."""
        changed: list[Action] = []
        other = tuple(hop for hop in self._hops if hop in self._live_hops)[:1]
        for prefix, candidates in self._own_addresses.items():
            hops = candidates[:1] if candidates[0] in self._live_hops else other
            if self._own_routes.get(prefix) != hops:
                self._own_routes[prefix] = hops
                changed.append(SetRoute(prefix, hops))
        return changed

    # -- probes

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
        """Send the probes that may leave now."""
        actions: list[Action] = []
        while question := self._probe_queue.leaving(now):
            self._counters["probes_sent"] += 1
            probe = (question.paths.node, question.path.number, question.token)
            outcomes = self._probes.ask(*probe, now, urgent=question.urgent)
            actions += self._process_outcomes(outcomes, now)
        return actions

    def _forget(self, now: float) -> list[Action]:
        """Forget idle destinations."""
        actions: list[Action] = []
        idle_s = self._settings.idle_s
        for paths in [paths for paths in self._paths.values() if paths.used_s + idle_s < now]:
            del self._paths[paths.node]
            self._probe_queue.forget(paths)
            actions.append(SetSourceRewrite(paths.address, None))
        self._forget_s = now + FORGET_S if self._paths else inf
        return actions

    def _unanswered(self, question: Question, now: float) -> list[Action]:
        """Probe the path again; after TRIES probes it counts as broken."""
        paths, path = question.paths, question.path
        if path.asking == NOT_ASKED:
            return []  # another probe has been answered
        path.asking = NOT_ASKED
        path.tries += 1
        if path.tries < TRIES:
            self._probe_queue.want(paths, [path], urgent=question.urgent)
            return []
        return self._broke(paths, path, now)

    # -- answers

    def _process_outcomes(self, outcomes: Iterable[ProbeOutcome], now: float) -> list[Action]:
        actions: list[Action] = []
        for outcome in outcomes:
            if isinstance(outcome, ProbeAnswer):
                actions += self._answered(outcome, now)
            elif isinstance(outcome, HopLost):
                actions += self._hop_lost((outcome.near, outcome.far), outcome.by, now)
            else:
                actions.append(outcome)
        return actions

    def _hop_lost(self, hop: tuple[int, int], reporter: int, now: float) -> list[Action]:
        """Leave paths over `hop`, which server `reporter` says is dead.

        Tells the destinations, because their packets may come back over the same link.
        """
        actions: list[Action] = []
        for paths in self._paths.values():
            previous = paths.current
            for path in paths.candidates.values():
                in_use = path.load is not None or path is paths.current
                if in_use and hop in self._links_of(paths, path):
                    actions += self._broke(paths, path, now)
            if paths.current is not previous and paths.node != reporter:
                route = self._route(paths, paths.current)
                actions += self._process_outcomes(self._probes.tell(route, hop[::-1], now), now)
        return actions

    def _links_of(self, paths: Paths, path: CandidatePath) -> frozenset[tuple[int, int]]:
        """Return the links of a path, from server to server."""
        if not path.links:
            path.links = frozenset(pairwise(self._route(paths, path)))
        return path.links

    def _route(self, paths: Paths, path: CandidatePath) -> list[int]:
        """Return the servers of a path, this one first."""
        route = [self.node]
        while (server := route[-1]) != paths.node:
            route.append(route_addresses.next_hop(self._network, server, paths.node, path.number))
        return route

    def _answered(self, answer: ProbeAnswer, now: float) -> list[Action]:
        question = self._probe_queue.answered(answer.token, now)
        paths = self._paths.get(answer.destination)
        path = paths.candidates.get(answer.path) if paths else None
        if paths is None or path is None:
            return []
        self._counters["answers"] += 1
        if not answer.connected:
            return self._broke(paths, path, now)
        if question is None:
            return []  # late: the path may have broken since
        paths.connected(path, answer.load)
        self._links_of(paths, path)  # computed now to save time when a hop dies
        return self._choose(paths, now)

    def _broke(self, paths: Paths, path: CandidatePath, now: float) -> list[Action]:
        """Handle the news that `path` is not connected."""
        self._counters["breaks"] += 1
        paths.broke(path, now)
        actions = self._choose(paths, now)
        self._probe_queue.want(paths, paths.next_to_ask(FAN, now), urgent=True)
        return actions

    def _choose(self, paths: Paths, now: float) -> list[Action]:
        if not paths.choose(now):
            return []
        path = paths.current
        level, subnetwork = route_addresses.proxy(self._network, path.number)
        route = f"by way of sub-network {subnetwork} of level {level}" if level else "by DR"
        steered = route_addresses.address(paths.address, path.number) if level else None
        return [
            SetSourceRewrite(paths.address, steered),
            Note(f"h{paths.node}: {route}, {path.hops} hops"),
        ]
