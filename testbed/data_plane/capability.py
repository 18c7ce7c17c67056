"""Base of the Linux runtime's capabilities (daemons/core/capabilities.py).

A capability is a class in a file of its own.  It applies the actions that it lists, and returns the
events that its sockets or its polls of the kernel bring.
"""

from __future__ import annotations

import select
from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from typing import Any, NamedTuple, Protocol

from weft.daemons.core.actions import Action
from weft.daemons.core.events import DaemonEvent


class Wakes(IntEnum):
    """Events of a readable socket that wake its daemon, as epoll's bits."""

    NEVER = 0  # read when something else wakes the daemon
    AT_ONCE = select.EPOLLIN
    # for events as frequent as packets, which must not starve the others
    ONCE_A_TICK = select.EPOLLIN | select.EPOLLONESHOT


class OpenDescriptor(Protocol):
    """A socket, or another open descriptor with its interface."""

    def fileno(self) -> int: ...
    def detach(self) -> int: ...
    def close(self) -> None: ...


class EventSource(NamedTuple):
    """A socket, a function that reads its events, and when the socket wakes the daemon."""

    socket: OpenDescriptor
    read: Callable[[], Iterable[DaemonEvent]]
    wakes: Wakes


class LinuxCapability:
    """A capability without actions and events."""

    actions: Sequence[type[Action]] = ()

    def apply(self, actions: Sequence[Any]) -> str:
        """Apply `actions`, of the classes in `self.actions`, and return a line to log or "".

        Raises:
            NetlinkError, BpfError: the kernel refused a change.
        """
        raise NotImplementedError

    def sources(self) -> Sequence[EventSource]:
        """Return the event sources of this capability."""
        return ()

    def look(self, now: float) -> Iterable[DaemonEvent]:
        """Return events that only a poll of the kernel shows; called at every tick."""
        return ()

    def reconcile(self) -> None:
        """Retry the changes of the last apply() that the kernel refused."""

    def sockets(self) -> Sequence[OpenDescriptor]:
        """Return all open sockets."""
        return ()

    def close(self) -> None:
        """Close the sockets; applied changes stay."""
        for open_socket in self.sockets():
            open_socket.close()
