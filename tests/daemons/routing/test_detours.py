"""Valiant and UGAL: select.h beside path_shares.py, waypoints, and paths beside networkx."""

from __future__ import annotations

import ctypes
import random
import subprocess
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.daemons.core import registry
from weft.daemons.routing import path_shares, selection
from weft.daemons.routing.path_shares import Detour, Trip
from weft.topologies import build
from weft.topologies.core.failures import fail_links

HEADER = Path(__file__).parents[3] / "testbed/data_plane/select.h"
IN_C = """
struct fixture { const __u32 *loads, *counts, *hops, *draws; __u32 most, switches, waypoint; };
static __always_inline __u32 load_of(void *context, __u32 candidate)
{ struct fixture *f = context; return f->loads[f->waypoint * f->most + candidate]; }
static __always_inline __u32 draw(void *context) { return *((struct fixture *)context)->draws++; }
static __always_inline __u32 candidates_to(void *context, __u32 waypoint)
{ struct fixture *f = context; f->waypoint = waypoint; return f->counts[waypoint]; }
static __always_inline __u64 sample_towards(void *context, __u32 waypoint)
{ __u32 n = candidates_to(context, waypoint), one; if (!n) return NO_SAMPLE;
  one = below(draw(context), n); return (__u64)load_of(context, one) << 32 | one; }
static __always_inline __u32 hops_between(void *context, __u32 a, __u32 b)
{ struct fixture *f = context; return f->hops[a * f->switches + b]; }
static __u64 both(struct detour detour) { return (__u64)detour.waypoint << 32 | detour.candidate; }
__u64 c_valiant(struct fixture *f, const struct trip *trip)
{ return both(valiant(f, trip)); }
__u64 c_ugal(struct fixture *f, const struct trip *trip, __u32 d, __u32 delta)
{ return both(ugal(f, trip, d, delta)); }
__u32 c_keeps(struct fixture *f, __u32 waypoint, __u32 candidate, __u64 idle, __u64 gap)
{ return keeps_detour(f, packed_detour(waypoint, candidate), idle, gap); }
__u32 c_candidate(__u32 waypoint, __u32 candidate)
{ return candidate_of(packed_detour(waypoint, candidate)); }
"""
MOST = 4  # candidates
WORDS = st.one_of(st.integers(0, selection.WORD), st.sampled_from([0, selection.WORD]))
LOADS = st.one_of(st.integers(0, 3), st.integers(0, 250), st.just(selection.WORD))
NETWORKS = [
    "slimfly:q=3,p=2",
    "dragonfly:p=2",
    "hyperx:l=2,s=3",
    "jellyfish:n=12,r=4,p=2,seed=1",
    "xpander:r=3,seed=1",
    "polarfly:q=3,p=1",
]


