from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise, product

import pytest
from networks import THREE_LEVELS, TWO_LEVELS, dead_links, distances, neighbours, pairs, title

from weft.daemons.dfr import routing as dfr
from weft.daemons.dfr.routing import DROP, LEVEL, PROXY, RETRY, Dfr, View
from weft.daemons.routing import dr
from weft.daemons.routing.shortest import UNREACHED
from weft.topologies.recursive.ccrdn import DCELL, Ccrdn

NETWORKS = TWO_LEVELS + THREE_LEVELS


def view_of(network: Ccrdn, settings: Dfr, down: Sequence[int], server: int) -> View:
    size = network.t[settings.b]
    return View(network.rule, network.t, settings, server, down, [0] * size, [0] * size)


def walk(
    network: Ccrdn, settings: Dfr, down: Sequence[int], src: int, dst: int, draw: int = 0
) -> list[int]:
    """Return the servers that a packet visits until it arrives or is dropped."""
    packet, size = [0] * dfr.FIELDS, network.t[settings.b]
    dfr.start(settings, packet)
    path = [src]
    while path[-1] != dst:
        cur = path[-1]
        first = (cur - cur % size) * (network.k + 2)
        known = down[first : first + size * (network.k + 2)]
        view = view_of(network, settings, known, cur)
        server = dfr.next_hop(view, [0] * size, dst, packet, draw)
        if server == DROP:
            break
        path.append(server)
    return path


def flags(network: Ccrdn, dead: set[int]) -> bytes:
    return bytes(channel in dead for channel in range(network.t[-1] * (network.k + 2)))


@pytest.mark.parametrize("network", NETWORKS, ids=title)
def test_without_failures_it_is_dimensional_routing(network: Ccrdn) -> None:
    for src, dst in pairs(network, 60):
        assert len(walk(network, Dfr(), b"", src, dst)) == len(
            dr.route(network.rule, network.t, src, dst)
        )


@pytest.mark.parametrize("nearest", [True, False])
@pytest.mark.parametrize("network", TWO_LEVELS + THREE_LEVELS[2:], ids=title)
def test_a_packet_only_takes_live_channels_and_arrives_more_often_than_by_dimensional_routing(
    network: Ccrdn, nearest: bool
) -> None:
    dead = dead_links(network, 0.1, seed=3)
    down, arrived, dr_arrived = flags(network, dead), 0, 0
    for draw, (src, dst) in enumerate(pairs(network, 150)):
        path = walk(network, Dfr(nearest=nearest), down, src, dst, draw)
        assert all(v in neighbours(network, u, dead) for u, v in pairwise(path))
        arrived += path[-1] == dst
        route = dr.route(network.rule, network.t, src, dst)
        dr_arrived += all(v in neighbours(network, u, dead) for u, v in pairwise(route))
    assert arrived > dr_arrived


@pytest.mark.parametrize("network", TWO_LEVELS, ids=title)
def test_with_the_whole_network_in_scope_it_is_shortest_paths(network: Ccrdn) -> None:
    dead = dead_links(network, 0.2, seed=5)
    down = flags(network, dead)
    for src, dst in pairs(network, 20):
        shortest = distances(network, src, dead)
        path = walk(network, Dfr(b=network.k), down, src, dst)
        assert (path[-1] == dst) == (dst in shortest)
        if dst in shortest:
            assert len(path) - 1 == shortest[dst]


def test_a_dead_link_is_gone_around_by_the_nearest_other_of_its_level() -> None:
    network = Ccrdn(DCELL, 3, 2)
    down = bytearray(network.t[-1] * 4)
    # copies 0 and 1 are joined by servers 0 and 12; server 1 leads from copy 0 to copy 2
    down[0 * 4 + 2] = down[12 * 4 + 2] = 1
    path = walk(network, Dfr(), down, 0, 13)
    assert path[:3] == [0, 1, 24]
    assert path[-1] == 13


def test_jump_up_takes_a_link_one_level_higher() -> None:
    network = Ccrdn(DCELL, 3, 3)
    ports, size = network.k + 2, network.t[1]
    down = bytearray(network.t[-1] * ports)
    for server in range(size):  # nothing leads into the second X(1) from its own X(2)
        down[(size + server) * ports + 2] = down[network.peer(size + server, 2) * ports + 2] = 1
    packet = [0] * dfr.FIELDS
    dfr.start(Dfr(), packet)
    packet[LEVEL] = 2
    view = view_of(network, Dfr(), down[: size * ports], 0)
    assert dfr.next_hop(view, [0] * size, size, packet, 0) != DROP
    assert packet[LEVEL] == 3
    assert packet[PROXY] >= network.t[2]


@pytest.mark.parametrize(
    ("settings", "visited"), [(Dfr(retry=0), 1), (Dfr(ttl=1), 2), (Dfr(ttl=0), 1)]
)
def test_retries_and_hops_run_out(settings: Dfr, visited: int) -> None:
    network = Ccrdn(DCELL, 3, 2)
    down = bytearray(network.t[-1] * 4)
    down[0 * 4 + 2] = down[12 * 4 + 2] = 1
    assert len(walk(network, settings, down, 0, 13)) == visited


def test_each_reroute_costs_one_retry() -> None:
    network = Ccrdn(DCELL, 3, 2)
    down = bytearray(12 * 4)
    down[0 * 4 + 2] = 1
    packet = [0] * dfr.FIELDS
    dfr.start(Dfr(), packet)
    dfr.next_hop(view_of(network, Dfr(), down, 0), [0] * 12, 13, packet, 0)
    assert packet[RETRY] == 2


@pytest.mark.parametrize("network", TWO_LEVELS, ids=title)
def test_a_reroute_takes_a_live_link_of_its_level_the_nearest_or_the_drawn_one(
    network: Ccrdn,
) -> None:
    """By a search of the whole network; of two that are as near, it takes the lower number."""
    ports, size = network.k + 2, network.t[1]
    upper = {server * ports + 2 for server in range(network.t[-1])}
    for first, seed in product(range(0, network.t[-1], size), range(5)):
        dead = dead_links(network, 0.3, seed)
        down = flags(network, dead)[first * ports : (first + size) * ports]
        for cur in range(first, first + size):
            hops = distances(network, cur, dead | upper)  # stays in the X(1)
            far = [hops.get(server, UNREACHED) for server in range(first, first + size)]
            live = [v for v in sorted(hops) if 2 in network.levels(v) and v * ports + 2 not in dead]
            expected = [-1, -1]
            if live:
                nearest, drawn = min(live, key=hops.__getitem__), live[seed % len(live)]
                expected = [nearest - first, drawn - first]
            assert expected == [
                dfr.proxy_link(
                    view_of(network, settings, down, cur)._replace(distance=far), 2, seed
                )
                for settings in (Dfr(), Dfr(nearest=False))
            ]
