"""Messages between two agents: what counts, and what a holder of the key can do."""

from __future__ import annotations

import hmac
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.testbed.cluster.controller import BEAT_S
from weft.testbed.cluster.cut_links import AHEAD, MALFORMED, SEAL_BYTES, PeerChannel
from weft.testbed.cluster.leases import LATE_S
from weft.testbed.node_daemon.sealed_channel import FORGED, FUTURE, REPLAYED, STRANGE

KEY, LENGTH = b"k" * 32, 1522
CUT = {3: "far", 5: "far", 7: "third"}


def near_and_far() -> tuple[PeerChannel, PeerChannel]:
    """Return two ends that have exchanged messages at beat 4."""
    near = PeerChannel("near", CUT, KEY, LENGTH)
    far = PeerChannel("far", {3: "near", 5: "near"}, KEY, LENGTH)
    for beat in range(5):
        near.beat = far.beat = beat
        assert near.open(far.seal("near", [])) == ("far", set())
        assert far.open(near.seal("far", [5, 3])) == ("near", {3, 5})
    return near, far


def seal_words(words: Any, key: bytes = KEY) -> bytes:
    """Return a message with any content under the run's key."""
    body = json.dumps(words).encode().ljust(LENGTH - SEAL_BYTES)
    return hmac.digest(key, body, "sha256") + body


def test_a_message_is_as_long_as_all_others_and_counts_once():
    near, far = near_and_far()
    message = far.seal("near", [5])
    assert len(message) == LENGTH
    assert near.open(message) == ("far", {5})
    assert near.open(message) is None
    assert near.dropped == {REPLAYED: 1}


def test_what_was_said_before_or_to_another_or_without_the_key_does_not_count():
    near, far = near_and_far()
    early, late = far.seal("near", []), far.seal("near", [3])
    assert near.open(late)
    assert near.open(early) is None
    far.beat += 1
    assert near.open(far.seal("near", []))
    assert near.open(late) is None
    assert far.open(near.seal("third", [])) is None
    assert near.open(near.seal("far", [])) is None
    strange = PeerChannel("far", {3: "near"}, b"o" * 32, LENGTH)
    for message in (b"", b"x", late[:-1], late[1:], strange.seal("near", [])):
        assert near.open(message) is None
    assert near.dropped == {REPLAYED: 2, STRANGE: 1, FORGED: 5}
    assert far.dropped == {STRANGE: 1}
    assert near.open(far.seal("near", [])) == ("far", set())


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ([], MALFORMED),
        (None, MALFORMED),
        (7, MALFORMED),
        ({"far": 1}, MALFORMED),
        (["far", "near", 4, 99], MALFORMED),
        (["far", "near", 4, 99, [], []], MALFORMED),
        ([["far"], "near", 4, 99, []], MALFORMED),
        ([{}, "near", 4, 99, []], MALFORMED),
        (["far", "near", 4, "99", []], MALFORMED),
        (["far", "near", None, 99, []], MALFORMED),
        (["far", "near", 4, True, []], MALFORMED),
        (["far", "near", 4, 99.0, []], MALFORMED),
        (["far", "near", 4, -1, []], MALFORMED),
        (["far", "near", 4, float("inf"), []], MALFORMED),
        (["far", "near", float("nan"), 99, []], MALFORMED),
        (["far", "near", 4, 99, None], MALFORMED),
        (["far", "near", 4, 99, 3], MALFORMED),
        (["far", "near", 4, 99, ["3"]], MALFORMED),
        (["far", "near", 4, 99, [[3]]], MALFORMED),
        (["far", "near", 4, 99, [3.0]], MALFORMED),
        (["far", "near", 4, 99, [7]], MALFORMED),  # of another peer
        (["far", "near", 4, 99, [2**70]], MALFORMED),
        (["nobody", "near", 4, 99, []], STRANGE),
        (["near", "near", 4, 99, []], STRANGE),
        (["far", "third", 4, 99, []], STRANGE),
        (["far", "near", 4 + AHEAD + 1, 99, []], FUTURE),
        (["far", "near", 2**40, 99, []], FUTURE),
        (["far", "near", 2**64 - 1, 2**64 - 1, []], FUTURE),
        (["far", "near", 3, 2**64 - 1, []], REPLAYED),
    ],
)
def test_what_a_key_holder_says_in_another_form_is_dropped_and_counted(words, reason):
    near, far = near_and_far()
    assert near.open(seal_words(words)) is None
    assert near.dropped == {reason: 1}
    assert near.open(far.seal("near", [3])) == ("far", {3})


@pytest.mark.parametrize(
    "text", ["1e400", "[" * 1400, '{"":' * 300, "1" * 1400, "\\", '["\ud800"]', "[1e400]"]
)
def test_text_that_no_parser_likes_is_dropped(text):
    near, far = near_and_far()
    body = text.encode(errors="surrogatepass").ljust(LENGTH - SEAL_BYTES)
    assert near.open(hmac.digest(KEY, body, "sha256") + body) is None
    assert near.dropped == {MALFORMED: 1}
    assert near.open(far.seal("near", []))


@pytest.mark.parametrize("beat", range(4, 4 + AHEAD + 1))
@pytest.mark.parametrize("number", [2**40, 2**64 - 1, 10**1000])
def test_a_number_of_a_key_holder_is_worth_nothing_after_some_beats(beat, number):
    near, far = near_and_far()
    assert near.open(seal_words(["far", "near", beat, number, [3, 5]])) == ("far", {3, 5})
    for _ in range(AHEAD + 1):
        near.beat += 1
        far.beat += 1
    assert near.open(far.seal("near", [])) == ("far", set())
    assert near.open(seal_words(["far", "near", beat, number, [3, 5]])) is None


def test_a_peer_is_heard_again_before_it_is_taken_for_late():
    assert (AHEAD + 1) * BEAT_S < LATE_S


def test_an_agent_that_missed_beats_is_heard_by_others_and_hears_them_after_its_next_one():
    near, far = near_and_far()
    near.beat += 16
    assert near.open(far.seal("near", [])) == ("far", set())
    assert far.open(near.seal("far", [])) is None
    far.beat = near.beat
    assert far.open(near.seal("far", [])) == ("near", set())


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from(["far", "near", "third", 2**64 - 1, 3, 5, 7])
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=12,
)
WORDS = st.tuples(
    st.just("far") | VALUES,
    st.just("near") | VALUES,
    st.integers(0, 8) | VALUES,
    st.integers(0, 2**65) | VALUES,
    st.lists(st.sampled_from([3, 5, 7])) | VALUES,
)


@given(st.lists(WORDS | VALUES, max_size=8))
def test_no_message_raises_and_the_true_sender_is_believed_again(messages):
    near, far = near_and_far()
    for words in messages:
        news = near.open(seal_words(words))
        assert news is None or (news[0] in ("far", "third") and news[1] <= {3, 5, 7})
    near.beat += AHEAD + 1
    far.beat += AHEAD + 1
    assert near.open(far.seal("near", [5])) == ("far", {5})
