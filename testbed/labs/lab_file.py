"""A lab as a YAML file: read, checked strictly, and written.

    topology: fattree:k=4             # a network of weft's; or, in its place, nodes and links of
        your own
    scheme: ecmp
    link: {rate: 20mbit, queue: 250}  # of all links that say nothing else; without it they are as
        fast as the machine
    host_link: {rate: 10mbit}         # of those between hosts and switches
    packed: 2                         # processes that share the daemons
    nodes:
      zur: {kind: switch, hosts: 2}   # zur.0 and zur.1 are attached to it
      web: {kind: host}
    links:
      - {ends: zur-web, rate: 5mbit, queue: 50, delay: 1ms, loss: 0.5}
    commands:
      web: ["python3 -m http.server 80 &"]

With `topology`, `links` says what single links carry; with `nodes` it says which there are, two
alike being parallel.
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
OF_A_LINK = ("rate", "queue", "delay", "loss")
OF_A_NODE = ("kind", "hosts")
LinkEntry = tuple[tuple[str, str], LinkSpec | None]  # the ends of a link and what it carries


@dataclass(frozen=True)
class Lab:
    """What a file says.  own_links: by link.  commands: by name of the node, in order.  scheme:
    None for the usual."""

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
        ValueError: it is none; one line that begins with `name`.
    """
    content = _content(text, name)
    try:
        return _lab(_mapping("a lab", content, KEYS), name)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _content(text: str, name: str) -> Any:
    """Return what the YAML says.  Aliases are refused: a few lines of them stand for more than
    memory holds."""
    import yaml

    try:
        aliases = (
            event
            for event in yaml.parse(text, yaml.SafeLoader)
            if isinstance(event, yaml.AliasEvent)
        )
        if alias := next(aliases, None):
            raise ValueError(
                f"line {alias.start_mark.line + 1}: *{alias.anchor} is an alias; write its "
                f"value out"
            )
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError) as error:
        raise ValueError(f"{name} is no YAML for a lab: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise ValueError(f"{name} is no lab: it is nested too deeply") from None


def _lab(told: Mapping[str, Any], name: str) -> Lab:
    if ("topology" in told) == ("nodes" in told):
        raise ValueError("a lab has either topology, such as dcell:n=4,k=1, or nodes and links")
    entries = _entries(told.get("links"))
    if "topology" in told:
        topology = build(_text("topology", told["topology"]))
        own = {topology.link("-".join(ends)): spec for ends, spec in entries if spec}
    else:
        topology = topology_of(_graph(_mapping("nodes", told["nodes"]), entries), spec=name)
        own = dict(topology.own_links)
    commands = {}
    for node, lines in _mapping("commands", told.get("commands") or {}).items():
        known = topology.naming.name(topology.naming.node(str(node)))
        if not isinstance(lines, list) or not all(isinstance(line, str) for line in lines):
            raise ValueError(f"commands of {node}: a list of texts, got {quoted(lines)}")
        commands[known] = tuple(lines)
    packed = told.get("packed")
    if packed is not None and (
        not isinstance(packed, int) or isinstance(packed, bool) or packed < 0
    ):
        raise ValueError(
            f"packed: a number of processes, 0 for one for each node, got {quoted(packed)}"
        )
    lab = Lab(
        topology=topology,
        scheme=_text("scheme", told["scheme"]) if told.get("scheme") is not None else None,
        link=_link("link", told.get("link")),
        host_link=_link("host_link", told.get("host_link")),
        own_links=own,
        packed=packed,
        commands=commands,
    )
    return with_mtu(lab, told["mtu"]) if told.get("mtu") is not None else lab


def with_mtu(lab: Lab, mtu_bytes: int) -> Lab:
    """`lab` with that MTU on every link; ValueError if it is none, or links have no rate."""
    if not isinstance(mtu_bytes, int) or isinstance(mtu_bytes, bool):
        raise ValueError(f"mtu: a number of bytes such as 9000, got {quoted(mtu_bytes)}")
    if lab.link is None:
        raise ValueError(
            "an MTU needs a rate of all links: without it they are as fast as the machine, "
            "and have 1500"
        )
    return replace(
        lab,
        link=replace(lab.link, mtu_bytes=mtu_bytes),
        host_link=lab.host_link and replace(lab.host_link, mtu_bytes=mtu_bytes),
        own_links={
            link: replace(spec, mtu_bytes=mtu_bytes) for link, spec in lab.own_links.items()
        },
    )


def _entries(told: Any) -> list[LinkEntry]:
    """Ends and what they carry, of each entry of `links`."""
    if told is not None and not isinstance(told, list):
        raise ValueError("links: a list of entries such as {ends: a-b, rate: 10mbit}")
    found = []
    for number, entry in enumerate(told or [], 1):
        said = _mapping(f"links, entry {number}", entry, ("ends", *OF_A_LINK))
        ends = _ends(f"links, entry {number}", said.get("ends"))
        rest = {key: value for key, value in said.items() if key != "ends"}
        found.append((ends, _link(f"link {'-'.join(ends)}", rest or None)))
    return found


def _ends(what: str, told: Any) -> tuple[str, str]:
    """The two ends of a link: a-b, or a list of two where names have a -."""
    if isinstance(told, str):
        a, dash, b = told.partition("-")
        if dash:
            return a, b
    elif isinstance(told, list) and len(told) == 2:
        return str(told[0]), str(told[1])
    raise ValueError(f"{what}: ends: two nodes, a-b or [a, b], got {quoted(told)}")


def _link(what: str, told: Any) -> LinkSpec | None:
    if told is None:
        return None
    found = link_spec(what, _mapping(what, told, OF_A_LINK))
    if found is None:
        raise ValueError(f"{what}: rate is missing, such as 20mbit")
    return found


def _graph(nodes: Mapping[str, Any], entries: Sequence[LinkEntry]) -> Any:
    """The graph of a lab's own nodes and links."""
    import networkx as nx

    graph = nx.MultiGraph()
    for node, said in nodes.items():
        graph.add_node(str(node), **_mapping(f"node {node}", said or {}, OF_A_NODE))
    for ends, link in entries:
        for end in ends:
            if end not in graph:
                raise ValueError(f"link {'-'.join(ends)}: {unknown('node', end, list(graph))}")
        graph.add_edge(*ends, **({} if link is None else said_of(link)))
    return graph


def said_of(link: LinkSpec) -> dict[str, Any]:
    """What an entry says of a link."""
    said: dict[str, Any] = {"rate": _rate(link.rate_bps), "queue": link.queue_packets}
    if link.delay_us:
        said["delay"] = f"{link.delay_us}us"
    if link.loss_ppb:
        said["loss"] = link.loss_ppb / 10_000_000
    return said


def _rate(rate_bps: int) -> str:
    for unit, scale in (("gbit", 10**9), ("mbit", 10**6), ("kbit", 10**3)):
        if rate_bps % scale == 0:
            return f"{rate_bps // scale}{unit}"
    return f"{rate_bps}bit"


def _mapping(what: str, told: Any, keys: tuple[str, ...] = ()) -> Mapping[str, Any]:
    """`told`, if it is a mapping with no keys but these."""
    if not isinstance(told, dict):
        raise ValueError(f"{what}: keys with values, got {quoted(told)}")
    for key in told:
        if keys and key not in keys:
            raise ValueError(f"{what}: {unknown('key', str(key), list(keys))}")
    return told


def _text(what: str, told: Any) -> str:
    if not isinstance(told, str) or not told:
        raise ValueError(f"{what}: a text, got {quoted(told)}")
    return told


def written(lab: Lab) -> str:
    """The text of a file that parse() reads as `lab`."""
    import yaml

    topology, naming = lab.topology, lab.topology.naming
    said: dict[str, Any] = {}
    if topology.family == "file":
        kinds = ("host" if node < topology.servers else "switch" for node in range(topology.nodes))
        said["nodes"] = {naming.label(node): {"kind": kind} for node, kind in enumerate(kinds)}
    else:
        said["topology"] = topology.spec
    said["scheme"] = lab.scheme
    said |= {
        key: said_of(link)
        for key, link in (("link", lab.link), ("host_link", lab.host_link))
        if link
    }
    said |= {"mtu": lab.link.mtu_bytes} if lab.link and lab.link.mtu_bytes != MTU_BYTES else {}
    said |= {"packed": lab.packed} if lab.packed is not None else {}
    links = []
    for at, (a, _, b, _) in enumerate(topology.links.tolist()):
        own = said_of(lab.own_links[at]) if at in lab.own_links else {}
        if topology.family == "file":
            ends = [naming.label(a), naming.label(b)]
            links.append({"ends": ends if "-" in "".join(ends) else "-".join(ends)} | own)
        elif own:
            links.append({"ends": topology.link_name(at)} | own)
    said |= {"links": links} if links else {}
    said |= (
        {"commands": {node: list(lines) for node, lines in lab.commands.items()}}
        if lab.commands
        else {}
    )
    text: str = yaml.safe_dump(said, sort_keys=False, default_flow_style=None, width=120)
    return text
