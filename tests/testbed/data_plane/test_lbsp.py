"""LBSP on real switches: which links carry what, and what failed, degraded and crowded links do to
that."""

from __future__ import annotations

import socket
from collections.abc import Callable

import pytest

from weft.daemons.lbsp.routing import LbspShape, table
from weft.testbed.data_plane.data_plane import DataPlane
from weft.testbed.linux import netns
from weft.testbed.linux.clock import wait_until
from weft.testbed.measure.ping import ping
from weft.testbed.network import impair
from weft.testbed.network.network import RunningNetwork
from weft.testbed.node_daemon import control
from weft.testbed.plan import plane_selection
from weft.testbed.runs.network_handle import all_pairs
from weft.testbed.traffic.flows import Flow, FlowOptions, run
from weft.topologies.core.address import Prefix
from weft.topologies.core.link import LinkSpec, Mbps

pytestmark = pytest.mark.kernel
LINK = LinkSpec(rate_bps=50 * Mbps, queue_packets=250)
SMALL = "fattree:k=4"


@pytest.fixture
def fabric(network: Callable[..., RunningNetwork]) -> RunningNetwork:
    return network(SMALL, LINK, "lbsp")


def known_links(net: RunningNetwork, name: str) -> list[tuple[str, bool]]:
    """The links that a switch knows to be failed or degraded (True)."""
    status = control.status(net.identity.directory, name)["protocol"]["failures"]
    return [(failure["link"], failure["degraded"]) for failure in status]


def sent_packets(net: RunningNetwork) -> dict[tuple[str, int], int]:
    """Packets that the program put into each port, by switch and port."""
    name = net.topology.naming.name
    with DataPlane.open(net) as plane:
        return {
            (name(node), port): counts.packets for (node, port), counts in plane.counters().items()
        }


def sent_since(
    net: RunningNetwork, before: dict[tuple[str, int], int], name: str
) -> dict[int, int]:
    """Return what each port of a switch has sent since."""
    return {
        port: now - before[at, port] for (at, port), now in sent_packets(net).items() if at == name
    }


def map_routes(net: RunningNetwork, name: str) -> dict[Prefix, tuple[int, ...]]:
    """The routes of a switch as the maps hold them, by port; those of its own hosts left out."""
    node = net.topology.naming.node(name)
    port_of = {net.ifindex(node, port): port for port, *_ in net.topology.ports(node)}
    with DataPlane.open(net) as plane:
        table = plane.groups[node].table()
    return {
        prefix: tuple(port_of[index] for index in ports)
        for prefix, ports in table.items()
        if prefix.length < 32
    }


def test_each_destination_keeps_to_its_link_groups_in_turns(
    network: Callable[..., RunningNetwork],
) -> None:
    """At k = 8: e0.0 sends what is for hosts with an odd number by uplinks 1 and 3, half each; a0.1
    and a0.3 send what is for those whose second bit is 1 likewise."""
    net = network("fattree:k=8", None)
    with DataPlane.load(net, "lbsp") as plane:
        plane.attach()
    far = net.topology.naming.node("s7.0.0")
    for low, high in ((1, 1), (0, 1)):
        pair = [(0, far + low + 2 * high)]
        wait_until(
            "links carry packets", lambda pair=pair: not ping(net, pair, count=8).lost_fraction
        )
        before = sent_packets(net)
        assert ping(net, pair, count=40).lost_fraction == 0
        ups = sent_since(net, before, "e0.0")
        assert {port: ups[port] for port in range(4, 8)} == {
            4 + low: 20,
            6 + low: 20,
            5 - low: 0,
            7 - low: 0,
        }
        for number in (low, low + 2):
            ups = sent_since(net, before, f"a0.{number}")
            assert {port: ups[port] for port in range(4, 8)} == {5: 10, 7: 10, 4: 0, 6: 0}


