"""Mininet's interfaces and links in a Lan: veths, shaped exactly."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING, Any

from mininet import link as mininet_link

from weft.testbed.linux import netlink, netns, tc
from weft.testbed.linux.ethtool import Offloads
from weft.testbed.linux.interface import interfaces, set_up
from weft.testbed.mininet.lazy_shell import DirectIntf
from weft.testbed.network.impair import Direction, Impairment, change_direction, from_mininet

if TYPE_CHECKING:
    from weft.testbed.mininet.lan import Lan, VethEnd

QUEUE_PACKETS = 1000  # Mininet's default for a link with a rate
# parameters of TCIntf that this class lacks
UNAVAILABLE = ("use_hfsc", "enable_ecn", "enable_red", "speedup")
NO_EFFECT = ("use_htb", "use_tbf", "latency_ms", "gro", "txo", "rxo", "disable_gro")
SHAPE = ("bw", "delay", "jitter", "loss", "max_queue_size")


class LanPort(DirectIntf):
    """One end of a link; netlink sets its state, address and shape, without a shell."""

    lan: Lan
    ip: str | None
    mac: str | None
    link: Any
    shaped = False

    def __init__(
        self, name: str, node: Any = None, port: int | None = None, link: Any = None, **params: Any
    ) -> None:
        self.end: VethEnd = link.ends[name]
        shape = {key: params.pop(key) for key in SHAPE if key in params}
        super().__init__(name, node=node, port=port, link=link, **params)
        self.params |= shape
        link.shapes.append((self, from_mininet(**shape)))

    @property
    def socket(self) -> netlink.Socket:
        """A socket in the node's namespace."""
        return self.lan.spaces[self.node.name].netlink

    def request(self, message: netlink.NetlinkMessage) -> None:
        """Send a netlink message in the node's namespace."""
        self.lan.change(self.node.name, [message])

    def set_up(self, up: bool) -> None:
        """Set the interface up or down by netlink."""
        self.request(set_up(self.end, up))

    def setIP(self, ipstr: str, prefixLen: int | None = None) -> str:
        """Set the interface's only address, also in the hosts files."""
        output: str = super().setIP(ipstr, prefixLen)
        if self.node.defaultIntf() is self:
            self.lan.set_address(self.node.name, self.ip)
        return output

    def delete(self) -> None:
        """Delete the interface, and with it the link."""
        if self.end.ifindex in interfaces(self.socket):  # else the other end was deleted
            self.cmd("ip link del", self.name)
        self.node.delIntf(self)
        self.link = None

    def config(self, **params: Any) -> dict[str, Any]:
        """Set Mininet's parameters of interfaces, and those of TCIntf.config on any interface.

        Raises:
            ValueError: a parameter is unavailable.
        """
        for name in UNAVAILABLE:
            if params.pop(name, None):
                raise ValueError(
                    f"{self.name}: {name} is unavailable here; {', '.join(SHAPE)} are available"
                )
        for name in NO_EFFECT:
            params.pop(name, None)
        change = from_mininet(**{key: params.pop(key) for key in SHAPE if key in params})
        result: dict[str, Any] = super().config(**params) or {}
        self.shape(change)
        return result

    def shape(self, change: Impairment) -> None:
        """Shape packets that leave from now on."""
        if change == Impairment():
            return
        far = self.far()
        far.request(tc.clsact(far.end))
        direction = Direction(self.name, self.socket, self.end, far.socket, far.end)
        change_direction(direction, change, None, QUEUE_PACKETS)
        if change.rate_bps is not None and not self.shaped:
            self._turn_off_bundles()

    def far(self) -> LanPort:
        """Return the other end of the link."""
        port: LanPort = self.link.intf2 if self.link.intf1 is self else self.link.intf1
        return port

    def _turn_off_bundles(self) -> None:
        """Turn offloads off, so that a queue holds packets, not bundles of up to 64 kB."""
        self.shaped = True
        with netns.inside(self.lan.spaces[self.node.name].fd), closing(Offloads()) as offloads:
            offloads.turn_off(self.name)
        self.cmd("ip link set", self.name, "gso_max_segs 1")


class LanLink(mininet_link.Link):  # type: ignore[misc]
    """A link between two nodes.

    Attributes:
        ends: by interface name.
        shapes: changes of the ports, made when both exist.
    """

    lan: Lan
    intf1: Any
    intf2: Any
    port_class: Callable[[Any], type[LanPort]]

    def __init__(self, node1: Any, node2: Any, **params: Any) -> None:
        self.ends: dict[str, VethEnd] = {}
        self.shapes: list[tuple[LanPort, Impairment]] = []
        kind = params.pop("intf", None)
        classes = {
            name: self.port_class(params.pop(name, None) or kind) for name in ("cls1", "cls2")
        }
        super().__init__(node1, node2, **(params | {"fast": True} | classes))
        for port, change in self.shapes:
            port.shape(change)
        for port in (self.intf1, self.intf2):
            port.node.link_added(port)

    def makeIntfPair(
        self,
        intfname1: str,
        intfname2: str,
        addr1: Any = None,
        addr2: Any = None,
        node1: Any = None,
        node2: Any = None,
        deleteIntfs: bool = True,
    ) -> tuple[str, str]:
        """Make both ends and return their names."""
        near = self.lan.new_port(node1.name, intfname1, addr1)
        far = self.lan.new_port(node2.name, intfname2, addr2)
        self.lan.join(near, far)
        self.ends = {intfname1: near, intfname2: far}
        return intfname1, intfname2

    def delete(self) -> None:
        """Delete the link from the kernel and from both its nodes."""
        for port in (self.intf1, self.intf2):
            if port is not None:
                port.delete()
        self.intf1 = self.intf2 = None

    def stop(self) -> None:
        """Do nothing: the link is removed with the run."""
