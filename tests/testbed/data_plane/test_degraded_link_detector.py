"""Which ports a meter finds slow, by what they sent and what waited."""

from weft.testbed.data_plane.capabilities import HOLD_S, DegradedLinkDetector

RATE_BPS = 8_000_000  # a million bytes a second
PORTS = (4, 5)


def looks(meter, *found, every_s=0.1, first_s=0.0):
    """Return the result of each look at port 4; port 5 is idle."""
    return [
        meter.judge({4: (sent, waits), 5: (0, 0)}, first_s + i * every_s)
        for i, (sent, waits) in enumerate(found)
    ]


def test_a_backlogged_port_that_sends_less_is_degraded_at_the_second_look():
    meter = DegradedLinkDetector(PORTS, RATE_BPS)
    assert looks(meter, (0, 150_000), (50_000, 150_000), (100_000, 150_000)) == [{}, {}, {4: True}]


def test_a_port_that_sends_at_its_rate_is_sound():
    meter = DegradedLinkDetector(PORTS, RATE_BPS)
    assert (
        looks(meter, (0, 150_000), (99_000, 150_000), (198_000, 150_000), (270_000, 150_000))
        == [{}] * 4
    )


def test_a_port_that_may_have_run_empty_is_not_judged():
    meter = DegradedLinkDetector(PORTS, RATE_BPS)
    assert looks(meter, (0, 90_000), (50_000, 90_000), (100_000, 90_000), (150_000, 0)) == [{}] * 4


def test_one_slow_look_is_not_enough():
    meter = DegradedLinkDetector(PORTS, RATE_BPS)
    assert (
        looks(meter, (0, 150_000), (50_000, 150_000), (150_000, 150_000), (200_000, 150_000))
        == [{}] * 4
    )


def test_a_degraded_port_is_tried_again():
    meter = DegradedLinkDetector(PORTS, RATE_BPS)
    looks(meter, (0, 150_000), (50_000, 150_000), (100_000, 150_000))
    assert looks(meter, (100_000, 0), (100_000, 0), first_s=0.3) == [{}, {}]
    assert looks(meter, (100_000, 150_000), first_s=0.2 + HOLD_S) == [{4: False}]
    assert looks(meter, (150_000, 150_000), (200_000, 0), first_s=0.3 + HOLD_S) == [{}, {4: True}]
