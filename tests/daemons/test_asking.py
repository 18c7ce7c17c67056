from math import inf

import pytest

from daemons.asking import Asking
from daemons.paths import Paths
from daemons.routing.proxy import shortest_first


def paths(ways=6):
    return Paths(9, 9, [(1, number) for number in range(ways)], 0, cost=shortest_first, hold_s=0.5)


@pytest.fixture
def asking():
    return Asking(patience_s=0.2, gap_s=0.01)


def leave(asking, now):
    question = asking.leaving(now)
    return question and question.way.number


def test_one_question_at_a_time(asking):
    of = paths()
    asking.want(of, of.ways.values(), urgent=False)
    assert [leave(asking, 0.0) for _ in range(3)] == [0, None, None]
    assert asking.deadline == 0.2


def test_the_rest_is_four_times_what_the_answer_took(asking):
    of = paths()
    asking.want(of, of.ways.values(), urgent=False)
    question = asking.leaving(1.0)
    assert asking.answered(question.token, 1.05) is question
    assert asking.deadline == pytest.approx(1.25)
    assert leave(asking, 1.24) is None
    assert leave(asking, 1.26) == 1


def test_answers_that_take_no_time_still_leave_a_gap(asking):
    of = paths()
    asking.want(of, of.ways.values(), urgent=False)
    asking.answered(asking.leaving(1.0).token, 1.0)
    assert asking.deadline == pytest.approx(1.01)


def test_the_urgent_go_first_and_rest_less(asking):
    of, broken = paths(), paths()
    asking.want(of, of.ways.values(), urgent=False)
    asking.answered(asking.leaving(1.0).token, 1.05)
    asking.want(broken, [broken.ways[3]], urgent=True)
    assert asking.deadline == pytest.approx(1.1)
    assert asking.leaving(1.11).paths is broken


def test_nobody_is_asked_twice_at_once(asking):
    of = paths()
    asking.want(of, [of.ways[2]], urgent=False)
    asking.want(of, [of.ways[2]], urgent=True)
    asking.answered(asking.leaving(0.0).token, 0.0)
    assert leave(asking, 1.0) is None


def test_what_has_become_known_need_not_be_asked(asking):
    of = paths()
    asking.want(of, [of.ways[2], of.ways[3]], urgent=False)
    of.connected(of.ways[2], 0)
    assert leave(asking, 0.0) == 3


def test_an_answer_that_does_not_come(asking):
    of = paths()
    asking.want(of, [of.ways[2]], urgent=False)
    question = asking.leaving(1.0)
    assert asking.expired(1.19) is None
    assert asking.expired(1.21) is question
    assert asking.answered(question.token, 1.3) is None
    assert asking.deadline == inf


def test_what_is_forgotten_is_not_asked(asking):
    of, other = paths(), paths()
    asking.want(of, of.ways.values(), urgent=True)
    asking.want(other, [other.ways[5]], urgent=False)
    question = asking.leaving(0.0)
    asking.forget(of)
    assert asking.answered(question.token, 0.1) is None
    assert leave(asking, 0.2) == 5
