"""Two ends of a link, and an attacker between them."""

from __future__ import annotations

from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.daemons.core import wire
from weft.testbed.linux import clock
from weft.testbed.node_daemon import sealed_channel
from weft.testbed.node_daemon.sealed_channel import (
    AHEAD_NS,
    COOKIE_BYTES,
    END,
    FORGED,
    FUTURE,
    MESSAGES_AT_ONCE,
    MESSAGES_PER_S,
    REPLAYED,
    STRANGE,
    TAG_BYTES,
    TOO_MANY,
    Bare,
    Sealed,
    SequenceRow,
    row_words,
)

KEY, OTHER = b"k" * 32, b"o" * 32


def row(near: tuple[int, ...]) -> SequenceRow:
    return SequenceRow(memoryview(bytearray(8 * row_words([len(near)]))).cast("Q"), {0: near})


def end(
    node: int,
    near: tuple[int, ...],
    *,
    link: int = 7,
    keys: tuple[bytes, ...] = (KEY,),
    at: SequenceRow | None = None,
) -> Sealed:
    return Sealed(node, 0, link, keys, at or row(near))


def test_what_one_end_seals_the_other_opens_once() -> None:
    near, far = end(1, (2,)), end(2, (1,))
    for payload in (b"", b"hello", bytes(1400)):
        frame = near.seal(payload)
        assert len(frame) == len(payload) + END.size + TAG_BYTES
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


def numbered_message(node: int, number: int, *, key: bytes = KEY) -> bytes:
    """Return a message that carries `number`, of a process that has the key."""
    own = row((9,))
    words, sent, _ = own.at(0)
    words[sent] = number - 1
    with mock.patch.object(clock, "monotonic_ns", return_value=0):
        return end(node, (9,), keys=(key,), at=own).seal(b"")


class SlowWindow:
    """Accept a number once if at most WINDOW - 1 larger ones were accepted, and it is not beyond
    the clock."""

    def __init__(self, largest: int) -> None:
        self.start, self.accepted = largest, [largest]

    def accept(self, number: int, now_ns: int, window: int) -> bool:
        floor = max([self.start, *sorted(self.accepted)[:-window]])
        if number > now_ns + AHEAD_NS or number in self.accepted or number <= floor:
            return False
        self.accepted.append(number)
        return True


STEPS = st.one_of(
    st.tuples(st.just("wait"), st.integers(1, 3 * AHEAD_NS)),
    st.tuples(st.just("seal"), st.just(0)),
    st.tuples(st.just("deliver"), st.integers(0, 50)),
    st.tuples(st.just("restart sender"), st.just(0)),
    st.tuples(st.just("restart hearer"), st.just(0)),
    st.tuples(st.just("forge"), st.integers(-5, 5)),
    st.tuples(st.just("forge at limit"), st.integers(-5, 5)),
    st.tuples(st.just("forge anywhere"), st.integers(1, 2**64 - 1)),
)


@given(st.lists(STEPS, max_size=80))
def test_the_window_accepts_what_a_slow_one_accepts(steps: list[tuple[str, int]]) -> None:
    now_ns = 10 * AHEAD_NS
    near_row, far_row = row((2,)), row((1,))
    near, far, oracle = end(1, (2,), at=near_row), end(2, (1,), at=far_row), SlowWindow(0)
    frames: list[bytes] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sealed_channel, "WINDOW", 4)
        patch.setattr(clock, "monotonic_ns", lambda: now_ns)
        for step, value in steps:
            if step == "wait":
                now_ns += value
            elif step == "seal":
                frames.append(near.seal(b""))
            elif step == "restart sender":
                near = end(1, (2,), at=near_row)
            elif step == "restart hearer":
                far, oracle = end(2, (1,), at=far_row), SlowWindow(max(oracle.accepted))
            elif step == "deliver" and not frames:
                continue
            else:
                base = {
                    "forge": max(oracle.accepted),
                    "forge at limit": now_ns + AHEAD_NS,
                    "forge anywhere": 0,
                }
                frame = (
                    frames[value % len(frames)]
                    if step == "deliver"
                    else numbered_message(1, max(1, base[step] + value))
                )
                number = END.unpack_from(frame, len(frame) - END.size - TAG_BYTES)[0]
                assert (far.open(frame, 0.0) is not None) == oracle.accept(number, now_ns, 4)
        now_ns += 2 * AHEAD_NS
        assert far.open(near.seal(b""), 1e9) is not None, (
            "whatever was forged, the neighbour is heard"
        )


