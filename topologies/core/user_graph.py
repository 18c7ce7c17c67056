"""Switch fabrics from a user's graph: a networkx graph, or GraphML, JSON or edge-list text.

| attribute of a node | meaning |
|---|---|
| kind | host or switch; switch by default |
| hosts | number of hosts attached beside those that are nodes; p by default if the graph has none |

| attribute of an edge | meaning |
|---|---|
| rate | 10gbit, or a number of bit/s |
| queue | packets that wait at a port, 250 by default; needs a rate, as delay and loss do |
| delay, loss | one way: 1ms; per cent of packets |
| trim | packets that wait before a switch trims; 0: never |
| role | local or global, the default |

Parallel links are allowed; the second between r1 and r2 is r1-r2:2.

The graph's names are used if all can name interfaces: a letter, then up to seven letters, digits,
dots or _, no two alike.  Otherwise hosts and switches are h0, h1, ... and r0, r1, ..., and the
graph's names are labels, which every command takes, too.  Hosts are numbered switch by switch; host
s<switch>.<host> has the address 10.0.<switch>.<host>, or fewer bits where numbers are large.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

from weft.topologies.core.address import AddressLayout, FabricNaming, Tier, spelled
from weft.topologies.core.grammar import quoted
from weft.topologies.core.link import LinkSpec, delay_us, rate_bps
from weft.topologies.core.topology import Topology, places, wire

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


# with -eth<port> behind it, Linux takes it as an interface's name
FIT = re.compile(r"[A-Za-z][A-Za-z0-9._]{0,7}")
NamedLink = tuple[str, str, LinkSpec | None]  # both ends by name
KINDS = ("host", "switch")
MOST_SWITCHES = 1 << 16
MOST_HOSTS = 1 << 20
QUEUE_PACKETS = 250  # where a graph gives a link a rate and no queue
PER_CENT_PPB = 10_000_000


class GraphEdge(NamedTuple):
    """A link between two named nodes; link is None without a rate."""

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
        """First host of each switch."""
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
    """Names of the nodes of a user's graph, hosts first."""

    def __init__(self, hosts: Sequence[int], own: Sequence[str]) -> None:
        """Name the nodes.  hosts: number at each switch; own: names of all nodes in the graph."""
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
            # names of this network take precedence over labels that look alike
            return super().node(text)
        except ValueError:
            if text not in self._number:
                raise
            return self._number[text]


def topology_of(graph: Any, *, spec: str = "graph", p: int = 1) -> Topology:
    """Return the network of the networkx graph `graph`; the module says what its attributes mean.

    Args:
        graph: a graph or multigraph, directed or not.
        spec: text that builds the network again.
        p: hosts of each switch in a graph that has none of its own.

    Raises:
        ValueError: the graph is no network.
    """
    kinds = {str(name): _kind(str(name), data.get("kind")) for name, data in graph.nodes(data=True)}
    for name in kinds:
        if not name.isprintable():
            raise ValueError(f"{spec}: the name {quoted(name)} has a control character")
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
    for switch, count in _host_counts(graph, kinds, p, spec).items():
        hosts[switch] += [f"{switch}.{number}" for number in range(count)]
    _require_connected(switches, edges, spec)
    return _assemble(hosts, edges, spec)


def parse(text: str, *, suffix: str, spec: str, p: int = 1) -> Topology:
    """Return the network in the text of a file.

    Args:
        text: content of the file.
        suffix: .graphml; .json (node-link, edges under "links" or "edges"); anything else is an
            edge list: two names a line, then optional key=value, and # before a comment.
        spec: text that builds the network again.
        p: hosts of each switch in a graph that has none of its own.

    Raises:
        ValueError: the text is no such graph, or the graph is no network.
    """
    import networkx as nx

    try:
        if suffix == ".graphml":
            graph = nx.parse_graphml(text)
        elif suffix == ".json":
            node_link = json.loads(text, parse_constant=_refuse_constant)
            edges = "links" if "links" in node_link else "edges"
            graph = nx.node_link_graph(node_link, edges=edges)
        else:
            graph = _edge_list(text)
    except ValueError as error:
        raise ValueError(f"{spec}: {str(error).splitlines()[0]}") from None
    except Exception as error:  # networkx and the XML parser raise errors of many kinds
        reason = str(error).partition("\n")[0] or type(error).__name__
        if isinstance(error, KeyError):
            reason = f"it has no {reason}"
        kind = suffix[1:] or "edge-list"
        raise ValueError(f"{spec} is no {kind} file of a graph: {reason}") from None
    return topology_of(graph, spec=spec, p=p)


