"""Messages of every type with any values that they may have, for hypothesis to draw; and as their
codecs write them."""

from __future__ import annotations

from hypothesis import strategies as st

from weft.daemons.control.scoped_flooding import Notice
from weft.daemons.core import wire
from weft.daemons.core.actions import FiveTuple
from weft.daemons.dar import daemon as dar
from weft.daemons.lbsp import messages as lbsp
from weft.daemons.tar import messages as tar
from weft.topologies.core.address import Prefix

U8, U16, U32, U64 = (st.integers(0, (1 << bits) - 1) for bits in (8, 16, 32, 64))
I31 = st.integers(0, (1 << 31) - 1)
PATH = st.lists(U32, min_size=1, max_size=20).map(tuple)
FLOW = st.builds(FiveTuple, U32, U32, U8, U32)
PAIRS = st.lists(st.tuples(U32, U64), max_size=20).map(tuple)
HEARD = st.builds(
    wire.Hello, U32, st.integers(0, (1 << 63) - 1), st.integers(1, 10_000), U64, PAIRS, U32
)
LINKS = st.lists(st.tuples(U16, U32), max_size=10).map(wire.pack_links)
TOLD = st.builds(wire.Advertisement, U32, U64, U32, LINKS)
STATES = st.builds(wire.LinkStates, U32, st.lists(TOLD, max_size=6).map(tuple))
ENTRIES = st.lists(st.tuples(U32, U64, U32), max_size=20).map(tuple)
SUMMARY = st.builds(wire.Summary, U32, U32, U32, U32, ENTRIES)
PROBE = st.builds(wire.Probe, *[U32] * 5, U16, U32, st.integers(0, 2), st.integers(0, 1), PATH)
DIED = st.builds(wire.HopDied, U32, U32, U32, U32, PATH)
FAILURE = st.builds(
    lbsp.LinkFailure, U8, st.booleans(), st.builds(Prefix, U32, st.integers(0, 32)), U32
)
FAILURES = st.builds(lbsp.Failures, st.lists(FAILURE, max_size=9).map(tuple))
NOTICE = st.builds(
    Notice, U32, U32, U32, U64, U32, U8, FAILURES | st.builds(lbsp.Crowding, st.integers(0, 2))
)
MARKS = st.lists(st.integers(-1, (1 << 31) - 1), max_size=9).map(tuple)
NODES = st.lists(I31, min_size=1, max_size=9).map(tuple)
FLOW_PROBE = st.builds(
    tar.FlowProbe, U32, U32, FLOW, U32, U32, U32, st.integers(0, 2), MARKS, NODES
)
BREAKS = st.tuples(U32, U32, st.lists(st.tuples(FLOW, U32), min_size=1, max_size=9))


@st.composite
def ears(draw: st.DrawFn) -> dar.Ear:
    spines = draw(st.integers(0, dar.MOST_SPINES))
    room = draw(st.integers(0, (1 << spines) - 1))
    return dar.Ear(
        *(draw(U32) for _ in range(4)), draw(U64), draw(FLOW), draw(U32), draw(U16), spines, room
    )


ENCODED = (
    (HEARD | STATES | SUMMARY | PROBE | DIED).map(wire.encode)
    | NOTICE.map(lbsp.encode)
    | ears().map(dar.encode)
    | FLOW_PROBE.map(tar.encode)
    | BREAKS.map(lambda drawn: tar.breaks(*drawn)[0])
)
