"""PolarFly: the polarity graphs of Erdos, Renyi and Brown (Lakhotia et al., SC 2022).

Routers are the points of the projective plane over GF(q), q a prime power: vectors of three
elements of which the first that is not 0 is 1.  Two are joined if the product u . v is 0.  So there
are q^2 + q + 1 routers and q (q + 1)^2 / 2 links.  Two routers without a link have one common
neighbour.  A router has q + 1 neighbours, or q if it is a quadric, one with u . u = 0; there are q
+ 1 of these.

Racks are those of Lakhotia et al.: the quadrics, and a rack for each neighbour of the first
quadric, which is the centre: itself and its neighbours that are not quadrics.  Routers are numbered
by racks, quadrics first, centres before their neighbours.  Links within a rack have level 1
(local), others level 2 (global).  Each router has p hosts, half of its q + 1 links unless it is
given.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from weft.topologies.core.family import Family, IntegerParameter
from weft.topologies.core.topology import Topology
from weft.topologies.low_diameter.finite_field import FiniteField, field, prime_power
from weft.topologies.low_diameter.routers import require_routers, wired

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def build(parameters: Mapping[str, int]) -> Topology:
    """Return the PolarFly of q."""
    q, hosts = parameters["q"], parameters["p"]
    if not prime_power(q):
        raise ValueError(f"polarfly: q must be a prime power, such as 4, 5, 7, 8 or 9, got {q}")
    routers = q * q + q + 1
    require_routers("polarfly", routers, hosts, q * (q + 1) ** 2 // 2)
    return wired(
        "polarfly",
        {"q": q, "p": hosts},
        routers=routers,
        hosts=hosts,
        levels=links(neighbours(field(q))),
        roles=("host", "local", "global"),
    )


def links(joined: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Return the links within racks and those between racks, each of shape (links, 2), as routers.

    joined: see neighbours().
    """
    import numpy as np

    rack = racks(joined)
    number = np.empty(len(joined), dtype=np.int64)
    number[np.lexsort((rack[:, 1], rack[:, 0]))] = np.arange(len(joined))
    near, far = np.repeat(np.arange(len(joined)), joined.shape[1]), joined.ravel()
    once = near < far
    near, far = near[once], far[once]
    inside = rack[near, 0] == rack[far, 0]
    ends = np.stack([number[near], number[far]], axis=1)
    return [ends[inside], ends[~inside]]


def neighbours(galois: FiniteField) -> NDArray[np.int64]:
    """Return the q + 1 points v with u . v = 0 of each point u, shape (q^2 + q + 1, q + 1).

    A quadric is among its own.  Point (1, y, z) has number y q + z, (0, 1, z) has q^2 + z, and (0,
    0, 1) is the last.
    """
    import numpy as np

    q, plus, times = galois.q, galois.plus(), galois.times()
    # over[c, b] is the a with a c = -b, for c other than 0
    over = np.array([times[np.argmax(times[c] == 1), np.argmin(plus, axis=1)] for c in range(q)])
    every = np.arange(q)
    rows = []
    for a, b, c in points(q):
        if c:  # z follows from x and y
            row = [every * q + over[c, plus[a, times[b]]], [q * q + over[c, b]]]
        elif b:  # y follows from x, and z is free
            row = [over[b, a] * q + every, [q * q + q]]
        else:  # x is 0
            row = [q * q + every, [q * q + q]]
        rows.append(np.concatenate(row))
    return np.stack(rows)


def points(q: int) -> list[tuple[int, int, int]]:
    """Return the points in the order of their numbers."""
    return [
        *((1, y, z) for y in range(q) for z in range(q)),
        *((0, 1, z) for z in range(q)),
        (0, 0, 1),
    ]


def racks(joined: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the rack of each point, and its rank among those of the rack, shape (points, 2).

    joined: see neighbours().
    """
    import numpy as np

    numbers = np.arange(len(joined))
    quadric = (joined == numbers[:, None]).any(axis=1)
    first = np.flatnonzero(quadric)[0]
    rack = np.zeros((len(joined), 2), dtype=np.int64)
    for number, centre in enumerate(joined[first][joined[first] != first], start=1):
        others = joined[centre][~quadric[joined[centre]]]
        rack[others] = np.stack([others * 0 + number, others + 1], axis=1)
        rack[centre] = number, 0
    rack[quadric] = np.stack([numbers[quadric] * 0, numbers[quadric]], axis=1)
    return rack


FAMILIES = {
    "polarfly": Family(
        name="polarfly",
        summary="the polarity graph over GF(q), diameter 2: q^2 + q + 1 routers",
        source="Lakhotia et al., SC 2022",
        example="polarfly:q=7,p=4",
        parameters={
            "q": IntegerParameter("a prime power", 2, 255),
            "p": IntegerParameter("hosts of a router, half its links by default", 1, optional=True),
        },
        build=build,
        derived=lambda values: {"p": (values["q"] + 2) // 2},
    ),
}
