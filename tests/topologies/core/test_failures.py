import numpy as np
import pytest

from weft.topologies import build
from weft.topologies.core.failures import (
    draw,
    fail_links,
    fail_nodes,
    fail_racks,
    racks,
    random_links,
)


@pytest.fixture
def dcell():
    return build("dcell:n=4,k=1")


def failed_names(topology):
    return {topology.link_name(int(link)) for link in np.flatnonzero(topology.failed)}


def test_failed_links_stay_where_they_are(dcell):
    broken = fail_links(fail_links(dcell, [dcell.link("h0-h4")]), [dcell.link("h3-w0")])
    assert failed_names(broken) == {"h0-h4", "h3-w0"}
    assert not dcell.failed.any()
    assert (broken.links == dcell.links).all()
    assert broken.spec == dcell.spec
    broken.check()


def test_a_failed_node_has_no_live_link(dcell):
    assert failed_names(fail_nodes(dcell, [0])) == {"h0-h4", "h0-w0"}
    assert failed_names(fail_nodes(dcell, dcell.naming.node("w1"))) == {
        "h4-w1",
        "h5-w1",
        "h6-w1",
        "h7-w1",
    }


def test_a_rack_is_a_crossbar_and_its_servers(dcell):
    broken = fail_racks(dcell, [dcell.naming.node("w0")])
    assert failed_names(broken) == {
        "h0-w0",
        "h1-w0",
        "h2-w0",
        "h3-w0",
        "h0-h4",
        "h1-h8",
        "h2-h12",
        "h3-h16",
    }
    assert racks(dcell).tolist() == list(range(20, 25))


def test_a_rack_is_an_edge_switch_and_its_hosts():
    tree = build("fattree:k=4")
    broken = fail_racks(tree, [tree.naming.node("e1.0")])
    assert failed_names(broken) == {"h4-e1.0", "h5-e1.0", "e1.0-a1.0", "e1.0-a1.1"}
    with pytest.raises(
        ValueError, match=r"^c0 is no switch with servers, so there is no such rack$"
    ):
        fail_racks(tree, [tree.naming.node("c0")])
    with pytest.raises(ValueError, match=r"^h3 is no switch with servers"):
        fail_racks(tree, [3])


def test_what_does_not_exist_cannot_fail(dcell):
    for number in (-1, 30):
        with pytest.raises(ValueError, match=rf"^there is no link {number}: they are 0 .. 29$"):
            fail_links(dcell, [0, number])
    with pytest.raises(ValueError, match=r"^there is no node 25: they are 0 .. 24$"):
        fail_nodes(dcell, [25])


def test_the_same_generator_draws_the_same_links(dcell):
    first, second = (
        random_links(dcell, count=7, generator=np.random.default_rng(5)) for _ in range(2)
    )
    assert first.tolist() == second.tolist() == sorted(set(first.tolist()))


def test_every_link_is_as_likely_as_any_other(dcell):
    generator = np.random.default_rng(1)
    count = np.zeros(30)
    for _ in range(3000):
        count[random_links(dcell, fraction=0.1, generator=generator)] += 1
    assert count.sum() == 9000
    assert abs(count - 300).max() < 5 * np.sqrt(300 * 0.9)


def test_a_link_fails_once(dcell):
    generator = np.random.default_rng(2)
    broken = fail_links(dcell, random_links(dcell, count=20, generator=generator))
    assert fail_links(broken, random_links(broken, fraction=1.0, generator=generator)).failed.all()
    with pytest.raises(ValueError, match=r"^cannot let 11 of 10 fail$"):
        random_links(broken, count=11, generator=generator)


@pytest.mark.parametrize("amount", [{}, {"count": 1, "fraction": 0.1}])
def test_how_many_must_be_said_once(dcell, amount):
    with pytest.raises(ValueError, match="either how many fail or which fraction"):
        draw(racks(dcell), **amount, generator=np.random.default_rng())


def test_a_fraction_outside_0_to_1_is_refused(dcell):
    for fraction in (-0.1, 1.1):
        with pytest.raises(ValueError, match=r"^cannot let"):
            draw(range(20), fraction=fraction, generator=np.random.default_rng())
