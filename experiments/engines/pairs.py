"""Pairs of servers by number: the i-th of a hundred million, worked out from the seed and i alone.

So pairs need no memory, and any number of threads that share them out route the same traffic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.random import Generator

from weft.experiments.engines import workloads
from weft.topologies.core.grammar import integer

UNIFORM, ALL_TO_ALL, ONE_TO_ALL, PERMUTATION, MANY_ALL_TO_ALL = range(5)

# splitmix64 (Steele, Lea and Flood, OOPSLA 2014): the i-th word of a stream is a hash of its key +
# i * GAMMA
GAMMA = np.uint64(0x9E3779B97F4A7C15)
MULTIPLY_1, MULTIPLY_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
SHIFT_30, SHIFT_27, SHIFT_31, SHIFT_11 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(11)
ULP = 2.0**-53


class Pairs(NamedTuple):
    """`total` pairs of different servers.

    key: of the stream of random words.
    order: the servers in random order, or where each sends to, or none, as the pattern needs.
    group: servers that talk to each other, where the pattern has groups.
    """

    pattern: int
    servers: int
    total: int
    key: np.uint64
    order: Any
    group: int


def word(key: np.uint64, number: int) -> np.uint64:
    """The `number`-th word of 64 random bits of the stream `key`."""
    z = key + np.uint64(number) * GAMMA
    z = (z ^ (z >> SHIFT_30)) * MULTIPLY_1
    z = (z ^ (z >> SHIFT_27)) * MULTIPLY_2
    return z ^ (z >> SHIFT_31)


def below(key: np.uint64, number: int, end: int) -> int:
    """A random number in 0 .. end-1, each as likely as any other to within 2^-53."""
    return int(float(word(key, number) >> SHIFT_11) * ULP * end)


def pair(pairs: Pairs, index: int) -> tuple[int, int]:
    """The source and the destination of pair `index`."""
    servers, order = pairs.servers, pairs.order
    if pairs.pattern == UNIFORM:
        src, dst = (
            below(pairs.key, 2 * index, servers),
            below(pairs.key, 2 * index + 1, servers - 1),
        )
        return src, dst + (dst >= src)
    if pairs.pattern == ALL_TO_ALL:
        src, dst = index // (servers - 1), index % (servers - 1)
        return src, dst + (dst >= src)
    if pairs.pattern == ONE_TO_ALL:
        return order[0], order[index + 1]
    if pairs.pattern == PERMUTATION:
        return index, order[index]
    flows = pairs.group * (pairs.group - 1)
    first = index // flows * pairs.group
    size = min(pairs.group, servers - first)
    within = index % flows
    src, dst = within // (size - 1), within % (size - 1)
    return order[first + src], order[first + dst + (dst >= src)]


class PairPattern(NamedTuple):
    """meaning: for people.  parameter: the one that it takes, if any."""

    meaning: str
    parameter: str | None
    make: Callable[[Generator, int, int], Pairs]


def uniform(rng: Generator, servers: int, flows: int) -> Pairs:
    """Every pair drawn alone, all as likely (CCRDN 6.2)."""
    return Pairs(UNIFORM, servers, flows, _key(rng), _none(), 0)


def all_to_all(rng: Generator, servers: int, _: int) -> Pairs:
    """Every ordered pair once."""
    return Pairs(ALL_TO_ALL, servers, servers * (servers - 1), _key(rng), _none(), 0)


def one_to_all(rng: Generator, servers: int, _: int) -> Pairs:
    """A random server to every other."""
    return Pairs(ONE_TO_ALL, servers, servers - 1, _key(rng), rng.permutation(servers), 0)


def permutation(rng: Generator, servers: int, _: int) -> Pairs:
    """Every server to one other, and from one other."""
    return Pairs(
        PERMUTATION,
        servers,
        servers,
        _key(rng),
        np.array(workloads.permutation(rng, servers))[:, 1],
        0,
    )


def many_all_to_all(rng: Generator, servers: int, group: int) -> Pairs:
    """Random groups of servers, all-to-all within each.

    The last group has what is left (CCRDN 6.2).
    """
    rest = servers % group
    count = servers // group * group * (group - 1) + rest * (rest - 1)
    return Pairs(MANY_ALL_TO_ALL, servers, count, _key(rng), rng.permutation(servers), group)


PATTERNS: Mapping[str, PairPattern] = {
    "uniform": PairPattern("flows random pairs", "flows", uniform),
    "all-to-all": PairPattern("every server to every other", None, all_to_all),
    "one-to-all": PairPattern("one random server to every other", None, one_to_all),
    "permutation": PairPattern("every server to one other", None, permutation),
    "many-all-to-all": PairPattern(
        "random groups of servers, all-to-all within each", "group", many_all_to_all
    ),
}


def pairs(spec: str, servers: int, rng: Generator) -> Pairs:
    """Return the pairs of the traffic `spec`, such as uniform:flows=1000000.

    Raises:
        ValueError: no such traffic, or its parameter is wrong.
    """
    name, (_, parameter, make), text = workloads.pattern_of("traffic", spec, PATTERNS, 100)
    least, most = (2, servers) if parameter == "group" else (1, None)
    value = integer(name, str(parameter), text, least=least, most=most) if text else 0
    return make(rng, servers, value)


def _key(rng: Generator) -> np.uint64:
    return rng.integers(1 << 64, dtype=np.uint64)


def _none() -> Any:
    return np.zeros(0, np.int64)
