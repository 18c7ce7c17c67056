"""Collective operations and the halo exchange as schedules.

Sizes are those of nccl-tests: of the whole buffer, also where a rank has only a part of it.

Sources: Thakur, Rabenseifner and Gropp, "Optimization of Collective Communication Operations in
MPICH" (2005), for all algorithms but the dissemination barrier (Hensgen, Finkel and Manber, 1988).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import isqrt
from typing import NamedTuple

from weft.testbed.schedules.goal import Move, Schedule, of_moves
from weft.topologies.core.grammar import unknown

Moves = Iterator[Move]


def later(moves: Moves, steps: int) -> Moves:
    """Yield `moves`, `steps` later."""
    for move in moves:
        yield move._replace(step=move.step + steps)


def reduce_scatter_ring(n: int) -> Moves:
    """Yield n - 1 steps round the ring; block b ends at rank b."""
    for step in range(n - 1):
        for rank in range(n):
            yield Move(step, rank, (rank + 1) % n, ((rank - 1 - step) % n,), True)


def all_gather_ring(n: int) -> Moves:
    """Yield n - 1 steps round the ring; block b begins at rank b."""
    for step in range(n - 1):
        for rank in range(n):
            yield Move(step, rank, (rank + 1) % n, ((rank - step) % n,))


def all_reduce_ring(n: int) -> Moves:
    """Yield a reduce-scatter and an all-gather round the ring."""
    yield from reduce_scatter_ring(n)
    yield from later(all_gather_ring(n), n - 1)


def exponent(n: int, name: str) -> int:
    """Return k for n = 2^k ranks; ValueError for another n."""
    if n & (n - 1):
        raise ValueError(f"{name} takes a power of two of ranks, got {n}; take ring")
    return n.bit_length() - 1


def block_group(rank: int, distance: int) -> tuple[int, ...]:
    """Return the blocks of the ranks that agree with `rank` in all bits from `distance` on."""
    first = rank // distance * distance
    return tuple(range(first, first + distance))


def reduce_scatter_halving(n: int) -> Moves:
    """Yield exchanges of halves, quarters, and so on, over half the ring, a quarter, and so on."""
    for step in range(exponent(n, "recursive-halving")):
        distance = n >> step + 1
        for rank in range(n):
            yield Move(step, rank, rank ^ distance, block_group(rank ^ distance, distance), True)


def all_gather_doubling(n: int) -> Moves:
    """Yield exchanges of one block, two, four, and so on."""
    for step in range(exponent(n, "recursive-doubling")):
        for rank in range(n):
            yield Move(step, rank, rank ^ 1 << step, block_group(rank, 1 << step))


def exchange_all(n: int) -> Moves:
    """Yield exchanges of the whole buffer among a power of two of ranks."""
    for step in range(n.bit_length() - 1):
        for rank in range(n):
            yield Move(step, rank, rank ^ 1 << step, (0,), True)


def halving_and_doubling(n: int) -> Moves:
    """Yield a reduce-scatter by halving and an all-gather by doubling."""
    yield from reduce_scatter_halving(n)
    yield from later(all_gather_doubling(n), n.bit_length() - 1)


def folded(moves: Callable[[int], Moves], n: int, blocks: int) -> Moves:
    """Yield the moves of a power of two of ranks, after the others have joined a neighbour.

    With p the power of two below n, each even rank below 2 (n - p) first adds its buffer to the
    next rank's, and gets the result at the end.
    """
    power = 1 << n.bit_length() - 1
    extra, last = n - power, 0
    every = tuple(range(blocks))
    for pair in range(extra):
        yield Move(0, 2 * pair, 2 * pair + 1, every, True)
    rank_of = [2 * place + 1 if place < extra else place + extra for place in range(power)]
    for move in later(moves(power), 1):
        last = max(last, move.step)
        yield move._replace(src=rank_of[move.src], dst=rank_of[move.dst])
    for pair in range(extra):
        yield Move(last + 1, 2 * pair + 1, 2 * pair, every)


def all_reduce_doubling(n: int) -> Moves:
    """Yield exchanges of the whole buffer between ranks 1, 2, 4, ... apart."""
    return folded(exchange_all, n, 1)


def all_reduce_rabenseifner(n: int) -> Moves:
    """Yield a reduce-scatter by halving and an all-gather by doubling, farthest rank first."""
    return folded(halving_and_doubling, n, power_below(n))


def all_reduce_nearest(n: int) -> Moves:
    """Yield the same exchanges with the nearest rank first, as MPICH does.

    They are those of ranks whose numbers' bits are in reverse order.
    """

    def nearest(power: int) -> Moves:
        digits = power.bit_length() - 1
        mirrored = [int(f"{rank:0{digits}b}"[::-1], 2) for rank in range(power)]
        for move in halving_and_doubling(power):
            yield move._replace(src=mirrored[move.src], dst=mirrored[move.dst])

    return folded(nearest, n, power_below(n))


def power_below(n: int) -> int:
    """Return the largest power of two up to n."""
    return 1 << n.bit_length() - 1


def all_to_all_pairwise(n: int) -> Moves:
    """Yield n - 1 steps; in step s each rank sends to the rank s + 1 farther on."""
    for step in range(1, n):
        for rank in range(n):
            peer = (rank + step) % n
            yield Move(step - 1, rank, peer, (rank * n + peer,))


def all_to_all_linear(n: int) -> Moves:
    """Yield all messages in a single step."""
    for move in all_to_all_pairwise(n):
        yield move._replace(step=0)


def broadcast_binomial(n: int) -> Moves:
    """Yield the binomial tree of rank 0."""
    step = 0
    while 1 << step < n:
        for rank in range(min(1 << step, n - (1 << step))):
            yield Move(step, rank, rank + (1 << step), (0,))
        step += 1


def broadcast_scatter_ring(n: int) -> Moves:
    """Yield a scatter by halves from rank 0, and an all-gather round the ring."""
    ranges, last = [(0, 0, n)], 0
    while ranges:
        step, first, end = ranges.pop()
        if end - first < 2:
            continue
        middle = (first + end + 1) // 2
        yield Move(step, first, middle, tuple(range(middle, end)))
        ranges += [(step + 1, first, middle), (step + 1, middle, end)]
        last = max(last, step + 1)
    yield from later(all_gather_ring(n), last)


def barrier_dissemination(n: int) -> Moves:
    """Yield messages to the rank 1, 2, 4, ... farther on."""
    step = 0
    while 1 << step < n:
        for rank in range(n):
            yield Move(step, rank, (rank + (1 << step)) % n, (0,), True)
        step += 1


def halo_grid(n: int) -> Moves:
    """Yield messages to all four neighbours in a closed grid, as square as n ranks can be.

    A dimension with one rank has no neighbours.
    """
    rows = next(rows for rows in range(isqrt(n), 0, -1) if n % rows == 0)
    columns = n // rows
    for rank in range(n):
        row, column = divmod(rank, columns)
        beside = [((row + by) % rows, column) for by in (1, -1)]
        beside += [(row, (column + by) % columns) for by in (1, -1)]
        for side, (peer_row, peer_column) in enumerate(beside):
            peer = peer_row * columns + peer_column
            if peer != rank:
                yield Move(0, rank, peer, (4 * rank + side,))


def whole(size_bytes: int, n: int) -> Sequence[int]:
    """Return the sizes of one block."""
    return [size_bytes]


def parts(size_bytes: int, n: int) -> Sequence[int]:
    """Return the sizes of n blocks that differ by at most a byte."""
    ends = [size_bytes * (block + 1) // n for block in range(n)]
    return [end - begin for begin, end in zip([0, *ends], ends, strict=False)]


def parts_of_power(size_bytes: int, n: int) -> Sequence[int]:
    """Return the sizes of as many blocks as the power of two below n."""
    return parts(size_bytes, power_below(n))


def parts_of_ranks(size_bytes: int, n: int) -> Sequence[int]:
    """Return the sizes of n blocks of each of n ranks."""
    return [*parts(size_bytes, n)] * n


def sides(size_bytes: int, n: int) -> Sequence[int]:
    """Return the sizes of the four messages of each rank."""
    return [size_bytes] * 4 * n


class Algorithm(NamedTuple):
    """Moves by the number of ranks, and the sizes of blocks by that of the buffer and of ranks."""

    moves: Callable[[int], Moves]
    block_bytes: Callable[[int, int], Sequence[int]]


ALGORITHMS: Mapping[str, Mapping[str, Algorithm]] = {
    "all-reduce": {
        "ring": Algorithm(all_reduce_ring, parts),
        "recursive-doubling": Algorithm(all_reduce_doubling, whole),
        "rabenseifner": Algorithm(all_reduce_rabenseifner, parts_of_power),
        "rabenseifner-nearest": Algorithm(all_reduce_nearest, parts_of_power),
    },
    "reduce-scatter": {
        "ring": Algorithm(reduce_scatter_ring, parts),
        "recursive-halving": Algorithm(reduce_scatter_halving, parts),
    },
    "all-gather": {
        "ring": Algorithm(all_gather_ring, parts),
        "recursive-doubling": Algorithm(all_gather_doubling, parts),
    },
    "all-to-all": {
        "pairwise": Algorithm(all_to_all_pairwise, parts_of_ranks),
        "linear": Algorithm(all_to_all_linear, parts_of_ranks),
    },
    "broadcast": {
        "binomial": Algorithm(broadcast_binomial, whole),
        "scatter-ring": Algorithm(broadcast_scatter_ring, parts),
    },
    "barrier": {"dissemination": Algorithm(barrier_dissemination, lambda size_bytes, n: [1])},
    "halo": {"grid": Algorithm(halo_grid, sides)},
}
LEAST_RANKS = 2


def algorithm(operation: str, name: str) -> Algorithm:
    """Return an algorithm of an operation; ValueError for one that does not exist."""
    if operation not in ALGORITHMS:
        raise ValueError(unknown("operation", operation, ALGORITHMS))
    if name not in ALGORITHMS[operation]:
        raise ValueError(unknown(f"algorithm of {operation}", name, ALGORITHMS[operation]))
    return ALGORITHMS[operation][name]


def collective(operation: str, name: str, ranks: int, size_bytes: int) -> Schedule:
    """Return the schedule of an operation on a buffer of `size_bytes`.

    Raises:
        ValueError: no such operation or algorithm, or it does not take so many ranks.
    """
    chosen = algorithm(operation, name)
    check_ranks(operation, name, ranks)
    return of_moves(chosen.moves(ranks), ranks, chosen.block_bytes(size_bytes, ranks))


def check_ranks(operation: str, name: str, ranks: int) -> None:
    """Raise ValueError unless an algorithm takes so many ranks."""
    if ranks < LEAST_RANKS:
        raise ValueError(f"{operation} takes at least {LEAST_RANKS} ranks, got {ranks}")
    next(algorithm(operation, name).moves(ranks))


def check_size(operation: str, name: str, ranks: int, size_bytes: int) -> None:
    """Raise ValueError if a block of a buffer of `size_bytes` has less than a byte."""
    blocks = algorithm(operation, name).block_bytes(size_bytes, ranks)
    if not min(blocks):
        raise ValueError(
            f"{operation} by {name} of {ranks} ranks has blocks without a byte in {size_bytes} "
            f"bytes; take {ranks} or more"
        )


def bus_factor(operation: str, ranks: int) -> float | None:
    """Return the bus bandwidth over size / time, as nccl-tests define it; None without one."""
    fractions = {
        "all-reduce": 2 * (ranks - 1) / ranks,
        "reduce-scatter": (ranks - 1) / ranks,
        "all-gather": (ranks - 1) / ranks,
        "all-to-all": (ranks - 1) / ranks,
        "broadcast": 1.0,
    }
    return fractions.get(operation)
