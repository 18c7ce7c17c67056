"""The path that a routing scheme gives a pair of servers on the graph, links failed or not."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from daemons.routing import dr, shortest, updown
from topologies.ccrdn import CcrdnNaming
from topologies.failures import fail_links
from topologies.graph import Topology
from topologies.spec import unknown

Pairs = set[tuple[int, int]]  # ordered: source, destination


@dataclass(frozen=True)
class Found:
    """path: nodes from source to destination, both included, crossbars left out.  paths: how many are as good, if the
    scheme uses several."""

    path: list[int]
    paths: int | None = None


@dataclass(frozen=True)
class Scheme:
    """summary: for people.  find: the path from one server to another over live links; None if it finds none."""

    summary: str
    find: Callable[[Topology, int, int], Found | None]


def by_dr(topology: Topology, src: int, dst: int) -> Found | None:
    """DR's one path; DR knows no other if a link of it is dead."""
    naming = topology.naming
    if not isinstance(naming, CcrdnNaming):
        raise ValueError(f"dr needs dcell, beta-dcell or ficonn, and {topology.spec} is none")
    path = dr.route(naming.network.rule, naming.network.t, src, dst)
    live = topology.adjacency
    return Found(path) if all(b in live[a] for a, b in pairwise(path)) else None


def by_bfs(topology: Topology, src: int, dst: int) -> Found | None:
    """One shortest path."""
    path = shortest.route(topology.adjacency, src, dst)
    return Found(path) if path else None


def by_ecmp(topology: Topology, src: int, dst: int) -> Found | None:
    """The first of the shortest paths of a switch fabric, and their number."""
    if topology.server_centric:
        raise ValueError(f"ecmp needs a switch fabric, and the servers of {topology.spec} forward: dr or bfs")
    paths = updown.paths(topology, src, dst)
    return Found(paths[0], len(paths)) if paths else None


SCHEMES: Mapping[str, Scheme] = {
    "dr": Scheme("dimensional routing of dcell, beta-dcell and ficonn (CCRDN, definition 4.1)", by_dr),
    "bfs": Scheme("shortest path by breadth-first search, the yard-stick of the others", by_bfs),
    "ecmp": Scheme("equal-cost shortest paths of switch fabrics", by_ecmp),
}


def scheme(routing: str) -> Scheme:
    """The scheme called `routing`; ValueError names the ones that exist."""
    if routing not in SCHEMES:
        raise ValueError(unknown("routing scheme", routing, SCHEMES))
    return SCHEMES[routing]


def find(routing: str, topology: Topology, src: int, dst: int, failed: Sequence[int] = ()) -> Found | None:
    """The path of the scheme `routing` from server `src` to server `dst` with the links `failed` dead, None if none.

    ValueError if there is no such scheme, or it does not go with the topology, or an end is no server.
    """
    found = scheme(routing)
    for node in (src, dst):
        if node >= topology.servers:
            raise ValueError(f"{topology.naming.name(node)} is a switch; paths lead from server to server")
    return found.find(fail_links(topology, failed) if failed else topology, src, dst)


def lost_pairs(routing: str, topology: Topology) -> Pairs:
    """Every ordered pair of servers for which `routing` finds no path over the live links of `topology`."""
    search = scheme(routing).find
    servers = range(topology.servers)
    return {(src, dst) for src in servers for dst in servers if src != dst and not search(topology, src, dst)}
