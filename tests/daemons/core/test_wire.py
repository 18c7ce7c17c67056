from contextlib import suppress
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from weft.daemons.core import wire
from weft.daemons.core.wire import (
    Advertisement,
    Hello,
    HopDied,
    LinkStates,
    MalformedMessage,
    Probe,
    Summary,
    decode,
    encode,
    pack_links,
)

U16, U32, U64 = (st.integers(0, (1 << bits) - 1) for bits in (16, 32, 64))


def tuples(*fields, most=5):
    return st.lists(st.tuples(*fields), max_size=most).map(tuple)


ADVERTISEMENTS = st.builds(
    Advertisement, origin=U32, sequence=U64, lifetime_ms=U32, links=tuples(U16, U32).map(pack_links)
)
HELLOS = st.builds(
    Hello,
    sender=U32,
    incarnation=st.integers(0, (1 << 63) - 1),
    sequence=U32,
    interval_ms=st.integers(1, wire.MOST_INTERVAL_MS),
    digest=U64,
    heard=tuples(U32, U64),
)
VISITED = st.lists(U32, min_size=1, max_size=9).map(tuple)
MESSAGES = (
    HELLOS
    | st.builds(
        LinkStates, sender=U32, advertisements=st.lists(ADVERTISEMENTS, max_size=5).map(tuple)
    )
    | st.builds(Summary, sender=U32, target=U32, first=U32, last=U32, entries=tuples(U32, U64, U32))
    | st.builds(
        Probe,
        sender=U32,
        target=U32,
        source=U32,
        destination=U32,
        token=U32,
        way=U16,
        load=U32,
        verdict=st.integers(0, 2),
        urgent=st.integers(0, 1),
        visited=VISITED,
    )
    | st.builds(HopDied, sender=U32, target=U32, near=U32, far=U32, visited=VISITED)
)
HELLO = Hello(sender=3, incarnation=7, sequence=258, interval_ms=30, digest=9, heard=((4, 1),))


@given(MESSAGES)
def test_decode_reads_what_encode_writes(message):
    assert decode(encode(message)) == message


def test_the_bytes_of_a_hello():
    assert encode(HELLO) == bytes.fromhex(
        "77 01 01 00000003 0000000000000007 001e 0000000000000009 0001 00000004 "
        "0000000000000001 00000102"
    )


@given(
    st.binary(max_size=80)
    | st.binary(max_size=60).map(lambda tail: bytes([0x77, 1, len(tail) % 6]) + tail)
)
@example(b"")
@example(b"\x77\x01")
def test_bytes_are_a_message_or_unknown_or_garbage(payload):
    with suppress(MalformedMessage):
        message = decode(payload)
        assert (message is None) == (payload[2] not in range(wire.HELLO, wire.HOP_DIED + 1))
        assert message is None or encode(message) == payload


@given(MESSAGES, st.data())
def test_what_is_cut_or_longer_is_garbage(message, data):
    payload = encode(message)
    cut = payload[: data.draw(st.integers(0, len(payload) - 1))]
    for wrong in (cut, payload + b"\0"):
        with pytest.raises(MalformedMessage):
            decode(wrong)


def test_an_interval_of_nothing_is_garbage():
    with pytest.raises(MalformedMessage):
        decode(encode(HELLO._replace(interval_ms=0)))


def test_another_version_is_garbage_and_another_type_is_not_ours():
    payload = encode(HELLO)
    with pytest.raises(MalformedMessage, match="begins with 7702, expected 7701"):
        decode(b"\x77\x02" + payload[2:])
    assert decode(b"\x77\x01\xc8whatever") is None


@given(st.lists(ADVERTISEMENTS, max_size=9).map(lambda some: some * 9))
def test_advertisements_are_packed_in_order_into_full_messages(advertisements):
    payloads = list(wire.packed(5, advertisements))
    messages = [decode(payload) for payload in payloads]
    assert [
        advertisement for message in messages for advertisement in message.advertisements
    ] == advertisements
    assert all(len(payload) <= wire.PAYLOAD_BYTES for payload in payloads)
    longest = len(wire.pack_links([(0, 0)])) * 5 + 18
    assert all(len(payload) > wire.PAYLOAD_BYTES - longest for payload in payloads[:-1])


MOST_ENTRIES = len(decode(next(wire.summaries(1, 2, [(n, 7, n) for n in range(1000)]))).entries)


@given(st.sets(st.integers(0, 300) | U32, max_size=300).map(sorted))
@example([*range(MOST_ENTRIES)])
@example([*range(2 * MOST_ENTRIES)])
@example([*range(113)])
@example([*range(1000)])
@example([0xFFFFFFFF])
def test_summaries_together_cover_every_origin_once(origins):
    messages = [
        decode(payload)
        for payload in wire.summaries(1, 2, [(origin, 7, origin) for origin in origins])
    ]
    assert [origin for message in messages for origin, *_ in message.entries] == origins
    assert messages[0].first == 0
    assert messages[-1].last == 0xFFFFFFFF
    assert all(first.last + 1 == two.first for first, two in pairwise(messages))
    assert all(m.first <= origin <= m.last for m in messages for origin, *_ in m.entries)
    assert all(len(encode(message)) <= wire.PAYLOAD_BYTES for message in messages)
