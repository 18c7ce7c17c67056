from math import inf
from types import SimpleNamespace

import pytest

from weft.daemons.core.timers import TokenBucket
from weft.daemons.proxy.path_selection import NOT_ASKED, URGENT, Paths
from weft.daemons.proxy.probe import MOST_OVERDUE, Lane, ProbeQueue
from weft.daemons.proxy.routing import shortest_first


def paths(ways=6):
    return Paths(
        9,
        9,
        [(1, number) for number in range(ways)],
        0,
        SimpleNamespace(cost=shortest_first, hold_s=0.5, most_hold_s=30.0),
    )


@pytest.fixture
def queue():
    return ProbeQueue(urgent=Lane(TokenBucket(10, 2), 0.2), routine=Lane(TokenBucket(4, 1), 2.0))


def leave(queue, now):
    question = queue.leaving(now)
    return question and question.path.number


def test_routine_questions_leave_one_by_one(queue):
    candidates = paths()
    queue.want(candidates, candidates.candidates.values(), urgent=False)
    assert [leave(queue, 0.0) for _ in range(2)] == [0, None]
    assert leave(queue, 0.24) is None
    assert leave(queue, 0.25) == 1


def test_the_carrier_is_not_woken_for_what_is_routine(queue):
    candidates = paths()
    queue.want(candidates, candidates.candidates.values(), urgent=False)
    queue.leaving(0.0)
    assert queue.deadline == inf


def test_the_urgent_go_first_and_within_their_own_budget(queue):
    candidates, broken = paths(), paths()
    queue.want(candidates, candidates.candidates.values(), urgent=False)
    queue.want(broken, [broken.candidates[way] for way in (3, 4, 5)], urgent=True)
    assert [leave(queue, 1.0) for _ in range(4)] == [3, 4, 0, None]
    assert queue.deadline == pytest.approx(1.1)
    assert leave(queue, 1.1) == 5


@pytest.mark.parametrize("urgent", [False, True])
def test_whatever_is_wanted_the_budget_holds(queue, urgent):
    left = 0
    for turn in range(1000):
        candidates = paths()
        queue.want(candidates, candidates.candidates.values(), urgent=urgent)
        while question := queue.leaving(turn * 0.01):
            queue.answered(question.token, turn * 0.01)
            left += 1
    assert left == pytest.approx(10 * (10 if urgent else 4), abs=2)


def test_nobody_is_asked_twice_at_once(queue):
    candidates = paths()
    queue.want(candidates, [candidates.candidates[2]], urgent=True)
    queue.want(candidates, [candidates.candidates[2]], urgent=True)
    queue.want(candidates, [candidates.candidates[2]], urgent=False)
    assert [leave(queue, now) for now in (0.0, 1.0)] == [2, None]


def test_a_routine_question_may_become_urgent(queue):
    candidates = paths()
    queue.want(candidates, [candidates.candidates[1], candidates.candidates[2]], urgent=False)
    queue.want(candidates, [candidates.candidates[2]], urgent=True)
    assert [leave(queue, now) for now in (0.0, 0.0, 1.0, 2.0)] == [2, 1, None, None]


def test_what_has_become_known_need_not_be_asked(queue):
    candidates = paths()
    queue.want(candidates, [candidates.candidates[2], candidates.candidates[3]], urgent=False)
    candidates.connected(candidates.candidates[2], 0)
    assert leave(queue, 0.0) == 3


def test_an_answer_that_does_not_come(queue):
    candidates = paths()
    queue.want(candidates, [candidates.candidates[2]], urgent=True)
    question = queue.leaving(1.0)
    assert queue.deadline == pytest.approx(1.2)
    assert queue.expired(1.19) is None
    assert queue.expired(1.21) is question
    assert queue.answered(question.token, 1.25) is None
    assert queue.deadline == inf


def test_answers_that_come_too_late_make_later_questions_wait_longer(queue):
    candidates = paths()
    queue.want(candidates, [candidates.candidates[2]], urgent=True)
    late = queue.leaving(1.0)
    assert queue.expired(1.2) is late
    assert queue.answered(late.token, 2.0) is None
    candidates.candidates[2].asking = NOT_ASKED
    queue.want(candidates, [candidates.candidates[2]], urgent=True)
    question = queue.leaving(3.0)
    assert queue.expired(4.0) is None
    assert queue.answered(question.token, 4.0) is question
    for now in range(5, 200):  # in time again
        candidates.candidates[2].asking = NOT_ASKED
        queue.want(candidates, [candidates.candidates[2]], urgent=True)
        queue.answered(queue.leaving(now).token, now + 0.001)
    assert queue._lanes[URGENT].timer.wait_s == 0.2


def test_no_more_questions_that_are_overdue_are_remembered_than_there_is_room_for(queue):
    for now in range(2 * MOST_OVERDUE):
        candidates = paths()
        queue.want(candidates, [candidates.candidates[2]], urgent=True)
        queue.leaving(now)
        assert queue.expired(now + 0.5)
    assert len(queue._lanes[URGENT].overdue) == MOST_OVERDUE


def test_the_routine_wait_longer(queue):
    candidates = paths()
    queue.want(candidates, [candidates.candidates[2]], urgent=False)
    question = queue.leaving(1.0)
    assert queue.expired(2.99) is None
    assert queue.expired(3.0) is question


def test_an_answer_ends_its_question(queue):
    candidates = paths()
    queue.want(candidates, [candidates.candidates[2]], urgent=True)
    question = queue.leaving(1.0)
    assert queue.answered(question.token, 1.1) is question
    assert queue.expired(9.0) is None


def test_what_is_forgotten_is_not_asked(queue):
    candidates, other = paths(), paths()
    queue.want(candidates, candidates.candidates.values(), urgent=True)
    queue.want(other, [other.candidates[5]], urgent=False)
    question = queue.leaving(0.0)
    queue.forget(candidates)
    assert queue.answered(question.token, 0.1) is None
    assert leave(queue, 0.2) == 5


def test_when_there_is_time_for_more(queue):
    candidates = paths()
    assert queue.idle(0.0)
    queue.want(candidates, [candidates.candidates[2]], urgent=False)
    assert not queue.idle(0.0)
    queue.leaving(0.0)
    assert [queue.idle(now) for now in (0.1, 0.25)] == [False, True]
    assert candidates.candidates[3].asking == NOT_ASKED
