"""Each choice against something slower and obvious, and select.h against selection.py over random
inputs."""

from __future__ import annotations

import ctypes
import random
import subprocess
from collections import Counter
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import pytest

from weft.daemons.lbsp import routing as lbsp
from weft.daemons.routing import selection
from weft.topologies import build
from weft.topologies.core.address import FabricNaming

HEADER = Path(__file__).parents[3] / "testbed/data_plane/select.h"
IN_C = """
struct fixture { const __u32 *loads, *draws; };
static __always_inline __u32 load_of(void *of, __u32 candidate) { return ((struct fixture *)of)->loads[candidate]; }
static __always_inline __u32 draw(void *of) { return *((struct fixture *)of)->draws++; }
static __always_inline __u32 candidates_to(void *of, __u32 waypoint) { return 0; }
static __always_inline __u64 sample_towards(void *of, __u32 waypoint) { return NO_SAMPLE; }
static __always_inline __u32 hops_between(void *of, __u32 a, __u32 b) { return 0; }
#define WITH struct fixture of = { loads, draws }
typedef const __u32 *words;
__u32 c_flow_hash(__u32 a, __u32 b, __u32 c, __u32 d, __u32 e) { return flow_hash(a, b, c, d, e); }
__u32 c_another(__u32 first, __u32 random, __u32 n) { return another(first, random, n); }
__u32 c_host_number(__u32 address, words read) { return host_number(address, (const struct digit *)read); }
__u32 c_ttc(words loads, words draws, __u32 n, __u32 p, __u32 delta, __u32 ties)
{ WITH; return ttc(&of, n, p, delta, ties); }
__u32 c_drill(words loads, words draws, __u32 n, __u32 remembered, __u32 d)
{ WITH; return drill(&of, n, remembered, d); }
__u32 c_shortest(words loads, words draws, __u32 n) { WITH; return shortest(&of, n); }
__u32 c_flowlet(words loads, words draws, __u32 n, __u32 last, __u64 idle, __u64 gap)
{ WITH; return flowlet(&of, n, last, idle, gap); }
__u32 c_in_turn(__u32 own, __u32 turn, __u32 n, __u32 groups) { return in_turn(own, turn, n, groups); }
__u32 c_next_state(__u32 state, __u32 zero, __u32 one, __u32 threshold, __u32 percent)
{ return next_state(state, zero, one, threshold, percent); }
__u32 c_group_in_state(__u32 state, __u32 own, __u32 port) { return group_in_state(state, own, port); }
"""  # noqa: E501


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    path = tmp_path_factory.mktemp("select") / "select.so"
    command = [
        "cc",
        "-O1",
        "-Wall",
        "-shared",
        "-fPIC",
        "-include",
        str(HEADER),
        "-xc",
        "-",
        "-o",
        str(path),
    ]
    subprocess.run(command, input=IN_C, text=True, check=True)
    library = ctypes.CDLL(str(path))
    library.c_flowlet.argtypes = [
        ctypes.c_void_p,
        ctypes.c_void_p,
        *[ctypes.c_uint32] * 2,
        *[ctypes.c_uint64] * 2,
    ]
    for name in (
        "flow_hash",
        "another",
        "host_number",
        "ttc",
        "drill",
        "shortest",
        "flowlet",
        "in_turn",
        "next_state",
        "group_in_state",
    ):
        getattr(library, f"c_{name}").restype = ctypes.c_uint32
    return library


def words(values: list[int]) -> ctypes.Array[ctypes.c_uint32]:
    return (ctypes.c_uint32 * len(values))(*values)


def situations(count: int = 3000) -> Iterator[tuple[random.Random, list[int]]]:
    """Loads of 2 .. 64 candidates, with many ties and with extremes."""
    for seed in range(count):
        drawn = random.Random(seed)
        most = drawn.choice([1, 3, 250, selection.WORD])
        yield (
            drawn,
            [drawn.randint(0, most) for _ in range(drawn.randint(2, drawn.choice([4, 64])))],
        )


