"""Schedules: each rank's sends, receives and computations, and their order.

A send ends when its last byte has arrived.  A receive ends when its message has arrived and all
that the receive requires has ended.  Sends do not wait for their receives.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from typing import NamedTuple


class Kind(StrEnum):
    """Kinds of operations."""

    SEND = "send"
    RECV = "recv"
    CALC = "calc"


class Operation(NamedTuple):
    """An operation of a rank.

    amount: bytes of a message, or nanoseconds of a computation.  A message without bytes travels
        as one byte.
    peer: rank at the other end of a message.
    tag: a receive takes the next message from its peer with its tag.
    cpu, nic: as in GOAL; without effect here.
    requires: numbers of the rank's operations that end before this one begins.
    begins_after: numbers of the rank's operations that begin before this one begins.
    blocks: blocks of data that the message carries; empty if unknown.
    adds: True if a receive adds the blocks to the rank's own.
    """

    kind: Kind
    amount: int
    peer: int = -1
    tag: int = 0
    cpu: int = 0
    nic: int = 0
    requires: tuple[int, ...] = ()
    begins_after: tuple[int, ...] = ()
    blocks: tuple[int, ...] = ()
    adds: bool = False


class OperationId(NamedTuple):
    """An operation by its rank and its number there."""

    rank: int
    number: int


Schedule = Sequence[Sequence[Operation]]  # by rank


class ScheduleError(ValueError):
    """A schedule that cannot be carried out; `operation` is the wrong one."""

    def __init__(self, operation: OperationId, reason: str) -> None:
        super().__init__(f"rank {operation.rank}, operation {operation.number}: {reason}")
        self.operation = operation
        self.reason = reason


def operations(schedule: Schedule) -> Iterator[tuple[OperationId, Operation]]:
    """Yield all operations, by rank."""
    for rank, own in enumerate(schedule):
        for number, operation in enumerate(own):
            yield OperationId(rank, number), operation


def matched(schedule: Schedule) -> dict[OperationId, OperationId]:
    """Return the send of each receive.

    Messages with equal ends and tag match in the order in which both ranks list them.

    Raises:
        ScheduleError: an end of a message is missing, or its ends differ in size.
    """
    sends: dict[tuple[int, int, int], deque[OperationId]] = defaultdict(deque)
    for place, operation in operations(schedule):
        if operation.kind is Kind.SEND:
            sends[place.rank, operation.peer, operation.tag].append(place)
    send_of: dict[OperationId, OperationId] = {}
    for place, operation in operations(schedule):
        if operation.kind is not Kind.RECV:
            continue
        waiting = sends[operation.peer, place.rank, operation.tag]
        if not waiting:
            raise ScheduleError(place, f"rank {operation.peer} sends no such message")
        send = send_of[place] = waiting.popleft()
        sent_bytes = schedule[send.rank][send.number].amount
        if sent_bytes != operation.amount:
            raise ScheduleError(place, f"receives {operation.amount} bytes, {sent_bytes} are sent")
    for waiting in sends.values():
        if waiting:
            peer = schedule[waiting[0].rank][waiting[0].number].peer
            raise ScheduleError(waiting[0], f"rank {peer} receives no such message")
    return send_of


def check(schedule: Schedule) -> None:
    """Raise ScheduleError for a peer or an operation that does not exist."""
    for place, operation in operations(schedule):
        if operation.kind is not Kind.CALC:
            if not 0 <= operation.peer < len(schedule):
                raise ScheduleError(place, f"no rank {operation.peer}, there are {len(schedule)}")
            if operation.peer == place.rank:
                raise ScheduleError(place, "a rank does not send to itself")
        own = schedule[place.rank]
        for number in (*operation.requires, *operation.begins_after):
            if not 0 <= number < len(own) or number == place.number:
                raise ScheduleError(place, f"cannot wait for operation {number}")


class Move(NamedTuple):
    """In `step`, rank `src` sends `blocks` to rank `dst`, which adds or stores them."""

    step: int
    src: int
    dst: int
    blocks: tuple[int, ...]
    adds: bool = False


def of_moves(moves: Iterable[Move], ranks: int, block_bytes: Sequence[int]) -> Schedule:
    """Return the schedule of `moves`.

    A rank begins a step when all its operations of the step before have ended.  In a step it sends
    before it adds.

    Args:
        moves: in any order.
        ranks: number of ranks.
        block_bytes: size of each block.
    """
    steps: list[dict[int, list[tuple[Kind, Move]]]] = [defaultdict(list) for _ in range(ranks)]
    for move in moves:
        steps[move.src][move.step].append((Kind.SEND, move))
        steps[move.dst][move.step].append((Kind.RECV, move))
    return [_of_rank(own, block_bytes) for own in steps]


def _of_rank(
    steps: dict[int, list[tuple[Kind, Move]]], block_bytes: Sequence[int]
) -> list[Operation]:
    own: list[Operation] = []
    before: tuple[int, ...] = ()
    for _, ends in sorted(steps.items()):
        first = len(own)
        ends.sort(key=lambda end: end[0] is Kind.RECV)  # stable
        sends = tuple(first + place for place, (kind, _) in enumerate(ends) if kind is Kind.SEND)
        own += [
            Operation(
                kind,
                sum(block_bytes[block] for block in move.blocks),
                peer=move.dst if kind is Kind.SEND else move.src,
                tag=move.step,
                requires=before,
                begins_after=sends if kind is Kind.RECV and move.adds else (),
                blocks=move.blocks,
                adds=kind is Kind.RECV and move.adds,
            )
            for kind, move in ends
        ]
        before = tuple(range(first, len(own)))
    return own
