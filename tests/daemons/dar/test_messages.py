import codec_checks
import pytest
from hypothesis import given
from hypothesis import strategies as some

from weft.daemons.core import wire
from weft.daemons.core.actions import FiveTuple
from weft.daemons.dar import daemon
from weft.daemons.dar.daemon import MOST_SPINES, Ear

words, octets = some.integers(0, 0xFFFFFFFF), some.integers(0, 255)
flows = some.builds(FiveTuple, words, words, octets, words)


@some.composite
def ears(draw):
    spines = draw(some.integers(0, MOST_SPINES))
    fields = [draw(words) for _ in range(4)]
    sequence = draw(some.integers(0, (1 << 64) - 1))
    room = draw(some.integers(0, (1 << spines) - 1))
    return Ear(
        *fields, sequence, draw(flows), draw(words), draw(some.integers(0, 0xFFFF)), spines, room
    )


@given(ears())
def test_requests_come_back_as_they_were(ear):
    payload = daemon.encode(ear)
    assert daemon.decode(payload) == ear
    assert wire.decode(payload) is None
    assert payload[wire.TARGET] == ear.target.to_bytes(4, "big")
    assert payload[2] >= wire.FIRST_TARGETED


@given(ears(), some.data())
def test_what_is_cut_or_longer_is_garbage(ear, data):
    codec_checks.requires_its_length(daemon, daemon.encode(ear), data)


@given(some.binary(max_size=80))
def test_anything_else_is_garbage_or_a_message(payload):
    codec_checks.takes_anything(daemon, payload)


def test_a_map_names_no_spine_that_there_is_not():
    payload = bytearray(
        daemon.encode(Ear(1, 2, 3, 4, 5, FiveTuple(6, 7, 8, 9), 10, 3, 6, 0b111111))
    )
    payload[-1] = 1 << 6
    with pytest.raises(wire.MalformedMessage, match="room has more than 6 bits"):
        daemon.decode(bytes(payload))
    assert daemon.decode(wire.encode(wire.Hello(1, 2, 30, 0, (), 3))) is None
