from contextlib import closing

import pytest

from tests import optional_parts
from weft.testbed.data_plane import transit_rewrite
from weft.testbed.data_plane.data_plane import DataPlane
from weft.testbed.data_plane.transit_rewrite import OctetKey, TransitMaps
from weft.testbed.linux import clock, tc
from weft.testbed.measure.ping import ping
from weft.testbed.network import read_back
from weft.testbed.network.impair import Impairment
from weft.testbed.network.network import RunningNetwork
from weft.testbed.plan.network_plan import ifb_of
from weft.topologies import build
from weft.topologies.core.address import SERVER_BLOCK, Prefix
from weft.topologies.core.link import LinkSpec, Mbps

SPEC = "dcell:n=3,k=1"


@pytest.mark.uml("sch_netem", "ifb")
def test_a_delay_is_what_was_asked_and_takes_no_place_in_the_queue(network):
    """h0 -> h3 is one link, h0 -> h1 two through a crossbar: 2 and 4 delays a round trip."""
    net = network(SPEC, LinkSpec(rate_bps=10 * Mbps, queue_packets=20, delay_us=5_000))
    read_back.check(net)
    least_us = {}
    for dst, links in ((3, 1), (1, 2)):
        probes = ping(net, [(0, dst)], count=20, timeout_s=2.0).pings
        least_us[dst] = min(us for probe in probes for us in probe.rtts_us)
        assert least_us[dst] >= 2 * links * 5_000
    # the cost of a hop is the same in both, and a busy machine delays the least probe hardly
    assert least_us[1] - least_us[3] == pytest.approx(10_000, rel=0.2)


@pytest.mark.uml("sch_netem", "ifb")
def test_a_change_of_the_delay_keeps_its_deviation_and_the_other_way_round(network):
    net = network(SPEC, LinkSpec(rate_bps=10 * Mbps, queue_packets=20, delay_us=5_000))
    near, far = net.plan.ends[0][1], net.plan.ends[3][1]
    for change, times_us in (
        (Impairment(jitter_us=1_000), (5_000, 1_000)),
        (Impairment(delay_us=7_000), (7_000, 1_000)),
        (Impairment(jitter_us=0), (7_000, 0)),
    ):
        net.impair("h0-h3", change)
        with net.at(0) as here, net.at(3) as there:
            exact, netem = tc.shapes(here)[near.ifindex], tc.shapes(there).get(ifb_of(far).ifindex)
        shape = exact if clock.is_virtual() else netem
        assert (shape.delay_us, shape.jitter_us) == times_us
    assert ping(net, [(0, 3)], timeout_s=2.0).pings[0].rtts_us[0] >= 2 * 7_000


@pytest.mark.uml("sch_netem", "ifb")
def test_what_a_program_rewrites_is_held_back_all_the_same(network):
    """h0 -> h5 by way of h4, which lets it carry 64 and then 10 again: three delays there."""
    net = network("ficonn:n=4,k=1", LinkSpec(rate_bps=10 * Mbps, queue_packets=20, delay_us=5_000))
    with closing(TransitMaps(transit_rewrite.ensure(net))) as transit_maps:
        transit = transit_maps.at(4)
        transit.begin(OctetKey.PREFIX)
        transit.set_prefixes({Prefix(SERVER_BLOCK, 8): 64})
        assert ping(net, [(0, 5)], timeout_s=0.5).lost  # no node has a route for it
        transit.set_prefixes({Prefix(SERVER_BLOCK, 8): 10})
        (answer,) = ping(net, [(0, 5)], timeout_s=2.0).pings
    assert min(answer.rtts_us) >= 2 * 3 * 5_000


@pytest.mark.kernel
@pytest.mark.real_clock("links there need no netem")
def test_a_delay_that_the_kernel_cannot_give_is_refused_with_that_reason(
    monkeypatch, tmp_path, network
):
    optional_parts.change("netem", False, monkeypatch, tmp_path)
    net = network(SPEC, LinkSpec(rate_bps=10 * Mbps, queue_packets=20))
    with pytest.raises(ValueError, match="a delay of h0-h3 needs netem, which is missing"):
        net.impair("h0-h3", Impairment(delay_us=1_000))
    with pytest.raises(ValueError, match="netem") as caught:
        RunningNetwork.create(
            build(SPEC), LinkSpec(rate_bps=10 * Mbps, queue_packets=20, delay_us=1_000)
        )
    assert "\n" not in str(caught.value)


@pytest.mark.kernel
def test_a_delay_and_the_data_plane_exclude_each_other_in_real_time():
    topology, link = (
        build("clos:n=1,r=2,m=2"),
        LinkSpec(rate_bps=10 * Mbps, queue_packets=20, delay_us=700),
    )
    if not clock.is_virtual():
        with pytest.raises(ValueError, match="ttc and a delay exclude each other"):
            RunningNetwork.create(topology, link, scheme="ttc")
        return
    network = RunningNetwork.create(topology, link, scheme="ttc")
    try:
        with DataPlane.open(network) as plane:
            before = sum(port.packets for port in plane.counters().values())
            (answer,) = ping(network, [(0, 1)], timeout_s=2.0).pings
            assert sum(port.packets for port in plane.counters().values()) > before
        assert min(answer.rtts_us) >= 2 * 4 * 700
    finally:
        network.down()
