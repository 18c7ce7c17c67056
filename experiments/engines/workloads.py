"""Traffic from seeds: pairs of hosts, sizes of flows, and their arrivals.

Pure: a generator of random numbers is an argument.  Hosts are numbered from 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.random import Generator

from weft.experiments.engines.arrays import Ints
from weft.testbed.traffic.flows import Flow
from weft.topologies.core.grammar import integer, parse, unknown

PACKET_BYTES = 1460  # of payload, in which the published distributions count


def derangements(rng: Generator, hosts: int, count: int) -> Ints:
    """Return random permutations of the hosts without fixed points, shape (count, hosts)."""
    own = np.arange(hosts)
    drawn = np.tile(own, (count, 1))
    again = np.arange(count)
    while len(again):
        drawn[again] = rng.permuted(drawn[again], axis=1)
        again = again[(drawn[again] == own).any(axis=1)]
    return drawn


def permutation(rng: Generator, hosts: int) -> list[tuple[int, int]]:
    """Return pairs in which every host sends to one other and receives from one other."""
    return k_permutation(rng, hosts, 1)


def k_permutation(rng: Generator, hosts: int, k: int) -> list[tuple[int, int]]:
    """Return k permutations: every host sends and receives k flows (TTC, section 4.1)."""
    return [pair for drawn in derangements(rng, hosts, k).tolist() for pair in enumerate(drawn)]


def cross(rng: Generator, hosts: int, group: int) -> list[tuple[int, int]]:
    """Return a permutation in which every host sends to another group of `group` hosts in a row.

    If a group is an edge switch, all traffic goes up.

    Raises:
        ValueError: there are not two or more groups of that size.
    """
    if hosts % group or hosts < 2 * group:
        raise ValueError(f"cross: {hosts} hosts are not two or more groups of {group}")
    places = rng.permuted(np.tile(np.arange(group), (2, hosts // group, 1)), axis=2)
    pairs = []
    for place, to in enumerate(derangements(rng, hosts // group, group).tolist()):
        for src_group, dst_group in enumerate(to):
            src = src_group * group + int(places[0, src_group, place])
            pairs.append((src, dst_group * group + int(places[1, dst_group, place])))
    return sorted(pairs)


def stride(hosts: int, step: int) -> list[tuple[int, int]]:
    """Return pairs in which host i sends to host i + step."""
    return [(src, (src + step) % hosts) for src in range(hosts)]


def transpose(hosts: int, rows: int) -> list[tuple[int, int]]:
    """Return pairs of a matrix of hosts with `rows` rows and of its transpose.

    Those whose places are the same, the first and the last host among them, send to each other in a
    circle.  On FT(n,d) with rows = d^l, the 2 d^(n-l) hosts of a row send to destinations with the
    same last l digits, which D-mod-k leads up by the same ports: a permutation of the kind of TTC,
    section 2.1.  ValueError unless `hosts` are two or more whole rows of two or more.
    """
    if hosts % rows or not 2 <= rows <= hosts // 2:
        raise ValueError(
            f"transpose: rows must be 2 to {hosts // 2} and divide {hosts}, the hosts, got {rows}"
        )
    own = np.arange(hosts)
    dst = own.reshape(hosts // rows, rows).T.ravel()
    fixed = own[dst == own]
    dst[fixed] = np.roll(fixed, 1)
    return list(zip(own.tolist(), dst.tolist(), strict=True))


def random_pairs(rng: Generator, hosts: int, count: int) -> list[tuple[int, int]]:
    """Return `count` independent random pairs of different hosts."""
    src = rng.integers(hosts, size=count)
    dst = (src + 1 + rng.integers(hosts - 1, size=count)) % hosts
    return list(zip(src.tolist(), dst.tolist(), strict=True))


def incast(rng: Generator, hosts: int, senders: int) -> list[tuple[int, int]]:
    """Return pairs in which `senders` random hosts send to one other."""
    hosts_drawn = rng.permutation(hosts)[: senders + 1].tolist()
    return [(src, hosts_drawn[0]) for src in hosts_drawn[1:]]


def all_to_all(hosts: int) -> list[tuple[int, int]]:
    """Return all pairs, ordered so that hosts take turns."""
    src, dst = in_turn(hosts, np.arange(hosts * (hosts - 1)))
    return list(zip(src.tolist(), dst.tolist(), strict=True))


def in_turn(hosts: int, numbers: Ints) -> tuple[Ints, Ints]:
    """Return the sources and destinations of the pairs of all_to_all() with such numbers."""
    turn, src = np.divmod(numbers, hosts)
    return src, (src + turn + 1) % hosts


def uniform(rng: Generator, hosts: int) -> list[tuple[int, int]]:
    """Return pairs in which every host sends to a random other; some receive nothing."""
    dst = (np.arange(hosts) + 1 + rng.integers(hosts - 1, size=hosts)) % hosts
    return list(enumerate(dst.tolist()))


def shuffle(hosts: int) -> list[tuple[int, int]]:
    """Return pairs in which a host sends to its number with the bits rotated to the left by one.

    FatPaths, section II-C, which rotates by i "on i bits": a rotation by the width does nothing.
    The result is taken modulo the number of hosts; hosts do not send to themselves.
    """
    width = max(1, (hosts - 1).bit_length())
    mask = (1 << width) - 1
    rotated = [((src << 1 | src >> (width - 1)) & mask) % hosts for src in range(hosts)]
    return [(src, dst) for src, dst in enumerate(rotated) if src != dst]


def stencil(hosts: int, offset: int) -> list[tuple[int, int]]:
    """Return a two-dimensional stencil: hosts send to those 1 and `offset` away on both sides.

    FatPaths, section II-C, has 42, and 1337 for more than 10,000 hosts.
    """
    neighbours = [
        (src, (src + step) % hosts) for step in (1, -1, offset, -offset) for src in range(hosts)
    ]
    return [(src, dst) for src, dst in neighbours if src != dst]


def mapped(rng: Generator, hosts: int, pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the pairs with hosts placed at random (FatPaths, section III-D)."""
    place = rng.permutation(hosts).tolist()
    return [(place[src], place[dst]) for src, dst in pairs]


