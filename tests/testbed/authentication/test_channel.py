"""Two ends of a link, and what somebody between them may try."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.daemons.core import wire
from weft.testbed.authentication.channel import (
    COOKIE_BYTES,
    FORGED,
    MESSAGES_AT_ONCE,
    MESSAGES_PER_S,
    OVERHEAD_BYTES,
    REPLAYED,
    STRANGE,
    TAG_BYTES,
    TOO_MANY,
    WINDOW,
    Bare,
    Sealed,
)
from weft.testbed.authentication.sequence_file import Row, words

KEY, OTHER = b"k" * 32, b"o" * 32


def row(near: tuple[int, ...]) -> Row:
    return Row(memoryview(bytearray(8 * words([len(near)]))).cast("Q"), {0: near})


def end(
    node: int, near: tuple[int, ...], *, link: int = 7, keys: tuple[bytes, ...] = (KEY,), at: Row | None = None
) -> Sealed:
    return Sealed(node, 0, link, keys, at or row(near))


def test_what_one_end_seals_the_other_opens_once() -> None:
    near, far = end(1, (2,)), end(2, (1,))
    for payload in (b"", b"hello", bytes(1400)):
        frame = near.seal(payload)
        assert len(frame) == len(payload) + OVERHEAD_BYTES
        assert frame[-TAG_BYTES - COOKIE_BYTES : -TAG_BYTES] == far.cookies[0]
        assert far.open(frame, 0.0) == payload
        assert far.open(frame, 0.0) is None
    assert far.dropped == {REPLAYED: 3}


@given(st.binary(max_size=60), st.integers(0, 10_000), st.integers(1, 255))
def test_no_bit_can_be_changed_and_nothing_cut_off(payload: bytes, at: int, flip: int) -> None:
    near, far = end(1, (2,)), end(2, (1,))
    frame = bytearray(near.seal(payload))
    frame[at % len(frame)] ^= flip
    assert far.open(bytes(frame), 0.0) is None
    sound = near.seal(payload)
    for cut in (sound[:-1], sound[1:], sound + b"\0", b"", sound[-TAG_BYTES:], sound[:TAG_BYTES]):
        assert far.open(cut, 0.0) is None
    assert far.dropped == {FORGED: 7}
    assert far.open(sound, 0.0) == payload


def test_what_was_said_on_another_link_by_a_stranger_or_by_the_hearer_is_nothing() -> None:
    far = end(2, (1,))
    assert far.open(end(1, (2,), link=8).seal(b"of another link"), 0.0) is None
    assert far.open(end(1, (2,), keys=(OTHER,)).seal(b"of another run"), 0.0) is None
    assert far.open(end(3, (2,)).seal(b"of a stranger"), 0.0) is None
    assert far.open(far.seal(b"back to its sender"), 0.0) is None
    assert far.dropped == {FORGED: 2, STRANGE: 2}


@given(st.lists(st.integers(0, 3 * WINDOW), max_size=60), st.randoms())
def test_messages_may_overtake_each_other_within_the_window_and_each_is_taken_once(
    order: list[int], draw: random.Random
) -> None:
    near, far = end(1, (2,)), end(2, (1,))
    frames = [near.seal(b"%d" % number) for number in range(3 * WINDOW + 1)]
    taken: set[int] = set()
    largest = 0  # numbers begin at 1
    for number in order:
        new = number not in taken and number + 1 > largest - WINDOW
        assert (far.open(frames[number], draw.random()) is not None) == new
        if new:
            taken.add(number)
            largest = max(largest, number + 1)


def test_who_starts_again_believes_nothing_that_was_said_before_and_is_believed() -> None:
    near_row, far_row = row((2,)), row((1,))
    near, far = end(1, (2,), at=near_row), end(2, (1,), at=far_row)
    frames = [near.seal(b"%d" % number) for number in range(5)]
    for frame in (frames[0], frames[2]):
        assert far.open(frame, 0.0) is not None
    again = end(2, (1,), at=far_row)
    assert [again.open(frame, 0.0) is not None for frame in frames] == [False, False, False, True, True]
    assert again.open(end(1, (2,), at=near_row).seal(b"said by the next"), 0.0) == b"said by the next"


def test_a_key_is_replaced_in_three_steps_and_nothing_is_lost_on_the_way() -> None:
    near, far = end(1, (2,)), end(2, (1,))
    kept = near.seal(b"kept by somebody")
    for keys in ((KEY, OTHER), (OTHER, KEY), (OTHER,)):
        for one, other in ((near, far), (far, near)):
            one.set_keys(keys)
            assert other.open(one.seal(b"on"), 0.0) == b"on"
            assert one.open(other.seal(b"on"), 0.0) == b"on"
            assert {*one.cookies} & {other.cookies[0]}
    assert far.open(kept, 0.0) is None
    assert far.dropped == {FORGED: 1}


def test_while_a_key_is_replaced_neither_a_third_one_nor_a_changed_message_is_believed() -> None:
    far = end(2, (1,), keys=(KEY, OTHER))
    assert far.open(end(1, (2,), keys=(b"t" * 32,)).seal(b"of another run"), 0.0) is None
    for key in (KEY, OTHER):
        frame = end(1, (2,), keys=(key,)).seal(b"sound")
        assert far.open(b"S" + frame[1:], 0.0) is None
    assert far.dropped == {FORGED: 3}
    assert far.open(frame, 0.0) == b"sound"


@pytest.mark.parametrize("bare", [False, True])
def test_a_neighbour_that_has_gone_mad_is_heard_now_and_then(bare: bool) -> None:
    near = end(1, (2, 3))
    far = Bare([2]) if bare else end(2, (1, 3))

    def heard(count: int, now: float) -> int:
        return sum(far.open(near.seal(b""), now) is not None for _ in range(count))

    assert heard(2 * MESSAGES_AT_ONCE, 0.0) == MESSAGES_AT_ONCE
    assert heard(MESSAGES_AT_ONCE, 0.25) == MESSAGES_PER_S // 4
    assert heard(1, 0.25) == 0
    assert heard(2 * MESSAGES_AT_ONCE, 100.0) == MESSAGES_AT_ONCE
    assert set(far.dropped) == {TOO_MANY}
    if not bare:
        assert far.open(end(3, (2, 1)).seal(b"of another neighbour"), 100.0)


def test_without_seals_a_message_is_in_the_name_of_a_neighbour_at_its_port_or_of_another_format() -> None:
    far = Bare([1, 3])
    messages = [wire.encode(wire.Hello(sender, 7, 1, 30, 0, ())) for sender in (1, 2, 3, 2**32 - 1)]
    assert [far.open(message, 0.0) == message for message in messages] == [True, False, True, False]
    assert far.dropped == {STRANGE: 2}
    for other in (b"", b"\x77\x01\x01", b"a protocol of somebody's own"):
        assert far.open(other, 0.0) == other


@given(st.binary(max_size=100))
def test_whatever_comes_raises_nothing(frame: bytes) -> None:
    far = end(2, (1,))
    assert far.open(frame, 0.0) is None
