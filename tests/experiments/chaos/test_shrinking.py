"""Delta debugging, against trying every part."""

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.experiments.chaos.campaign import Campaign, FaultEvent
from weft.experiments.chaos.shrinking import fewer, shrink

EVENTS = tuple(FaultEvent(0.5 * number, "down", f"link {number}") for number in range(12))


@given(st.lists(st.sets(st.integers(0, 11), max_size=4), min_size=1, max_size=3))
@settings(max_examples=150)
def test_none_of_the_events_that_are_left_can_be_left_out(causes):
    """It fails where all events of one of `causes` happen."""

    def still(events):
        return any({EVENTS[number] for number in cause} <= set(events) for cause in causes)

    left = fewer(EVENTS, still)
    assert still(left)
    assert not any(still(part) for part in combinations(left, max(len(left) - 1, 0)) if left)
    if len(causes) == 1:
        assert list(left) == [EVENTS[number] for number in sorted(causes[0])]


def test_times_become_shorter_as_far_as_they_may():
    def fails(one):
        at = {event.where: event.at_s for event in one.events}
        return {"link 3", "link 7"} <= at.keys() and at["link 7"] - at["link 3"] >= 1.0

    found = shrink(Campaign("t", "r", EVENTS, 5), fails)
    assert [(event.where, event.at_s) for event in found.events] == [
        ("link 3", 0.0),
        ("link 7", 1.0),
    ]
    assert (found.topology, found.routing, found.seed) == ("t", "r", 5)


def test_no_more_is_tried_than_asked_for():
    tried = []
    campaign = Campaign("t", "r", EVENTS)

    def fails(one):
        tried.append(one)
        return len(one.events) > 10

    assert fails(shrink(campaign, fails, most_tries=5))
    assert len(tried) == 6


@pytest.mark.parametrize("count", [0, 1])
def test_what_fails_whatever_happens_needs_no_events(count):
    assert shrink(Campaign("t", "r", EVENTS[:count]), lambda one: True).events == ()