def draws_of(drawn: random.Random, count: int) -> list[int]:
    return [drawn.choice([0, selection.WORD, drawn.getrandbits(32)]) for _ in range(count)]


def test_the_kernel_chooses_as_python_does(library: ctypes.CDLL) -> None:
    for drawn, loads in situations():
        n, d = len(loads), drawn.randint(1, 8)
        draws = draws_of(drawn, 8)
        arguments = (words(loads), words(draws), n)
        default, delta, ties = (
            drawn.randrange(n),
            drawn.choice([0, 1, 2, loads[0]]),
            drawn.randint(0, 1),
        )
        assert library.c_ttc(*arguments, default, delta, ties) == selection.ttc(
            loads, default, draws[0], delta, ties
        )
        remembered = drawn.choice([drawn.randrange(n), n, selection.WORD])
        assert library.c_drill(*arguments, remembered, d) == selection.drill(
            loads, remembered, draws[:d]
        )
        assert library.c_shortest(*arguments) == selection.shortest(loads, draws[0])
        idle, gap = drawn.choice([0, 500_000, 1 << 40]), 500_000
        assert library.c_flowlet(*arguments, remembered, idle, gap) == selection.flowlet(
            remembered, idle, gap, draws[0], n
        )
        assert library.c_another(default, draws[1], n) == selection.another(default, draws[1], n)
        assert library.c_flow_hash(*draws[:5]) == selection.flow_hash(*draws[:5])


