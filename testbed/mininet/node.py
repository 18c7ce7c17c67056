"""Mininet's nodes and interfaces on existing namespaces, without a shell until one is needed.

A shell costs a process and a pseudo-terminal for each node.  It starts at the first read of one of
its attributes, usually by cmd().  Private directories are mounted then, because they belong to the
shell and its children.  Netlink sets interfaces up or down and shapes them.  The rest is Mininet's
own: cmd(), popen(), the CLI, users' scripts.
"""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING, Any

from mininet import link, node

from weft.testbed.linux.interface import set_up
from weft.testbed.linux.iproute import Namespace
from weft.testbed.network import faults, impair
from weft.testbed.plan.network_plan import mac
from weft.testbed.runs import node_command
from weft.topologies.core.address import dotted

if TYPE_CHECKING:
    from pyroute2 import IPRoute

    from weft.testbed.network.network import RunningNetwork
    from weft.testbed.runs.run import RunRecord

SHELL_ATTRIBUTES = {
    "shell",
    "stdin",
    "stdout",
    "pid",
    "pollOut",
    "master",
    "slave",
    "lastCmd",
    "lastPid",
    "execed",
}


class LazyShell:
    """Mix-in before mininet.node.Node; set `record` and `namespace` before Node.__init__."""

    record: RunRecord
    namespace: str
    name: str
    pid: int
    inNamespace: bool
    _starting: bool | None = None  # None: Node.__init__ has not asked for a shell yet
    _own_namespace: Namespace | None = None

    @property
    def ip(self) -> IPRoute:
        """pyroute2's IPRoute in the node's namespace, opened at first use."""
        if self._own_namespace is None:
            self._own_namespace = Namespace(self.namespace)
        return self._own_namespace.ip

    def __getattr__(self, name: str) -> Any:
        """Start the shell when one of its attributes is first read."""
        if name not in SHELL_ATTRIBUTES or self._starting:
            raise AttributeError(
                f"{self.__dict__.get('name', type(self).__name__)} has no attribute {name}"
            )
        self.startShell()
        return self.__dict__[name]

    @property
    def has_shell(self) -> bool:
        """Return True while the shell runs."""
        return bool(self.__dict__.get("shell"))

    def startShell(self, mnopts: str | None = None) -> None:
        """Start the shell that cmd() talks to, in the node's namespace."""
        if self._starting is None:
            self._starting = False
            for attribute in SHELL_ATTRIBUTES:
                self.__dict__.pop(attribute, None)
            return
        self.shell = None
        self.inNamespace = False  # mnexec need not make one
        self._starting = True
        try:
            super().startShell(mnopts)  # type: ignore[misc]  # of mininet.node.Node
        finally:
            self._starting = False
            self.inNamespace = True
        self.mountPrivateDirs()

    def mountPrivateDirs(self) -> None:
        """Mount `privateDirs` if there is a shell."""
        if self.has_shell:
            super().mountPrivateDirs()  # type: ignore[misc]

    def beside_shell(self) -> list[str]:
        """Return the words that start a command beside the node's shell."""
        return node_command.join(self.pid, ["mnexec", "-da", str(self.pid)])

    def popen(self, *args: Any, **params: Any) -> subprocess.Popen[bytes]:
        """Start a process at the node."""
        beside = {"mncmd": self.beside_shell()}
        popen: subprocess.Popen[bytes] = super().popen(*args, **(beside | params))  # type: ignore[misc]
        return popen

    def _popen(self, cmd: list[str], **params: Any) -> subprocess.Popen[bytes]:
        if self._starting:
            cmd = node_command.command(self.record, self.name, cmd)
            params["env"] = os.environ | node_command.environment(self.record)
        popen: subprocess.Popen[bytes] = super()._popen(cmd, **params)  # type: ignore[misc]
        return popen

    def terminate(self) -> None:
        """End the shell if it was started, and close `ip`."""
        if self._own_namespace:
            self._own_namespace.close()
        if self.has_shell:
            super().terminate()  # type: ignore[misc]


class DirectIntf(link.Intf):  # type: ignore[misc]  # mininet has no types
    """An interface whose commands run in its node's namespace, without the node's shell."""

    def set_up(self, up: bool) -> None:
        """Set the interface up or down."""
        raise NotImplementedError

    def ifconfig(self, *args: str) -> str:
        """Set the interface up or down by netlink; run ifconfig for other arguments."""
        if args in (("up",), ("down",)):
            self.set_up(args == ("up",))
            return ""
        output: str = super().ifconfig(*args)
        return output

    def cmd(self, *args: Any, **_: Any) -> str:
        """Return the output of a command; raise OSError if it fails."""
        words = " ".join(map(str, args))
        command = ["ip", "netns", "exec", self.node.namespace, *words.split()]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode:
            raise OSError(f"{self.node.name}: {words}: {result.stderr.strip()}")
        return result.stdout


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
