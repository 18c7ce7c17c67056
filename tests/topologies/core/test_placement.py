import pytest

from weft.topologies import build
from weft.topologies.core.placement import PLACEMENTS, place_ranks


def test_consecutive_ranks_fill_hosts_in_order():
    clos = build("clos:n=4,r=2,m=4")
    assert place_ranks(clos, 5) == [0, 1, 2, 3, 4]
    assert place_ranks(clos, 5, per_host=2) == [0, 0, 1, 1, 2]


@pytest.mark.parametrize("spec", ["clos:n=4,r=2,m=4", "dcell:n=4,k=1", "slimfly:q=5,p=2"])
def test_by_leaf_takes_a_host_of_each_leaf_in_turn(spec):
    topology = build(spec)
    hosts = place_ranks(topology, topology.servers, placement="leaf")
    leaf = {a: b for a, _, b, _ in topology.links[topology.level == 0].tolist()}
    leaves = len(set(leaf.values()))
    for turn in range(0, topology.servers, leaves):
        assert len({leaf[host] for host in hosts[turn : turn + leaves]}) == leaves


def test_a_random_placement_is_a_permutation_that_its_seed_determines():
    topology = build("fattree:k=4")
    drawn = [place_ranks(topology, 16, placement="random", seed=seed) for seed in (1, 1, 2)]
    assert sorted(drawn[0]) == list(range(16))
    assert drawn[0] == drawn[1] != drawn[2]


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_too_many_ranks_are_refused_by_every_placement(placement):
    with pytest.raises(ValueError, match="21 ranks, but dcell:n=4,k=1 has 20 hosts with 1 each"):
        place_ranks(build("dcell:n=4,k=1"), 21, placement=placement)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"placement": "rack"}, "there are linear, random, leaf"),
        ({"per_host": 0}, "1 or more"),
        ({"ranks": 0}, "1 or more"),
    ],
)
def test_other_mistakes_are_named(options, words):
    with pytest.raises(ValueError, match=words):
        place_ranks(build("dcell:n=4,k=1"), **{"ranks": 2, **options})
    assert place_ranks(build("dcell:n=4,k=1"), 1) == [0]
