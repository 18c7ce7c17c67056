"""Marks of packets that the kernel's own routes forward."""

from __future__ import annotations

import pytest

from weft.testbed.data_plane import marks
from weft.testbed.machine import doctor
from weft.testbed.traffic import flows, tcp
from weft.testbed.traffic.flows import Flow, FlowOptions
from weft.topologies.core.address import IPV4, IPV6

NETWORK = "clos:n=2,r=2,m=1"  # two hosts share the link to the spine


@pytest.mark.kernel
@pytest.mark.parametrize("family", [IPV4, IPV6])
def test_switches_mark_what_meets_a_long_queue(network, family):
    try:
        doctor.require("queue length in place", "marks")
    except ValueError as error:
        pytest.skip(str(error))
    net = network(NETWORK, scheme="static:ipv6=1")
    tcp.tune(net, {"ipv4/tcp_ecn": "1"})
    assert marked(net, family, port=7000) == 0
    marks.attach(net, 1000)
    assert marked(net, family, port=7001) == 0
    marks.attach(net, 10)
    assert marked(net, family, port=7002) > 10


def marked(net, family, *, port):
    """Return how many segments of two flows over one link were delivered with a mark."""
    options = FlowOptions(deadline_s=0.5, congestion_control="reno", family=family, port=port)
    table = flows.run(net, [Flow(0.0, 0, 2, None), Flow(0.0, 1, 3, None)], options)
    assert table.goodput_bps > 10e6
    return table.total("marked")
