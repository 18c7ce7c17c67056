"""The token bucket and the retransmission timer."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.daemons.core.contract import FlowPlacement
from weft.daemons.core.timers import RtoEstimator, TokenBucket


def token_count(bucket, until_s, every_s=1 / 64):
    """Return the number of tokens that a process gets which tries all the time."""
    return sum(bucket.take(turn * every_s) for turn in range(round(until_s / every_s)))


@pytest.mark.parametrize(("per_s", "at_once"), [(1, 1), (8, 1), (8, 4), (2.5, 10)])
def test_so_many_a_second_and_so_many_at_once(per_s, at_once):
    bucket = TokenBucket(per_s, at_once)
    assert [bucket.take(0.0) for _ in range(at_once + 1)] == [True] * at_once + [False]
    assert token_count(TokenBucket(per_s, at_once), 20.0) == pytest.approx(
        20 * per_s + at_once, abs=1.5
    )


def test_rest_is_not_saved_up_for_longer_than_that():
    bucket = TokenBucket(2, 3)
    assert token_count(bucket, 1.0) == 4
    assert [bucket.take(1000.0) for _ in range(4)] == [True, True, True, False]


def test_when_the_next_is_there():
    bucket = TokenBucket(4, 2)
    bucket.take(10.0)
    assert bucket.free_s <= 10.0
    bucket.take(10.0)
    assert bucket.free_s == 10.25
    assert not bucket.take(10.24)
    assert bucket.take(10.25)


@given(st.floats(0, 1e4), st.sampled_from([0.01, 0.5, 3.0]), st.floats(0.01, 1))
def test_reports_of_flows_come_once_a_period_at_its_fraction(now, period_s, phase_fraction):
    placement = FlowPlacement(period_s, phase_fraction, idle_s=1.0)
    next_s = placement.next_s(now)
    assert -2e-6 < (next_s - now) / period_s - 1e-6 <= 1 + 1e-6
    assert placement.turn(next_s) == placement.turn(now) + 1
    fraction = next_s / period_s - phase_fraction
    assert fraction == pytest.approx(round(fraction), abs=1e-6)


def estimated_wait_s(*took_s, least_s=0.01, most_s=1.0):
    estimator = RtoEstimator(least_s, most_s)
    for duration_s in took_s:
        estimator.heard(duration_s)
    return estimator.wait_s


def test_one_waits_as_long_as_one_may_while_nothing_is_known():
    assert estimated_wait_s() == 1.0


def test_one_waits_a_few_times_what_answers_take_less_the_steadier_they_are():
    assert estimated_wait_s(0.1) == 0.1 + 4 * 0.05
    assert 0.1 < estimated_wait_s(*[0.1] * 50) < 0.101
    assert estimated_wait_s(*[0.05, 0.15] * 50) > 0.25


def test_the_wait_is_that_of_rfc_6298():
    """Section 2, by hand: SRTT 0.1 and RTTVAR 0.05; then for 0.2 RTTVAR 3/4 0.05 + 1/4 0.1."""
    assert estimated_wait_s(0.1, 0.2) == pytest.approx(0.1125 + 4 * 0.0625)
    deviation_s = 0.75 * 0.0625 + 0.25 * (0.1125 - 0.04)
    smoothed_s = 0.875 * 0.1125 + 0.125 * 0.04
    assert estimated_wait_s(0.1, 0.2, 0.04) == pytest.approx(smoothed_s + 4 * deviation_s)


def test_the_least_and_the_most_hold():
    assert estimated_wait_s(*[0.0001] * 50) == 0.01
    assert estimated_wait_s(30.0) == 1.0
