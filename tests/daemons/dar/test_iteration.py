"""DAR's iteration against an exhaustive search of its Markov chain, and its conditions against
brute force."""

from __future__ import annotations

from collections import defaultdict
from itertools import permutations, product
from math import prod

import numpy as np
import pytest

from weft.daemons.dar import iteration
from weft.daemons.dar.iteration import (
    COUNTERS,
    DEST,
    LIMITED,
    MODULO,
    NOWHERE,
    RANDOM,
    SPREAD,
    ClosFlows,
    IterationRules,
)

Spines = tuple[int, ...]
# the spine of each flow, and the iterations for which it rests
Rested = tuple[Spines, tuple[int, ...]]


def network(n: int, r: int, m: int, destination: Spines) -> ClosFlows:
    """CLOS(n,r,m) on plain lists, as a daemon would have it."""
    net = ClosFlows(
        n,
        r,
        m,
        list(destination),
        [0] * (n * r),
        *([0] * k for k in (n * r, r * m, r * m, (m + 1) * r, r * m, n * r)),
    )
    iteration.invert(net)
    return net


def loads(net: ClosFlows, spine: Spines) -> tuple[list[int], list[int]]:
    """Flows on each uplink and on each link down, counted anew."""
    up, down = [0] * (net.r * net.m), [0] * (net.r * net.m)
    for flow, one in enumerate(spine):
        if one >= 0:
            up[flow // net.n * net.m + one] += 1
            down[net.destination[flow] // net.n * net.m + one] += 1
    return up, down


def chosen(
    leaves: dict[int, list[int]], load: list[int], m: int, p: int, spine: Spines, every: int
) -> list[list[int]]:
    """For each request the flows that it may be about; `leaves` has the flows of each leaf that do
    not rest."""
    found = []
    for leaf, flows in leaves.items():
        bad = [s for s in range(m) if load[leaf * m + s] > p]
        fullest = max(load[leaf * m : leaf * m + m])
        if bad and every:
            found += [[f for f in flows if spine[f] == s] for s in bad]
        elif bad:
            found.append([f for f in flows if load[leaf * m + spine[f]] == fullest])
    return [flows for flows in found if flows]


def transitions(net: ClosFlows, rules: IterationRules, spine: Spines) -> dict[Spines, float]:
    """Where one iteration leads from `spine` if no flow rests."""
    found: dict[Spines, float] = defaultdict(float)
    for (after, _), probability in rested_transitions(
        net, rules, (spine, (0,) * len(spine))
    ).items():
        found[after] += probability
    return found


def rested_transitions(net: ClosFlows, rules: IterationRules, begin: Rested) -> dict[Rested, float]:
    """Where one iteration leads from spines and rests, by enumeration of every choice that is left
    to chance."""
    n, m, p, (spine, rest) = net.n, net.m, rules.p, begin
    up, down = loads(net, spine)
    ready = [f for f in range(n * net.r) if rest[f] == 0]
    inputs = {leaf: [f for f in ready if f // n == leaf] for leaf in range(net.r)}
    outputs = {leaf: [f for f in ready if net.destination[f] // n == leaf] for leaf in range(net.r)}
    asked = chosen(outputs, down, m, p, spine, rules.every_link)
    own = chosen(inputs, up, m, p, spine, 0)
    later = tuple(max(0, left - 1) for left in rest)
    found: dict[Rested, float] = defaultdict(float)
    for picked in product(*asked, *own):
        weight = 1 / prod(len(flows) for flows in [*asked, *own])
        orders = list(permutations(range(len(picked))))
        for order in orders:
            states = {(spine, later): weight / len(orders)}
            for at in order:
                informed = bool(rules.informed) and at < len(asked)
                states = moved(net, rules, states, picked[at], down if informed else None)
            for state, probability in states.items():
                found[state] += probability
    return found


def moved(
    net: ClosFlows,
    rules: IterationRules,
    states: dict[Rested, float],
    flow: int,
    down: list[int] | None,
) -> dict[Rested, float]:
    """`states` after `flow` has moved; `down` is the map of an informed request."""
    n, m, found = net.n, net.m, defaultdict(float)
    leaf, output = flow // n, net.destination[flow] // n
    for (state, rest), probability in states.items():
        new = [s for s in range(m) if rules.stay or s != state[flow]]
        if down is not None:
            up, _ = loads(net, state)
            room = [s for s in range(m) if down[output * m + s] < rules.p]
            new = [s for s in room if up[leaf * m + s] < rules.p] or room
        for spine in new:
            there = [f for f in range(leaf * n, leaf * n + n) if f != flow and state[f] == spine]
            swaps = (
                [-1] if spine == state[flow] or not rules.swap or len(there) < rules.p else there
            )
            for other in swaps:
                after, resting = list(state), list(rest)
                for f, to in ((flow, spine), (other, state[flow])):
                    if f >= 0 and after[f] != to:
                        after[f], resting[f] = to, rules.rest
                found[tuple(after), tuple(resting)] += probability / len(new) / len(swaps)
    return found


def is_good(net: ClosFlows, p: int, spine: Spines) -> bool:
    return max(map(max, loads(net, spine))) <= p


def expected(net: ClosFlows, rules: IterationRules, start: Spines) -> float:
    """Expected iterations from `start`, by the whole chain; inf if some state cannot reach a good
    one."""
    rows: dict[Spines, dict[Spines, float]] = {}
    left = [start]
    while left:
        spine = left.pop()
        if spine not in rows and not is_good(net, rules.p, spine):
            rows[spine] = transitions(net, rules, spine)
            assert sum(rows[spine].values()) == pytest.approx(1)
            left += rows[spine]
    index = {spine: at for at, spine in enumerate(rows)}
    matrix = np.zeros((len(rows), len(rows)))
    for spine, row in rows.items():
        for after, probability in row.items():
            if after in index:
                matrix[index[spine], index[after]] += probability
    if not rows:
        return 0.0
    if np.abs(np.linalg.eigvals(matrix)).max() > 1 - 1e-9:
        return float("inf")
    return float(np.linalg.solve(np.eye(len(rows)) - matrix, np.ones(len(rows)))[0])


def simulated(net: ClosFlows, rules: IterationRules, times: int, seed: int = 7) -> np.ndarray:
    """Iterations of `times` runs of the iteration itself, in plain Python."""
    state = [seed, 2, 3, 4]
    found = []
    for _ in range(times):
        iteration.place(net, rules, state)
        found.append(iteration.converge(net, rules, 10_000, [0] * COUNTERS, state))
        assert not iteration.excess(net, rules.p)
        assert (net.up, net.down) == loads(net, tuple(net.spine))
    return np.array(found)


VARIANTS = {
    "paper": IterationRules(),
    "every link": IterationRules(every_link=1),
    "informed": IterationRules(informed=1),
    "no swap": IterationRules(swap=0),
    "p=2": IterationRules(p=2),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_one_iteration_has_the_distribution_of_the_definition(name: str) -> None:
    """From one bad state of CLOS(3,3,3) to every next state, by a chi-squared bound."""
    rules, n = VARIANTS[name], 3
    destination = (0, 3, 6, 1, 4, 7, 2, 5, 8)
    net = network(n, 3, 3, destination)
    start = (0, 0, 0, 0, 0, 1, 0, 1, 2) if rules.p == 2 else (0, 1, 2, 0, 1, 2, 0, 2, 1)
    exact, times, state = transitions(net, rules, start), 6_000, [1, 2, 3, 4]
    seen: dict[Spines, int] = defaultdict(int)
    for _ in range(times):
        net.spine[:] = start
        net.up[:], net.down[:] = loads(net, start)
        iteration.iterate(net, rules, [0] * COUNTERS, state)
        seen[tuple(net.spine)] += 1
    assert set(seen) <= set(exact)
    squares = sum((seen[spine] - times * q) ** 2 / (times * q) for spine, q in exact.items())
    assert squares < len(exact) + 5 * (2 * len(exact)) ** 0.5


@pytest.mark.parametrize("sizes", [(2, 2, 2), (2, 3, 2)])
@pytest.mark.parametrize("name", ["paper", "informed", "every link"])
@pytest.mark.slow
def test_every_permutation_converges_as_the_chain_says(
    sizes: tuple[int, int, int], name: str
) -> None:
    """All permutations of the tiny networks; those with the same leaves are one case."""
    rules = VARIANTS[name]
    cases = {tuple(d // 2 for d in p): p for p in permutations(range(sizes[0] * sizes[1]))}
    off = []
    for destination in cases.values():
        net = network(*sizes, destination)
        iteration.place(net, rules, [1, 1, 1, 1])
        exact = expected(net, rules, tuple(net.spine))
        found = simulated(net, rules, 150)
        assert np.isfinite(exact)
        assert (exact == 0) == (found.max() == 0)
        if found.std():
            off.append((found.mean() - exact) / (found.std(ddof=1) / len(found) ** 0.5))
    assert abs(np.mean(off)) < 4 / len(off) ** 0.5
    assert np.abs(off).max() < 5


def test_one_iteration_lets_flows_rest() -> None:
    """From a bad state in which some flows rest, and an uplink is overfull to which others may be
    moved, to every next state and rest, by a chi-squared bound."""
    rules, net = IterationRules(rest=2, p=1), network(3, 3, 3, (0, 3, 6, 1, 4, 7, 2, 5, 8))
    start: Rested = ((0, 0, 2, 0, 1, 2, 0, 2, 1), (1, 0, 0, 2, 0, 0, 0, 0, 1))
    exact, times, state = rested_transitions(net, rules, start), 6_000, [1, 2, 3, 4]
    seen: dict[Rested, int] = defaultdict(int)
    for _ in range(times):
        net.spine[:], net.rest[:] = start
        net.up[:], net.down[:] = loads(net, start[0])
        iteration.iterate(net, rules, [0] * COUNTERS, state)
        seen[tuple(net.spine), tuple(net.rest)] += 1
    assert set(seen) <= set(exact)
    squares = sum((seen[one] - times * q) ** 2 / (times * q) for one, q in exact.items())
    assert squares < len(exact) + 5 * (2 * len(exact)) ** 0.5


def endless(net: ClosFlows, rules: IterationRules) -> bool:
    """Return whether some state reaches no good one, by search of all states."""
    before: dict[Spines, list[Spines]] = defaultdict(list)
    reached = set()
    states = list(product(range(net.m), repeat=net.n * net.r))
    for one in states:
        if is_good(net, rules.p, one):
            reached.add(one)
        else:
            for after in transitions(net, rules, one):
                before[after].append(one)
    left = list(reached)
    while left:
        new = set(before[left.pop()]) - reached
        reached |= new
        left += new
    return len(reached) < len(states)


def refused(n: int, r: int, m: int, rules: IterationRules) -> bool:
    """Return whether check() refuses the network."""
    try:
        iteration.check(n, r, m, rules)
    except ValueError:
        return True
    return False


@pytest.mark.parametrize("flags", list(product((0, 1), repeat=4)))
def test_what_never_ends_is_refused_and_nothing_else(flags: tuple[int, ...]) -> None:
    """All states of CLOS(2,2,2) for all that its leaves may send, under every choice of flags; the
    flows of a leaf are interchangeable."""
    every_link, swap, stay, informed = flags
    cases = {
        (*sorted(d // 2 for d in one[:2]), *sorted(d // 2 for d in one[2:])): one
        for one in permutations(range(4))
    }
    for p in (1, 2):
        rules = IterationRules(p=p, every_link=every_link, swap=swap, stay=stay, informed=informed)
        found = [endless(network(2, 2, 2, destination), rules) for destination in cases.values()]
        assert any(found) == refused(2, 2, 2, rules)


@pytest.mark.parametrize(("swap", "informed"), [(0, 0), (1, 0), (0, 1)])
def test_what_never_ends_is_refused_on_larger_leaves(swap: int, informed: int) -> None:
    """CLOS(4,2,2) at p=2 where a leaf sends to one leaf only: without swaps, the moves of both ends
    of its paths turn three flows on one spine into three on the other, for ever."""
    rules = IterationRules(p=2, swap=swap, stay=0, informed=informed)
    found = expected(network(4, 2, 2, tuple(range(8))), rules, (0, 0, 0, 1, 0, 0, 1, 1))
    assert (found == float("inf")) == refused(4, 2, 2, rules)


@pytest.mark.parametrize(
    "rules",
    [
        IterationRules(),
        IterationRules(every_link=1),
        IterationRules(informed=1),
        IterationRules(swap=0),
    ],
)
def test_flows_to_one_host_move_together(rules: IterationRules) -> None:
    """Pairs of flows at p=2 are what single flows of half as many hosts are at p=1, whose chain is
    solved."""
    single = network(2, 2, 2, (0, 2, 1, 3))
    pairs = network(4, 2, 2, tuple(2 * single.destination[flow // 2] for flow in range(8)))
    by_dest = rules._replace(p=2, key=DEST, start=MODULO)
    found, state = [], [3, 1, 4, 1]
    for _ in range(1500):
        iteration.place(pairs, by_dest, state)
        assert pairs.spine == [0] * 8
        found.append(iteration.converge(pairs, by_dest, 1000, [0] * COUNTERS, state))
        assert pairs.spine[::2] == pairs.spine[1::2]
        assert (pairs.up, pairs.down) == loads(pairs, tuple(pairs.spine))
    exact = expected(single, rules, (0, 0, 0, 0))
    assert exact > 1
    assert abs(np.mean(found) - exact) < 4 * np.std(found, ddof=1) / len(found) ** 0.5


def test_flows_of_different_hosts_and_of_one_are_swapped_whole() -> None:
    """Destinations with one, two and three flows of a leaf: loads and groups stay right, whatever
    moves."""
    net = network(6, 2, 3, (0, 0, 0, 6, 6, 1, 7, 7, 7, 2, 8, 3))
    for start, swap, informed in product(range(4), (0, 1), (0, 1)):
        rules, state = (
            IterationRules(p=3, start=start, swap=swap, informed=informed, key=DEST, rest=1),
            [7, 7, 1, 2],
        )
        for _ in range(20):
            iteration.place(net, rules, state)
            assert iteration.converge(net, rules, 10_000, [0] * COUNTERS, state) >= 0
            assert (net.up, net.down) == loads(net, tuple(net.spine))
            for flow, other in product(range(12), repeat=2):
                if flow // 6 == other // 6 and net.destination[flow] == net.destination[other]:
                    assert net.spine[flow] == net.spine[other]


def test_flows_are_listed_by_output_leaf() -> None:
    net = network(3, 2, 3, (4, 4, 4, 1, 0, 1))
    assert sorted(net.source[:3]) == [3, 4, 5]
    assert sorted(net.source[3:]) == [0, 1, 2]
    net.destination[3] = 5  # a fourth flow to a leaf with three hosts has no place
    iteration.invert(net)
    assert sorted(net.source[:3]) == [NOWHERE, 4, 5]
    assert sorted(net.source[3:]) == [0, 1, 2]


@pytest.mark.parametrize(
    "rules",
    [IterationRules(start=s, informed=i, swap=w) for s in range(4) for i in (0, 1) for w in (0, 1)],
)
def test_every_choice_ends_with_no_bad_link(rules: IterationRules) -> None:
    for p, m in ((1, 5), (2, 3), (3, 2)):
        net = network(4, 4, m, (0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15))
        simulated(net, rules._replace(p=p), 20)


def test_starts_are_those_of_the_paper() -> None:
    net, state = network(4, 3, 5, tuple(range(12))), [1, 2, 3, 4]
    iteration.place(net, IterationRules(start=MODULO), state)
    assert net.spine == [0, 1, 2, 3] * 3
    iteration.place(net, IterationRules(start=SPREAD), state)
    assert net.spine == [0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1]
    overfull = 0
    for _ in range(50):
        iteration.place(net, IterationRules(start=LIMITED), state)
        assert max(net.up) == 1
        iteration.place(net, IterationRules(start=RANDOM), state)
        overfull += max(net.up) > 1
    assert overfull
    iteration.place(net, IterationRules(folded=1), state)
    assert net.spine == [NOWHERE] * 12
    assert not iteration.excess(net, 1)


def test_a_folded_network_routes_what_leaves_its_leaf() -> None:
    net = network(4, 3, 4, (0, 4, 8, 1, 5, 2, 9, 6, 10, 3, 7, 11))
    simulated(net, IterationRules(folded=1), 20)
    local = [flow for flow in range(12) if flow // 4 == net.destination[flow] // 4]
    assert [flow for flow in range(12) if net.spine[flow] == NOWHERE] == local


@pytest.mark.parametrize(("n", "m", "p"), [(2, 1, 1), (3, 2, 1), (4, 1, 3)])
def test_too_few_spines_are_refused(n: int, m: int, p: int) -> None:
    net = network(n, 2, m, tuple(range(2 * n)))
    spines = product(range(m), repeat=2 * n)
    assert not any(is_good(net, p, one) for one in spines)
    with pytest.raises(ValueError, match="take m >="):
        iteration.check(n, 2, m, IterationRules(p=p))
    iteration.check(n, 2, -(-n // p), IterationRules(p=p))


def test_the_generator_is_xoshiro128plusplus() -> None:
    """Its first words for the state 1, 2, 3, 4, computed from the published definition."""
    state = [1, 2, 3, 4]
    assert [iteration.draw(state) for _ in range(5)] == [
        641,
        1573767,
        3222811527,
        3517856514,
        836907274,
    ]
