from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

from weft.daemons.dfr.routing import FIELDS, Dfr
from weft.daemons.proxy import routing as proxy
from weft.daemons.proxy.routing import DR_FIRST, LEAST_LOADED, SHORTEST, cost_of, most_routes
from weft.daemons.routing import dr
from weft.daemons.routing.path_tables import tabulate
from weft.experiments.engines import graph as graph_module
from weft.experiments.engines import loops as loops
from weft.experiments.engines import wiring
from weft.experiments.engines.graph import Graph, graph, policy
from weft.experiments.engines.loops import LONGEST, batches, new_book
from weft.experiments.engines.pairs import ONE_TO_ALL, Pairs, pair, pairs
from weft.experiments.engines.wiring import by_arrays
from weft.topologies import build
from weft.topologies.core.failures import random_links
from weft.topologies.recursive.ccrdn import (
    BETA_DCELL,
    DCELL,
    FICONN,
    RULES,
    Ccrdn,
    add,
    by_permutation,
    common_level,
)

SMALL = ["dcell:n=3,k=2", "beta-dcell:n=3,k=2", "ficonn:n=4,k=2", "ficonn:n=4,k=3"]
SCHEMES = ["dr", "pr-gpe", "pr-gpi", "pr-gp0"]


def uniform(net, flows, seed=0):
    return pairs(f"uniform:flows={flows}", net.servers, np.random.default_rng(seed))


def channels_of(net, route):
    """The (server, port) of each channel of a route, port k + 1 being the way from the crossbar."""
    for cur, to in pairwise(route):
        level = common_level(net.network.t, cur, to)
        yield (cur, level)
        if level == 0:
            yield (to, net.k + 1)


def one_by_one(net, routing, traffic_pairs, faults=None):
    """Hops, lost pairs and loads, pair after pair in plain Python, each route written out."""
    table, rule, t = tabulate(net.rule, net.network.t, 1), net.rule, net.network.t
    down = (
        set()
        if faults is None
        else {divmod(int(c), net.ports) for c in np.flatnonzero(faults.down)}
    )
    hops, loads, lost = Counter(), Counter(), 0
    for index in range(traffic_pairs.total):
        with np.errstate(over="ignore"):
            src, dst = (int(server) for server in pair(traffic_pairs, index))
        routes = [(length, c) for length, c in proxy.alternatives(table, policy(routing), src, dst)]
        written = [(length, proxy.route(rule, t, src, dst, c)) for length, c in routes]
        alive = [
            (length, route) for length, route in written if not down & set(channels_of(net, route))
        ]
        if not alive:
            lost += 1
            continue
        hops[alive[0][0]] += 1
        loads.update(channels_of(net, alive[0][1]) if routing == "dr" else [])
    return hops, lost, loads


@pytest.mark.parametrize("routing", SCHEMES)
@pytest.mark.parametrize("spec", SMALL)
@pytest.mark.slow
def test_all_pairs_are_routed_as_one_by_one(spec, routing):
    net = Graph(graph(spec).network, threads=3)
    traffic_pairs = uniform(net, 300)
    routes = net.route(policy(routing), traffic_pairs, loads=True)
    hops, _, loads = one_by_one(net, routing, traffic_pairs)
    assert {length: count for length, count in enumerate(routes.hops.tolist()) if count} == dict(
        hops
    )
    assert routes.lost == routes.left_out == 0
    assert routes.mean_hops == pytest.approx(
        sum(length * count for length, count in hops.items()) / 300
    )
    crossbar_hops = routes.loads[:, 0].sum()
    assert crossbar_hops == routes.loads[:, net.k + 1].sum()
    assert routes.loads.sum() - crossbar_hops == sum(
        length * count for length, count in hops.items()
    )
    if routing == "dr":
        assert {
            (int(u), int(p)): int(routes.loads[u, p]) for u, p in np.argwhere(routes.loads)
        } == dict(loads)


