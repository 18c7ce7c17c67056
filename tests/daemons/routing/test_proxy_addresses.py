import pytest

from tests.daemons.routing.networks import TWO_LEVELS, pairs, title
from weft.daemons.proxy import routing as proxy
from weft.daemons.routing import route_addresses
from weft.daemons.simulator.node import SimulatedFib
from weft.topologies.core.address import dotted
from weft.topologies.recursive.ccrdn import BETA_DCELL, DCELL, Ccrdn

NETWORKS = [Ccrdn(DCELL, 4, 1), Ccrdn(BETA_DCELL, 5, 1), *TWO_LEVELS]


def tables(network):
    fibs = []
    for server in range(network.t[-1]):
        fibs.append(SimulatedFib())
        for prefix, hop in route_addresses.prefix_routes(network, server):
            fibs[-1].set(prefix, (hop,))
    return fibs


def ways_between(network, src, dst):
    pair_split = proxy.parting(network.t, src, dst)
    copies = range(network.copies[pair_split.level]) if pair_split.level else ()
    return [-1, *(c for c in copies if c not in (pair_split.a, pair_split.b))], pair_split.level


@pytest.mark.parametrize("network", NETWORKS, ids=title)
@pytest.mark.slow
def test_the_routes_lead_by_way_of_every_proxy(network):
    routes = tables(network)
    for src, dst in pairs(network, 300):
        copies, level = ways_between(network, src, dst)
        for copy in copies:
            p = route_addresses.number(network, level, copy)
            address = route_addresses.address(
                network.layout.address(network.layout.label_of(dst)), p
            )
            by_prefixes, by_arithmetic = [src], [src]
            while by_prefixes[-1] != dst and len(by_prefixes) < 40:
                ((_, node),) = routes[by_prefixes[-1]].lookup(address)
                by_prefixes.append(node)
                by_arithmetic.append(route_addresses.next_hop(network, by_arithmetic[-1], dst, p))
            assert (
                by_prefixes == by_arithmetic == proxy.route(network.rule, network.t, src, dst, copy)
            )


@pytest.mark.parametrize("network", NETWORKS, ids=title)
def test_every_number_is_of_one_proxy(network):
    named = [route_addresses.proxy(network, p) for p in range(route_addresses.ways(network))]
    assert named[0] == (0, -1)
    assert named[1:] == [
        (level, c) for level in range(1, network.k + 1) for c in range(network.copies[level])
    ]
    assert [route_addresses.number(network, level, copy) for level, copy in named] == list(
        range(len(named))
    )


def test_how_many_routes_it_costs():
    assert [
        len(route_addresses.prefix_routes(network, 7))
        for network in (Ccrdn(DCELL, 4, 1), Ccrdn(DCELL, 3, 2))
    ] == [
        30,
        120,
    ]


def test_an_address_can_be_worked_out_in_the_head():
    network = Ccrdn(DCELL, 4, 1)
    own = network.layout.address((1, 3))
    steered = route_addresses.address(own, route_addresses.number(network, 1, 2))
    assert (dotted(own), dotted(steered)) == ("10.0.1.3", "67.0.1.3")
    assert route_addresses.server_address(steered) == own


def test_a_network_with_too_many_proxies_is_refused():
    with pytest.raises(ValueError, match="addresses for 62 proxies; n=7, k=2 has 65"):
        route_addresses.ways(Ccrdn(DCELL, 7, 2))


@pytest.mark.parametrize("network", NETWORKS, ids=title)
def test_paths_of_the_same_stretch_are_the_same_through_the_copy(network):
    seen = {}
    for src, dst in pairs(network, 300):
        copies, level = ways_between(network, src, dst)
        for copy in copies[1:]:
            p = route_addresses.number(network, level, copy)
            path = proxy.route(network.rule, network.t, src, dst, copy)
            sub = network.t[level - 1]
            through = [
                node
                for node in path
                if node % network.t[level] // sub == copy and node // sub != dst // sub
            ]
            keys = [route_addresses.stretch(network, node, dst, p) for node in path]
            assert [node for node, key in zip(path, keys, strict=True) if key] == through
            assert len({key for key in keys if key}) == 1
            key = next(key for key in keys if key)
            assert key == (p, dst // sub)
            # From where it enters, and the link out of it.
            out = path[path.index(through[-1]) + 1]
            assert seen.setdefault((key, through[0]), [*through, out]) == [*through, out]
        assert {
            route_addresses.stretch(network, node, dst, route_addresses.DIRECT)
            for node in (src, dst)
        } == {None}
    assert seen
