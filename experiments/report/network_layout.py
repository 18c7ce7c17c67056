"""Where the nodes of a network stand in a drawing, as complex numbers: x + iy, neighbouring servers
about 1 apart.

A recursively defined network is drawn recursively: the copies that make an X(h) stand on a circle,
each turned so that its links to the others are short.  A switch fabric stands in tiers,
low-diameter networks as router_layout.py has it, any other network on one circle.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from weft.experiments.report import router_layout
from weft.experiments.report.router_layout import circle
from weft.topologies.core.topology import Topology
from weft.topologies.recursive.ccrdn import Ccrdn, CcrdnNaming

GAP = 1.12  # between neighbouring copies on a circle, as a multiple of their size
SPLIT = 1.8  # between the hosts of one switch and those of the next
TURNS = 4  # rounds of turning copies towards each other; further ones change nothing that is seen


@dataclass(frozen=True, kw_only=True)
class Disc:
    """A sub-network that is drawn as a disc: its level, its place, and its servers, or routers,
    first .. last."""

    level: int
    first: int
    last: int
    centre: complex
    radius: float


@dataclass(frozen=True, kw_only=True)
class DrawingLayout:
    """at: place of each node.  groups: discs, outer ones first.  towards: what the middle of each
    link is drawn to.

    hosts: whether hosts are drawn; where they are not, each stands where its router does.
    """

    at: NDArray[np.complex128]
    towards: NDArray[np.complex128]
    groups: tuple[Disc, ...] = field(default=())
    hosts: bool = True


def layout(topology: Topology) -> DrawingLayout:
    """A place for every node of `topology`."""
    if isinstance(topology.naming, CcrdnNaming):
        return recursive(topology, topology.naming.network)
    if topology.family in router_layout.FAMILIES:
        at, towards = router_layout.place(topology)
        return DrawingLayout(at=at, towards=towards, groups=grouped(topology, at), hosts=False)
    tiers = tiers_of(topology)
    at = in_tiers(topology, tiers) if tiers is not None else on_circle(topology)
    return DrawingLayout(at=at, towards=(at[topology.links[:, 0]] + at[topology.links[:, 2]]) / 2)


def grouped(topology: Topology, at: NDArray[np.complex128]) -> tuple[Disc, ...]:
    """A disc for each group of routers that local links hold together."""
    groups = router_layout.groups(topology)
    size = topology.switches // max(groups, 1)
    routers = at[topology.servers :].reshape(groups, size) if groups else at[:0].reshape(0, 1)
    return tuple(
        Disc(
            level=1,
            first=number * size,
            last=number * size + size - 1,
            centre=complex(places.mean()),
            radius=float(abs(places - places.mean()).max()) + 0.55,
        )
        for number, places in enumerate(routers)
    )


def recursive(topology: Topology, network: Ccrdn) -> DrawingLayout:
    """Circles of circles, the servers of an X(0) around its crossbar."""
    at, reach = upright(network)
    links = topology.links[topology.level > 0][:, [0, 2]]
    level = topology.level[topology.level > 0]
    for _ in range(TURNS):
        for h in range(network.k, 0, -1):
            turn_copies(network, at, links[level == h], h)
    groups = tuple(
        Disc(
            level=h,
            first=first,
            last=first + size - 1,
            centre=complex(at[first : first + size].mean()),
            radius=reach[h],
        )
        for h, size in reversed(list(enumerate(network.t)))
        for first in range(0, network.t[-1], size)
    )
    crossbars = at.reshape(-1, network.n).mean(axis=1)
    towards = np.empty(len(topology.links), dtype=np.complex128)
    for h, size in enumerate(network.t):
        centres = at.reshape(-1, size).mean(axis=1)
        towards[topology.level == h] = centres[topology.links[topology.level == h, 0] // size]
    return DrawingLayout(at=np.concatenate([at, crossbars]), towards=towards, groups=groups)


def upright(network: Ccrdn) -> tuple[NDArray[np.complex128], list[float]]:
    """Places of the servers with no copy turned, and the radius of the disc that holds an X(h), for
    each h."""
    radius = max(1.0, GAP / (2 * np.sin(np.pi / network.n)))
    reach = [radius + 0.6]
    at = radius * circle(network.n)
    for copies in network.copies[1:]:
        radius = GAP * reach[-1] / np.sin(np.pi / copies)
        at = (radius * circle(copies)[:, None] + at).ravel()
        reach.append(radius + reach[-1] + 0.25)
    return at, reach


def turn_copies(
    network: Ccrdn, at: NDArray[np.complex128], links: NDArray[np.int64], level: int
) -> None:
    """Turn each X(level-1), in place, so that the ends of its level-`level` links face the other
    ends."""
    size = network.t[level - 1]
    ends = np.concatenate([links, links[:, ::-1]])
    ends = ends[np.argsort(ends[:, 0] // size, kind="stable")]
    bounds = np.searchsorted(ends[:, 0] // size, np.arange(network.t[-1] // size + 1))
    for copy, (begin, end) in enumerate(pairwise(bounds)):
        mine = at[copy * size : (copy + 1) * size]
        centre = mine.mean()
        own, far = at[ends[begin:end, 0]] - centre, at[ends[begin:end, 1]] - centre
        direction = (own.conj() * far / np.maximum(abs(far), 1e-9)).sum()
        if abs(direction) > 1e-9:
            mine[:] = centre + (mine - centre) * direction / abs(direction)


def tiers_of(topology: Topology) -> NDArray[np.int64] | None:
    """The tier of each node, hosts 0, each link joining tiers one apart; None if the network has no
    such tiers."""
    tier = np.full(topology.nodes, -1)
    tier[: topology.servers] = 0
    a, b = topology.links[:, 0], topology.links[:, 2]
    for level in range(int(topology.level.max()) + 1):
        for near, far in ((a, b), (b, a)):
            up = (topology.level == level) & (tier[near] == level) & (tier[far] < 0)
            tier[far[up]] = level + 1
    apart = abs(tier[a] - tier[b])
    return tier if (tier >= 0).all() and (apart == 1).all() else None


def in_tiers(topology: Topology, tier: NDArray[np.int64]) -> NDArray[np.complex128]:
    """Hosts in a row by their switch, a switch of the first tier above the middle of its hosts, and
    so on up."""
    at = np.zeros(topology.nodes, dtype=np.complex128)
    edge_of = {host: topology.ports(host)[0][1] for host in range(topology.servers)}
    x, last = 0.0, -1
    for host in sorted(edge_of, key=lambda host: (edge_of[host], host)):
        x += 1.0 if edge_of[host] == last else SPLIT
        at[host], last = x, edge_of[host]
    height = max(2.5, x / 8)
    below = np.zeros(0)
    for number in range(1, int(tier.max()) + 1):
        nodes = np.flatnonzero(tier == number)
        if number == 1:
            places = np.array(
                [
                    np.mean([at[h].real for h, edge in edge_of.items() if edge == node])
                    for node in nodes
                ]
            )
        elif len(nodes) == len(below):
            places = below
        else:
            places = SPLIT / 2 + x * (np.arange(len(nodes)) + 0.5) / len(nodes)
        at[nodes] = places + 1j * height * (number - 0.4)
        below = places
    return at


def on_circle(topology: Topology) -> NDArray[np.complex128]:
    """Switches on one circle, each with its hosts outside it."""
    at = np.zeros(topology.nodes, dtype=np.complex128)
    hosts = np.bincount(
        topology.links[topology.level == 0, 2] - topology.servers, minlength=topology.switches
    )
    width = max(2.0, float(hosts.max()) + SPLIT - 1)
    radius = max(2.0, width / (2 * np.sin(np.pi / max(topology.switches, 2))))
    outward = circle(topology.switches)
    at[topology.servers :] = radius * outward
    placed = np.zeros(topology.switches, dtype=np.int64)
    for host, _, switch, _ in topology.links[topology.level == 0]:
        number = int(switch) - topology.servers
        aside = placed[number] - (hosts[number] - 1) / 2
        at[host] = outward[number] * (radius + 2.5 - 1j * aside)
        placed[number] += 1
    return at
