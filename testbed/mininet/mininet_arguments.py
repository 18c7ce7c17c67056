"""Arguments of Mininet's constructor: honoured, or refused in one line.

| argument | where switches are bridges | where they are routers |
|---|---|---|
| topo, build, xterms | as in Mininet | as in Mininet |
| switch, host, intf | classes or partials; see testbed/mininet/mininet_classes.py | refused |
| link | a class, a partial, or a LinkSpec | the same; a class has no effect |
| controller | a placeholder; a real one is refused | refused |
| ipBase, autoSetMacs | as in Mininet | refused: addresses follow from the position |
| autoStaticArp | as in Mininet | entries are static anyway |
| autoPinCpus | needs host=CPULimitedHost | refused |
| waitConnected | waits for the spanning tree, where there is one | start() waits anyway |
| cleanup | removes the remains of dead runs of weft | the same |
| inNamespace | switches always have namespaces of their own | the same |
| listenPort | no effect without OpenFlow | the same |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from inspect import signature
from typing import Any

from mininet.link import Intf, Link, TCIntf
from mininet.net import Mininet
from mininet.node import CPULimitedHost, Host

from weft.testbed.mininet.cpu_share import LimitedHost
from weft.testbed.mininet.mininet_classes import WITHOUT_CONTROLLER, is_plain_switch
from weft.testbed.mininet.mininet_topology import has_cycle, is_topo
from weft.testbed.network.bring_up import RunOptions
from weft.topologies.core.grammar import unknown
from weft.topologies.core.link import LinkSpec

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
