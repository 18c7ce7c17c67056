import socket
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.testbed.linux import icmp

BY, OWN = socket.inet_aton("10.0.1.2"), socket.inet_aton("10.0.0.1")


def naive_checksum(data: bytes) -> int:
    """RFC 1071, a word at a time."""
    total = 0
    for i in range(0, len(data), 2):
        total += data[i] << 8 | data[i + 1]
        if total > 0xFFFF:
            total -= 0xFFFF
    return 0xFFFF - total


def ip(
    protocol: int,
    source: bytes,
    destination: bytes,
    data: bytes,
    identification: int = 0,
    options: bytes = b"",
) -> bytes:
    header = struct.pack(
        ">BBHHHBBH4s4s",
        0x45 + len(options) // 4,
        0,
        20 + len(options) + len(data),
        identification,
        0,
        64,
        protocol,
        0,
        source,
        destination,
    )
    return header + options + data


@given(st.binary(min_size=2, max_size=200).filter(lambda data: len(data) % 2 == 0))
def test_the_checksum_is_that_of_the_rfc(data):
    assert icmp.checksum(data) in (naive_checksum(data), naive_checksum(data) ^ 0xFFFF) or not any(
        data
    )
    whole = data + icmp.checksum(data).to_bytes(2, "big")
    assert icmp.checksum(whole) == 0


@given(
    st.integers(0, 0xFFFF), st.integers(0, 0xFFFFFFFF), st.integers(2, 40), st.integers(0, 0xFFFF)
)
def test_every_echo_request_has_a_valid_checksum_and_comes_back_as_what_it_was(
    identifier, token, words, sequence
):
    request = icmp.Echo(identifier, token, 2 * words).request(sequence)
    assert icmp.checksum(request) == 0
    assert len(request) == 8 + 2 * words
    reply = b"\0" + request[1:]
    answer = icmp.parse(ip(socket.IPPROTO_ICMP, BY, OWN, reply))
    assert answer == icmp.IcmpReply(
        icmp.ECHO_REPLY, 0, 0x0A000102, socket.IPPROTO_ICMP, identifier << 16 | sequence, token
    )


@pytest.mark.parametrize("options", [b"", b"\1\1\1\1"])
def test_an_error_names_the_packet_that_it_is_about(options):
    udp = struct.pack(">HHHHI", 33433, 33434, 12, 0, 0xABCD1234)
    quoted = ip(socket.IPPROTO_UDP, OWN, BY, udp, identification=77, options=options)
    packet = ip(
        socket.IPPROTO_ICMP, BY, OWN, icmp.HEADER.pack(icmp.TIME_EXCEEDED, 0, 0, 0, 0) + quoted
    )
    answer = icmp.parse(packet)
    assert answer == icmp.IcmpReply(
        icmp.TIME_EXCEEDED, 0, 0x0A000102, socket.IPPROTO_UDP, 33433 << 16 | 77, 0xABCD1234
    )
    assert icmp.words(answer) == "time to live exceeded"
    echo = ip(socket.IPPROTO_ICMP, OWN, BY, icmp.Echo(5, 6, 56).request(7))
    answer = icmp.parse(
        ip(socket.IPPROTO_ICMP, BY, OWN, icmp.HEADER.pack(icmp.UNREACHABLE, 1, 0, 0, 0) + echo)
    )
    assert answer is not None
    assert (answer.key, answer.token, icmp.words(answer)) == (5 << 16 | 7, 6, "host unreachable")


@given(st.binary(max_size=80))
def test_garbage_is_no_answer_and_raises_nothing(data):
    icmp.parse(data)
    for kind in (icmp.ECHO_REPLY, icmp.UNREACHABLE, icmp.TIME_EXCEEDED):
        icmp.parse(ip(socket.IPPROTO_ICMP, BY, OWN, bytes([kind]) + data))


def test_other_kinds_of_icmp_are_no_answers():
    assert icmp.parse(ip(socket.IPPROTO_ICMP, BY, OWN, icmp.Echo(1, 2, 56).request(3))) is None
