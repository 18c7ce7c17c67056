"""Names of links and nodes."""

import pytest

from weft.testbed.plan.element import LinkElement, NodeElement, parse_element
from weft.topologies import build

DCELL = build("dcell:n=4,k=1")


def test_a_name_with_a_dash_is_a_link_and_any_other_a_node():
    assert parse_element(DCELL, "h0-w0") == LinkElement(DCELL.link("h0-w0"))
    assert parse_element(DCELL, "h3") == NodeElement(3)
    assert parse_element(DCELL, "s0.3") == NodeElement(3)


@pytest.mark.parametrize(("name", "words"), [("h0-h1", "no link"), ("h99", "no server h99")])
def test_an_unknown_name_is_refused(name, words):
    with pytest.raises(ValueError, match=words):
        parse_element(DCELL, name)
