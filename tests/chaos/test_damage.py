"""Predicted pairs of a damaged network."""

from __future__ import annotations

import pytest

from tests.chaos.damage import Damage, all_pairs, doubtful, hosts_of, reachable
from weft.topologies import build

DCELL = build("dcell:n=3,k=1")
STAR = build("star:n=3")
FATTREE = build("fattree:k=4")
BETWEEN_0_AND_1 = {(a, b) for a, b in all_pairs(DCELL) if {a // 3, b // 3} == {0, 1}}


def pairs_of(topology, *nodes):
    return {pair for pair in all_pairs(topology) if set(nodes) & set(pair)}


def lost_pairs(topology, routing, damage):
    pairs = all_pairs(topology) - reachable(topology, routing, damage)
    return pairs - doubtful(topology, damage)


def test_a_dead_link_costs_the_pairs_of_schemes_with_one_path():
    link = DCELL.link("h0-h3")
    assert lost_pairs(DCELL, "bfs", Damage(down={link})) == set()
    assert lost_pairs(DCELL, "dr", Damage(down={link})) == BETWEEN_0_AND_1
    assert lost_pairs(DCELL, "pr-gpe", Damage(deaf={(link, 0)})) < BETWEEN_0_AND_1


def test_a_dead_router_is_lost_and_one_without_a_daemon_is_doubtful():
    assert lost_pairs(DCELL, "bfs", Damage(dead={2})) == pairs_of(DCELL, 2)
    assert lost_pairs(DCELL, "bfs", Damage(headless={2})) == set()
    # neighbours no longer route through h0
    others = BETWEEN_0_AND_1 - {(0, 3), (3, 0)} - pairs_of(DCELL, 0)
    assert lost_pairs(DCELL, "dr", Damage(headless={0})) == others
    assert doubtful(DCELL, Damage(headless={2})) == pairs_of(DCELL, 2)
    edge = FATTREE.naming.node("e0.0")
    assert hosts_of(FATTREE, [edge]) == {0, 1}
    assert lost_pairs(FATTREE, "ecmp", Damage(dead={edge})) == pairs_of(FATTREE, 0, 1)


@pytest.mark.parametrize(
    ("deaf_is_host", "pairs"), [(False, {(0, 1), (0, 2)}), (True, {(1, 0), (2, 0)})]
)
def test_the_link_of_a_host_is_deaf_in_one_direction(deaf_is_host, pairs):
    end = 0 if deaf_is_host else int(STAR.links[0, 2])
    assert lost_pairs(STAR, "bfs", Damage(deaf={(0, end)})) == pairs
    both = {(0, 0), (0, int(STAR.links[0, 2]))}
    assert lost_pairs(STAR, "bfs", Damage(deaf=both)) == pairs_of(STAR, 0)
    assert lost_pairs(STAR, "bfs", Damage(down={0}, deaf={(0, end)})) == pairs_of(STAR, 0)


def test_damage_counts_links_and_nodes_once():
    damage = Damage(down={3}, deaf={(3, 0), (4, 1)}, dead={2}, headless={5})
    assert damage.links() == {3, 4}
    assert damage.nodes() == {2, 5}
