"""One plan, split: the part of a network that each of several machines holds.

A part has nodes of its own, the links between them, and one end of each cut link, whose other end
another machine has.  All parts together are the undivided plan; each cut link occurs in two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from weft.topologies.core.topology import Topology


@dataclass(frozen=True)
class PlanPart:
    """The part of one machine.

    machine: its name.
    address: its IPv4 address in the underlay.
    port: the UDP port of the run's cut links, on every machine.
    nodes: in order.
    links: both of whose ends are here.
    peers: the IPv4 address of every other machine with which this one has cut links, by name.
    cut: the machine of the far end of each cut link, by link.
    underlay_us: measured one-way delay to peers, by name; cut links are made so much shorter.
    """

    machine: str
    address: str
    port: int
    nodes: tuple[int, ...]
    links: tuple[int, ...]
    peers: Mapping[str, str]
    cut: Mapping[int, str]
    underlay_us: Mapping[str, int] = field(default_factory=dict)


def part_from(document: Mapping[str, Any]) -> PlanPart:
    """Return the part that dataclasses.asdict() wrote, also after JSON."""
    return PlanPart(
        **{
            **document,
            "nodes": tuple(document["nodes"]),
            "links": tuple(document["links"]),
            "cut": {int(link): machine for link, machine in document["cut"].items()},
        }
    )


def split(
    topology: Topology, machine_of: Sequence[int], addresses: Mapping[str, str], port: int
) -> list[PlanPart]:
    """Return the part of each machine, in the order of `addresses`.

    Args:
        topology: the network.
        machine_of: number of the machine of each node.
        addresses: in the underlay, by name of the machine.
        port: UDP port of the cut links.
    """
    names = list(addresses)
    links: list[list[int]] = [[] for _ in names]
    cut: list[dict[int, str]] = [{} for _ in names]
    for link, (a, _, b, _) in enumerate(topology.links.tolist()):
        near, far = machine_of[a], machine_of[b]
        if near == far:
            links[near].append(link)
        else:
            cut[near][link] = names[far]
            cut[far][link] = names[near]
    return [
        PlanPart(
            machine=name,
            address=addresses[name],
            port=port,
            nodes=tuple(node for node, machine in enumerate(machine_of) if machine == number),
            links=tuple(links[number]),
            peers={peer: addresses[peer] for peer in sorted(set(cut[number].values()))},
            cut=cut[number],
        )
        for number, name in enumerate(names)
    ]
