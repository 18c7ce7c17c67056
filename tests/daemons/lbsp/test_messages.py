import codec_checks
import pytest
from hypothesis import given
from hypothesis import strategies as some

from weft.daemons.control.scoped_flooding import Notice
from weft.daemons.core import wire
from weft.daemons.lbsp import messages
from weft.daemons.lbsp.messages import Crowding, Failures, LinkFailure
from weft.topologies.core.address import Prefix

words = some.integers(0, 0xFFFFFFFF)
octets = some.integers(0, 255)
prefixes = some.builds(Prefix, words, some.integers(0, 32))
failures = some.builds(LinkFailure, octets, some.booleans(), prefixes, words)
bodies = some.one_of(
    some.builds(Failures, some.lists(failures, max_size=20).map(tuple)),
    some.builds(Crowding, some.integers(0, 2)),
)
notices = some.builds(
    Notice, words, words, words, some.integers(0, (1 << 64) - 1), words, octets, bodies
)


@given(notices)
def test_notices_come_back_as_they_were(notice):
    payload = messages.encode(notice)
    assert messages.decode(payload) == notice
    assert wire.decode(payload) is None
    assert payload[wire.TARGET] == notice.target.to_bytes(4, "big")


@given(notices, some.data())
def test_what_is_cut_or_longer_is_garbage(notice, data):
    codec_checks.requires_its_length(messages, messages.encode(notice), data)


@given(some.binary(max_size=80))
def test_anything_else_is_garbage_or_a_message(payload):
    codec_checks.takes_anything(messages, payload)


def test_values_that_mean_nothing_are_garbage():
    good = Notice(1, 2, 3, 4, 5, 2, Failures((LinkFailure(1, False, Prefix(10 << 24, 24), 7),)))
    payload = bytearray(messages.encode(good))
    payload[-4 - 4 - 2] = 2  # degraded
    with pytest.raises(wire.MalformedMessage, match="got 2"):
        messages.decode(bytes(payload))
    with pytest.raises(wire.MalformedMessage, match="got 3"):
        messages.decode(messages.encode(Notice(1, 2, 3, 4, 5, 1, Crowding(3))))
    assert messages.decode(wire.encode(wire.Hello(1, 2, 30, 0, (), 3))) is None