def test_the_kernel_chooses_link_groups_as_python_does(library: ctypes.CDLL) -> None:
    drawn = random.Random(1)
    for _ in range(3000):
        own, turn, groups = (
            drawn.randrange(4),
            drawn.choice([0, 1, 7, selection.WORD]),
            drawn.choice([2, 4]),
        )
        n = drawn.choice([1, 2, 3, 4, 8, 12, 64])
        port = selection.in_turn(own % groups, turn, n, groups)
        assert port < n
        assert library.c_in_turn(own % groups, turn, n, groups) == port
        state, threshold, percent = (
            drawn.randrange(3),
            drawn.choice([0, 5, 20]),
            drawn.choice([100, 150, 200]),
        )
        zero = drawn.choice([0, 1, 5, 6, 21, drawn.randrange(250)])
        load = drawn.choice([0, zero, zero + 1, zero * 2, zero * 3 // 2, drawn.randrange(250)])
        expected = lbsp.next_state(state, (zero, load), threshold, percent)
        assert library.c_next_state(state, zero, load, threshold, percent) == expected
        assert library.c_group_in_state(state, own % 2, turn) == lbsp.group_in_state(
            state, own % 2, turn
        )


@pytest.mark.parametrize(("n", "groups"), [(4, 2), (8, 2), (8, 4), (2, 2)])
def test_turns_go_round_the_ports_of_a_link_group(n: int, groups: int) -> None:
    for own in range(groups):
        port = [selection.in_turn(own, turn, n, groups) for turn in range(n // groups)]
        assert port == list(range(own, n, groups))
        assert selection.in_turn(own, n // groups, n, groups) == own


@pytest.mark.parametrize(
    "spec", ["fattree:k=6", "fattree:n=4,d=3", "fattree:n=5,d=2", "clos:n=3,r=5,m=4", "star:n=9"]
)
def test_a_destination_is_read_from_its_address(spec: str, library: ctypes.CDLL) -> None:
    """floor(t / d^(l-1)) for every host t and tier l, up to the digits that a switch reads."""
    topology = build(spec)
    naming = topology.naming
    assert isinstance(naming, FabricNaming)
    for tier in range(1, len(naming.tiers) + 1):
        read = selection.digits(naming.layout, tier)
        place = 1
        for radix in naming.layout.radices[::-1][: tier - 1]:
            place *= radix
        span = 1
        for radix in naming.layout.radices[::-1][tier - 1 :][: selection.DIGITS]:
            span *= radix
        packed = words([number for digit in [*read, *[(0, 0, 0)] * 4][:4] for number in digit])
        for host in range(topology.servers):
            address = naming.address(host)
            assert selection.host_number(address, read) == host // place % span
            assert library.c_host_number(ctypes.c_uint32(address), packed) == host // place % span


def test_another_is_each_of_the_others_equally_often() -> None:
    for n in (2, 3, 7):
        step = (1 << 32) // (n - 1) + 1
        for first in range(n):
            others = [selection.another(first, i * step, n) for i in range(n - 1)]
            assert sorted([first, *others]) == list(range(n))


def test_ttc_leaves_its_default_only_beyond_the_threshold() -> None:
    for default_load, delta in [(5, 2), (7, 2), (2, 0), (0, 0)]:
        for ties in (0, 1):
            loads = [
                default_load,
                default_load - delta,
                default_load - delta - 1,
                default_load - delta + 1,
            ]
            if min(loads) < 0:
                continue
            for random_word in range(0, 1 << 32, 1 << 28):
                other = selection.another(0, random_word, 4)
                moves = (
                    loads[0] - loads[other] >= delta if ties else loads[0] - loads[other] > delta
                )
                assert selection.ttc(loads, 0, random_word, delta, ties) == (other if moves else 0)


def test_drill_takes_the_least_of_different_samples_each_set_equally_likely() -> None:
    """Loads that all differ tell which d of n were compared: the set without its best is hidden, so
    rank the sets."""
    n, d, drawn = 5, 3, random.Random(1)
    wins: Counter[int] = Counter()
    for _ in range(20_000):
        wins[selection.drill([0, 1, 2, 3, 4], n, [drawn.getrandbits(32) for _ in range(d)])] += 1
    expected = Counter(min(chosen) for chosen in combinations(range(n), d))
    for candidate in range(n):
        assert abs(wins[candidate] / 20_000 - expected[candidate] / 10) < 0.02


def test_drill_prefers_no_candidate_among_equals() -> None:
    drawn = random.Random(2)
    for d in (1, 2, 4, 8):
        wins = Counter(
            selection.drill([3] * 6, 6, [drawn.getrandbits(32) for _ in range(d)])
            for _ in range(12_000)
        )
        assert all(abs(wins[candidate] - 2000) < 250 for candidate in range(6))


def test_drill_keeps_its_winner_until_it_is_beaten() -> None:
    for drawn, loads in situations(300):
        n = len(loads)
        best = min(loads)
        assert loads[selection.drill(loads, loads.index(best), draws_of(drawn, 2))] == best
        assert loads[selection.drill(loads, n, draws_of(drawn, 8)[:n])] >= best
        if n <= 8:
            assert loads[selection.drill(loads, n, draws_of(drawn, n))] == best


def test_shortest_is_the_shortest_and_breaks_ties_by_its_start() -> None:
    for drawn, loads in situations(300):
        assert loads[selection.shortest(loads, drawn.getrandbits(32))] == min(loads)
    assert [selection.shortest([4, 1, 1, 1], i << 30) for i in range(4)] == [1, 1, 2, 3]


def test_a_flowlet_stays_until_a_gap_or_until_its_candidate_is_gone() -> None:
    assert selection.flowlet(2, 500, 500, selection.WORD, 4) == 2
    assert selection.flowlet(2, 501, 500, selection.WORD, 4) == 3
    assert selection.flowlet(3, 0, 500, 0, 3) == 0


def test_flows_spread_evenly_and_switches_differ() -> None:
    flows = [
        (0x0A000000 + a, 0x0A010000 + b, 0x1388 << 16 | port)
        for a in range(8)
        for b in range(8)
        for port in range(32)
    ]
    choices = [
        [selection.below(selection.flow_hash(seed, *flow, 6), 4) for flow in flows]
        for seed in (1, 2)
    ]
    for chosen in choices:
        assert all(abs(chosen.count(port) - 512) < 100 for port in range(4))
    same = sum(a == b for a, b in zip(*choices, strict=True))
    assert abs(same - 512) < 100  # as often as by chance
