"""What a carrier on Linux can do beyond sockets, a clock and a forwarding table
(daemons/core/capabilities.py).

Each capability is a class of a file of its own: it carries out the actions that it names, and tells
the events that its sockets or its looks at the kernel bring.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

from weft.daemons.core.actions import Action
from weft.daemons.core.events import DaemonEvent


class Wakes(IntEnum):
    """Whether a socket that becomes readable wakes its daemon: as epoll has it."""

    NEVER = 0  # it is read when something else wakes the daemon
    AT_ONCE = select.EPOLLIN
    # what may be as many as packets must not keep it from the rest
    ONCE_A_TICK = select.EPOLLIN | select.EPOLLONESHOT


class EventSource(NamedTuple):
    """A socket, what of it happened to the node when it can be read, and whether it wakes the
    daemon."""

    socket: socket.socket
    read: Callable[[], Iterable[DaemonEvent]]
    wakes: Wakes


class LinuxCapability:
    """Carries out nothing and tells nothing."""

    actions: Sequence[type[Action]] = ()

    def apply(self, actions: Sequence[Any]) -> str:
        """Carry out `actions`, all of the kinds `actions`, together; what to log about that, if
        anything.

        Raises NetlinkError or BpfError if the kernel refuses.
        """
        raise NotImplementedError

    def sources(self) -> Sequence[EventSource]:
        """What may become readable."""
        return ()

    def look(self, now: float) -> Iterable[DaemonEvent]:
        """What has happened, as far as only asking the kernel tells; called at every tick."""
        return ()

    def reconcile(self) -> None:
        """Let the kernel hold what apply() was given last, where it refused something."""

    def sockets(self) -> Sequence[socket.socket]:
        """All that it has open."""
        return ()

    def close(self) -> None:
        """Let go of the sockets; what was carried out stays."""
        for each in self.sockets():
            each.close()
