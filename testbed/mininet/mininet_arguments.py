"""Arguments of Mininet's constructor: honoured, or refused in one line.

| argument | where switches are bridges | where they are routers |
|---|---|---|
| topo, build, xterms | as in Mininet | as in Mininet |
| switch, host, intf | classes or partials, adapted below | refused |
| link | a class, a partial, or a LinkSpec | the same; a class has no effect |
| controller | a placeholder; a real one is refused | refused |
| ipBase, autoSetMacs | as in Mininet | refused: addresses follow from the position |
| autoStaticArp | as in Mininet | entries are static anyway |
| autoPinCpus | needs host=CPULimitedHost | refused |
| waitConnected | waits for the spanning tree, where there is one | start() waits anyway |
| cleanup | removes the remains of dead runs of weft | the same |
| inNamespace | switches always have namespaces of their own | the same |
| listenPort | no effect without OpenFlow | the same |

A class of nodes or links, a script's own or a partial of one, becomes a class whose first base is
the Lan's (lan_nodes.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from inspect import signature
from typing import TYPE_CHECKING, Any

from mininet import link as mininet_link
from mininet import node as mininet_node
from mininet import nodelib
from mininet.link import Intf, Link, TCIntf
from mininet.net import Mininet
from mininet.node import CPULimitedHost, Host

from weft.testbed.mininet.lan_nodes import (
    LanController,
    LanHost,
    LanLink,
    LanNat,
    LanNode,
    LanPort,
    LanSwitch,
    LimitedHost,
)
from weft.testbed.mininet.mininet_topology import has_cycle, is_topo
from weft.testbed.network.bring_up import RunOptions
from weft.topologies.core.grammar import unknown
from weft.topologies.core.link import LinkSpec

if TYPE_CHECKING:
    from weft.testbed.mininet.lan import Lan


ORDER = (*signature(Mininet.__init__).parameters,)[1:]
NOT_ROUTED = {
    "switch": "switches are routers",
    "host": "hosts are plain ones",
    "intf": "interfaces are plain ones",
    "controller": "daemons on the switches route",
    "ipBase": "addresses follow from the place of a node",
    "autoSetMacs": "addresses follow from the number of a node",
    "autoPinCpus": "no host has a share of the processor",
}
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


def is_usual(name: str, value: Any) -> bool:
    """Return True for Mininet's default, or a value without effect here."""
    if name == "switch":
        return is_plain_switch(value)
    if name == "controller":
        values = value if isinstance(value, list) else [value]
        return all(getattr(maker, "__name__", "") in WITHOUT_CONTROLLER for maker in values)
    return value in (Host, Intf, TCIntf, "10.0.0.0/8")


@dataclass(frozen=True)
class Arguments:
    """Arguments of Net.

    Attributes:
        topology: the network to build.
        mininet: the other arguments that the caller set, by Mininet's names.
    """

    topology: Any
    mininet: Mapping[str, Any]

    @classmethod
    def of(cls, topology: Any, positional: Sequence[Any], named: Mapping[str, Any]) -> Arguments:
        """Return the arguments of a call.

        Raises:
            TypeError: an argument is unknown, or given twice.
        """
        if len(positional) >= len(ORDER):
            raise TypeError(f"Net takes {len(ORDER)} arguments at the most")
        arguments = dict(zip(ORDER[1:], positional, strict=False))
        for key, value in named.items():
            if key not in ORDER:
                raise TypeError(f"Net: {unknown('argument', key, ORDER)}")
            if key in arguments or (key == "topo" and topology is not None):
                raise TypeError(f"Net: {key} is given twice")
            arguments[key] = value
        topo = arguments.pop("topo", None)
        return cls(topo if topology is None else topology, arguments)

    @property
    def link_spec(self) -> LinkSpec | None:
        """Return the spec of every link; None without one, or for a class of links."""
        link = self.mininet.get("link")
        return link if isinstance(link, LinkSpec) else None

    def bridges(self, topo: Any) -> bool:
        """Return True if switches are bridges by default.

        They are without a topology, and in a Topo without cycles or with a spanning tree.
        """
        if topo is None:
            return True
        if not is_topo(topo):
            return False
        switch = self.mininet.get("switch")
        stp = isinstance(switch, partial) and switch.keywords.get("stp")
        return bool(stp) or not has_cycle(topo)

    def require_bridged(self, **routed_only: object) -> None:
        """Raise ValueError for arguments that need routers, or that conflict."""
        for name, value in routed_only.items():
            if value != getattr(RunOptions, name, None):
                raise ValueError(
                    f"{name} needs routing=, such as ecmp: switches of this network are bridges"
                )
        host = self.mininet.get("host")
        host = host.func if isinstance(host, partial) else host
        if self.mininet.get("autoPinCpus") and not (
            isinstance(host, type) and issubclass(host, CPULimitedHost | LimitedHost)
        ):
            raise ValueError("autoPinCpus needs host=CPULimitedHost")

    def require_routed(self, topology: Any) -> None:
        """Raise ValueError for arguments that need bridges."""
        if topology is None:
            raise ValueError(
                "routing needs the whole network from the beginning: give Net a Topo, a graph or a "
                "name"
            )
        for name, reason in NOT_ROUTED.items():
            if self.mininet.get(name) and not is_usual(name, self.mininet[name]):
                raise ValueError(
                    f"{name}: {reason} in a routed network; "
                    "routing='bridge' has switches as Mininet's"
                )
        link = self.mininet.get("link")
        is_class = isinstance(link, partial) or (isinstance(link, type) and issubclass(link, Link))
        if link is not None and not isinstance(link, LinkSpec) and not is_class:
            raise ValueError(f"link: a LinkSpec or a class of Mininet's links, not {link!r}")

    def for_mininet(self) -> dict[str, Any]:
        """Return the arguments for Mininet's own constructor."""
        omitted = {"build", "cleanup"}
        if self.mininet.get("link") is None or self.link_spec:
            omitted.add("link")
        return {key: value for key, value in self.mininet.items() if key not in omitted}


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
        # one of scripts.py, or derived from it
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
