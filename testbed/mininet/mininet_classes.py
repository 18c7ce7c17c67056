"""Classes of Mininet's, or of a script's own, made to work where a Lan makes nodes and links.

A script says Mininet(topo, host=CPULimitedHost, switch=OVSSwitch, link=TCLink), and may have
subclasses of any of these.  Each becomes a class that first does what the Lan's does (lan_nodes.py,
lan_ports.py), and then its own.
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
Maker = Callable[..., Any]


def is_plain_switch(maker: object) -> bool:
    """Whether a class of switches is Mininet's own, without anything of a script's."""
    if not isinstance(maker, type) or not issubclass(maker, mininet_node.Switch):
        return False
    return maker.__name__ in (*OPENFLOW_SWITCHES, "LinuxBridge", "Switch")


class Classes:
    """The classes of one Lan, each made once."""

    def __init__(self, lan: Lan) -> None:
        self.lan = lan
        self._made: dict[tuple[tuple[type, ...], str], type] = {}

    def host(self, maker: Maker | None) -> Maker:
        """What makes a host; ValueError if it cannot be made here."""
        return self._of(maker or mininet_node.Host, self._host, "host")

    def switch(self, maker: Maker | None) -> Maker:
        """What makes a switch; ValueError if it cannot be made here."""
        return self._of(maker or mininet_node.Switch, self._switch, "switch")

    def controller(self, maker: Maker | None) -> Maker | None:
        """What makes a controller, None for none; ValueError for one that would have to be
        obeyed."""
        if maker is None or getattr(maker, "__name__", "") == "NullController":
            return None
        names = [
            one.__name__ for one in getattr(maker, "__mro__", [maker]) if hasattr(one, "__name__")
        ]
        if names[0] not in WITHOUT_CONTROLLER:
            raise ValueError(
                f"controller {names[0]}: switches here learn by themselves, and obey no OpenFlow"
            )
        return self._mixed(LanController, mininet_node.Node, name="Controller")

    def link(self, maker: Maker | None) -> Maker:
        """What makes a link; ValueError if it cannot be made here."""
        return self._of(maker or mininet_link.Link, self._link, "link")

    def _of(self, maker: Maker, of_class: Callable[[type], type], what: str) -> Maker:
        if isinstance(maker, partial):
            return partial(self._of(maker.func, of_class, what), *maker.args, **maker.keywords)
        if isinstance(maker, type):
            return of_class(maker)
        # mininet.util.custom()
        if getattr(getattr(maker, "__code__", None), "co_freevars", ()) == ("cls", "params"):
            cls, params = (cell.cell_contents for cell in getattr(maker, "__closure__", ()))
            return partial(self._of(cls, of_class, what), **params)
        name = getattr(maker, "__name__", repr(maker))
        raise ValueError(f"{what}: {name} is no class; give a class, or functools.partial of one")

    def _host(self, cls: type) -> type:
        # ours already, or derived from one that mininet_names.py has put
        if issubclass(cls, LanNode):
            return self._mixed(cls)
        if not issubclass(cls, mininet_node.Node) or issubclass(cls, mininet_node.Switch):
            raise ValueError(f"host: {cls.__name__} is no class of hosts")
        if issubclass(cls, nodelib.NAT):
            return self._mixed(LanNat, mininet_node.Node, name="NAT")
        if cls is mininet_node.CPULimitedHost:
            return self._mixed(LimitedHost, mininet_node.Host, name=cls.__name__)
        if issubclass(cls, mininet_node.CPULimitedHost):
            raise ValueError(
                f"host: {cls.__name__} begins with Mininet's CPULimitedHost, whose cgroups "
                f"are not used here"
            )
        return self._mixed(LanHost, cls)

    def _switch(self, cls: type) -> type:
        if issubclass(cls, LanNode):
            return self._mixed(cls)
        if not issubclass(cls, mininet_node.Switch):
            raise ValueError(f"switch: {cls.__name__} is no class of switches")
        if is_plain_switch(cls):
            return self._mixed(LanSwitch, mininet_node.Switch, name=cls.__name__)
        if theirs := [one.__name__ for one in cls.__mro__ if one.__name__ in OPENFLOW_SWITCHES]:
            raise ValueError(
                f"switch: {cls.__name__} begins with {theirs[0]}, whose commands are not used here"
            )
        return self._mixed(LanSwitch, cls)

    def _link(self, cls: type) -> type:
        if not issubclass(cls, mininet_link.Link):
            raise ValueError(f"link: {cls.__name__} is no class of links")
        plain = cls.__module__ == mininet_link.__name__
        return self._mixed(
            LanLink, mininet_link.Link if plain else cls, name=cls.__name__, port_class=self._port
        )

    def _port(self, cls: type | None) -> type:
        if cls is None or cls.__module__ == mininet_link.__name__:
            return self._mixed(LanPort, name=cls.__name__ if cls else "Intf")
        return self._mixed(LanPort, cls)

    def _mixed(self, first: type, *then: type, name: str = "", **members: Any) -> type:
        bases = (first, *then)
        key = (bases, name)
        if key not in self._made:
            own = {"lan": self.lan} | {
                member: staticmethod(value) for member, value in members.items()
            }
            self._made[key] = type(name or bases[-1].__name__, bases, own)
        return self._made[key]
