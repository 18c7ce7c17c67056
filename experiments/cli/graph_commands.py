"""The commands that need no more than a graph: list, topo, route."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from weft.topologies.core.topology import Topology

TOPOLOGY = "family:key=value,... such as dcell:n=4,k=1, or file:PATH, a graph of your own"
NAME_COLUMNS, UNCUT = 22, 1 << 16  # of `weft list`; where no terminal shows it, no line is cut
OWN = (
    "a graph of your own: GraphML, JSON (node-link) or a list of edges "
    "(docs/tutorials/own_topology.md)"
)


def add_commands(commands: Any) -> None:
    """Add list, topo and route."""
    add = commands.add_parser("list", help="experiments, families of networks, routing schemes")
    what = (
        "experiments, networks, schemes or links; or the name of a network or scheme, "
        "for its parameters"
    )
    add.add_argument("what", nargs="?", metavar="WHAT", help=what)
    add.add_argument("--json", action="store_true", help="print JSON")
    add.set_defaults(action=list_all)

    add = commands.add_parser("topo", help="what a network is made of, and a picture of it")
    add.add_argument("topology", metavar="TOPOLOGY", help=TOPOLOGY)
    add.add_argument("--json", action="store_true", help="print JSON")
    add.add_argument(
        "--nodes", action="store_true", help="every node's name, label and address too"
    )
    add.add_argument("--plot", metavar="FILE", help="draw it: .png, .pdf or .svg")
    add.set_defaults(action=topo)

    add = commands.add_parser("route", help="the path of a routing scheme, links failed or not")
    add.add_argument("topology", metavar="TOPOLOGY", help=TOPOLOGY)
    add.add_argument(
        "--routing", metavar="SCHEME", required=True, help="dr, pr-gpi, dfr:b=0, bfs, ecmp, ..."
    )
    add.add_argument("src", metavar="SRC", help="a server, by name (h3) or label (s1.0.3)")
    add.add_argument("dst", metavar="DST", help="another")
    add.add_argument(
        "--fail",
        metavar="LINK",
        action="append",
        default=[],
        help="a link that is dead, such as h0-h4",
    )
    add.add_argument("--json", action="store_true", help="print JSON")
    add.set_defaults(action=route)


def list_all(given: argparse.Namespace) -> int:
    """Print a line for each thing that there is, or the parameters of one; all of it as JSON."""
    from weft.experiments.cli.catalogue import catalogue
    from weft.topologies.core.grammar import unknown

    entries = catalogue()
    if given.json:
        print(json.dumps(entries, indent=1))
        return 0
    sections = {
        "experiments": ("weft describe NAME has more", entries["experiments"]),
        "networks": (
            "weft list NAME has parameters",
            [*entries["topologies"], {"name": "file:PATH", "summary": OWN}],
        ),
        "schemes": ("weft list NAME has parameters", entries["routing"] + entries["data_plane"]),
        "links": ("weft up ... --OPTION VALUE", entries["links"]),
    }
    if given.what is None or given.what in sections:
        for title in sections if given.what is None else [given.what]:
            print_section(title, *sections[title])
        return 0
    named = {
        entry["name"]: entry for title in ("networks", "schemes") for entry in sections[title][1]
    }
    if given.what not in named:
        raise ValueError(unknown("kind, network or scheme", given.what, [*sections, *named]))
    print_one(named[given.what])
    return 0


def print_section(title: str, hint: str, entries: list[dict[str, Any]]) -> None:
    """Print a line for each of `entries`, cut to the width of a terminal."""
    from shutil import get_terminal_size
    from textwrap import shorten

    columns = get_terminal_size().columns if sys.stdout.isatty() else UNCUT
    print(f"{title} ({hint})")
    for entry in entries:
        text = entry.get("summary") or entry.get("question") or entry["meaning"]
        print(
            f"  {entry['name']:<{NAME_COLUMNS}} "
            f"{shorten(text, columns - NAME_COLUMNS - 3, placeholder=' ...')}"
        )


def print_one(entry: dict[str, Any]) -> None:
    """Print what there is to know of a family of networks or a scheme, with a line for each
    parameter."""
    print(f"{entry.get('example', entry['name'])}: {entry['summary']}")
    if "source" in entry:
        print(f"source: {entry['source']}")
    for key, parameter in entry.get("parameters", {}).items():
        span = " or ".join(parameter["words"]) or f"at least {parameter['least']}"
        default = "" if parameter["default"] is None else f", {parameter['default']} by default"
        optional = ", may be left out" if parameter["optional"] else ""
        print(f"  {key}: {parameter['meaning']}, {span}{default}{optional}")


def topo(given: argparse.Namespace) -> int:
    """What a network is made of."""
    from weft.experiments.cli.network_description import describe, nodes
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
            print(
                f"{key:<18} {', '.join(f'{k}: {v}' for k, v in value.items()) if isinstance(value, dict) else value}"  # noqa: E501
            )
    if given.nodes:
        from weft.experiments.runner.console import show

        print()
        show(nodes(topology), ["name", "label", "address"])
    return 0


def plot(topology: Topology, path: str) -> None:
    """Draw `topology` into the file `path`."""
    from weft.experiments.report.figures import new, save
    from weft.experiments.report.network_drawing import draw

    with new() as figure:
        draw(topology, figure)
        save(figure, path)


def route(given: argparse.Namespace) -> int:
    """The paths from one server to another; status 1 if there is none."""
    from weft.daemons.core import registry
    from weft.experiments.engines.routes import find
    from weft.topologies import build

    topology = build(given.topology)
    src, dst = (topology.naming.node(text) for text in (given.src, given.dst))
    failed = [topology.link(text) for text in given.fail]
    found = find(given.routing, topology, src, dst, failed)
    if not found:
        ends = f"from {topology.naming.name(src)} to {topology.naming.name(dst)}"
        dead = (
            f" with {', '.join(topology.link_name(link) for link in failed)} failed"
            if failed
            else ""
        )
        reason = f"{given.routing} finds no path {ends}{dead}"
        print(json.dumps({"path": None, "hops": None, "reason": reason}) if given.json else reason)
        return 1
    rows: list[dict[str, Any]] = [
        {
            "path": [topology.naming.name(node) for node in path.nodes],
            "hops": len(path.nodes) - 1,
            "share": path.share,
        }
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
