from dataclasses import replace

import numpy as np
import pytest

from weft.topologies import build
from weft.topologies.core.failures import fail_links


@pytest.fixture
def dcell():
    return build("dcell:n=4,k=1")


def test_ports_are_the_links_seen_from_a_node(dcell):
    seen = sorted((node, *row) for node in range(dcell.nodes) for row in dcell.ports(node))
    ends = [(a, pa, b, pb, link) for link, (a, pa, b, pb) in enumerate(dcell.links.tolist())]
    assert seen == sorted(ends + [(b, pb, a, pa, link) for a, pa, b, pb, link in ends])


def test_behind_a_crossbar_are_all_its_other_servers(dcell):
    assert dcell.neighbours(0) == {0: (1, 2, 3), 1: (4,)}
    assert dcell.adjacency[0] == (1, 2, 3, 4)
    assert sorted(dcell.adjacency) == list(range(20))


def test_a_hop_through_a_crossbar_needs_both_of_its_links(dcell):
    broken = fail_links(dcell, [dcell.link("h1-w0"), dcell.link("h0-h4")])
    assert broken.adjacency[0] == (2, 3)
    assert broken.adjacency[1] == (8,)
    assert broken.neighbours(0) == dcell.neighbours(0)
    assert broken.live_ports(0) == dcell.ports(0)[:1]


def test_every_node_of_a_fabric_is_a_routing_node():
    clos = build("clos:n=2,r=2,m=2")
    name = clos.naming.node
    assert clos.adjacency[name("e0")] == (name("h0"), name("h1"), name("c0"), name("c1"))
    assert clos.adjacency[name("h3")] == (name("e1"),)


def test_a_link_is_named_by_its_ends(dcell):
    for link in range(len(dcell.links)):
        a, b = dcell.link_name(link).split("-")
        assert dcell.link(f"{a}-{b}") == dcell.link(f"{b}-{a}") == link
    assert dcell.link("s0.0-w0") == dcell.link("h0-w0")
    with pytest.raises(
        ValueError, match=r"^no link joins h0 and h5 \(links of h0: h0-w0, h0-h4\)$"
    ):
        dcell.link("h0-h5")
    with pytest.raises(ValueError, match=r"^'h0' is not a link; write its two ends as in h0-w0$"):
        dcell.link("h0")


@pytest.mark.parametrize(
    ("row", "line"),
    [
        ([0, 0, 21, 9], "a port is used twice"),
        ([5, 9, 5, 8], "a link's ends must be two nodes"),
        ([5, 9, 25, 9], "a link's ends must be two nodes"),
        ([5, -1, 6, 9], "a link's ends must be two nodes"),
    ],
)
def test_check_finds_a_link_that_cannot_be(dcell, row, line):
    links = dcell.links.copy()
    links[-1] = row
    with pytest.raises(ValueError, match=line):
        replace(dcell, links=links).check()


def test_check_finds_a_server_without_a_link(dcell):
    kept = (dcell.links != 7).all(axis=1) | (dcell.links[:, 0] < 7)
    kept[np.flatnonzero((dcell.links[:, [0, 2]] == 7).any(axis=1))] = False
    cut = replace(
        dcell, links=dcell.links[kept], level=dcell.level[kept], failed=dcell.failed[kept]
    )
    with pytest.raises(ValueError, match="a server has no link"):
        cut.check()
    with pytest.raises(ValueError, match="differ in length"):
        replace(dcell, level=dcell.level[:-1]).check()


def test_the_arrays_cannot_change_under_what_is_derived_from_them(dcell):
    for array in (dcell.links, dcell.level, dcell.failed):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
