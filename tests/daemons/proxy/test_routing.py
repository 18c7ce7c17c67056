from __future__ import annotations

from functools import cache
from itertools import pairwise, product

import pytest
from networks import THREE_LEVELS, TWO_LEVELS, channels, dead_links, distances, pairs, title

from weft.daemons.proxy import routing as proxy
from weft.daemons.proxy.routing import GP_0, GP_E, GP_I, Policy
from weft.daemons.routing import dr
from weft.daemons.routing.path_tables import length, path, tabulate, width, write
from weft.topologies.recursive.ccrdn import DCELL, FICONN, Ccrdn, common_level

NETWORKS = TWO_LEVELS + THREE_LEVELS
LARGE = [
    pytest.param(network, marks=pytest.mark.slow, id=title(network)) for network in THREE_LEVELS
]
METHODS = {"gpe": GP_E, "gpi": GP_I, "gp0": GP_0}
FAULTLESS: tuple[int, ...] = ()


@cache
def bridge(network: Ccrdn, level: int, a: int, c: int) -> int:
    """The server of copy a of the first X(level) that is joined to its copy c, found by looking at
    all of copy a."""
    sub = network.t[level - 1]
    (joined,) = (
        u
        for u in range(a * sub, (a + 1) * sub)
        if network.peer(u, level) >= 0 and network.peer(u, level) // sub == c
    )
    return joined