class WithParameter(Protocol):
    """A pattern that may take a parameter."""

    @property
    def parameter(self) -> str | None: ...


Pattern = TypeVar("Pattern", bound=WithParameter)


class TrafficPattern(NamedTuple):
    """A pattern; `pairs` takes a generator, the number of hosts, and the parameter if any."""

    meaning: str
    parameter: str | None
    pairs: Callable[[Generator, int, int], list[tuple[int, int]]]


PATTERNS: Mapping[str, TrafficPattern] = {
    "permutation": TrafficPattern(
        "each host to one other", None, lambda rng, hosts, _: permutation(rng, hosts)
    ),
    "k-permutation": TrafficPattern("each host to k others", "k", k_permutation),
    "cross": TrafficPattern("each host to one of another group", "group", cross),
    "stride": TrafficPattern(
        "host i to host i + step", "step", lambda _, hosts, step: stride(hosts, step)
    ),
    "transpose": TrafficPattern(
        "hosts as a matrix, to their places when it is transposed",
        "rows",
        lambda _, hosts, rows: transpose(hosts, rows),
    ),
    "uniform": TrafficPattern(
        "each host to a random other", None, lambda rng, hosts, _: uniform(rng, hosts)
    ),
    "off-diagonal": TrafficPattern(
        "host i to host i + c", "c", lambda _, hosts, c: stride(hosts, c)
    ),
    "shuffle": TrafficPattern(
        "each host's number rotated by a bit", None, lambda _rng, hosts, _: shuffle(hosts)
    ),
    "stencil": TrafficPattern(
        "each host to those 1 and offset away",
        "offset",
        lambda _, hosts, offset: stencil(hosts, offset),
    ),
    "random": TrafficPattern("count random pairs", "count", random_pairs),
    "incast": TrafficPattern("senders to one host", "senders", incast),
    "all-to-all": TrafficPattern(
        "each host to every other", None, lambda rng, hosts, _: all_to_all(hosts)
    ),
}


def pattern_of(
    kind: str, spec: str, patterns: Mapping[str, Pattern], example: int
) -> tuple[str, Pattern, str]:
    """Return the name of the pattern `spec`, the pattern, and the text of its parameter, if any.

    Raises:
        ValueError: no such pattern or parameter, or the parameter is missing.
    """
    name, texts = parse(spec)
    if name not in patterns:
        raise ValueError(unknown(kind, name, patterns))
    parameter = patterns[name].parameter
    for key in texts:
        if key != parameter:
            raise ValueError(
                f"{name}: no parameter {key}" + (f", there is {parameter}" if parameter else "")
            )
    if parameter and parameter not in texts:
        raise ValueError(
            f"{name}: {parameter} is missing, for example {name}:{parameter}={example}"
        )
    return name, patterns[name], texts.get(parameter or "", "")


def pairs(spec: str, hosts: int, rng: Generator) -> list[tuple[int, int]]:
    """Return the (src, dst) of the pattern `spec`, such as stride:step=8.

    Raises:
        ValueError: no such pattern, or its parameter is wrong.
    """
    name, (_, parameter, draw), text = pattern_of("traffic pattern", spec, PATTERNS, 4)
    if hosts < 2:
        raise ValueError(f"{name}: traffic takes at least 2 hosts, got {hosts}")
    most = hosts - 1 if parameter in ("step", "senders", "c", "offset") else None
    return draw(rng, hosts, integer(name, str(parameter), text, least=1, most=most) if text else 0)


