"""Places of a network's nodes in a drawing, as complex numbers x + iy; servers are about 1 apart.

A recursively defined network is drawn recursively: the copies that make an X(h) stand on a circle,
each turned so that its links to the others are short.  Copies of a GQ* are not turned, so that all
links of a dimension are alike, and the servers of a switch stand in the order of their links.  A
switch fabric stands in tiers, any other network on one circle.  Hosts of a low-diameter network are
left out: each router has the same number of them.  Its routers:

slimfly             columns are circles, of one half on a ring, of the other on a ring around it;
                    racks share an angle
dragonfly, xpander  groups or metanodes are circles on a ring
hyperx              a grid; further dimensions are copies of it, the third aside and aslant
jellyfish, polarfly one circle, of a polarfly rack by rack
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from weft.experiments.engines.arrays import Floats, Ints
from weft.topologies.core.topology import Topology
from weft.topologies.recursive.ccrdn import Ccrdn, CcrdnNaming
from weft.topologies.recursive.hypercubes import BcubeNaming, GqstarNaming

GAP = 1.12  # between neighbouring copies on a circle, as a multiple of their size
SPLIT = 1.8  # between the hosts of one switch and those of the next
TURNS = 4  # rounds of turning copies towards each other; further rounds change nothing visible
APART = 1.25  # between the circles of a ring, as a multiple of their diameters
ASIDE = 0.3  # how far a link along a row of a grid stands aside, as a fraction of its length
ASLANT = 0.95 + 0.7j  # from a router to the next in the third dimension
Places = NDArray[np.complex128]


@dataclass(frozen=True, kw_only=True)
class Disc:
    """A sub-network drawn as a disc; first, last: its servers or routers."""

    level: int
    first: int
    last: int
    centre: complex
    radius: float


@dataclass(frozen=True, kw_only=True)
class DrawingLayout:
    """Places of all nodes.

    positions: place of each node.
    towards: point that attracts the middle of each link.
    groups: discs, outer ones first.
    hosts: hosts are drawn; if not, each has the place of its router.
    """

    positions: Places
    towards: Places
    groups: tuple[Disc, ...] = field(default=())
    hosts: bool = True


def layout(topology: Topology) -> DrawingLayout:
    """Return a place for every node of `topology`."""
    if isinstance(topology.naming, CcrdnNaming):
        return recursive(topology, topology.naming.network)
    if isinstance(topology.naming, GqstarNaming):
        return stellar(topology, topology.naming)
    if topology.family in FAMILIES:
        positions, towards = router_places(topology)
        return DrawingLayout(
            positions=positions, towards=towards, groups=grouped(topology, positions), hosts=False
        )
    tiers = tiers_of(topology)
    positions = in_tiers(topology, tiers) if tiers is not None else on_circle(topology)
    return DrawingLayout(
        positions=positions,
        towards=(positions[topology.links[:, 0]] + positions[topology.links[:, 2]]) / 2,
    )


def grouped(topology: Topology, positions: Places) -> tuple[Disc, ...]:
    """Return a disc for each group of routers that local links connect."""
    groups = group_count(topology)
    size = topology.switches // max(groups, 1)
    routers = (
        positions[topology.servers :].reshape(groups, size)
        if groups
        else positions[:0].reshape(0, 1)
    )
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
    """Return circles of circles, the servers of an X(0) around its crossbar."""
    positions, reach = upright(network)
    upper = topology.level > 0
    links, level = topology.links[upper][:, [0, 2]], topology.level[upper]
    for _ in range(TURNS):
        for h in range(network.k, 0, -1):
            turn_copies(network, positions, links[level == h], h)
    crossbars = positions.reshape(-1, network.n).mean(axis=1)
    groups = tuple(
        disc(positions, h, first, first + size, reach[h])
        for h, size in reversed(list(enumerate(network.t)))
        for first in range(0, network.t[-1], size)
    )
    towards = centres_of_links(topology, network, positions)
    return DrawingLayout(
        positions=np.concatenate([positions, crossbars]), towards=towards, groups=groups
    )


def centres_of_links(topology: Topology, network: Ccrdn, positions: Places) -> Places:
    """Return the centre of the X(h) of each level-h link."""
    towards = np.empty(len(topology.links), dtype=np.complex128)
    for h, size in enumerate(network.t):
        centres = positions.reshape(-1, size).mean(axis=1)
        towards[topology.level == h] = centres[topology.links[topology.level == h, 0] // size]
    return towards


def disc(positions: Places, level: int, first: int, end: int, radius: float) -> Disc:
    """Return the disc of the nodes first .. end - 1."""
    centre = complex(positions[first:end].mean())
    return Disc(level=level, first=first, last=end - 1, centre=centre, radius=radius)


def upright(network: Ccrdn) -> tuple[Places, list[float]]:
    """Return the places of the servers with no copy turned, and the radius of each X(h)."""
    radius = max(1.0, GAP / (2 * np.sin(np.pi / network.n)))
    reach = [radius + 0.6]
    positions = radius * circle(network.n)
    for copies in network.copies[1:]:
        radius = GAP * reach[-1] / np.sin(np.pi / copies)
        positions = (radius * circle(copies)[:, None] + positions).ravel()
        reach.append(radius + reach[-1] + 0.25)
    return positions, reach


def turn_copies(network: Ccrdn, positions: Places, links: Ints, level: int) -> None:
    """Turn each X(level-1), in place, so that its level-`level` links are short."""
    size = network.t[level - 1]
    ends = np.concatenate([links, links[:, ::-1]])
    ends = ends[np.argsort(ends[:, 0] // size, kind="stable")]
    bounds = np.searchsorted(ends[:, 0] // size, np.arange(network.t[-1] // size + 1))
    for copy, (begin, end) in enumerate(pairwise(bounds)):
        mine = positions[copy * size : (copy + 1) * size]
        centre = mine.mean()
        own, far = positions[ends[begin:end, 0]] - centre, positions[ends[begin:end, 1]] - centre
        direction = (own.conj() * far / np.maximum(abs(far), 1e-9)).sum()
        if abs(direction) > 1e-9:
            mine[:] = centre + (mine - centre) * direction / abs(direction)


def stellar(topology: Topology, naming: GqstarNaming) -> DrawingLayout:
    """Return circles of circles of switches, each with its servers around it."""
    switches, reach = unturned(naming)
    places = np.concatenate([around_switches(naming, switches, reach[0] - 0.6), switches])
    towards = (places[topology.links[:, 0]] + places[topology.links[:, 2]]) / 2
    for level in range(1, naming.k + 1):
        middles = middles_of_rows(naming, switches, level - 1)
        joins = topology.level == level
        towards[joins] = middles[topology.links[joins, 0] // naming.ports]
    return DrawingLayout(
        positions=places, towards=towards, groups=discs_of_copies(naming, switches, reach)
    )


def discs_of_copies(naming: GqstarNaming, switches: Places, reach: list[float]) -> tuple[Disc, ...]:
    """Return the discs of a GQ*; `switches` and `reach` are from unturned()."""
    discs = []
    for level in range(naming.k, -1, -1):
        servers = naming.n**level * naming.ports
        centres = switches.reshape(-1, naming.n**level).mean(axis=1)
        for first, centre in zip(range(0, naming.servers, servers), centres.tolist(), strict=True):
            last = first + servers - 1
            discs.append(
                Disc(level=level, first=first, last=last, centre=centre, radius=reach[level])
            )
    return tuple(discs)


def middles_of_rows(naming: GqstarNaming, switches: Places, dimension: int) -> Places:
    """Return for each switch the middle of those whose words differ in `dimension` alone."""
    rows = switches.reshape(-1, naming.n, naming.n**dimension)
    return np.broadcast_to(rows.mean(axis=1, keepdims=True), rows.shape).ravel()


def unturned(naming: GqstarNaming) -> tuple[Places, list[float]]:
    """Return the places of the switches of a GQ*, and the radius of a copy of each level."""
    n = naming.n
    span = np.pi / n if n > 2 else np.pi  # after which links between places of a circle recur
    switches, reach = circle(1), [max(1.0, GAP * spaced(naming.ports)) + 0.6]
    for dimension in range(naming.k):
        radius = GAP * reach[-1] * 2 * spaced(n)
        turn = np.exp(1j * span * dimension / naming.k)  # lest links pass behind other switches
        switches = (radius * turn * circle(n)[:, None] + switches).ravel()
        reach.append(radius + reach[-1] + 0.25)
    return switches, reach


def around_switches(naming: GqstarNaming, switches: Places, radius: float) -> Places:
    """Return the places of servers: evenly around their switch, in the order of their links."""
    servers = np.arange(naming.servers).reshape(naming.switches, -1)
    ahead: Places = switches[naming.partner(servers) // naming.ports] - switches[:, None]
    order = np.argsort(np.angle(ahead), axis=1)
    slots = np.exp(2j * np.pi * np.arange(naming.ports) / naming.ports)
    lean = (np.take_along_axis(ahead / abs(ahead), order, axis=1) / slots).sum(axis=1)
    turn = np.exp(1j * np.angle(lean))[:, None]
    positions = np.empty_like(ahead)
    np.put_along_axis(positions, order, switches[:, None] + radius * turn * slots, axis=1)
    return positions.ravel()


def tiers_of(topology: Topology) -> Ints | None:
    """Return the tier of each node, hosts being 0; None unless links join adjacent tiers."""
    tier = np.full(topology.nodes, -1)
    tier[: topology.servers] = 0
    if isinstance(topology.naming, BcubeNaming):  # every tier is joined to the servers
        tier[topology.servers :] = 1 + np.arange(topology.switches) // topology.naming.of_level
        return tier
    a, b = topology.links[:, 0], topology.links[:, 2]
    for level in range(int(topology.level.max()) + 1):
        for near, far in ((a, b), (b, a)):
            up = (topology.level == level) & (tier[near] == level) & (tier[far] < 0)
            tier[far[up]] = level + 1
    apart = abs(tier[a] - tier[b])
    return tier if (tier >= 0).all() and (apart == 1).all() else None


def in_tiers(topology: Topology, tier: Ints) -> Places:
    """Return hosts in a row by their switch, and the tiers of switches above them."""
    positions = np.zeros(topology.nodes, dtype=np.complex128)
    edge_of = {host: topology.edge(host) for host in range(topology.servers)}
    x = 0.0
    previous = -1
    for host in sorted(edge_of, key=lambda host: (edge_of[host], host)):
        x += 1.0 if edge_of[host] == previous else SPLIT
        positions[host] = x
        previous = edge_of[host]
    height = max(2.5, x / 8)
    below = np.zeros(0)
    for number in range(1, int(tier.max()) + 1):
        nodes = np.flatnonzero(tier == number)
        if number == 1:
            places = above_hosts(nodes, positions, edge_of)
        elif len(nodes) == len(below):
            places = below
        else:
            places = SPLIT / 2 + x * (np.arange(len(nodes)) + 0.5) / len(nodes)
        positions[nodes] = places + 1j * height * (number - 0.4)
        below = places
    return positions


def above_hosts(switches: Ints, positions: Places, edge_of: Mapping[int, int]) -> Floats:
    """Return the middle of each switch's hosts; those of several planes are beside each other."""
    hosts: dict[int, list[float]] = {}
    for host, switch in edge_of.items():
        hosts.setdefault(switch, []).append(positions[host].real)
    middles = np.array([np.mean(hosts[switch]) for switch in sorted(hosts)])
    planes = len(switches) // len(hosts)
    width = positions.real.max() / len(switches)
    aside = width * (np.arange(planes) - (planes - 1) / 2)
    places: Floats = np.add.outer(aside, middles).ravel()
    return places


