"""How much the state machines of a network keep: entries of their containers, and bytes of what
they remember.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from weft.daemons.simulator.simulator import Simulator

Knowledge = TypeVar("Knowledge")
# as much as before, and so many entries more, may a daemon keep when a campaign is over
TIMES, ROOM = 2, 2000
CONTAINERS = (dict, list, set, frozenset, tuple, deque)


class OfKinds(dict[type, Knowledge]):
    """What `tell` says of a type, asked once for each."""

    def __init__(self, tell: Callable[[type], Knowledge]) -> None:
        super().__init__()
        self._tell = tell

    def __missing__(self, kind: type) -> Knowledge:
        told = self[kind] = self._tell(kind)
        return told


LEADS_NOWHERE = OfKinds(lambda kind: issubclass(kind, int | float | str | None))
IS_DAEMONS = OfKinds(lambda kind: kind.__module__.startswith("weft.daemons."))
SLOTS = OfKinds(
    lambda kind: [name for each in kind.__mro__ for name in getattr(each, "__slots__", ())]
)


def entries(machine: object) -> int:
    """Entries of all containers that `machine` leads to by attributes and by containers; of bytes,
    one each.
    """
    seen: set[int] = set()
    todo: list[Any] = [machine]
    found = 0
    while todo:
        one = todo.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, CONTAINERS):
            found += len(one)
            inside: Iterable[Any] = [*one, *one.values()] if isinstance(one, dict) else one
        elif isinstance(one, bytes | bytearray):
            found += len(one)
            continue
        elif IS_DAEMONS[type(one)]:
            inside = attributes(one)
        else:
            continue
        todo += [each for each in inside if not LEADS_NOWHERE[type(each)]]
    return found


def attributes(one: object) -> list[Any]:
    """Values of the attributes of `one`, also where it has slots."""
    own = [*vars(one).values()] if hasattr(one, "__dict__") else []
    return own + [getattr(one, name) for name in SLOTS[type(one)] if hasattr(one, name)]


def sizes(simulator: Simulator) -> Mapping[str, int]:
    """What the daemon of each node keeps, by the node's name."""
    name = simulator.topology.naming.name
    return {
        name(number): entries(node.protocol)
        for number, node in simulator._nodes.items()
        if node.protocol
    }


def too_large(before: Mapping[str, int], after: Mapping[str, int]) -> str:
    """The first of those that keep far more than before, in words; "" if there is none."""
    for name, size in after.items():
        if size > TIMES * before.get(name, 0) + ROOM:
            return f"{name} keeps {size} entries, and kept {before.get(name, 0)} before"
    return ""
