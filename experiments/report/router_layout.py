"""Places of a low-diameter network's routers in a drawing, as complex numbers about 1 apart.

Hosts are left out: each router has the same number of them.

slimfly             columns are circles, of one half on a ring, of the other on a ring around it;
                    racks share an angle
dragonfly, xpander  groups or metanodes are circles on a ring
hyperx              a grid; further dimensions are copies of it, the third aside and aslant
jellyfish, polarfly one circle, of a polarfly rack by rack
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from weft.topologies.core.topology import Topology

Places = NDArray[np.complex128]

APART = 1.25  # between the circles of a ring, as a multiple of their diameters
ASIDE = 0.3  # how far a link along a row of a grid stands aside, as a fraction of its length
ASLANT = 0.95 + 0.7j  # from a router to the next in the third dimension


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


def groups(topology: Topology) -> int:
    """Return the number of groups of consecutive routers in the drawing."""
    centres = len(FAMILIES[topology.family](topology)[1])
    return centres if centres > 1 else 0


def place(topology: Topology) -> tuple[Places, Places]:
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
