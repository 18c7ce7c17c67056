"""Every algorithm moves the data that its operation defines, in whatever order ranks get on."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.testbed.schedules import collectives
from weft.testbed.schedules.collectives import ALGORITHMS, collective
from weft.testbed.schedules.goal import (
    Kind,
    Operation,
    OperationId,
    Schedule,
    ScheduleError,
    check,
    matched,
    operations,
)

POWERS_ONLY = {("reduce-scatter", "recursive-halving"), ("all-gather", "recursive-doubling")}
EVERY = [(operation, name) for operation, names in ALGORITHMS.items() for name in names]
Buffer = dict[int, Counter[int]]  # how often each block has the part of each rank


def carry_out(schedule: Schedule, buffers: list[Buffer], seed: int) -> list[Buffer]:
    """Return the buffers after the schedule, whose operations take place in a random order."""
    check(schedule)
    send_of, chance = matched(schedule), random.Random(seed)
    left, messages = dict(operations(schedule)), {}
    while left:
        ready = [
            place
            for place, operation in left.items()
            if not any(
                OperationId(place.rank, number) in left
                for number in (*operation.requires, *operation.begins_after)
            )
            and send_of.get(place) not in left
        ]
        assert ready, "the ranks wait for each other"
        place = chance.choice(ready)
        operation = left.pop(place)
        own = buffers[place.rank]
        if operation.kind is Kind.SEND:
            messages[place] = {block: own[block].copy() for block in operation.blocks}
        for block, parts in messages.get(send_of.get(place), {}).items():
            own[block] = own[block] + parts if operation.adds else parts
    return buffers


def initial_buffers(operation: str, n: int, blocks: int) -> list[Buffer]:
    """Return the buffers before an operation."""
    if operation == "all-gather":
        return [{rank: Counter([rank])} for rank in range(n)]
    if operation == "all-to-all":
        return [{rank * n + dst: Counter([rank]) for dst in range(n)} for rank in range(n)]
    if operation == "halo":
        return [{4 * rank + side: Counter([rank]) for side in range(4)} for rank in range(n)]
    if operation == "broadcast":
        root: list[Buffer] = [{block: Counter([0]) for block in range(blocks)}]
        return root + [{} for _ in range(n - 1)]
    return [{block: Counter([rank]) for block in range(blocks)} for rank in range(n)]


def check_after(operation: str, n: int, after: list[Buffer]) -> None:
    """Fail unless the buffers are those after the operation, by its definition."""
    everyone = Counter(range(n))
    for rank, own in enumerate(after):
        if operation == "all-reduce":
            assert set(map(frozenset, own.values())) == {frozenset(everyone)}
            assert all(parts == everyone for parts in own.values())
        elif operation == "reduce-scatter":
            assert own[rank] == everyone
        elif operation == "all-gather":
            assert own == {block: Counter([block]) for block in range(n)}
        elif operation == "all-to-all":
            assert all(own[src * n + rank] == Counter([src]) for src in range(n))
        elif operation == "broadcast":
            assert set(own) == set(after[0])
            assert all(parts == Counter([0]) for parts in own.values())
        elif operation == "barrier":
            assert set(own[0]) == set(everyone)
        else:
            check_halo(n, rank, own)


def check_halo(n: int, rank: int, own: Buffer) -> None:
    """Fail unless a rank has what each neighbour sends it."""
    received = [block // 4 for block in own if block // 4 != rank]
    rows = max(rows for rows in range(1, n + 1) if n % rows == 0 and rows * rows <= n)
    columns = n // rows
    row, column = divmod(rank, columns)
    neighbours = [(row + by) % rows * columns + column for by in (1, -1)]
    neighbours += [row * columns + (column + by) % columns for by in (1, -1)]
    assert Counter(received) == Counter(peer for peer in neighbours if peer != rank)


@pytest.mark.parametrize(("operation", "name"), EVERY)
@settings(max_examples=12, deadline=None)
@given(n=st.integers(2, 13), seed=st.integers(0, 1 << 32))
def test_the_data_move_as_the_operation_says(operation: str, name: str, n: int, seed: int) -> None:
    if (operation, name) in POWERS_ONLY and n & (n - 1):
        with pytest.raises(ValueError, match=f"{name} takes a power of two of ranks, got {n}"):
            collective(operation, name, n, 1000)
        return
    blocks = len(collectives.algorithm(operation, name).block_bytes(1000, n))
    schedule = collective(operation, name, n, 1000)
    check_after(operation, n, carry_out(schedule, initial_buffers(operation, n, blocks), seed))


def sent_bytes(operation: str, name: str, n: int, size: int) -> list[int]:
    """Return how much each rank sends."""
    return [
        sum(each.amount for each in own if each.kind is Kind.SEND)
        for own in collective(operation, name, n, size)
    ]


@pytest.mark.parametrize(
    ("name", "distances"), [("rabenseifner", [8, 4, 2, 1]), ("rabenseifner-nearest", [1, 2, 4, 8])]
)
def test_the_largest_part_goes_to_the_farthest_or_to_the_nearest_rank(
    name: str, distances: list[int]
) -> None:
    """MPICH begins with processes that are one apart; the all-gather returns the same way."""
    for rank, own in enumerate(collective("all-reduce", name, 16, 1600)):
        sends = [operation for operation in own if operation.kind is Kind.SEND]
        assert [send.peer ^ rank for send in sends] == distances + distances[::-1]
        parts = [800, 400, 200, 100]
        assert [send.amount for send in sends] == parts + parts[::-1]


@pytest.mark.parametrize("n", [2, 3, 5, 8, 12])
def test_bandwidth_optimal_algorithms_send_what_the_bus_factor_says(n: int) -> None:
    size = 7 * 8 * 9 * 5 * 1000  # blocks are equal for all of these n
    for operation in ("all-reduce", "reduce-scatter", "all-gather"):
        factor = collectives.bus_factor(operation, n)
        assert sent_bytes(operation, "ring", n, size) == [round(factor * size)] * n
    assert sent_bytes("all-to-all", "pairwise", n, size) == [size * (n - 1) // n] * n


@pytest.mark.parametrize("n", [2, 3, 5, 8, 12])
@pytest.mark.parametrize("operation", ALGORITHMS)
def test_the_bus_factor_is_the_share_of_the_buffer_that_a_rank_receives(
    operation: str, n: int
) -> None:
    """The bus is as fast as the busiest receiver, if the algorithm has no detours."""
    size = 7 * 8 * 9 * 5 * 1000
    schedule = collective(operation, next(iter(ALGORITHMS[operation])), n, size)
    received = [sum(task.amount for task in own if task.kind is Kind.RECV) for own in schedule]
    factor = collectives.bus_factor(operation, n)
    if operation in ("barrier", "halo"):
        assert factor is None
    else:
        assert factor == pytest.approx(max(received) / size)


@given(size=st.integers(0, 10**9), n=st.integers(1, 100))
def test_blocks_make_up_the_buffer(size: int, n: int) -> None:
    sizes = collectives.parts(size, n)
    assert (len(sizes), sum(sizes)) == (n, size)
    assert max(sizes) - min(sizes) <= 1


def test_a_wrong_name_or_number_is_one_line() -> None:
    with pytest.raises(ValueError, match=r"no operation 'allreduce', did you mean all-reduce\?"):
        collective("allreduce", "ring", 4, 8)
    with pytest.raises(ValueError, match="no algorithm of barrier 'ring'"):
        collective("barrier", "ring", 4, 8)
    with pytest.raises(ValueError, match="barrier takes at least 2 ranks, got 1"):
        collective("barrier", "dissemination", 1, 8)


SEND, RECV = Operation(Kind.SEND, 8, peer=1), Operation(Kind.RECV, 8, peer=0)


@pytest.mark.parametrize(
    ("schedule", "reason"),
    [
        ([[SEND], []], "rank 0, operation 0: rank 1 receives no such message"),
        ([[], [RECV]], "rank 1, operation 0: rank 0 sends no such message"),
        ([[SEND], [RECV._replace(tag=1)]], "rank 0 sends no such message"),
        ([[SEND], [RECV._replace(amount=9)]], "receives 9 bytes, 8 are sent"),
        ([[SEND._replace(peer=2)], []], "no rank 2, there are 2"),
        ([[SEND._replace(peer=0)], []], "a rank does not send to itself"),
        ([[SEND._replace(requires=(1,))], [RECV]], "cannot wait for operation 1"),
        ([[SEND._replace(begins_after=(0,))], [RECV]], "cannot wait for operation 0"),
    ],
)
def test_a_schedule_that_cannot_be_carried_out_is_refused(schedule, reason: str) -> None:
    with pytest.raises(ScheduleError, match=reason):
        check(schedule) or matched(schedule)
