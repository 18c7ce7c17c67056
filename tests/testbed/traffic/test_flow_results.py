"""Results of flows by hand, and the layout of struct tcp_info by its definition in C."""

from __future__ import annotations

import ctypes

import pytest

from weft.testbed.traffic import mptcp
from weft.testbed.traffic.flow_results import Flow, FlowResult, FlowResults, unpacked

# linux/tcp.h of Linux 6.7, in order.
BYTES = "state ca_state retransmits probes backoff options wscale flags"
EARLY = """rto ato snd_mss rcv_mss unacked sacked lost retrans fackets last_data_sent last_ack_sent
last_data_recv last_ack_recv pmtu rcv_ssthresh rtt rttvar snd_ssthresh snd_cwnd advmss reordering
rcv_rtt rcv_space total_retrans"""
RATES = "pacing_rate max_pacing_rate bytes_acked bytes_received"
SEGMENTS = "segs_out segs_in notsent_bytes min_rtt data_segs_in data_segs_out"
TIMES = "delivery_rate busy_time rwnd_limited sndbuf_limited"
DELIVERED = "delivered delivered_ce"
LATE_BYTES = "bytes_sent bytes_retrans"
LAST = "dsack_dups reord_seen rcv_ooopack snd_wnd rcv_wnd rehash"


class KernelInfo(ctypes.Structure):
    _fields_ = [
        (name, kind)
        for names, kind in (
            (BYTES, ctypes.c_uint8),
            (EARLY, ctypes.c_uint32),
            (RATES, ctypes.c_uint64),
            (SEGMENTS, ctypes.c_uint32),
            (TIMES, ctypes.c_uint64),
            (DELIVERED, ctypes.c_uint32),
            (LATE_BYTES, ctypes.c_uint64),
            (LAST, ctypes.c_uint32),
            ("total_rto total_rto_recoveries", ctypes.c_uint16),
            ("total_rto_time", ctypes.c_uint32),
        )
        for name in names.split()
    ]


def test_each_field_of_the_kernel_is_read_from_its_place():
    info = KernelInfo(
        rtt=1, min_rtt=2, snd_cwnd=3, data_segs_out=4, total_retrans=5, dsack_dups=6,
        reord_seen=7, delivered_ce=8, total_rto=9, total_rto_recoveries=99, total_rto_time=10,
    )  # fmt: skip
    assert unpacked(bytes(info)) == (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 1)
    assert ctypes.sizeof(info) <= mptcp.TCP_INFO_BYTES
    older = bytes(info)[: KernelInfo.total_rto.offset]
    assert unpacked(older) == (1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 1)


def test_goodput_and_unfinished_flows_are_those_of_the_results():
    """Of 3 MB received in 2 s; an endless flow has no end to miss."""
    tcp = unpacked(bytes(KernelInfo(total_retrans=2)))
    results = (
        FlowResult(Flow(0.0, 0, 1, 1_000_000), 0.5, 1.75, 1_000_000, tcp, None),
        FlowResult(Flow(0.0, 0, 1, 5_000_000), 0.5, None, 1_500_000, tcp, "timed out"),
        FlowResult(Flow(0.0, 0, 1, None), 0.5, None, 500_000, None, None),
    )
    whole = FlowResults(results, 2.0, 0.0, "cubic", {})
    assert whole.goodput_bps == pytest.approx(12e6)
    assert whole.unfinished == 1
    assert whole.total("retransmissions") == 4
    assert [result.seconds for result in results] == [1.25, None, None]
