import json
import os
import time
from pathlib import Path

import pytest

from weft.testbed.traffic import iperf as module
from weft.testbed.traffic.iperf import IperfError, IperfSpec, iperf, iperfs
from weft.topologies.core.link import LinkSpec, Mbps


def children() -> set[int]:
    """Processes of ours."""
    return {
        int(pid)
        for pid in Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
    }


def test_what_iperf3_cannot_do_is_refused():
    for wrong in (
        {"seconds": 0},
        {"streams": 0},
        {"omit_s": -1},
        {"udp_rate_bps": 0},
        {"udp_rate_bps": 1_000_000, "congestion": "reno"},
    ):
        with pytest.raises(ValueError, match="iperf"):
            IperfSpec(**wrong)  # type: ignore[arg-type]


def test_a_report_of_failure_is_an_error_with_its_words():
    with pytest.raises(IperfError, match="a -> b: unable to connect"):
        module._read(json.dumps({"end": {}, "error": "unable to connect"}), "a -> b")
    with pytest.raises(IperfError, match="a -> b: not json"):
        module._read("not json", "a -> b")
    with pytest.raises(IperfError, match="no message"):
        module._read("", "a -> b")


def test_arguments_are_those_of_the_options():
    spec = IperfSpec(seconds=2, omit_s=1, streams=4, udp_rate_bps=8 * Mbps, reverse=True)
    arguments = spec.arguments()
    options = dict(zip(arguments[:8:2], arguments[1:8:2], strict=True))
    assert options == {"--time": "2", "--omit": "1", "--parallel": "4", "--bitrate": "2000000"}
    assert arguments[8:] == ["--reverse", "--udp"]
    assert IperfSpec(congestion="reno").arguments()[-2:] == ["--congestion", "reno"]


def test_figures_are_those_of_the_report():
    tcp = {"sum_sent": {"bits_per_second": 20, "retransmits": 3}}
    tcp["sum_received"] = {"bits_per_second": 19}
    result = module._read(json.dumps({"end": tcp}), "a -> b")
    assert (result.goodput_bps, result.sent_bps, result.retransmits) == (19, 20, 3)
    assert result.packets is None
    udp = {"sum_sent": {"bits_per_second": 20}, "sum_received": {"bits_per_second": 19}}
    udp["sum_received"]["jitter_ms"] = 0.5
    udp["sum"] = {"packets": 9, "lost_packets": 1, "jitter_ms": 0.5}
    result = module._read(json.dumps({"end": udp}), "a -> b")
    assert (result.packets, result.lost_packets, result.jitter_us) == (9, 1, 500)
    assert result.retransmits is None


@pytest.mark.kernel
def test_goodput_is_what_the_link_allows_either_way_and_nobody_stays(network):
    net = network("dcell:n=3,k=1", LinkSpec(rate_bps=10 * Mbps, queue_packets=100))
    before = children()
    there, back = iperfs(net, [(0, 3), (1, 0)], IperfSpec(seconds=2, omit_s=1, congestion="reno"))
    for one in (
        there,
        back,
        iperf(
            net, 0, 7, IperfSpec(seconds=1, omit_s=1, congestion="reno", reverse=True, streams=2)
        ),
    ):
        assert 0.5 * 10 * Mbps < one.goodput_bps < 1.05 * 10 * Mbps * 1448 / 1514
        assert one.retransmits is not None
        assert one.packets is None
    assert there.report["start"]["connected"][0]["remote_host"] == "10.0.1.0"
    assert children() <= before  # one of an earlier network may have ended meanwhile


@pytest.mark.kernel
def test_udp_beyond_the_rate_loses_the_rest(network):
    net = network("dcell:n=3,k=1", LinkSpec(rate_bps=5 * Mbps, queue_packets=10))
    one = iperf(net, 3, 7, IperfSpec(seconds=1, udp_rate_bps=2 * Mbps))
    assert one.packets
    assert one.lost_packets is not None
    assert one.lost_packets < one.packets / 4
    assert one.goodput_bps < 2.2 * Mbps
    over = iperf(net, 3, 7, IperfSpec(seconds=1, udp_rate_bps=20 * Mbps, streams=2))
    assert over.lost_packets is not None
    assert over.goodput_bps < 5.5 * Mbps


@pytest.mark.kernel
def test_failures_have_iperf3s_words_and_leave_nobody(network, monkeypatch):
    net = network("dcell:n=3,k=1")
    before = children()
    with pytest.raises(IperfError, match=r"h0 -> h1: .*congestion"):
        iperf(net, 0, 1, IperfSpec(seconds=1, congestion="nonesuch"))
    net.fail("h0-w0", silent=True)
    monkeypatch.setattr(module, "CONNECT_TIMEOUT_S", 0.3)
    with pytest.raises(IperfError, match="h0 -> h1: unable to connect"):
        iperf(net, 0, 1, IperfSpec(seconds=1))
    monkeypatch.setattr(module, "CONNECT_TIMEOUT_S", 60.0)
    monkeypatch.setattr(module, "GRACE_S", 0.5)
    began = time.monotonic()
    with pytest.raises(IperfError, match=r"not finished after 1\.5 s, killed"):
        iperf(net, 0, 1, IperfSpec(seconds=1))
    assert time.monotonic() - began < 10
    assert children() <= before  # one of an earlier network may have ended meanwhile
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(IperfError, match="apt-get install iperf3"):
        iperf(net, 0, 1, IperfSpec(seconds=1))
