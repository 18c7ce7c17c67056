"""Mininet's hosts, switches and controllers where a Lan makes them.

Each class goes before a class of Mininet's, or of a script's own, in a class made of both: see
mininet_classes.py.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from weft.testbed.mininet.lazy_shell import LazyShell
from weft.testbed.plan.network_plan import BRIDGE_FILTER_SYSCTL

if TYPE_CHECKING:
    from weft.testbed.mininet.lan import Lan
    from weft.testbed.mininet.lan_ports import LanPort

OF_OPENFLOW = (
    "datapath",
    "failMode",
    "inband",
    "protocols",
    "reconnectms",
    "batch",
    "dpopts",
    "verbose",
)


class LanNode(LazyShell):
    """A node in a namespace of its own, which is made with it."""

    lan: Lan
    sysctls: Mapping[str, str] = MappingProxyType({})

    def __init__(self, name: str, *args: Any, **params: Any) -> None:
        if params.pop("inNamespace", True) is False:
            raise ValueError(
                f"{name}: inNamespace=False: here every node has a namespace of its own"
            )
        self.namespace = self.lan.add_node(name, self.sysctls)
        super().__init__(name, *args, **params)  # type: ignore[call-arg]  # of mininet.node.Node

    @classmethod
    def checkSetup(cls) -> None:
        """Nothing is needed: what Mininet's classes look for is not used."""

    def cmd(self, *args: Any, **params: Any) -> Any:
        """Run a command in the node's shell; setting the loopback up, which it is, starts none."""
        if args == ("ifconfig lo up",):
            return ""
        return super().cmd(*args, **params)  # type: ignore[misc]

    def joined(self, port: LanPort) -> None:
        """A link has been made that ends at `port`."""


class LanHost(LanNode):
    """A host.  One that gets its first link when the network is up is given its address at once."""

    up = False

    def joined(self, port: LanPort) -> None:
        if self.up and self.defaultIntf() is port:
            self.configDefault()


class LanSwitch(LanNode):
    """A switch: a bridge that learns where addresses are, without controller.

    stp: whether it keeps a spanning tree with the others, and prio: with which priority.
    """

    controlIntf = None
    bridge = 0

    def __init__(
        self,
        name: str,
        dpid: str | None = None,
        *,
        stp: bool = False,
        prio: int | None = None,
        **params: Any,
    ) -> None:
        for without_meaning in OF_OPENFLOW:
            params.pop(without_meaning, None)
        params.pop("inNamespace", None)
        self.stp, self.prio = bool(stp), prio
        self.sysctls = {BRIDGE_FILTER_SYSCTL: "0"} if self.lan.bridge_filter else {}
        super().__init__(name, dpid=dpid, **params)
        self.bridge = self.lan.add_bridge(name, stp=self.stp, priority=prio)

    def joined(self, port: LanPort) -> None:
        self.attach(port)

    def attach(self, intf: LanPort | str) -> None:
        """Let an interface belong to the bridge."""
        self.lan.attach(self.intf(intf).end, self.bridge)

    def detach(self, intf: LanPort | str) -> None:
        """Let an interface no longer belong to the bridge."""
        self.lan.attach(self.intf(intf).end, 0)

    def start(self, controllers: object) -> None:
        """Let the bridge forward, which it does from the beginning."""
        self.lan.set_up(self.name, self.bridge, self.name, True)

    def stop(self, deleteIntfs: bool = True) -> None:
        """Let the bridge forward nothing; with `deleteIntfs`, delete its links, too."""
        if self.name in self.lan.spaces:
            self.lan.set_up(self.name, self.bridge, self.name, False)
        super().stop(deleteIntfs)  # type: ignore[misc]

    def connected(self) -> bool:
        """Whether it forwards; a spanning tree takes some seconds to be found."""
        if not self.stp:
            return True
        command = ["ip", "-n", self.namespace, "-j", "-d", "link", "show", "master", self.name]
        told = json.loads(
            subprocess.run(command, capture_output=True, text=True, check=True).stdout or "[]"
        )
        states = [port["linkinfo"]["info_slave_data"]["state"] for port in told]
        return all(state in ("forwarding", "blocking") for state in states)

    def dpctl(self, *args: str) -> str:
        """There is no OpenFlow."""
        return (
            f"{self.name} is a bridge that learns, without OpenFlow; see {self.name} "
            f"bridge fdb show\n"
        )


class LanController(LanNode):
    """What Mininet shows as a controller: switches learn by themselves, and it has nothing to
    do."""

    def __init__(self, name: str, **params: Any) -> None:
        super().__init__(name)

    def start(self) -> None:
        """Switches need no controller."""

    def stop(self, *_: Any, **__: Any) -> None:
        """There is nothing to be stopped."""
        self.terminate()

    def IP(self, intf: Any = None) -> str:
        return "127.0.0.1"
