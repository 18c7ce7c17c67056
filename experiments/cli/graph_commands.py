"""Commands that need only a graph: list, topo, route."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from weft.daemons.core import registry
from weft.experiments.cli.options import Commands, add_command, add_flag, add_json, some
from weft.experiments.runner.console import show, stages
from weft.experiments.runner.definition import Row, failures, questions, room_on
from weft.topologies import build
from weft.topologies.core.address import dotted
from weft.topologies.core.family import IntegerParameter
from weft.topologies.core.grammar import unknown
from weft.topologies.core.topology import limited

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from weft.topologies.core.topology import Topology


TOPOLOGY_HELP = "family:key=value,... such as dcell:n=4,k=1, or file:PATH, a graph file"
NAME_WIDTH = 22  # of `weft list`, in characters
UNLIMITED_WIDTH = 1 << 16
FACT_WIDTH = 18
GRAPH_FILE = {
    "name": "file:PATH",
    "summary": "a graph file: GraphML, JSON (node-link) or a list of edges "
    "(docs/tutorials/own_topology.md)",
}
PLANES = {
    "name": "planes:k=K,of=SPEC",
    "summary": "K copies of a switch fabric, to each of which every host has a link",
}
SECTIONS = {  # of `weft list`: what has more about an entry, and the kinds of the catalogue
    "experiments": ("weft describe NAME has more", ("experiments",)),
    "networks": ("weft list NAME has parameters", ("topologies",)),
    "schemes": ("weft list NAME has parameters", ("routing", "data_plane")),
    "transports": ("weft list NAME has parameters", ("transports",)),
    "patterns": ("weft simulate ... --traffic PATTERN", ("patterns",)),
    "links": ("weft up ... --OPTION VALUE", ("links",)),
}
NAMED = ("patterns", "transports", "networks", "schemes")  # with parameters, as a rule


def add_commands(commands: Commands) -> None:
    """Add list, topo and route."""
    parser = add_command(
        commands, "list", list_all, "list experiments, networks, schemes, transports and patterns"
    )
    parser.add_argument(
        "what",
        nargs="?",
        metavar="WHAT",
        help=f"{', '.join(SECTIONS)}; or one name, for its parameters",
    )
    add_json(parser)

    parser = add_command(commands, "topo", topo, "describe a network, and draw it")
    parser.add_argument("topology", metavar="TOPOLOGY", help=TOPOLOGY_HELP)
    add_json(parser)
    add_flag(parser, "--nodes", help="print name, label and address of each node")
    parser.add_argument(
        "--plot", metavar="FILE", type=some, help="draw the network: .png, .pdf or .svg"
    )

    parser = add_command(
        commands, "route", route, "print the paths of a routing scheme, with links failed or not"
    )
    parser.add_argument("topology", metavar="TOPOLOGY", help=TOPOLOGY_HELP)
    parser.add_argument(
        "--routing",
        metavar="SCHEME",
        required=True,
        help="scheme such as dr or dfr:b=0; `weft list schemes` lists them",
    )
    parser.add_argument("src", metavar="SRC", help="server, by name (h3) or label (s1.0.3)")
    parser.add_argument("dst", metavar="DST", help="another server")
    parser.add_argument(
        "--fail", metavar="LINK", action="append", default=[], help="fail this link, such as h0-h4"
    )
    add_json(parser)


def list_all(arguments: Namespace) -> int:
    """Print one line for each named thing, the parameters of one, or everything as JSON."""
    from weft.experiments.cli.catalogue import catalogue

    if arguments.json:
        print(json.dumps(catalogue(), indent=1))
        return 0
    if arguments.what is None or arguments.what in SECTIONS:
        for title in SECTIONS if arguments.what is None else [arguments.what]:
            print_section(title, SECTIONS[title][0], section_entries(title))
        return 0
    entries = [entry for title in NAMED for entry in section_entries(title)]
    named = {name_of(entry["name"]): entry for entry in entries}
    if (name := name_of(arguments.what)) not in named:
        raise ValueError(unknown("kind or name", name, [*SECTIONS, *named]))
    print_one(named[name])
    return 0


def name_of(spec: str) -> str:
    """Return the name alone of a spec, such as planes:k=4,of=star:n=3."""
    return spec.partition(":")[0]


def section_entries(title: str) -> list[dict[str, Any]]:
    """Return the entries of a section of `weft list`."""
    from weft.experiments.cli.catalogue import catalogue, say_left_out

    if title == "experiments":
        say_left_out(failures())
        return [{"name": name, "question": text} for name, text in questions().items()]
    _, kinds = SECTIONS[title]
    entries = [entry for part in catalogue(*kinds).values() for entry in part]
    return [*entries, PLANES, GRAPH_FILE] if title == "networks" else entries


def print_section(title: str, hint: str, entries: list[dict[str, Any]]) -> None:
    """Print a line for each of `entries`, cut to the width of a terminal."""
    from shutil import get_terminal_size
    from textwrap import shorten

    width = get_terminal_size().columns if sys.stdout.isatty() else UNLIMITED_WIDTH
    print(f"{title} ({hint})")
    for entry in entries:
        text = entry.get("summary") or entry.get("question") or entry["meaning"]
        short = shorten(text, width - NAME_WIDTH - 3, placeholder=" ...")
        print(f"  {entry['name']:<{NAME_WIDTH}} {short}")


def print_one(entry: dict[str, Any]) -> None:
    """Print an entry of `weft list`, with a line for each parameter."""
    print(f"{entry.get('example', entry['name'])}: {entry['summary']}")
    if "source" in entry:
        print(f"source: {entry['source']}")
    for key, parameter in entry.get("parameters", {}).items():
        span = f"{parameter['least']} to {parameter['most']}"
        if parameter["most"] == IntegerParameter.most:
            span = f"at least {parameter['least']}"
        values = " or ".join(parameter["words"]) or span
        default = "" if parameter["default"] is None else f", {parameter['default']} by default"
        optional = ", may be left out" if parameter["optional"] else ""
        print(f"  {key}: {parameter['meaning']}, {values}{default}{optional}")


def topo(arguments: Namespace) -> int:
    """Describe a network, and draw it with --plot."""
    topology = graph(arguments.topology)
    topology.check()
    facts = describe(topology)
    if arguments.plot:
        plot(topology, arguments.plot)
    if arguments.json:
        if arguments.nodes:
            facts["nodes"] = nodes(topology)
        print(json.dumps(facts, indent=1))
        return 0
    for name, value in facts.items():
        if isinstance(value, dict):
            value = ", ".join(f"{key}: {count}" for key, count in value.items())
        if value is not None:
            print(f"{name:<{FACT_WIDTH}} {value}")
    if arguments.nodes:
        print()
        show(nodes(topology), ["name", "label", "address"])
    return 0


def graph(spec: str) -> Topology:
    """Return the network `spec`; ValueError if memory does not suffice for it."""
    with limited(room_on("graph")):
        return build(spec)


def plot(topology: Topology, path: str) -> None:
    """Draw `topology` into the file `path`."""
    from weft.experiments.report.figures import new, save
    from weft.experiments.report.network_drawing import draw

    with stages("drawing", f"draw {topology.spec}"), new() as figure:
        draw(topology, figure)
        save(figure, path)


def route(arguments: Namespace) -> int:
    """Print the paths from one server to another; return 1 if there is none."""
    from weft.experiments.engines.routes import find

    topology = graph(arguments.topology)
    src = topology.naming.node(arguments.src)
    dst = topology.naming.node(arguments.dst)
    failed = [topology.link(text) for text in arguments.fail]
    rows: list[dict[str, Any]] = []
    with stages("route", f"route {topology.spec} {arguments.routing}"):
        paths = find(arguments.routing, topology, src, dst, failed)
    for path in paths:
        names = [topology.naming.name(node) for node in path.nodes]
        row: dict[str, Any] = {"path": names, "hops": len(names) - 1, "share": path.share}
        rows.append(row if path.layer is None else row | {"layer": path.layer})
    if rows:
        _print_paths(rows, arguments)
        return 0
    reason = f"{arguments.routing} finds no path {_ends(topology, src, dst, failed)}"
    answer = {"path": None, "hops": None, "reason": reason}
    print(json.dumps(answer) if arguments.json else reason)
    return 1


def _print_paths(rows: list[dict[str, Any]], arguments: Namespace) -> None:

    has_shares = len(rows) > 1 or registry.scheme(arguments.routing)[0].selection is not None
    if arguments.json:
        first = {key: rows[0][key] for key in ("path", "hops")}
        count = {"paths": len(rows)} if has_shares else {}
        print(json.dumps(first | count | {"choices": rows}))
        return
    for row in rows:
        share = f", {100 * row['share']:.4g} % of packets" if has_shares else ""
        layer = f", layer {row['layer']}" if "layer" in row else ""
        print(f"{' '.join(row['path'])}  ({row['hops']} hops{layer}{share})")


def _ends(topology: Topology, src: int, dst: int, failed: Sequence[int]) -> str:
    text = f"from {topology.naming.name(src)} to {topology.naming.name(dst)}"
    if not failed:
        return text
    return f"{text} with {', '.join(map(topology.link_name, failed))} failed"


MOST_NODES = 1500  # beyond, the diameter is not worth the seconds that it takes
MOST_SWITCHES = 2500  # the same of a switch fabric, whose hosts have one link to each plane


def describe(topology: Topology) -> dict[str, Any]:
    """Return name, sizes, degrees and diameter, JSON-able.

    server_degree, switch_degree: number of nodes by number of ports.
    links_of_level, links_of_role: number of links of each level and role.
    link_rates_bps: number of links by rate, 0 for an unknown one; only if a user's graph has rates.
    diameter_hops: length of the longest shortest path between servers: moves from server to server
        in a server-centric network, links in a switch fabric; None for large networks.
    """
    import numpy as np

    degree = np.bincount(topology.links[:, [0, 2]].ravel(), minlength=topology.nodes)
    levels = np.bincount(topology.level)
    rates = (
        {"link_rates_bps": histogram(topology.rates_bps.tolist())}
        if len(topology.rates_bps)
        else {}
    )
    return {
        "name": topology.spec,
        "family": topology.family,
        "parameters": dict(topology.parameters),
        "servers": topology.servers,
        "switches": topology.switches,
        "links": len(topology.links),
        "server_centric": topology.server_centric,
        "links_of_level": {str(level): int(count) for level, count in enumerate(levels)},
        "links_of_role": roles(topology),
        "server_degree": histogram(degree[: topology.servers].tolist()),
        "switch_degree": histogram(degree[topology.servers :].tolist()),
        **rates,
        "diameter_hops": diameter_hops(topology) if is_small(topology) else None,
    }


def roles(topology: Topology) -> dict[str, int]:
    """Return the number of links of each role, see Topology."""
    import numpy as np

    counts = np.bincount(topology.level, minlength=len(topology.roles)).tolist()
    role_counts = dict.fromkeys(topology.roles, 0)
    for role, count in zip(topology.roles, counts, strict=True):
        role_counts[role] += count
    return role_counts


def histogram(values: list[int]) -> dict[str, int]:
    """Return the number of times that each value occurs, smallest value first."""
    return {str(value): count for value, count in sorted(Counter(values).items())}


def is_small(topology: Topology) -> bool:
    """Return True if the diameter takes little time."""
    return (
        topology.nodes <= MOST_NODES
        if topology.server_centric
        else topology.switches <= MOST_SWITCHES
    )


def diameter_hops(topology: Topology) -> int:
    """Return the length of the longest shortest path between servers, by matrix products."""
    import numpy as np

    servers, a, b = topology.servers, topology.links[:, 0], topology.links[:, 2]
    if topology.server_centric:  # two servers of a crossbar are one hop apart
        adjacent = np.zeros((topology.nodes, topology.nodes), dtype=np.float32)
        adjacent[a, b] = adjacent[b, a] = 1
        behind = adjacent[:servers, servers:]
        return longest(
            adjacent[:servers, :servers] + behind @ behind.T, np.arange(servers), topology.spec
        )
    of_host = a < servers  # each host has one link to a switch of each plane, all of them alike
    homes = b[of_host & (topology.links[:, 1] % topology.planes == 0)] - servers
    homes, count = np.unique(homes, return_counts=True)
    adjacent = np.zeros((topology.switches, topology.switches), dtype=np.float32)
    a, b = a[~of_host] - servers, b[~of_host] - servers
    adjacent[a, b] = adjacent[b, a] = 1
    hops = longest(adjacent, homes, topology.spec)
    return 2 + hops if hops or count.max() > 1 else 0


def longest(adjacent: NDArray[np.float32], among: NDArray[np.int64], spec: str) -> int:
    """Return the length of the longest shortest path between the nodes `among`.

    Args:
        adjacent: above 0 where a link joins two nodes, shape (nodes, nodes).
        among: numbers of nodes.
        spec: name of the network.

    Raises:
        ValueError: two of the nodes are not connected.
    """
    import numpy as np

    step = np.minimum(adjacent + np.eye(len(adjacent), dtype=np.float32), 1)
    reached = np.eye(len(adjacent), dtype=np.float32)[among]
    hops = 0
    while not reached[:, among].all():
        further = np.minimum(reached @ step, 1)
        if (further == reached).all():
            raise ValueError(f"{spec} is not connected")
        reached, hops = further, hops + 1
    return hops


def nodes(topology: Topology) -> list[Row]:
    """Return name, label and address of every node; a crossbar has no address."""
    naming = topology.naming
    return [
        {
            "name": naming.name(node),
            "label": naming.label(node),
            "address": None if topology.is_crossbar(node) else dotted(naming.address(node)),
        }
        for node in range(topology.nodes)
    ]
