import pytest

from daemons.core.token_bucket import Budget


def taken(budget, until_s, every_s=1 / 64):
    """How often something could be taken, trying all the time."""
    return sum(budget.take(turn * every_s) for turn in range(round(until_s / every_s)))


@pytest.mark.parametrize(("per_s", "at_once"), [(1, 1), (8, 1), (8, 4), (2.5, 10)])
def test_so_many_a_second_and_so_many_at_once(per_s, at_once):
    budget = Budget(per_s, at_once)
    assert [budget.take(0.0) for _ in range(at_once + 1)] == [True] * at_once + [False]
    assert taken(Budget(per_s, at_once), 20.0) == pytest.approx(20 * per_s + at_once, abs=1.5)


def test_rest_is_not_saved_up_for_longer_than_that():
    budget = Budget(2, 3)
    assert taken(budget, 1.0) == 4
    assert [budget.take(1000.0) for _ in range(4)] == [True, True, True, False]


def test_when_the_next_is_there():
    budget = Budget(4, 2)
    budget.take(10.0)
    assert budget.free_s <= 10.0
    budget.take(10.0)
    assert budget.free_s == 10.25
    assert not budget.take(10.24)
    assert budget.take(10.25)
