import pytest

from daemons.control.hello import Neighbourhood
from daemons.control.link_state import Database
from daemons.core.actions import NOTHING, Hop, SetRoute
from daemons.core.node_config import routers
from daemons.shortest_paths.daemon import Bfs
from daemons.simulator.simulator import Simulator
from topologies import build
from topologies.core.address import Prefix

DCELL = build("dcell:n=4,k=1")
HOST = Prefix(10 << 24 | 9, 32)


def converged(topology, spec="bfs"):
    fabric = Simulator(topology, spec)
    fabric.run_until_converged()
    return fabric


def total(fabric, key):
    return sum(fabric.status(node)[key] for node in routers(fabric.topology))


def test_a_failure_costs_few_computations_and_sets_only_routes_that_change():
    fabric = converged(DCELL)
    fabric.run_for(0.5)
    computed, tables = total(fabric, "computations"), [dict(fabric.routes(node)) for node in range(20)]
    set_before = fabric.counters["routes_set"]
    fabric.fail(DCELL.link("h0-h4"))
    fabric.run_until_quiet()
    assert 20 <= total(fabric, "computations") - computed <= 40
    changed = sum(hops != tables[node][prefix] for node in range(20) for prefix, hops in fabric.routes(node).items())
    assert changed <= fabric.counters["routes_set"] - set_before <= changed + 4


def test_many_changes_cost_few_computations():
    fabric = Simulator(DCELL, "bfs", start_spread_s=0.010)
    fabric.run_until(0.2)
    assert total(fabric, "computations") <= 20 * 5


def test_a_daemon_has_not_converged_while_a_neighbour_knows_something_else():
    fabric = converged(DCELL)
    fabric.run_until(1.0)
    fabric.fail(DCELL.link("h4-w1"))
    fabric.restore(DCELL.link("h4-w1"))
    fabric.run_until(1.004)
    assert not fabric.protocol(0).converged()
    fabric.run_until_converged(within_s=0.2)


def test_an_announced_failure_is_healed_in_a_few_ms():
    fabric = converged(DCELL)
    fabric.run_until(1.0)
    fabric.fail(DCELL.link("h0-h4"))
    fabric.run_until(1.006)
    assert fabric.walk(0, 4).lost == ""


def test_in_the_end_only_hellos_are_sent():
    fabric = converged(DCELL)
    fabric.run_for(0.5)
    before = fabric.counters["messages"]
    fabric.run_for(3.0)
    assert fabric.counters["messages"] - before == pytest.approx(20 * 2 * 100, abs=40)


def test_link_state_is_renewed_before_it_is_forgotten():
    fabric = converged(DCELL, "bfs:lifetime_s=1")
    fabric.run_for(0.5)
    computed, was = total(fabric, "computations"), fabric.status(0)
    fabric.run_for(5.0)
    assert total(fabric, "computations") == computed
    assert fabric.status(0)["digest"] != was["digest"]
    assert fabric.status(0)["routes_lost"] == was["routes_lost"] == []


def test_a_daemon_that_starts_again_learns_all_at_once():
    fabric = converged(DCELL)
    fabric.run_until(1.0)
    fabric.restart(5)
    fabric.run_until(1.025)
    assert fabric.status(5)["origins"] == 20
    assert fabric.status(5)["routes_lost"] == []
    fabric.run_until_converged(within_s=0.2)


def test_all_shortest_ways_are_taken():
    topology = build("fattree:k=4")
    fabric = converged(topology)
    edge, far = topology.naming.node("e0.0"), topology.naming.layout.prefix((2, 0))
    above = {topology.naming.node("a0.0"), topology.naming.node("a0.1")}
    assert {hop.node for hop in fabric.routes(edge)[far]} == above


def test_a_dead_neighbour_is_left_before_anything_is_computed():
    topology = build("fattree:k=4")
    fabric = converged(topology)
    fabric.run_for(1.0)
    edge, far = topology.naming.node("e0.0"), topology.naming.layout.prefix((2, 0))
    fabric.fail(topology.link("e0.0-a0.0"))
    assert [hop.node for hop in fabric.routes(edge)[far]] == [topology.naming.node("a0.1")]


def test_the_routes_of_its_own_hosts_follow_their_carrier():
    node = Bfs(
        Neighbourhood(0, {0: [1]}, incarnation=1),
        Database(0, {0: [1]}, incarnation=1),
        [(HOST, 0)],
        [(HOST, (Hop(3, 9),))],
        hold_s=0.002,
    )
    assert SetRoute(HOST, (Hop(3, 9),)) in node.start(0.0)
    assert node.link_changed(3, False, 0.1) == [SetRoute(HOST, ())]
    assert node.link_changed(3, True, 0.2) == [SetRoute(HOST, (Hop(3, 9),))]
    assert node.receive(b"junk", 0, 0.3) is NOTHING
    assert node.status()["garbage"] == 1
