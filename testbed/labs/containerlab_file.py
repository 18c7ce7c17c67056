"""The network in a topology file of containerlab, NAME.clab.yml.

Nodes and links are read (https://containerlab.dev/manual/topo-def-file/).  Images, configuration
and commands are left out: weft routes.  A node with one link, to a node with several, is a host,
every other one a switch, unless its label `weft-kind` says host or switch.  `vars` of a link may
hold rate, queue, delay, loss and trim, as in a lab.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from weft.testbed.labs.answer import LINK_KEYS
from weft.testbed.labs.text_file import Keys, keys, position, read
from weft.topologies.core.grammar import quoted, unknown
from weft.topologies.core.link import LinkSpec
from weft.topologies.core.topology import Topology
from weft.topologies.core.user_graph import link_attributes, link_spec, topology_of

SUFFIXES = (".clab.yml", ".clab.yaml")
KIND_LABEL = "weft-kind"
KINDS = ("host", "switch")
FILE_KEYS = ("name", "prefix", "mgmt", "settings", "debug", "topology")
TOPOLOGY_KEYS = ("defaults", "kinds", "groups", "nodes", "links")
LINK_ENTRY_KEYS = ("type", "endpoints", "mtu", "vars", "labels")
NOT_NODES = ("host", "mgmt-net", "macvlan")  # of endpoints outside the lab
# of nodes that exist before the lab
FOREIGN_KINDS = ("host", "ext-container", "k8s-kind")


def is_containerlab(path: str) -> bool:
    """Return True if the name of a file is that of a topology file of containerlab."""
    return path.endswith(SUFFIXES)


def topology_in(text: str, name: str) -> Topology:
    """Return the network in the text of the file called `name`.

    Raises:
        ValueError: the text is no such file, or has a part that weft cannot bring up; one line,
            with the line of the file where it has one.
    """
    import networkx as nx

    content = keys("a file of containerlab", read(text, name), FILE_KEYS)
    with position(content, "topology"):
        body = keys("topology", content.get("topology"), TOPOLOGY_KEYS)
    with position(body, "nodes"):
        nodes = keys("nodes", body.get("nodes"))
    with position(body, "links"):
        links = _links(body.get("links"), list(nodes))
    with position(body, "defaults"):
        defaults = keys("defaults", body["defaults"]) if body.get("defaults") else {}
    leaves = _leaves([ends for ends, _ in links])
    graph = nx.MultiGraph()
    for node, attributes in nodes.items():
        with position(nodes, node):
            graph.add_node(node, kind=_kind(node, attributes, defaults, leaf=node in leaves))
    for ends, spec in links:
        graph.add_edge(*ends, **({} if spec is None else link_attributes(spec)))
    return topology_of(graph, spec=name)


def _leaves(links: Sequence[tuple[str, str]]) -> set[str]:
    """Return the nodes with one link, to a node with several."""
    degrees = Counter(end for ends in links for end in ends)
    return {
        end
        for a, b in links
        for end, peer in ((a, b), (b, a))
        if degrees[end] == 1 and degrees[peer] > 1
    }


def _kind(node: str, attributes: Any, defaults: Mapping[str, Any], *, leaf: bool) -> str:
    """Return host or switch; ValueError for a node that is no container of the lab's own."""
    own = keys(f"node {node}", attributes) if attributes else {}
    values = {**defaults, **own}
    if values.get("kind") in FOREIGN_KINDS:
        raise ValueError(f"node {node}: its kind {values['kind']} is outside the lab")
    mode = str(values.get("network-mode", ""))
    if mode not in ("", "none", "bridge"):
        raise ValueError(f"node {node}: network-mode {quoted(mode)} shares another's interfaces")
    labels = keys(f"labels of {node}", values["labels"]) if values.get("labels") else {}
    kind = labels.get(KIND_LABEL, "host" if leaf else "switch")
    if kind not in KINDS:
        raise ValueError(f"node {node}: {KIND_LABEL} must be host or switch, got {quoted(kind)}")
    return str(kind)


def _links(content: Any, nodes: list[str]) -> list[tuple[tuple[str, str], LinkSpec | None]]:
    """Return ends and specification of each link."""
    if not isinstance(content, list):
        raise ValueError('links: a list of entries such as endpoints: ["a:eth1", "b:eth1"]')
    links = []
    for number, item in enumerate(content, 1):
        title = f"links, entry {number}"
        with position(item):
            entry = keys(title, item, LINK_ENTRY_KEYS if _is_veth(title, item) else ())
            links.append((_ends(title, entry.get("endpoints"), nodes), _spec(title, entry)))
    return links


def _is_veth(title: str, item: Any) -> bool:
    """Return True; ValueError for a link of another type, whose keys are others."""
    kind = item.get("type", "veth") if isinstance(item, Keys) else "veth"
    if kind != "veth":
        raise ValueError(f"{title}: a link of type {quoted(kind)} leads out of the lab: only veth")
    return True


def _ends(title: str, content: Any, nodes: list[str]) -> tuple[str, str]:
    """Return the two nodes of `endpoints`, each NODE:INTERFACE or a mapping."""
    if not isinstance(content, list) or len(content) != 2:
        raise ValueError(f"{title}: endpoints: two ends such as a:eth1, got {quoted(content)}")
    names = []
    for end in content:
        node = end.get("node") if isinstance(end, Keys) else str(end).partition(":")[0]
        if node in NOT_NODES and node not in nodes:
            raise ValueError(f"{title}: its end {quoted(node)} is outside the lab")
        if node not in nodes:
            raise ValueError(f"{title}: {unknown('node', str(node), nodes)}")
        names.append(str(node))
    a, b = names
    return a, b


def _spec(title: str, entry: Keys) -> LinkSpec | None:
    """Return what `vars` of a link say about rate, queue, delay, loss and trim."""
    variables = entry.get("vars")
    values = keys(f"{title}: vars", variables) if variables else {}
    return link_spec(title, {key: values[key] for key in LINK_KEYS if key in values})
