"""An open network: its plan, and a way into each of its namespaces."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from weft.testbed.linux import netlink, netns
from weft.testbed.plan.network_plan import End, NetworkPlan
from weft.testbed.runs.run import RunRecord
from weft.topologies.core.topology import Topology


class Handle:
    """A network that is up, made by this process or another.

    spaces: the namespaces in order of node, in the process that made them; elsewhere none, and they
        are opened by name when they are needed.
    """

    def __init__(self, plan: NetworkPlan) -> None:
        self.plan = plan
        self.spaces: list[netns.Netns] = []
        self._opened: dict[int, int] = {}

    @property
    def run(self) -> RunRecord:
        return self.plan.run

    @property
    def identity(self) -> RunRecord:
        """The run, by the name that instruments ask for: run() of a Net is Mininet's."""
        return self.plan.run

    @property
    def topology(self) -> Topology:
        return self.plan.topology

    @contextmanager
    def at(self, node: int) -> Iterator[netlink.Socket]:
        """A netlink socket in the namespace of `node`."""
        if self.spaces:
            yield self.spaces[node].netlink
            return
        with netns.inside(self.netns(node)):
            socket = netlink.Socket()
        try:
            yield socket
        finally:
            socket.close()

    def netns(self, node: int) -> int:
        """A descriptor of the namespace of `node`, open as long as the network is."""
        if self.spaces:
            return self.spaces[node].fd
        if node not in self._opened:
            self._opened[node] = os.open(
                netns.NAMES / self.plan.namespace(node), os.O_RDONLY | os.O_CLOEXEC
            )
        return self._opened[node]

    def ifindex(self, node: int, port: int) -> int:
        """The index of the interface that is `port` of `node`, unique over all live runs."""
        return self.plan.ends[node][port].ifindex

    def both_ends(self, link: int) -> list[tuple[int, int, End]]:
        """(node, port, end) of each end of `link`."""
        a, pa, b, pb = self.topology.links[link].tolist()
        return [(a, pa, self.plan.ends[a][pa]), (b, pb, self.plan.ends[b][pb])]

    def close(self) -> None:
        """Close the descriptors; the network stays."""
        for space in self.spaces:
            space.close()
        self.spaces = []
        for fd in self._opened.values():
            os.close(fd)
        self._opened.clear()
