from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise

import pytest
from networks import dead_links, neighbours, pairs, title

from daemons.routing import dr
from daemons.tar import routing as tar
from topologies.recursive.ccrdn import FICONN, Ccrdn, common_level

NETWORKS = [Ccrdn(FICONN, 4, 1), Ccrdn(FICONN, 4, 2), Ccrdn(FICONN, 16, 2), Ccrdn(FICONN, 8, 3)]


def walk(network: Ccrdn, src: int, dst: int, available: Callable[[int], tuple[int, int]], seed: int = 0) -> list[int]:
    """The servers that a probe visits until it arrives or is dropped."""
    draw, marks, path = random.Random(seed), [0] * (network.k + 1), [src]
    tar.start(marks)
    while path[-1] != dst:
        number = draw.randrange(1 << 30)
        to = tar.next_hop(network.rule, network.t, path[-1], dst, marks, *available(path[-1]), number)
        if to == tar.DROP:
            break
        path.append(to)
    return path


@pytest.mark.parametrize("network", NETWORKS, ids=title)
def test_without_load_it_is_dimensional_routing(network: Ccrdn) -> None:
    for src, dst in pairs(network, 200):
        assert walk(network, src, dst, lambda _: (10, 10)) == dr.route(network.rule, network.t, src, dst)


@pytest.mark.parametrize("network", NETWORKS, ids=title)
def test_a_probe_arrives_over_links_whatever_the_load(network: Ccrdn) -> None:
    draw = random.Random(1)
    longest = 1  # an X(0) is one hop; a bypass adds a path through the own copy and one through a third
    for _ in range(network.k):
        longest = 4 * longest + 2
    for seed, (src, dst) in enumerate(pairs(network, 200)):
        path = walk(network, src, dst, lambda _: (draw.randrange(1, 4), draw.randrange(1, 4)), seed)
        assert path[-1] == dst
        assert len(path) - 1 <= longest
        assert all(v in neighbours(network, u) for u, v in pairwise(path))


def test_a_busy_link_is_bypassed_by_way_of_a_third_copy_from_a_server_of_the_same_switch() -> None:
    network = Ccrdn(FICONN, 16, 2)
    t = network.t
    src = 1  # has a level-2 link, to copy 1
    dst = network.peer(src, 2)
    busy = {src}
    path = walk(network, src, dst, lambda server: (10, 1 if server in busy else 10))
    assert path[1] // t[0] == src // t[0]
    copies = [server // t[1] for server in path]
    assert len(set(copies)) == 3
    assert copies[2] not in (copies[0], copies[-1])
    assert path[-1] == dst


def test_where_the_switch_has_no_other_link_of_the_level_any_third_copy_serves() -> None:
    network = Ccrdn(FICONN, 4, 2)
    src = 1
    dst = network.peer(src, 2)
    entered = {
        next(s for s in walk(network, src, dst, lambda u: (10, 1 if u == src else 10), seed) if s // network.t[1] != 0)
        // network.t[1]
        for seed in range(40)
    }
    assert entered == {2, 3}


def test_a_level_is_bypassed_once() -> None:
    network = Ccrdn(FICONN, 16, 2)
    src = 1
    dst = network.peer(src, 2)
    path = walk(network, src, dst, lambda _: (10, 1))  # every level-l link is busier than every level-0 link
    crossings = [common_level(network.t, u, v) for u, v in pairwise(path)]
    assert crossings.count(2) == 2


def test_a_level_may_be_bypassed_again_beyond_a_link_of_a_higher_level() -> None:
    network = Ccrdn(FICONN, 16, 2)
    paths = [walk(network, src, dst, lambda _: (10, 1), src) for src, dst in pairs(network, 300)]
    # by way of a third copy at level 2, and by way of a third X(0) in each of the three
    assert max(sum(common_level(network.t, u, v) == 1 for u, v in pairwise(path)) for path in paths) == 6


def test_a_dead_link_drops_what_cannot_bypass_it() -> None:
    network = Ccrdn(FICONN, 4, 1)
    assert walk(network, 0, network.peer(0, 1), lambda _: (0, 10)) == [0, network.peer(0, 1)]
    assert walk(network, 0, 1, lambda _: (0, 10)) == [0]
    assert walk(network, 0, network.peer(0, 1), lambda u: (10, 0 if u == 0 else 10))[-1] == network.peer(0, 1)


def test_only_a_flow_that_could_have_turned_back_is_virtual() -> None:
    assert tar.is_virtual(0, 2)
    assert not tar.is_virtual(-1, 2)
    assert not tar.is_virtual(2, 0)
    assert not tar.is_virtual(0, 0)


def test_a_shortcut_goes_on_as_after_the_last_visit() -> None:
    assert tar.shortcut([1, 2, 3, 2, 4, 5]) == [1, 2, 4, 5]
    assert tar.shortcut([1, 2, 1, 3]) == [1, 3]
    assert tar.shortcut([1, 2, 3]) == [1, 2, 3]


def test_draws_differ_from_flow_to_flow_and_from_attempt_to_attempt() -> None:
    flows = {tar.number(10 << 24, 1, 17, port) for port in range(1000)}
    assert len(flows) == 1000
    assert all(0 <= flow < 1 << 32 for flow in flows)
    draws = [tar.drawn(server, flow, attempt) for server in range(3) for flow in range(10) for attempt in range(8)]
    assert len(set(draws)) == len(draws)
    assert min(draws) >= 0
    assert 0.4 < sum(draw % 2 for draw in draws) / len(draws) < 0.6


@pytest.mark.parametrize("network", NETWORKS[:2], ids=title)
def test_a_route_is_what_servers_would_do_one_by_one(network: Ccrdn) -> None:
    nothing = bytes(network.t[-1] * (network.k + 2))
    for src, dst in pairs(network, 100):
        path, arrives = tar.route(network.rule, network.t, nothing, src, dst)
        assert (path, arrives) == (dr.route(network.rule, network.t, src, dst), True)
    dead = dead_links(network, 0.1, seed=2)
    down = bytes(channel in dead for channel in range(network.t[-1] * (network.k + 2)))
    for src, dst in pairs(network, 100):
        for attempt in range(3):
            path, arrives = tar.route(network.rule, network.t, down, src, dst, attempt=attempt)
            assert all(v in neighbours(network, u, dead) for u, v in pairwise(path))
            assert arrives == (path[-1] == dst)
