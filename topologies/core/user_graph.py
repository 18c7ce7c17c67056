"""A switch fabric from any graph: a networkx graph, or the text of a GraphML, JSON or edge-list
file.

What the graph says becomes the network:

| of a node | means |
|---|---|
| kind=host, kind=switch | what it is; where a graph says so of no node, all are switches |
| hosts=N | that N hosts are attached to it, beside those that are nodes; if no node is a host, p
each otherwise |

| of an edge | means |
|---|---|
| rate | what the link carries: 10gbit, or bits per second |
| queue | packets that wait at a port of it, 250 if nothing is said; needs a rate, and so do delay
and loss |
| delay, loss | of the link, one way: 1ms; per cent of packets |
| role=local, role=global | what it is; global otherwise |

Links may be parallel, in a multigraph; the second between r1 and r2 is r1-r2:2.

Names are the graph's own where all of them can name interfaces (a letter, then up to seven letters,
digits, dots or _, and no two alike); otherwise hosts and switches are h0, h1, ... and r0, r1, ...,
and the graph's names are labels, which every command takes, too.  Hosts are numbered switch by
switch; host s<switch>.<host> has the address 10.0.<switch>. <host>, or fewer bits for each where
numbers are large, and switch 1 has 172.17.0.1.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

from weft.topologies.core.address import AddressLayout, FabricNaming, Tier, spelled
from weft.topologies.core.grammar import quoted
from weft.topologies.core.link import LinkSpec, delay_us, rate_bps

if TYPE_CHECKING:
    from weft.topologies.core.topology import Topology

# with -eth<port> behind it, Linux takes it as an interface's name
FIT = re.compile(r"[A-Za-z][A-Za-z0-9._]{0,7}")
KINDS = ("host", "switch")
MOST_SWITCHES = 1 << 16
MOST_HOSTS = 1 << 20
QUEUE_PACKETS = 250  # where a graph gives a link a rate and no queue
PER_CENT_PPB = 10_000_000


class GraphEdge(NamedTuple):
    """A link between two nodes, by name, and what it carries, None where nothing is said."""

    a: str
    b: str
    link: LinkSpec | None
    local: bool


@dataclass(frozen=True)
class UserLayout(AddressLayout):
    """Labels of two digits, switch and host, where each switch has its own number of hosts."""

    hosts: tuple[int, ...] = ()

    @cached_property
    def starts(self) -> list[int]:
        """The first host of each switch."""
        return [0, *accumulate(self.hosts)][:-1]

    def label_of(self, number: int) -> tuple[int, ...]:
        switch = bisect_right(self.starts, number) - 1
        return switch, number - self.starts[switch]

    def sizes(self, digits: Sequence[int]) -> list[int]:
        return [1] * self.hosts[digits[0]] if digits else list(self.hosts)

    def number_of(self, digits: Sequence[int]) -> int:
        if len(digits) != 2 or digits[0] >= len(self.hosts) or digits[1] >= self.hosts[digits[0]]:
            raise ValueError(f"no host s{spelled(digits)}: they are s<switch>.<host>")
        return self.starts[digits[0]] + digits[1]


class UserNaming(FabricNaming):
    """The names of a user's nodes, hosts first."""

    def __init__(self, hosts: Sequence[int], own: Sequence[str]) -> None:
        """hosts: of each switch.  own: the graph's names of all nodes."""
        super().__init__([len(hosts), max(max(hosts), 1)], [Tier("r", (len(hosts),))])
        self.servers = sum(hosts)
        self.layout = UserLayout((len(hosts), max(max(hosts), 1)), hosts=tuple(hosts))
        self.own = tuple(own)
        fit = all(FIT.fullmatch(name) for name in own)
        self.own_names = fit and len({name.lower() for name in own}) == len(own)
        self._number = {name: node for node, name in enumerate(own)}

    def name(self, node: int) -> str:
        return self.own[node] if self.own_names else super().name(node)

    def switch_name(self, switch: int) -> str:
        return self.own[self.servers + switch] if self.own_names else super().switch_name(switch)

    def label(self, node: int) -> str:
        return self.own[node]

    def node(self, text: str) -> int:
        if self.own_names:
            if text not in self._number:
                raise ValueError(f"no node {text!r}: the first is {self.own[0]}")
            return self._number[text]
        try:
            # what nodes are called here goes before labels that look alike
            return super().node(text)
        except ValueError:
            if text not in self._number:
                raise
            return self._number[text]


