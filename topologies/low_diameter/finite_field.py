"""The finite field GF(q), q = p^n, by its tables of exponents and logarithms.

An element is an integer 0 .. q - 1 whose digits in base p are the coefficients of a polynomial, the constant one last;
arithmetic is modulo a primitive polynomial of degree n, the first that there is.  For n = 1 these are the integers
modulo p.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True)
class FiniteField:
    """powers: the powers 0 .. q - 2 of a primitive element."""

    q: int
    p: int
    n: int
    powers: tuple[int, ...]

    def plus(self) -> NDArray[np.int64]:
        """The sum of any two elements, shape (q, q)."""
        import numpy as np

        digits = np.arange(self.q)[:, None] // self.p ** np.arange(self.n) % self.p
        sums = (digits[:, None] + digits) % self.p
        found: NDArray[np.int64] = sums @ self.p ** np.arange(self.n)
        return found

    def times(self) -> NDArray[np.int64]:
        """The product of any two elements, shape (q, q)."""
        import numpy as np

        powers, log = np.array(self.powers), np.zeros(self.q, dtype=np.int64)
        log[powers] = np.arange(self.q - 1)
        found: NDArray[np.int64] = powers[(log[:, None] + log) % (self.q - 1)]
        found[0], found[:, 0] = 0, 0
        return found


def prime_power(q: int) -> tuple[int, int] | None:
    """The prime p and the exponent n with q = p^n; None if there are none."""
    p = next((p for p in range(2, int(q**0.5) + 1) if q % p == 0), q)
    n, left = 0, q
    while left > 1 and left % p == 0:
        left, n = left // p, n + 1
    return (p, n) if q > 1 and left == 1 else None


def field(q: int) -> FiniteField:
    """GF(q); ValueError unless q is a prime power."""
    found = prime_power(q)
    if not found:
        raise ValueError(f"there is no field of {q} elements: {q} is not a power of a prime")
    p, n = found
    for low in product(range(p), repeat=n):  # x^n - low, of which x is a primitive element if the order of x is q - 1
        powers = _powers_of_x(low, p, q)
        if len(powers) == q - 1:
            return FiniteField(q, p, n, tuple(powers))
    raise AssertionError(f"no primitive polynomial of degree {n} over GF({p})")


def _powers_of_x(low: tuple[int, ...], p: int, q: int) -> list[int]:
    """1, x, x^2, ... until one returns, where x^n is the polynomial `low`, highest coefficient first; none if a power
    is 0."""
    n = len(low)
    element = [0] * (n - 1) + [1]
    found: list[int] = []
    seen = set()
    while True:
        number = 0
        for digit in element:
            number = number * p + digit
        if number in seen or number == 0:
            return found if number == 1 else []
        seen.add(number)
        found.append(number)
        top, element = element[0], [*element[1:], 0]
        element = [(digit + top * low[at]) % p for at, digit in enumerate(element)]