def _refuse_constant(text: str) -> None:
    """Raise ValueError for NaN and Infinity, which Python's reader of JSON would take."""
    raise ValueError(f"{text} is no number of JSON")


def document(topology: Topology) -> str:
    """Return the JSON from which parse() builds a user's network again, failures aside."""
    names = [topology.naming.label(node) for node in range(topology.nodes)]
    nodes = [
        {"id": name, "kind": "host" if node < topology.servers else "switch"}
        for node, name in enumerate(names)
    ]
    links = []
    for link, (a, _, b, _) in enumerate(topology.links.tolist()):
        role = topology.roles[topology.level[link]]
        edge: dict[str, Any] = {"source": names[a], "target": names[b], "key": link, "role": role}
        if link in topology.own_links:
            edge |= link_attributes(topology.own_links[link])
        links.append(edge)
    return json.dumps(
        {"directed": False, "multigraph": True, "graph": {}, "nodes": nodes, "links": links}
    )


def link_attributes(link: LinkSpec) -> dict[str, Any]:
    """Return the edge attributes that link_spec() reads as `link`."""
    attributes: dict[str, Any] = {"rate": link.rate_bps, "queue": link.queue_packets}
    if link.delay_us:
        attributes["delay"] = f"{link.delay_us}us"
    if link.loss_ppb:
        attributes["loss"] = link.loss_ppb / PER_CENT_PPB
    if link.trim_packets:
        attributes["trim"] = link.trim_packets
    return attributes


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


def _kind(name: str, value: object) -> str:
    if value not in (None, *KINDS):
        raise ValueError(f"node {name}: kind must be host or switch, got {quoted(value)}")
    return str(value or "switch")


def _host_counts(graph: Any, kinds: Mapping[str, str], default: int, spec: str) -> dict[str, int]:
    """Return the number of hosts that each switch has by its attribute `hosts`.

    Args:
        graph: the graph.
        kinds: host or switch, by name.
        default: hosts of a switch in a graph that neither has hosts nor counts any.
        spec: name of the graph in errors.
    """
    if "host" in kinds.values() or any("hosts" in data for _, data in graph.nodes(data=True)):
        default = 0
    counts = {
        str(name): _count(str(name), data.get("hosts", default))
        for name, data in graph.nodes(data=True)
        if kinds[str(name)] == "switch"
    }
    if (total := sum(counts.values())) > MOST_HOSTS:
        raise ValueError(
            f"{spec}: a network has at most {MOST_HOSTS} hosts attached by number, got {total}"
        )
    return counts


def _count(name: str, value: object) -> int:
    try:
        count = int(str(value))
    except ValueError:
        count = -1
    if not 0 <= count <= MOST_SWITCHES:
        raise ValueError(
            f"node {name}: hosts must be an integer, 0 .. {MOST_SWITCHES}, got {quoted(value)}"
        )
    return count


def _edges(graph: Any, spec: str) -> list[GraphEdge]:
    """Return every link once; two opposite edges of a directed graph are one link."""
    edges: list[GraphEdge] = []
    counts: dict[tuple[str, str], int] = {}
    for a, b, data in graph.edges(data=True):
        a, b = str(a), str(b)
        if a == b:
            raise ValueError(f"{spec}: {a} is joined to itself")
        counts[a, b] = counts.get((a, b), 0) + 1
        if graph.is_directed() and counts[a, b] <= counts.get((b, a), 0):
            continue
        role = data.get("role", "global")
        if role not in ("local", "global", "host"):
            raise ValueError(
                f"{spec}: the role of {a}-{b} must be local or global, got {quoted(role)}"
            )
        edges.append(GraphEdge(a, b, link_spec(f"{spec}: {a}-{b}", data), role == "local"))
    return edges


def link_spec(owner: str, attributes: Mapping[str, Any]) -> LinkSpec | None:
    """Return the link of `rate`, `queue`, `delay`, `loss`, `trim`; None without a rate, or rate 0.

    Raises:
        ValueError: not such values, or others without a rate; one line that begins with `owner`.
    """
    rate = attributes.get("rate")
    others = [key for key in ("queue", "delay", "loss", "trim") if attributes.get(key) is not None]
    if rate is None or rate == 0:
        if others:
            raise ValueError(
                f"{owner}: {others[0]} needs a rate: without one a link is as fast as the machine"
            )
        return None
    try:
        loss = float(attributes.get("loss") or 0)
        if not 0 <= loss <= 100:
            raise ValueError(f"loss must be 0 to 100 per cent, got {loss:g}")
        return LinkSpec(
            rate_bps=int(rate) if isinstance(rate, int | float) else rate_bps(str(rate)),
            queue_packets=int(attributes.get("queue") or QUEUE_PACKETS),
            delay_us=delay_us(str(attributes.get("delay") or "0us")),
            loss_ppb=round(loss * PER_CENT_PPB),
            trim_packets=int(attributes.get("trim") or 0),
        )
    except (ValueError, TypeError, OverflowError) as error:
        raise ValueError(f"{owner}: {error}") from None


