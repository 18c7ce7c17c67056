"""A lab as files of containerlab: FRR in containers, wired and addressed as weft does it.

FRR routes whatever the lab's scheme is: OSPF between servers, BGP in fabrics (frr_config.py).
`exec` of a node has the same `ip` and `sysctl` commands as a plan.  Containers resolve addresses by
ARP, because their interfaces have other Ethernet addresses than ours.  The file has no rates:
those of a link are in its `vars`, from which weft reads them again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from weft.testbed.frr.frr_config import Bgp, Ospf, Routing
from weft.testbed.labs.containerlab_file import KIND_LABEL, SUFFIXES
from weft.testbed.labs.lab_file import Lab, link_keys
from weft.testbed.labs.link_changes import link_of
from weft.testbed.plan.network_plan import NetworkPlan
from weft.testbed.runs.run import UNNAMED
from weft.topologies.core.link import MTU_BYTES

IMAGE = "quay.io/frrouting/frr:8.5.4"
HELLO_MS = 300  # of BFD: containers have no real-time priority
CONFIGURATION, DAEMONS = "frr.conf", "daemons"  # in /etc/frr


def files(lab: Lab, name: str) -> dict[str, str]:
    """Return the text of each file, by its path in the folder of the topology file.

    Args:
        lab: the network; its commands are left out.
        name: of the lab in containerlab.

    Raises:
        ValueError: FRR cannot route this network.
    """
    import yaml

    plan = NetworkPlan(UNNAMED, lab.topology, None)
    routing = (Ospf if lab.topology.server_centric else Bgp)(plan, HELLO_MS)
    nodes = {plan.names[node]: _node(routing, node) for node in range(lab.topology.nodes)}
    content = {
        "name": name,
        "topology": {
            "defaults": {"kind": "linux", "image": IMAGE, "network-mode": "none"},
            "nodes": nodes,
            "links": [_link(lab, plan, link) for link in range(len(lab.topology.links))],
        },
    }
    text = yaml.safe_dump(content, sort_keys=False, default_flow_style=None, width=120)
    texts = {f"{name}{SUFFIXES[0]}": f"# containerlab deploy -t {name}{SUFFIXES[0]}\n{text}"}
    for node in routing.nodes:
        folder = plan.names[node]
        texts[f"{folder}/{CONFIGURATION}"] = configuration(routing, node)
        texts[f"{folder}/{DAEMONS}"] = "".join(
            f"{daemon}=yes\n" for daemon in (*routing.daemons, "vtysh_enable")
        )
    return texts


def configuration(routing: Routing, node: int) -> str:
    """Return the configuration of all daemons of a node, as vtysh reads it: defaults come first."""
    lines = [line for text in routing.files(node).values() for line in text.splitlines()]
    hostname = f"hostname {routing.plan.names[node]}"
    defaults = [line for line in lines if line.startswith("frr defaults")]
    rest = [line for line in lines if line != hostname and line not in defaults]
    return "\n".join([*defaults, hostname, "service integrated-vtysh-config", *rest, ""])


def _node(routing: Routing, node: int) -> dict[str, Any]:
    """Return the entry of a node."""
    plan = routing.plan
    folder = plan.names[node]
    kind = "host" if node < plan.topology.servers else "switch"
    entry: dict[str, Any] = {"labels": {KIND_LABEL: kind}, "exec": list(_commands(routing, node))}
    if plan.is_router(node):
        paths = [f"{folder}/{file}:/etc/frr/{file}" for file in (CONFIGURATION, DAEMONS)]
        entry["binds"] = paths
    return entry


def _commands(routing: Routing, node: int) -> Iterator[str]:
    """Yield the commands that set a node's interfaces up."""
    plan = routing.plan
    name = plan.names[node]
    for path, value in plan.sysctls(node).items():
        yield f"sysctl -w net.{path.replace('/', '.')}={value}"
    if plan.topology.is_crossbar(node):
        yield f"ip link add name {name} type bridge mcast_snooping 0"
        for end in plan.ends[node].values():
            yield f"ip link set dev {end.dev} master {name}"
        yield f"ip link set dev {name} up"
        return
    messages = [plan.addresses(node)[0], *plan.routes(node)]
    if plan.is_router(node):
        messages += routing.messages(node)
    yield from (message.command for message in messages)


def _link(lab: Lab, plan: NetworkPlan, link: int) -> dict[str, Any]:
    """Return the entry of a link."""
    a, a_port, b, b_port = lab.topology.links[link].tolist()
    ends = [(a, a_port), (b, b_port)]
    entry: dict[str, Any] = {
        "type": "veth",
        "endpoints": [
            {"node": plan.names[node], "interface": plan.ends[node][port].dev}
            for node, port in ends
        ],
        "mtu": lab.link.mtu_bytes if lab.link else MTU_BYTES,
    }
    spec = link_of(lab, link)
    return entry if spec is None else {**entry, "vars": link_keys(spec)}