class Fixture(ctypes.Structure):
    """struct fixture."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("loads", "counts", "hops", "draws")),
        *((name, ctypes.c_uint32) for name in ("most", "switches", "waypoint")),
    )


class CTrip(ctypes.Structure):
    """struct trip."""

    _fields_ = tuple((name, ctypes.c_uint32) for name in Trip._fields)


class Situation(NamedTuple):
    """loads: of the candidates by waypoint."""

    trip: Trip
    loads: list[list[int]]
    hops: list[list[int]]
    draws: list[int]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    path = tmp_path_factory.mktemp("detours") / "detours.so"
    options = ["-O1", "-Wall", "-shared", "-fPIC", "-include", str(HEADER), "-xc", "-"]
    subprocess.run(["gcc", *options, "-o", str(path)], input=IN_C, text=True, check=True)
    library = ctypes.CDLL(str(path))
    for function in (library.c_valiant, library.c_ugal):
        function.restype = ctypes.c_uint64
    library.c_keeps.argtypes = [ctypes.c_void_p, *[ctypes.c_uint32] * 2, *[ctypes.c_uint64] * 2]
    return library


@st.composite
def situations(draw: st.DrawFn) -> Situation:
    """Return loads with ties and extremes; some waypoints cannot be reached."""
    switches = draw(st.integers(3, 7))
    source, destination = draw(st.permutations(range(switches)))[:2]
    row = st.lists(LOADS, max_size=MOST)
    loads = [draw(st.lists(LOADS, min_size=1, max_size=MOST))]
    loads += [draw(row) for _ in range(switches)]
    hops = [[draw(st.integers(0, 4)) for _ in range(switches)] for _ in range(switches)]
    return Situation(
        Trip(source, destination, switches),
        loads,
        hops,
        draw(st.lists(WORDS, min_size=9, max_size=9)),
    )


def words(values: list[int]) -> ctypes.Array[ctypes.c_uint32]:
    return (ctypes.c_uint32 * len(values))(*values)


def fixture_of(situation: Situation) -> tuple[Fixture, list[object]]:
    """Return a fixture, and the arrays that must live as long."""
    loads = [load for row in situation.loads for load in (row + [0] * MOST)[:MOST]]
    arrays = [
        words(loads),
        words([len(row) for row in situation.loads]),
        words([hops for row in situation.hops for hops in row]),
        words(situation.draws),
    ]
    return Fixture(*map(ctypes.addressof, arrays), MOST, situation.trip.switches, 0), arrays


def detour_of(word: int) -> Detour:
    return Detour(word >> 32, word & selection.WORD)


@settings(max_examples=400, deadline=None)
@given(
    situation=situations(),
    d=st.integers(1, path_shares.MOST_DETOURS),
    delta=st.sampled_from([0, 1, 5, 1 << 24]),
)
def test_the_kernel_chooses_detours_as_python_does(
    library: ctypes.CDLL, situation: Situation, d: int, delta: int
) -> None:
    trip, loads, hops, draws = situation
    fixture, _arrays = fixture_of(situation)
    detour = detour_of(library.c_valiant(ctypes.byref(fixture), ctypes.byref(CTrip(*trip))))
    assert detour == path_shares.valiant(loads.__getitem__, trip, iter(draws))
    fixture, _arrays = fixture_of(situation)
    detour = detour_of(library.c_ugal(ctypes.byref(fixture), ctypes.byref(CTrip(*trip)), d, delta))
    expected = path_shares.ugal(
        loads.__getitem__, lambda a, b: hops[a][b], trip, iter(draws), d, delta
    )
    assert detour == expected


def test_a_flowlet_keeps_its_detour_until_a_gap_or_until_its_candidate_is_gone(
    library: ctypes.CDLL,
) -> None:
    most_waypoint, most_candidate = 1 << 16, (1 << 15) - 1
    assert library.c_candidate(most_waypoint, most_candidate) == most_candidate
    loads = [[0], [0, 0], [], [0]]
    situation = Situation(Trip(0, 1, 3), loads, [[0] * 3] * 3, [0])
    for waypoint, row in enumerate(loads):
        for candidate in range(3):
            for idle in (499, 500, 501):
                fixture, _arrays = fixture_of(situation)
                kept = library.c_keeps(ctypes.byref(fixture), waypoint, candidate, idle, 500)
                assert kept == (idle <= 500 and candidate < len(row))
                assert fixture.waypoint == (waypoint if idle <= 500 else 0)


def test_waypoints_are_the_other_switches_equally_often() -> None:
    """Draw the middles of equal parts of the 32 bits."""
    for switches in (3, 4, 7, 36):
        step = (1 << 32) // (switches - 2) + 1
        for source, destination in [(0, 1), (1, 0), (0, switches - 1), (switches - 2, 1)]:
            if source == destination:
                continue
            trip = Trip(source, destination, switches)
            waypoints = [path_shares.random_waypoint(i * step, trip) for i in range(switches - 2)]
            assert sorted([*waypoints, source, destination]) == list(range(switches))


def test_ugal_leaves_a_shortest_path_only_for_a_lower_product() -> None:
    """Work the rule out: 2 hops and 4 hops, so 2 q <= 4 q' + T keeps the path."""
    hops = [[0, 2, 2], [2, 0, 2], [2, 2, 0]]
    for q_min in range(8):
        for q_val in range(4):
            for delta in (0, 2, 3):
                loads = [[q_min], [], [], [q_val]]
                detour = path_shares.ugal(
                    loads.__getitem__,
                    lambda a, b: hops[a][b],
                    Trip(0, 1, 3),
                    iter([0] * 9),
                    1,
                    delta,
                )
                assert detour.waypoint == (3 if 2 * q_min > 4 * q_val + delta else 0)