@pytest.mark.slow
def test_a_rule_that_is_a_function_is_compiled_into_the_loops():
    net = Graph(graph("delta-dcell:n=4,k=2").network, threads=1)
    traffic_pairs = uniform(net, 300)
    routes = net.route(policy("pr-gpi"), traffic_pairs, loads=True)
    hops, _, _ = one_by_one(net, "pr-gpi", traffic_pairs)
    assert {length: count for length, count in enumerate(routes.hops.tolist()) if count} == dict(
        hops
    )
    faults = net.link_faults(np.random.default_rng(0), fraction=0.1)
    sources = range(0, net.servers, 20)
    routes = net.shortest(sources, faults)
    rerouted = [
        net.reroute(
            Dfr(b=2),
            Pairs(
                ONE_TO_ALL,
                net.servers,
                net.servers - 1,
                np.uint64(0),
                np.roll(np.arange(net.servers), -src),
                0,
            ),
            faults,
        )
        for src in sources
    ]
    assert [(batch.hops.tolist(), batch.lost) for batch in routes] == [
        (batch.hops.tolist(), batch.lost) for batch in rerouted
    ]


@pytest.mark.slow
def test_a_rule_by_permutation_is_compiled_from_arrays():
    orders = {size: np.random.default_rng(size).permutation(size).tolist() for size in (3, 12)}
    rule = by_permutation(orders)
    gateway, far_subnetwork = by_arrays(orders)
    for size in orders:
        for i in range(size + 1):
            for j in set(range(size + 1)) - {i}:
                assert gateway(size, i, j) == rule.gateway(size, i, j)
                assert far_subnetwork(size, i, rule.gateway(size, i, j)) == j
    number = add(rule)
    net = Graph(Ccrdn(number, 3, 2), threads=1)
    a, b, level = net.links
    above = level > 0
    expected = [(server, net.network.peer(server, h), h) for h in (1, 2) for server in range(156)]
    assert list(zip(a[above].tolist(), b[above].tolist(), level[above].tolist(), strict=True)) == [
        link for link in expected if link[0] < link[1]
    ]
    del RULES[number]


@pytest.mark.parametrize("routing", SCHEMES)
@pytest.mark.parametrize(
    "spec",
    [
        *SMALL,
        *(
            pytest.param(spec, marks=pytest.mark.slow)
            for spec in ("dcell:n=3,k=3", "ficonn:n=8,k=3")
        ),
    ],
)
def test_loads_are_the_same_whatever_the_flows_were_counted_on(spec, routing, monkeypatch):
    by_channel = Graph(graph(spec).network, threads=2)
    by_channel.stretches = None
    traffic_pairs = uniform(by_channel, 20_000)
    loads = by_channel.route(policy(routing, least_level=1), traffic_pairs, loads=True).loads
    for most_bytes in (
        4 * by_channel.servers * (by_channel.k + 2 + by_channel.network.n),
        2 << 20,
        1 << 26,
    ):
        monkeypatch.setattr(wiring, "MOST_COUNTER_BYTES", most_bytes)
        net = Graph(by_channel.network, threads=2)
        assert net.stretches is not None
        assert (
            net.route(policy(routing, least_level=1), traffic_pairs, loads=True).loads == loads
        ).all()
    monkeypatch.setattr(wiring, "MOST_COUNTER_BYTES", 1000)
    assert Graph(by_channel.network).stretches is None


@pytest.mark.parametrize("routing", SCHEMES)
@pytest.mark.parametrize("spec", SMALL)
def test_connectivity_under_faults_is_that_of_the_routes(spec, routing):
    net = graph(spec)
    faults = net.link_faults(np.random.default_rng(4), fraction=0.15)
    traffic_pairs = uniform(net, 300)
    routes = net.route(policy(routing), traffic_pairs, faults)
    hops, lost, _ = one_by_one(net, routing, traffic_pairs, faults)
    assert {length: count for length, count in enumerate(routes.hops.tolist()) if count} == dict(
        hops
    )
    assert routes.lost == lost
    assert routes.connected_fraction == pytest.approx(1 - lost / 300)


@pytest.mark.parametrize("spec", SMALL)
def test_links_and_their_failures_are_those_of_the_topology(spec):
    net, topology = graph(spec), build(spec)
    a, b, level = net.links
    assert len(a) == len(topology.links)
    above = level > 0
    assert (topology.links[:, 0] == a).all()
    assert (topology.links[above, 2] == b[above]).all()
    assert (topology.level == level).all()
    faults = net.link_faults(np.random.default_rng(3), fraction=0.2)
    down = {divmod(int(channel), net.ports) for channel in np.flatnonzero(faults.down)}
    expected = set()
    for link in random_links(topology, fraction=0.2, generator=np.random.default_rng(3)):
        u, _, v, _ = topology.links[link].tolist()
        expected |= (
            {(u, 0), (u, net.k + 1)}
            if level[link] == 0
            else {(u, int(level[link])), (v, int(level[link]))}
        )
    assert down == expected


