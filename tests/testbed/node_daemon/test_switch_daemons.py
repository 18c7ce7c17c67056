"""Fabrics with a data plane whose switches' daemons follow failures, under real TCP."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator

import pytest

from weft.testbed.data_plane.data_plane import DataPlane
from weft.testbed.linux import fib
from weft.testbed.linux.clock import wait_until
from weft.testbed.measure.ping import ping
from weft.testbed.network.network import RunningNetwork
from weft.testbed.node_daemon import control
from weft.testbed.runs.network_handle import all_pairs
from weft.testbed.traffic import flows
from weft.testbed.traffic.flows import Flow
from weft.topologies import build
from weft.topologies.core.address import Prefix
from weft.topologies.core.link import LinkSpec, Mbps

pytestmark = pytest.mark.kernel
CLOS = "clos:n=2,r=2,m=2"  # hosts 0 1 at e0, 2 3 at e1, spines c0 c1
LINK = LinkSpec(rate_bps=20 * Mbps, queue_packets=250)
FAST = LinkSpec(rate_bps=200 * Mbps, queue_packets=250)
E0, E1, C0, C1 = range(4, 8)
BEYOND_E0 = Prefix(10 << 24 | 1 << 8, 24)  # e1's hosts


@pytest.fixture
def fabric(network: Callable[..., RunningNetwork]) -> RunningNetwork:
    return network(CLOS, FAST, "ttc")


def tables(net: RunningNetwork) -> dict[int, dict[Prefix, tuple[int, ...]]]:
    """Return the routes in the maps, by switch."""
    with DataPlane.open(net) as plane:
        return {node: groups.table() for node, groups in plane.groups.items()}


def ways(net: RunningNetwork, node: int, prefix: Prefix) -> list[int]:
    """The ports through which the maps lead from a switch to `prefix`; none if there is no
    route."""
    of = {net.ifindex(node, port): port for port, *_ in net.topology.ports(node)}
    return [of[index] for index in tables(net)[node].get(prefix, ())]


def uplinks(net: RunningNetwork, since: list[int] | None = None) -> list[int]:
    """Packets that the program put into each of e0's uplinks."""
    with DataPlane.open(net) as plane:
        counted = plane.counters()
    return [counted[E0, port].packets - (since[port - 2] if since else 0) for port in (2, 3)]


def test_maps_and_kernels_hold_what_the_daemons_set(fabric: RunningNetwork) -> None:
    up = [fabric.ifindex(E0, 2), fabric.ifindex(E0, 3)]
    mine = {Prefix(10 << 24 | host, 32): (fabric.ifindex(E0, host),) for host in (0, 1)}
    assert tables(fabric)[E0] == {**mine, BEYOND_E0: tuple(up)}
    for node, table in tables(fabric).items():
        with fabric.at(node) as socket:
            held = fib.routes(socket)
        assert {prefix: tuple(index for index, _ in hops) for prefix, hops in held.items()} == table
    assert fabric.status()["nodes"][0]["node"] == "e0"
    assert all(row.converged for row in fabric.rows().values())
    before = uplinks(fabric)
    assert ping(fabric, all_pairs(fabric), count=5).lost_fraction == 0
    assert sum(uplinks(fabric, before)) == 2 * 2 * 5 * 2  # requests and answers of 4 pairs each way


@pytest.mark.parametrize("silent", [False, True])
def test_a_dead_link_is_left_by_all_whom_it_concerns_and_taken_again(
    fabric: RunningNetwork, silent: bool
) -> None:
    """c0 loses e1: e1 leaves the port, and e0, whose links all live, sends nothing for e1 to c0 any
    more."""
    fabric.change_scheme("rr")
    fabric.fail("e1-c0", silent=silent)
    wait_until("e0 leaves c0", lambda: ways(fabric, E0, BEYOND_E0) == [3])
    wait_until("e1 leaves c0", lambda: ways(fabric, E1, Prefix(10 << 24, 24)) == [3])
    fabric.change_scheme("ttc")  # by which nothing is forgotten
    before = uplinks(fabric)
    assert ping(fabric, all_pairs(fabric), count=10).lost_fraction == 0
    assert uplinks(fabric, before)[0] == 0
    fabric.restore("e1-c0")
    wait_until("e0 takes c0 again", lambda: ways(fabric, E0, BEYOND_E0) == [2, 3])
    fabric.wait_until_converged()
    fabric.change_scheme("rr")
    before = uplinks(fabric)
    assert ping(fabric, all_pairs(fabric), count=10).lost_fraction == 0
    assert min(uplinks(fabric, before)) > 0


def test_a_host_that_is_cut_off_is_refused_and_the_others_are_not(fabric: RunningNetwork) -> None:
    fabric.fail("h2-e1")
    host = Prefix(10 << 24 | 1 << 8, 32)
    wait_until("e1 refuses h2", lambda: tables(fabric)[E1][host] == ())
    (lost,) = ping(fabric, [(0, 2), (0, 3), (3, 0)]).lost
    assert (lost.src, lost.dst) == (0, 2)
    assert any("unreachable" in reason and "e1" in reason for reason in lost.reasons)
    fabric.restore("h2-e1")
    wait_until("h2 answers", lambda: not ping(fabric, [(0, 2)]).lost)


