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


def only_receiver(topology: Topology, element: Element, name: str, *, silent: bool) -> int:
    """Return the one end of a link, called `name`, that drops packets in a silent failure.

    Raises:
        ValueError: the failure is not silent, or the node is no end of the link.
    """
    receiver = topology.naming.node(name)
    ends = topology.ends(element.link)[::2] if isinstance(element, LinkElement) else ()
    if receiver not in ends:
        raise ValueError(f"only to {name}: the failure must be of a link that ends there")
    if not silent:
        raise ValueError(f"only to {name}: the failure must be silent")
    return receiver
