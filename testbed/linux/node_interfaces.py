"""A node's namespace, address, interfaces and neighbours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Interface:
    """The device of one port.

    neighbours: (IPv4 address, Ethernet address) of each node one hop away.
    link: a number shared by all nodes at that link or crossbar, and by no other link.
    elsewhere: neighbours on other machines, whose clocks differ from this one's.
    """

    ifindex: int
    dev: str
    neighbours: Mapping[int, tuple[int, bytes]]
    link: int
    elsewhere: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class NodeInterfaces:
    """A node's name, namespace, IPv4 address, and interface of each port."""

    node: int
    name: str
    namespace: str
    address: int
    ports: Mapping[int, Interface]
