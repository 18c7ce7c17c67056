"""TAR on the graph engine: flow by flow what the slow reference of its pure function does, and what
comes of it."""

import numpy as np
import pytest

from tests.daemons.tar import reference
from weft.daemons.tar.routing import ANY, LINKED, SUBNETWORK
from weft.experiments.engines import flow_placement
from weft.experiments.engines.flow_placement import Placement, PlacementState, nth
from weft.experiments.engines.graph import Graph, graph, policy
from weft.experiments.engines.loops import ALONG, LOST, MOST_DRAWS, PairRange
from weft.experiments.engines.pairs import SHIFT_11, pair, pairs, word
from weft.experiments.engines.wiring import NO_FAULTS
from weft.topologies.recursive.ccrdn import FICONN, Ccrdn

RELAYS = (SUBNETWORK, LINKED, ANY)


def traffic(net, spec, seed=0):
    return pairs(spec, net.servers, np.random.default_rng(seed))


def placed_one_by_one(net, traffic_pairs, faults, placement):
    """Paths of all flows in the order in which they begin, None for those without, the loads that
    come of them, and virtual flows."""
    network, ports = net.network, net.ports
    down = (
        faults.down.reshape(-1, ports)
        if len(faults.down)
        else np.zeros((net.servers, ports), np.uint8)
    )
    load, virtual, paths = np.zeros((net.servers, ports), int), np.zeros(net.servers, int), []
    dead = frozenset(np.flatnonzero(down[:, -1]).tolist())
    for number in range(traffic_pairs.total):
        index = (
            nth(traffic_pairs.key, number, traffic_pairs.total) if placement.shuffled else number
        )

        def free_capacity(server):
            (level,) = network.levels(server) or [0]
            free = 10**6 - load[server, 0] - virtual[server] * placement.virtual
            return (
                0 if down[server, 0] else free,
                0 if level == 0 or down[server, level] else 10**6 - load[server, level],
            )

        def draw(turn, index=index):
            return int(word(traffic_pairs.key, ALONG + index * MOST_DRAWS + turn) >> SHIFT_11)

        state = reference.State(free_capacity, dead, draw)
        path = reference.path_of(network, placement.relay, *pair(traffic_pairs, index), state)
        np.add.at(virtual, state.virtual, 1)
        paths.append(path)
        for a, b in zip(path or [], (path or [])[1:], strict=False):
            level = reference.level_of(network, a, b)
            load[a, level] += 1
            if level == 0:
                load[b, -1] += 1
    return paths, load, virtual


@pytest.mark.parametrize("faulty", [False, True], ids=["whole", "faulty"])
@pytest.mark.parametrize("relay", RELAYS)
@pytest.mark.parametrize(
    ("network", "spec"),
    [(Ccrdn(FICONN, 4, 2), "all-to-all"), (Ccrdn(FICONN, 8, 2), "uniform:flows=800")],
)
def test_flows_go_where_the_reference_puts_them_one_after_another(network, spec, relay, faulty):
    net = Graph(network)
    faults = net.link_faults(np.random.default_rng(2), fraction=0.05) if faulty else NO_FAULTS
    traffic_pairs, placement = (
        traffic(net, spec),
        Placement(relay, virtual=relay != LINKED, shuffled=relay != ANY),
    )
    with np.errstate(over="ignore"):
        paths, load, virtual = placed_one_by_one(net, traffic_pairs, faults, placement)
    answers = net.probe(traffic_pairs, faults, placement)
    assert (answers.loads == load).all()
    lengths = [len(path) - 1 for path in paths if path]
    assert answers.hops.tolist() == np.bincount(lengths).tolist()
    assert answers.lost == paths.count(None)
    assert bool(answers.lost) == faulty
    assert virtual.sum() > 0


def test_the_loop_gives_as_plain_python_what_it_gives_as_machine_code():
    net = graph("ficonn:n=4,k=2")
    faults, traffic_pairs = (
        net.link_faults(np.random.default_rng(2), fraction=0.1),
        traffic(net, "uniform:flows=150"),
    )
    answers = net.probe(traffic_pairs, faults)
    load, hops = np.zeros(net.channels, np.int64), np.zeros(60, np.int64)
    state = PlacementState(load, np.zeros(net.servers, np.int64), np.zeros(40, np.int64))
    part = PairRange(traffic_pairs, 0, traffic_pairs.total)
    with np.errstate(over="ignore"):
        flow_placement.place(net.rule, net.t, Placement(), part, faults, state, hops)
    assert answers.hops.tolist() == hops[: len(answers.hops)].tolist()
    assert answers.lost == hops[LOST]
    assert (answers.loads.reshape(-1) == load).all()


