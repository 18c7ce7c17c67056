"""TAR's pure function: rule by rule, and against reference.py in random states."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import pairwise

import pytest
from networks import dead_links, neighbours, pairs, title

from tests.daemons.tar import reference
from weft.daemons.routing import dr
from weft.daemons.tar import routing as tar
from weft.topologies.recursive.ccrdn import FICONN, Ccrdn, common_level

NETWORKS = [Ccrdn(FICONN, 4, 1), Ccrdn(FICONN, 4, 2), Ccrdn(FICONN, 16, 2), Ccrdn(FICONN, 8, 3)]
F42, F162, F43 = *NETWORKS[1:3], Ccrdn(FICONN, 4, 3)
RELAYS = {"any": tar.ANY, "linked": tar.LINKED, "copy": tar.SUBNETWORK}
Available = Callable[[int], tuple[int, int]]


class Probe:
    """A probe on its way, and what it leaves behind: the servers it visits, its path, those that
    left it."""

    def __init__(self, network: Ccrdn, src: int, relay: int) -> None:
        self.network, self.relay = network, relay
        self.marks, self.visits, self.left = [0] * (network.k + 1), [src], list[int]()
        self.room, self.length = [src, *[0] * tar.most_hops(network.k)], 1
        tar.start(self.marks)

    @property
    def path(self) -> list[int]:
        return self.room[: self.length]

    def go(self, dst: int, free: tuple[int, int], dead: Sequence[int], draw: int) -> bool:
        """One turn; whether there is a next server."""
        last = self.room[self.length - 1]
        site = tar.Site(self.network.rule, self.network.t, self.relay, last, *free, dead, draw)
        to = tar.next_hop(site, self.room, self.length, dst, self.marks)
        if to == tar.DROP:
            return False
        if to == tar.BACK:
            self.left.append(self.room[self.length - 1])
            self.length -= 1
        else:
            self.length = tar.extend(self.room, self.length, to)
        self.visits.append(self.room[self.length - 1])
        return True


def walk(
    network: Ccrdn,
    src: int,
    dst: int,
    available: Available,
    seed: int = 0,
    relay: int = tar.SUBNETWORK,
    dead: frozenset[int] = frozenset(),
) -> tuple[Probe, bool]:
    """A probe, and whether it arrives."""
    draw, probe = random.Random(seed), Probe(network, src, relay)
    while probe.path[-1] != dst:
        first = probe.path[-1] // network.n * network.n
        flags = [int(mate in dead) for mate in range(first, first + network.n)]
        if not probe.go(
            dst, available(probe.path[-1]), flags if any(flags) else (), draw.randrange(1 << 30)
        ):
            return probe, False
    return probe, True


def idle(_: int) -> tuple[int, int]:
    return 10, 10


def busy(*servers: int) -> Available:
    """The links of these servers to other switches are."""
    return lambda server: (10, 1 if server in servers else 10)


def drawn_states(network: Ccrdn, seed: int) -> tuple[Available, frozenset[int]]:
    """Bandwidth available at each server, some links dead, some servers as well."""
    draw = random.Random(seed)
    most = draw.choice([2, 4, 100])
    left = {server: (draw.randrange(most), draw.randrange(most)) for server in range(network.t[-1])}
    dead = draw.sample(range(network.t[-1]), draw.choice([0, 0, network.t[-1] // 20]))
    return left.__getitem__, frozenset(dead)


@pytest.mark.parametrize("network", NETWORKS, ids=title)
def test_without_load_it_is_dimensional_routing(network: Ccrdn) -> None:
    for src, dst in pairs(network, 200):
        assert walk(network, src, dst, idle)[0].path == dr.route(network.rule, network.t, src, dst)


@pytest.mark.parametrize(
    ("network", "states"), [(NETWORKS[0], 3000), (F42, 4000), (F162, 1000), (F43, 2000)]
)
@pytest.mark.slow
def test_in_random_states_it_does_what_the_slow_reference_does(network: Ccrdn, states: int) -> None:
    draw, arrived, bypasses = random.Random(1), 0, 0
    for seed in range(states):
        available, dead = drawn_states(network, seed)
        src, dst = draw.sample(sorted(set(range(network.t[-1])) - dead), 2)
        relay = draw.choice(list(RELAYS.values()))
        numbers = random.Random(seed)
        by_turn = [numbers.randrange(1 << 30) for _ in range(300)]
        state = reference.State(available, dead, by_turn.__getitem__)
        expected = reference.path_of(network, relay, src, dst, state)
        probe, arrives = walk(network, src, dst, available, seed, relay, dead)
        assert arrives == (expected is not None), (seed, src, dst, relay)
        assert probe.left == state.virtual
        if expected is not None:
            assert probe.path == expected, (seed, src, dst, relay)
            arrived += 1
            bypasses += expected != dr.route(network.rule, network.t, src, dst)
    assert arrived > states / 10
    assert bypasses > states / 50


@pytest.mark.parametrize("relay", RELAYS)
@pytest.mark.parametrize("network", [NETWORKS[0], F42, F162, F43], ids=title)
@pytest.mark.slow
def test_in_random_states_paths_follow_links_and_keep_to_the_bound(
    network: Ccrdn, relay: str
) -> None:
    """Theorem 7 of Li et al.: with three relays on four networks, 12,000 states."""
    draw, longest = random.Random(2), 0
    for seed in range(1000):
        src, dst = draw.sample(range(network.t[-1]), 2)
        left = random.Random(seed)
        state = {
            server: (left.randrange(1, 4), left.randrange(1, 4)) for server in range(network.t[-1])
        }
        probe, arrives = walk(network, src, dst, state.__getitem__, seed, RELAYS[relay])
        assert arrives
        assert len(probe.path) - 1 <= 2 * 3 ** common_level(network.t, src, dst) - 1
        assert len(set(probe.path)) == len(probe.path)
        assert all(v in neighbours(network, u) for u, v in pairwise(probe.path))
        assert all(u == v or v in neighbours(network, u) for u, v in pairwise(probe.visits))
        longest = max(longest, len(probe.path) - 1)
    assert longest > 2 ** (network.k + 1) - 1  # DR's longest


def test_the_bound_is_that_of_the_recursion_and_is_reached() -> None:
    assert [tar.most_hops(level) for level in range(5)] == [2 * 3**level - 1 for level in range(5)]
    found = [
        len(walk(F42, src, dst, lambda _: (10, 1), seed)[0].path) - 1
        for src, dst in pairs(F42, 2500)
        for seed in (0, 1)
    ]
    assert max(found) == 17


def test_a_source_whose_own_link_is_busy_sends_to_another_server_of_its_switch() -> None:
    src = 1  # has a level-2 link, to copy 1
    probe, _ = walk(F162, src, F162.peer(src, 2), busy(src))
    assert probe.path[0] == src
    assert probe.path[1] // F162.n == 0
    assert probe.left == []
    copies = [server // F162.t[1] for server in probe.path]
    assert len(dict.fromkeys(copies)) == 3  # the own one, a third, the destination's
    assert (copies[0], copies[-1]) == (0, 1)


@pytest.mark.parametrize("relay", RELAYS)
def test_a_server_that_bypasses_what_came_by_its_switch_leaves_the_path(relay: str) -> None:
    """Source Re-route: the server before it sends to s', and no path crosses a switch twice in a
    row."""
    probe, arrives = walk(F162, 2, F162.peer(1, 2), busy(1), relay=RELAYS[relay])
    assert arrives
    assert probe.visits[:3] == [2, 1, 2]
    assert probe.left == [1]
    if RELAYS[relay] == tar.ANY:
        assert probe.path[2] == 1  # TOR leads back to it, and then its link is taken
        assert F162.peer(1, 2) == probe.path[3]
    else:
        assert 1 not in probe.path


def test_with_linked_the_flow_takes_the_link_of_a_server_of_the_same_switch() -> None:
    linked = [server for server in range(16) if server != 1 and F162.peer(server, 2) >= 0]
    taken = {
        tuple(walk(F162, 2, F162.peer(1, 2), busy(1), seed, tar.LINKED)[0].path[1:3])
        for seed in range(60)
    }
    assert taken == {(server, F162.peer(server, 2)) for server in linked}
    # the only server of its switch with a level-2 link is not bypassed
    assert walk(F42, 2, F42.peer(1, 2), busy(1), relay=tar.LINKED)[0].path == [2, 1, F42.peer(1, 2)]


def test_with_copy_every_third_copy_is_drawn_alike() -> None:
    """From F42's server 2 to copy 1: by way of copies 2 and 3; from F162's, by way of all but the
    two."""
    for network in (F42, F162):
        size, counted = network.t[1], dict[int, int]()
        for seed in range(1500):
            path = walk(network, 2, network.peer(1, 2), busy(1), seed)[0].path
            third = next(server // size for server in path if server // size)
            counted[third] = counted.get(third, 0) + 1
        others = network.t[2] // size - 2
        assert sorted(counted) == [copy for copy in range(network.t[2] // size) if copy > 1]
        assert max(counted.values()) < 1500 / others + 5 * (1500 / others) ** 0.5


def test_a_level_is_bypassed_once_in_an_x_and_again_beyond_a_link_of_a_higher_level() -> None:
    def all_busy(_: int) -> tuple[int, int]:
        return 10, 1

    for src, dst in pairs(F162, 300):
        path = walk(F162, src, dst, all_busy, src)[0].path
        assert sum(common_level(F162.t, u, v) == 2 for u, v in pairwise(path)) <= 2
    paths = [walk(F162, src, dst, all_busy, src)[0].path for src, dst in pairs(F162, 300)]
    # by way of a third X(0) in each of the three X(1)s: with one bypass of level 1 in all there
    # would be five at most
    assert (
        max(sum(common_level(F162.t, u, v) == 1 for u, v in pairwise(path)) for path in paths) >= 6
    )


def test_a_dead_link_drops_what_cannot_bypass_it() -> None:
    network = NETWORKS[0]
    far = network.peer(0, 1)
    assert walk(network, 0, far, lambda _: (0, 10))[0].path == [0, far]
    assert walk(network, 0, 1, lambda _: (0, 10))[1] is False
    probe, arrives = walk(network, 0, far, lambda server: (10, 0 if server == 0 else 10))
    assert arrives
    assert probe.path[-1] == far
    assert len(probe.path) > 2


@pytest.mark.parametrize("network", [F42, F162], ids=title)
def test_a_dead_server_behind_the_switch_is_left_out_by_the_server_before_it(
    network: Ccrdn,
) -> None:
    """Every pair whose path by DR enters a dead server through its switch finds another path with
    some draw."""
    dead = frozenset({1})
    through = [
        (src, dst)
        for src, dst in pairs(network, 3000)
        if 1 in (path := dr.route(network.rule, network.t, src, dst))[1:-1]
        and path[path.index(1) - 1] // network.n == 0
    ]
    assert through

    def live_load(server: int) -> tuple[int, int]:
        ends = [network.peer(server, level) for level in network.levels(server)]
        return 10, 0 if set(ends) & dead else 10

    for src, dst in through:
        tries = [walk(network, src, dst, live_load, seed, dead=dead) for seed in range(8)]
        assert any(arrives for _, arrives in tries), (src, dst)
        assert all(1 not in probe.path for probe, _ in tries)
        assert all(probe.left == [] for probe, arrives in tries if len(probe.path) == 2)


def test_a_dead_destination_is_not_sought() -> None:
    assert walk(F42, 0, 1, idle, dead=frozenset({1}))[1] is False
    assert walk(F42, 47, 1, idle, dead=frozenset({1}))[1] is False


def test_a_path_that_comes_to_a_server_again_is_cut_back_to_it() -> None:
    room, length = [1, 0, 0, 0, 0, 0], 1
    for server in (2, 3, 2, 4, 5):
        length = tar.extend(room, length, server)
    assert room[:length] == [1, 2, 4, 5]
    assert tar.extend([1, 2, 3, 0], 3, 1) == 1


def test_draws_differ_from_flow_to_flow_and_from_attempt_to_attempt() -> None:
    flows = {tar.flow_hash(10 << 24, 1, 17, port) for port in range(1000)}
    assert len(flows) == 1000
    assert all(0 <= flow < 1 << 32 for flow in flows)
    draws = [
        tar.draw_at(server, flow, attempt)
        for server in range(3)
        for flow in range(10)
        for attempt in range(8)
    ]
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
