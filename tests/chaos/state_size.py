"""Size of the state machines of a network: entries of their containers, and bytes."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from weft.daemons.simulator.simulator import Simulator

# a daemon may keep TIMES its entries before the campaign, and MARGIN more
TIMES, MARGIN = 2, 2000
CONTAINERS = (dict, list, set, frozenset, tuple, deque)
LEAVES = (int, float, str, type(None))


@cache
def slots(kind: type) -> list[str]:
    """Return the slots of a type and of its bases."""
    return [name for base in kind.__mro__ for name in getattr(base, "__slots__", ())]


def entries(machine: object) -> int:
    """Return the entries of all containers that `machine` refers to; each byte is an entry."""
    seen: set[int] = set()
    unread: list[Any] = [machine]
    count = 0
    while unread:
        value = unread.pop()
        if id(value) in seen or isinstance(value, LEAVES):
            continue
        seen.add(id(value))
        if isinstance(value, bytes | bytearray):
            count += len(value)
        elif isinstance(value, CONTAINERS):
            count += len(value)
            unread += [*value, *value.values()] if isinstance(value, dict) else value
        elif type(value).__module__.startswith("weft.daemons."):
            unread += attributes(value)
    return count


def attributes(value: object) -> Iterable[Any]:
    """Yield the values of all attributes, also of those in slots."""
    if hasattr(value, "__dict__"):
        yield from vars(value).values()
    yield from (getattr(value, name) for name in slots(type(value)) if hasattr(value, name))


def sizes(simulator: Simulator) -> Mapping[str, int]:
    """Return the entries of each daemon, by the name of its node."""
    name = simulator.topology.naming.name
    return {
        name(number): entries(node.protocol)
        for number, node in simulator._nodes.items()
        if node.protocol
    }


def excess(before: Mapping[str, int], after: Mapping[str, int]) -> str:
    """Return in words the first daemon that keeps far more than before; "" if none does."""
    for name, size in after.items():
        if size > TIMES * before.get(name, 0) + MARGIN:
            return f"{name} keeps {size} entries, and kept {before.get(name, 0)} before"
    return ""