def _homes(kinds: Mapping[str, str], edges: Sequence[GraphEdge], spec: str) -> dict[str, str]:
    """Return the switch of each host node; ValueError unless it has one link, to a switch."""
    switch_of: dict[str, str] = {}
    for edge in edges:
        for host, peer in ((edge.a, edge.b), (edge.b, edge.a)):
            if kinds[host] == "host":
                if host in switch_of or kinds[peer] == "host":
                    raise ValueError(f"{spec}: host {host} must have one link, to a switch")
                switch_of[host] = peer
    if alone := [name for name, kind in kinds.items() if kind == "host" and name not in switch_of]:
        raise ValueError(f"{spec}: host {alone[0]} must have one link, to a switch")
    return switch_of


def _require_connected(switches: Sequence[str], edges: Sequence[GraphEdge], spec: str) -> None:
    import networkx as nx

    graph = nx.Graph([(edge.a, edge.b) for edge in edges])
    graph.add_nodes_from(switches)
    reached = nx.node_connected_component(graph, switches[0])
    if missing := [switch for switch in switches if switch not in reached]:
        raise ValueError(f"{spec}: no path leads from {switches[0]} to {missing[0]}")


def _assemble(
    hosts: Mapping[str, Sequence[str]], edges: Sequence[GraphEdge], spec: str
) -> Topology:
    """Return the network of switches with the names of their hosts, and of all edges."""
    names = [*(host for attached in hosts.values() for host in attached), *hosts]
    naming = _naming(hosts, names, spec)
    number = {name: node for node, name in enumerate(names)}
    levels = _levels(hosts, edges, number)
    roles = ("host", "local", "global") if len(levels) == 3 else ("host", "global")
    wired = Topology.wired(
        "file", {}, naming, _rows(levels, number), server_centric=False, roles=roles
    )
    return replace(
        wired, named=spec, **_link_fields([link for level in levels for _, _, link in level])
    )


def _rows(
    levels: Sequence[Sequence[NamedLink]], number: Mapping[str, int]
) -> list[NDArray[np.int64]]:
    """Return the rows of Topology.links of each level."""
    import numpy as np

    pairs = np.array([[number[a], number[b]] for level in levels for a, b, _ in level])
    ports = places(pairs, len(number))
    rows = wire(pairs[:, 0], ports[:, 0], pairs[:, 1], ports[:, 1])
    return np.split(rows, np.cumsum([len(level) for level in levels])[:-1])


def _link_fields(links: Sequence[LinkSpec | None]) -> dict[str, Any]:
    """Return the fields of Topology that say what links carry; both empty if no link has a rate."""
    import numpy as np

    rates = [link.rate_bps if link else 0 for link in links] if any(links) else []
    own_links = {index: link for index, link in enumerate(links) if link}
    return {"rates_bps": np.array(rates, dtype=np.int64), "own_links": own_links}


def _naming(hosts: Mapping[str, Sequence[str]], names: Sequence[str], spec: str) -> UserNaming:
    """Return the naming of `names`, hosts first; ValueError for too few hosts or equal names."""
    if len(names) - len(hosts) < 2:
        raise ValueError(f"{spec}: a network has at least 2 hosts, got {len(names) - len(hosts)}")
    if len(set(names)) < len(names):
        raise ValueError(f"{spec}: an attached host would have the name of a node")
    naming = UserNaming([len(attached) for attached in hosts.values()], names)
    _ = naming.layout.shifts  # raises ValueError if labels do not fit into addresses
    return naming


def _levels(
    hosts: Mapping[str, Sequence[str]], edges: Sequence[GraphEdge], number: Mapping[str, int]
) -> list[list[NamedLink]]:
    """Return links of hosts, local links if any, and global links, each level sorted by name."""
    switch_of = {host: switch for switch, attached in hosts.items() for host in attached}
    host_links: dict[str, LinkSpec | None] = dict.fromkeys(switch_of)
    local: list[NamedLink] = []
    between: list[NamedLink] = []
    for edge in edges:
        a, b = sorted((edge.a, edge.b), key=number.__getitem__)
        if a in switch_of:
            host_links[a] = edge.link
        else:
            (local if edge.local else between).append((a, b, edge.link))
    first = [(host, switch_of[host], link) for host, link in host_links.items()]
    rest = [sorted(level, key=lambda link: link[:2]) for level in (local, between)]
    return [first, *rest] if local else [first, rest[1]]
