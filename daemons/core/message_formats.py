"""What a message is made of, as data; and taking one apart by that.

The codecs of the schemes (daemons/core/wire.py, and `messages` of a scheme's room) stay by hand,
since they are hot; a test holds both equal.  Numbers are big-endian.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from weft.topologies.core.address import dotted

BYTES = {"u8": 1, "u16": 2, "u32": 4, "u64": 8, "i32": 4, "address": 4}


class Malformed(ValueError):
    """Bytes that are not as described."""


@dataclass(frozen=True, slots=True)
class MessageField:
    """One number.  kind: u8, u16, u32, u64, i32, or address, an IPv4 address."""

    name: str
    kind: str


@dataclass(frozen=True, slots=True)
class Repeat:
    """Entries of these `fields`, as many as the field called `count` before it says."""

    name: str
    count: str
    fields: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Bits:
    """A number of as many bits as the field called `count` before it says, in whole bytes."""

    name: str
    count: str


Part = MessageField | Repeat | Bits


@dataclass(frozen=True, slots=True)
class Format:
    """A type of message: its number, its name, what follows magic, version and type."""

    kind: int
    name: str
    parts: tuple[Part, ...]


def fields(text: str) -> tuple[MessageField, ...]:
    """Fields as words: name:kind name:kind."""
    return tuple(MessageField(*word.split(":")) for word in text.split())


def take_apart(parts: tuple[Part, ...], data: bytes, at: int) -> tuple[dict[str, Any], int]:
    """The values of `parts` in `data` from `at` on, by name, and where they end; Malformed if it is
    cut short."""
    found: dict[str, Any] = {}
    for part in parts:
        if isinstance(part, Repeat):
            entries = []
            for _ in range(found[part.count]):
                entry, at = take_apart(part.fields, data, at)
                entries.append(entry)
            found[part.name] = entries
            continue
        size = -(-found[part.count] // 8) if isinstance(part, Bits) else BYTES[part.kind]
        if at + size > len(data):
            raise Malformed(f"{part.name}: {len(data)} bytes are too few")
        number = int.from_bytes(
            data[at : at + size],
            "big",
            signed=isinstance(part, MessageField) and part.kind == "i32",
        )
        is_address = isinstance(part, MessageField) and part.kind == "address"
        found[part.name] = dotted(number) if is_address else number
        at += size
    return found, at


def flat(parts: tuple[Part, ...]) -> Mapping[str, str]:
    """The kind of every field, by path: advertisements.links.port; entries and bits as such."""
    found: dict[str, str] = {}
    for part in parts:
        if isinstance(part, MessageField):
            found[part.name] = part.kind
        elif isinstance(part, Bits):
            found[part.name] = "bits"
        else:
            found[part.name] = "entries"
            found |= {f"{part.name}.{name}": kind for name, kind in flat(part.fields).items()}
    return found