@pytest.mark.parametrize("restarts", [False, True])
def test_one_forged_number_ends_nothing(restarts: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that has the key sends the largest number that is believed, and the largest of
    all."""
    now_ns = 10**15
    monkeypatch.setattr(clock, "monotonic_ns", lambda: now_ns)
    near, far_row = end(1, (2,)), row((1,))
    far = end(2, (1,), at=far_row)
    assert far.open(numbered_message(1, 2**64 - 1), 0.0) is None
    assert far.open(numbered_message(1, now_ns + AHEAD_NS), 0.0) is not None
    assert far.dropped == {FUTURE: 1}
    if restarts:
        far = end(2, (1,), at=far_row)
        now_ns += AHEAD_NS + 1
    assert far.open(near.seal(b"still heard"), 0.0) == b"still heard"


def test_a_neighbour_on_another_machine_has_a_clock_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(clock, "monotonic_ns", lambda: 10**9)
    far = Sealed(2, 0, 7, (KEY,), row((1,)), {1})
    ahead = numbered_message(1, 10**15)
    assert far.open(ahead, 1.0) is not None
    assert far.open(ahead, 1.0) is None
    assert far.dropped == {REPLAYED: 1}


def test_who_starts_again_believes_nothing_that_was_said_before_and_is_believed() -> None:
    near_row, far_row = row((2,)), row((1,))
    near, far = end(1, (2,), at=near_row), end(2, (1,), at=far_row)
    frames = [near.seal(b"%d" % number) for number in range(5)]
    for frame in (frames[0], frames[2]):
        assert far.open(frame, 0.0) is not None
    again = end(2, (1,), at=far_row)
    assert [again.open(frame, 0.0) is not None for frame in frames] == [
        False,
        False,
        False,
        True,
        True,
    ]
    assert (
        again.open(end(1, (2,), at=near_row).seal(b"said by the next"), 0.0) == b"said by the next"
    )


def test_a_key_is_replaced_in_three_steps_and_nothing_is_lost_on_the_way() -> None:
    near, far = end(1, (2,)), end(2, (1,))
    recorded = near.seal(b"recorded by an attacker")
    for keys in ((KEY, OTHER), (OTHER, KEY), (OTHER,)):
        for channel, other in ((near, far), (far, near)):
            channel.set_keys(keys)
            assert other.open(channel.seal(b"on"), 0.0) == b"on"
            assert channel.open(other.seal(b"on"), 0.0) == b"on"
            assert {*channel.cookies} & {other.cookies[0]}
    assert far.open(recorded, 0.0) is None
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


def test_without_seals_a_message_is_in_the_name_of_a_neighbour_at_its_port_or_of_another_format() -> (  # noqa: E501
    None
):
    far = Bare([1, 3])
    messages = [wire.encode(wire.Hello(sender, 7, 30, 0, (), 1)) for sender in (1, 2, 3, 2**32 - 1)]
    assert [far.open(message, 0.0) == message for message in messages] == [True, False, True, False]
    assert far.dropped == {STRANGE: 2}
    for other in (b"", b"\x77\x01\x01", b"another protocol"):
        assert far.open(other, 0.0) == other


@given(st.binary(max_size=100))
def test_whatever_comes_raises_nothing(frame: bytes) -> None:
    far = end(2, (1,))
    assert far.open(frame, 0.0) is None
