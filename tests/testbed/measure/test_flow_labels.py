"""Flow labels and silences of TCP flows, as parsed, and as Linux' PRR changes them."""

from __future__ import annotations

import math
import socket
from contextlib import suppress
from itertools import product
from pathlib import Path

import pytest
from scapy.layers.inet import IP, TCP
from scapy.layers.inet6 import IPv6

from weft.testbed.linux import clock, tc_filters
from weft.testbed.measure.flow_labels import (
    ETH_P_IP,
    ETH_P_IPV6,
    FlowArrivals,
    LabelCapture,
    parse,
    to_port,
)
from weft.testbed.traffic import flows, tcp
from weft.testbed.traffic.flows import Flow, FlowOptions
from weft.topologies.core.address import IPV4, IPV6

CLOS = "clos:n=4,r=2,m=2"
BEFORE_S, AFTER_S = 0.3, 2.0
REHASH = "TcpTimeoutRehash"


def test_a_packet_of_either_version_is_parsed():
    six = bytes(IPv6(src="fd77:6566:7400::a", fl=0xABCDE, tc=3) / TCP(seq=99, sport=4321))
    source = bytes.fromhex("fd77656674" + 21 * "0" + "a")
    assert parse(six, ETH_P_IPV6) == (0xABCDE, 99, source, 4321)
    four = bytes(IP(src="10.0.0.7") / TCP(seq=98, sport=4321))
    assert parse(four, ETH_P_IP) == (0, 98, bytes([10, 0, 0, 7]), 4321)


@pytest.mark.parametrize(
    ("ethertype", "packet"),
    [
        (ETH_P_IPV6, IPv6() / TCP(sport=1, dport=7000)),
        (ETH_P_IP, IP() / TCP(sport=1, dport=7000)),
    ],
)
def test_the_filter_passes_the_ports_of_what_comes_to_one(ethertype, packet):
    """Over a pair of sockets, which filter as packet sockets do."""
    to_another, reset = packet.copy(), packet.copy()
    to_another[TCP].dport, reset[TCP].flags = 7001, "RA"
    sender, receiver = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with sender, receiver:
        tc_filters.filter_socket(receiver, to_port(ethertype, 7000))
        receiver.setblocking(False)
        for dropped in (to_another, reset):
            with suppress(PermissionError):  # to its sender a filter's drop is no permission
                sender.send(bytes(dropped))
            with pytest.raises(BlockingIOError):
                receiver.recv(64)
        sender.send(bytes(packet))
        passed = receiver.recv(64)
    assert bytes(packet).startswith(passed)
    assert parse(passed, ethertype) == parse(bytes(packet), ethertype)


def test_a_flow_stands_still_without_new_data_from_the_failure_on():
    flow = FlowArrivals(sequence=2**32 - 2, last_s=0.0)
    # from 5 to 7 it is 1 since the failure; from 7 to 9 the same data come again
    arrivals = [
        (5, 1, 2**32 - 1, math.inf),
        (7, 1, 3, 6),
        (8, 2, 3, 6),
        (9, 2, 4, 6),
        (10, 1, 1, 6),
    ]
    for now_s, label, sequence, since_s in arrivals:
        flow.add(label, sequence, now_s, since_s)
    assert flow.labels == {1, 2}
    assert (flow.sequence, flow.last_s, flow.still_s) == (4, 9, 2)
    assert flow.still_until(10, 6) == 2
    assert flow.still_until(14, 6) == 5


def test_counters_of_tcp_are_read_by_name():
    text = "TcpExt: A TcpTimeoutRehash\nTcpExt: 1 22\nIpExt: A\nIpExt: 3\n"
    assert tcp.parse_netstat(text) == {"A": 1, REHASH: 22}


@pytest.mark.kernel
@pytest.mark.parametrize("family", [IPV4, IPV6])
def test_a_new_label_leads_around_a_link_that_died_silently(network, family):
    """Half of a flow's paths are dead; over IPv4 it keeps its path, whatever its hash."""
    if not Path("/proc/sys/net/ipv4/tcp_rto_min_us").exists():
        pytest.skip("the kernel lacks tcp_rto_min_us (Linux 6.11)")
    net = network(CLOS, scheme=f"static:ipv6={int(family == IPV6)}")
    tcp.tune(net, {"ipv4/tcp_rto_min_us": "10000"})
    dead = net.topology.link_name(net.topology.link_between(net.node("e0"), net.node("c0")))

    def fail():
        net.fail(dead, silent=True)
        capture.since_s = clock.monotonic()

    options = FlowOptions(
        deadline_s=BEFORE_S + AFTER_S,
        congestion_control="reno",
        warm_up_s=BEFORE_S,
        at_warm_up=fail,
        open_before=True,
        family=family,
    )
    pairs = [pair for pair in product(range(8), repeat=2) if (pair[0] < 4) != (pair[1] < 4)]
    with LabelCapture(net, family, flows.PORT) as capture:
        table = flows.run(net, [Flow(0.0, *pair, None) for pair in pairs], options)
    assert len(capture.flows) == len(table.results) == 32
    ways = [  # labels of a flow, and whether it sends at the end
        (len(flow.labels), flow.last_s > capture.since_s + AFTER_S / 2)
        for flow in capture.flows.values()
    ]
    assert tcp.counters(net, [REHASH])[REHASH] > 0  # over IPv4 the hash stays in the host
    if family == IPV4:
        assert set(ways) == {(1, True), (1, False)}
    else:  # some 19 of 32: each new label leads around with one half, and so do its ACKs
        assert sum(sends for labels, sends in ways if labels > 1) >= 4


@pytest.mark.kernel
def test_a_counter_that_the_kernel_lacks_is_named(network):
    net = network("star:n=2", None)
    with pytest.raises(ValueError, match="this kernel does not count Nothing of TCP"):
        tcp.counters(net, ["Nothing"])
