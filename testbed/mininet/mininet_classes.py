"""Adapters of Mininet's classes, and of a script's own, to nodes and links of a Lan.

A script calls Mininet(topo, host=CPULimitedHost, switch=OVSSwitch, link=TCLink), or has subclasses
of these.  Each becomes a class whose first base is the Lan's (lan_nodes.py, lan_ports.py).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from mininet import link as mininet_link
from mininet import node as mininet_node
from mininet import nodelib

from weft.testbed.mininet.cpu_share import LimitedHost
from weft.testbed.mininet.lan_nodes import LanController, LanHost, LanNode, LanSwitch
from weft.testbed.mininet.lan_ports import LanLink, LanPort
from weft.testbed.mininet.nat_node import LanNat

if TYPE_CHECKING:
    from weft.testbed.mininet.lan import Lan

OPENFLOW_SWITCHES = (
    "UserSwitch",
    "OVSSwitch",
    "OVSKernelSwitch",
    "OVSBridge",
    "OVSBatch",
    "IVSSwitch",
)
WITHOUT_CONTROLLER = ("Controller", "OVSController", "DefaultController", "NullController")
CLUSTER_EDITION = "mininet.examples.cluster"
Maker = Callable[..., Any]


def is_plain_switch(maker: object) -> bool:
    """Return True for a class of switches of Mininet's own."""
    if not isinstance(maker, type) or not issubclass(maker, mininet_node.Switch):
        return False
    return maker.__name__ in (*OPENFLOW_SWITCHES, "LinuxBridge", "Switch")


class Classes:
    """Adapted classes of one Lan; each is created once."""

    def __init__(self, lan: Lan) -> None:
        self.lan = lan
        self._classes: dict[tuple[tuple[type, ...], str], type] = {}

    def host(self, maker: Maker | None) -> Maker:
        """Return a constructor of hosts; raise ValueError for an unsupported class."""
        return self._of(maker or mininet_node.Host, self._host, "host")

    def switch(self, maker: Maker | None) -> Maker:
        """Return a constructor of switches; raise ValueError for an unsupported class."""
        return self._of(maker or mininet_node.Switch, self._switch, "switch")

    def controller(self, maker: Maker | None) -> Maker | None:
        """Return a constructor of controllers, or None; raise ValueError for a real one."""
        if maker is None or getattr(maker, "__name__", "") == "NullController":
            return None
        name = getattr(maker, "__name__", repr(maker))
        if name not in WITHOUT_CONTROLLER:
            raise ValueError(
                f"controller {name}: switches here learn by themselves, and obey no OpenFlow"
            )
        return self._combine(LanController, mininet_node.Node, name="Controller")

    def link(self, maker: Maker | None) -> Maker:
        """Return a constructor of links; raise ValueError for an unsupported class."""
        return self._of(maker or mininet_link.Link, self._link, "link")

    def _of(self, maker: Maker, of_class: Callable[[type], type], role: str) -> Maker:
        if isinstance(maker, partial):
            return partial(self._of(maker.func, of_class, role), *maker.args, **maker.keywords)
        if isinstance(maker, type):
            if any(base.__module__ == CLUSTER_EDITION for base in maker.__mro__):
                raise ValueError(f"{role}: {maker.__name__} is for several machines, Net is on one")
            return of_class(maker)
        # mininet.util.custom()
        if getattr(getattr(maker, "__code__", None), "co_freevars", ()) == ("cls", "params"):
            cls, params = (cell.cell_contents for cell in getattr(maker, "__closure__", ()))
            return partial(self._of(cls, of_class, role), **params)
        name = getattr(maker, "__name__", repr(maker))
        raise ValueError(f"{role}: {name} is no class; give a class, or functools.partial of one")

    def _host(self, cls: type) -> type:
        # one of mininet_names.py, or derived from it
        if issubclass(cls, LanNode):
            return self._combine(cls)
        if not issubclass(cls, mininet_node.Node) or issubclass(cls, mininet_node.Switch):
            raise ValueError(f"host: {cls.__name__} is no class of hosts")
        if issubclass(cls, mininet_node.Controller):
            raise ValueError(
                f"host: {cls.__name__} is a controller, and switches here obey no OpenFlow"
            )
        if issubclass(cls, nodelib.NAT):
            return self._combine(LanNat, mininet_node.Node, name="NAT")
        if cls is mininet_node.CPULimitedHost:
            return self._combine(LimitedHost, mininet_node.Host, name=cls.__name__)
        if issubclass(cls, mininet_node.CPULimitedHost):
            raise ValueError(
                f"host: {cls.__name__} derives from Mininet's CPULimitedHost, whose cgroups "
                "are not used here"
            )
        return self._combine(LanHost, cls)

    def _switch(self, cls: type) -> type:
        if issubclass(cls, LanNode):
            return self._combine(cls)
        if not issubclass(cls, mininet_node.Switch):
            raise ValueError(f"switch: {cls.__name__} is no class of switches")
        if is_plain_switch(cls):
            return self._combine(LanSwitch, mininet_node.Switch, name=cls.__name__)
        openflow = [base.__name__ for base in cls.__mro__ if base.__name__ in OPENFLOW_SWITCHES]
        if openflow:
            raise ValueError(
                f"switch: {cls.__name__} derives from {openflow[0]}, whose commands are not used "
                "here"
            )
        return self._combine(LanSwitch, cls)

    def _link(self, cls: type) -> type:
        if not issubclass(cls, mininet_link.Link):
            raise ValueError(f"link: {cls.__name__} is no class of links")
        plain = cls.__module__ == mininet_link.__name__
        return self._combine(
            LanLink, mininet_link.Link if plain else cls, name=cls.__name__, port_class=self._port
        )

    def _port(self, cls: type | None) -> type:
        if cls is None or cls.__module__ == mininet_link.__name__:
            return self._combine(LanPort, name=cls.__name__ if cls else "Intf")
        return self._combine(LanPort, cls)

    def _combine(self, first: type, *then: type, name: str = "", **members: Any) -> type:
        bases = (first, *then)
        key = (bases, name)
        if key not in self._classes:
            own = {"lan": self.lan} | {
                member: staticmethod(value) for member, value in members.items()
            }
            self._classes[key] = type(name or bases[-1].__name__, bases, own)
        return self._classes[key]
