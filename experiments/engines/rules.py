"""The functions of the graph engine as machine code for the connection rule of one network."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar

import numpy as np

from weft.daemons.core.compiled import compiled
from weft.topologies.recursive.connection_rule import RULES

F = TypeVar("F", bound=Callable[..., Any])
RoutingRule = Callable[[int, int, int], int]


def compiled_for(rule: int, function: F, **instead: Callable[..., Any]) -> F:
    """compiled(), where gateway() and far_subnetwork() are those of the rule of this number.

    A rule that ccrdn.py has built in is an argument of the code; any other is a part of it.
    """
    return compiled(function, **_functions(rule), **instead)


@cache
def _functions(rule: int) -> dict[str, Callable[..., Any]]:
    """Return the functions that replace those of connection_rule.py, which look rules up."""
    own = {"own_gateway": _gateway, "own_far_subnetwork": _far_subnetwork}
    if rule not in RULES:
        return own
    gateway, far_subnetwork = RULES[rule].gateway, RULES[rule].far_subnetwork
    if RULES[rule].orders:
        gateway, far_subnetwork = by_arrays(RULES[rule].orders)
    return {**own, "chosen_gateway": gateway, "chosen_far_subnetwork": far_subnetwork}


def chosen_gateway(size: int, i: int, j: int) -> int:
    """Stand in for a rule of connection_rule.py, which is none here."""
    return -1


def chosen_far_subnetwork(size: int, i: int, p: int) -> int:
    """Stand in for a rule of connection_rule.py, which is none here."""
    return -1


def _gateway(rule: int, size: int, i: int, j: int) -> int:
    return chosen_gateway(size, i, j)


def _far_subnetwork(rule: int, size: int, i: int, p: int) -> int:
    return chosen_far_subnetwork(size, i, p)


def by_arrays(orders: Mapping[int, Sequence[int]]) -> tuple[RoutingRule, RoutingRule]:
    """The functions of connection_rule.by_permutation() on arrays, which can be compiled."""
    sizes = np.array(sorted(orders))
    start = np.concatenate(([0], np.cumsum(sizes)))
    order = np.concatenate([np.array(orders[size]) for size in sizes.tolist()])
    inverse = np.concatenate([np.argsort(orders[size]) for size in sizes.tolist()])

    def gateway(size: int, i: int, j: int) -> int:
        ahead = j - i - 1 if j > i else j - i + size
        return int(order[start[np.searchsorted(sizes, size)] + ahead])

    def far_subnetwork(size: int, i: int, p: int) -> int:
        j = i + int(inverse[start[np.searchsorted(sizes, size)] + p]) + 1
        return j if j <= size else j - size - 1

    return gateway, far_subnetwork
