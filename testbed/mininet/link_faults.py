"""Faults and changes of links of a Lan, by the methods that a RunningNetwork has for its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.testbed.linux import tc
from weft.testbed.linux.interface import interfaces
from weft.testbed.network.handle import BRIDGES
from weft.testbed.network.impair import Impairment

if TYPE_CHECKING:
    from weft.testbed.mininet.bridged_net import BridgedNet


class LanLinks:
    """The links of a network whose switches are bridges."""

    def __init__(self, net: BridgedNet) -> None:
        self._net = net

    def _link(self, name: str) -> Any:
        """Return the link called h1-s1, or s1-s2:2 for the second of several.

        Raises:
            ValueError: there is none.
        """
        links = self._net.links
        ends, _, position = name.partition(":")
        a, dash, b = ends.partition("-")
        between = [link for link in links if {link.intf1.node.name, link.intf2.node.name} == {a, b}]
        number = int(position) if position.isdecimal() else 1
        if not dash or (position and not position.isdecimal()) or not 1 <= number <= len(between):
            names = (f"{link.intf1.node.name}-{link.intf2.node.name}" for link in links[:3])
            known = ", ".join(names) or "h1-s1"
            raise ValueError(f"no link {name}: write its two ends, as in {known}")
        return between[number - 1]

    def _ports(self, name: str) -> tuple[Any, Any]:
        link = self._link(name)
        return link.intf1, link.intf2

    def fail(self, name: str, *, silent: bool = False, only_to: str | None = None) -> None:
        """Fail the link called `name`.

        Args:
            name: of the link.
            silent: drop packets on arrival; otherwise both ends lose their carrier.
            only_to: node at the only end that drops; None: both ends do.

        Raises:
            ValueError: `only_to` is no end of the link, or the failure is not silent.
        """
        ports = [port for port in self._ports(name) if only_to in (None, port.node.name)]
        if not ports:
            raise ValueError(f"only to {only_to}: it must be an end of {name}")
        if only_to is not None and not silent:
            raise ValueError(f"only to {only_to}: the failure must be silent")
        for port in ports:
            if silent:
                port.request(tc.clsact(port.end))
                port.request(tc.blackhole(port.end))
            else:
                port.ifconfig("down")

    def restore(self, name: str) -> None:
        """Undo fail()."""
        for port in self._ports(name):
            tc.unblackhole(port.socket, port.end)
            port.ifconfig("up")

    def degrade(self, name: str, rate_bps: int) -> None:
        """Set the rate of a link in both directions."""
        self.impair(name, Impairment(rate_bps=rate_bps))

    def impair(self, name: str, change: Impairment) -> None:
        """Set loss, delay, rate or queue of a link in both directions."""
        for port in self._ports(name):
            port.shape(change)

    def unimpair(self, name: str) -> None:
        """Raise ValueError: the original shape of a link is not stored."""
        raise ValueError(
            f"the original shape of {name}, a link between bridges, is unknown: set it by impair, "
            "as in loss 0 delay 0ms"
        )

    def status(self) -> dict[str, Any]:
        """Return the run and its failed links as JSON-able values."""
        failed = [str(link) for link in self._net.links if _has_failed(link)]
        return {
            "run": self._net.lan.run.id,
            "topology": "lan",
            "scheme": BRIDGES,
            "failed": failed,
            "nodes": [],
        }


def _has_failed(link: Any) -> bool:
    """Return True if an end of a link is down, or drops packets on arrival."""
    return any(
        not interfaces(port.socket)[port.end.ifindex].up
        or port.end.ifindex in tc.blackholes(port.socket)
        for port in (link.intf1, link.intf2)
    )
