"""Packets of our own over every link: exact where the link is what it should be, and not where it
is not."""

import socket

import pytest

from weft.testbed.linux import clock, netns, tc
from weft.testbed.measure import queues, reference_packets
from weft.testbed.measure.fidelity import FAIL, PASS, Fidelity
from weft.testbed.measure.ping import ping
from weft.testbed.measure.reference_packets import (
    SO_SNDBUFFORCE,
    Deviation,
    deviations,
)
from weft.testbed.network.impair import one_at_a_time, set_rate
from weft.testbed.runs.network_handle import ports
from weft.testbed.traffic import flows
from weft.topologies.core.address import dotted
from weft.topologies.core.link import LinkSpec, Mbps

LINK = LinkSpec(rate_bps=100 * Mbps, queue_packets=20, delay_us=7)
PING_FRAME_BYTES = 98  # of 56 bytes of data
on_virtual_kernel = [pytest.mark.kernel, pytest.mark.virtual_clock]


@pytest.fixture(autouse=True)
def _program(compiled):
    compiled(queues.OBJECT.with_suffix(".c"))


def test_a_bucket_holds_two_of_the_longest_frames_or_a_millisecond():
    assert [tc.burst_bytes(10**6, frame_bytes) for frame_bytes in (1514, 9014)] == [3028, 18028]
    assert tc.burst_bytes(10**9, 9014) == 125_000


