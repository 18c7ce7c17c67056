"""What a daemon must know of its node's place in the kernel, beside what its protocol knows of the network."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from daemons.core.schemes import View

if TYPE_CHECKING:
    from testbed.plan.network_plan import Plan

FILE = "daemons.pickle"


@dataclass(frozen=True, slots=True)
class Interface:
    """The device that is one port, and who is one hop away through it: node -> (IPv4 address, Ethernet address)."""

    ifindex: int
    dev: str
    neighbours: Mapping[int, tuple[int, bytes]]


@dataclass(frozen=True, slots=True)
class Site:
    """A node's name, namespace and IPv4 address, and the interface that each of its ports is."""

    node: int
    name: str
    namespace: str
    address: int
    ports: Mapping[int, Interface]


@dataclass(frozen=True, slots=True)
class Daemons:
    """What the daemons of a run start from, by node; every node that may have a daemon has an entry in both.

    program: the id of the data plane's program at their ports, if it has one; `first_switch` is then the node that it
        counts as 0.
    relay: the id of the relay's program, where there is one.
    """

    sites: Mapping[int, Site]
    views: Mapping[int, View]
    program: int | None = None
    first_switch: int = 0
    relay: int | None = None

    def node(self, name: str) -> int:
        """The node called `name`; ValueError if it has no daemon."""
        for node, site in self.sites.items():
            if site.name == name:
                return node
        raise ValueError(f"no daemon belongs to {name!r}; nodes with one are {self._some()}")

    def _some(self) -> str:
        names = [site.name for site in self.sites.values()]
        return ", ".join(names) if len(names) < 6 else f"{names[0]} .. {names[-1]}"

    def write(self, directory: Path) -> None:
        """Put them where read() finds them."""
        (directory / FILE).write_bytes(pickle.dumps(self, pickle.HIGHEST_PROTOCOL))


def read(directory: Path) -> Daemons:
    """The daemons of the run in `directory`; ValueError if it has none."""
    try:
        found: Daemons = pickle.loads((directory / FILE).read_bytes())
    except FileNotFoundError:
        raise ValueError(f"run {directory.name} has no daemons: its routes are fixed, or it has none") from None
    return found


def sites(plan: Plan, nodes: Iterable[int]) -> dict[int, Site]:
    """Where the planned nodes will be."""
    from testbed.plan.network_plan import mac

    found = {}
    for node in nodes:
        ports = {}
        for port, end in plan.ends[node].items():
            near = {other: (plan.address(other), mac(other, its_port)) for other, its_port in plan.one_hop(node, port)}
            ports[port] = Interface(end.ifindex, end.dev, near)
        found[node] = Site(node, plan.names[node], plan.namespace(node), plan.address(node), ports)
    return found
