"""Actions: requests of a state machine to its runtime, performed in order, also across kinds.

Every runtime performs SetRoute, Send and Note; other kinds need a capability (contract.py).  A
new kind derives from Action.  A runtime raises TypeError for an action without a handler.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from weft.topologies.core.address import Prefix


class Hop(NamedTuple):
    """The next node of a route and the port towards it.

    Several nodes may lie behind the port of a crossbar.
    """

    port: int
    node: int


class FiveTuple(NamedTuple):
    """A flow of packets: IPv4 addresses of the servers as integers, protocol number, and ports.

    ports: source port in the upper 16 bits, destination port in the lower; 0 for a protocol without
        ports.
    """

    source: int
    destination: int
    protocol: int
    ports: int


class Action:
    """A request to the runtime."""

    __slots__ = ()


class _Send(NamedTuple):
    port: int
    payload: bytes
    routine: bool = False
    queued: bool = False


class Send(_Send, Action):
    """Send `payload` to all nodes at `port`.

    routine: the payload holds no news.  The receiver's runtime need not wake its daemon for it, and
        delivers it later with its time of arrival.  With hundreds of daemons on a machine, hellos
        cost mostly these wake-ups.
    queued: the packet waits behind those in the port's queue; others go ahead of them.

    A tuple: thousands are made a second, and a frozen dataclass takes three times as long to make.
    """

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class SetRoute(Action):
    """Forward `prefix` to any one of `hops`.

    hops: empty for an unreachable route, which refuses packets.  They must not follow a shorter
        prefix that covers `prefix`: in a fat-tree that leads up, to a switch whose only path is
        back down.
    unless_set: only if the table has no route to `prefix`; a route of an earlier daemon counts.
    """

    prefix: Prefix
    hops: tuple[Hop, ...]
    unless_set: bool = False


@dataclass(frozen=True, slots=True)
class SetSourceRewrite(Action):
    """Rewrite the destination of this node's own packets for the server at `destination`.

    rewritten: the new destination; None: the address of DR's path
        (daemons/routing/route_addresses.py).
    """

    destination: int
    rewritten: int | None


@dataclass(frozen=True, slots=True)
class SetPrefixRewrite(Action):
    """Rewrite the first octet of packets for `prefix`, own and forwarded, before the route lookup.

    first_octet: None leaves it as it is.  The rewritten packet may match another prefix and change
    once more. Prefixes do not overlap.
    """

    prefix: Prefix
    first_octet: int | None


@dataclass(frozen=True, slots=True)
class SetFlowRewrite(Action):
    """Rewrite the first octet of packets of `flow`, own and forwarded, before the route lookup.

    first_octet: None gives them the octet of flows without state.
    """

    flow: FiveTuple
    first_octet: int | None


@dataclass(frozen=True, slots=True)
class SetQueueState(Action):
    """Move a switch's packets between its link groups (daemons/lbsp/routing.py)."""

    state: int


@dataclass(frozen=True, slots=True)
class SetFlowPort(Action):
    """Send packets of `flow` from this switch's own hosts by `port`, whatever the route."""

    flow: FiveTuple
    port: int


@dataclass(frozen=True, slots=True)
class Note(Action):
    """Write a line to the node's log."""

    text: str


@dataclass(frozen=True, slots=True)
class NeighbourNote(Note):
    """Write a line to the node's log about a neighbour that came up or went down.

    The Linux runtime reports the fields to viewers as well.

    neighbour: name of the neighbour.
    """

    port: int
    neighbour: str
    up: bool
    reason: str


NOTHING: Sequence[Action] = ()


class _Unchanged(tuple[Action, ...]):
    __slots__ = ()


# no actions and the same deadline: saves the runtime a call
UNCHANGED: Sequence[Action] = _Unchanged()


class Performer:
    """Queue of actions, performed in order, all at once or a few at a time.

    Consecutive actions with the same handler go to it in one call: a batch of routes is one request
    to the kernel.

    handlers: by kind of action, the function that performs a sequence of them.
    waiting: actions not performed yet.
    """

    def __init__(self, handlers: Mapping[type[Action], Callable[[Sequence[Any]], None]]) -> None:
        self._handlers = dict(handlers)
        self.waiting: deque[Action] = deque()

    def add(self, action: Action) -> None:
        """Append `action`; TypeError if it has no handler."""
        handler_of(self._handlers, action)
        self.waiting.append(action)

    def carry_out(self, most: int) -> int:
        """Perform at most `most` waiting actions, in order; return how many."""
        done, waiting, handlers = 0, self.waiting, self._handlers
        while waiting and done < most:
            handler, batch = handlers[type(waiting[0])], list[Action]()
            while waiting and done < most and handlers[type(waiting[0])] is handler:
                batch.append(waiting.popleft())
                done += 1
            handler(batch)
        return done

    def flush(self) -> None:
        """Perform all waiting actions."""
        self.carry_out(len(self.waiting))


Handler = Callable[..., None]


def handler_of(handlers: Mapping[type[Action], Handler], action: Action) -> Handler:
    """Return the handler of `action`.

    Raises:
        TypeError: no handler; the message lists the supported kinds.
    """
    handler = handlers.get(type(action))
    if handler is None:
        kinds = ", ".join(sorted(kind.__name__ for kind in handlers))
        raise TypeError(f"no handler for {type(action).__name__}; there are handlers for {kinds}")
    return handler


def handlers_of(capabilities: Iterable[Any]) -> dict[type[Action], Handler]:
    """Return, by kind of action, the apply() of its capability."""
    return {kind: capability.apply for capability in capabilities for kind in capability.actions}
