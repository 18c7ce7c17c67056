"""The finite field GF(q), q = p^n, by its tables of exponents and logarithms.

An element is an integer 0 .. q - 1 whose digits in base p are the coefficients of a polynomial, the
constant one last; arithmetic is modulo a primitive polynomial of degree n, the first that there is.
For n = 1 these are the integers modulo p.
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
