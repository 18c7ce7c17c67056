"""Mininet's nodes and interfaces on namespaces that are there already.

A node's shell starts when somebody first asks for it (testbed/mininet/lazy_shell.py); setting an
interface up or down goes by netlink, and so does what a link is to carry.  Everything else is
Mininet's own: cmd(), popen(), the CLI, users' scripts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mininet import link, node

from weft.testbed.mininet.lazy_shell import LazyShell
from weft.testbed.network import faults, impair
from weft.topologies.core.address import dotted

if TYPE_CHECKING:
    from weft.testbed.network.network import RunningNetwork


class LazyShellNode(LazyShell, node.Node):  # type: ignore[misc]  # mininet has no types
    """A mininet Node in a namespace that exists, without a shell until it is needed."""

    def __init__(self, name: str, network: RunningNetwork, number: int, **params: Any) -> None:
        self.network = network
        self.number = number
        self.namespace = network.plan.namespace(number)
        super().__init__(name, **params)

    def IP(self, intf: Port | str | None = None) -> str | None:
        """The node's one address, the same on every port; None for a crossbar."""
        plan = self.network.plan
        return None if plan.topology.is_crossbar(self.number) else dotted(plan.address(self.number))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}: {self.IP() or 'crossbar'} in {self.namespace}>"


class Host(LazyShellNode, node.Host):  # type: ignore[misc]
    """A server."""


class Switch(LazyShellNode, node.Switch):  # type: ignore[misc]
    """A crossbar, which is a Linux bridge, or a router."""

    def defaultDpid(self, dpid: object = None) -> str:
        """Its place among the switches, from 1, as in topologies/mininet_topo.py; a user's name may
        have no number."""
        return f"{self.number - self.network.topology.servers + 1:016x}"

    def start(self, controllers: object) -> None:
        """It runs already."""

    def stop(self, deleteIntfs: bool = True) -> None:
        """ValueError: what a router forwards ends with its links; its daemon may be stopped without
        that."""
        raise ValueError(
            f"{self.name} is no OpenFlow switch that could be stopped; write fail {self.name}"
        )

    def connected(self) -> bool:
        return True

    def dpctl(self, *args: str) -> str:
        """There is no OpenFlow."""
        what = "a bridge" if self.network.topology.is_crossbar(self.number) else "a router"
        return f"{self.name} is {what}, without OpenFlow; see routes {self.name}\n"


class Port(link.Intf):  # type: ignore[misc]
    """One end of a link."""

    def __init__(self, owner: LazyShellNode, port: int) -> None:
        # Not Intf.__init__, which asks a shell for its address and sets the interface up.
        plan = owner.network.plan
        self.node = owner
        self.port = port
        self.name = plan.ends[owner.number][port].dev
        self.link: Link | None = None
        self.mac = plan.mac_text(owner.number, port)
        self.ip = owner.IP()
        self.prefixLen = "32"
        self.params: dict[str, Any] = {}
        owner.intfs[port] = self
        owner.ports[self] = port
        owner.nameToIntf[self.name] = self

    def ifconfig(self, *args: str) -> str:
        """Set the interface up or down, or let ifconfig do what else is asked."""
        network, number = self.node.network, self.node.number
        if args not in (("up",), ("down",)):
            said: str = super().ifconfig(*args)
            return said
        with network.at(number) as socket:
            if args == ("up",):
                faults.bring_up(network, number, self.port, socket)
            else:
                faults.take_down(network, number, self.port, socket)
        return ""

    def config(self, **params: Any) -> dict[str, Any]:
        """Let what leaves here from now on be carried as bw (Mbit/s), delay, jitter (5ms), loss
        (per cent) and max_queue_size (packets) say; ValueError, in one line, for anything else."""
        shape = {
            name: params.pop(name, None)
            for name in ("bw", "delay", "jitter", "loss", "max_queue_size")
        }
        if left := [name for name, value in params.items() if value is not None]:
            raise ValueError(
                f"{self.name}: {left[0]} is not to be had in a routed network; "
                f"{', '.join(shape)} are"
            )
        impair.impair_way(
            self.node.network, self.node.number, self.port, impair.from_mininet(**shape)
        )
        return {}

    def isUp(self, setUp: bool = False) -> bool:
        """Whether the interface is set up; with `setUp`, after setting it up."""
        if setUp:
            self.ifconfig("up")
        network = self.node.network
        with network.at(self.node.number) as socket:
            return faults.is_up(network, self.node.number, self.port, socket)

    def updateIP(self) -> str | None:
        return self.ip

    def updateMAC(self) -> str:
        return self.mac

    def updateAddr(self) -> tuple[str | None, str]:
        return self.ip, self.mac

    def IP(self) -> str | None:
        return self.ip

    def MAC(self) -> str:
        return self.mac


class Link(link.Link):  # type: ignore[misc]
    """A link that exists."""

    def __init__(self, intf1: Port, intf2: Port) -> None:
        self.intf1, self.intf2 = intf1, intf2
        intf1.link = intf2.link = self