def on_circle(topology: Topology) -> Places:
    """Return switches on one circle, each with its hosts outside it."""
    positions = np.zeros(topology.nodes, dtype=np.complex128)
    hosts = np.bincount(
        topology.links[topology.level == 0, 2] - topology.servers, minlength=topology.switches
    )
    width = max(2.0, float(hosts.max()) + SPLIT - 1)
    radius = max(2.0, width / (2 * np.sin(np.pi / max(topology.switches, 2))))
    outward = circle(topology.switches)
    positions[topology.servers :] = radius * outward
    placed = np.zeros(topology.switches, dtype=np.int64)
    for host, _, switch, _ in topology.host_links:
        number = int(switch) - topology.servers
        aside = placed[number] - (hosts[number] - 1) / 2
        positions[host] = outward[number] * (radius + 2.5 - 1j * aside)
        placed[number] += 1
    return positions


def circle(count: int) -> Places:
    """Return `count` places on the unit circle, clockwise from the top."""
    turns: Places = np.exp(1j * (np.pi / 2 - 2 * np.pi * np.arange(count) / count))
    return turns if count > 1 else turns * 0


def spaced(count: int) -> float:
    """Return the radius of a circle of `count` places 1 apart."""
    return 1 / (2 * np.sin(np.pi / count)) if count > 1 else 0.0