@pytest.mark.parametrize("silent", [False, True])
def test_a_failed_link_is_left_for_its_range_only_and_taken_again(
    fabric: RunningNetwork, silent: bool
) -> None:
    shape = LbspShape(4, 2, 2)
    topology = fabric.topology
    failed = shape.link(*topology.links[topology.link("e3.1-a3.1")][[0, 2]].tolist())
    sound = map_routes(fabric, "e0.0")
    fabric.fail("e3.1-a3.1", silent=silent)
    expected = table(shape, shape.position(topology.naming.node("e0.0")), [failed])
    wanted = {prefix: route.ports for prefix, route in expected.items()}
    assert wanted.keys() - sound.keys() == {Prefix(10 << 24 | 3 << 16 | 1 << 8, 24)}
    wait_until("e0.0 leaves group 1 for e3.1", lambda: map_routes(fabric, "e0.0") == wanted)
    wait_until(
        "all know",
        lambda: all(
            known_links(fabric, n) == [("e3.1-a3.1", False)] for n in ("e3.1", "e2.0", "e1.1")
        ),
    )
    assert ping(fabric, all_pairs(fabric), count=2).lost_fraction == 0
    fabric.restore("e3.1-a3.1")
    fabric.wait_until_converged()
    wait_until(
        "nobody avoids it", lambda: set(map_routes(fabric, "e0.0").values()) == set(sound.values())
    )
    assert ping(fabric, all_pairs(fabric)).lost_fraction == 0


def test_a_link_that_is_said_to_be_degraded_carries_nothing_more(fabric: RunningNetwork) -> None:
    impair.set_rate(fabric, "a1.0-c0", 5 * Mbps)
    impair.report_degraded(fabric, "a1.0-c0")
    for name in ("a0.0", "a2.0", "e0.1", "e1.0"):
        wait_until(
            f"{name} knows", lambda name=name: known_links(fabric, name) == [("a1.0-c0", True)]
        )

    def carries_nothing() -> bool:
        before = sent_packets(fabric)
        assert ping(fabric, all_pairs(fabric), count=2).lost_fraction == 0
        return sent_since(fabric, before, "a1.0")[2] == sent_since(fabric, before, "c0")[1] == 0

    wait_until("a1.0-c0 carries nothing more", carries_nothing)
    impair.report_degraded(fabric, "a1.0-c0", degraded=False)
    wait_until(
        "nobody knows any more",
        lambda: not any(known_links(fabric, name) for name in ("a1.0", "c0", "e3.1")),
    )


def test_only_links_between_lbsps_switches_can_be_told_degraded(
    fabric: RunningNetwork, network: Callable[..., RunningNetwork]
) -> None:
    with pytest.raises(ValueError, match="leads to a host"):
        impair.report_degraded(fabric, "h0-e0.0")
    with pytest.raises(ValueError, match="scheme none treats"):
        impair.report_degraded(network("star:n=2", LINK, "none"), "h0-e0")


def test_a_degraded_link_is_found_from_what_it_sends(
    network: Callable[..., RunningNetwork],
) -> None:
    net = network(SMALL, LINK, "lbsp:rate_kbps=50000")
    far = net.topology.naming.node("s3.1.1")  # group 1 at edge and aggregation
    impair.set_rate(net, "e0.0-a0.1", 5 * Mbps)
    table = run(
        net,
        [Flow(0.0, 0, far, None), Flow(0.0, 1, far, None)],
        FlowOptions(
            deadline_s=6.0,
            congestion_control="cubic",
        ),
    )
    assert ("e0.0-a0.1", True) in known_links(net, "e0.0")
    assert table.goodput_bps > 8 * Mbps  # more than the degraded link carries
    assert all(slow == ("e0.0-a0.1", True) for slow in known_links(net, "e2.0"))


def test_crowded_link_groups_give_packets_away(network: Callable[..., RunningNetwork]) -> None:
    """At k = 4 a link group is one port; both hosts of e0.0 send to hosts of group 0, twice what
    its uplink carries."""
    flows = [Flow(0.0, 0, 8, None), Flow(0.0, 1, 12, None)]
    shares = {}
    for states in (0, 1):
        net = network(SMALL, LINK, f"lbsp:states={states}")
        before = sent_packets(net)
        run(net, flows, FlowOptions(deadline_s=3.0, congestion_control="cubic"))
        ups = sent_since(net, before, "e0.0")
        shares[states] = ups[3] / (ups[2] + ups[3])
        net.down()
    assert shares[0] < 0.01  # what is for group 1 is only what answers
    assert shares[1] > 0.1


