"""A link or a node of a topology, by the name that a user writes: h0-w0, h3."""

from __future__ import annotations

from typing import NamedTuple

from weft.topologies.core.topology import Topology


class LinkElement(NamedTuple):
    """A link, by its number."""

    link: int


class NodeElement(NamedTuple):
    """A node, by its number."""

    node: int


Element = LinkElement | NodeElement


def parse_element(topology: Topology, name: str) -> Element:
    """Return the link or node of `topology` that is called `name`.

    Raises:
        ValueError: no such link or node; one line says why.
    """
    if "-" in name:
        return LinkElement(topology.link(name))
    return NodeElement(topology.naming.node(name))
