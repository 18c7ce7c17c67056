"""Places of nodes in a drawing, by geometry: nothing overlaps, links are short and in order."""

from itertools import combinations

import networkx as nx
import numpy as np
import pytest

from weft.experiments.report.network_layout import layout, upright
from weft.topologies import build

RECURSIVE = ["dcell:n=4,k=1", "dcell:n=3,k=2", "beta-dcell:n=3,k=2", "ficonn:n=4,k=2"]
STELLAR = ["gqstar:n=2,k=3", "gqstar:n=3,k=2", "gqstar:n=5,k=1"]


@pytest.mark.parametrize("spec", RECURSIVE + STELLAR)
def test_every_disc_holds_its_servers_and_overlaps_no_other_of_its_level(spec):
    topology = build(spec)
    drawn = layout(topology)
    for disc in drawn.groups:
        places = drawn.positions[disc.first : disc.last + 1]
        assert (abs(places - disc.centre) < disc.radius).all()
    for one, other in combinations(drawn.groups, 2):
        if one.level == other.level:
            assert abs(one.centre - other.centre) > one.radius + other.radius
    levels = [disc.level for disc in drawn.groups]
    assert levels == sorted(levels, reverse=True)  # outer ones first
    for level in set(levels):
        ranges = [range(d.first, d.last + 1) for d in drawn.groups if d.level == level]
        assert [server for servers in ranges for server in servers] == list(range(topology.servers))


@pytest.mark.parametrize(
    "spec",
    [
        *(*RECURSIVE, *STELLAR, "bcube:n=3,k=2", "star:n=7", "fattree:k=4", "clos:n=2,r=4,m=2"),
        *("slimfly:q=5", "dragonfly:p=2", "hyperx:l=2,s=4", "hyperx:l=3,s=3", "xpander:r=4,seed=1"),
        *("jellyfish:n=20,r=4,p=2,seed=1", "polarfly:q=3", "complete:n=6,p=2"),
    ],
)
def test_no_two_nodes_that_are_drawn_share_a_place(spec):
    topology = build(spec)
    drawn = layout(topology)
    first = 0 if drawn.hosts else topology.servers
    places = drawn.positions[first:]
    apart = abs(places[:, None] - places) + 9 * np.eye(len(places))
    assert apart.min() > 0.4
    if not drawn.hosts:
        routers = [topology.ports(host)[0][1] for host in range(topology.servers)]
        assert (drawn.positions[: topology.servers] == drawn.positions[routers]).all()


@pytest.mark.parametrize("spec", ["dcell:n=3,k=2", "beta-dcell:n=3,k=2", "ficonn:n=4,k=2"])
def test_copies_are_turned_so_that_links_are_shorter(spec):
    topology = build(spec)
    before, _ = upright(topology.naming.network)
    after = layout(topology).positions
    for level in (1, 2):
        near, far = topology.links[topology.level == level][:, [0, 2]].T
        assert abs(after[near] - after[far]).sum() < abs(before[near] - before[far]).sum()


@pytest.mark.parametrize("spec", STELLAR)
def test_the_servers_of_a_switch_stand_as_near_to_the_directions_of_their_links_as_a_turn_can(spec):
    topology = build(spec)
    drawn, naming = layout(topology).positions, topology.naming
    for switch in range(naming.switches):
        centre = drawn[topology.servers + switch]
        own = np.arange(switch * naming.ports, (switch + 1) * naming.ports)
        switches = topology.servers + naming.partner(own) // naming.ports
        out, ahead = drawn[own] - centre, drawn[switches] - centre
        assert abs(out) == pytest.approx(abs(out)[0])
        slips = np.exp(1j * (np.angle(out) - np.angle(ahead)))
        assert slips.sum().imag == pytest.approx(0, abs=1e-9)
        assert slips.sum().real > 0
        turns = np.argsort(np.angle(out / out[0]) % (2 * np.pi))
        assert (np.diff(np.angle(ahead[turns] / ahead[turns[0]]) % (2 * np.pi)) >= -1e-9).all()


@pytest.mark.parametrize("spec", STELLAR)
def test_links_of_a_row_bend_towards_its_middle(spec):
    """A row is what links of one level connect."""
    topology = build(spec)
    drawn, ports = layout(topology), topology.naming.ports
    for level in range(1, topology.naming.k + 1):
        ends = topology.links[:, [0, 2]] // ports
        joins = np.flatnonzero(topology.level == level)
        for row in nx.connected_components(nx.Graph(ends[joins].tolist())):
            middle = drawn.positions[[topology.servers + switch for switch in row]].mean()
            own = [link for link in joins if ends[link, 0] in row]
            assert drawn.towards[own] == pytest.approx(middle)


@pytest.mark.parametrize(
    ("spec", "tiers"), [("fattree:k=4", 4), ("clos:n=2,r=4,m=2", 3), ("bcube:n=3,k=1", 3)]
)
def test_tiers_stand_above_each_other_and_hosts_in_a_row_below(spec, tiers):
    topology = build(spec)
    heights = layout(topology).positions.imag
    levels = np.unique(heights.round(6))
    assert len(levels) == tiers
    assert set(heights[: topology.servers]) == {0.0}
    assert min(levels) == 0
