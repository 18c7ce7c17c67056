"""GOAL is read as its grammar says, written so that it reads the same, and refused by line."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.testbed.schedules.drawn import schedules
from weft.testbed.schedules import goal
from weft.testbed.schedules.collectives import ALGORITHMS, collective
from weft.testbed.schedules.goal import Kind, Operation, Schedule

TRAINING_STEP = Path(__file__).with_name("training_step.goal")


def test_a_training_step_is_read() -> None:
    schedule = goal.read(TRAINING_STEP)
    assert [len(own) for own in schedule] == [10] * 4
    assert schedule[1][3] == Operation(
        Kind.SEND, 250_000, peer=2, tag=1, cpu=1, nic=0, requires=(1,)
    )
    assert schedule[0][9].requires == (8, 7, 2)


def test_comments_blanks_and_order_do_not_matter() -> None:
    schedule = goal.parsed(
        "/* two\nlines */ num_ranks 2\r\n\nrank 1 {\n recv\t3b from 0\t// no label\n}\n"
        "rank 0{\na requires b\na :send 3b to 1 nic 2 cpu 1\nb: calc 5 cpu 4\na irequires b\n}"
    )
    assert schedule[0] == [
        Operation(Kind.SEND, 3, peer=1, cpu=1, nic=2, requires=(1,), begins_after=(1,)),
        Operation(Kind.CALC, 5, cpu=4),
    ]
    assert schedule[1] == [Operation(Kind.RECV, 3, peer=0)]


@settings(max_examples=60, deadline=None)
@given(schedules())
def test_what_is_written_reads_the_same(schedule: Schedule) -> None:
    assert goal.parsed(goal.written(schedule)) == schedule


@pytest.mark.parametrize("operation", ALGORITHMS)
def test_collectives_are_written(operation: str) -> None:
    for name in ALGORITHMS[operation]:
        schedule = collective(operation, name, 4, 1000)
        bare = [[each._replace(blocks=(), adds=False) for each in own] for own in schedule]
        assert goal.parsed(goal.written(schedule)) == bare


HEAD = "num_ranks 2\n"
FIRST = HEAD + "rank 0 {\n"


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("", 1, "no num_ranks"),
        ("rank 0 {\n}", 1, "expected num_ranks and a number from 1 to 100000"),
        ("num_ranks 0\n", 1, "expected num_ranks and a number"),
        (HEAD + "rank 2 {\n}", 2, "rank 2 of num_ranks 2"),
        (FIRST + "}\nrank 0 {\n}", 4, "rank 0 is there twice"),
        (FIRST + "}\n", 3, "rank 1 is missing of num_ranks 2"),
        (FIRST, 2, "the last rank lacks its `}`"),
        (HEAD + "send 8b to 1", 2, "expected `rank NUMBER {`"),
        (FIRST + "l1: put 8b to 1\n}", 3, "expected an operation such as"),
        (FIRST + "// nothing\nl1: send 8 to 1\n}", 4, "expected an operation such as"),
        (FIRST + "l1: send 8b to 1 tag 1 tag 2\n}", 3, "tag, cpu or nic is there twice"),
        (FIRST + "l1: recv 8b from -1\n}", 3, "any rank or any tag"),
        (FIRST + "l1: calc 1\nl1: calc 1\n}", 4, "label l1 is taken by line 3"),
        (FIRST + "l1: calc 1\nl1 requires l2\n}\nrank 1 {\n}", 4, "this rank has no label l2"),
        (FIRST + "l1: calc 1\nl1 requires l1\n}\nrank 1 {\n}", 3, "cannot wait for operation 0"),
        (FIRST + "l1: send 8b to 2\n}\nrank 1 {\n}", 3, "no rank 2, there are 2"),
        (FIRST + "l1: send 8b to 1\n}\nrank 1 {\n}", 3, "rank 1 receives no such message"),
        (FIRST + "}\nrank 1 {\nrecv 8b from 0\n}", 5, "rank 0 sends no such message"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, text: str, line: int, reason: str) -> None:
    path = tmp_path / "trace.goal"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"^[^\n]*$") as error:
        goal.read(path)
    assert str(error.value).startswith(f"{path}:{line}: {reason}")


def test_a_file_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no\.goal: No such file or directory"):
        goal.read(tmp_path / "no.goal")


@settings(max_examples=100, deadline=None)
@given(st.text(alphabet="rank 01{}\nl:sendbtocqu/*-", max_size=80))
def test_any_text_is_read_or_refused_by_line(text: str) -> None:
    refused_line = 1
    try:
        goal.parsed(text)
    except goal.LineError as error:
        refused_line = error.line
    assert 1 <= refused_line <= text.count("\n") + 1
