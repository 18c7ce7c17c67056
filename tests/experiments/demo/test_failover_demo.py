import time
from array import array

import pytest

from weft.daemons.core import registry
from weft.experiments.demo.failover_demo import links, survivors, through, watch
from weft.testbed.traffic.stream import Arrivals
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


def test_a_flow_that_ended_does_not(monkeypatch):
    from weft.experiments.engines import reachability

    monkeypatch.setattr(reachability, "NOTICE_S", 0.1)
    goes_on, stall_s, _ = watch(Flow((1.2, 0.0)), time.monotonic() - 1.5)
    assert not goes_on
    assert stall_s > 1.1
