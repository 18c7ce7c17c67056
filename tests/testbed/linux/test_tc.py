"""Messages for queueing disciplines, classes and filters against those of `tc` of iproute2 6.1,
recorded with strace."""

from __future__ import annotations

import struct

import pytest

from tests.chaos.altered_links import is_control
from weft.testbed.linux import netlink, tc, tc_filters
from weft.testbed.linux.interface import NamedDevice
from weft.testbed.linux.netlink import NetlinkMessage
from weft.topologies.core.link import LinkSpec, Mbps

LINK = LinkSpec(rate_bps=50 * Mbps, queue_packets=250)
IFINDEX = 9
DEVICE = NamedDevice(IFINDEX, "d0")


def content(message: NetlinkMessage) -> tuple[int, int, bytes, str]:
    """Return handle, parent, kind and the options in hexadecimal."""
    _, ifindex, handle, parent, _ = tc.TCMSG.unpack_from(message.body)
    assert ifindex == IFINDEX
    attributes = netlink.attributes(message.body, tc.TCMSG.size)
    options = attributes.get(tc.TCA_OPTIONS, b"")
    return handle, parent, attributes[tc.TCA_KIND], options.hex(" ", -4)


ROOT, CLASS, FIFO = tc.shape(DEVICE, LINK)


@pytest.mark.parametrize(
    ("message", "kind", "expected"),
    [
        (
            ROOT,
            netlink.RTM_NEWQDISC,
            (
                0x10000,
                0xFFFFFFFF,
                b"htb\0",
                "18000200 03000000 0a000000 10000000 00000000 00000000 08000500 e8030000",
            ),
        ),
        (FIFO, netlink.RTM_NEWQDISC, (0x100000, 0x10010, b"pfifo\0", "fa000000")),
        (
            tc.clsact(DEVICE),
            netlink.RTM_NEWQDISC,
            (0xFFFF0000, 0xFFFFFFF1, b"clsact\0", ""),
        ),
        (
            tc_filters.blackhole(DEVICE),
            netlink.RTM_NEWTFILTER,
            (
                0,
                0xFFFFFFF2,
                b"bpf\0",
                "06000400 01000000 0c000500 06000000 02000000 08000800 01000000",
            ),
        ),
    ],
    ids=["htb", "pfifo", "clsact", "bpf filter"],
)
def test_a_message_is_that_of_tc(
    message: NetlinkMessage, kind: int, expected: tuple[int, int, bytes, str]
) -> None:
    assert message.kind == kind
    assert content(message) == expected


def test_a_class_has_the_rate_the_bursts_and_the_quantum_of_tc() -> None:
    handle, parent, kind, options = content(CLASS)
    assert (handle, parent, kind) == (0x10010, 0x10000, b"htb\0")
    words = options.split()
    # tc adds fields of RATESPEC that the kernel works out itself: words 1, 2, 4 and 5
    assert [words[0], words[3], words[6], *words[7:]] == [
        "30000100",
        "105e5f00",
        "105e5f00",
        *["093d0000", "093d0000", "40060000", "00000000", "00000000"],
    ]


def test_a_rate_beyond_32_bits_is_told_twice() -> None:
    fast = LinkSpec(rate_bps=100_000 * Mbps, queue_packets=250)
    (message,) = tc.classes(DEVICE, fast)
    assert tc.rate_of_class(message.body) == fast.rate_bps
    options = netlink.attributes(netlink.attributes(message.body, tc.TCMSG.size)[tc.TCA_OPTIONS])
    for kind in (tc.TCA_HTB_RATE64, tc.TCA_HTB_CEIL64):
        assert struct.unpack("=Q", options[kind]) == (fast.rate_bps // 8,)


def test_a_delay_is_that_of_tc_and_in_64_bits() -> None:
    handle, parent, kind, options = content(tc.delay(DEVICE, 500))
    assert (handle, parent, kind) == (0x20000, 0xFFFFFFFF, b"netem\0")
    assert options.split()[:6] == ["841e0000", "40420f00", *["00000000"] * 4]
    latency = netlink.attributes(bytes.fromhex(options), 24)[tc.TCA_NETEM_LATENCY64]
    assert struct.unpack("=q", latency) == (500_000,)


def test_commands_are_those_that_do_the_same() -> None:
    assert [message.command for message in (ROOT, CLASS, FIFO)] == [
        "tc qdisc add dev d0 root handle 1: htb default 10 direct_qlen 1000",
        "tc class add dev d0 parent 1: classid 1:10 htb rate 50000000bit burst 6250 cburst 6250 "
        "quantum 1600",
        "tc qdisc add dev d0 parent 1:10 handle 10: pfifo limit 250",
    ]


def run_filter(program: list[tuple[int, int, int, int]], frame: bytes) -> int:
    """Interpret the few instructions of classic BPF that our filters have."""
    accumulator = 0
    position = 0
    while True:
        code, on_true, on_false, k = program[position]
        position += 1
        if code in (0x20, 0x28, 0x30):
            size = {0x20: 4, 0x28: 2, 0x30: 1}[code]
            if k + size > len(frame):
                return 0
            accumulator = int.from_bytes(frame[k : k + size], "big")
        elif code == 0x54:
            accumulator &= k
        elif code == 0x15:
            position += on_true if accumulator == k else on_false
        else:
            assert code == 0x06
            return k


def frame(
    *, ethertype: int = 0x0800, flags: int = 0, ttl: int = 255, protocol: int = 17, port: int = 6330
) -> bytes:
    ip = struct.pack(">BBHHHBBHII", 0x45, 0, 40, 0, flags, ttl, protocol, 0, 1, 2)
    return (
        bytes(12) + struct.pack(">H", ethertype) + ip + struct.pack(">HHHH", 9, port, 20, 0) + b"x"
    )


@pytest.mark.parametrize(
    ("packet", "matches"),
    [
        (frame(), True),
        (frame(flags=0x4000), True),
        (frame(flags=0x2000), False),
        (frame(ttl=254), False),
        (frame(protocol=6), False),
        (frame(port=6331), False),
        (frame(ethertype=0x0806), False),
    ],
    ids=["plain", "DF", "fragment", "forwarded", "TCP", "another port", "ARP"],
)
def test_control_packets_are_known_alike_in_python_and_by_the_filter(
    packet: bytes, matches: bool
) -> None:
    assert is_control(packet) == matches
    assert run_filter(tc_filters.control_packet_program(7, 3), packet) == (7 if matches else 3)
