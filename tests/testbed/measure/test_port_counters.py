import json
import socket
import struct
import subprocess

import pytest

from weft.testbed.linux import clock, netns
from weft.testbed.linux.clock import wait_until
from weft.testbed.measure.kernel_counters import PortCounterReader, PortCounters
from weft.testbed.measure.ping import ping
from weft.testbed.runs.network_handle import all_pairs, device
from weft.topologies.core.link import LinkSpec, kbps


def tc(net, node: int, dev: str) -> dict[str, dict]:
    """Return what `tc -s` shows of a device, by kind."""
    command = ["tc", "-j", "-s", "-n", net.plan.namespace(node), "qdisc", "show", "dev", dev]
    return {
        row["kind"]: row
        for row in json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    }


def test_counts_are_differences_and_what_waits_is_not():
    before = PortCounters(sent_packets=5, queue_drops=1, waiting_packets=9)
    after = PortCounters(
        sent_packets=7,
        queue_drops=1,
        control_drops=2,
        link_drops=3,
        link_errors=4,
        waiting_packets=2,
    )
    change = after.since(before)
    assert (
        change.sent_packets,
        change.queue_drops,
        change.waiting_packets,
        change.unexplained_drops,
    ) == (2, 0, 2, 9)


@pytest.mark.kernel
def test_counters_are_those_of_tc(network):
    net = network("dcell:n=3,k=1")
    ping(net, all_pairs(net), count=2, interval_ms=1)
    with PortCounterReader(net) as counters:
        ports = counters.snapshot().ports
    assert len(ports) == 2 * len(net.topology.links)
    for node in range(net.topology.nodes):
        for port, *_ in net.topology.ports(node):
            shown = tc(net, node, device(net, node, port))
            own = ports[net.ifindex(node, port)]
            root = shown["weft" if clock.is_virtual() else "htb"]
            assert (own.sent_packets, own.sent_bytes) == (root["packets"], root["bytes"])
            assert own.received_packets > 0
            assert own.unexplained_drops == own.queue_drops == own.blackholed == 0


@pytest.mark.kernel
def test_every_packet_is_where_the_counters_say(network):
    """200 datagrams into a queue of 20: sent, waiting or dropped; and the blackhole's, and those
    ahead of the queue."""
    net = network("dcell:n=3,k=1", LinkSpec(rate_bps=80 * kbps, queue_packets=20))
    with PortCounterReader(net) as counters:
        before = counters.snapshot()
        with netns.inside(net.netns(0)), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
            for _ in range(200):
                sender.sendto(bytes(1000), ("10.0.1.0", 9))
            sender.setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, 0x10000)
            for _ in range(7):
                sender.sendto(bytes(10), ("10.0.1.0", 9))
        own = counters.snapshot().since(before).ports[net.ifindex(0, 1)]
        assert own.queue_drops >= 170
        assert own.control_packets == 7
        assert own.sent_packets - 7 + own.waiting_packets + own.queue_drops == 200
        assert own.waiting_bytes == 1042 * own.waiting_packets
        assert own.unexplained_drops == 0
        net.fail("h1-w0", silent=True)
        ping(net, [(1, 2), (2, 1)], count=5, interval_ms=1, timeout_s=0.2)
        now = counters.snapshot().since(before).ports
        # a crossbar's ports are numbered like its servers
        at_server, at_crossbar = net.ifindex(1, 0), net.ifindex(net.topology.servers, 1)
        assert (now[at_server].blackholed, now[at_crossbar].blackholed) == (5, 5)


@pytest.mark.kernel
def test_what_nobody_understands_is_an_unexplained_drop_and_a_failed_carrier_is_noticed(network):
    net = network("dcell:n=3,k=1")
    with PortCounterReader(net) as counters:
        before, carrier = counters.snapshot(), counters.carrier_changes()
        with netns.inside(net.netns(0)):
            raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
        raw.bind(("h0-eth1", 0))
        raw.send(
            bytes([2, 0, 0, 3, 0, 1])
            + bytes([2, 0, 0, 0, 0, 1])
            + struct.pack(">H", 0x88B5)
            + bytes(46)
        )
        raw.close()
        far = net.ifindex(3, 1)
        wait_until(
            "the drop", lambda: counters.snapshot().since(before).ports[far].unexplained_drops == 1
        )
        net.fail("h0-h3")
        net.restore("h0-h3")
        changed = {
            index for index, count in counters.carrier_changes().items() if count != carrier[index]
        }
        assert changed == {net.ifindex(0, 1), far}
