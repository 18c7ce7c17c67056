"""Slim Fly: the diameter-2 graphs of McKay, Miller and Siran.

The source is Besta and Hoefler, SC 2014, section II-B.

Over GF(q), q = 4w + delta a prime power and delta -1, 0 or 1, there are routers (0, x, y) and (1,
m, c):

    (0, x, y) - (0, x, y')  if y - y' lies in X
    (1, m, c) - (1, m, c')  if c - c' lies in X'
    (0, x, y) - (1, m, c)   if y = m x + c

With a primitive element xi, X holds its even powers and X' its odd ones if delta is 0 or 1.  If
delta is -1, X holds the even powers 0 .. 2w - 2 and the odd ones 2w - 1 .. 4w - 3, X' the odd ones
1 .. 2w - 1 and the even ones 2w .. 4w - 2.  So there are 2 q^2 routers, each joined to k' = (3q -
delta) / 2 others.

Router (s, x, y) is number (s q + x) q + y.  Columns x of both halves are a group, which fills a
rack: links within a column have level 1, those between the columns of a group level 2, those
between groups level 3; only the last are global.  Each router has p hosts, ceil(k'/2) unless it is
given (FatPaths, appendix A-A; table IV has one less at
q = 19).
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


ROLES = ("host", "local", "local", "global")


def build(parameters: Mapping[str, int]) -> Topology:
    """Return the Slim Fly of q."""
    q = parameters["q"]
    if q % 4 == 2 or not prime_power(q):
        raise ValueError(
            f"slimfly: q must be a prime power other than 2, such as 5, 7, 8 or 9, got {q}"
        )
    degree = network_radix(q)
    hosts = parameters["p"]
    require_routers("slimfly", 2 * q * q, hosts, q * q * degree)
    return wired(
        "slimfly",
        {"q": q, "p": hosts},
        routers=2 * q * q,
        hosts=hosts,
        levels=links(field(q)),
        roles=ROLES,
    )


def links(galois: FiniteField) -> list[NDArray[np.int64]]:
    """Return the links within columns, between the columns of a group, and between groups."""
    import numpy as np

    q, plus, times = galois.q, galois.plus(), galois.times()
    x, y, d = np.meshgrid(np.arange(q), np.arange(q), np.arange(q), indexing="ij")
    columns = []
    for half, differences in enumerate(generators(galois)):
        joined = np.isin(d, differences)
        near, far = (half * q + x) * q + y, (half * q + x) * q + plus[y, d]
        columns.append(np.stack([near, far], axis=-1)[joined & (near < far)])
    m, c = y, d
    across = np.stack([x * q + plus[times[m, x], c], (q + m) * q + c], axis=-1)
    return [np.concatenate(columns), across[m == x], across[m != x]]


def network_radix(q: int) -> int:
    """Return k', the number of routers that each router is joined to."""
    delta = (q + 1) % 4 - 1
    return (3 * q - delta) // 2


def generators(galois: FiniteField) -> tuple[list[int], list[int]]:
    """Return X and X' of this field."""
    q, powers = galois.q, galois.powers
    if q % 4 == 3:
        w = (q + 1) // 4
        first = [*range(0, 2 * w - 1, 2), *range(2 * w - 1, 4 * w - 2, 2)]
        second = [*range(1, 2 * w, 2), *range(2 * w, 4 * w - 1, 2)]
    else:
        first, second = [*range(0, q - 1, 2)], [*range(1, q, 2)]
    return [powers[i % (q - 1)] for i in first], [powers[i % (q - 1)] for i in second]


FAMILIES = {
    "slimfly": Family(
        name="slimfly",
        summary="the diameter-2 graph of McKay, Miller and Siran over GF(q): 2 q^2 routers",
        source="Besta and Hoefler, SC 2014; FatPaths, appendix A-A",
        example="slimfly:q=5,p=4",
        parameters={
            "q": IntegerParameter("a prime power other than 2", 3, 256),
            "p": IntegerParameter("hosts of a router, half its links by default", 1, optional=True),
        },
        build=build,
        derived=lambda values: {"p": -(-network_radix(values["q"]) // 2)},
    ),
}