@pytest.mark.parametrize(
    ("spec", "servers", "links"),
    # CCRDN, table 1
    [
        ("ficonn:n=36,k=2", 117648, 161766),
        ("ficonn:n=10,k=3", 116160, 166980),
        ("ficonn:n=16,k=3", 3553776, 5108553),
        ("dcell:n=43,k=2", 3581556, 7163112),
        ("dcell:n=3,k=3", 24492, 61230),
        ("dcell:n=4,k=3", 176820, 442050),
        ("beta-dcell:n=6,k=3", 3263442, 8158605),
    ],
)
def test_networks_of_the_paper_have_its_sizes(spec, servers, links):
    assert (graph(spec).servers, graph(spec).wired.sum()) == (servers, 2 * links)


def test_pairs_with_a_dead_end_are_left_out():
    net = graph("dcell:n=3,k=2")
    traffic_pairs = pairs("all-to-all", net.servers, np.random.default_rng(0))
    nodes = net.node_faults(np.random.default_rng(1), fraction=0.1)
    assert nodes.servers.sum() == 16
    racks = net.rack_faults(np.random.default_rng(1), fraction=0.1)
    assert (
        racks.servers.reshape(-1, 3).all(axis=1) == racks.servers.reshape(-1, 3).any(axis=1)
    ).all()
    for faults in (nodes, racks):
        alive = 156 - int(faults.servers.sum())
        for found in (
            net.route(policy("pr-gpi"), traffic_pairs, faults),
            net.reroute(Dfr(), traffic_pairs, faults),
        ):
            assert found.connected + found.lost == alive * (alive - 1)
            assert found.connected + found.lost + found.left_out == traffic_pairs.total
        ends = faults.down.reshape(-1, net.ports)[faults.servers == 1]
        assert ends.all()  # all four channels of a server are dead


@pytest.mark.parametrize("faulty", [False, True])
@pytest.mark.parametrize(
    "network", [Ccrdn(DCELL, 3, 2), Ccrdn(BETA_DCELL, 4, 2), Ccrdn(FICONN, 8, 2)]
)
@pytest.mark.slow
def test_results_do_not_depend_on_the_number_of_threads(network, faulty):
    single, three = Graph(network, threads=1), Graph(network, threads=3)
    faults = single.link_faults(np.random.default_rng(0), fraction=0.1 if faulty else 0)
    traffic_pairs = uniform(single, 40_000)
    for run in (
        lambda net: net.route(policy("pr-gpi"), traffic_pairs, faults, balanced=True),
        lambda net: net.route(policy("pr-gp0"), traffic_pairs, faults, loads=True),
        lambda net: net.reroute(Dfr(nearest=False), traffic_pairs, faults, loads=True),
        lambda net: net.probe(traffic_pairs, faults) if network.rule == FICONN else None,
    ):
        found, same = run(single), run(three)
        if found:
            assert (found.hops.tolist(), found.lost) == (same.hops.tolist(), same.lost)
            assert (found.loads == same.loads).all()


@pytest.mark.parametrize("network", [Ccrdn(DCELL, 3, 2), Ccrdn(FICONN, 4, 2)])
def test_the_loops_give_as_plain_python_what_they_give_as_machine_code(network):
    net = Graph(network, threads=1)
    faults = net.link_faults(np.random.default_rng(2), fraction=0.1)
    traffic_pairs, t = uniform(net, 150), net.t
    room = np.zeros((3, t[1] + FIELDS), np.int64)
    compiled = {
        "route": net.route(policy("pr-gpi"), traffic_pairs, faults, loads=True),
        "reroute": net.reroute(Dfr(), traffic_pairs, faults, loads=True),
    }
    books = {name: new_book(net.channels) for name in compiled}
    part = loops.PairRange(traffic_pairs, 0, 150)
    lengths = np.zeros(most_routes(network.t), np.int64)
    with np.errstate(over="ignore"):
        load = faults.down.astype(np.int64) * loops.DEAD
        table = tabulate(net.rule, network.t, 1, with_channels=True)
        view = loops.ChannelView(load, loops.DEAD, lengths)
        loops.route(table, policy("pr-gpi"), part, faults, view, books["route"])
        loops.reroute(net.rule, t, Dfr(), part, faults, books["reroute"], room)
    for name, found in compiled.items():
        assert found.hops.tolist() == books[name].hops[: len(found.hops)].tolist()
        assert found.lost == books[name].hops[loops.LOST]
        assert (found.loads.reshape(-1) == books[name].flows).all()


