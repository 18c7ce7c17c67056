"""Packets of the purified transport to bytes and back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.daemons.transport.packets import (
    Ack,
    Data,
    MalformedPacket,
    Nack,
    Pull,
    decode,
    encode,
    packets_of,
)
from weft.daemons.transport.endpoint import (
    CONTROL,
    HEADER,
    HEADER_BYTES,
    TRIMMABLE,
    TRIMMED,
    TRIMMED_AT_HOST,
)

U8, U32 = st.integers(0, 255), st.integers(0, (1 << 32) - 1)


@st.composite
def data(draw):
    each, size = draw(st.integers(1, 65535)), draw(st.integers(1, 1 << 40))
    last = min(packets_of(size, each), 1 << 32) - 1
    return Data(
        draw(U32), draw(st.integers(0, last)), draw(U8), draw(st.integers(1, 255)), size, each
    )


ANSWERS = st.one_of(
    st.builds(Ack, U32, U32, U8, U32),
    st.builds(Nack, U32, U32, U8, U32, st.booleans()),
    st.builds(Pull, U32, U8, U32),
)


@given(st.one_of(data(), ANSWERS))
def test_what_is_encoded_is_decoded(packet):
    encoded = encode(packet)
    assert len(encoded) == HEADER.size == HEADER_BYTES - 42
    assert decode(encoded, 256) == (packet, not isinstance(packet, Data))
    if isinstance(packet, Data):
        assert decode(encoded + bytes(packet.own_bytes), 256) == (packet, True)
        with pytest.raises(MalformedPacket, match="bytes of payload"):
            decode(encoded + bytes(packet.own_bytes + 1), 256)


@pytest.mark.parametrize(
    ("packet", "fields"),
    [
        (Data(7, 9, 3, 8, 1 << 33, 1450), (1, 3, 8, 7, 9, 1 << 33, 1450)),
        (Ack(7, 9, 3, 5, congested=True), (2, 3, 1, 7, 9, 5, 0)),
        (Nack(7, 9, 3, 5, congested=False), (3, 3, 0, 7, 9, 5, 0)),
        (Pull(7, 3, 5), (4, 3, 0, 7, 0, 5, 0)),
    ],
)
def test_a_packet_has_its_fields_in_order_after_the_magic_byte(packet, fields):
    widths = (1, 1, 1, 4, 4, 8, 2)
    encoded = b"n" + b"".join(map(int.to_bytes, fields, widths, ["big"] * len(fields)))
    assert encode(packet) == encoded
    assert len(encoded) + 14 + 20 + 8 == 64  # with Ethernet, IPv4 and UDP


def test_code_points_are_those_of_local_use_and_of_sai():
    assert (TRIMMABLE, CONTROL, TRIMMED, TRIMMED_AT_HOST) == (3, 11, 7, 5)


@given(st.one_of(data(), ANSWERS), st.integers(1, 64))
def test_a_layer_that_is_none_is_garbage(packet, layers):
    if packet.layer < layers:
        assert decode(encode(packet), layers)[0] == packet
    else:
        with pytest.raises(MalformedPacket, match=f"layer {packet.layer} of {layers}"):
            decode(encode(packet), layers)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_packet_or_garbage(payload):
    try:
        packet, whole = decode(payload, 256)
    except MalformedPacket:
        return
    assert payload == encode(packet) + payload[HEADER.size :]
    assert whole == (len(payload) > HEADER.size or not isinstance(packet, Data))


@given(st.one_of(data(), ANSWERS), st.integers(0, HEADER.size - 1))
def test_a_packet_cut_short_is_garbage(packet, length):
    with pytest.raises(MalformedPacket, match="a header has"):
        decode(encode(packet)[:length], 256)


@pytest.mark.parametrize(
    "header",
    [
        (0x6F, 2, 0, 0, 1, 0, 0, 0),
        (0x6E, 5, 0, 0, 1, 0, 0, 0),
        (0x6E, 1, 0, 8, 1, 3, 3000, 1000),  # packets 0, 1 and 2 have it all
        (0x6E, 1, 0, 0, 1, 0, 3000, 1000),  # no window
        (0x6E, 1, 0, 8, 1, 0, 3000, 0),
        (0x6E, 4, 0, 0, 1, 9, 1, 0),  # pulls name no packet
        (0x6E, 3, 0, 2, 1, 0, 1, 0),
        (0x6E, 2, 0, 0, 1, 0, 1 << 32, 0),
    ],
)
def test_contradictions_are_garbage(header):
    with pytest.raises(MalformedPacket):
        decode(HEADER.pack(*header), 256)
