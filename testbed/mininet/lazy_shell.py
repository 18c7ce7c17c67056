"""Mininet's node in an existing namespace, without a shell until one is needed, and its interfaces.

A shell costs a process and a pseudo-terminal for each node.  It starts at the first read of one of
its attributes, usually by cmd().  Private directories are mounted then, because they belong to the
shell and its children.
"""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING, Any

from mininet import link

from weft.testbed.linux.iproute import Namespace
from weft.testbed.runs import node_command

if TYPE_CHECKING:
    from pyroute2 import IPRoute

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
