"""An open network: its plan, and access to each of its namespaces."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Self

from weft.testbed.linux import netlink, netns
from weft.testbed.linux.iproute import Namespace
from weft.testbed.linux.process import need_root
from weft.testbed.plan.network_plan import End, NetworkPlan, links_from
from weft.testbed.plan.part import part_from
from weft.testbed.runs import run
from weft.testbed.runs.network_handle import Namespaces, netlink_of
from weft.testbed.runs.run import Journal, RunRecord
from weft.topologies import build
from weft.topologies.core.topology import Topology

BRIDGES = "bridge"  # scheme of a run of testbed/mininet, whose switches are bridges


def entries_of_this_machine(record: RunRecord) -> Journal:
    """Return the journal of a live run.

    Raises:
        ValueError: it is still coming up, on several machines, or a Mininet script's.
    """
    entries = record.journal
    if "topology" not in entries:
        raise ValueError(f"run {record.id} is still coming up")
    if machines := entries.get("machines"):
        raise ValueError(
            f"run {record.id} is spread over machines {', '.join(machines)}: this command "
            f"works on one machine only"
        )
    if entries["scheme"] == BRIDGES:
        command = f"ip netns exec {record.namespace('NODE')} COMMAND"
        raise ValueError(
            f"run {record.id} is a Mininet script's, and ends with it; {command} runs a "
            f"command in it"
        )
    return entries


class Handle:
    """A network that is up, created by this process or another.

    spaces: the namespaces by node, in the process that created them.  Other processes open them
        by name when they are needed.
    """

    def __init__(self, plan: NetworkPlan) -> None:
        self.plan = plan
        self.spaces: dict[int, netns.Netns] = {}
        self._opened: dict[int, int] = {}
        self._namespaces: Namespaces | None = None

    @classmethod
    def open(cls, name: str | None = None) -> Self:
        """Return the live run called `name`, or the only one.

        Raises:
            ValueError: there is no such run, or it is still coming up, or a Mininet script's.
        """
        need_root()
        record = run.find(name)
        entries = entries_of_this_machine(record)
        plan = NetworkPlan(
            record,
            build(entries.get("topology_file") or entries["topology"]),
            static=entries["static"],
            ipv6=entries["ipv6"],
            **links_from(entries),
            part=part_from(entries["part"]) if entries.get("part") else None,
        )
        return cls(plan)

    def __getitem__(self, node: str) -> Namespace:
        """Return the namespace of the node called `node`, whose `ip` is pyroute2's IPRoute."""
        if self._namespaces is None:
            self._namespaces = Namespaces(self.run)
        return self._namespaces[node]

    @property
    def run(self) -> RunRecord:
        return self.plan.run

    @property
    def identity(self) -> RunRecord:
        """The run, for instruments, which also measure a Net, whose run() is Mininet's."""
        return self.plan.run

    @property
    def topology(self) -> Topology:
        return self.plan.topology

    def node(self, text: str) -> int:
        """Return the node whose name or label is `text`.

        Raises:
            ValueError: there is none; the line says so if a run is called `text`.
        """
        try:
            return self.topology.naming.node(text)
        except ValueError:
            if text in {record.id for record in run.runs()}:
                raise ValueError(
                    f"{text} is a run, and no node of run {self.run.id}: write --run {text}"
                ) from None
            raise

    @property
    def local_nodes(self) -> Sequence[int]:
        """The nodes on this machine, in order."""
        return self.plan.nodes

    @contextmanager
    def at(self, node: int) -> Iterator[netlink.Socket]:
        """Yield a netlink socket in the namespace of `node`."""
        if self.spaces:
            yield self.spaces[node].netlink
            return
        with closing(netlink_of(self, node)) as socket:
            yield socket

    def netns(self, node: int) -> int:
        """Return a descriptor of the namespace of `node`, which close() closes."""
        if self.spaces:
            return self.spaces[node].fd
        if node not in self._opened:
            self._opened[node] = os.open(netns.NAMES / self.plan.namespace(node), os.O_RDONLY)
        return self._opened[node]

    def ifindex(self, node: int, port: int) -> int:
        """Return the index of the interface at `port` of `node`, unique over all live runs."""
        return self.plan.ends[node][port].ifindex

    def both_ends(self, link: int) -> list[tuple[int, int, End]]:
        """Return (node, port, end) of each end of `link` on this machine."""
        a, pa, b, pb = self.topology.links[link].tolist()
        ends = [(a, pa, self.plan.ends[a][pa]), (b, pb, self.plan.ends[b][pb])]
        return [end for end in ends if end[0] in self.plan.node_set]

    def close(self) -> None:
        """Close the descriptors; the network stays up."""
        for space in self.spaces.values():
            space.close()
        self.spaces = {}
        for fd in self._opened.values():
            os.close(fd)
        self._opened.clear()
        if self._namespaces:
            self._namespaces.close()
