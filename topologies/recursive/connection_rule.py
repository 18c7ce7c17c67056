"""Connection rules of Generalized DCell (CCRDN 3.1.1), other than those that ccrdn.py has built in.

In an X(level) of size + 1 copies of X(level-1), of `size` servers each, a rule says which server of
copy i is joined to copy j.  Whatever it says, provided that each copy gives every other one a
server of its own, the links are a perfect matching: that between copies i and j joins the server of
i for j to the server of j for i.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

FIRST = 3  # numbers below are those of ccrdn.py
CHECKED = 200  # copies that are checked of those that are more


@dataclass(frozen=True, eq=False)
class ConnectionRule:
    """A rule as two functions, the second the inverse of the first in its last argument.

    gateway(size, i, j): the server 0 .. size-1 of copy i that is joined to copy j; i and j,
    different, are 0 .. size. far_subnetwork(size, i, p): the j for which gateway(size, i, j) is p.
    needs: for people, which sizes it takes; takes(size): whether it takes this one.
    orders: of a rule by permutations, what by_permutation() was given.

    The graph engine compiles both functions: they may use integers, `if`, loops, and functions of
    the same module.
    """

    gateway: Callable[[int, int, int], int]
    far_subnetwork: Callable[[int, int, int], int]
    needs: str = "any size"
    takes: Callable[[int], bool] = lambda size: True
    orders: Mapping[int, Sequence[int]] = field(default_factory=dict)


RULES: dict[int, ConnectionRule] = {}


def add(rule: ConnectionRule) -> int:
    """Number `rule`; the number is what the functions of ccrdn.py take as `rule`."""
    number = FIRST + len(RULES)
    RULES[number] = rule
    return number


def own_gateway(rule: int, size: int, i: Any, j: Any) -> Any:
    """gateway() of the rule of this number."""
    return RULES[rule].gateway(size, i, j)


def own_far_subnetwork(rule: int, size: int, i: int, p: int) -> int:
    """far_subnetwork() of the rule of this number."""
    return RULES[rule].far_subnetwork(size, i, p)


@cache
def require_matching(rule: int, size: int) -> None:
    """Raise ValueError unless the rule joins copies of `size` servers by a perfect matching.

    Each copy is asked about each other one; where these are many, some about some.
    """
    own = RULES[rule]
    if not own.takes(size):
        raise ValueError(f"its connection rule needs {own.needs} in a copy, not {size}")
    step = max(1, size // CHECKED)
    for i in range(0, size + 1, step):
        for j in range(0, size + 1, step):
            if i != j:
                p = own.gateway(size, i, j)
                if not 0 <= p < size or own.far_subnetwork(size, i, p) != j:
                    raise ValueError(
                        f"its connection rule gives copy {i} server {p} of {size} for copy {j}, "
                        f"and that server"
                        f" copy {own.far_subnetwork(size, i, p)}: far_subnetwork() must be the "
                        f"inverse of gateway()"
                    )


def by_permutation(orders: Mapping[int, Sequence[int]]) -> ConnectionRule:
    """Return the rule that gives the d-th copy after i server orders[size][d - 1] of copy i.

    d is 1 .. size, and copies are counted round.

    orders: a permutation of 0 .. size-1 for each size of a copy; beta-DCell's is 0, 1, 2, ...
    (CCRDN 3.1.1). ValueError if one is no permutation.
    """
    inverse: dict[int, list[int]] = {}
    for size, order in orders.items():
        if sorted(order) != list(range(size)):
            raise ValueError(
                f"the order for copies of {size} servers is no permutation of 0 .. {size - 1}"
            )
        inverse[size] = sorted(range(size), key=order.__getitem__)

    def gateway(size: int, i: int, j: int) -> int:
        return orders[size][(j - i - 1) % (size + 1)]

    def far_subnetwork(size: int, i: int, p: int) -> int:
        return (i + inverse[size][p] + 1) % (size + 1)

    needs = f"{' or '.join(map(str, sorted(orders)))} servers"
    return ConnectionRule(gateway, far_subnetwork, needs, orders.__contains__, dict(orders))
