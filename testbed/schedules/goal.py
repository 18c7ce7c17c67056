"""GOAL, the textual schedules of LogGOPSim and ATLAHS: reader and writer.

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
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from weft.testbed.schedules.schedule import (
    Kind,
    Operation,
    Schedule,
    ScheduleError,
    check,
    matched,
)

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
