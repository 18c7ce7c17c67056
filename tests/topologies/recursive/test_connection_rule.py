"""Connection rules of a user's own: by arithmetic and by permutations, and those that are none."""

import random

import pytest

from weft.topologies import build, family
from weft.topologies.recursive import ccrdn, dcell
from weft.topologies.recursive.ccrdn import (
    FAMILY,
    Ccrdn,
    ConnectionRule,
    by_permutation,
    require_matching,
)


@pytest.fixture
def add_family(monkeypatch):
    """Adds a family for the time of a test; gives it."""
    monkeypatch.setattr(ccrdn, "RULES", dict(ccrdn.RULES))
    monkeypatch.setattr(dcell, "FAMILIES", dict(dcell.FAMILIES))
    before = set(FAMILY)

    def add(name, rule):
        monkeypatch.setitem(dcell.FAMILY_MODULES, name, "recursive.dcell")
        family = dcell.add(dcell.family(name, rule, summary="a test's", source="none"))
        require_matching.cache_clear()
        return family

    yield add
    for number in set(FAMILY) - before:
        del FAMILY[number]


def backwards(size, i, j):
    """beta-DCell's rule with each copy's servers in reverse."""
    return size - ((j - i) if j > i else j - i + size + 1)


def backwards_far_copy(size, i, p):
    return (i + size - p) % (size + 1)


def random_order(size, seed=0):
    return random.Random(seed).sample(range(size), size)


def test_a_rule_of_two_functions_is_a_network(add_family):
    add_family("backwards", ConnectionRule(backwards, backwards_far_copy))
    topology = build("backwards:n=3,k=2")
    topology.check()
    beta = build("beta-dcell:n=3,k=2")
    assert (topology.servers, len(topology.links)) == (beta.servers, len(beta.links))
    assert topology.links[topology.level == 1].tolist() != beta.links[beta.level == 1].tolist()


def test_the_order_of_beta_dcell_is_beta_dcell(add_family):
    add_family("mine", by_permutation({size: range(size) for size in (3, 12)}))
    assert (build("mine:n=3,k=2").links == build("beta-dcell:n=3,k=2").links).all()


@pytest.mark.parametrize("seed", range(3))
def test_any_permutation_is_a_perfect_matching(seed, add_family):
    add_family("mine", by_permutation({size: random_order(size, seed) for size in (3, 12)}))
    topology, network = build("mine:n=3,k=2"), build("mine:n=3,k=2").naming.network
    topology.check()
    for level in (1, 2):
        for server in range(network.t[-1]):
            other = network.peer(server, level)
            assert other // network.t[level] == server // network.t[level]
            assert other // network.t[level - 1] != server // network.t[level - 1]
            assert network.peer(other, level) == server
    pairs = topology.links[topology.level == 2][:, [0, 2]] // 12
    assert len({tuple(pair) for pair in pairs.tolist()}) == 13 * 12 // 2


@pytest.mark.parametrize(
    ("rule", "what"),
    [
        (
            ConnectionRule(backwards, lambda size, i, p: (i + p + 1) % (size + 1)),
            "must be the inverse of gateway",
        ),
        (
            ConnectionRule(lambda size, i, j: j, lambda size, i, p: p),
            "gives copy 0 server 3 of 3 for copy 3",
        ),
        (
            ConnectionRule(lambda size, i, j: 0, lambda size, i, p: (i + 1) % (size + 1)),
            "gives copy 0 server 0 of 3",
        ),
        (
            by_permutation({4: range(4)}),
            "mine: n=3, k=1: its connection rule needs 4 servers in a copy, not 3",
        ),
    ],
)
def test_what_is_no_matching_is_refused(rule, what, add_family):
    add_family("mine", rule)
    with pytest.raises(ValueError, match=what):
        build("mine:n=3,k=1")


def test_what_does_not_fit_is_refused():
    with pytest.raises(
        ValueError,
        match=r"gamma-dcell: n=3, k=1: its connection rule needs an even number of servers",
    ):
        build("gamma-dcell:n=3,k=1")
    with pytest.raises(ValueError, match=r"no permutation of 0 \.\. 2"):
        by_permutation({3: [0, 1, 1]})
    with pytest.raises(ValueError, match="dcell: there is such a family"):
        dcell.family("dcell", ConnectionRule(backwards, backwards_far_copy), summary="", source="")


def test_the_families_can_be_listed_and_are_checked_at_any_size():
    for name in ("gamma-dcell", "delta-dcell"):
        assert family(name).example == f"{name}:n=4,k=1"
        rule = next(number for number, known in FAMILY.items() if known == name)
        assert Ccrdn(rule, 6, 3).t[-1] == 3263442
