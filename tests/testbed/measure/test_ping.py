import subprocess
import time
from itertools import pairwise

import pytest

from weft.daemons.routing.dr import route
from weft.testbed.linux import clock, netns
from weft.testbed.measure.ping import Ping, PingTable, ping
from weft.testbed.runs.network_handle import all_pairs, smallest_queue
from weft.topologies.core.link import LinkSpec, Mbps
from weft.topologies.recursive.ccrdn import DCELL, Ccrdn

# what a round trip over links without a delay takes more than
LEAST_US = -1 if clock.is_virtual() else 0
NETWORK = Ccrdn(DCELL, 4, 1)


def over(link: tuple[int, int], src: int, dst: int) -> bool:
    """Return whether DR's path from `src` to `dst` uses the link between two servers."""
    path = route(NETWORK.rule, NETWORK.t, src, dst)
    return any({a, b} == set(link) for a, b in pairwise(path))


def test_a_table_counts_what_was_lost_and_orders_the_times():
    table = PingTable(
        (
            Ping(0, 1, 4, rtts_us=[10.0, 30.0, 20.0, 40.0]),
            Ping(0, 2, 4, reasons=["host unreachable, says h1"]),
        )
    )
    assert [lost.dst for lost in table.lost] == [2]
    assert table.lost_fraction == 0.5
    assert (table.percentile_us(50), table.percentile_us(99)) == (25.0, pytest.approx(39.7))
    assert PingTable(()).percentile_us(50) is None


@pytest.mark.kernel
def test_every_pair_of_a_dcell_pings(network):
    net = network("dcell:n=4,k=1")
    pairs = all_pairs(net)
    assert len(set(pairs)) == 20 * 19
    table = ping(net, pairs, count=3, interval_ms=1)
    assert not table.lost
    assert [(result.src, result.dst) for result in table.pings] == pairs
    assert all(
        result.sent == result.received == len(result.rtts_us) == 3 and not result.reasons
        for result in table.pings
    )
    assert all(LEAST_US < rtt < 5e6 for result in table.pings for rtt in result.rtts_us)


@pytest.mark.kernel
def test_exactly_the_pairs_over_a_silent_link_are_lost_as_ping_says_too(network):
    net = network("dcell:n=4,k=1")
    a, b = 0, 4
    net.fail("h0-h4", silent=True)
    table = ping(net, all_pairs(net), timeout_s=0.5, retries=1)
    assert {(answer.src, answer.dst) for answer in table.lost} == {
        pair for pair in all_pairs(net) if over((a, b), *pair)
    }
    assert all(result.sent == (1 if result.received else 2) for result in table.pings)
    for src, dst, answered in ((0, 4, False), (0, 5, False), (0, 8, True)):
        command = [
            "ip",
            "netns",
            "exec",
            net.plan.namespace(src),
            "ping",
            "-c1",
            "-W1",
            f"10.0.{dst // 4}.{dst % 4}",
        ]
        assert (subprocess.run(command, capture_output=True).returncode == 0) == answered
    net.restore("h0-h4")
    assert not ping(net, all_pairs(net)).lost


@pytest.mark.kernel
def test_who_knows_no_way_says_so(network):
    net = network("dcell:n=4,k=1")

    def forget(server: int, prefix: str) -> None:
        subprocess.run(["ip", "-n", net.plan.namespace(server), "route", "del", prefix], check=True)

    forget(0, "10.0.2.0/24")  # h0 itself
    # on the way back from h5 to the first sub-network: nobody hears of that
    forget(4, "10.0.0.0/24")
    forget(12, "10.0.4.0/24")  # not on any way from h0
    forget(2, "10.0.3.0/24")  # on the way from h0 to h13
    table = ping(net, [(0, 8), (0, 13), (0, 5), (0, 1)], timeout_s=0.5)
    assert [result.received for result in table.pings] == [0, 0, 0, 1]
    assert table.pings[0].reasons == ["network is unreachable, says h0 itself"]
    assert table.pings[1].reasons == ["network unreachable, says h2"]
    assert table.pings[2].reasons == []


@pytest.mark.kernel
def test_probes_alone_overflow_no_queue(network):
    """All pairs at once through queues of two packets; long ones, since a burst holds dozens of
    short ones."""
    net = network("dcell:n=3,k=1", LinkSpec(rate_bps=5 * Mbps, queue_packets=2))
    assert smallest_queue(net) == 2
    assert not ping(net, all_pairs(net), timeout_s=5, size_bytes=1400).lost


@pytest.mark.kernel
def test_it_ends_in_time_though_nobody_answers(network):
    net = network("dcell:n=4,k=1", LinkSpec(rate_bps=20 * Mbps, queue_packets=3))
    for link in range(len(net.topology.links)):
        net.fail(net.topology.link_name(link), silent=True)
    began = time.monotonic()
    table = ping(net, all_pairs(net)[:120], timeout_s=0.5)
    assert len(table.lost) == 120
    # in threes, each waiting 0.5 s for the one before, it would be 20 s
    assert time.monotonic() - began < 15


@pytest.mark.kernel
def test_a_full_size_packet_passes_and_others_pings_do_no_harm(network):
    net = network("dcell:n=3,k=1", None)
    with netns.inside(net.netns(0)):
        other = subprocess.Popen(
            ["ping", "-f", "-c", "2000", "10.0.1.2"], stdout=subprocess.DEVNULL
        )
    try:
        table = ping(net, [(0, 5), (5, 0)], count=50, interval_ms=2, size_bytes=1472)
    finally:
        other.kill()
        other.wait()
    assert [result.received for result in table.pings] == [50, 50]


@pytest.mark.kernel
def test_a_wrong_pair_or_number_is_refused(network):
    net = network("dcell:n=3,k=1")
    crossbar = net.topology.servers
    with pytest.raises(ValueError, match="crossbar"):
        ping(net, [(0, crossbar)])
    with pytest.raises(ValueError, match="cannot ping"):
        ping(net, [(crossbar, 0)])
    with pytest.raises(ValueError, match="size"):
        ping(net, [(0, 1)], size_bytes=57)


@pytest.mark.kernel
def test_a_server_pings_itself_and_no_link_has_to_carry_that(network):
    net = network("dcell:n=3,k=1")
    net.fail("h0")
    (answer,) = ping(net, [(0, 0)], count=5).pings
    assert answer.sent == answer.received == len(answer.rtts_us) == 5
    assert all(rtt > LEAST_US for rtt in answer.rtts_us)