def endless(pairs: Sequence[tuple[int, int]]) -> list[Flow]:
    return [Flow(0.0, src, dst, None) for src, dst in pairs]


class Sizes(NamedTuple):
    """Cumulative distribution of flow sizes, linear between its points.

    bytes_: size at each point.
    fraction: fraction of flows that are no larger.
    """

    bytes_: tuple[float, ...]
    fraction: tuple[float, ...]
    source: str

    @property
    def mean_bytes(self) -> float:
        sizes, fraction = np.array(self.bytes_), np.array(self.fraction)
        return float(
            sizes[0] * fraction[0] + (np.diff(fraction) * (sizes[1:] + sizes[:-1]) / 2).sum()
        )

    def draw(self, rng: Generator, count: int) -> Ints:
        """Return `count` sizes in bytes, at least 1 each."""
        return np.maximum(1, np.interp(rng.random(count), self.fraction, self.bytes_)).astype(
            np.int64
        )

    def at_most(self, most_bytes: int) -> Sizes:
        """Return the distribution cut off: a larger flow has `most_bytes`."""
        chains = [
            (size, share)
            for size, share in zip(self.bytes_, self.fraction, strict=True)
            if size < most_bytes
        ]
        if len(chains) == len(self.bytes_):
            return self
        cut = float(np.interp(most_bytes, self.bytes_, self.fraction))
        sizes = (*(size for size, _ in chains), float(most_bytes), float(most_bytes))
        return Sizes(
            sizes,
            (*(share for _, share in chains), cut, 1.0),
            f"{self.source}, at most {most_bytes} bytes",
        )


def _in_packets(source: str, *points: tuple[int, float]) -> Sizes:
    return Sizes(
        tuple(float(size * PACKET_BYTES) for size, _ in points),
        tuple(share for _, share in points),
        source,
    )


SIZES: Mapping[str, Sizes] = {
    "web-search": _in_packets(
        "DCTCP, SIGCOMM 2010, figure 4",
        (1, 0.0),
        (6, 0.15),
        (13, 0.2),
        (19, 0.3),
        (33, 0.4),
        (53, 0.53),
        (133, 0.6),
        (667, 0.7),
        (1333, 0.8),
        (3333, 0.9),
        (6667, 0.97),
        (20000, 1.0),
    ),
    "data-mining": _in_packets(
        "VL2, SIGCOMM 2009, figure 2",
        (1, 0.0),
        (1, 0.5),
        (2, 0.6),
        (3, 0.7),
        (7, 0.8),
        (267, 0.9),
        (2107, 0.95),
        (66667, 0.99),
        (666667, 1.0),
    ),
}


def sizes(spec: str) -> Sizes:
    """Return the distribution `spec`, such as web-search or fixed:bytes=100000."""
    name, options = parse(spec)
    least = "bytes" if name == "fixed" else "most_bytes"
    for key in options:
        if key != least:
            raise ValueError(f"{name}: no parameter {key}, there is {least}")
    number = integer(name, least, options[least], least=1) if least in options else None
    if name == "fixed":
        if number is None:
            raise ValueError("fixed: bytes is missing, for example fixed:bytes=100000")
        return Sizes((float(number), float(number)), (0.0, 1.0), "all alike")
    if name not in SIZES:
        raise ValueError(unknown("distribution of flow sizes", name, [*SIZES, "fixed"]))
    return SIZES[name] if number is None else SIZES[name].at_most(number)


def poisson(
    rng: Generator,
    hosts: int,
    *,
    size_distribution: Sizes,
    load_fraction: float,
    rate_bps: float,
    duration_s: float,
) -> Iterator[Flow]:
    """Yield flows that arrive at random between random hosts.

    The links of the hosts, of `rate_bps` each, send `load_fraction` of the time, headers aside.

    Raises:
        ValueError: a load that no link can carry.
    """
    if not 0 < load_fraction < 1:
        raise ValueError(f"load_fraction must lie between 0 and 1, got {load_fraction}")
    per_s = hosts * load_fraction * rate_bps / (8 * size_distribution.mean_bytes)
    at_s = rng.exponential(1 / per_s)
    while at_s < duration_s:
        src = int(rng.integers(hosts))
        dst = int((src + 1 + rng.integers(hosts - 1)) % hosts)
        yield Flow(at_s, src, dst, int(size_distribution.draw(rng, 1)[0]))
        at_s += rng.exponential(1 / per_s)