def test_states_that_are_turned_on_later_reach_every_switch(
    network: Callable[..., RunningNetwork],
) -> None:
    """The daemons came up without them, and take what the queues call for all the same; and they
    can be turned off."""
    net = network(SMALL, LINK, "lbsp:hello_ms=10")
    net.change_scheme("lbsp:states=1")
    with DataPlane.open(net) as plane:
        wants, states = (
            plane._source.map(name, "=I", "=I") for name in ("pending_states", "states")
        )

        def all_are_in(state: int) -> bool:
            aggregation = [
                at for at, node in enumerate(plane.switches) if net.plan.names[node][0] == "a"
            ]
            return {states[at,][0] for at in aggregation} == {state}

        for at, _ in enumerate(plane.switches):
            wants[at,] = (2,)  # as the program would, had it found link group 1 crowded
        wait_until("every aggregation switch is in state 2", lambda: all_are_in(2))
        net.change_scheme("lbsp")
        wait_until("and in none again", lambda: all_are_in(0))


@pytest.mark.parametrize(
    ("came_up_with", "spec", "said"),
    [
        ("ecmp", "lbsp", "lbsp needs the routes of its own daemons, and those of ecmp route here"),
        (
            "ttc",
            "lbsp:states=1",
            "lbsp:states=1 needs the routes of its own daemons, and those of ttc route here",
        ),
        (
            "lbsp",
            "lbsp:groups=4",
            "the daemons of this run part a switch's uplinks into 2 link groups",
        ),
    ],
)
def test_lbsp_is_refused_over_routes_that_are_not_its_own(
    came_up_with: str, spec: str, said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        plane_selection.check_change(came_up_with, spec)


def test_a_run_goes_back_to_the_scheme_that_its_daemons_route_by(fabric: RunningNetwork) -> None:
    fabric.change_scheme("rr")
    assert plane_selection.daemons_scheme(fabric.run.journal) == "lbsp"
    impair.report_degraded(fabric, "a1.0-c0")  # LBSP's daemons still know what that is
    fabric.change_scheme("lbsp:hash=1")
    with pytest.raises(ValueError, match="into 2 link groups"):
        fabric.change_scheme("lbsp:groups=4")


def test_packets_that_bypass_the_scheme_are_told_by_the_status(fabric: RunningNetwork) -> None:
    assert fabric.status()["bypassed_packets"] == 0
    with netns.inside(fabric.netns(0)):
        sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with sender:
        sender.sendto(bytes(2000), ("10.3.1.1", 9))  # two fragments, five switches
    wait_until("fragments are counted", lambda: fabric.status()["bypassed_packets"] == 10)


def test_a_hash_of_the_flow_may_choose_instead(network: Callable[..., RunningNetwork]) -> None:
    """Section 3.4: many flows to one destination take both link groups."""
    net = network(SMALL, LINK, "lbsp:hash=1")
    before = sent_packets(net)
    table = run(
        net,
        [Flow(0.0, 0, 8, 3000) for _ in range(32)],
        FlowOptions(deadline_s=20.0, congestion_control="cubic"),
    )
    assert table.unfinished == 0
    ups = sent_since(net, before, "e0.0")
    assert min(ups[2], ups[3]) > 20


def test_a_daemon_that_died_is_left_alone_and_its_successor_takes_over(
    fabric: RunningNetwork,
) -> None:
    control.kill(fabric.run.directory, "a0.1")
    wait_until(
        "e0.0 leaves a0.1", lambda: map_routes(fabric, "e0.0")[Prefix(10 << 24, 8)] == (2, 2)
    )
    assert ping(fabric, all_pairs(fabric)).lost_fraction == 0
    control.start(fabric.run.directory, "a0.1")
    fabric.wait_until_converged()
    assert ping(fabric, all_pairs(fabric)).lost_fraction == 0