class TestOnTheKernel:
    pytestmark = on_virtual_kernel

    @pytest.mark.parametrize(
        ("topology", "scheme", "rate_bps", "delay_us", "mtu_bytes"),
        [
            ("star:n=2", "static", 10**7, 0, 1500),
            ("star:n=2", "static", 10**9, 5, 1500),
            ("star:n=2", "static", 10**10, 1, 1500),
            ("dcell:n=3,k=1", "dr", 10**8, 0, 1500),
            ("dcell:n=3,k=1", "dr", 10**9, 2, 9000),
            ("clos:n=4,r=2,m=2", "ttc", 10**9, 3, 1500),
            ("clos:n=4,r=2,m=2", "ttc", 10**10, 0, 9216),
        ],
    )
    def test_links_are_exact(self, network, topology, scheme, rate_bps, delay_us, mtu_bytes):
        """Behind bridges, beside daemons, and where the data plane looks at packets, of whatever
        length."""
        link = LinkSpec(rate_bps=rate_bps, queue_packets=20, delay_us=delay_us, mtu_bytes=mtu_bytes)
        net = network(topology, link, scheme)
        late_us = deviations(net)
        assert set(late_us) == set(ports(net))
        assert max(gap.gap_ns for gap in late_us.values()) <= 1
        assert {gap.delay_ns for gap in late_us.values()} == {0}
        assert {gap.packets for gap in late_us.values()} == {0}

    @pytest.mark.parametrize(
        ("topology", "scheme"), [("star:n=2", "static"), ("dcell:n=3,k=1", "dfr")]
    )
    def test_a_hop_takes_what_was_asked(self, network, monkeypatch, topology, scheme):
        """Hosts and routers take it, bridges do not; where it is more than a frame's time, frames
        come at its pace."""
        monkeypatch.setattr(clock, "hop_ns", lambda: 700)
        net = network(topology, LinkSpec(rate_bps=10**9, queue_packets=20, delay_us=5), scheme)
        assert {max(deviation) for deviation in deviations(net).values()} == {0}
        hops, links = (2, 2) if topology == "star:n=2" else (1, 2)
        frame_us = 8e-3 * PING_FRAME_BYTES
        assert ping(net, [(0, 1)]).pings[0].rtts_us == pytest.approx(
            [2 * (0.7 * hops + (5 + frame_us) * links)], abs=0.01
        )
        net.down()
        monkeypatch.setattr(clock, "hop_ns", lambda: 20_000)
        slow = network("star:n=2", LinkSpec(rate_bps=10**9, queue_packets=20), "static")
        assert {max(deviation) for deviation in deviations(slow).values()} == {0}

    @pytest.mark.parametrize(
        ("claimed", "off"),
        [
            ({"rate_bps": 50 * Mbps}, Deviation(121_120, 121_120, 0)),
            ({"delay_us": 8}, Deviation(0, 1000, 0)),
            ({"queue_packets": 21}, Deviation(0, 0, -1)),
        ],
    )
    def test_a_link_that_is_not_what_it_should_be_fails(self, network, monkeypatch, claimed, off):
        net = network("star:n=2", LINK)
        true = reference_packets._planned(net)
        index, one = next(iter(true.items()))
        port = one.port._replace(**claimed)
        wrong = {index: one._replace(port=port, arriving=port.capacity)}
        monkeypatch.setattr(reference_packets, "_planned", lambda net: {**true, **wrong})
        late_us = deviations(net)[index]
        assert late_us._replace(gap_ns=round(late_us.gap_ns)) == off
        with Fidelity(net) as watch:
            pass
        assert (watch.verdict, watch.report.clock) == (FAIL, "virtual")
        assert watch.report.worst.where == "h0-eth0"

    def test_a_link_that_has_failed_is_left_out(self, network):
        net = network("dcell:n=3,k=1", LINK)
        net.fail("h0-h3")
        net.fail("h1-h6", silent=True)
        gone = {net.ifindex(*end) for end in ((0, 1), (3, 1), (1, 1), (6, 1))}
        assert set(deviations(net)) == set(ports(net)) - gone

    def test_links_without_bursts_are_exact(self, network):
        net = network("star:n=2", LINK)
        one_at_a_time(net)
        assert {max(deviation) for deviation in deviations(net).values()} == {0}

    @pytest.mark.parametrize("parts", [3, 10])
    def test_a_link_is_exact_from_the_moment_on_when_its_rate_is_changed(self, network, parts):
        net = network("fattree:k=4", LinkSpec(rate_bps=10**9, queue_packets=250, delay_us=50))
        set_rate(net, "e2.1-a2.0", round(10**9 / parts))
        assert all(max(deviation) < 1 > -min(deviation) for deviation in deviations(net).values())

    @pytest.mark.parametrize("begin_us", [1000, 1010, 1020])
    def test_headers_and_data_share_a_link_exactly(self, network, begin_us):
        """No class of HTB sends before the link has caught up, when it has been idle or long after
        that."""
        link = LinkSpec(rate_bps=10**9, queue_packets=1000, trim_packets=900, header_packets=9000)
        net = network("star:n=2", link, "rps")
        with netns.inside(net.netns(0)):
            senders = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2)]
        senders[1].setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, tc.HEADER_PRIORITY)
        to = (dotted(net.topology.naming.address(1)), 7001)
        with Fidelity(net) as watch, senders[0], senders[1]:
            for sender, frames, size in zip(senders, (900, 5000), (1472, 22), strict=True):
                sender.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, 1 << 25)
                for _ in range(frames):
                    sender.sendto(bytes(size), to)
                clock.sleep(begin_us / 1e6)
            clock.sleep(0.02)
            windows = sum(gaps.windows for gaps in watch._gaps.read().values())
            sent = (
                watch._counters.snapshot()
                .since(watch._before)
                .ports[net.ifindex(0, 0)]
                .sent_packets
            )
        assert watch.verdict == PASS, watch.report.offender
        assert sent == 5900
        assert windows > 500

    @pytest.mark.parametrize("rate_bps", [10**8, 10**9, 10**10])
    def test_a_busy_link_is_exact(self, network, rate_bps):
        net = network("star:n=2", LinkSpec(rate_bps=rate_bps, queue_packets=250, delay_us=5))
        with Fidelity(net) as watch:
            flows.run(
                net,
                [flows.Flow(0, 0, 1, None)],
                flows.FlowOptions(
                    deadline_s=3e6 / rate_bps,
                    congestion_control="cubic",
                ),
            )
        assert watch.verdict == PASS, watch.report.offender
        assert "dequeue off its time by" in {
            component.name for component in watch.report.components
        }
