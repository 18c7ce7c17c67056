"""Mininet's Topo -> a networkx graph, from which topologies/core/user_graph.py makes a network of
routers.

Names, parallel links and the rate of each link are kept: bw of a link is its rate, max_queue_size
its queue.
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
OF_A_LINK = {"bw": "rate", "max_queue_size": "queue", "delay": "delay", "loss": "loss"}


def built(topology: str | Topology | nx.Graph) -> Topology:
    """Return the network of a spec such as "dcell:n=4,k=1", of a networkx graph or of a Topo of
    Mininet's.

    Raises:
        ValueError: it describes no network; the message says why, in one line.
    """
    if isinstance(topology, str):
        return build(topology)
    if is_topo(topology):
        return topology_of(graph_of(topology))
    return topology if isinstance(topology, Topology) else topology_of(topology)


def is_topo(topology: object) -> bool:
    """Whether `topology` is a Topo of Mininet's, or looks like one."""
    return all(hasattr(topology, name) for name in ("hosts", "switches", "links", "nodeInfo"))


def has_cycle(topo: Any) -> bool:
    """Whether switches of `topo` are joined in a circle, in which bridges would let packets go
    round for ever."""
    leader = {name: name for name in topo.nodes()}

    def lead(name: str) -> str:
        while leader[name] != name:
            name = leader[name]
        return name

    for a, b in topo.links():
        if topo.isSwitch(a) and topo.isSwitch(b):
            one, other = lead(a), lead(b)
            if one == other:
                return True
            leader[one] = other
    return False


def graph_of(topo: Any) -> nx.MultiGraph:
    """The graph of `topo`; ValueError for a parameter of a node or link that a network of routers
    cannot have."""
    import networkx as nx

    graph = nx.MultiGraph()
    for name in topo.nodes(sort=True):
        _check_node(name, topo.nodeInfo(name))
        graph.add_node(name, kind="switch" if topo.isSwitch(name) else "host")
    for a, b, said in topo.links(sort=True, withInfo=True):
        given = {
            key: value for key, value in said.items() if key not in NO_MEANING and value is not None
        }
        if unknown := sorted(given.keys() - OF_A_LINK.keys()):
            raise ValueError(f"link {a}-{b}: {unknown[0]} is not to be had in a routed network")
        told = {OF_A_LINK[key]: value for key, value in given.items()}
        if "rate" in told:
            told["rate"] = round(float(told["rate"]) * Mbps)
        if "delay" in told and not str(told["delay"])[-1:].isalpha():
            told["delay"] = f"{told['delay']}us"  # as tc reads a number
        graph.add_edge(a, b, **told)
    return graph


def node_parameters(topo: Any) -> dict[str, dict[str, Any]]:
    """What the objects of nodes are given, by name: their private directories."""
    found = {name: topo.nodeInfo(name).get("privateDirs") for name in topo.nodes()}
    return {name: {"privateDirs": kept} for name, kept in found.items() if kept}


def _check_node(name: str, said: dict[str, Any]) -> None:
    """ValueError for what follows from a node's place in a routed network, or is not to be had
    there."""
    for key in ("ip", "mac", "defaultRoute", "cpu", "cores", "cls", "inNamespace"):
        if said.get(key) is not None:
            why = (
                "follows from its place"
                if key in ("ip", "mac", "defaultRoute")
                else "is not to be had"
            )
            raise ValueError(
                f"{name}: {key} {why} in a routed network; routing='bridge' has switches as "
                f"Mininet's"
            )
