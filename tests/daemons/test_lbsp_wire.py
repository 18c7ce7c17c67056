import pytest
from hypothesis import given
from hypothesis import strategies as some

from daemons import lbsp_wire, wire
from daemons.lbsp_wire import Crowding, Failure, Failures, Notice
from topologies.address import Prefix

words = some.integers(0, 0xFFFFFFFF)
octets = some.integers(0, 255)
prefixes = some.builds(Prefix, words, some.integers(0, 32))
failures = some.builds(Failure, octets, prefixes, words, some.booleans())
bodies = some.one_of(
    some.builds(Failures, some.lists(failures, max_size=20).map(tuple)), some.builds(Crowding, some.integers(0, 2))
)
notices = some.builds(Notice, words, words, words, some.integers(0, (1 << 64) - 1), words, octets, bodies)


@given(notices)
def test_notices_come_back_as_they_were(notice):
    payload = lbsp_wire.encode(notice)
    assert lbsp_wire.decode(payload) == notice
    assert wire.decode(payload) is None
    assert payload[wire.TARGET] == notice.target.to_bytes(4, "big")


@given(notices, some.data())
def test_what_is_cut_or_longer_is_garbage(notice, data):
    payload = lbsp_wire.encode(notice)
    cut = data.draw(some.integers(0, len(payload) - 1))
    for wrong in (payload[:cut], payload + b"\0"):
        with pytest.raises(wire.Garbage):
            lbsp_wire.decode(wrong)


@given(some.binary(max_size=80))
def test_anything_else_is_garbage_or_a_message(payload):
    try:
        found = lbsp_wire.decode(payload)
    except wire.Garbage:
        return
    assert found is None or lbsp_wire.encode(found) == payload


def test_values_that_mean_nothing_are_garbage():
    good = Notice(1, 2, 3, 4, 5, 2, Failures((Failure(1, Prefix(10 << 24, 24), 7, False),)))
    payload = bytearray(lbsp_wire.encode(good))
    payload[-4 - 4 - 2] = 2  # degraded
    with pytest.raises(wire.Garbage, match="degraded 2"):
        lbsp_wire.decode(bytes(payload))
    with pytest.raises(wire.Garbage, match="no state 3"):
        lbsp_wire.decode(lbsp_wire.encode(Notice(1, 2, 3, 4, 5, 1, Crowding(3))))
    assert lbsp_wire.decode(wire.encode(wire.Hello(1, 2, 3, 30, 0, ()))) is None
