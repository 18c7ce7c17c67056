"""A lab as a YAML file: read, checked strictly, and written.

    topology: fattree:k=4             # one of weft's networks; or nodes and links of your own
    scheme: ecmp
    link: {rate: 20mbit, queue: 250}  # default of all links; without it: as fast as the machine
    host_link: {rate: 10mbit}         # links between hosts and switches
    packed: 2                         # processes that share the daemons
    nodes:
      zur: {kind: switch, hosts: 2}   # with hosts zur.0 and zur.1
      web: {kind: host}
    links:
      - {ends: zur-web, rate: 5mbit, queue: 50, delay: 1ms, loss: 0.5}
    commands:
      web: ["python3 -m http.server 80 &"]

With `topology`, `links` specifies single links.  With `nodes`, `links` lists all links; equal
entries are parallel links.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from weft.topologies import build
from weft.topologies.core.grammar import quoted, unknown
from weft.topologies.core.link import MTU_BYTES, LinkSpec
from weft.topologies.core.topology import Topology
from weft.topologies.core.user_graph import link_spec, topology_of

KEYS = ("topology", "scheme", "link", "host_link", "mtu", "packed", "nodes", "links", "commands")
LINK_KEYS = ("rate", "queue", "delay", "loss")
NODE_KEYS = ("kind", "hosts")
LinkEntry = tuple[tuple[str, str], LinkSpec | None]  # ends and specification of a link


@dataclass(frozen=True)
class Lab:
    """Content of a lab's file.

    scheme: None for the usual one.
    own_links: specifications that differ from `link`, by link.
    commands: by name of the node, in order.
    """

    topology: Topology
    scheme: str | None = None
    link: LinkSpec | None = None
    host_link: LinkSpec | None = None
    own_links: Mapping[int, LinkSpec] = field(default_factory=dict)
    packed: int | None = None
    commands: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def parse(text: str, *, name: str) -> Lab:
    """Return the lab in the text of the file called `name`.

    Raises:
        ValueError: the text is no lab; the message is one line that begins with `name`.
    """
    content = _content(text, name)
    try:
        return _lab(_mapping("a lab", content, KEYS), name)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _content(text: str, name: str) -> Any:
    """Return the parsed YAML.

    Aliases are refused: a few lines of them can expand beyond the memory.
    """
    import yaml

    try:
        for event in yaml.parse(text, yaml.SafeLoader):
            if isinstance(event, yaml.AliasEvent):
                line = event.start_mark.line + 1
                raise ValueError(f"line {line}: *{event.anchor} is an alias; write its value out")
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError) as error:
        raise ValueError(f"{name} is no YAML for a lab: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise ValueError(f"{name} is no lab: it is nested too deeply") from None


def _lab(content: Mapping[str, Any], name: str) -> Lab:
    if ("topology" in content) == ("nodes" in content):
        raise ValueError("a lab has either topology, such as dcell:n=4,k=1, or nodes and links")
    entries = _entries(content.get("links"))
    if "topology" in content:
        topology = build(_text("topology", content["topology"]))
        own_links = {topology.link("-".join(ends)): spec for ends, spec in entries if spec}
    else:
        nodes = _mapping("nodes", content["nodes"])
        topology = topology_of(_graph(nodes, entries), spec=name)
        own_links = dict(topology.own_links)
    scheme = content.get("scheme")
    lab = Lab(
        topology=topology,
        scheme=None if scheme is None else _text("scheme", scheme),
        link=_link("link", content.get("link")),
        host_link=_link("host_link", content.get("host_link")),
        own_links=own_links,
        packed=_packed(content.get("packed")),
        commands=_commands(content.get("commands"), topology),
    )
    mtu_bytes = content.get("mtu")
    return lab if mtu_bytes is None else with_mtu(lab, mtu_bytes)


def _commands(content: Any, topology: Topology) -> dict[str, tuple[str, ...]]:
    """Return the command lines by name of the node."""
    commands = {}
    for node, lines in _mapping("commands", content or {}).items():
        if not isinstance(lines, list) or not all(isinstance(line, str) for line in lines):
            raise ValueError(f"commands of {node}: a list of texts, got {quoted(lines)}")
        commands[topology.naming.name(topology.naming.node(str(node)))] = tuple(lines)
    return commands


def _packed(content: Any) -> int | None:
    if content is None:
        return None
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
        keys = dict(_mapping(f"links, entry {number}", item, ("ends", *LINK_KEYS)))
        ends = _ends(f"links, entry {number}", keys.pop("ends", None))
        entries.append((ends, _link(f"link {'-'.join(ends)}", keys or None)))
    return entries


def _ends(title: str, content: Any) -> tuple[str, str]:
    """Return the two ends of a link: from a-b, or from a list of two if names contain a -."""
    if isinstance(content, str):
        a, dash, b = content.partition("-")
        if dash:
            return a, b
    elif isinstance(content, list) and len(content) == 2:
        return str(content[0]), str(content[1])
    raise ValueError(f"{title}: ends: two nodes, a-b or [a, b], got {quoted(content)}")


def _link(title: str, content: Any) -> LinkSpec | None:
    if content is None:
        return None
    spec = link_spec(title, _mapping(title, content, LINK_KEYS))
    if spec is None:
        raise ValueError(f"{title}: rate is missing, such as 20mbit")
    return spec


def _graph(nodes: Mapping[str, Any], entries: Sequence[LinkEntry]) -> Any:
    """Return the networkx graph of a lab's own nodes and links."""
    import networkx as nx

    graph = nx.MultiGraph()
    for node, attributes in nodes.items():
        graph.add_node(str(node), **_mapping(f"node {node}", attributes or {}, NODE_KEYS))
    for ends, spec in entries:
        for end in ends:
            if end not in graph:
                raise ValueError(f"link {'-'.join(ends)}: {unknown('node', end, list(graph))}")
        graph.add_edge(*ends, **({} if spec is None else link_keys(spec)))
    return graph


