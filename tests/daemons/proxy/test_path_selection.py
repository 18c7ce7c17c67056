from itertools import pairwise
from types import SimpleNamespace

import pytest

from weft.daemons.proxy.path_selection import ROUTINE, URGENT, Paths
from weft.daemons.proxy.routing import GP_E, Policy, least_loaded_first, shortest_first

NEAR, FAR, FARTHER = 0, 5, 7  # numbers of paths; NEAR is DR's
POLICY = Policy(GP_E, least_level=2, condition1=False)


def paths(cost=shortest_first, most_hold_s=30.0, **given):
    ways = [(3, NEAR), (3, FAR), (5, FARTHER)]
    settings = SimpleNamespace(policy=POLICY, cost=cost, hold_s=0.5, most_hold_s=most_hold_s)
    return Paths(9, 0x0A000009, ways, NEAR, settings, **given)


def connect(selection, **loads):
    for name, load in loads.items():
        selection.connected(
            selection.candidates[{"near": NEAR, "far": FAR, "farther": FARTHER}[name]], load
        )


def path_numbers(paths):
    return [path.number for path in paths]


def test_only_what_is_no_longer_is_worth_asking_unless_nothing_is_known():
    candidates = paths()
    assert path_numbers(candidates.worth_asking()) == [NEAR, FAR]
    candidates.refreshed_s = 0.0
    assert path_numbers(candidates.worth_asking()) == [NEAR, FAR, FARTHER]
    connect(candidates, near=0)
    assert path_numbers(candidates.worth_asking()) == [NEAR, FAR]


def test_while_nothing_is_known_a_few_are_asked_at_a_time_the_present_way_first():
    candidates = paths()
    assert path_numbers(candidates.next_to_ask(2, now=1.0)) == [NEAR, FAR]
    candidates.broke(candidates.candidates[NEAR], now=1.0)
    candidates.choose(1.0)
    candidates.candidates[FAR].asking = ROUTINE
    candidates.candidates[FARTHER].asking = URGENT
    assert path_numbers(candidates.next_to_ask(2, now=1.0)) == [FAR]
    connect(candidates, far=0)
    assert candidates.next_to_ask(2, now=1.0) == []


def test_the_shortest_is_taken_and_of_those_the_least_loaded():
    candidates = paths()
    connect(candidates, near=9_000, far=100, farther=0)
    assert candidates.choose(1.0)
    assert candidates.current.number == FAR


def test_another_rule_takes_another():
    candidates = paths(least_loaded_first)
    connect(candidates, near=9_000, far=5_000, farther=0)
    assert candidates.choose(1.0)
    assert candidates.current.number == FARTHER


def test_where_load_counts_first_all_that_may_be_less_loaded_are_worth_asking():
    candidates = paths(least_loaded_first)
    assert path_numbers(candidates.worth_asking()) == [NEAR, FAR, FARTHER]
    candidates.refreshed_s = 0.0
    connect(candidates, near=7)
    assert path_numbers(candidates.worth_asking()) == [NEAR, FAR, FARTHER]
    connect(candidates, near=0)  # a longer one cannot be better
    assert path_numbers(candidates.worth_asking()) == [NEAR, FAR]


def test_with_direct_first_others_are_used_and_asked_about_only_while_it_is_not_connected():
    candidates = paths(direct_first=True)
    assert path_numbers(candidates.worth_asking()) == [NEAR]
    connect(candidates, near=9_000, far=0)
    assert not candidates.choose(1.0)
    candidates.refreshed_s = 1.0
    assert path_numbers(candidates.worth_asking()) == [NEAR]
    candidates.broke(candidates.candidates[NEAR], now=1.0)
    assert candidates.choose(1.0)
    assert candidates.current.number == FAR
    assert path_numbers(candidates.worth_asking()) == [NEAR, FAR]
    connect(candidates, near=9_000)
    assert not candidates.choose(1.1)  # it is held down
    assert candidates.choose(2.0)
    assert candidates.current.number == NEAR


def test_with_direct_first_it_is_asked_about_again_also_where_it_is_longer():
    candidates = Paths(
        9,
        9,
        [(5, NEAR), (3, FAR)],
        NEAR,
        SimpleNamespace(policy=POLICY, cost=shortest_first, hold_s=0.5, most_hold_s=30.0),
        direct_first=True,
    )
    candidates.refreshed_s = 0.0
    connect(candidates, far=0)
    candidates.broke(candidates.candidates[NEAR], now=1.0)
    assert candidates.choose(1.0)
    assert path_numbers(candidates.worth_asking()) == [NEAR, FAR]


def test_a_little_less_load_is_no_reason_to_move():
    candidates = paths()
    connect(candidates, near=1_000, far=900)
    assert not candidates.choose(1.0)
    connect(candidates, far=500)
    assert candidates.choose(1.0)


def test_what_broke_is_left_for_what_is_known():
    candidates = paths()
    connect(candidates, near=0, farther=0)
    candidates.broke(candidates.candidates[NEAR], now=1.0)
    assert candidates.choose(1.0)
    assert candidates.current.number == FARTHER


def test_where_nothing_is_known_the_shortest_that_has_not_broken_is_trusted():
    candidates = paths()
    taken = []
    for _ in range(3):
        candidates.broke(candidates.current, now=1.0)
        candidates.choose(1.0)
        taken.append(candidates.current.number)
    assert taken == [FAR, FARTHER, FARTHER]


def flap(candidates, now):
    """DR breaks and comes back; when it is taken again."""
    candidates.broke(candidates.candidates[NEAR], now)
    candidates.choose(now)
    connect(candidates, near=0)
    later = now
    while not candidates.choose(later):
        later += 0.1
    return later


@pytest.mark.parametrize(
    ("most_hold_s", "holds_s"), [(30.0, [0.5, 1.0, 2.0, 4.0]), (1.5, [0.5, 1.0, 1.5, 1.5])]
)
def test_a_path_that_flaps_is_left_alone_longer_and_longer(most_hold_s, holds_s):
    candidates = paths(most_hold_s=most_hold_s)
    connect(candidates, near=0, farther=0)
    times = [0.0]
    while len(times) < 5:
        times.append(flap(candidates, times[-1] + 0.01))
    assert [b - a for a, b in pairwise(times)] == pytest.approx(holds_s, abs=0.12)


def test_what_broke_of_late_is_better_than_nothing():
    candidates = paths()
    connect(candidates, near=0, far=0)
    candidates.broke(candidates.candidates[FAR], now=1.0)
    connect(candidates, far=0)
    candidates.broke(candidates.candidates[NEAR], now=1.1)
    assert candidates.choose(1.1)
    assert candidates.current.number == FAR
