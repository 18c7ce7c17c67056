from contextlib import suppress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from weft.daemons.core import wire
from weft.daemons.core.actions import FiveTuple
from weft.daemons.tar import messages
from weft.daemons.tar.messages import FlowBreaks, FlowProbe

WORD = st.integers(0, 2**32 - 1)
NODE = st.integers(0, 2**31 - 1)
FLOWS = st.builds(FiveTuple, WORD, WORD, st.integers(0, 255), WORD)
PROBES = st.builds(
    FlowProbe,
    sender=NODE,
    target=NODE,
    flow=FLOWS,
    token=WORD,
    attempt=WORD,
    lifetime_ms=WORD,
    verdict=st.sampled_from([wire.ASKING, wire.CONNECTED, wire.BROKEN]),
    marks=st.lists(st.integers(-2, 2**31 - 1), max_size=5).map(tuple),
    visited=st.lists(NODE, min_size=1, max_size=64).map(tuple),
)


@given(PROBES)
def test_what_is_written_is_read(probe):
    payload = messages.encode(probe)
    assert messages.decode(payload) == probe
    assert payload[wire.TARGET] == probe.target.to_bytes(4, "big")
    assert wire.decode(payload) is None


@given(PROBES, NODE, NODE)
def test_what_is_passed_on_differs_in_who_speaks_to_whom(probe, sender, target):
    passed = messages.passed_on(messages.encode(probe), sender, target)
    assert passed == messages.encode(probe._replace(sender=sender, target=target))


@example(1, 2, [(FiveTuple(1, 2, 3, 4), 5)] * (messages.MOST_BREAKS + 1))
@given(NODE, NODE, st.lists(st.tuples(FLOWS, WORD), min_size=1, max_size=3 * messages.MOST_BREAKS))
def test_breaks_are_read_as_written_each_message_within_a_frame(sender, target, flows):
    payloads = messages.breaks(sender, target, flows)
    message = [messages.decode(payload) for payload in payloads]
    assert [flow for part in message for flow in part.flows] == flows
    assert len(payloads) == -(-len(flows) // messages.MOST_BREAKS)
    for payload, part in zip(payloads, message, strict=True):
        assert (part.sender, part.target) == (sender, target)
        assert payload[wire.TARGET] == target.to_bytes(4, "big")
        assert len(payload) <= 1472
        assert wire.decode(payload) is None
        with pytest.raises(wire.MalformedMessage):
            messages.decode(payload[:-1])


@given(st.binary(max_size=80))
def test_anything_else_is_garbage_or_another_message(payload):
    with suppress(wire.MalformedMessage):
        message = messages.decode(payload)
        if isinstance(message, FlowBreaks):
            assert messages.breaks(*message) == [payload]
        else:
            assert message is None or messages.encode(message) == payload


@given(PROBES, st.integers(1, 40))
def test_a_probe_cut_short_is_garbage(probe, less):
    payload = messages.encode(probe)
    with pytest.raises(wire.MalformedMessage):
        messages.decode(payload[: max(3, len(payload) - less)])
    with pytest.raises(wire.MalformedMessage):
        messages.decode(payload + bytes(4))


def test_a_probe_that_visited_nobody_is_garbage():
    payload = messages.encode(
        FlowProbe(1, 2, FiveTuple(1, 2, 3, 4), 5, 6, 7, wire.ASKING, (0,), ())
    )
    with pytest.raises(wire.MalformedMessage):
        messages.decode(payload)