def test_balancing_relieves_the_fullest_channel_and_leaves_lengths_alone():
    net = graph("dcell:n=3,k=2")
    traffic_pairs = uniform(net, 100_000)
    first = net.route(policy("pr-gpe"), traffic_pairs, loads=True)
    balanced = net.route(policy("pr-gpe"), traffic_pairs, balanced=True)
    assert balanced.hops.tolist() == first.hops.tolist()
    assert balanced.loads.max() < first.loads.max()


@pytest.mark.slow
def test_least_congested_first_takes_longer_routes_and_relieves_the_fullest_channel():
    """CCRDN 5.4, the other rule that it names."""
    net = graph("dcell:n=3,k=2")
    traffic_pairs = uniform(net, 20_000)
    shortest, other = (
        net.route(
            policy("pr-gpe", choice=choice), traffic_pairs, balanced=True, cost=cost_of(choice)
        )
        for choice in (SHORTEST, LEAST_LOADED)
    )
    assert other.mean_hops > shortest.mean_hops
    assert other.loads.max() != shortest.loads.max()


def test_dr_first_tries_proxies_of_near_pairs_only_where_dr_is_dead():
    net = graph("dcell:n=3,k=2")
    traffic_pairs, faults = (
        uniform(net, 20_000),
        net.link_faults(np.random.default_rng(1), fraction=0.1),
    )
    usual, first = policy("pr-gpe", least_level=1), policy("pr-gpe", least_level=1, choice=DR_FIRST)
    alone = policy("pr-gpe", least_level=1, condition1=True)
    assert (
        net.route(first, traffic_pairs).hops.tolist()
        == net.route(alone, traffic_pairs).hops.tolist()
    )
    by_first, by_usual, by_alone = (
        net.route(batch, traffic_pairs, faults) for batch in (first, usual, alone)
    )
    assert by_first.connected == by_usual.connected > by_alone.connected
    by_first, by_usual = (
        net.route(batch, traffic_pairs, faults, balanced=True) for batch in (first, usual)
    )
    assert by_first.mean_hops >= by_usual.mean_hops
    assert (by_first.loads != by_usual.loads).any()


def test_survey_counts_candidates_and_routes_no_longer_than_dimensional_ones():
    net = graph("dcell:n=3,k=2")
    table, traffic_pairs = tabulate(net.rule, net.network.t, 1), uniform(net, 200)
    counts = []
    for index in range(traffic_pairs.total):
        with np.errstate(over="ignore"):
            src, dst = pair(traffic_pairs, index)
        routes = proxy.alternatives(table, policy("pr-gpi", condition1=True), int(src), int(dst))
        direct = next(length for length, c in routes if c < 0)
        counts.append(
            (
                len(routes) - 1,
                sum(length <= direct for length, c in routes if c >= 0),
                routes[0][0] < direct,
            )
        )
    tried, short, shorter = zip(*counts, strict=True)
    expected = [
        sum(tried),
        sum(n * n for n in tried),
        sum(short),
        sum(n * n for n in short),
        sum(shorter),
    ]
    assert net.survey(policy("pr-gpi", condition1=True), traffic_pairs).tolist() == expected


def test_breadth_first_search_is_a_lower_bound_that_full_scope_reaches():
    net = graph("ficonn:n=4,k=2")
    faults = net.link_faults(np.random.default_rng(2), fraction=0.1)
    routes = net.shortest(range(net.servers), faults)
    everything = pairs("all-to-all", net.servers, np.random.default_rng(0))
    whole = net.reroute(Dfr(b=net.k), everything, faults)
    assert sum(batch.lost for batch in routes) == whole.lost
    total = np.zeros(len(whole.hops), np.int64)
    for batch in routes:
        total[: len(batch.hops)] += batch.hops
    assert total.tolist() == whole.hops.tolist()
    within = net.route(policy("pr-gpe"), everything, faults).hops
    assert (total.cumsum()[: len(within)] >= within.cumsum()[: len(total)]).all()


