"""A lab as a YAML file: read, checked strictly, and written.

    topology: fattree:k=4             # one of weft's networks; or nodes and links of your own
    scheme: ecmp
    link: {rate: 20mbit, queue: 250}  # default of all links; without it: as fast as the machine
    host_link: {rate: 10mbit}         # links between hosts and switches
    packed: 2                         # processes that share the daemons
    nodes:
      zur: {kind: switch, hosts: 2}   # with hosts zur.0 and zur.1
      web: {kind: host, machine: b}  # of weft up --machines; default: weft places it
    links:
      - {ends: zur-web, rate: 5mbit, queue: 50, delay: 1ms, loss: 0.5}
    commands:
      web: ["python3 -m http.server 80 &"]
    answer: {scheme: any}             # what an answer may set

With `topology`, `links` specifies single links.  With `nodes`, `links` lists all links; equal
entries are parallel links.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from weft.daemons.core import registry
from weft.testbed.labs.answer import ANSWER_KEYS, LINK_KEYS, allowed, merge
from weft.testbed.labs.containerlab_file import is_containerlab, topology_in
from weft.testbed.labs.text_file import Keys, YamlLineError, keys, position, read
from weft.testbed.labs.timeline import LabCheck, LabEvent, timeline, two_ends
from weft.testbed.plan.plane_selection import NONE
from weft.topologies import build
from weft.topologies.core.grammar import quoted, unknown
from weft.topologies.core.link import MTU_BYTES, LinkSpec
from weft.topologies.core.topology import Topology
from weft.topologies.core.user_graph import link_attributes, link_spec, topology_of

TIMELINE_KEYS = ("events", "checks")
KEYS = (*ANSWER_KEYS, "topology", "nodes", *TIMELINE_KEYS, "answer")
NO_RATE = "rate is missing, such as 20mbit"
NODE_KEYS = ("kind", "hosts", "machine")
LinkEntry = tuple[tuple[str, str], LinkSpec | None]  # ends and specification of a link


class NamedText(NamedTuple):
    """The text of a file, and the path by which errors call it."""

    text: str
    name: str


@dataclass(frozen=True)
class Lab:
    """Content of a lab's file.

    scheme: None for the usual one.
    own_links: specifications that differ from `link`, by link.
    commands: by name of the node, in order.
    machines: names of the machines of nodes that the file places, by node.
    events, checks: see timeline.py.
    """

    topology: Topology
    scheme: str | None = None
    link: LinkSpec | None = None
    host_link: LinkSpec | None = None
    own_links: Mapping[int, LinkSpec] = field(default_factory=dict)
    packed: int | None = None
    commands: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    machines: Mapping[int, str] = field(default_factory=dict)
    events: tuple[LabEvent, ...] = ()
    checks: tuple[LabCheck, ...] = ()

    def command_lines(self) -> list[str]:
        """Return every command line that the lab runs, with its node."""
        steps: list[LabEvent | LabCheck] = [*self.events, *self.checks]
        lines = [(node, line) for node, texts in self.commands.items() for line in texts]
        for step in steps:
            if step.kind in ("start", "output"):
                node = self.topology.naming.name(step.options["node"])
                lines.append((node, step.subject))
        return [f"{node}: {line}" for node, line in lines]


def parse(
    text: str, *, name: str, answer: NamedText | None = None, hidden: NamedText | None = None
) -> Lab:
    """Return the lab in the text of the file called `name`.

    Args:
        text: content of the file.
        name: path of the file; files that the lab names lie in its folder.
        answer: values that replace those of the file, where its key `answer` allows them.
        hidden: events and checks beside those of the file.

    Raises:
        ValueError: a text is no lab, no answer to it or has no hidden checks; the message is one
            line that begins with the file's name and the line.
    """
    if is_containerlab(name):
        return _of_containerlab(text, name, answer or hidden)
    with _named(name):
        content = keys("a lab", read(text, name), KEYS)
        if "answer" in content:
            with position(content, "answer"):
                allowed(content["answer"])
    if answer:
        with _named(answer.name):
            merge(content, read(*answer), name)
    further = None
    if hidden:
        with _named(hidden.name):
            further = keys("hidden checks", read(*hidden), TIMELINE_KEYS)
    with _named(name):
        return _lab(content, name, further)


def _of_containerlab(text: str, name: str, other: NamedText | None) -> Lab:
    """Return the lab of a topology file of containerlab, which has no answers and no checks."""
    if other:
        raise ValueError(f"{other.name}: {name} is a file of containerlab, which has no checks")
    with _named(name):
        topology = topology_in(text, name)
    return Lab(topology, own_links=topology.own_links)


@contextmanager
def _named(name: str) -> Iterator[None]:
    """Begin a ValueError of the block with `name`, unless it has its place."""
    try:
        yield
    except YamlLineError:
        raise
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _lab(content: Keys, name: str, hidden: Keys | None) -> Lab:
    if ("topology" in content) == ("nodes" in content):
        raise ValueError("a lab has either topology, such as dcell:n=4,k=1, or nodes and links")
    topology, own_links = _wired(content, name)
    lab = Lab(topology=topology, own_links=own_links, machines=_machines(content, topology))
    readers: dict[str, Callable[[Any], Any]] = {
        "scheme": partial(_scheme, topology),
        "link": partial(_link, "link"),
        "host_link": partial(_link, "host_link"),
        "packed": _packed,
        "commands": lambda value: _commands(value, topology),
    }
    for key, reader in readers.items():
        if content.get(key) is not None:
            with position(content, key):
                lab = replace(lab, **{key: reader(content[key])})
    if content.get("mtu") is not None:
        with position(content, "mtu"):
            lab = with_mtu(lab, content["mtu"])
    events, checks = timeline(content, topology, Path(name).parent, hidden)
    return replace(lab, events=events, checks=checks)


def _wired(content: Keys, name: str) -> tuple[Topology, dict[int, LinkSpec]]:
    """Return the topology, and the specifications of links that differ."""
    with position(content, "links"):
        entries = _entries(content.get("links"))
    if "topology" in content:
        with position(content, "topology"):
            topology = build(_text("topology", content["topology"]))
        return topology, _own_links(topology, content, entries)
    with position(content, "nodes"):
        nodes = keys("nodes", content["nodes"])
        topology = topology_of(_graph(nodes, content.get("links") or [], entries), spec=name)
    return topology, dict(topology.own_links)


def _own_links(
    topology: Topology, content: Keys, entries: Sequence[LinkEntry]
) -> dict[int, LinkSpec]:
    """Return the specifications of single links of a named topology."""
    own_links = {}
    for item, (ends, spec) in zip(content.get("links") or [], entries, strict=True):
        with position(item):
            if spec:
                own_links[topology.link("-".join(ends))] = spec
    return own_links


def _machines(content: Keys, topology: Topology) -> dict[int, str]:
    """Return the machines that `nodes` names, by node."""
    machines = {}
    for node, attributes in content.get("nodes", {}).items():
        if attributes and "machine" in attributes:
            with position(attributes, "machine"):
                machine = _text(f"machine of {node}", attributes["machine"])
            machines[topology.naming.node(node)] = machine
    return machines


def _commands(content: Any, topology: Topology) -> dict[str, tuple[str, ...]]:
    """Return the command lines by name of the node."""
    commands = {}
    for node, lines in keys("commands", content).items() if content else ():
        with position(content, node):
            if not isinstance(lines, list) or not all(isinstance(line, str) for line in lines):
                raise ValueError(f"commands of {node}: a list of texts, got {quoted(lines)}")
            if any("\0" in line for line in lines):
                raise ValueError(f"commands of {node}: no command holds the character NUL")
            commands[topology.naming.name(topology.naming.node(node))] = tuple(lines)
    return commands


def _packed(content: Any) -> int:
    if not isinstance(content, int) or isinstance(content, bool) or content < 0:
        expected = "a number of processes, 0 for one for each node"
        raise ValueError(f"packed: {expected}, got {quoted(content)}")
    return content


def with_mtu(lab: Lab, mtu_bytes: int) -> Lab:
    """Return `lab` with this MTU on every link.

    ValueError if it is no MTU or links have no rate.
    """
    if not isinstance(mtu_bytes, int) or isinstance(mtu_bytes, bool):
        raise ValueError(f"mtu: a number of bytes such as 9000, got {quoted(mtu_bytes)}")
    if lab.link is None:
        cause = "links without one are as fast as the machine and have 1500"
        raise ValueError(f"an MTU needs a rate of all links: {cause}")
    own_links = {link: replace(spec, mtu_bytes=mtu_bytes) for link, spec in lab.own_links.items()}
    return replace(
        lab,
        link=replace(lab.link, mtu_bytes=mtu_bytes),
        host_link=lab.host_link and replace(lab.host_link, mtu_bytes=mtu_bytes),
        own_links=own_links,
    )


def _entries(content: Any) -> list[LinkEntry]:
    """Return the entries of `links`."""
    if content is not None and not isinstance(content, list):
        raise ValueError("links: a list of entries such as {ends: a-b, rate: 10mbit}")
    entries = []
    for number, item in enumerate(content or [], 1):
        title = f"links, entry {number}"
        with position(item):
            values = dict(keys(title, item, ("ends", *LINK_KEYS)))
            ends = two_ends(f"{title}: ends", values.pop("ends", None))
            spec = link_spec(f"link {'-'.join(ends)}", values) if values else None
            if values and spec is None:
                raise ValueError(f"link {'-'.join(ends)}: {NO_RATE}")
            entries.append((ends, spec))
    return entries


def _scheme(topology: Topology, content: Any) -> str:
    """Return the spec of a scheme that can route `topology`."""
    spec = _text("scheme", content)
    if spec != NONE:
        registry.checked(topology, spec)
    return spec


def _link(title: str, content: Any) -> LinkSpec:
    spec = link_spec(title, keys(title, content, LINK_KEYS))
    if spec is None:
        raise ValueError(f"{title}: {NO_RATE}")
    return spec


def _graph(nodes: Keys, items: Sequence[Any], entries: Sequence[LinkEntry]) -> Any:
    """Return the networkx graph of a lab's own nodes and links, which are `items` as written."""
    import networkx as nx

    graph = nx.MultiGraph()
    for node, attributes in nodes.items():
        with position(nodes, node):
            own = keys(f"node {node}", attributes, NODE_KEYS) if attributes else {}
            graph.add_node(node, **{key: own[key] for key in own if key != "machine"})
    for item, (ends, spec) in zip(items, entries, strict=True):
        for end in ends:
            if end not in graph:
                with position(item, "ends"):
                    raise ValueError(f"link {'-'.join(ends)}: {unknown('node', end, list(graph))}")
        graph.add_edge(*ends, **({} if spec is None else link_keys(spec)))
    return graph


