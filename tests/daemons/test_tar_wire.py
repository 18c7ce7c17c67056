from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemons import tar_wire, wire
from daemons.protocol import Flow
from daemons.tar_wire import FlowProbe

WORD = st.integers(0, 2**32 - 1)
NODE = st.integers(0, 2**31 - 1)
PROBES = st.builds(
    FlowProbe,
    sender=WORD,
    target=WORD,
    flow=st.builds(Flow, WORD, WORD, st.integers(0, 255), WORD),
    token=WORD,
    attempt=WORD,
    lifetime_ms=WORD,
    verdict=st.sampled_from([wire.ASKING, wire.CONNECTED, wire.BROKEN]),
    marks=st.lists(st.integers(-2, 2**31 - 1), max_size=5).map(tuple),
    visited=st.lists(NODE, min_size=1, max_size=64).map(tuple),
)


@given(PROBES)
def test_what_is_written_is_read(probe):
    payload = tar_wire.encode(probe)
    assert tar_wire.decode(payload) == probe
    assert payload[wire.TARGET] == probe.target.to_bytes(4, "big")
    assert wire.decode(payload) is None


@given(st.binary(max_size=80))
def test_anything_else_is_garbage_or_another_message(payload):
    with suppress(wire.Garbage):
        assert tar_wire.decode(payload) is None or tar_wire.encode(tar_wire.decode(payload)) == payload


@given(PROBES, st.integers(1, 40))
def test_a_probe_cut_short_is_garbage(probe, less):
    payload = tar_wire.encode(probe)
    with pytest.raises(wire.Garbage):
        tar_wire.decode(payload[: max(3, len(payload) - less)])
    with pytest.raises(wire.Garbage):
        tar_wire.decode(payload + bytes(4))


def test_a_probe_that_visited_nobody_is_garbage():
    payload = tar_wire.encode(FlowProbe(1, 2, Flow(1, 2, 3, 4), 5, 6, 7, wire.ASKING, (0,), ()))
    with pytest.raises(wire.Garbage):
        tar_wire.decode(payload)
