"""Slim Fly and PolarFly: networks of diameter two from finite fields.

The finite field GF(q), q = p^n, by its tables of exponents and logarithms.

An element is an integer 0 .. q - 1 whose digits in base p are the coefficients of a polynomial, the
constant one last; arithmetic is modulo a primitive polynomial of degree n, the first that there is.
For n = 1 these are the integers modulo p.

Slim Fly: the diameter-2 graphs of McKay, Miller and Siran.

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

PolarFly: the polarity graphs of Erdos, Renyi and Brown (Lakhotia et al., SC 2022).

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
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

from weft.topologies.core.family import Family, IntegerParameter
from weft.topologies.core.topology import Topology
from weft.topologies.low_diameter.routers import require_routers, wired

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True)
class FiniteField:
    """GF(q), q = p^n; powers: the powers 0 .. q - 2 of a primitive element."""

    q: int
    p: int
    n: int
    powers: tuple[int, ...]

    def plus(self) -> NDArray[np.int64]:
        """Return the sum of any two elements, shape (q, q)."""
        import numpy as np

        digits = np.arange(self.q)[:, None] // self.p ** np.arange(self.n) % self.p
        sums = (digits[:, None] + digits) % self.p
        table: NDArray[np.int64] = sums @ self.p ** np.arange(self.n)
        return table

    def times(self) -> NDArray[np.int64]:
        """Return the product of any two elements, shape (q, q)."""
        import numpy as np

        powers, log = np.array(self.powers), np.zeros(self.q, dtype=np.int64)
        log[powers] = np.arange(self.q - 1)
        table: NDArray[np.int64] = powers[(log[:, None] + log) % (self.q - 1)]
        table[0] = 0
        table[:, 0] = 0
        return table


def prime_power(q: int) -> tuple[int, int] | None:
    """Return the prime p and the exponent n with q = p^n, or None."""
    p = next((p for p in range(2, int(q**0.5) + 1) if q % p == 0), q)
    n, rest = 0, q
    while rest > 1 and rest % p == 0:
        rest //= p
        n += 1
    return (p, n) if q > 1 and rest == 1 else None


def field(q: int) -> FiniteField:
    """Return GF(q); ValueError unless q is a prime power."""
    factors = prime_power(q)
    if not factors:
        raise ValueError(f"there is no field of {q} elements: {q} is not a power of a prime")
    p, n = factors
    # x^n - low, of which x is a primitive element if the order of x is q - 1
    for low in product(range(p), repeat=n):
        powers = _powers_of_x(low, p, q)
        if len(powers) == q - 1:
            return FiniteField(q, p, n, tuple(powers))
    raise AssertionError(f"no primitive polynomial of degree {n} over GF({p})")


def _powers_of_x(low: tuple[int, ...], p: int, q: int) -> list[int]:
    """Return 1, x, x^2, ... until a power recurs.

    x^n is the polynomial `low`, highest coefficient first.

    The list is empty if a power is 0.
    """
    n = len(low)
    element = [0] * (n - 1) + [1]
    powers: list[int] = []
    numbers = set()
    while True:
        number = 0
        for digit in element:
            number = number * p + digit
        if number in numbers or number == 0:
            return powers if number == 1 else []
        numbers.add(number)
        powers.append(number)
        top, element = element[0], [*element[1:], 0]
        element = [(digit + top * low[place]) % p for place, digit in enumerate(element)]


ROLES = ("host", "local", "local", "global")


def slimfly(parameters: Mapping[str, int]) -> Topology:
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
        levels=slimfly_links(field(q)),
        roles=ROLES,
    )


def slimfly_links(galois: FiniteField) -> list[NDArray[np.int64]]:
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


def polarfly(parameters: Mapping[str, int]) -> Topology:
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
        levels=polarfly_links(neighbours(field(q))),
        roles=("host", "local", "global"),
    )


def polarfly_links(joined: NDArray[np.int64]) -> list[NDArray[np.int64]]:
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
    "slimfly": Family(
        name="slimfly",
        summary="the diameter-2 graph of McKay, Miller and Siran over GF(q): 2 q^2 routers",
        source="Besta and Hoefler, SC 2014; FatPaths, appendix A-A",
        example="slimfly:q=5,p=4",
        parameters={
            "q": IntegerParameter("a prime power other than 2", 3, 256),
            "p": IntegerParameter("hosts of a router, half its links by default", 1, optional=True),
        },
        build=slimfly,
        derived=lambda values: {"p": -(-network_radix(values["q"]) // 2)},
    ),
    "polarfly": Family(
        name="polarfly",
        summary="the polarity graph over GF(q), diameter 2: q^2 + q + 1 routers",
        source="Lakhotia et al., SC 2022",
        example="polarfly:q=7,p=4",
        parameters={
            "q": IntegerParameter("a prime power", 2, 255),
            "p": IntegerParameter("hosts of a router, half its links by default", 1, optional=True),
        },
        build=polarfly,
        derived=lambda values: {"p": (values["q"] + 2) // 2},
    ),
}