def scheme_path(topology, spec: str, src: int, dst: int):
    scheme, options = registry.checked(topology, spec)
    return scheme.path(topology, options, src, dst)


@pytest.mark.parametrize("spec", NETWORKS)
@pytest.mark.parametrize("failures", [0, 2])
def test_paths_of_valiant_are_two_shortest_paths(spec: str, failures: int) -> None:
    """Walk as packets do, with networkx's shortest paths: every waypoint equally often."""
    topology, drawn = build(spec), random.Random(1)
    between = [link for link in range(len(topology.links)) if topology.level[link] > 0]
    topology = fail_links(topology, drawn.sample(between, failures))
    graph = nx.Graph((a, b) for a, _, b, _ in topology.live_ends())
    switches = range(topology.servers, topology.nodes)
    for _ in range(3):
        src, dst = drawn.sample(range(topology.servers), 2)
        first, last = (topology.ports(host)[0][1] for host in (src, dst))
        paths = scheme_path(topology, "valiant", src, dst)
        assert sum(path.share for path in paths) == pytest.approx(1)
        if first == last:
            assert [path.nodes for path in paths] == [(src, first, dst)]
            continue
        expected: Counter[tuple[int, ...]] = Counter()
        others = [switch for switch in switches if switch not in (first, last)]
        for waypoint in others:
            there = path_share_table(graph, first, waypoint)
            onward = path_share_table(graph, waypoint, last)
            for a, share_a in there.items():
                for b, share_b in onward.items():
                    expected[(src, *a, *b[1:], dst)] += share_a * share_b / len(others)
        assert {path.nodes: path.share for path in paths} == pytest.approx(dict(expected))
        assert all(graph.has_edge(*hop) for path in paths for hop in pairwise(path.nodes))


def path_share_table(graph: nx.Graph, a: int, b: int) -> dict[tuple[int, ...], float]:
    """Return shortest paths with the share of packets that choose evenly at each node."""
    far = nx.single_source_shortest_path_length(graph, b)
    shares = {}
    for path in nx.all_shortest_paths(graph, a, b):
        share = 1.0
        for node in path[:-1]:
            share /= sum(far[near] < far[node] for near in graph[node])
        shares[tuple(path)] = share
    return shares


@pytest.mark.parametrize("spec", NETWORKS)
def test_ugal_takes_shortest_paths_while_queues_are_equal(spec: str) -> None:
    topology = build(spec)
    last = topology.servers - 1
    assert scheme_path(topology, "ugal", 0, last) == scheme_path(topology, "ecmp", 0, last)


@pytest.mark.parametrize(
    ("network", "reason"),
    [
        ("fattree:k=4", "shortest paths go up to one already; take vlb"),
        ("clos:n=2,r=3,m=3", "shortest paths go up to one already; take vlb"),
        ("star:n=4", "needs 3 switches or more, all with hosts, and star:n=4 lacks them; take"),
        ("complete:n=2,p=2", "needs 3 switches or more"),
        ("dcell:n=4,k=1", "runs on switch fabrics"),
    ],
)
@pytest.mark.parametrize("name", ["valiant", "ugal"])
def test_networks_without_detours_are_refused_in_one_line(
    network: str, reason: str, name: str
) -> None:
    with pytest.raises(ValueError, match=rf"^scheme {name} [^\n]*$") as refusal:
        registry.checked(build(network), name)
    assert reason in str(refusal.value)