def defined_candidates(network: Ccrdn, method: int, level: int, src: int, dst: int) -> list[int]:
    """The candidates, found by looking at every copy c (5.1 to 5.3)."""
    if level == 0:
        return []
    t = network.t
    src, dst = src % t[level], dst % t[level]
    a, b = src // t[level - 1], dst // t[level - 1]
    others = [c for c in range(t[level] // t[level - 1]) if c not in (a, b)]
    if method == GP_E:
        return others
    scope = t[0] if method == GP_0 or level == 1 else t[level - 2]
    return [
        c
        for c in others
        if bridge(network, level, a, c) // scope == src // scope
        or bridge(network, level, b, c) // scope == dst // scope
    ]


def closed_form(network: Ccrdn, policy: Policy, src: int, dst: int) -> list[int]:
    """The candidates in closed form."""
    pair_split = proxy.parting(network.t, src, dst)
    of = proxy.span(network.rule, network.t, policy, pair_split)
    candidates = [
        proxy.candidate(network.rule, network.t, pair_split, of, index)
        for index in range(proxy.candidates(of))
    ]
    return [c for c in candidates if c >= 0]


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
@pytest.mark.parametrize("network", NETWORKS, ids=title)
@pytest.mark.slow
def test_candidates_are_those_of_the_definition(network: Ccrdn, method: int) -> None:
    policy = Policy(method, 1, False)
    for src, dst in pairs(network, 1500 if network.k == 2 else 25):
        level = common_level(network.t, src, dst)
        assert sorted(closed_form(network, policy, src, dst)) == defined_candidates(
            network, method, level, src, dst
        )


@pytest.mark.parametrize("network", NETWORKS, ids=title)
def test_lengths_and_channels_are_those_of_the_routes(network: Ccrdn) -> None:
    tables = [tabulate(network.rule, network.t, level, with_channels=True) for level in (0, 1)]
    out = [0] * proxy.most_channels(network.t)
    for src, dst in pairs(network, 40):
        pair_split = proxy.parting(network.t, src, dst)
        for c in [-1, *closed_form(network, Policy(GP_E, 1, False), src, dst)[:10]]:
            route = proxy.route(network.rule, network.t, src, dst, c)
            for table in tables:
                assert proxy.hops(table, pair_split, c) == len(route) - 1
                assert out[: proxy.channels(table, pair_split, c, write, out, 0)] == channels(
                    network, route
                )
        for table in tables:
            assert (
                length(table, network.k, src, dst)
                == len(dr.route(network.rule, network.t, src, dst)) - 1
            )
            assert out[: path(table, network.k, 0, src, dst, write, out, 0)] == channels(
                network, dr.route(network.rule, network.t, src, dst)
            )


@pytest.mark.parametrize("network", NETWORKS, ids=title)
def test_no_route_has_more_channels_than_there_is_room_for(network: Ccrdn) -> None:
    full = (
        tabulate(network.rule, network.t, network.k - 1, with_channels=True)
        if network.t[-2] < 200
        else None
    )
    if full:
        assert max(full.counts) < full.width == width(full.level)
    longest_segment = width(network.k - 1) - 1
    assert proxy.most_channels(network.t) >= max(3 * longest_segment + 2, width(network.k) - 1)


@pytest.mark.parametrize("fraction", [0.0, 0.1])
@pytest.mark.parametrize("network", [*TWO_LEVELS, Ccrdn(FICONN, 4, 3)], ids=title)
def test_the_search_finds_the_shortest_connected_candidate_with_the_least_load(
    network: Ccrdn, fraction: float
) -> None:
    tables = tabulate(network.rule, network.t, 1, with_channels=True)
    dead = dead_links(network, fraction, seed=7)
    load = [
        100 if channel in dead else channel * 37 % 5
        for channel in range(network.t[-1] * (network.k + 2))
    ]
    room, from_which = [0] * proxy.most_routes(network.t), 100 if dead else proxy.NEVER
    for policy in (
        Policy(method, least, False)
        for method, least in product(METHODS.values(), (1, 2, network.k))
    ):
        for src, dst in pairs(network, 20):
            level = common_level(network.t, src, dst)
            proxies = (
                defined_candidates(network, policy.method, level, src, dst)
                if level >= policy.least_level
                else []
            )
            weighed = []
            for c in [-1, *proxies]:
                route = proxy.route(network.rule, network.t, src, dst, c)
                worst = max(load[channel] for channel in channels(network, route))
                if worst < 100:
                    weighed.append((len(route) - 1, worst, c))
            hops, proxy_number = proxy.search(
                tables,
                policy,
                proxy.shortest_first,
                proxy.parting(network.t, src, dst),
                load,
                from_which,
                room,
            )
            if not weighed:
                assert hops == -1
                continue
            worst = max(
                load[channel]
                for channel in channels(
                    network, proxy.route(network.rule, network.t, src, dst, proxy_number)
                )
            )
            assert (hops, worst) == min(weighed)[:2]
            assert (hops, worst, proxy_number) in weighed


@pytest.mark.parametrize("choice", range(4))
@pytest.mark.parametrize("fraction", [0.0, 0.1])
@pytest.mark.parametrize("network", [*TWO_LEVELS, Ccrdn(FICONN, 4, 3)], ids=title)
@pytest.mark.slow
def test_each_choice_rule_takes_the_best_of_all_connected_routes(
    network: Ccrdn, fraction: float, choice: int
) -> None:
    """CCRDN 5.4, against all routes weighed one by one; near is condition 1 by labels."""
    tables = tabulate(network.rule, network.t, 1, with_channels=True)
    dead = dead_links(network, fraction, seed=3)
    load = [
        100 if channel in dead else channel * 37 % 5
        for channel in range(network.t[-1] * (network.k + 2))
    ]
    room, from_which = [0] * proxy.most_routes(network.t), 100 if dead else proxy.NEVER
    policy, at_dr = Policy(GP_E, 1, False, choice), 0
    for src, dst in pairs(network, 150):
        level = common_level(network.t, src, dst)
        weighed = []
        for c in [-1, *defined_candidates(network, GP_E, level, src, dst)]:
            route = proxy.route(network.rule, network.t, src, dst, c)
            worst = max(load[channel] for channel in channels(network, route))
            if worst < 100:
                weighed.append((len(route) - 1, worst, c))
        hops, proxy_number = proxy.search(
            tables,
            policy,
            proxy.cost_of(choice),
            proxy.parting(network.t, src, dst),
            load,
            from_which,
            room,
        )
        found = next(
            (
                (length, worst)
                for length, worst, c in weighed
                if (length, c) == (hops, proxy_number)
            ),
            None,
        )
        (near_src, near_dst) = next(
            (u, v)
            for u, v in pairwise(proxy.route(network.rule, network.t, src, dst, -1))
            if common_level(network.t, u, v) == level
        )
        size = network.t[level - 2] if level > 1 else 1
        near = level == 0 or (near_src // size == src // size and near_dst // size == dst // size)
        if not weighed:
            assert hops == -1
        elif (choice == proxy.DR_FIRST and near and weighed[0][2] == -1) or (
            choice == proxy.SHORTER and weighed[0][::2] == (min(weighed)[0], -1)
        ):
            assert proxy_number == -1
            at_dr += found != min(weighed)[:2]
        elif choice == proxy.LEAST_LOADED:
            assert found == min(
                (length, worst)
                for length, worst, _ in weighed
                if worst == min(w for _, w, _ in weighed)
            )
        else:
            assert found == min(weighed)[:2]
    if choice in (proxy.DR_FIRST, proxy.SHORTER) and network == Ccrdn(DCELL, 3, 2) and not dead:
        assert at_dr > 0  # the rule makes a difference


def test_alternatives_come_in_the_order_of_the_choice_rule() -> None:
    network = Ccrdn(DCELL, 3, 2)
    tables = tabulate(network.rule, network.t, 1, with_channels=False)
    for src, dst in pairs(network, 300):
        usual = proxy.alternatives(tables, Policy(GP_E, 1, False), src, dst)
        first = proxy.alternatives(tables, Policy(GP_E, 1, False, proxy.DR_FIRST), src, dst)
        assert usual == sorted(usual)
        assert sorted(first) == usual
        near = proxy.near(network.rule, network.t, proxy.parting(network.t, src, dst))
        assert (first[0][1] == -1) if near else (first == usual)


def test_the_choice_rule_can_be_replaced() -> None:
    network = Ccrdn(DCELL, 3, 2)
    tables = tabulate(network.rule, network.t, 1, with_channels=True)
    out, room = [0] * proxy.most_channels(network.t), [0] * proxy.most_routes(network.t)
    src, dst = 0, 100
    pair_split = proxy.parting(network.t, src, dst)
    load = [0] * (network.t[-1] * (network.k + 2))
    for channel in out[: proxy.channels(tables, pair_split, -1, write, out, 0)]:
        load[channel] = 1
    dr_hops = proxy.hops(tables, pair_split, -1)
    policy = Policy(GP_E, 2, False)
    shortest, _ = proxy.search(tables, policy, proxy.shortest_first, pair_split, load, 100, room)
    hops, proxy_number = proxy.search(
        tables, policy, proxy.least_loaded_first, pair_split, load, 100, room
    )
    assert shortest <= dr_hops
    assert proxy_number >= 0
    assert all(
        load[channel] == 0
        for channel in out[: proxy.channels(tables, pair_split, proxy_number, write, out, 0)]
    )
    assert hops >= shortest


@pytest.mark.parametrize("network", [*TWO_LEVELS, *LARGE], ids=title)
def test_more_candidates_never_give_longer_routes_and_none_beats_breadth_first_search(
    network: Ccrdn,
) -> None:
    tables = tabulate(network.rule, network.t, 1)

    def hops(method: int, least: int, src: int, dst: int) -> int:
        pair_split = proxy.parting(network.t, src, dst)
        return proxy.search(
            tables, Policy(method, least, False), proxy.shortest_first, pair_split, FAULTLESS, 1, []
        )[0]

    few = pairs(network, 2 if network.k == 3 else 20)[:20]
    for src, _ in few:
        shortest = distances(network, src)
        for _, dst in few:
            of = [hops(method, 2, src, dst) for method in (GP_E, GP_I, GP_0)]
            assert (
                shortest[dst]
                <= of[0]
                <= of[1]
                <= of[2]
                <= len(dr.route(network.rule, network.t, src, dst)) - 1
            )


@pytest.mark.parametrize("network", TWO_LEVELS, ids=title)
def test_condition_1_leaves_near_pairs_to_dimensional_routing(network: Ccrdn) -> None:
    sub, small = network.t[1], network.t[0]
    for src, dst in pairs(network, 2000):
        if src // sub == dst // sub:
            continue
        (link,) = (
            (u, network.peer(u, 2))
            for u in range(src - src % sub, src - src % sub + sub)
            if network.peer(u, 2) >= 0 and network.peer(u, 2) // sub == dst // sub
        )
        near = link[0] // small == src // small and link[1] // small == dst // small
        assert proxy.near(network.rule, network.t, proxy.parting(network.t, src, dst)) == near
        assert (closed_form(network, Policy(GP_I, 2, True), src, dst) == []) == (
            near or closed_form(network, Policy(GP_I, 2, False), src, dst) == []
        )


def test_the_level_where_proxies_are_tried_is_a_parameter() -> None:
    network = Ccrdn(DCELL, 3, 3)
    src, dst = 0, network.t[2] - 1  # part at level 2
    assert closed_form(network, Policy(GP_I, 2, False), src, dst)
    assert closed_form(network, Policy(GP_I, 3, False), src, dst) == []


def test_ficonn_has_as_many_candidates_as_its_links_allow() -> None:
    # FiConn_{2,4} of figure 1: an X(0) has one server with a level-2 link
    assert all(
        len(closed_form(Ccrdn(FICONN, 4, 2), Policy(GP_0, 2, False), *pair)) <= 2
        for pair in pairs(Ccrdn(FICONN, 4, 2), 3000)
    )


def test_alternatives_begin_with_the_shortest_and_have_the_waypoints_of_their_routes() -> None:
    network = Ccrdn(DCELL, 4, 2)
    tables = tabulate(network.rule, network.t, 1)
    for src, dst in pairs(network, 100):
        routes = proxy.alternatives(tables, Policy(GP_I, 1, False), src, dst)
        assert routes == sorted(routes)
        assert any(c == -1 for _, c in routes)
        for hops, c in routes:
            route = proxy.route(network.rule, network.t, src, dst, c)
            assert len(route) == hops + 1 == len(set(route))
            if c >= 0:
                leave, enter, depart, arrive = proxy.waypoints(network.rule, network.t, src, dst, c)
                assert (
                    route.index(leave) + 1
                    == route.index(enter)
                    <= route.index(depart)
                    == route.index(arrive) - 1
                )
