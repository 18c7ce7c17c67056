from math import inf

import pytest

from daemons.core.token_bucket import Budget
from daemons.proxy.path_selection import NOT_ASKED, Paths
from daemons.proxy.probe_queue import Asking, Lane
from daemons.proxy.routing import shortest_first


def paths(ways=6):
    return Paths(9, 9, [(1, number) for number in range(ways)], 0, cost=shortest_first, hold_s=0.5, most_hold_s=30.0)


@pytest.fixture
def asking():
    return Asking(urgent=Lane(Budget(10, 2), 0.2), routine=Lane(Budget(4, 1), 2.0))


def leave(asking, now):
    question = asking.leaving(now)
    return question and question.way.number


def test_routine_questions_leave_one_by_one(asking):
    of = paths()
    asking.want(of, of.ways.values(), urgent=False)
    assert [leave(asking, 0.0) for _ in range(2)] == [0, None]
    assert leave(asking, 0.24) is None
    assert leave(asking, 0.25) == 1


def test_the_carrier_is_not_woken_for_what_is_routine(asking):
    of = paths()
    asking.want(of, of.ways.values(), urgent=False)
    asking.leaving(0.0)
    assert asking.deadline == inf


def test_the_urgent_go_first_and_within_their_own_budget(asking):
    of, broken = paths(), paths()
    asking.want(of, of.ways.values(), urgent=False)
    asking.want(broken, [broken.ways[way] for way in (3, 4, 5)], urgent=True)
    assert [leave(asking, 1.0) for _ in range(4)] == [3, 4, 0, None]
    assert asking.deadline == pytest.approx(1.1)
    assert leave(asking, 1.1) == 5


@pytest.mark.parametrize("urgent", [False, True])
def test_whatever_is_wanted_the_budget_holds(asking, urgent):
    left = 0
    for turn in range(1000):
        of = paths()
        asking.want(of, of.ways.values(), urgent=urgent)
        while question := asking.leaving(turn * 0.01):
            asking.answered(question.token)
            left += 1
    assert left == pytest.approx(10 * (10 if urgent else 4), abs=2)


def test_nobody_is_asked_twice_at_once(asking):
    of = paths()
    asking.want(of, [of.ways[2]], urgent=True)
    asking.want(of, [of.ways[2]], urgent=True)
    asking.want(of, [of.ways[2]], urgent=False)
    assert [leave(asking, now) for now in (0.0, 1.0)] == [2, None]


def test_a_routine_question_may_become_urgent(asking):
    of = paths()
    asking.want(of, [of.ways[1], of.ways[2]], urgent=False)
    asking.want(of, [of.ways[2]], urgent=True)
    assert [leave(asking, now) for now in (0.0, 0.0, 1.0, 2.0)] == [2, 1, None, None]


def test_what_has_become_known_need_not_be_asked(asking):
    of = paths()
    asking.want(of, [of.ways[2], of.ways[3]], urgent=False)
    of.connected(of.ways[2], 0)
    assert leave(asking, 0.0) == 3


def test_an_answer_that_does_not_come(asking):
    of = paths()
    asking.want(of, [of.ways[2]], urgent=True)
    question = asking.leaving(1.0)
    assert asking.deadline == pytest.approx(1.2)
    assert asking.expired(1.19) is None
    assert asking.expired(1.21) is question
    assert asking.answered(question.token) is None
    assert asking.deadline == inf


def test_the_routine_have_more_patience(asking):
    of = paths()
    asking.want(of, [of.ways[2]], urgent=False)
    question = asking.leaving(1.0)
    assert asking.expired(2.99) is None
    assert asking.expired(3.0) is question


def test_an_answer_ends_its_question(asking):
    of = paths()
    asking.want(of, [of.ways[2]], urgent=True)
    question = asking.leaving(1.0)
    assert asking.answered(question.token) is question
    assert asking.expired(9.0) is None


def test_what_is_forgotten_is_not_asked(asking):
    of, other = paths(), paths()
    asking.want(of, of.ways.values(), urgent=True)
    asking.want(other, [other.ways[5]], urgent=False)
    question = asking.leaving(0.0)
    asking.forget(of)
    assert asking.answered(question.token) is None
    assert leave(asking, 0.2) == 5


def test_when_there_is_time_for_more(asking):
    of = paths()
    assert asking.idle(0.0)
    asking.want(of, [of.ways[2]], urgent=False)
    assert not asking.idle(0.0)
    asking.leaving(0.0)
    assert [asking.idle(now) for now in (0.1, 0.25)] == [False, True]
    assert of.ways[3].asking == NOT_ASKED
