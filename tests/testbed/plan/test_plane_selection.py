"""Which daemons and which data plane carry out a scheme."""

import pytest

from testbed.plan.plane_selection import carriage


def test_a_scheme_of_daemons_hands_on_what_is_the_data_planes():
    assert carriage("lbsp:hello_ms=10") == (False, "lbsp:hello_ms=10", "lbsp")
    told = carriage("lbsp:groups=4,hash=1,lifetime_ms=900")
    assert told == (False, "lbsp:groups=4,hash=1,lifetime_ms=900", "lbsp:groups=4,hash=1")
    assert carriage("dr").balancing == ""


def test_a_scheme_of_the_data_plane_has_daemons_that_tell_it_what_lives():
    assert carriage("spray:hello_ms=10") == (False, "ecmp:hello_ms=10", "spray")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("lbsp:groups=4,states=1", "states are those of two link groups, got groups=4"),
        ("lbsp:groups=3", "groups must be a power of two, got 3"),
        ("lbsp:groups=x", "groups must be an integer"),
        ("spary", "no scheme 'spary', did you mean spray"),
    ],
)
def test_what_does_not_go_together_is_refused(spec, message):
    with pytest.raises(ValueError, match=message):
        carriage(spec)