def clusters(groups: int, routers: int, least: float = 0.0) -> Places:
    """Return `groups` circles of `routers` each on a ring of radius `least` or more.

    Shape (groups, routers).  The first router of each circle is the outermost.
    """
    size = spaced(routers)
    radius = max(least, APART * (2 * size + 1) * spaced(groups))
    outward = circle(groups)[:, None]
    return radius * outward + size * circle(routers) * outward / 1j


def slimfly(topology: Topology) -> tuple[Places, Places]:
    """Return two rings, with a circle for each column."""
    q = topology.parameters["q"]
    inner = clusters(q, q)
    outer = clusters(q, q, least=abs(inner.mean(axis=1)[0]) + APART * (2 * spaced(q) + 1))
    return np.concatenate([outer.ravel(), inner.ravel()]), np.concatenate(
        [outer.mean(axis=1), inner.mean(axis=1)]
    )


def dragonfly(topology: Topology) -> tuple[Places, Places]:
    """Return a ring of groups."""
    p = topology.parameters["p"]
    a = topology.parameters.get("a", 2 * p)
    places = clusters(topology.switches // a, a)
    return places.ravel(), places.mean(axis=1)


def xpander(topology: Topology) -> tuple[Places, Places]:
    """Return a ring of metanodes."""
    places = clusters(topology.parameters["r"] + 1, topology.parameters["l"])
    return places.ravel(), places.mean(axis=1)


def jellyfish(topology: Topology) -> tuple[Places, Places]:
    """Return one circle."""
    places = spaced(topology.switches) * circle(topology.switches)
    return places, np.zeros(1, dtype=np.complex128)


def hyperx(topology: Topology) -> tuple[Places, Places]:
    """Return a grid; the third dimension goes aslant, further ones repeat the whole."""
    dimensions, s = topology.parameters["l"], topology.parameters["s"]
    number = np.arange(topology.switches)
    step = 2.4 if dimensions < 3 else max(2.4, ASLANT.real * s + 1.2)
    steps: list[complex] = [step, -1j * step, ASLANT]
    extent = step * s + ASLANT.real * s
    for dimension in range(3, dimensions):
        steps.append(extent if dimension % 2 else -1j * extent)
        extent *= 1 if dimension % 2 else s
    places = np.zeros(topology.switches, dtype=np.complex128)
    for dimension in range(dimensions):
        places += steps[dimension] * (number // s**dimension % s)
    return places, np.zeros(0, dtype=np.complex128)


FAMILIES: Mapping[str, Callable[[Topology], tuple[Places, Places]]] = {
    "slimfly": slimfly,
    "dragonfly": dragonfly,
    "xpander": xpander,
    "jellyfish": jellyfish,
    "polarfly": jellyfish,
    "hyperx": hyperx,
}


def group_count(topology: Topology) -> int:
    """Return the number of groups of consecutive routers in the drawing."""
    centres = len(FAMILIES[topology.family](topology)[1])
    return centres if centres > 1 else 0


def router_places(topology: Topology) -> tuple[Places, Places]:
    """Return the places of all nodes, and the point that attracts the middle of each link.

    Hosts have the places of their routers.  Links within a group lean to its centre, others to that
    of the network; links of a grid stand aside.
    """
    routers, centres = FAMILIES[topology.family](topology)
    home = topology.links[topology.level == 0, 2] - topology.servers
    places = np.concatenate([routers[home], routers])
    a, b = places[topology.links[:, 0]], places[topology.links[:, 2]]
    if not len(centres):
        return places, (a + b) / 2 + ASIDE * 1j * (b - a) * np.sign(
            (b - a).real + (b - a).imag + 1e-9
        )
    group = np.repeat(np.arange(len(centres)), len(routers) // len(centres))
    ends = group[np.maximum(topology.links[:, [0, 2]] - topology.servers, 0)]
    return places, np.where(ends[:, 0] == ends[:, 1], centres[ends[:, 0]], 0)
