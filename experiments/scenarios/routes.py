"""The path that a routing scheme gives a pair of servers on the graph, links failed or not."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from daemons.core import schemes
from daemons.dfr import routing as dfr
from daemons.proxy import routing as proxy
from daemons.proxy.daemon import tables
from daemons.routing import dr, shortest, updown
from daemons.routing.scope import dead_channels
from daemons.tar import routing as tar
from daemons.tar.own_flows import ATTEMPTS
from topologies.core.failures import fail_links
from topologies.core.grammar import parse, unknown
from topologies.core.topology import Topology
from topologies.recursive.ccrdn import FICONN, Ccrdn, CcrdnNaming

Pairs = set[tuple[int, int]]  # ordered: source, destination
Options = Mapping[str, int]


@dataclass(frozen=True)
class Found:
    """path: nodes from source to destination, both included, crossbars left out.  paths: how many are as good, if the
    scheme uses several."""

    path: list[int]
    paths: int | None = None


@dataclass(frozen=True)
class Scheme:
    """summary: for people.  find: the path from one server to another over live links, under these options; None if it
    finds none."""

    summary: str
    find: Callable[[Topology, Options, int, int], Found | None]


def by_dr(topology: Topology, options: Options, src: int, dst: int) -> Found | None:
    """DR's one path; DR knows no other if a link of it is dead."""
    network = recursive("dr", topology)
    return _if_alive(topology, dr.route(network.rule, network.t, src, dst))


def by_pr(method: int) -> Callable[[Topology, Options, int, int], Found | None]:
    """PR's choice where nothing is loaded: the shortest live one of DR's path and those of the proxies tried."""

    def find(topology: Topology, options: Options, src: int, dst: int) -> Found | None:
        network = recursive("pr", topology)
        first = options["choice"] == proxy.DR_FIRST
        policy = proxy.Policy(method, options["level"] or network.k, bool(options["condition1"]), first)
        for _, copy in proxy.alternatives(tables(network), policy, src, dst):
            if found := _if_alive(topology, proxy.route(network.rule, network.t, src, dst, copy)):
                return found
        return None

    return find


def by_dfr(topology: Topology, options: Options, src: int, dst: int) -> Found | None:
    """The path of a packet, every server on it knowing of the dead links within its own scope."""
    network = recursive("dfr", topology)
    settings = schemes.settings(network, options)
    down = dead_channels(topology, network)
    path, arrives = dfr.route(network.rule, network.t, settings, down, src, dst)
    return Found(path) if arrives else None


def by_tar(topology: Topology, options: Options, src: int, dst: int) -> Found | None:
    """The path of a flow where nothing is loaded, by the first of its source's probes that arrives."""
    network = recursive("tar", topology)
    if network.rule != FICONN:
        raise ValueError(f"tar is for ficonn, whose servers have two ports, and {topology.spec} is none")
    down = dead_channels(topology, network)
    for attempt in range(ATTEMPTS):
        path, arrives = tar.route(network.rule, network.t, down, src, dst, relay=options["relay"], attempt=attempt)
        if arrives:
            return Found(path)
    return None


def recursive(scheme: str, topology: Topology) -> Ccrdn:
    """The sizes of `topology`; ValueError if it is none of those that `scheme` is for."""
    naming = topology.naming
    if not isinstance(naming, CcrdnNaming):
        raise ValueError(f"{scheme} needs dcell, beta-dcell or ficonn, and {topology.spec} is none")
    return naming.network


def _if_alive(topology: Topology, path: list[int]) -> Found | None:
    live = topology.adjacency
    return Found(path) if all(b in live[a] for a, b in pairwise(path)) else None


def by_bfs(topology: Topology, options: Options, src: int, dst: int) -> Found | None:
    """One shortest path."""
    path = shortest.route(topology.adjacency, src, dst)
    return Found(path) if path else None


def by_ecmp(topology: Topology, options: Options, src: int, dst: int) -> Found | None:
    """The first of the shortest paths of a switch fabric, and their number."""
    if topology.server_centric:
        raise ValueError(f"ecmp needs a switch fabric, and the servers of {topology.spec} forward: dr or bfs")
    paths = updown.paths(topology, src, dst)
    return Found(paths[0], len(paths)) if paths else None


SCHEMES: Mapping[str, Scheme] = {
    "dr": Scheme("dimensional routing of dcell, beta-dcell and ficonn (CCRDN, definition 4.1)", by_dr),
    "pr-gpe": Scheme("proxy routing with every third copy as a candidate (CCRDN 5.1)", by_pr(proxy.GP_E)),
    "pr-gpi": Scheme("proxy routing with those near source or destination (5.2)", by_pr(proxy.GP_I)),
    "pr-gp0": Scheme("proxy routing with those joined to the switch of either (5.3)", by_pr(proxy.GP_0)),
    "dfr": Scheme("fault-tolerant routing: link state within a scope, reroutes beyond it (4.2.1)", by_dfr),
    "tar": Scheme("traffic-aware routing of ficonn, no link being loaded (4.2.3)", by_tar),
    "bfs": Scheme("shortest path by breadth-first search, the yard-stick of the others", by_bfs),
    "ecmp": Scheme("equal-cost shortest paths of switch fabrics", by_ecmp),
}


def scheme(routing: str) -> tuple[Scheme, Options]:
    """The scheme that `routing` names, dfr or dfr:b=0, and its options; ValueError says what is wrong with it."""
    name, given = parse(routing)
    if name not in SCHEMES:
        raise ValueError(unknown("routing scheme", name, SCHEMES))
    return SCHEMES[name], schemes.SCHEMES[name].options(given)


def find(routing: str, topology: Topology, src: int, dst: int, failed: Sequence[int] = ()) -> Found | None:
    """The path of the scheme `routing` from server `src` to server `dst` with the links `failed` dead, None if none.

    ValueError if there is no such scheme, or it does not go with the topology, or an end is no server.
    """
    found, options = scheme(routing)
    for node in (src, dst):
        if node >= topology.servers:
            raise ValueError(f"{topology.naming.name(node)} is a switch; paths lead from server to server")
    return found.find(fail_links(topology, failed) if failed else topology, options, src, dst)


def lost_pairs(routing: str, topology: Topology) -> Pairs:
    """Every ordered pair of servers for which `routing` finds no path over the live links of `topology`."""
    found, options = scheme(routing)
    servers = range(topology.servers)
    return {
        (src, dst) for src in servers for dst in servers if src != dst and not found.find(topology, options, src, dst)
    }
