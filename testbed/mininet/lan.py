"""A run whose namespaces, links and bridges are made one after the other, while it is up.

Where RunningNetwork makes a network as a whole from its plan, a Lan is for what Mininet's scripts
do: a node here, a link there, before and after start().  Names follow the same rules, and all of it
is taken down in the same way.
"""

from __future__ import annotations

import os
import struct
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from weft.testbed.linux import clock, netlink, netns
from weft.testbed.linux.process import need_root
from weft.testbed.network import clean, network
from weft.testbed.plan import network_plan as plan
from weft.testbed.runs import hosts_file, run

MOST_DEVICE = 15  # characters of an interface's name
IFLA_BR_FORWARD_DELAY, IFLA_BR_HELLO_TIME, IFLA_BR_PRIORITY, IFLA_BR_STP_STATE = 1, 2, 6, 5
STP_FORWARD_DELAY = 200  # hundredths of a second, the least that the kernel takes


@dataclass(frozen=True)
class VethEnd:
    """One end of a link: whose it is, the interface's index, name and Ethernet address (None: the
    kernel's choice)."""

    node: str
    ifindex: int
    dev: str
    mac: str | None


class Lan:
    """The run, and what has been made of it.

    told: called with the command that would do the same, for each change.
    """

    def __init__(
        self, name: str | None = None, *, told: Callable[[str], None] = lambda command: None
    ) -> None:
        need_root()
        self.kept = run.reserve(name)
        self.run = self.kept.run
        self.told = told
        self.spaces: dict[str, netns.Netns] = {}
        self.addresses: dict[str, str] = {}
        self._ports, self._bridges = count(plan.FIRST_PORT), count(plan.FIRST_BRIDGE)
        self._names: list[str] = []
        self.bridge_filter = Path("/proc/sys/net", plan.BRIDGE_FILTER_SYSCTL).exists()
        self.told(f"mkdir {self.run.directory}")
        self._write()

    def _write(self) -> None:
        namespaces = [self.run.namespace(node) for node in self._names]
        told = {"id": self.run.id, "slot": self.run.slot, "command": sys.argv, "pid": os.getpid()}
        told |= {
            "began_unix_s": clock.wall(),
            "topology": "lan",
            "scheme": network.BRIDGES,
            "namespaces": namespaces,
        }
        run.write_journal(self.run, self.run.journal | told)
        self.told(
            f"write {self.run.directory / 'run.json'}: "
            f"{' '.join(namespaces) or 'no namespaces yet'}"
        )

    def expect(self, nodes: Iterable[str]) -> None:
        """Write into the journal, at once, the nodes that will be added; a journal written for each
        costs a disk."""
        new = [node for node in nodes if node not in self._names]
        if new:
            self._names += new
            self._write()

    def add_node(self, node: str, sysctls: Mapping[str, str] | None = None) -> str:
        """Make the namespace of a node, and return its name; ValueError if there is a node of that
        name."""
        if node in self.spaces:
            raise ValueError(f"there is a node called {node} already")
        if not node or len(node) > MOST_DEVICE or set(node) & set("/ \t\n%") or node[0] in ".-":
            raise ValueError(
                f"node {node!r}: a name has 1 to {MOST_DEVICE} characters, none of them / "
                f"or a space"
            )
        self.expect([node])
        made: list[netns.Netns] = []
        name = self.run.namespace(node)
        netns.create([name], lambda position: sysctls or {}, made)
        self.spaces[node] = made[0]
        for path, value in [("", ""), *(sysctls or {}).items()]:
            self.told(
                f"ip netns exec {name} sysctl -w net.{path.replace('/', '.')}={value}"
                if path
                else f"ip netns add {name}"
            )
        up = plan.IFINFO.pack(0, 0, plan.LOOPBACK, plan.IFF_UP, plan.IFF_UP)
        self.change(node, [netlink.NetlinkMessage(netlink.RTM_NEWLINK, 0, up, "ip link set lo up")])
        hosts_file.link(self.run.directory, [name])
        self.told(f"ln -s {self.run.directory / hosts_file.FOLDER} {hosts_file.LINKS / name}")
        return name

    def remove_node(self, node: str) -> None:
        """Remove the namespace of a node, and every link that ends there; return when it is
        gone."""
        space = self.spaces.pop(node)
        self.set_address(node, None)
        space.close()
        netns.forget([space.name])
        hosts_file.unlink([space.name])
        self._tell_removal(space.name)
        netns.wait_until_gone()

    def _tell_removal(self, namespace: str) -> None:
        self.told(f"ip netns delete {namespace}")
        self.told(f"rm {hosts_file.LINKS / namespace}")

    def change(self, node: str, messages: Iterable[netlink.NetlinkMessage]) -> None:
        """Make changes in the namespace of `node`, in order."""
        todo = list(messages)
        for message in todo:
            program, rest = message.command.split(" ", 1)
            self.told(f"{program} -n {self.run.namespace(node)} {rest}")
        self.spaces[node].netlink.request(todo)

    def new_port(self, node: str, dev: str, mac: str | None) -> VethEnd:
        """The next interface of the run; ValueError if its name is too long."""
        if len(dev) > MOST_DEVICE:
            raise ValueError(
                f"interface {dev}: Linux takes {MOST_DEVICE} characters; give {node} a shorter name"
            )
        return VethEnd(node, (self.run.slot << 16) + next(self._ports), dev, mac)

    def join(self, near: VethEnd, far: VethEnd) -> None:
        """Make a link, both ends in place and set down."""
        body, words = _end(near)
        peer, peer_words = _end(far)
        peer += netlink.u32(plan.IFLA_NET_NS_FD, self.spaces[far.node].fd)
        data = netlink.nested(plan.IFLA_INFO_DATA, netlink.attribute(plan.VETH_INFO_PEER, peer))
        body += netlink.nested(plan.IFLA_LINKINFO, netlink.text(plan.IFLA_INFO_KIND, "veth"), data)
        command = (
            f"ip link add {words} type veth peer {peer_words} netns {self.run.namespace(far.node)}"
        )
        self.change(
            near.node, [netlink.NetlinkMessage(netlink.RTM_NEWLINK, netlink.CREATE, body, command)]
        )

    def cut(self, port: VethEnd) -> None:
        """Delete a link by one of its ends."""
        body = plan.IFINFO.pack(0, 0, port.ifindex, 0, 0)
        self.change(
            port.node,
            [netlink.NetlinkMessage(netlink.RTM_DELLINK, 0, body, f"ip link delete {port.dev}")],
        )

    def add_bridge(self, node: str, *, stp: bool, priority: int | None) -> int:
        """Make the bridge of a switch, which has its name; its index.

        stp: whether it keeps a spanning tree with the others, and of which priority.
        """
        index = (self.run.slot << 16) + next(self._bridges)
        data = netlink.attribute(plan.IFLA_BR_MCAST_SNOOPING, b"\0")
        words = f"ip link add {node} up index {index} type bridge mcast_snooping 0"
        if stp:
            data += netlink.u32(IFLA_BR_FORWARD_DELAY, STP_FORWARD_DELAY) + netlink.u32(
                IFLA_BR_HELLO_TIME, 100
            )
            data += netlink.attribute(
                IFLA_BR_PRIORITY, struct.pack("=H", 0x8000 if priority is None else priority)
            )
            data += netlink.u32(IFLA_BR_STP_STATE, 1)
            words += f" forward_delay {STP_FORWARD_DELAY} hello_time 100 stp_state 1"
        info = netlink.nested(
            plan.IFLA_LINKINFO,
            netlink.text(plan.IFLA_INFO_KIND, "bridge"),
            netlink.attribute(plan.IFLA_INFO_DATA, data),
        )
        body = (
            plan.IFINFO.pack(0, 0, index, plan.IFF_UP, plan.IFF_UP)
            + netlink.text(plan.IFLA_IFNAME, node)
            + info
        )
        self.change(
            node, [netlink.NetlinkMessage(netlink.RTM_NEWLINK, netlink.CREATE, body, words)]
        )
        return index

    def attach(self, port: VethEnd, bridge: int) -> None:
        """Let an interface belong to the bridge of that index in its namespace; 0: to none."""
        body = plan.IFINFO.pack(0, 0, port.ifindex, 0, 0) + netlink.u32(plan.IFLA_MASTER, bridge)
        words = f"master {port.node}" if bridge else "nomaster"
        self.change(
            port.node,
            [
                netlink.NetlinkMessage(
                    netlink.RTM_NEWLINK, 0, body, f"ip link set {port.dev} {words}"
                )
            ],
        )

    def set_up(self, node: str, ifindex: int, dev: str, up: bool) -> None:
        """Set an interface up or down."""
        self.change(node, [plan.set_up(plan.End(ifindex, dev, 0, 0, 0), up)])

    def set_address(self, node: str, address: str | None) -> None:
        """The address by which the other nodes know `node`; None: none."""
        if address is None:
            self.addresses.pop(node, None)
        else:
            if self.addresses.get(node) != address:
                self.told(
                    f"echo {address} {node} >> {self.run.directory / hosts_file.FOLDER / 'hosts'}"
                )
            self.addresses[node] = address
        hosts_file.write(
            self.run.directory, [(address, [name]) for name, address in self.addresses.items()]
        )

    def down(self) -> None:
        """Take everything out of the kernel, and return when it is gone."""
        for space in self.spaces.values():
            space.close()
        names = [space.name for space in self.spaces.values()]
        self.spaces.clear()
        clean.remove(self.run)
        for name in names:
            self._tell_removal(name)
        self.told(f"rm -r {self.run.directory}")
        self.kept.release()


def _end(port: VethEnd) -> tuple[bytes, str]:
    """One end of a link that is to be made, and the words of the command."""
    body = plan.IFINFO.pack(0, 0, port.ifindex, 0, 0) + netlink.text(plan.IFLA_IFNAME, port.dev)
    words = f"{port.dev} index {port.ifindex}"
    if port.mac:
        body += netlink.attribute(plan.IFLA_ADDRESS, bytes.fromhex(port.mac.replace(":", "")))
        words += f" address {port.mac}"
    body += netlink.u32(plan.IFLA_NUM_TX_QUEUES, 1) + netlink.u32(plan.IFLA_NUM_RX_QUEUES, 1)
    return body, f"{words} numtxqueues 1 numrxqueues 1"
