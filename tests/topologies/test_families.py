"""Promises of every family: its least sizes, its room, who forwards, and its seeds."""

import hashlib
import re

import pytest

from weft.topologies import build, families
from weft.topologies.core import topology as core

# The smallest network of each family: its servers, switches and links.
SMALLEST = {
    "dcell:n=3,k=0": (3, 1, 3),
    "beta-dcell:n=3,k=0": (3, 1, 3),
    "gamma-dcell:n=3,k=0": (3, 1, 3),
    "delta-dcell:n=3,k=0": (3, 1, 3),
    "ficonn:n=4,k=0": (4, 1, 4),
    "bcube:n=2,k=0": (2, 1, 2),
    "gqstar:n=2,k=1": (2, 2, 3),
    "fattree:k=2": (2, 5, 6),
    "fattree:n=2,d=1,pods=1,oversubscription=1": (1, 2, 2),
    "clos:n=1,r=2,m=1": (2, 3, 4),
    "star:n=2": (2, 1, 2),
    "complete:n=2,p=1": (2, 2, 3),
    "slimfly:q=3,p=1": (18, 18, 63),
    "polarfly:q=2,p=1": (7, 7, 16),
    "dragonfly:p=1,a=1,h=1,palm=0": (2, 2, 3),
    "hyperx:l=1,s=2,p=1": (2, 2, 3),
    "jellyfish:n=2,r=1,p=1,seed=0": (2, 2, 3),
    "xpander:r=1,l=1,p=1,seed=0": (2, 2, 3),
}
LARGER = [family.example for family in families().values()] + [
    "fattree:n=4,d=2,pods=3,oversubscription=2",
    "dcell:n=3,k=2",
    "bcube:n=3,k=2",
    "gqstar:n=3,k=3",
    "dragonfly:p=2,a=3,h=1",
    "hyperx:l=3,s=3,p=2",
]
# Results name a random network by its seed: digests of its links.
RANDOM = {
    "jellyfish:n=50,r=7,p=1,seed=3": "3e9958277b75bd5e",
    "jellyfish:n=12,r=8,p=1,seed=5": "519137860073d50f",
    "xpander:r=6,l=5,p=1,seed=7": "7fae437648831589",
}


def sizes(topology):
    return topology.servers, topology.switches, len(topology.links)


def test_every_family_has_a_smallest_network_here():
    assert {spec.partition(":")[0] for spec in SMALLEST} == set(families())


@pytest.mark.parametrize("spec", SMALLEST)
def test_the_smallest_network_of_a_family_is_built_and_none_below_it(spec):
    topology = build(spec)
    topology.check()
    assert sizes(topology) == SMALLEST[spec]
    for key, value in topology.parameters.items():
        with pytest.raises(ValueError, match=f"^{topology.family}: .*{key}"):
            build(spec.replace(f"{key}={value}", f"{key}={value - 1}"))


@pytest.mark.parametrize("spec", [*SMALLEST, *LARGER])
def test_a_family_asks_room_for_the_network_that_it_builds(spec, monkeypatch):
    topology = build(spec)
    monkeypatch.setattr(core, "MOST", -1)
    nodes, links = topology.nodes, len(topology.links)
    words = re.escape(f"{topology.family}: {nodes:.3g} nodes and {links:.3g} links are too many")
    with pytest.raises(ValueError, match=f"^{words}"):
        build(spec)


@pytest.mark.parametrize("spec", LARGER)
def test_servers_forward_in_the_networks_where_they_have_several_ports(spec):
    topology = build(spec)
    several = any(len(topology.ports(server)) > 1 for server in range(topology.servers))
    assert topology.server_centric == several


@pytest.mark.parametrize("spec", RANDOM)
def test_a_seed_names_the_same_network_in_every_version(spec):
    links = build(spec).links.astype("<i8")
    assert hashlib.sha256(links.tobytes()).hexdigest()[:16] == RANDOM[spec]
