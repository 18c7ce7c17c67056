"""Who reaches whom when something is broken."""

import pytest

from weft.daemons.core import registry
from weft.experiments.chaos.campaign import damage, parse
from weft.experiments.chaos.prediction import all_pairs, doubtful, hosts_of, machines, reachable
from weft.topologies import build

DCELL, STAR, FATTREE = build("dcell:n=3,k=1"), build("star:n=3"), build("fattree:k=4")


def broken(text, topology):
    return damage(parse(text, topology), topology)


def lost(topology, routing, text):
    found = broken(text, topology)
    return all_pairs(topology) - reachable(topology, routing, found) - doubtful(topology, found)


def test_what_goes_by_one_path_is_lost_with_it_and_what_knows_others_is_not():
    assert lost(DCELL, "bfs", "0:down:h0-h3") == set()
    dr = lost(DCELL, "dr", "0:down:h0-h3")
    assert dr == {(a, b) for a, b in all_pairs(DCELL) if {a // 3, b // 3} == {0, 1}}
    assert lost(DCELL, "pr-gpe", "0:deaf:h0-h3:h0") < dr


def test_a_dead_router_is_lost_and_one_without_a_daemon_is_not_judged():
    assert lost(DCELL, "bfs", "0:die:h2") == {pair for pair in all_pairs(DCELL) if 2 in pair}
    assert lost(DCELL, "bfs", "0:kill:h2") == set()
    by_h0 = {
        pair
        for pair in all_pairs(DCELL) - {(0, 3), (3, 0)}
        if {pair[0] // 3, pair[1] // 3} == {0, 1}
    }
    assert lost(DCELL, "dr", "0:kill:h0") == {pair for pair in by_h0 if 0 not in pair}, (
        "nobody leads through it"
    )
    assert doubtful(DCELL, broken("0:kill:h2", DCELL)) == {
        pair for pair in all_pairs(DCELL) if 2 in pair
    }
    edge = FATTREE.naming.node("e0.0")
    assert hosts_of(FATTREE, [edge]) == {0, 1}
    assert lost(FATTREE, "ecmp", "0:die:e0.0") == {
        pair for pair in all_pairs(FATTREE) if {0, 1} & set(pair)
    }


@pytest.mark.parametrize(("end", "gone"), [("s0", {(1, 0), (2, 0)}), ("w0", {(0, 1), (0, 2)})])
def test_a_link_to_a_host_is_deaf_in_one_direction(end, gone):
    host = STAR.naming.name(0)
    name = STAR.link_name(0)
    end = host if end == "s0" else name.replace(host, "").strip("-")
    assert lost(STAR, "bfs", f"0:deaf:{name}:{end}") == gone
    assert lost(STAR, "bfs", f"0:silent:{name}") == {pair for pair in all_pairs(STAR) if 0 in pair}
    assert lost(STAR, "bfs", f"0:deaf:{name}:{end}+0:down:{name}") == {
        pair for pair in all_pairs(STAR) if 0 in pair
    }


def test_every_kind_of_daemon_has_a_scheme():
    kinds = {each.machine for each in registry.schemes().values() if each.machine}
    assert {registry.schemes()[name].machine for name in machines()} == kinds
    assert len(machines()) == len(kinds)
    assert machines()[0] == "bfs"