def topology_of(graph: Any, *, spec: str = "graph", p: int = 1) -> Topology:
    """The network of the networkx graph `graph`.

    spec: what builds it again.  p: hosts of each switch where the graph has no hosts of its own.
    Raises ValueError, in one line, for a graph that is no network: see the module.
    """
    kinds = {str(name): _kind(str(name), data.get("kind")) for name, data in graph.nodes(data=True)}
    if len(kinds) != graph.number_of_nodes():
        raise ValueError(f"{spec}: two nodes have the same name")
    switches = [name for name, kind in kinds.items() if kind == "switch"]
    if not 0 < len(switches) <= MOST_SWITCHES:
        raise ValueError(
            f"{spec}: there must be 1 .. {MOST_SWITCHES} switches, got {len(switches)}"
        )
    edges = _edges(graph, spec)
    hosts: dict[str, list[str]] = {switch: [] for switch in switches}
    for name, switch in _homes(kinds, edges, spec).items():
        hosts[switch].append(name)
    default = 0 if "host" in kinds.values() or _says_hosts(graph) else p
    counts = {
        str(name): _count(str(name), data.get("hosts", default))
        for name, data in graph.nodes(data=True)
        if kinds[str(name)] == "switch"
    }
    if (total := sum(counts.values())) > MOST_HOSTS:
        raise ValueError(
            f"{spec}: a network has at most {MOST_HOSTS} hosts attached by number, got {total}"
        )
    for switch, count in counts.items():
        hosts[switch] += [f"{switch}.{number}" for number in range(count)]
    _require_connected(switches, edges, spec)
    return _built(switches, hosts, edges, spec)


def parse(text: str, *, suffix: str, spec: str, p: int = 1) -> Topology:
    """The network that the text of a file says.

    suffix: .graphml; .json (node-link, edges under "links" or "edges"); anything else is an edge
    list: two names a line, then perhaps key=value, and # before a comment.
    Raises ValueError, in one line, for what cannot be read.
    """
    import networkx as nx

    try:
        if suffix == ".graphml":
            graph = nx.parse_graphml(text)
        elif suffix == ".json":
            told = json.loads(text)
            graph = nx.node_link_graph(told, edges="links" if "links" in told else "edges")
        else:
            graph = _edge_list(text)
    except ValueError as error:
        raise ValueError(f"{spec}: {str(error).splitlines()[0]}") from None
    except Exception as error:  # networkx and the XML parser raise whatever they meet
        raise ValueError(
            f"{spec} is no {suffix[1:] or 'edge-list'} file of a graph: {_line(error)}"
        ) from None
    return topology_of(graph, spec=spec, p=p)


def document(topology: Topology) -> str:
    """The JSON from which parse() builds this network of a user again, failures aside."""
    names = [topology.naming.label(node) for node in range(topology.nodes)]
    nodes = [
        {"id": name, "kind": "host" if node < topology.servers else "switch"}
        for node, name in enumerate(names)
    ]
    own = topology.own_links
    links = [
        {
            "source": names[a],
            "target": names[b],
            "key": link,
            "role": topology.roles[topology.level[link]],
        }
        | (_said(own[link]) if link in own else {})
        for link, (a, _, b, _) in enumerate(topology.links.tolist())
    ]
    return json.dumps(
        {"directed": False, "multigraph": True, "graph": {}, "nodes": nodes, "links": links}
    )


def _said(link: LinkSpec) -> dict[str, Any]:
    """What a graph says of an edge that carries what `link` says."""
    said: dict[str, Any] = {"rate": link.rate_bps, "queue": link.queue_packets}
    if link.delay_us:
        said["delay"] = f"{link.delay_us}us"
    if link.loss_ppb:
        said["loss"] = link.loss_ppb / PER_CENT_PPB
    return said


def _line(error: Exception) -> str:
    return str(error).partition("\n")[0] or type(error).__name__


def _edge_list(text: str) -> Any:
    import networkx as nx

    graph = nx.Graph()
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        pairs = [word.partition("=") for word in words[2:]]
        if len(words) < 2 or not all(key and equals for key, equals, _ in pairs):
            raise ValueError(
                f"line {number}: expected two names and perhaps key=value, got "
                f"{quoted(line.strip())}"
            )
        graph.add_edge(words[0], words[1], **{key: value for key, _, value in pairs})
    return graph


def _kind(name: str, said: object) -> str:
    if said not in (None, *KINDS):
        raise ValueError(f"node {name}: kind must be host or switch, got {quoted(said)}")
    return str(said or "switch")


def _says_hosts(graph: Any) -> bool:
    return any("hosts" in data for _, data in graph.nodes(data=True))


def _count(name: str, said: object) -> int:
    try:
        count = int(str(said))
    except ValueError:
        count = -1
    if not 0 <= count <= MOST_SWITCHES:
        raise ValueError(
            f"node {name}: hosts must be an integer, 0 .. {MOST_SWITCHES}, got {quoted(said)}"
        )
    return count


def _edges(graph: Any, spec: str) -> list[GraphEdge]:
    """Every link once; a directed graph's two edges between the same nodes are one link, one each
    way."""
    found: list[GraphEdge] = []
    ways: dict[tuple[str, str], int] = {}
    for a, b, data in graph.edges(data=True):
        a, b = str(a), str(b)
        if a == b:
            raise ValueError(f"{spec}: {a} is joined to itself")
        ways[a, b] = ways.get((a, b), 0) + 1
        if graph.is_directed() and ways[a, b] <= ways.get((b, a), 0):
            continue
        role = data.get("role", "global")
        if role not in ("local", "global", "host"):
            raise ValueError(
                f"{spec}: the role of {a}-{b} must be local or global, got {quoted(role)}"
            )
        found.append(GraphEdge(a, b, link_said(f"{spec}: {a}-{b}", data), role == "local"))
    return found


