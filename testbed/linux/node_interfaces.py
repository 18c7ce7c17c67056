"""A node's place in the kernel: its namespace, its address, its interfaces and who is behind
them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Interface:
    """The device that is one port.

    neighbours: who is one hop away through it: node -> (IPv4 address, Ethernet address).
    link: a number shared by all nodes at that link or crossbar, and by no other link.
    """

    ifindex: int
    dev: str
    neighbours: Mapping[int, tuple[int, bytes]]
    link: int


@dataclass(frozen=True, slots=True)
class NodeInterfaces:
    """A node's name, namespace and IPv4 address, and the interface that each of its ports is."""

    node: int
    name: str
    namespace: str
    address: int
    ports: Mapping[int, Interface]