def test_a_channel_carries_any_number_of_flows():
    net = graph("ficonn:n=4,k=2")
    traffic_pairs, results = traffic(net, "uniform:flows=50"), []
    for before in (0, 1 << 40):
        load, hops = np.full(net.channels, before), np.zeros(60, np.int64)
        state = PlacementState(load, np.zeros(net.servers, np.int64), np.zeros(40, np.int64))
        part = PairRange(traffic_pairs, 0, traffic_pairs.total)
        with np.errstate(over="ignore"):
            flow_placement.place(net.rule, net.t, Placement(), part, NO_FAULTS, state, hops)
        results.append((load - before).tolist() + hops.tolist())
    assert results[0] == results[1]


@pytest.mark.parametrize("total", [1, 2, 3, 5, 64, 100, 2256])
def test_every_flow_begins_once(total):
    with np.errstate(over="ignore"):
        orders = [[nth(np.uint64(key), number, total) for number in range(total)] for key in (1, 2)]
    assert all(sorted(order) == list(range(total)) for order in orders)
    assert total < 100 or orders[0] != orders[1]


def test_flows_begin_in_an_order_that_looks_random():
    with np.errstate(over="ignore"):
        order = np.array([nth(np.uint64(7), number, 4000) for number in range(4000)])
    assert abs(np.corrcoef(order[:-1], order[1:])[0, 1]) < 0.05
    assert abs(np.corrcoef(order, np.arange(4000))[0, 1]) < 0.05


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("spec", "flows_of_a_server"),
    [("ficonn:n=4,k=2", 1), ("ficonn:n=4,k=2", 10), ("ficonn:n=10,k=3", 1)],
)
@pytest.mark.slow
def test_paths_are_longer_than_those_of_dr_and_none_passes_the_bound(spec, flows_of_a_server, seed):
    """CCRDN 7.2: 15 to 30 % longer than TOR's, under the loads of the paper that it quotes."""
    net = graph(spec)
    traffic_pairs = traffic(net, f"uniform:flows={flows_of_a_server * net.servers}", seed)
    by_dr, by_tar = net.route(policy("dr"), traffic_pairs, loads=True), net.probe(traffic_pairs)
    assert by_tar.lost == 0
    assert len(by_tar.hops) - 1 <= 2 * 3**net.k - 1
    assert 1.05 < by_tar.mean_hops / by_dr.mean_hops < 1.45
    assert (by_tar.loads != by_dr.loads).any()


def test_all_to_all_traffic_is_not_routed_as_by_dr():
    net = graph("ficonn:n=4,k=2")
    traffic_pairs = traffic(net, "all-to-all")
    by_dr, by_tar = net.route(policy("dr"), traffic_pairs, loads=True), net.probe(traffic_pairs)
    assert by_tar.mean_hops > by_dr.mean_hops
    assert by_tar.loads.max() != by_dr.loads.max()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.slow
def test_a_third_copy_drawn_from_all_relieves_the_fullest_link_and_one_by_the_same_switch_does_not(
    seed,
):
    net = graph("ficonn:n=36,k=2")
    traffic_pairs = traffic(net, f"uniform:flows={net.servers}", seed)
    fullest = {
        relay: net.probe(traffic_pairs, placement=Placement(relay)).loads.max() for relay in RELAYS
    }
    by_dr = net.route(policy("dr"), traffic_pairs, loads=True).loads.max()
    assert fullest[SUBNETWORK] <= by_dr < fullest[LINKED]
    assert fullest[SUBNETWORK] < fullest[ANY]


@pytest.mark.slow
def test_without_virtual_flows_servers_bypass_more():
    net = graph("ficonn:n=10,k=3")
    traffic_pairs = traffic(net, "uniform:flows=300000")
    hops = [
        net.probe(traffic_pairs, placement=Placement(virtual=virtual)).mean_hops
        for virtual in (True, False)
    ]
    assert hops[1] > 1.1 * hops[0]


def test_dead_servers_are_avoided_in_both_directions():
    """All pairs that DR leads through a dead server: with a single draw each, fewer are lost than
    enter it."""
    net = graph("ficonn:n=4,k=2")
    traffic_pairs = traffic(net, "all-to-all")
    for dead in range(0, 48, 7):
        faults = net.server_faults(np.array([dead]))
        by_dr, by_tar = (
            net.route(policy("dr"), traffic_pairs, faults),
            net.probe(traffic_pairs, faults),
        )
        assert by_tar.left_out == by_dr.left_out == 94
        assert by_tar.lost < by_dr.lost / 4 or by_dr.lost == 0