def link_said(what: str, said: Mapping[str, Any]) -> LinkSpec | None:
    """What `rate`, `queue`, `delay` and `loss` say that a link carries, None where there is no
    rate, or 0.

    ValueError, which begins with `what`, for what is none of these, or for others without a rate.
    """
    rate = said.get("rate")
    given = [key for key in ("queue", "delay", "loss") if said.get(key) is not None]
    if rate is None or rate == 0:
        if given:
            raise ValueError(
                f"{what}: {given[0]} needs a rate: without one a link is as fast as the machine"
            )
        return None
    try:
        loss = float(said.get("loss") or 0)
        return LinkSpec(
            rate_bps=int(rate) if isinstance(rate, int | float) else rate_bps(str(rate)),
            queue_packets=int(said.get("queue") or QUEUE_PACKETS),
            delay_us=delay_us(str(said.get("delay") or "0us")),
            loss_ppb=round(loss * PER_CENT_PPB),
        )
    except (ValueError, TypeError, OverflowError) as error:
        raise ValueError(f"{what}: {error}") from None


def _homes(kinds: Mapping[str, str], edges: Sequence[GraphEdge], spec: str) -> dict[str, str]:
    """The switch of each host that is a node; ValueError unless it has one link, to a switch."""
    found: dict[str, str] = {}
    for edge in edges:
        for host, peer in ((edge.a, edge.b), (edge.b, edge.a)):
            if kinds[host] == "host":
                if host in found or kinds[peer] == "host":
                    raise ValueError(f"{spec}: host {host} must have one link, to a switch")
                found[host] = peer
    if missing := [name for name, kind in kinds.items() if kind == "host" and name not in found]:
        raise ValueError(f"{spec}: host {missing[0]} must have one link, to a switch")
    return found


def _require_connected(switches: Sequence[str], edges: Sequence[GraphEdge], spec: str) -> None:
    beside: dict[str, list[str]] = {switch: [] for switch in switches}
    for edge in edges:
        if edge.a in beside and edge.b in beside:
            beside[edge.a].append(edge.b)
            beside[edge.b].append(edge.a)
    found, left = {switches[0]}, [switches[0]]
    while left:
        new = set(beside[left.pop()]) - found
        found |= new
        left += new
    if missing := [switch for switch in switches if switch not in found]:
        raise ValueError(f"{spec}: no path leads from {switches[0]} to {missing[0]}")


def _built(
    switches: Sequence[str],
    hosts: Mapping[str, Sequence[str]],
    edges: Sequence[GraphEdge],
    spec: str,
) -> Topology:
    import numpy as np

    from weft.topologies.core.topology import Topology, places, wire

    names = [host for switch in switches for host in hosts[switch]]
    if len(names) < 2:
        raise ValueError(f"{spec}: a network has at least 2 hosts, got {len(names)}")
    if len({*names, *switches}) < len(names) + len(switches):
        raise ValueError(f"{spec}: an attached host would have the name of a node")
    naming = UserNaming([len(hosts[switch]) for switch in switches], [*names, *switches])
    _ = naming.layout.shifts
    number = {name: node for node, name in enumerate([*names, *switches])}
    home = {host: switch for switch in switches for host in hosts[switch]}
    of_host: dict[str, LinkSpec | None] = dict.fromkeys(names)
    local: list[tuple[str, str, LinkSpec | None]] = []
    between: list[tuple[str, str, LinkSpec | None]] = []
    for edge in edges:
        a, b = sorted((edge.a, edge.b), key=lambda name: number[name])
        if a in home:
            of_host[a] = edge.link
        else:
            (local if edge.local else between).append((a, b, edge.link))
    by_ends = [sorted(some, key=lambda each: each[:2]) for some in (local, between)]
    ends = [*((host, home[host], of_host[host]) for host in names), *by_ends[0], *by_ends[1]]
    pairs = np.array([[number[a], number[b]] for a, b, _ in ends])
    ports = places(pairs, len(number))
    levels = [len(names), len(local), len(between)] if local else [len(names), len(between)]
    own = {at: link for at, (_, _, link) in enumerate(ends) if link}
    rates = np.array(
        [own[at].rate_bps if at in own else 0 for at in range(len(ends))], dtype=np.int64
    )
    return Topology(
        family="file",
        parameters={},
        servers=naming.servers,
        switches=naming.switches,
        links=wire(pairs[:, 0], ports[:, 0], pairs[:, 1], ports[:, 1]),
        level=np.repeat(np.arange(len(levels), dtype=np.int8), levels),
        server_centric=False,
        naming=naming,
        roles=("host", "local", "global")[:: 1 if local else 2],
        named=spec,
        rates_bps=rates if rates.any() else np.zeros(0, dtype=np.int64),
        own_links=own,
    )
