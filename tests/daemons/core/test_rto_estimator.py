"""The time to wait for an answer."""

from weft.daemons.core.rto_estimator import RtoEstimator


def after(*took_s, least_s=0.01, most_s=1.0):
    estimator = RtoEstimator(least_s, most_s)
    for each in took_s:
        estimator.heard(each)
    return estimator.wait_s


def test_one_waits_as_long_as_one_may_while_nothing_is_known():
    assert after() == 1.0


def test_one_waits_a_few_times_what_answers_take_less_the_steadier_they_are():
    assert after(0.1) == 0.1 + 4 * 0.05
    assert 0.1 < after(*[0.1] * 50) < 0.101
    assert after(*[0.05, 0.15] * 50) > 0.25


def test_the_least_and_the_most_hold():
    assert after(*[0.0001] * 50) == 0.01
    assert after(30.0) == 1.0
