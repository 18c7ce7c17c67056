"""Links in the kernel that alter what daemons say."""

import random
import socket
import struct

import pytest

from tests.chaos.altered_links import MARK, PAYLOAD, AlteredLinks, is_control, mark_frame
from weft.daemons.simulator.wires import Wire
from weft.testbed.linux import netns, tc_filters
from weft.testbed.linux.clock import wait_until
from weft.testbed.mininet.net import Net


def frame(payload=b"hello", port=tc_filters.CONTROL_PORT, ttl=255, flags=0x4000):
    udp = struct.pack(">4H", port, port, 8 + len(payload), 0x1234) + payload
    ip = struct.pack(
        ">BBHHHBBH4s4s", 0x45, 0, 20 + len(udp), 7, flags, ttl, 17, 0, b"\n\0\0\1", b"\xe0\0\0\xe9"
    )
    return b"\xff" * 12 + b"\x08\x00" + ip + udp


def test_only_what_looks_like_a_daemons_packet_is_altered():
    assert is_control(frame())
    assert is_control(frame(flags=0))
    others = [
        frame(port=5353),
        frame(ttl=254),
        frame(flags=0x2000),
        frame(flags=0x0001),
        frame()[:40],
        b"",
    ]
    assert not any(is_control(other) for other in others)


def test_what_is_sent_again_is_marked_and_right():
    marked_frame = mark_frame(frame(b"payload"))
    assert marked_frame[PAYLOAD:] == b"payload"
    assert marked_frame[15] == MARK
    assert marked_frame[40:42] == b"\0\0"
    total = sum(struct.unpack(">10H", marked_frame[14:34]))
    assert (total & 0xFFFF) + (total >> 16) == 0xFFFF


@pytest.fixture
def net():
    with Net("dcell:n=3,k=1", routing="dr:hello_ms=100") as net_:
        yield net_


@pytest.fixture
def links(net):
    altered_links = AlteredLinks(net.network, random.Random(1))
    yield altered_links
    altered_links.close()
    for node in range(net.topology.nodes):
        with net.network.at(node) as at:
            assert not tc_filters.blackholes(at)


def up(net, node):
    row = net.network.rows()[node]
    return row.neighbours_up, row.losses


@pytest.mark.kernel
def test_a_link_that_loses_what_daemons_say_loses_the_neighbours_and_nothing_else(net, links):
    link = net.topology.link("h0-h3")
    links.alter(link, Wire(delay_s=0.001))
    before = net.network.rows()[0].received
    wait_until("hellos pass the process", lambda: net.network.rows()[0].received > before + 30)
    assert up(net, 0) == up(net, 3) == (3, 0)
    links.alter(link, Wire(loss_fraction=1.0))
    wait_until("both ends notice", lambda: up(net, 0)[0] == up(net, 3)[0] == 2)
    assert net.ping([net.get("h0"), net.get("h1")]) == 0
    links.alter(link, None)
    net.wait_until_converged()


@pytest.mark.kernel
def test_what_is_changed_or_said_again_is_refused(net, links):
    links.alter(net.topology.link("h1-h6"), Wire(replay_fraction=0.5, corrupt_fraction=0.1))
    rows = net.network.rows
    wait_until("some are refused", lambda: rows()[1].refused > 5 and rows()[6].refused > 5)
    assert all(row.packets_failed == 0 for row in rows().values())
    assert net.network.rows()[1].neighbours_up == 3


@pytest.mark.kernel
def test_at_a_crossbar_packets_are_altered_once_and_reach_all_behind_it(net, links):
    for name in ("h0-w0", "h1-w0"):
        links.alter(net.topology.link(name), Wire(duplicate_fraction=1.0))
    before = net.network.rows()
    wait_until(
        "every daemon receives all packets",
        lambda: all(
            net.network.rows()[node].received > before[node].received + 40 for node in range(3)
        ),
    )
    assert all(row.losses == 0 for row in net.network.rows().values())


@pytest.mark.kernel
def test_packets_of_others_pass_an_altered_link(net, links):
    links.alter(net.topology.link("h0-h3"), Wire(loss_fraction=1.0, delay_s=1.0))
    with netns.inside(net.netns(3)), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as ear:
        ear.bind(("", 6331))
        ear.settimeout(5)
        with netns.inside(net.netns(0)), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as mouth:
            mouth.sendto(b"data", (net.get("h3").IP(), 6331))
        assert ear.recv(100) == b"data"
