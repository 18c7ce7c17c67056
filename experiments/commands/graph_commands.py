"""The commands that need no more than a graph: list, topo, route."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from weft.topologies.core.topology import Topology

TOPOLOGY = "family:key=value,... such as dcell:n=4,k=1, or file:PATH, a graph of your own"
OWN = "a graph of your own: GraphML, JSON (node-link) or a list of edges (docs/tutorials/own_topology.md)"


def add_commands(commands: Any) -> None:
    """Add list, topo and route."""
    add = commands.add_parser("list", help="experiments, families of networks, routing schemes")
    add.add_argument("--json", action="store_true", help="print JSON")
    add.set_defaults(action=list_all)

    add = commands.add_parser("topo", help="what a network is made of, and a picture of it")
    add.add_argument("topology", metavar="TOPOLOGY", help=TOPOLOGY)
    add.add_argument("--json", action="store_true", help="print JSON")
    add.add_argument("--nodes", action="store_true", help="every node's name, label and address too")
    add.add_argument("--plot", metavar="FILE", help="draw it: .png, .pdf or .svg")
    add.set_defaults(action=topo)

    add = commands.add_parser("route", help="the path of a routing scheme, links failed or not")
    add.add_argument("topology", metavar="TOPOLOGY", help=TOPOLOGY)
    add.add_argument("--routing", metavar="SCHEME", required=True, help="dr, pr-gpi, dfr:b=0, bfs, ecmp, ...")
    add.add_argument("src", metavar="SRC", help="a server, by name (h3) or label (s1.0.3)")
    add.add_argument("dst", metavar="DST", help="another")
    add.add_argument("--fail", metavar="LINK", action="append", default=[], help="a link that is dead, such as h0-h4")
    add.add_argument("--json", action="store_true", help="print JSON")
    add.set_defaults(action=route)


def list_all(given: argparse.Namespace) -> int:
    """What there is, as text or JSON."""
    from weft.experiments.commands.catalogue import catalogue

    found = catalogue()
    if given.json:
        print(json.dumps(found, indent=1))
        return 0
    print("experiments (weft run NAME)")
    for one in found["experiments"]:
        print(f"  {one['name']:<14} {one['question']}")
        print(f"  {'':<14} on {', '.join(one['engines'])}; sweeps {', '.join(one['sweep'])}; {one['source']}")
    print("\ntopologies (NAME:key=value,...)")
    for one in found["topologies"]:
        print(f"  {one['example']:<22} {one['summary']}")
        print_parameters(one["parameters"], 22)
    print(f"  {'file:PATH':<22} {OWN}")
    print("\nrouting schemes (NAME or NAME:key=value,...)")
    for one in found["routing"]:
        print(f"  {one['name']:<14} {one['summary']}")
        print_parameters(one["parameters"], 14)
    print("\nschemes of a switch fabric's data plane (NAME or NAME:key=value,...)")
    for one in found["data_plane"]:
        print(f"  {one['name']:<14} {one['summary']}")
        print_parameters(one["parameters"], 14)
    print("\nlinks (weft up ... --OPTION VALUE)")
    print_parameters({one["name"]: one for one in found["links"]}, 0)
    return 0


def print_parameters(parameters: dict[str, dict[str, Any]], indent: int) -> None:
    """A line for each of the `parameters` of a family or a scheme, as `weft list` describes them."""
    for key, parameter in parameters.items():
        span = " or ".join(parameter["words"]) or f"at least {parameter['least']}"
        default = "" if parameter["default"] is None else f", {parameter['default']} by default"
        optional = ", may be left out" if parameter["optional"] else ""
        print(f"  {'':<{indent}} {key}: {parameter['meaning']}, {span}{default}{optional}")


def topo(given: argparse.Namespace) -> int:
    """What a network is made of."""
    from weft.experiments.scenarios.describe import describe, nodes
    from weft.topologies import build

    topology = build(given.topology)
    topology.check()
    facts = describe(topology)
    if given.plot:
        plot(topology, given.plot)
    if given.json:
        print(json.dumps(facts | ({"nodes": nodes(topology)} if given.nodes else {}), indent=1))
        return 0
    for key, value in facts.items():
        if value is not None:
            print(f"{key:<18} {', '.join(f'{k}: {v}' for k, v in value.items()) if isinstance(value, dict) else value}")
    if given.nodes:
        from weft.experiments.runner.console import show

        print()
        show(nodes(topology), ["name", "label", "address"])
    return 0


def plot(topology: Topology, path: str) -> None:
    """Draw `topology` into the file `path`."""
    from weft.experiments.figures.figures import new, save
    from weft.experiments.figures.network_drawing import draw

    with new() as figure:
        draw(topology, figure)
        save(figure, path)


def route(given: argparse.Namespace) -> int:
    """The paths from one server to another; status 1 if there is none."""
    from weft.daemons.core import registry
    from weft.experiments.scenarios.routes import find
    from weft.topologies import build

    topology = build(given.topology)
    src, dst = (topology.naming.node(text) for text in (given.src, given.dst))
    failed = [topology.link(text) for text in given.fail]
    found = find(given.routing, topology, src, dst, failed)
    if not found:
        ends = f"from {topology.naming.name(src)} to {topology.naming.name(dst)}"
        dead = f" with {', '.join(topology.link_name(link) for link in failed)} failed" if failed else ""
        reason = f"{given.routing} finds no path {ends}{dead}"
        print(json.dumps({"path": None, "hops": None, "reason": reason}) if given.json else reason)
        return 1
    rows: list[dict[str, Any]] = [
        {"path": [topology.naming.name(node) for node in path.nodes], "hops": len(path.nodes) - 1, "share": path.share}
        | ({} if path.layer is None else {"layer": path.layer})
        for path in found
    ]
    several = len(rows) > 1 or registry.scheme(given.routing)[0].selection is not None
    if given.json:
        single = {key: rows[0][key] for key in ("path", "hops")}
        print(json.dumps(single | ({"paths": len(rows)} if several else {}) | {"choices": rows}))
        return 0
    for row in rows:
        share = f", {100 * row['share']:.4g} % of packets" if several else ""
        layer = f", layer {row['layer']}" if "layer" in row else ""
        print(f"{' '.join(row['path'])}  ({row['hops']} hops{layer}{share})")
    return 0
