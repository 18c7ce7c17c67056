"""Tasks begin when all that they wait for has ended, and no earlier."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.testbed.schedules.drawn import schedules
from weft.testbed.schedules import goal
from weft.testbed.schedules.goal import Kind, OperationId, Schedule, ScheduleError, matched
from weft.testbed.schedules.tasks import NEVER, Progress, TaskGraph

TRAINING_STEP = Path(__file__).with_name("training_step.goal")


def replay(graph: TaskGraph, transit_ns: dict[tuple[int, int], int]) -> Progress:
    """Return the progress where a message takes the time of its rank and number."""
    progress = Progress(graph)
    under_way = progress.begin()
    while under_way:
        start = under_way.pop()
        place = graph.tasks[start.task].operation
        under_way += progress.ended(start.task, start.time_ns + transit_ns.get(place, 0))
    return progress


def slow_ends(schedule: Schedule, transit_ns: dict) -> dict[OperationId, int]:
    """Return the end of each operation, by its definition."""
    send_of = matched(schedule)

    def begin(place: OperationId) -> int:
        operation = schedule[place.rank][place.number]
        ends = [end(OperationId(place.rank, number)) for number in operation.requires]
        begins = [begin(OperationId(place.rank, number)) for number in operation.begins_after]
        return max([0, *ends, *begins])

    def end(place: OperationId) -> int:
        operation = schedule[place.rank][place.number]
        if operation.kind is Kind.CALC:
            return begin(place) + operation.amount
        if operation.kind is Kind.SEND:
            return begin(place) + transit_ns[place]
        return max(begin(place), end(send_of[place]))

    return {
        OperationId(rank, number): end(OperationId(rank, number))
        for rank, own in enumerate(schedule)
        for number in range(len(own))
    }


@settings(max_examples=60, deadline=None)
@given(schedules(), st.randoms(use_true_random=False))
def test_ends_are_those_of_the_definition(schedule: Schedule, chance) -> None:
    transit_ns = {
        OperationId(rank, number): chance.randrange(1000)
        for rank, own in enumerate(schedule)
        for number in range(len(own))
    }
    graph = TaskGraph(schedule, range(len(schedule)))
    progress = replay(graph, transit_ns)
    ends = {
        task.operation: end_ns
        for task, end_ns in zip(graph.tasks, progress.end_ns, strict=True)
        if task.operation
    }
    slow = slow_ends(schedule, transit_ns)
    assert ends == slow
    assert progress.left == 0
    (times,) = progress.times_ns()
    assert times == [
        max([end_ns for place, end_ns in slow.items() if place.rank == rank], default=0)
        for rank in range(len(schedule))
    ]


def test_messages_hide_behind_the_computation_of_a_training_step() -> None:
    """The critical path is f1, b2, b1, u until the three messages take longer than b1."""
    schedule = goal.read(TRAINING_STEP)
    for transit_ns, step_ns in ((0, 1_150_000), (130_000, 1_150_000), (150_000, 1_200_000)):
        transits = {(rank, number): transit_ns for rank in range(4) for number in range(10)}
        progress = replay(TaskGraph(schedule, range(4), 3), transits)
        assert progress.times_ns() == [[step_ns] * 4] * 3


def test_an_iteration_begins_when_all_ranks_have_ended_the_one_before() -> None:
    schedule = goal.parsed("num_ranks 2\nrank 0 {\ncalc 100\n}\nrank 1 {\ncalc 7\n}\n")
    graph = TaskGraph(schedule, range(2), 2)
    progress = replay(graph, {})
    assert progress.times_ns() == [[100, 7], [100, 7]]
    assert [progress.end_ns[begin] for begin in graph.begins] == [0, 100]


@pytest.mark.parametrize(("iterations", "marks"), [(1, [1]), (2, [1, 2]), (3, [1, 3])])
def test_the_end_of_the_first_iteration_and_of_all_are_marked(iterations, marks) -> None:
    graph = TaskGraph(goal.read(TRAINING_STEP), range(4), iterations)
    whole: list[int] = []  # iterations that had ended at each mark

    def mark() -> None:
        ends = [
            {
                end_ns
                for task, end_ns in zip(graph.tasks, progress.end_ns, strict=True)
                if task.operation and task.iteration == iteration
            }
            for iteration in range(iterations)
        ]
        whole.append(sum(NEVER not in end for end in ends))
        assert all(end == {NEVER} for end in ends[whole[-1] :])

    progress = Progress(graph, mark)
    under_way = progress.begin()
    while under_way:
        start = under_way.pop(0)
        under_way += progress.ended(start.task, start.time_ns + 1)
    assert whole == marks


def test_a_rank_that_has_not_ended_has_no_time() -> None:
    schedule = goal.parsed("num_ranks 2\nrank 0 {\nsend 1b to 1\n}\nrank 1 {\nrecv 1b from 0\n}")
    progress = Progress(TaskGraph(schedule, range(2)))
    (start,) = progress.begin()
    assert progress.times_ns() == [[None, None]]
    progress.ended(start.task, 5)
    assert progress.times_ns() == [[5, 5]]
    assert NEVER not in progress.end_ns


@pytest.mark.parametrize("word", ["requires", "irequires"])
def test_ranks_that_wait_for_each_other_are_refused(word: str) -> None:
    rank = "rank {} {{\ns: send 1b to {}\nr: recv 1b from {}\ns requires r\n}}\n"
    text = "num_ranks 2\n" + rank.format(0, 1, 1) + rank.format(1, 0, 0)
    with pytest.raises(ScheduleError, match="rank 0, operation 0: waits for an operation that"):
        TaskGraph(goal.parsed(text), range(2))
    own = f"num_ranks 1\nrank 0 {{\na: calc 1\nb: calc 1\na {word} b\nb {word} a\n}}"
    with pytest.raises(ScheduleError, match="rank 0, operation 0"):
        TaskGraph(goal.parsed(own), range(1))
