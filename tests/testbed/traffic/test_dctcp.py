"""DCTCP under marks, whosever it is."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from weft.testbed.forwarding.data_plane import DataPlane
from weft.testbed.linux import libbpf
from weft.testbed.network.network import Network
from weft.testbed.tracing.occupancy import Occupancies
from weft.testbed.traffic import flows, tcp_settings
from weft.testbed.traffic.dctcp import AVAILABLE, OURS, Dctcp
from weft.testbed.traffic.flows import Flow
from weft.topologies.core.link import LinkSpec, Mbps

pytestmark = pytest.mark.kernel


def test_dctcp_keeps_a_queue_at_its_mark_and_loses_nothing(network: Callable[..., Network]) -> None:
    net = network("star:n=5", LinkSpec(rate_bps=20 * Mbps, queue_packets=250))
    tcp_settings.tune(net, {"ipv4/tcp_ecn": "1"})
    try:
        dctcp = Dctcp()
        control = dctcp.__enter__()
    except libbpf.BpfError as error:
        pytest.skip(str(error))
    with DataPlane.load(net, "dmodk:ecn=30") as plane, Occupancies(net) as queues:
        plane.attach()
        wanted = [Flow(0.0, src, 4, 1_000_000) for src in range(4)]
        table = flows.run(net, wanted, deadline_s=60, congestion_control=control)
    dctcp.__exit__()
    assert table.unfinished == 0
    assert table.total("marked") > 0
    assert table.total("retransmissions") <= 5
    assert queues.table[5, 4].at_least[100] < 0.5  # of the time; without marks it is 0.85 and more
    assert OURS not in AVAILABLE.read_text().split()
