"""What Mininet's constructor takes, and what becomes of it here: honoured, or refused in one line.

| argument | where switches are bridges | where they are routers |
|---|---|---|
| topo, build, xterms | as in Mininet | as in Mininet |
| switch, host, intf | classes or partials; see testbed/mininet/mininet_classes.py | refused |
| link | a class, a partial, or a LinkSpec | the same; a class says nothing |
| controller | shown, with nothing to do; one that is to be obeyed is refused | refused |
| ipBase, autoSetMacs | as in Mininet | refused: addresses follow from the place |
| autoStaticArp | as in Mininet | entries are static anyway |
| autoPinCpus | needs host=CPULimitedHost | refused |
| waitConnected | waits for the spanning tree, where there is one | start() waits anyway |
| cleanup | removes what dead runs left, of ours | the same |
| inNamespace | switches always have namespaces of their own | the same |
| listenPort | nobody listens for OpenFlow | the same |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from mininet.link import Intf, Link, TCIntf
from mininet.node import CPULimitedHost, Host

from weft.testbed.mininet.cpu_share import LimitedHost
from weft.testbed.mininet.mininet_classes import WITHOUT_CONTROLLER, is_plain_switch
from weft.testbed.mininet.mininet_topology import has_cycle
from weft.topologies.core.grammar import unknown
from weft.topologies.core.link import LinkSpec

ORDER = (
    *(
        "topo",
        "switch",
        "host",
        "controller",
        "link",
        "intf",
        "build",
        "xterms",
        "cleanup",
        "ipBase",
        "inNamespace",
    ),
    *("autoSetMacs", "autoStaticArp", "autoPinCpus", "listenPort", "waitConnected"),
)
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
    """Whether an argument says no more than Mininet's default, or than what switches without
    OpenFlow do anyway."""
    if name == "switch":
        return is_plain_switch(value)
    if name == "controller":
        values = value if isinstance(value, list) else [value]
        return all(getattr(one, "__name__", "") in WITHOUT_CONTROLLER for one in values)
    return value in (Host, Intf, TCIntf, "10.0.0.0/8")


@dataclass(frozen=True)
class Arguments:
    """topology: what is to be built.  mininet: the other arguments, by Mininet's names, only those
    that were given."""

    topology: Any
    mininet: Mapping[str, Any]

    @classmethod
    def of(cls, topology: Any, positional: Sequence[Any], named: Mapping[str, Any]) -> Arguments:
        """From a call; TypeError, in one line, for an argument that there is not, or that is given
        twice."""
        if len(positional) >= len(ORDER):
            raise TypeError(f"Net takes {len(ORDER)} arguments at the most")
        given = dict(zip(ORDER[1:], positional, strict=False))
        for key, value in named.items():
            if key not in ORDER:
                raise TypeError(f"Net: {unknown('argument', key, ORDER)}")
            if key in given or (key == "topo" and topology is not None):
                raise TypeError(f"Net: {key} is given twice")
            given[key] = value
        topo = given.pop("topo", None)
        return cls(topo if topology is None else topology, given)

    @property
    def link_spec(self) -> LinkSpec | None:
        """What every link carries; None if nothing is said, or if a class of links is given."""
        link = self.mininet.get("link")
        return link if isinstance(link, LinkSpec) else None

    def bridges(self, topo: Any) -> bool:
        """Whether switches are bridges if nothing is said: in a network without circles, or with a
        spanning tree."""
        switch = self.mininet.get("switch")
        stp = isinstance(switch, partial) and switch.keywords.get("stp")
        return bool(stp) or not has_cycle(topo)

    def require_bridged(self, **of_routers: object) -> None:
        """ValueError for what goes with routers only, arguments that are None unless given, and for
        what does not go together."""
        for name, value in of_routers.items():
            if value is not None:
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
        """ValueError for what goes with bridges only."""
        if topology is None:
            raise ValueError(
                "routing needs the whole network from the beginning: give Net a Topo, a "
                "graph or a name"
            )
        for name, why in NOT_ROUTED.items():
            if self.mininet.get(name) and not is_usual(name, self.mininet[name]):
                raise ValueError(
                    f"{name}: {why} in a routed network; routing='bridge' has switches as Mininet's"
                )
        link = self.mininet.get("link")
        is_class = isinstance(link, partial) or (isinstance(link, type) and issubclass(link, Link))
        if link is not None and not isinstance(link, LinkSpec) and not is_class:
            raise ValueError(f"link: a LinkSpec or a class of Mininet's links, not {link!r}")

    def for_mininet(self) -> dict[str, Any]:
        """What Mininet's own constructor is to be given."""
        kept = {
            key: value
            for key, value in self.mininet.items()
            if key not in ("build", "cleanup", "link")
        }
        link = self.mininet.get("link")
        return kept | ({} if link is None or isinstance(link, LinkSpec) else {"link": link})
