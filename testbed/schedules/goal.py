"""Schedules, and GOAL, their text: each rank's sends, receives and computations, and their order.

A send ends when its last byte has arrived.  A receive ends when its message has arrived and all
that the receive requires has ended.  Sends do not wait for their receives.

GOAL is the format of LogGOPSim and ATLAHS.

    num_ranks 2
    rank 0 {
    l1: calc 1000 cpu 0
    l2: send 64b to 1 tag 7
    l2 requires l1
    }
    rank 1 {
    l1: recv 64b from 0 tag 7
    }

Computations are in nanoseconds.  `l2 irequires l1` lets l2 begin when l1 has begun.  A receive
from any rank or with any tag (-1) is refused, because its match depends on time.

Source: Hoefler, Siebert and Lumsdaine, "Group Operation Assembly Language" (ICPP 2009), and the
scanner of LogGOPSim's txt2bin.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
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


COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
NUMBER = r"(-?[0-9]{1,15})"
NUM_RANKS = re.compile(rf"num_ranks {NUMBER}")
RANK = re.compile(rf"rank {NUMBER} ?\{{")
LABEL = r"(?:(?P<label>[a-zA-Z]\w*) ?: ?)?"
OPTIONS = rf"(?P<options>(?: (?:tag|cpu|nic) {NUMBER})*)"
OPERATION = re.compile(
    LABEL
    + r"(?:calc (?P<ns>[0-9]{1,15})"
    + r"|send (?P<sent>[0-9]{1,15}) ?b to (?P<to>[0-9]{1,15})"
    + r"|recv (?P<received>[0-9]{1,15}) ?b from (?P<source>-1|[0-9]{1,15}))"
    + OPTIONS,
    re.ASCII,
)
DEPENDENCY = re.compile(r"([a-zA-Z]\w*) (i?requires) ([a-zA-Z]\w*)", re.ASCII)
MOST_RANKS = 100_000
EXPECTED = "expected an operation such as `l1: send 8b to 1 tag 0`, `l2 requires l1`, or `}`"


class LineError(ValueError):
    """A line that is no GOAL."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(f"line {line}: {reason}")
        self.line = line
        self.reason = reason


@dataclass
class _RankReader:
    """The operations of a rank, with the line of each; dependencies by label."""

    operations: list[Operation] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    dependencies: list[tuple[int, str, str, str]] = field(default_factory=list)

    def add(self, line: int, match: re.Match[str]) -> None:
        """Add the operation of a line."""
        if label := match["label"]:
            if label in self.labels:
                first = self.lines[self.labels[label]]
                raise LineError(line, f"label {label} is taken by line {first}")
            self.labels[label] = len(self.operations)
        self.operations.append(_operation(line, match))
        self.lines.append(line)

    def resolved(self) -> list[Operation]:
        """Return the operations with their dependencies."""
        for line, later, word, earlier in self.dependencies:
            for label in (later, earlier):
                if label not in self.labels:
                    raise LineError(line, f"this rank has no label {label}")
            number, waits = self.labels[later], (self.labels[earlier],)
            operation = self.operations[number]
            if word == "requires":
                operation = operation._replace(requires=operation.requires + waits)
            else:
                operation = operation._replace(begins_after=operation.begins_after + waits)
            self.operations[number] = operation
        return self.operations


