"""A node of Mininet's in a namespace that is there already, without a shell until somebody needs
one.

A shell costs Mininet a process and a pseudo-terminal for each node.  Here it starts when one of its
attributes is first read, by cmd() as a rule; private directories are mounted then, for they belong
to the shell and to what it starts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from subprocess import Popen

OF_THE_SHELL = {
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
    """To be inherited before mininet.node.Node; `namespace` must be set before Node.__init__
    runs."""

    namespace: str
    name: str
    inNamespace: bool
    _starting: bool | None = None  # None: not to be started, while Node.__init__ asks for it

    def __getattr__(self, name: str) -> Any:
        """Start the shell when one of its attributes is first read."""
        if name not in OF_THE_SHELL or self._starting:
            raise AttributeError(
                f"{self.__dict__.get('name', type(self).__name__)} has no attribute {name}"
            )
        self.startShell()
        return self.__dict__[name]

    @property
    def has_shell(self) -> bool:
        """Whether the shell has been started, and not been ended."""
        return bool(self.__dict__.get("shell"))

    def startShell(self, mnopts: str | None = None) -> None:
        """Start the shell that cmd() talks to, in the node's namespace."""
        if self._starting is None:
            self._starting = False
            for attribute in OF_THE_SHELL:
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
        """Mount what `privateDirs` says, once there is a shell."""
        if self.has_shell:
            super().mountPrivateDirs()  # type: ignore[misc]

    def _popen(self, cmd: list[str], **params: Any) -> Popen[bytes]:
        if self._starting:
            cmd = ["ip", "netns", "exec", self.namespace, *cmd]
        popen: Popen[bytes] = super()._popen(cmd, **params)  # type: ignore[misc]
        return popen

    def terminate(self) -> None:
        """End the shell, if it ever started."""
        if self.has_shell:
            super().terminate()  # type: ignore[misc]
