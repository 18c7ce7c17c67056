"""Formats of messages as data, and a parser that follows them.

The codecs of daemons (daemons/core/wire.py, and `messages` of a scheme's room) are written by hand
for speed; a test compares both.  Numbers are big-endian.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from weft.topologies.core.address import dotted

BYTES = {"u8": 1, "u16": 2, "u32": 4, "u64": 8, "i32": 4, "address": 4}


class Malformed(ValueError):
    """Error: bytes that do not match a format."""


@dataclass(frozen=True, slots=True)
class MessageField:
    """Number of a kind: u8, u16, u32, u64, i32, or address, an IPv4 address."""

    name: str
    kind: str


@dataclass(frozen=True, slots=True)
class Repeat:
    """Entries of `fields`; an earlier field, called `count`, has their number."""

    name: str
    count: str
    fields: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Bits:
    """Bits in whole bytes; an earlier field, called `count`, has their number."""

    name: str
    count: str


Part = MessageField | Repeat | Bits


@dataclass(frozen=True, slots=True)
class Format:
    """Type of message: number, name, and the parts after magic, version and type."""

    kind: int
    name: str
    parts: tuple[Part, ...]


def fields(text: str) -> tuple[MessageField, ...]:
    """Return the fields in `text`: name:kind name:kind."""
    return tuple(MessageField(*word.split(":")) for word in text.split())


def take_apart(parts: tuple[Part, ...], data: bytes, offset: int) -> tuple[dict[str, Any], int]:
    """Return the values of `parts` in `data` from `offset` on, by name, and the end offset.

    Raises:
        Malformed: `data` is cut short.
    """
    values: dict[str, Any] = {}
    for part in parts:
        if isinstance(part, Repeat):
            entries = []
            for _ in range(values[part.count]):
                entry, offset = take_apart(part.fields, data, offset)
                entries.append(entry)
            values[part.name] = entries
            continue
        size = -(-values[part.count] // 8) if isinstance(part, Bits) else BYTES[part.kind]
        if offset + size > len(data):
            raise Malformed(f"{part.name}: {len(data)} bytes are too few")
        kind = part.kind if isinstance(part, MessageField) else "bits"
        number = int.from_bytes(data[offset : offset + size], "big", signed=kind == "i32")
        values[part.name] = dotted(number) if kind == "address" else number
        offset += size
    return values, offset


def flat(parts: tuple[Part, ...]) -> Mapping[str, str]:
    """Return the kind of every field by path, advertisements.links.port; also entries and bits."""
    kinds: dict[str, str] = {}
    for part in parts:
        if isinstance(part, MessageField):
            kinds[part.name] = part.kind
        elif isinstance(part, Bits):
            kinds[part.name] = "bits"
        else:
            kinds[part.name] = "entries"
            kinds |= {f"{part.name}.{name}": kind for name, kind in flat(part.fields).items()}
    return kinds
