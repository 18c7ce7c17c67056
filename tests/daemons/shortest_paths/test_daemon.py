import networkx as nx
import numpy as np
import pytest

from weft.daemons.control.hello import Neighbourhood
from weft.daemons.control.link_state import Database
from weft.daemons.core import registry, wire
from weft.daemons.core.actions import Hop, SetRoute
from weft.daemons.core.node_config import routers
from weft.daemons.shortest_paths.scheme import Bfs
from weft.daemons.simulator.simulator import Simulator
from weft.topologies import build
from weft.topologies.core.address import Prefix
from weft.topologies.core.failures import fail_links

DCELL = build("dcell:n=4,k=1")
HOST = Prefix(10 << 24 | 9, 32)


def converge(topology, spec="bfs"):
    simulator = Simulator(topology, spec)
    simulator.run_until_converged()
    return simulator


def test_the_path_is_as_short_as_any_and_there_is_none_to_what_is_cut_off():
    cut = fail_links(DCELL, np.flatnonzero((DCELL.links[:, [0, 2]] == 19).any(axis=1)))
    scheme, options = registry.checked(DCELL, "bfs")
    lengths = nx.single_source_shortest_path_length(nx.Graph(dict(cut.adjacency)), 0)
    for dst in range(1, 19):
        (path,) = scheme.path(cut, options, 0, dst)
        assert len(path.nodes) == lengths[dst] + 1
    assert scheme.path(cut, options, 0, 19) == []


def total(simulator, key):
    return sum(simulator.status(node)[key] for node in routers(simulator.topology))


def test_a_failure_costs_few_computations_and_sets_only_routes_that_change():
    simulator = converge(DCELL)
    simulator.run_for(0.5)
    computed, tables = (
        total(simulator, "computations"),
        [dict(simulator.routes(node)) for node in range(20)],
    )
    set_before = simulator.counters["routes_set"]
    simulator.fail(DCELL.link("h0-h4"))
    simulator.run_until_quiet()
    assert 20 <= total(simulator, "computations") - computed <= 40
    changed = sum(
        hops != tables[node][prefix]
        for node in range(20)
        for prefix, hops in simulator.routes(node).items()
    )
    assert changed <= simulator.counters["routes_set"] - set_before <= changed + 4


def test_many_changes_cost_few_computations():
    simulator = Simulator(DCELL, "bfs")
    simulator.run_until(0.2)
    assert total(simulator, "computations") <= 20 * 5


def test_a_daemon_has_not_converged_while_a_neighbour_knows_something_else():
    simulator = converge(DCELL)
    simulator.run_until(1.0)
    simulator.fail(DCELL.link("h4-w1"))
    simulator.restore(DCELL.link("h4-w1"))
    simulator.run_until(1.004)
    assert not simulator.protocol(0).converged()
    simulator.run_until_converged(within_s=0.2)


def test_an_announced_failure_is_healed_in_a_few_ms():
    simulator = converge(DCELL)
    simulator.run_until(1.0)
    simulator.fail(DCELL.link("h0-h4"))
    simulator.run_until(1.006)
    assert simulator.walk(0, 4).lost == ""


def test_in_the_end_only_hellos_are_sent():
    simulator = converge(DCELL)
    simulator.run_for(0.5)
    before = simulator.counters["messages"]
    simulator.run_for(3.0)
    assert simulator.counters["messages"] - before == pytest.approx(20 * 2 * 100, abs=40)


def test_link_state_is_renewed_before_it_is_forgotten():
    simulator = converge(DCELL, "bfs:lifetime_s=1")
    simulator.run_for(0.5)
    computed, was = total(simulator, "computations"), simulator.status(0)
    simulator.run_for(5.0)
    assert total(simulator, "computations") == computed
    assert simulator.status(0)["digest"] != was["digest"]
    assert simulator.status(0)["routes_lost"] == was["routes_lost"] == []


def test_a_daemon_that_starts_again_learns_all_at_once():
    simulator = converge(DCELL)
    simulator.run_until(1.0)
    simulator.restart(5)
    simulator.run_until(1.025)
    assert simulator.status(5)["origins"] == 20
    assert simulator.status(5)["routes_lost"] == []
    simulator.run_until_converged(within_s=0.2)


def test_the_status_counts_the_routes_that_lead_somewhere_and_names_the_others():
    topology = build("fattree:k=4")
    simulator = converge(topology)
    for links in ((), ("e3.1-a3.0", "e3.1-a3.1")):
        for link in links:
            simulator.fail(topology.link(link))
        simulator.run_until_quiet()
        for node in routers(topology):
            status, routes = simulator.status(node), simulator.routes(node)
            assert status["routes"] == sum(bool(hops) for hops in routes.values()) > 0
            lost = [str(prefix) for prefix, hops in routes.items() if not hops]
            assert sorted(status["routes_lost"]) == sorted(lost)
            assert bool(lost) is bool(links)


def test_all_shortest_ways_are_taken():
    topology = build("fattree:k=4")
    simulator = converge(topology)
    edge, far = topology.naming.node("e0.0"), topology.naming.layout.prefix((2, 0))
    above = {topology.naming.node("a0.0"), topology.naming.node("a0.1")}
    assert {hop.node for hop in simulator.routes(edge)[far]} == above


def test_a_dead_neighbour_is_left_before_anything_is_computed():
    topology = build("fattree:k=4")
    simulator = converge(topology)
    simulator.run_for(1.0)
    edge, far = topology.naming.node("e0.0"), topology.naming.layout.prefix((2, 0))
    simulator.fail(topology.link("e0.0-a0.0"))
    assert [hop.node for hop in simulator.routes(edge)[far]] == [topology.naming.node("a0.1")]


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
    with pytest.raises(wire.MalformedMessage):
        node.receive(b"junk", 0, 0.3)
