"""Paths with shares, against paths listed by breadth-first search and packets drawn one by one."""

import random
from collections import Counter
from itertools import pairwise

import pytest

from weft.daemons.core import registry
from weft.daemons.core.scheme import RoutedPath
from weft.daemons.routing import selection, updown
from weft.topologies import build
from weft.topologies.core.failures import fail_links

EVEN = ("ecmp", "vlb", "rps", "rr", "spray", "micro", "drill", "jsq", "letflow")
TREES = ["fattree:k=4", "fattree:k=6", "clos:n=3,r=4,m=3", "star:n=5"]
EQUAL = [
    "slimfly:q=5,p=4",
    "dragonfly:p=2",
    "hyperx:l=2,s=4",
    "xpander:r=3,seed=1",
    "jellyfish:n=12,r=3,p=2,seed=1",
]


def paths(topology, spec, src, dst):
    scheme, options = registry.checked(topology, spec)
    return scheme.path(topology, options, src, dst)


def damage(spec, seed):
    """A network with a few dead links between switches."""
    topology = build(spec)
    between = [link for link in range(len(topology.links)) if topology.level[link] > 0]
    return fail_links(topology, random.Random(seed).sample(between, min(3, len(between) // 4)))


@pytest.mark.parametrize("spec", TREES + EQUAL)
@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 3))]
)
@pytest.mark.parametrize("name", EVEN)
def test_all_shortest_paths_and_no_others_get_packets(spec, seed, name):
    topology, draw = damage(spec, seed), random.Random(seed)
    for _ in range(10):
        src, dst = draw.sample(range(topology.servers), 2)
        shares = paths(topology, name, src, dst)
        assert sorted(list(path.nodes) for path in shares) == sorted(
            updown.paths(topology, src, dst)
        )
        assert sum(path.share for path in shares) == pytest.approx(1 if shares else 0)


@pytest.mark.parametrize("seed", range(3))
def test_a_share_is_how_often_a_packet_goes_there(seed):
    topology, draw = damage("fattree:k=4", seed), random.Random(seed)
    src, dst, count = 0, 15, 4000
    seen = Counter()
    for _ in range(count):
        path = [src, topology.ports(src)[0][1]]
        while path[-1] != dst:
            path.append(draw.choice(updown.next_hops(topology, path[-1])[dst]).node)
        seen[tuple(path)] += 1
    shares = paths(topology, "rps", src, dst)
    for path, less in pairwise([*shares, RoutedPath((), 0.0)]):
        assert seen.pop(path.nodes) / count == pytest.approx(path.share, abs=0.04)
        assert path.share > less.share - 1e-9, "the paths of most packets come first"
    assert not seen


@pytest.mark.parametrize("spec", [*TREES, "hyperx:l=2,s=4"])
def test_one_hash_at_all_switches_polarises_flows(spec):
    """Flows are sent one by one, and each switch takes the hop by the flow's own number."""
    topology, draw = damage(spec, 1), random.Random(1)
    src, dst, count = 0, topology.servers - 1, 4000
    seen = Counter()
    for _ in range(count):
        flow, path = draw.random(), [src, topology.ports(src)[0][1]]
        while path[-1] != dst:
            hops = updown.next_hops(topology, path[-1])[dst]
            path.append(hops[int(flow * len(hops))].node)
        seen[tuple(path)] += 1
    shares = paths(topology, "ecmp:seeds=same", src, dst)
    for path, less in pairwise([*shares, RoutedPath((), 0.0)]):
        assert seen.pop(path.nodes) / count == pytest.approx(path.share, abs=0.04)
        assert path.share > less.share - 1e-9, "the paths of most packets come first"
    assert not seen


def test_polarised_flows_use_as_many_paths_as_one_switch_has_ports():
    for k in (4, 6):
        topology = build(f"fattree:k={k}")
        last = topology.servers - 1
        assert len(paths(topology, "ecmp", 0, last)) == (k // 2) ** 2
        assert len(paths(topology, "ecmp:seeds=same", 0, last)) == k // 2
        assert [path.share for path in paths(topology, "ecmp:seeds=same", 0, 0)] == [1]


@pytest.mark.parametrize("spec", [*TREES, "slimfly:q=3,p=2", "hyperx:l=2,s=4"])
def test_d_mod_k_and_ttc_begin_with_the_path_of_the_destinations_digits(spec):
    topology = build(spec)
    naming = topology.naming
    for src in range(topology.servers):
        for dst in {0, topology.servers // 2, topology.servers - 1} - {src}:
            node, path = topology.ports(src)[0][1], [src]
            while node != dst:
                path.append(node)
                hops = updown.next_hops(topology, node)[dst]
                number = selection.host_number(
                    naming.address(dst), selection.digits(naming.layout, naming.tier(node))
                )
                node = hops[number % len(hops)].node
            (only,) = paths(topology, "dmodk", src, dst)
            first, *rest = paths(topology, "ttc", src, dst)
            assert only == first
            assert (list(only.nodes), only.share) == ([*path, dst], 1.0)
            assert {path.share for path in rest} <= {0.0}
            assert len(rest) + 1 == len(updown.paths(topology, src, dst))


@pytest.mark.parametrize("k", [4, 8])
def test_lbsps_paths_are_a_path_group_and_leave_the_dead(k):
    topology = build(f"fattree:k={k}")
    src, dst = 0, topology.servers - 1
    shares = paths(topology, "lbsp", src, dst)
    assert len(shares) == (k // 4) ** 2  # (d / groups)^2 paths of a path group
    assert {path.share for path in shares} == {1 / len(shares)}
    assert len(paths(topology, "lbsp:hash=1", src, dst)) == (k // 2) ** 2
    link = topology.link_between(*shares[0].nodes[1:3])
    around = paths(fail_links(topology, [link]), "lbsp", src, dst)
    assert sum(path.share for path in around) == pytest.approx(1)
    assert not {path.nodes for path in shares} & {path.nodes for path in around}


def test_static_routes_lose_what_goes_to_a_dead_link_further_on():
    topology = build("fattree:k=4")
    near, far = topology.link("e0.0-a0.0"), topology.link("a0.0-c0")
    assert len(paths(topology, "static", 0, 15)) == 4
    assert sum(path.share for path in paths(fail_links(topology, [near]), "static", 0, 15)) == 1
    assert sum(path.share for path in paths(fail_links(topology, [far]), "static", 0, 15)) == 1
    beyond = fail_links(topology, [topology.link("a3.0-c0")])
    assert sum(path.share for path in paths(beyond, "static", 0, 15)) == 0.75
    assert not paths(
        fail_links(topology, [topology.link("e3.1-a3.0"), topology.link("e3.1-a3.1")]),
        "static",
        0,
        15,
    )


def test_the_way_to_oneself_has_no_links():
    assert [path.nodes for path in paths(build("fattree:k=4"), "ecmp", 3, 3)] == [(3,)]
