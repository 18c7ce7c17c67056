"""Packets of routing daemons, and no others, pass ahead of the queue at a crossbar port."""

import os
import socket

import pytest

from weft.testbed.linux import netns, tc, tc_filters
from weft.testbed.linux.clock import wait_until
from weft.testbed.measure import queues
from weft.testbed.measure.kernel_counters import PortCounterReader, PortCounters
from weft.testbed.measure.queues import GapMonitor
from weft.testbed.runs.network_handle import device, ports
from weft.topologies.core.link import LinkSpec, Mbps, kbps

SLOW = LinkSpec(rate_bps=100 * kbps, queue_packets=50)  # a full frame takes 0.12 s


def counters(net, dev: str) -> PortCounters:
    """Return the counters of a device."""
    index = next(index for index, end in ports(net).items() if device(net, *end) == dev)
    with PortCounterReader(net) as reader:
        return reader.snapshot().ports[index]


def direct_packets(net, dev: str) -> int:
    """Return the number of packets that bypassed the queue of a device."""
    return counters(net, dev).control_packets


def sender(net, node: int, ttl: int = 255) -> socket.socket:
    with netns.inside(net.netns(node)):
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, ttl)
    return made


def listener(net, node: int, port: int) -> socket.socket:
    with netns.inside(net.netns(node)):
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.bind(("", port))
    made.settimeout(10)
    return made


def backlog(net, dev: str) -> int:
    """Return the number of packets in the queue of a device."""
    return counters(net, dev).waiting_packets


@pytest.mark.kernel
def test_control_packets_and_nothing_else_overtake_the_queue_of_a_crossbar_port(network):
    """h0 and h1 fill the crossbar's queue towards h2; then h0 sends as a daemon does, and as others
    do."""
    net = network("dcell:n=3,k=1", SLOW)
    crossbar = net.topology.servers
    dev = f"{net.topology.naming.name(crossbar)}-eth2"
    data, control = listener(net, 2, 9), listener(net, 2, tc_filters.CONTROL_PORT)
    for node in (0, 1):
        with sender(net, node) as bulk:
            for _ in range(20):
                bulk.sendto(bytes(1400), ("10.0.0.2", 9))
    wait_until("packets wait at the crossbar", lambda: backlog(net, dev) > 2)
    with sender(net, 0) as daemon, sender(net, 0, ttl=64) as forger:
        for sender_ in (daemon, forger):
            # past h0's own queue
            sender_.setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, tc.CONTROL_PRIORITY)
        forger.sendto(b"forged", ("10.0.0.2", tc_filters.CONTROL_PORT))
        daemon.sendto(b"another port", ("10.0.0.2", tc_filters.CONTROL_PORT + 1))
        for _ in range(5):
            daemon.sendto(b"hello", ("10.0.0.2", tc_filters.CONTROL_PORT))
        assert [control.recv(100) for _ in range(5)] == 5 * [b"hello"]
    assert backlog(net, dev) > 2
    assert direct_packets(net, dev) == 5
    assert direct_packets(net, "h0-eth0") == 7
    data.close()
    control.close()


@pytest.mark.kernel
def test_only_who_may_set_its_priority_gets_past_the_rate(network):
    """A user's packet that looks like a daemon's is dropped; all others queue."""
    net = network("dcell:n=3,k=1", LinkSpec(rate_bps=20 * Mbps, queue_packets=50))
    crossbar = net.topology.servers
    dev = f"{net.topology.naming.name(crossbar)}-eth2"
    control, other = (
        listener(net, 2, tc_filters.CONTROL_PORT),
        listener(net, 2, tc_filters.CONTROL_PORT + 1),
    )
    with sender(net, 0) as forger, sender(net, 0) as daemon:
        for _ in range(20):
            forger.sendto(bytes(1000), ("10.0.0.2", tc_filters.CONTROL_PORT))
        forger.sendto(b"last", ("10.0.0.2", tc_filters.CONTROL_PORT + 1))
        assert other.recv(100) == b"last"
        assert direct_packets(net, dev) == direct_packets(net, "h0-eth0") == 0
        daemon.setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, tc.CONTROL_PRIORITY)
        daemon.sendto(b"hello", ("10.0.0.2", tc_filters.CONTROL_PORT))
        assert control.recv(100) == b"hello"
        assert direct_packets(net, dev) == direct_packets(net, "h0-eth0") == 1
        control.setblocking(False)
        with pytest.raises(BlockingIOError):  # none of the forged
            control.recv(100)
    control.close()
    other.close()


@pytest.mark.kernel
def test_a_process_without_rights_cannot_set_that_priority(network):
    net = network("dcell:n=3,k=1", SLOW)
    with sender(net, 0) as forger:
        if not (pid := os.fork()):
            os.setuid(12345)
            try:
                forger.setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, tc.CONTROL_PRIORITY)
            except PermissionError:
                os._exit(7)
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7


@pytest.mark.kernel
def test_the_monitor_of_gaps_knows_control_packets_by_the_same_marks(network, compiled):
    """A port that sends only control packets is never busy, however fast they come."""
    compiled(queues.OBJECT.with_suffix(".c"))
    net = network("dcell:n=3,k=1", LinkSpec(rate_bps=200 * kbps, queue_packets=200))
    with GapMonitor(net) as monitor, sender(net, 0) as daemon:
        sending = net.ifindex(0, 0)
        for port, priority in (
            (tc_filters.CONTROL_PORT, tc.CONTROL_PRIORITY),
            (tc_filters.CONTROL_PORT, tc.QUEUED_PRIORITY),
            (tc_filters.CONTROL_PORT + 1, 0),
        ):
            daemon.setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, priority)
            before = monitor.read()[sending]
            for _ in range(150):  # 36,300 bytes: a burst of 4,542 and then ten windows of 3,028
                daemon.sendto(bytes(200), ("10.0.0.2", port))
            wait_until(
                "all left h0",
                lambda packets=before.packets: monitor.read()[sending].packets >= packets + 130,
            )
            busy = monitor.read()[sending].windows - before.windows > 0
            assert busy == (priority != tc.CONTROL_PRIORITY)