def link_keys(link: LinkSpec) -> dict[str, Any]:
    """Return the keys of an entry for `link`."""
    keys: dict[str, Any] = {"rate": _rate(link.rate_bps), "queue": link.queue_packets}
    if link.delay_us:
        keys["delay"] = f"{link.delay_us}us"
    if link.loss_ppb:
        keys["loss"] = link.loss_ppb / 10_000_000
    return keys


def _rate(rate_bps: int) -> str:
    for unit, scale in (("gbit", 10**9), ("mbit", 10**6), ("kbit", 10**3)):
        if rate_bps % scale == 0:
            return f"{rate_bps // scale}{unit}"
    return f"{rate_bps}bit"


def _mapping(title: str, content: Any, keys: tuple[str, ...] = ()) -> Mapping[str, Any]:
    """Return `content` if it is a mapping with known keys; () allows any key."""
    if not isinstance(content, dict):
        raise ValueError(f"{title}: keys with values, got {quoted(content)}")
    for key in content:
        if keys and key not in keys:
            raise ValueError(f"{title}: {unknown('key', str(key), list(keys))}")
    return content


def _text(title: str, content: Any) -> str:
    if not isinstance(content, str) or not content:
        raise ValueError(f"{title}: a text, got {quoted(content)}")
    return content


def written(lab: Lab) -> str:
    """Return the text of a file that parse() reads as `lab`."""
    import yaml

    content: dict[str, Any] = {}
    if lab.topology.family == "file":
        content["nodes"] = _written_nodes(lab.topology)
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


def _written_nodes(topology: Topology) -> dict[str, dict[str, str]]:
    nodes = {}
    for node in range(topology.nodes):
        kind = "host" if node < topology.servers else "switch"
        nodes[topology.naming.label(node)] = {"kind": kind}
    return nodes


def _written_links(lab: Lab) -> list[dict[str, Any]]:
    """Return the entries of `links`: all links of a user's graph, else those that differ."""
    topology = lab.topology
    entries = []
    for link, (a, _, b, _) in enumerate(topology.links.tolist()):
        keys = link_keys(lab.own_links[link]) if link in lab.own_links else {}
        if topology.family == "file":
            names = [topology.naming.label(a), topology.naming.label(b)]
            ends = names if "-" in "".join(names) else "-".join(names)
            entries.append({"ends": ends} | keys)
        elif keys:
            entries.append({"ends": topology.link_name(link)} | keys)
    return entries
