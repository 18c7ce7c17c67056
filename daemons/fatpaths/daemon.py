"""Layered routing as a daemon: one route for each layer and router, adapted by link state.

Addresses without a layer take all shortest paths, as under ecmp.  In a layer a router has one hop
for each other router: that of the layer's tables if the path is intact, otherwise another
(live_layers.py).  When its own link dies, a router at once uses neighbours with intact paths; other
routes follow with link state.

The routes of layers wait until link state has every link of this router's paths, so that each is
set once.  If links are dead from the beginning, they wait until link state has been stable for a
while.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from math import inf
from typing import Any

from weft.daemons.control.hello import HelloOutcome, Neighbourhood
from weft.daemons.control.link_state import Database
from weft.daemons.core.actions import Action, Hop, SetRoute
from weft.daemons.fatpaths.live_layers import LayerTables, Live
from weft.daemons.routing import shortest
from weft.daemons.routing.route_addresses import tagged
from weft.daemons.shortest_paths.scheme import Bfs, NextNodes
from weft.topologies.core.address import Prefix

PATIENCE = 8
RouterLink = tuple[int, int]


class Layered(Bfs):
    """State machine of layered routing for the node of `neighbourhood` and `database`.

    destinations, local: as for Bfs, without layers.
    wait_s: time without a change of link state after which missing links count as dead; PATIENCE
        times as long while routers are missing.
    """

    def __init__(
        self,
        neighbourhood: Neighbourhood,
        database: Database,
        destinations: Sequence[tuple[Prefix, int]],
        local: Sequence[tuple[Prefix, tuple[Hop, ...]]],
        tables: LayerTables,
        *,
        hold_s: float,
        wait_s: float,
    ) -> None:
        layers = range(tables.layers)
        own = [(tagged(prefix, layer), hops) for layer in layers for prefix, hops in local]
        super().__init__(neighbourhood, database, destinations, [*local, *own], hold_s=hold_s)
        self._tables = tables
        self._first = tables.first
        self._router = database.node - tables.first
        self._places = {
            tagged(prefix, layer): (layer, node - tables.first)
            for layer in layers
            for prefix, node in self._destinations
        }
        self._uses = self._uses_of_links()
        self._dead: set[RouterLink] = set()  # links of our paths
        self._complete = False  # True once link state has all links of our paths, or is stable
        self._wait_s = wait_s
        self._complete_s = inf
        self._changes = -1  # database.changes at the start of the wait

    def _uses_of_links(self) -> dict[RouterLink, list[Prefix]]:
        """Return the prefixes whose path has a link, by link."""
        uses: dict[RouterLink, list[Prefix]] = {}
        for prefix, (layer, t) in self._places.items():
            for link in self._tables.links(layer, t, self._router):
                uses.setdefault(link, []).append(prefix)
        return uses

    @property
    def deadline(self) -> float:
        return min(super().deadline, self._complete_s)

    def tick(self, now: float) -> Sequence[Action]:
        if now >= self._complete_s:
            self._complete, self._complete_s, self._compute_s = True, inf, now
        return super().tick(now)

    def converged(self) -> bool:
        return super().converged() and all(self._routes.get(prefix) for prefix in self._places)

    def status(self) -> dict[str, Any]:
        """Return the status of Bfs and, for each layer, its own routes, detours and lost routes."""
        layers = [
            {"layer": layer, "own": 0, "detours": 0, "lost": 0}
            for layer in range(self._tables.layers)
        ]
        lost = []
        for prefix, (layer, t) in self._places.items():
            hops = self._routes.get(prefix)
            if not hops:
                lost.append(str(prefix))
            own = hops and hops[0].node - self._first == self._tables.hop(layer, t, self._router)
            layers[layer]["own" if own else "detours" if hops else "lost"] += 1
        status = super().status()
        routes = status["routes"] + len(self._places) - len(lost)
        return {
            **status,
            "routes": routes,
            "routes_lost": status["routes_lost"] + lost,
            "layers": layers,
        }

    def _follow(self, events: Iterable[HelloOutcome], now: float) -> list[Action]:
        actions = super()._follow(events, now)
        if not self._complete and self._changes != self._database.changes:
            # many daemons start one after the other, so routers may be missing for long
            patience = 1 if len(self._database.entries) == self._tables.routers else PATIENCE
            self._changes, self._complete_s = self._database.changes, now + patience * self._wait_s
        return actions

    def _leave(self, hop: Hop) -> list[Action]:
        actions, up = super()._leave(hop), self._up()
        live = self._live(self._database.graph(), up)
        if hop.node not in up and (link := (self._router, hop.node - self._first)) in self._uses:
            self._dead.add(link)
        for prefix, (layer, t) in self._places.items():
            if hop not in self._routes.get(prefix, ()):
                continue
            # a parallel link may lead to the same neighbour
            node = self._first + self._tables.hop(layer, t, self._router)
            if node not in up:
                detour = self._tables.detour(layer, t, self._router, live)
                if detour is None:
                    continue
                node = self._first + detour
            self._routes[prefix] = (up[node][0],)
            actions.append(SetRoute(prefix, self._routes[prefix]))
        return actions

    def _live_routes(
        self, graph: shortest.Adjacency, next_nodes: NextNodes
    ) -> Iterator[tuple[Prefix, tuple[Hop, ...]]]:
        yield from super()._live_routes(graph, next_nodes)
        up = self._up()
        live = self._live(graph, up)
        dead = {(a, b) for a, b in self._uses if b not in live[a]}
        if not self._complete:
            if dead:
                return
            self._complete, self._complete_s = True, inf
        first = self._first
        for prefix in self._affected(dead, up):
            layer, t = self._places[prefix]
            nearer = [near - first for near in next_nodes.get(first + t, ()) if near in up]
            router = self._tables.live_hop(layer, t, self._router, live, nearer)
            yield prefix, () if router is None else (up[first + router][0],)

    def _affected(
        self, dead: set[RouterLink], up: Mapping[int, Sequence[Hop]]
    ) -> Collection[Prefix]:
        """Return the prefixes in layers whose hop may have changed.

        `dead` are the links of our paths that are dead now.
        """
        changed = dead | self._dead
        self._dead = dead
        live_hops = {hop for hops in up.values() for hop in hops}
        lost = {
            prefix
            for prefix in self._places
            if (route := self._routes.get(prefix)) and route[0] not in live_hops
        }
        unset = self._places.keys() - self._routes.keys()
        return lost.union(unset, *(self._uses[link] for link in changed))

    def _live(self, graph: shortest.Adjacency, up: Mapping[int, Sequence[Hop]]) -> Live:
        """Return the neighbours of every router over live links, our own as we see them now."""
        first = self._first
        live = [
            {peer - first for peer in graph.get(first + router, ())}
            for router in range(self._tables.routers)
        ]
        own = {node - first for node in up}
        for peer in live[self._router] - own:
            live[peer].discard(self._router)
        live[self._router] = own
        return live
