"""Commands on networks over several machines: where the nodes of a network would be."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from itertools import combinations
from typing import TYPE_CHECKING, Any

from weft.experiments.cli.options import Commands, add_command, add_json, add_network

if TYPE_CHECKING:
    from weft.testbed.cluster.machines import Cluster
    from weft.testbed.labs.lab_file import Lab

MACHINES_HELP = "number of machines, or a file of machines (docs/machines.md)"


def add_commands(commands: Commands) -> None:
    """Add this file's commands to the parser."""
    text = "print where the nodes of a network would be on several machines; create nothing"
    parser = add_command(commands, "place", place, text)
    add_network(parser)
    parser.add_argument("--machines", required=True, metavar="N|FILE", help=MACHINES_HELP)
    add_json(parser)


def place(arguments: argparse.Namespace) -> int:
    """Print load and links of each machine, and the bandwidth that each pair needs."""
    from weft.experiments.cli import lab_commands
    from weft.experiments.runner.console import show
    from weft.testbed.cluster.machines import cluster

    lab = lab_commands.lab_from(arguments)
    machines = cluster(arguments.machines)
    summary = described(lab, machines, placed(lab, machines))
    if arguments.json:
        print(json.dumps(summary))
        return 0
    show(summary["machines"], list(summary["machines"][0]))
    if summary["pairs"]:
        show(summary["pairs"], list(summary["pairs"][0]))
    links, cut = len(lab.topology.links), summary["cut_links"]
    print(f"{cut} of {links} links are cut ({100 * cut / links:.0f} %)")
    return 0


def placed(lab: Lab, cluster: Cluster) -> list[int]:
    """Return the machine of each node of `lab`, by its position in the cluster.

    Raises:
        ValueError: the lab names an unknown machine, or there are too many machines.
    """
    from weft.testbed.cluster import placement
    from weft.topologies.core.grammar import unknown

    names = [machine.name for machine in cluster.machines]
    for name in lab.machines.values():
        if name not in names:
            raise ValueError(unknown("machine", name, names))
    pinned = {node: names.index(name) for node, name in lab.machines.items()}
    kept = {
        link
        for link in range(len(lab.topology.links))
        if (spec := lab.own_links.get(link, lab.link)) and spec.delay_us < cluster.delay_us
    }
    return placement.place(lab.topology, cluster.shares(), pinned, kept)


def described(lab: Lab, cluster: Cluster, machine_of: list[int]) -> dict[str, Any]:
    """Return the rows of machines and of pairs of machines, and the number of cut links."""
    from weft.testbed.cluster.placement import cut_links

    topology = lab.topology
    ends = topology.links[:, [0, 2]].tolist()
    loads = Counter(machine_of[node] for pair in ends for node in pair)
    nodes = Counter(machine_of)
    servers = Counter(machine_of[: topology.servers])
    cut = cut_links(topology, machine_of)
    cut_of = Counter(machine_of[node] for link in cut for node in ends[link])
    machines = [
        {
            "machine": machine.name,
            "nodes": nodes[number],
            "servers": servers[number],
            "local_links": (loads[number] - cut_of[number]) // 2,
            "cut_links": cut_of[number],
            "load_percent": round(100 * loads[number] / (2 * len(ends)), 1),
        }
        for number, machine in enumerate(cluster.machines)
    ]
    pairs = _pairs(lab, cluster, machine_of, cut)
    return {"machines": machines, "pairs": pairs, "cut_links": len(cut)}


def _pairs(
    lab: Lab, cluster: Cluster, machine_of: list[int], cut: list[int]
) -> list[dict[str, Any]]:
    """Return cut links and bandwidth of each pair of machines.

    The bandwidth is that of its cut links in one direction; None if a link has no rate.
    """
    links: dict[tuple[int, ...], list[int]] = {}
    for link in cut:
        a, _, b, _ = lab.topology.links[link].tolist()
        links.setdefault(tuple(sorted((machine_of[a], machine_of[b]))), []).append(link)
    return [
        {
            "pair": f"{cluster.machines[a].name}-{cluster.machines[b].name}",
            "cut_links": len(links.get((a, b), [])),
            "bandwidth_mbps": _bandwidth_mbps(lab, links.get((a, b), [])),
        }
        for a, b in combinations(range(len(cluster.machines)), 2)
    ]


def _bandwidth_mbps(lab: Lab, links: list[int]) -> float | None:
    """Return the sum of the rates of `links`; None if one has none."""
    level = lab.topology.level
    specs = [
        lab.own_links.get(link, lab.host_link if level[link] == 0 and lab.host_link else lab.link)
        for link in links
    ]
    rates = [spec.rate_bps for spec in specs if spec]
    return sum(rates) / 1e6 if len(rates) == len(specs) else None