def test_dr_of_all_pairs_has_the_mean_of_its_routes():
    net = graph("ficonn:n=4,k=2")
    routes = net.route(policy("dr"), pairs("all-to-all", net.servers, np.random.default_rng(0)))
    lengths = [
        len(dr.route(net.rule, net.network.t, src, dst)) - 1
        for src in range(48)
        for dst in range(48)
        if src != dst
    ]
    assert routes.mean_hops == pytest.approx(np.mean(lengths))
    assert routes.sd_hops == pytest.approx(np.std(lengths))


@pytest.mark.parametrize("how", ["stretches", "channels", "balanced", "dfr"])
def test_a_channel_carries_any_number_of_flows(how, monkeypatch):
    """Each thread begins with nearly as many flows on each channel as it can count."""
    net, before = Graph(Ccrdn(FICONN, 4, 2), threads=3), (1 << 32) - 2001
    if how != "stretches":
        net.stretches = None
    faults, traffic_pairs = (
        net.link_faults(np.random.default_rng(0), fraction=0.1),
        uniform(net, 2000),
    )
    route = {
        "balanced": lambda: net.route(policy("pr-gpi"), traffic_pairs, faults, balanced=True),
        "dfr": lambda: net.reroute(Dfr(), traffic_pairs, loads=True),
    }.get(how, lambda: net.route(policy("dr"), traffic_pairs, loads=True))
    usual = route().loads

    def full_book(channels):
        book = new_book(channels)
        book.flows[:] = before
        return book

    monkeypatch.setattr(graph_module, "new_book", full_book)
    loads = route().loads[net.wired]
    if how in ("channels", "dfr"):
        assert (loads == usual[net.wired] + 3 * before).all()
    elif how == "balanced":
        dead = faults.down.reshape(-1, net.ports)[net.wired] > 0
        assert (loads[dead] == 0).all()
        assert (loads[~dead] >= 3 * before).all()
    else:
        assert (loads >= 3 * before).all()


@pytest.mark.slow
def test_flows_are_counted_in_parts_as_at_once(monkeypatch):
    net = graph("ficonn:n=4,k=2")
    traffic_pairs = uniform(net, 3000)
    whole = (
        net.route(policy("pr-gpe"), traffic_pairs, loads=True),
        net.reroute(Dfr(), traffic_pairs, loads=True),
    )
    monkeypatch.setattr(graph_module, "MOST_CROSSINGS", LONGEST * 7)
    parts = (
        net.route(policy("pr-gpe"), traffic_pairs, loads=True),
        net.reroute(Dfr(), traffic_pairs, loads=True),
    )
    for one, same in zip(whole, parts, strict=True):
        assert one.hops.tolist() == same.hops.tolist()
        assert (one.loads == same.loads).all()


def test_batches_cover_everything_once_and_grow():
    ranges = list(batches(10_000_000))
    assert ranges[0][0] == 0
    assert ranges[-1][1] == 10_000_000
    assert all(a[1] == b[0] for a, b in pairwise(ranges))
    assert all(last - first <= max(1 << 14, first // 64) for first, last in ranges)
    assert list(batches(0)) == []
    assert list(batches(3)) == [(0, 1), (1, 2), (2, 3)]
    assert next(batches(100_000)) == (0, 390)


@pytest.mark.parametrize(
    ("spec", "what"),
    [
        ("fattree:k=4", "no recursively-defined network"),
        ("ficonn:n=5,k=2", "must be even"),
        ("dcell:n=2,k=2", "at least"),
    ],
)
def test_other_networks_are_refused(spec, what):
    with pytest.raises(ValueError, match=what):
        graph(spec)


def test_schemes_for_other_networks_are_refused():
    net = graph("dcell:n=3,k=2")
    with pytest.raises(ValueError, match="two ports"):
        net.probe(uniform(net, 10))
    with pytest.raises(ValueError, match="no proxy scheme 'pr-gpx', did you mean"):
        policy("pr-gpx")
    with pytest.raises(ValueError, match="b at most 2"):
        net.reroute(Dfr(b=3), uniform(net, 10))
