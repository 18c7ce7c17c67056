"""Layered routing as a routing daemon: one route for each layer and router, kept alive by link
state.

Addresses without a layer take all equally short paths, as under ecmp.  In a layer a router has one
hop for each other router, that of the layer's tables as long as all links of that path live, else
another: live_layers.py.  When a link of its own dies, a router leaves it at once wherever a
neighbour has an intact path; the rest follows when link state has told of it.

Routes of layers wait until link state knows every link that this router's paths take, so that each
is set once; or, for links that are dead from the beginning, until link state has not changed for a
while.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from math import inf
from typing import Any

from weft.daemons.control.hello import HelloOutcome, Neighbourhood
from weft.daemons.control.link_state import Database
from weft.daemons.core.actions import Action, Hop, SetRoute
from weft.daemons.fatpaths.forwarding import tagged
from weft.daemons.fatpaths.live_layers import LayerTables, Live
from weft.daemons.routing import shortest
from weft.daemons.shortest_paths.daemon import Bfs, NextNodes
from weft.topologies.core.address import Prefix

PATIENCE = 8


class Layered(Bfs):
    """A state machine for the node of `neighbourhood` and `database`; `destinations` and `local` as
    for Bfs, without layers.

    wait_s: how long link state must not have changed for links that it lacks to be taken for dead;
        PATIENCE times as long while it lacks routers.
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
        self._tables, self._first, self._router = tables, tables.first, database.node - tables.first
        others = [(prefix, node - tables.first) for prefix, node in self._destinations]
        self._places = {
            tagged(prefix, layer): (layer, router) for layer in layers for prefix, router in others
        }
        self._uses: dict[tuple[int, int], list[Prefix]] = {}  # by link of our paths, whose they are
        for prefix, (layer, t) in self._places.items():
            for link in tables.links(layer, t, self._router):
                self._uses.setdefault(link, []).append(prefix)
        self._dead: set[tuple[int, int]] = set()  # of these links
        self._complete = False  # link state knew all links of our paths, or nothing more came
        self._wait_s, self._complete_s = wait_s, inf
        self._changes = -1  # the database.changes since which the wait lasts

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
        """layers: for each, the routes that are the layer's own, those that lead elsewhere while
        links are dead, and those that lead nowhere."""
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
        told = super().status()
        routes = told["routes"] + len(self._places) - len(lost)
        return {
            **told,
            "routes": routes,
            "routes_lost": told["routes_lost"] + lost,
            "layers": layers,
        }

    def _follow(self, events: Iterable[HelloOutcome], now: float) -> list[Action]:
        actions = super()._follow(events, now)
        if not self._complete and self._changes != self._database.changes:
            # Where many daemons start one after the other, routers are missing for long.
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
            # another link may lead there
            found = self._first + self._tables.hop(layer, t, self._router)
            if found not in up:
                detour = self._tables.detour(layer, t, self._router, live)
                if detour is None:
                    continue
                found = self._first + detour
            self._routes[prefix] = (up[found][0],)
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
        nearer = {
            node - self._first: [near - self._first for near in nears if near in up]
            for node, nears in next_nodes.items()
        }
        broken = set().union(*(self._uses[link] for link in dead))
        for prefix in self._affected(dead, up):
            layer, t = self._places[prefix]
            if prefix in broken:
                found = self._tables.live_hop(layer, t, self._router, live, nearer.get(t, ()))
            else:
                found = self._tables.hop(layer, t, self._router)
            yield prefix, () if found is None else (up[self._first + found][0],)

    def _affected(
        self, dead: set[tuple[int, int]], up: Mapping[int, Sequence[Hop]]
    ) -> Collection[Prefix]:
        """The prefixes in layers whose hop may have changed, `dead` being the links of our paths
        that are dead now."""
        changed, self._dead = dead | self._dead, dead
        hops = {hop for each in up.values() for hop in each}
        lost = {
            prefix
            for prefix in self._places
            if (held := self._routes.get(prefix)) and held[0] not in hops
        }
        unset = self._places.keys() - self._routes.keys()
        return lost.union(unset, *(self._uses[link] for link in changed))

    def _live(self, graph: shortest.Adjacency, up: Mapping[int, Sequence[Hop]]) -> Live:
        """The live links of every router, our own as we see them now."""
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