@pytest.mark.parametrize("silent", [False, True])
@pytest.mark.parametrize("spec", ["ttc", "drill", "ecmp"])
def test_tcp_survives_a_dead_link(
    network: Callable[..., RunningNetwork], spec: str, silent: bool
) -> None:
    """Every flow of a permutation ends although one of the two spines loses a leaf in its
    middle."""
    net = network(CLOS, LINK, spec)
    wanted = [Flow(0.0, src, (src + 2) % 4, 1_500_000) for src in range(4)]
    table = flows.run(
        net,
        wanted,
        flows.FlowOptions(
            deadline_s=30.0,
            congestion_control="reno",
            warm_up_s=0.2,
            at_warm_up=lambda: net.fail("e1-c0", silent=silent),
        ),
    )
    assert table.unfinished == 0
    assert all(result.error is None for result in table.results)
    assert ways(net, E0, BEYOND_E0) == [3]


def test_a_daemon_that_starts_again_takes_over_what_it_finds(fabric: RunningNetwork) -> None:
    """While e0's daemon is dead its routes stay; the next one finds them and follows what happened
    meanwhile."""
    directory = fabric.run.directory
    control.kill(directory, "e0")
    wait_until("e1 notices", lambda: ways(fabric, E1, Prefix(10 << 24, 24)) == [])
    assert ways(fabric, E0, BEYOND_E0) == [2, 3]
    fabric.fail("e0-c0")
    control.start(directory, "e0")
    wait_until("e0 follows", lambda: ways(fabric, E0, BEYOND_E0) == [3])
    wait_until("all answer", lambda: not ping(fabric, all_pairs(fabric), count=2).lost)
    fabric.restore("e0-c0")
    fabric.wait_until_converged()


def test_a_daemon_takes_away_what_only_the_maps_hold(fabric: RunningNetwork) -> None:
    """The kernel has lost the routes of the daemon before it, as it does with a device that goes;
    the maps have not.

    The route that nobody wants is longer than those that the daemon sets, and would go before them.
    """
    stale = Prefix(10 << 24 | 1 << 8, 32)
    control.kill(fabric.run.directory, "e0")
    with DataPlane.open(fabric) as plane:
        plane.groups[E0].set({stale: [fabric.ifindex(E0, 2)]})
    with fabric.at(E0) as socket:
        socket.request([fib.removal_message(prefix) for prefix in fib.routes(socket)])
    control.start(fabric.run.directory, "e0")
    wait_until("it is gone", lambda: stale not in tables(fabric)[E0])
    fabric.wait_until_converged()
    assert ways(fabric, E0, BEYOND_E0) == [2, 3]
    assert ping(fabric, all_pairs(fabric)).lost_fraction == 0


@pytest.fixture
def static_net(network: Callable[..., RunningNetwork]) -> Iterator[RunningNetwork]:
    net = network(CLOS, FAST, "static")
    with DataPlane.load(net, "ecmp") as plane:
        plane.attach()
        yield net


def test_ecmp_fails_over_by_the_kernel_alone(static_net: RunningNetwork) -> None:
    """A switch that sees its carrier go takes the port from its multipath routes itself."""
    net = static_net

    def lost_fraction() -> float:
        return ping(net, all_pairs(net), count=6, timeout_s=0.3).lost_fraction

    def hops() -> int:
        """Of e0's multipath route, that live."""
        command = ["ip", "-n", net.plan.namespace(E0), "-j", "route"]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        (route,) = [route for route in json.loads(said) if "nexthops" in route]
        return sum("dead" not in hop["flags"] for hop in route["nexthops"])

    assert (hops(), lost_fraction()) == (2, 0)
    net.fail("e0-c0")
    net.fail("e1-c0")
    assert (hops(), lost_fraction()) == (1, 0)
    for name in ("e0-c0", "e1-c0"):
        net.restore(name)
    assert (hops(), lost_fraction()) == (2, 0)


def test_parameters_of_the_daemons_are_taken_with_those_of_the_scheme(
    network: Callable[..., RunningNetwork],
) -> None:
    net = network(CLOS, FAST, "ttc:delta=4,hello_ms=50,dead=2")
    status = control.status(net.identity.directory, "e0")
    assert status["protocol"]["neighbours"][0]["state"] == "up"
    assert net.identity.journal["scheme"] == "ttc:delta=4,hello_ms=50,dead=2"
    with pytest.raises(ValueError, match="ttc: no parameter 'hello'"):
        RunningNetwork.create(build(CLOS), FAST, scheme="ttc:hello=3")
    with pytest.raises(ValueError, match="runs on switch fabrics"):
        RunningNetwork.create(build("dcell:n=3,k=1"), FAST, scheme="ttc")