def _operation(line: int, match: re.Match[str]) -> Operation:
    words = match["options"].split()
    options = dict(zip(words[::2], map(int, words[1::2]), strict=True))
    if 2 * len(options) < len(words):
        raise LineError(line, "tag, cpu or nic is there twice")
    if match["source"] == "-1" or options.get("tag", 0) < 0:
        raise LineError(line, "any rank or any tag (-1): name them, a match must not need the time")
    if match["ns"]:
        return Operation(Kind.CALC, int(match["ns"]), **options)
    if match["sent"]:
        return Operation(Kind.SEND, int(match["sent"]), int(match["to"]), **options)
    return Operation(Kind.RECV, int(match["received"]), int(match["source"]), **options)


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the number and text of each line that has more than comments and blanks."""
    bare = COMMENT.sub(lambda match: " " + "\n" * match[0].count("\n"), text)
    for number, line in enumerate(bare.split("\n"), start=1):
        if words := line.split():
            yield number, " ".join(words)


class _Reader:
    """Reads a text line by line."""

    def __init__(self) -> None:
        self.count = 0
        self.last = 1
        self.ranks: dict[int, _RankReader] = {}
        self.current: _RankReader | None = None

    def read(self, text: str) -> Schedule:
        for line, words in _lines(text):
            self.last = line
            if self.current is not None:
                self.read_in_rank(line, words, self.current)
            elif not self.count:
                self.read_count(line, words)
            else:
                self.begin_rank(line, words)
        if self.current is not None or not self.count:
            raise LineError(
                self.last, "the last rank lacks its `}`" if self.count else "no num_ranks"
            )
        if missing := set(range(self.count)) - self.ranks.keys():
            raise LineError(self.last, f"rank {min(missing)} is missing of num_ranks {self.count}")
        schedule = [self.ranks[rank].resolved() for rank in range(self.count)]
        try:
            check(schedule)
            matched(schedule)
        except ScheduleError as error:
            line = self.ranks[error.operation.rank].lines[error.operation.number]
            raise LineError(line, error.reason) from error
        return schedule

    def read_count(self, line: int, words: str) -> None:
        match = NUM_RANKS.fullmatch(words)
        if not match or not 1 <= int(match[1]) <= MOST_RANKS:
            raise LineError(line, f"expected num_ranks and a number from 1 to {MOST_RANKS}")
        self.count = int(match[1])

    def begin_rank(self, line: int, words: str) -> None:
        match = RANK.fullmatch(words)
        if not match:
            raise LineError(line, "expected `rank NUMBER {`")
        rank = int(match[1])
        if not 0 <= rank < self.count or rank in self.ranks:
            again = "is there twice" if rank in self.ranks else f"of num_ranks {self.count}"
            raise LineError(line, f"rank {rank} {again}")
        self.current = self.ranks[rank] = _RankReader()

    def read_in_rank(self, line: int, words: str, rank: _RankReader) -> None:
        if words == "}":
            self.current = None
        elif match := OPERATION.fullmatch(words):
            rank.add(line, match)
        elif match := DEPENDENCY.fullmatch(words):
            rank.dependencies.append((line, match[1], match[2], match[3]))
        else:
            raise LineError(line, EXPECTED)


def parsed(text: str) -> Schedule:
    """Return the schedule in a text; LineError for a text that is no GOAL."""
    return _Reader().read(text)


def read(path: str | Path) -> Schedule:
    """Return the schedule in a file.

    Raises:
        ValueError: no such file, or no GOAL; one line with the file and the number of the line.
    """
    try:
        text = Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from error
    try:
        return parsed(text)
    except LineError as error:
        raise ValueError(f"{path}:{error.line}: {error.reason}") from error


def written(schedule: Schedule) -> str:
    """Return a schedule as GOAL; blocks and additions have no place there."""
    lines = [f"num_ranks {len(schedule)}"]
    for rank, own in enumerate(schedule):
        lines.append(f"rank {rank} {{")
        for number, operation in enumerate(own, start=1):
            lines.append(f"l{number}: {_words(operation)}")
            lines += [f"l{number} requires l{earlier + 1}" for earlier in operation.requires]
            lines += [f"l{number} irequires l{earlier + 1}" for earlier in operation.begins_after]
        lines.append("}")
    return "\n".join(lines) + "\n"


def _words(operation: Operation) -> str:
    keys = ("cpu",) if operation.kind is Kind.CALC else ("tag", "cpu", "nic")
    options = "".join(f" {key} {getattr(operation, key)}" for key in keys)
    if operation.kind is Kind.CALC:
        return f"calc {operation.amount}{options}"
    side = "to" if operation.kind is Kind.SEND else "from"
    return f"{operation.kind} {operation.amount}b {side} {operation.peer}{options}"
