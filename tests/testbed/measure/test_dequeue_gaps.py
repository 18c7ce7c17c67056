import socket
import subprocess
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.testbed.linux import clock, netns, tc, tc_filters
from weft.testbed.measure import queues
from weft.testbed.measure.kernel_counters import PortCounterReader
from weft.testbed.measure.ping import ping
from weft.testbed.measure.queues import BUCKETS, BUCKETS_PER_1, GapMonitor, Gaps, merge_ports
from weft.testbed.runs.network_handle import all_pairs
from weft.testbed.traffic.iperf import IperfSpec, iperf
from weft.topologies.core.address import dotted
from weft.topologies.core.link import LinkSpec, Mbps

RATE = 20 * Mbps


def gaps_of(windows: dict[int, int]) -> Gaps:
    """Gaps with so many windows in each bucket."""
    return Gaps(0, 0, 0, 0, 0, 0, 0, tuple(windows.get(bucket, 0) for bucket in range(BUCKETS)))


@given(
    st.dictionaries(st.integers(0, BUCKETS - 1), st.integers(1, 50), min_size=1),
    st.sampled_from([1, 50, 90, 99, 100]),
)
def test_a_percentile_is_that_of_the_windows_one_by_one(windows, percent):
    deviations = sorted(
        100 * abs(bucket + 0.5 - BUCKETS_PER_1) / BUCKETS_PER_1
        for bucket, count in windows.items()
        for _ in range(count)
    )
    index = -(-len(deviations) * percent // 100) - 1  # the smallest that percent % do not exceed
    assert gaps_of(windows).deviation_percent(percent) == pytest.approx(deviations[index])


def test_a_link_that_was_never_busy_has_no_percentile():
    with pytest.raises(ValueError, match="never busy"):
        gaps_of({}).deviation_percent(99)
    assert gaps_of({}).shortfall_percent == 0


def test_ports_add_up():
    first = Gaps(10, 1, 2, 1514, 1000, 900, 7, gaps_of({3: 1}).histogram)
    other = Gaps(5, 0, 1, 9000, 500, 500, 9, gaps_of({3: 2, 4: 1}).histogram)
    assert merge_ports([first, other]) == Gaps(
        15, 1, 3, 9000, 1500, 1400, 9, gaps_of({3: 3, 4: 1}).histogram
    )
    assert merge_ports([]) == gaps_of({})
    assert first.shortfall_percent == pytest.approx(10)


@pytest.fixture(autouse=True)
def _program(compiled):
    compiled(queues.OBJECT.with_suffix(".c"))


def busy(net, seconds: int = 1) -> None:
    iperf(net, 0, 3, IperfSpec(seconds=seconds, congestion="reno"))


@pytest.mark.kernel
@pytest.mark.parametrize("mtu_bytes", [1500, 9000])
def test_a_busy_link_keeps_its_time_and_every_packet_is_counted_once(network, mtu_bytes):
    net = network(
        "dcell:n=3,k=1",
        LinkSpec(rate_bps=RATE * mtu_bytes // 1500, queue_packets=50, mtu_bytes=mtu_bytes),
    )
    with PortCounterReader(net) as counters, GapMonitor(net) as monitor:
        before = counters.snapshot()
        busy(net)
        sent = counters.snapshot().since(before).ports
        gaps = monitor.read()
    assert set(gaps) == set(sent)
    assert all(gap.packets + gap.missed <= sent[index].sent_packets for index, gap in gaps.items())
    link = gaps[net.ifindex(0, 1)]
    assert link.windows > 100
    assert (link.oversize, link.longest_bytes) == (0, mtu_bytes + 14)
    assert link.deviation_percent(50) < 10
    back = gaps[net.ifindex(3, 1)]
    assert back.packets > 0
    assert back.windows == 0  # acknowledgements alone keep no link busy


@pytest.mark.kernel
@pytest.mark.parametrize("claimed", [2, 0.5])
def test_a_link_that_is_not_as_fast_as_claimed_is_found_out(network, monkeypatch, claimed):
    net = network("dcell:n=3,k=1", LinkSpec(rate_bps=RATE, queue_packets=50))
    true = queues._rates(net)
    wrong = {
        index: (int(rate * claimed), frame_bytes) for index, (rate, frame_bytes) in true.items()
    }
    monkeypatch.setattr(queues, "_rates", lambda net: wrong)
    with GapMonitor(net) as monitor:
        busy(net)
        link = monitor.read()[net.ifindex(0, 1)]
    assert link.deviation_percent(50) == pytest.approx(100 * abs(claimed - 1), abs=10)
    assert (link.shortfall_percent > 30) == (claimed > 1)


@pytest.mark.kernel
def test_bundles_of_packets_are_noticed(network):
    net = network("dcell:n=3,k=1", LinkSpec(rate_bps=RATE, queue_packets=50))
    with netns.inside(net.netns(0)):
        subprocess.run(["ip", "link", "set", "h0-eth1", "gso_max_segs", "20"], check=True)
        subprocess.run(["ethtool", "-K", "h0-eth1", "tso", "on", "gso", "on"], check=True)
    with GapMonitor(net) as monitor:
        busy(net)
        gaps = monitor.read()
    assert gaps[net.ifindex(0, 1)].oversize > 0
    assert gaps[net.ifindex(0, 1)].longest_bytes > 1514
    assert gaps[net.ifindex(0, 0)].oversize == 0


@pytest.mark.kernel
def test_idle_time_is_no_gap_nor_are_packets_of_the_daemons(network):
    """Pings apart by far more than a frame's time, and control packets in front of a busy link."""
    net = network("dcell:n=3,k=1", LinkSpec(rate_bps=RATE, queue_packets=50))
    with GapMonitor(net) as monitor:
        ping(net, all_pairs(net), count=20, interval_ms=5)
        assert merge_ports(monitor.read().values()).windows == 0


@pytest.mark.kernel
def test_a_long_packet_of_a_daemon_takes_none_of_the_rate(network):
    """A tenth of the rate more than the link has, in messages as long as those of link states."""
    net = network("dcell:n=3,k=1", LinkSpec(rate_bps=RATE, queue_packets=50))
    peer, over = dotted(net.topology.naming.address(3)), threading.Event()
    with netns.inside(net.netns(0)):
        daemon = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    daemon.setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, tc.CONTROL_PRIORITY)
    daemon.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, 255)

    def send() -> None:
        while not over.is_set():
            daemon.sendto(bytes(1250), (peer, tc_filters.CONTROL_PORT))
            clock.sleep(0.005)

    sender = threading.Thread(target=send)
    with daemon, GapMonitor(net) as monitor:
        sender.start()
        busy(net)
        over.set()
        sender.join()
        link = monitor.read()[net.ifindex(0, 1)]
    assert link.windows > 100
    assert link.shortfall_percent > -5


@pytest.mark.kernel
def test_two_runs_do_not_count_for_each_other(network):
    busy_one, idle_one = (
        network("dcell:n=3,k=1", LinkSpec(rate_bps=RATE, queue_packets=50)) for _ in range(2)
    )
    with GapMonitor(busy_one) as first, GapMonitor(idle_one) as second:
        busy(busy_one)
        assert merge_ports(first.read().values()).packets > 100
        assert merge_ports(second.read().values()).packets == 0


@pytest.mark.kernel
def test_without_rates_there_is_nothing_to_count(network):
    with GapMonitor(network("dcell:n=3,k=1", None)) as monitor:
        assert monitor.read() == {}
