"""A run whose namespaces, links and bridges are made one by one, while it is up.

RunningNetwork makes a whole network from its plan.  A Lan serves Mininet's scripts, which add nodes
and links before and after start().  Names and removal follow the same rules.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from mininet.log import debug

from weft.testbed.linux import clock, interface, netlink, netns
from weft.testbed.linux.interface import NamedDevice
from weft.testbed.linux.iproute import encoded
from weft.testbed.linux.process import need_root
from weft.testbed.network import clean
from weft.testbed.network.handle import BRIDGES
from weft.testbed.plan import network_plan as plan
from weft.testbed.runs import hosts_file, node_command, run

MOST_DEVICE = 15  # characters of an interface's name


@dataclass(frozen=True)
class VethEnd:
    """One end of a link.

    Attributes:
        mac: Ethernet address; None: the kernel chooses it.
    """

    node: str
    ifindex: int
    dev: str
    mac: str | None


class Lan:
    """The run `name`, and its nodes and links."""

    def __init__(self, name: str | None = None) -> None:
        need_root()
        self.reservation = run.reserve(name)
        self.run = self.reservation.run
        self.spaces: dict[str, netns.Netns] = {}
        self.addresses: dict[str, str] = {}
        self._ports = count(plan.FIRST_PORT)
        self._bridges = count(plan.FIRST_BRIDGE)
        self._names: list[str] = []
        self.bridge_filter = Path("/proc/sys/net", plan.BRIDGE_FILTER_SYSCTL).exists()
        self._write()
        node_command.write_remote_shell(self.run)

    def _write(self) -> None:
        namespaces = [self.run.namespace(node) for node in self._names]
        journal = {
            "id": self.run.id,
            "slot": self.run.slot,
            "command": sys.argv,
            "pid": os.getpid(),
            "began_unix_s": clock.wall(),
            "topology": "lan",
            "scheme": BRIDGES,
            "namespaces": namespaces,
        }
        run.write_journal(self.run, self.run.journal | journal)

    def expect(self, nodes: Iterable[str]) -> None:
        """Write all nodes that will be added into the journal, in one write."""
        new = [node for node in nodes if node not in self._names]
        if new:
            self._names += new
            self._write()

    def add_node(self, node: str, sysctls: Mapping[str, str] | None = None) -> str:
        """Make the namespace of a node and return its name.

        Raises:
            ValueError: the name is in use or unusable.
        """
        if node in self.spaces:
            raise ValueError(f"there is a node called {node} already")
        if not node or len(node) > MOST_DEVICE or set(node) & set("/ \t\n%") or node[0] in ".-":
            raise ValueError(
                f"node {node!r}: a name has 1 to {MOST_DEVICE} characters without / and spaces"
            )
        self.expect([node])
        created: list[netns.Netns] = []
        name = self.run.namespace(node)
        netns.create([name], lambda position: sysctls or {}, created)
        self.spaces[node] = created[0]
        self.change(node, [interface.set_up(interface.LOOPBACK)])
        hosts_file.link(self.run.directory, [name])
        return name

    def remove_node(self, node: str) -> None:
        """Remove a node's namespace and links, and return when they are gone."""
        space = self.spaces.pop(node)
        self.set_address(node, None)
        space.close()
        netns.forget([space.name])
        hosts_file.unlink([space.name])
        netns.wait_until_gone()

    def change(self, node: str, messages: Iterable[netlink.NetlinkMessage]) -> None:
        """Send netlink messages in the namespace of `node`, in order; `mn -v debug` shows them."""
        batch = list(messages)
        for message in batch:
            program, rest = message.command.split(" ", 1)
            debug(f"*** {program} -n {self.run.namespace(node)} {rest}\n")
        self.spaces[node].netlink.request(batch)

    def new_port(self, node: str, dev: str, mac: str | None) -> VethEnd:
        """Return an end with the next interface index of the run.

        Raises:
            ValueError: the interface name is too long.
        """
        if len(dev) > MOST_DEVICE:
            raise ValueError(
                f"interface {dev}: Linux takes {MOST_DEVICE} characters; give {node} a shorter name"
            )
        return VethEnd(node, (self.run.slot << 16) + next(self._ports), dev, mac)

    def join(self, near: VethEnd, far: VethEnd) -> None:
        """Make a link; both ends are in their namespaces and down."""
        side, far_side = (
            interface.veth_side(end, bytes.fromhex((end.mac or "").replace(":", "")))
            for end in (near, far)
        )
        far_space = self.spaces[far.node]
        self.change(near.node, [interface.veth(side, far_side, far_space.fd, far_space.name)])

    def add_bridge(self, node: str, *, stp: bool, priority: int | None) -> NamedDevice:
        """Make and return the bridge of a switch, with the switch's name.

        Args:
            node: the switch.
            stp: run a spanning tree with the other bridges.
            priority: in the spanning tree; None: the kernel's default.
        """
        bridge = NamedDevice((self.run.slot << 16) + next(self._bridges), node)
        self.change(node, [plan.new_bridge(bridge)])
        if stp:
            # the shortest times that the kernel takes, in hundredths of a second
            options = {"br_forward_delay": 200, "br_hello_time": 100, "br_stp_state": 1}
            if priority is not None:
                options["br_priority"] = priority
            change = encoded("link", "set", index=bridge.ifindex, kind="bridge", **options)
            self.spaces[node].netlink.request([change])
        return bridge

    def attach(self, port: VethEnd, bridge: int) -> None:
        """Set the bridge of an interface by index; 0 removes it from its bridge."""
        master = f"master {port.node}" if bridge else "nomaster"
        command = f"ip link set {port.dev} {master}"
        attributes = netlink.u32(interface.IFLA_MASTER, bridge)
        body = interface.IFINFO.pack(0, 0, port.ifindex, 0, 0) + attributes
        self.change(port.node, [netlink.NetlinkMessage(netlink.RTM_NEWLINK, 0, body, command)])

    def set_address(self, node: str, address: str | None) -> None:
        """Set the address of `node` in the hosts files; None removes it."""
        if address is None:
            self.addresses.pop(node, None)
        else:
            self.addresses[node] = address
        hosts_file.write(
            self.run.directory, [(address, [name]) for name, address in self.addresses.items()]
        )

    def down(self) -> None:
        """Remove everything from the kernel, and return when it is gone."""
        for space in self.spaces.values():
            space.close()
        self.spaces.clear()
        clean.remove(self.run)
        self.reservation.release()
