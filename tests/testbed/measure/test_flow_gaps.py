"""Silences of flows as they are counted, against packets that were sent one by one."""

from __future__ import annotations

import socket
from collections.abc import Callable

import pytest

from weft.testbed.linux import clock, netns
from weft.testbed.linux.clock import wait_until
from weft.testbed.measure.reordering import CLASSES, FlowGaps, GapTable, bounds_us
from weft.testbed.network.network import RunningNetwork


def table(**counts: int) -> GapTable:
    """Gaps of so many packets in the classes c0, c1, ..."""
    return GapTable(tuple(counts.get(f"c{at}", 0) for at in range(CLASSES)), 1)


def test_the_fraction_beyond_a_time_counts_whole_classes() -> None:
    found = table(c3=6, c10=3, c20=1)
    bounds = bounds_us()
    assert found.packets == 10
    assert found.beyond(0) == 1.0
    assert found.beyond(bounds[10]) == pytest.approx(0.4)
    assert found.beyond(bounds[10] + 1) == pytest.approx(0.1)
    assert found.beyond(1e12) == 0
    assert found.quantile_us(60) == bounds[4]
    assert found.quantile_us(90) == bounds[11]
    assert table().beyond(0) == table().quantile_us(50) == 0


@pytest.mark.kernel
def test_silences_are_those_between_packets_of_a_flow(
    network: Callable[..., RunningNetwork],
) -> None:
    """Two flows by turns: one of 40 packets without pauses, one of 5 with 20 ms between them."""
    net = network("star:n=2")
    with FlowGaps(net) as watched:
        with netns.inside(net.netns(0)):
            quick, slow = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
        with quick, slow:
            for _ in range(5):
                for _ in range(8):
                    quick.sendto(b"x", ("10.0.0.1", 9))
                slow.sendto(b"x", ("10.0.0.1", 9))
                sent = clock.monotonic()
                wait_until("20 ms have passed", lambda sent=sent: clock.monotonic() > sent + 0.02)
    gaps = watched.table
    assert (gaps.flows, gaps.packets) == (2, 39 + 4)
    # the slow flow's, and the quick one's pauses
    assert round(gaps.beyond(15_000) * gaps.packets) >= 4 + 4
    assert gaps.beyond(10_000_000) == 0
    with FlowGaps(net) as again, pytest.raises(RuntimeError, match="not finished yet"):
        _ = again.table
    assert (again.table.flows, again.table.packets) == (0, 0)