def link_keys(link: LinkSpec) -> dict[str, Any]:
    """Return the keys of an entry for `link`."""
    return {**link_attributes(link), "rate": _rate(link.rate_bps)}


def _rate(rate_bps: int) -> str:
    for unit, scale in (("gbit", 10**9), ("mbit", 10**6), ("kbit", 10**3)):
        if rate_bps % scale == 0:
            return f"{rate_bps // scale}{unit}"
    return f"{rate_bps}bit"


def _text(title: str, content: Any) -> str:
    if not isinstance(content, str) or not content:
        raise ValueError(f"{title}: a text, got {quoted(content)}")
    return content


def written(lab: Lab) -> str:
    """Return the text of a file that parse() reads as `lab`, without events and checks."""
    import yaml

    content: dict[str, Any] = {}
    if lab.topology.family == "file":
        content["nodes"] = {
            lab.topology.naming.label(node): {
                "kind": "host" if node < lab.topology.servers else "switch"
            }
            for node in range(lab.topology.nodes)
        }
    else:
        content["topology"] = lab.topology.spec
    content["scheme"] = lab.scheme
    for key, link in (("link", lab.link), ("host_link", lab.host_link)):
        if link:
            content[key] = link_keys(link)
    if lab.link and lab.link.mtu_bytes != MTU_BYTES:
        content["mtu"] = lab.link.mtu_bytes
    if lab.packed is not None:
        content["packed"] = lab.packed
    if links := _written_links(lab):
        content["links"] = links
    if lab.commands:
        content["commands"] = {node: list(lines) for node, lines in lab.commands.items()}
    text: str = yaml.safe_dump(content, sort_keys=False, default_flow_style=None, width=120)
    return text


def _written_links(lab: Lab) -> list[dict[str, Any]]:
    """Return the entries of `links`: all links of a user's graph, else those that differ."""
    topology = lab.topology
    entries = []
    for link, (a, _, b, _) in enumerate(topology.links.tolist()):
        values = link_keys(lab.own_links[link]) if link in lab.own_links else {}
        if topology.family == "file":
            names = [topology.naming.label(a), topology.naming.label(b)]
            ends = names if "-" in "".join(names) else "-".join(names)
            entries.append({"ends": ends} | values)
        elif values:
            entries.append({"ends": topology.link_name(link)} | values)
    return entries
