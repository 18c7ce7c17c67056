import time
from array import array
from bisect import bisect_right

import pytest

from weft.daemons.core import registry
from weft.experiments.demo.failover_demo import links, survivors, through, watch
from weft.experiments.engines.reachability import NOTICE_S
from weft.testbed.linux import clock
from weft.testbed.traffic.tcp import Arrivals
from weft.topologies import build


def test_only_schemes_that_there_are_must_survive():
    assert set(survivors()) <= set(registry.schemes())
    assert "pr-gpi" in survivors()


def test_the_flow_goes_over_what_dies_if_any_does():
    topology = build("dcell:n=4,k=1")
    bridge, leaf = topology.link("h0-h4"), topology.link("h1-w0")
    paths = {
        (1, 4): (1, 0, 4),
        (1, 5): (1, 0, 4, 5),
        (5, 0): (5, 4, 0),
        (2, 8): (2, 1, 8),
        (3, 12): (3, 2, 9, 8, 12),
    }
    assert through(topology, bridge, paths) == (1, 5)
    assert through(topology, leaf, {pair: paths[pair] for pair in ((5, 0), (2, 8), (3, 12))}) == (
        2,
        8,
    )
    assert through(topology, topology.link("h19-w4"), paths) == (3, 12)


def test_the_links_of_a_hop():
    topology = build("dcell:n=4,k=1")
    assert links(topology, 0, 4) == links(topology, 4, 0) == {topology.link("h0-h4")}
    assert links(topology, 0, 1) == {topology.link("h0-w0"), topology.link("h1-w0")}
    assert links(topology, 0, 5) == set()


class Flow:
    def __init__(self, *gaps):
        """Bytes each ms until now, less those within `gaps`, in s before now."""
        now = time.monotonic()
        times = [
            now - ms / 1000
            for ms in range(2000, 0, -1)
            if not any(b <= ms / 1000 <= a for a, b in gaps)
        ]
        self.arrivals = Arrivals(array("d", times), array("q", [1000] * len(times)))


def test_a_flow_that_stalled_goes_on():
    goes_on, stall_s, after_bps = watch(Flow((1.2, 0.9)), time.monotonic() - 1.5)
    assert goes_on
    assert stall_s == pytest.approx(0.3, abs=0.05)
    assert after_bps == pytest.approx(8e6, rel=0.1)


class Clock:
    """A clock that reading and waiting advance, and a flow with an arrival each ms by it."""

    def __init__(self, monkeypatch, now_s, from_s, until_s):
        """Begin at `now_s`, with arrivals between these times, in s from now."""
        self.now_s = now_s
        self.times_s = [now_s + ms / 1000 for ms in range(int(1000 * from_s), int(1000 * until_s))]
        monkeypatch.setattr(clock, "monotonic", self.monotonic)
        monkeypatch.setattr(clock, "sleep", self.sleep)

    def monotonic(self):
        self.now_s += 1e-5
        return self.now_s

    def sleep(self, seconds):
        self.now_s += seconds

    @property
    def arrivals(self):
        count = bisect_right(self.times_s, self.now_s)
        return Arrivals(array("d", self.times_s[:count]), array("q", [1000] * count))


@pytest.mark.parametrize("now_s", [0.1 * number for number in range(20)])
def test_a_flow_that_stalls_for_longer_than_it_is_watched_goes_on(monkeypatch, now_s):
    flow = Clock(monkeypatch, now_s, 2.5, 5.0)
    goes_on, stall_s, after_bps = watch(flow, now_s)
    assert goes_on
    assert stall_s == pytest.approx(2.5, abs=0.05)
    assert after_bps > 0


def test_a_flow_that_ended_does_not(monkeypatch):
    flow = Clock(monkeypatch, 10.0, 0.0, 0.5)
    goes_on, stall_s, after_bps = watch(flow, 10.4)
    assert (goes_on, after_bps) == (False, 0)
    assert stall_s == pytest.approx(flow.now_s - 10.5, abs=0.05)
    assert flow.now_s > 10.0 + NOTICE_S
