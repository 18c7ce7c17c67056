"""What a state machine asks of whatever carries it: data, to be carried out in order, also across kinds.

SetRoute, Send and Note every carrier carries out.  The others need a capability (capabilities.py), and who defines a
new kind of action derives it from Action.  An action that a carrier has nobody for raises.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from weft.topologies.core.address import Prefix


class Hop(NamedTuple):
    """The next node of a route: which port leads there, and who it is (a crossbar port leads to several nodes)."""

    port: int
    node: int


class Flow(NamedTuple):
    """Packets that belong together: IPv4 addresses of the servers, as integers; the protocol's number; source and
    destination port, 16 bits each, 0 where the protocol has none."""

    source: int
    destination: int
    protocol: int
    ports: int


class Action:
    """Something that a carrier is to do."""

    __slots__ = ()


class _Send(NamedTuple):
    port: int
    payload: bytes
    routine: bool = False


class Send(_Send, Action):
    """Put `payload` on the wire at `port`, for everybody there to hear.

    routine: says nothing new.  Whoever hears it may leave it unread until something else wakes it, and is then told
        when it came: where hundreds of daemons share a machine, waking them is what hellos cost.

    A tuple, as there are thousands a second: one takes a third of the time that a frozen dataclass takes to be made.
    """

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class SetRoute(Action):
    """Forward `prefix` to any one of `hops`.

    An empty tuple: an unreachable route, packets there are refused.  Where a shorter prefix that is set covers it, they
    must not follow that one: in a fat-tree the shorter prefix leads up, to a switch whose only way is back down.

    unless_set: only if the table has no route to `prefix`, be it of a daemon that ran before this one.
    """

    prefix: Prefix
    hops: tuple[Hop, ...]
    unless_set: bool = False


@dataclass(frozen=True, slots=True)
class SetSourceRewrite(Action):
    """Rewrite the destination of this node's own packets for the server at `destination` to `rewritten`; None: to the
    address of DR's path (daemons/routing/proxy_addresses.py)."""

    destination: int
    rewritten: int | None


@dataclass(frozen=True, slots=True)
class SetPrefixRewrite(Action):
    """Rewrite the first octet of packets for `prefix`, this node's own and others', before their route is looked up;
    None: leave it as it is.  What comes out may be changed once more.  Prefixes do not overlap."""

    prefix: Prefix
    first_octet: int | None


@dataclass(frozen=True, slots=True)
class SetFlowRewrite(Action):
    """Rewrite the first octet of packets of `flow` that this node sends or passes on, before their route is looked up;
    None: to that of packets whose flow has no state."""

    flow: Flow
    first_octet: int | None


@dataclass(frozen=True, slots=True)
class SetQueueState(Action):
    """Let a switch move packets between its link groups as this state of LBSP says (daemons/lbsp/routing.py)."""

    state: int


@dataclass(frozen=True, slots=True)
class SetFlowPort(Action):
    """Let packets of `flow` that this switch's own hosts send leave by `port`, whatever ports its route has."""

    flow: Flow
    port: int


@dataclass(frozen=True, slots=True)
class Note(Action):
    """Something that a person reading the node's log would want to know."""

    text: str


NOTHING: Sequence[Action] = ()


class _Unchanged(tuple[Action, ...]):
    __slots__ = ()


UNCHANGED: Sequence[Action] = _Unchanged()  # nothing, and the deadline is what it was, so that nobody need ask for it


class Performer:
    """Has actions carried out in the order in which they are given, all at once or a few at a time.

    Actions that follow one another and have the same handler are handed to it together: a batch of routes is one
    request to a kernel.

    handlers: by kind of action, who carries out a sequence of them.
    waiting: the actions that have not been carried out.
    """

    def __init__(self, handlers: Mapping[type[Action], Callable[[Sequence[Any]], None]]) -> None:
        self._handlers = dict(handlers)
        self.waiting: deque[Action] = deque()

    def add(self, action: Action) -> None:
        """Have `action` carried out after all that were added before; TypeError if nobody does that."""
        handler_of(self._handlers, action)
        self.waiting.append(action)

    def carry_out(self, most: int) -> int:
        """Have the first `most` of those that wait carried out; how many there were."""
        done, waiting, handlers = 0, self.waiting, self._handlers
        while waiting and done < most:
            handler, batch = handlers[type(waiting[0])], list[Action]()
            while waiting and done < most and handlers[type(waiting[0])] is handler:
                batch.append(waiting.popleft())
                done += 1
            handler(batch)
        return done

    def flush(self) -> None:
        """Have carried out all that waits."""
        self.carry_out(len(self.waiting))


Handler = Callable[..., None]


def handler_of(handlers: Mapping[type[Action], Handler], action: Action) -> Handler:
    """Who carries out `action`; TypeError says which kinds there is somebody for."""
    handler = handlers.get(type(action))
    if handler is None:
        known = ", ".join(sorted(kind.__name__ for kind in handlers))
        raise TypeError(f"nobody here carries out {type(action).__name__}, only {known}")
    return handler


def handlers_of(capabilities: Iterable[Any]) -> dict[type[Action], Handler]:
    """By kind of action, the apply() of the capability that it belongs to."""
    return {kind: capability.apply for capability in capabilities for kind in capability.actions}
