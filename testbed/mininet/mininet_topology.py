"""Mininet's Topo as a networkx graph, from which topologies/core/user_graph.py makes routers.

Names and parallel links stay; bw of a link is its rate, max_queue_size its queue.  This stands
apart from mininet_arguments.py since `from weft import build` works without Mininet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.topologies import build
from weft.topologies.core.link import Mbps
from weft.topologies.core.topology import Topology
from weft.topologies.core.user_graph import topology_of

if TYPE_CHECKING:
    import networkx as nx

NO_MEANING = {
    "node1",
    "node2",
    "port1",
    "port2",
    "intfName1",
    "intfName2",
    "use_htb",
    "use_tbf",
    "fast",
    "cls",
}
LINK_ATTRIBUTES = {"bw": "rate", "max_queue_size": "queue", "delay": "delay", "loss": "loss"}


def as_topology(topology: str | Topology | nx.Graph) -> Topology:
    """Return the topology of a spec such as "dcell:n=4,k=1", a networkx graph or Mininet's Topo.

    Raises:
        ValueError: it describes no network; the message has the reason.
    """
    if isinstance(topology, str):
        return build(topology)
    if is_topo(topology):
        return topology_of(graph_of(topology))
    return topology if isinstance(topology, Topology) else topology_of(topology)


def is_topo(topology: object) -> bool:
    """Return True for an object with the attributes of Mininet's Topo."""
    return all(hasattr(topology, name) for name in ("hosts", "switches", "links", "nodeInfo"))


def has_cycle(topo: Any) -> bool:
    """Return True if switches of `topo` form a cycle, where bridges would loop packets for ever."""
    import networkx as nx

    between = [ends for ends in topo.links() if all(map(topo.isSwitch, ends))]
    return bool(between) and not nx.is_forest(nx.MultiGraph(between))


def graph_of(topo: Any) -> nx.MultiGraph:
    """Return the graph of `topo`.

    Raises:
        ValueError: a network of routers does not support a parameter of a node or link.
    """
    import networkx as nx

    graph = nx.MultiGraph()
    for name in topo.nodes(sort=True):
        _check_node(name, topo.nodeInfo(name))
        graph.add_node(name, kind="switch" if topo.isSwitch(name) else "host")
    for a, b, info in topo.links(sort=True, withInfo=True):
        parameters = {
            key: value for key, value in info.items() if key not in NO_MEANING and value is not None
        }
        if unknown := sorted(parameters.keys() - LINK_ATTRIBUTES.keys()):
            raise ValueError(f"link {a}-{b}: {unknown[0]} is unavailable in a routed network")
        attributes = {LINK_ATTRIBUTES[key]: value for key, value in parameters.items()}
        if "rate" in attributes:
            attributes["rate"] = round(float(attributes["rate"]) * Mbps)
        if "delay" in attributes and not str(attributes["delay"])[-1:].isalpha():
            attributes["delay"] = f"{attributes['delay']}us"  # as tc reads a number
        graph.add_edge(a, b, **attributes)
    return graph


def node_parameters(topo: Any) -> dict[str, dict[str, Any]]:
    """Return the parameters of Mininet's node objects by name: private directories."""
    directories = {name: topo.nodeInfo(name).get("privateDirs") for name in topo.nodes()}
    return {name: {"privateDirs": paths} for name, paths in directories.items() if paths}


def _check_node(name: str, info: dict[str, Any]) -> None:
    """Raise ValueError for a parameter that a node of a routed network cannot have."""
    for key in ("ip", "mac", "defaultRoute", "cpu", "cores", "cls", "inNamespace"):
        if info.get(key) is None:
            continue
        fixed = key in ("ip", "mac", "defaultRoute")
        reason = "follows from its place" if fixed else "is unavailable"
        raise ValueError(
            f"{name}: {key} {reason} in a routed network; "
            "routing='bridge' has switches as Mininet's"
        )
