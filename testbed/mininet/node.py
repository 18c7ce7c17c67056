"""Mininet's nodes and interfaces on existing namespaces.

A node's shell starts on demand (lazy_shell.py).  Netlink sets interfaces up or down and shapes
them.  The rest is Mininet's own: cmd(), popen(), the CLI, users' scripts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mininet import link, node

from weft.testbed.linux.interface import set_up
from weft.testbed.mininet.lazy_shell import DirectIntf, LazyShell
from weft.testbed.network import faults, impair
from weft.testbed.plan.network_plan import mac
from weft.topologies.core.address import dotted

if TYPE_CHECKING:
    from weft.testbed.network.network import RunningNetwork


class LazyShellNode(LazyShell, node.Node):  # type: ignore[misc]  # mininet has no types
    """A mininet Node in an existing namespace."""

    def __init__(self, name: str, network: RunningNetwork, number: int, **params: Any) -> None:
        self.network = network
        self.number = number
        self.record = network.run
        self.namespace = network.plan.namespace(number)
        super().__init__(name, **params)

    def IP(self, intf: Port | str | None = None) -> str | None:
        """Return the node's only address, the same on every port; None for a crossbar."""
        plan = self.network.plan
        return None if plan.topology.is_crossbar(self.number) else dotted(plan.address(self.number))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}: {self.IP() or 'crossbar'} in {self.namespace}>"


class Host(LazyShellNode, node.Host):  # type: ignore[misc]
    """A server."""


class Switch(LazyShellNode, node.Switch):  # type: ignore[misc]
    """A crossbar, which is a Linux bridge, or a router."""

    def defaultDpid(self, dpid: object = None) -> str:
        """Return the position among the switches, from 1; names may have no number."""
        return f"{self.number - self.network.topology.servers + 1:016x}"

    def start(self, controllers: object) -> None:
        """Do nothing: the switch runs already."""

    def stop(self, deleteIntfs: bool = True) -> None:
        """Raise ValueError: only links and the daemon of a router can be stopped."""
        raise ValueError(
            f"{self.name} is no OpenFlow switch and cannot be stopped; write fail {self.name}"
        )

    def connected(self) -> bool:
        return True

    def dpctl(self, *args: str) -> str:
        """Return a hint, because the switch has no OpenFlow."""
        kind = "a bridge" if self.network.topology.is_crossbar(self.number) else "a router"
        return f"{self.name} is {kind}, without OpenFlow; see routes {self.name}\n"


class Port(DirectIntf):
    """One end of a link."""

    def __init__(self, owner: LazyShellNode, port: int) -> None:
        # Intf.__init__ would start a shell to read the address and set the interface up.
        plan = owner.network.plan
        self.node = owner
        self.port = port
        self.name = plan.ends[owner.number][port].dev
        self.link: Link | None = None
        self.mac = mac(owner.number, port).hex(":")
        self.ip = owner.IP()
        self.prefixLen = "32"
        self.params: dict[str, Any] = {}
        owner.intfs[port] = self
        owner.ports[self] = port
        owner.nameToIntf[self.name] = self

    def set_up(self, up: bool) -> None:
        """Set the interface up or down by netlink."""
        network = self.node.network
        number = self.node.number
        with network.at(number) as socket:
            if up:
                faults.bring_up(network, number, self.port, socket)
            else:
                socket.request([set_up(network.plan.ends[number][self.port], False)])

    def config(self, **params: Any) -> dict[str, Any]:
        """Shape packets that leave from now on.

        Args:
            params: bw (Mbit/s), delay and jitter (5ms), loss (per cent), max_queue_size (packets).

        Raises:
            ValueError: another parameter is set.
        """
        shape = {
            name: params.pop(name, None)
            for name in ("bw", "delay", "jitter", "loss", "max_queue_size")
        }
        unavailable = [name for name, value in params.items() if value is not None]
        if unavailable:
            raise ValueError(
                f"{self.name}: {unavailable[0]} is unavailable in a routed network; "
                f"{', '.join(shape)} are available"
            )
        impair.impair_way(
            self.node.network, self.node.number, self.port, impair.from_mininet(**shape)
        )
        return {}


class Link(link.Link):  # type: ignore[misc]
    """A link that exists."""

    def __init__(self, intf1: Port, intf2: Port) -> None:
        self.intf1 = intf1
        self.intf2 = intf2
        intf1.link = intf2.link = self
