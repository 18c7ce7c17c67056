"""Mininet's hosts, switches and controllers in a Lan.

Each class is the first base of a class whose second is Mininet's or a script's own; see
mininet_classes.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn

from weft.testbed.linux.interface import NamedDevice, set_up
from weft.testbed.mininet.lazy_shell import LazyShell
from weft.testbed.plan.network_plan import BRIDGE_FILTER_SYSCTL

if TYPE_CHECKING:
    from weft.testbed.mininet.lan import Lan
    from weft.testbed.mininet.lan_ports import LanPort

FORWARDING, BLOCKING = 3, 4  # states of a bridge's port (linux/if_bridge.h)
OPENFLOW_PARAMETERS = (
    "datapath",
    "failMode",
    "inband",
    "protocols",
    "reconnectms",
    "batch",
    "dpopts",
    "verbose",
)
# programs that would change the machine's own switches
OPENFLOW_PROGRAMS = ("ovs-vsctl", "ovs-ofctl", "ovs-dpctl", "ovs-appctl", "dpctl")


class LanNode(LazyShell):
    """A node that creates its own namespace."""

    lan: Lan
    sysctls: Mapping[str, str] = MappingProxyType({})

    def __init__(self, name: str, *args: Any, **params: Any) -> None:
        if params.pop("inNamespace", True) is False:
            raise ValueError(f"{name}: inNamespace=False: every node has a namespace of its own")
        self.record = self.lan.run
        self.namespace = self.lan.add_node(name, self.sysctls)
        super().__init__(name, *args, **params)  # type: ignore[call-arg]  # of mininet.node.Node

    @classmethod
    def checkSetup(cls) -> None:
        """Check nothing: the programs that Mininet's classes need are not used."""

    def cmd(self, *args: Any, **params: Any) -> Any:
        """Run a command in the node's shell; setting the loopback up needs none."""
        if args == ("ifconfig lo up",):
            return ""
        return super().cmd(*args, **params)  # type: ignore[misc]

    def link_added(self, port: LanPort) -> None:
        """Handle a new link that ends at `port`."""


class LanHost(LanNode):
    """A host; a first link while the network is up gets its address at once."""

    up = False

    def link_added(self, port: LanPort) -> None:
        if self.up and self.defaultIntf() is port:
            self.configDefault()


class LanSwitch(LanNode):
    """A switch: a learning bridge without a controller.

    Args:
        stp: run a spanning tree with the other switches.
        prio: priority in the spanning tree.
    """

    controlIntf = None
    bridge: NamedDevice

    def __init__(
        self,
        name: str,
        dpid: str | None = None,
        *,
        stp: bool = False,
        prio: int | None = None,
        **params: Any,
    ) -> None:
        for parameter in OPENFLOW_PARAMETERS:
            params.pop(parameter, None)
        params.pop("inNamespace", None)
        self.stp = bool(stp)
        self.prio = prio
        self.sysctls = {BRIDGE_FILTER_SYSCTL: "0"} if self.lan.bridge_filter else {}
        super().__init__(name, dpid=dpid, **params)
        self.bridge = self.lan.add_bridge(name, stp=self.stp, priority=prio)

    def refuse_openflow(self, *_: Any, **__: Any) -> NoReturn:
        """Raise ValueError: the switch has neither flow tables nor Open vSwitch's ports."""
        raise ValueError(
            f"{self.name}: switches here are bridges that learn, without OpenFlow and Open vSwitch"
        )

    def cmd(self, *args: Any, **params: Any) -> Any:
        """Run a command in the switch's shell; raise ValueError for one of OpenFlow."""
        if " ".join(map(str, args)).partition(" ")[0] in OPENFLOW_PROGRAMS:
            self.refuse_openflow()
        return super().cmd(*args, **params)

    def link_added(self, port: LanPort) -> None:
        self.attach(port)

    def attach(self, intf: LanPort | str) -> None:
        """Add an interface to the bridge."""
        self.lan.attach(self.intf(intf).end, self.bridge.ifindex)

    def detach(self, intf: LanPort | str) -> None:
        """Remove an interface from the bridge."""
        self.lan.attach(self.intf(intf).end, 0)

    def start(self, controllers: object) -> None:
        """Set the bridge up; a new bridge is up already."""
        self.lan.change(self.name, [set_up(self.bridge)])

    def stop(self, deleteIntfs: bool = True) -> None:
        """Set the bridge down; with `deleteIntfs`, delete its links too."""
        if self.name in self.lan.spaces:
            self.lan.change(self.name, [set_up(self.bridge, False)])
        super().stop(deleteIntfs)  # type: ignore[misc]

    def connected(self) -> bool:
        """Return True if the bridge forwards; a spanning tree needs some seconds."""
        if not self.stp:
            return True
        states = [
            port.get_nested("IFLA_LINKINFO", "IFLA_INFO_SLAVE_DATA", "IFLA_BRPORT_STATE")
            for port in self.ip.link("dump", master=self.bridge.ifindex)
        ]
        return all(state in (FORWARDING, BLOCKING) for state in states)


class LanController(LanNode):
    """A controller without a task: switches learn by themselves."""

    def __init__(self, name: str, **params: Any) -> None:
        super().__init__(name)

    def start(self) -> None:
        """Do nothing: switches need no controller."""

    def stop(self, *_: Any, **__: Any) -> None:
        """End the shell."""
        self.terminate()

    def IP(self, intf: Any = None) -> str:
        return "127.0.0.1"
