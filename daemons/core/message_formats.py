"""Formats of messages, each declared once: as the fields of a named tuple, annotated with widths.

    class HopDied(NamedTuple):
        sender: NodeNumber
        target: U32
        visited: Annotated[tuple[int, ...], Repeat(NODE, "u8", least=1, most=64)]

    HOP_DIED = Format(5, "hop_died", HopDied)

The codec follows from the declaration, as do dissection, scapy's layers, Wireshark's dissector and
the reference pages.  On the wire, numbers come first, then the counts of parts of variable length,
these parts, and the numbers declared after them, whose values are not limited.  Numbers are
big-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf
from typing import Annotated, Any, Generic, TypeVar, get_type_hints

from weft.topologies.core.address import dotted

MAGIC, VERSION = 0x77, 1
HEADER = struct.Struct(">BBB")  # magic, version, type of message
CODES = {"u8": "B", "u16": "H", "u32": "I", "u64": "Q", "i32": "i", "address": "I"}
BYTES = {kind: struct.calcsize(f">{code}") for kind, code in CODES.items()}


class MalformedMessage(ValueError):
    """Error: a payload that is no message."""


@dataclass(frozen=True)
class MessageField:
    """Number of a kind: u8, u16, u32, u64, i32, or address, an IPv4 address.

    least, most: range of valid values; None: as the kind.
    is_node: True for the number of a node, which must exist.
    """

    kind: str
    name: str = ""
    least: int | None = None
    most: int | None = None
    is_node: bool = False

    @property
    def is_limited(self) -> bool:
        """True if some values of the kind are invalid."""
        return self.is_node or self.limits() != (-inf, inf)

    def limits(self) -> tuple[float, float]:
        """Return the range of valid values in any network."""
        least = -inf if self.least is None else self.least
        return least, inf if self.most is None else self.most

    def check(self, values: Iterable[int], nodes: int) -> None:
        """Raise MalformedMessage unless `values` are valid in a network of `nodes` nodes."""
        least, most = self.limits()
        for value in values:
            if self.is_node and value >= nodes:
                raise MalformedMessage(f"there is no node {value}, only 0 to {nodes - 1}")
            if not least <= value <= most:
                raise MalformedMessage(f"{self.name} must be {least} to {most}, got {value}")


@dataclass(frozen=True)
class Repeat:
    """Entries; their number, of the kind `counted`, stands behind the numbers of the message.

    entry: a number, or a named tuple with annotated fields.
    least, most: range of the number of entries.
    packed: True if the value is the bytes of the entries.
    """

    entry: MessageField | type[Any]
    counted: str
    name: str = ""
    least: int | None = None
    most: int | None = None
    packed: bool = False

    @property
    def count(self) -> str:
        """Name of the number of entries."""
        return f"{self.name}_count"

    @property
    def counter(self) -> MessageField:
        """Field of the number of entries."""
        return MessageField(self.counted, self.count, self.least, self.most)

    @property
    def fields(self) -> tuple[Part, ...]:
        """Parts of an entry."""
        return (self.entry,) if isinstance(self.entry, MessageField) else self._layout.parts

    @cached_property
    def _layout(self) -> Layout:
        assert isinstance(self.entry, type)
        return Layout(self.entry)

    @cached_property
    def _entry_bytes(self) -> int:
        return self._layout.head.size

    @cached_property
    def _pack_entry(self) -> Callable[..., bytes]:
        return self._layout.packer()

    def pack(self, value: Any) -> tuple[int, bytes]:
        """Return the number of entries in `value`, and their bytes."""
        if self.packed:
            return len(value) // self._entry_bytes, value
        if isinstance(self.entry, MessageField):
            return len(value), struct.pack(f">{len(value)}{CODES[self.entry.kind]}", *value)
        return len(value), b"".join([self._pack_entry(*entry) for entry in value])

    def take(self, data: bytes, begin: int, count: int, nodes: int) -> tuple[Any, int]:
        """Return the value in `data` from `begin` on, and its end."""
        if isinstance(self.entry, MessageField):
            kind = self.entry.kind
            values = struct.unpack_from(f">{count}{CODES[kind]}", data, begin)
            self.entry.check(values, nodes)
            return values, begin + count * BYTES[kind]
        entries = self._layout
        if self.packed:
            end = begin + count * entries.head.size
            return _cut(data, begin, end), end
        records = []
        for _ in range(count):
            record, begin = entries.take(data, begin, nodes)
            records.append(record)
        return tuple(records), begin


@dataclass(frozen=True)
class Bits:
    """Bits in whole bytes; the number before, called `count`, says how many."""

    count: str
    name: str = ""

    def pack(self, value: int, count: int) -> bytes:
        """Return `value` as bytes; OverflowError if it has more than `count` bits."""
        return value.to_bytes(-(-count // 8), "big")

    def take(self, data: bytes, begin: int, count: int) -> tuple[int, int]:
        """Return the value in `data` from `begin` on, and its end."""
        end = begin + -(-count // 8)
        value = int.from_bytes(_cut(data, begin, end), "big")
        if value >> count:
            raise MalformedMessage(f"{self.name} has more than {count} bits")
        return value, end


Part = MessageField | Repeat | Bits
MessageRecord = TypeVar("MessageRecord", bound=tuple[Any, ...])
NODE = MessageField("u32", "node", is_node=True)
U8 = Annotated[int, MessageField("u8")]
U16 = Annotated[int, MessageField("u16")]
U32 = Annotated[int, MessageField("u32")]
U64 = Annotated[int, MessageField("u64")]
NodeNumber = Annotated[int, NODE]


def _cut(data: bytes, begin: int, end: int) -> bytes:
    if end > len(data):
        raise MalformedMessage(f"{len(data)} bytes are too few")
    return data[begin:end]


def fields(text: str) -> tuple[MessageField, ...]:
    """Return the fields in `text`: name:kind name:kind."""
    words = [word.split(":") for word in text.split()]
    return tuple(MessageField(kind, name) for name, kind in words)


class Layout:
    """Parts of a named tuple on the wire.

    parts: all of them, with the counts, in the order of the wire.
    head: the numbers and counts before the first part of variable length.
    """

    def __init__(self, record: type[Any], body: type[Any] | None = None, start: str = "") -> None:
        self._record = record
        self._skipped = len(start)
        self._groups: list[tuple[int, int, type[Any]]] = []  # position, length, and type of a value
        leaves = list(self._leaves(record, body, 0))
        variable = [part for part in leaves if not isinstance(part, MessageField)]
        self._first = leaves.index(variable[0]) if variable else len(leaves)
        self._variable = variable
        numbers = _numbers(leaves[: self._first])
        numbers += [part.counter for part in variable if isinstance(part, Repeat)]
        tail = _numbers(leaves[self._first + len(variable) :])
        self.parts = (*numbers, *variable, *tail)
        self.head = _struct(start, numbers)
        self._tail = _struct("", tail)
        self._limits = [
            (index, *field.limits(), field.is_node, field)
            for index, field in enumerate(numbers)
            if field.is_limited
        ]

    def _leaves(self, record: type[Any], body: type[Any] | None, position: int) -> Iterator[Part]:
        """Yield the parts of a named tuple, those within its values one by one, without counts."""
        hints = get_type_hints(record, include_extras=True)
        for name in record._fields:
            hint: Any = hints[name] if name != "body" else body
            (spec,) = getattr(hint, "__metadata__", (hint,))
            if isinstance(spec, Part):
                yield replace(spec, name=name)
                position += 1
                continue
            inner = spec if isinstance(spec, tuple) else ()
            kind = hint.__origin__ if inner else spec
            self._groups.append((position, len(kind._fields), kind))
            yield from inner or self._leaves(kind, None, position)
            position += len(kind._fields)

    def packer(self) -> Callable[..., bytes]:
        """Return the fastest function that packs the values of a record, those of `start` first.

        Most records need no loop over their parts: numbers, and at most one sequence behind them.
        It raises struct.error if a value does not fit.
        """
        pack_head = self.head.pack
        if not self._variable and not self._groups:
            return pack_head
        part = self._variable[0] if self._variable else None
        if (
            not isinstance(part, Repeat)
            or len(self._variable) > 1
            or self._groups
            or self._tail.size
        ):
            return self._pack
        pack_entries = part.pack

        def pack(*values: Any) -> bytes:
            count, chunk = pack_entries(values[-1])
            return pack_head(*values[:-1], count) + chunk

        return pack

    def _pack(self, *values: Any) -> bytes:
        for position, _, _ in self._groups:
            begin = self._skipped + position
            values = (*values[:begin], *values[begin], *values[begin + 1 :])
        first = self._skipped + self._first
        counts = []
        chunks = [b""]
        for index, part in enumerate(self._variable, first):
            if isinstance(part, Repeat):
                count, chunk = part.pack(values[index])
                counts.append(count)
            else:
                chunk = part.pack(values[index], values[first - 1])
            chunks.append(chunk)
        chunks[0] = self.head.pack(*values[:first], *counts)
        chunks.append(self._tail.pack(*values[first + len(self._variable) :]))
        return b"".join(chunks)

    def take(self, data: bytes, begin: int, nodes: int) -> tuple[Any, int]:
        """Return the record in `data` from `begin` on, and its end.

        Args:
            data: a payload.
            begin: offset of the record.
            nodes: number of nodes of the network.

        Raises:
            MalformedMessage: a value is invalid, or `data` too short.
            struct.error: `data` is too short.
        """
        numbers = self.head.unpack_from(data, begin)
        end = begin + self.head.size
        skipped = self._skipped
        for index, least, most, is_node, field in self._limits:
            value = numbers[skipped + index]
            if not least <= value <= most or (is_node and value >= nodes):
                field.check([value], nodes)
        behind = skipped + self._first
        values = list(numbers[skipped:behind])
        for part in self._variable:
            if isinstance(part, Repeat):
                value, end = part.take(data, end, numbers[behind], nodes)
                behind += 1
            else:
                value, end = part.take(data, end, values[-1])
            values.append(value)
        if self._tail.size:
            values += self._tail.unpack_from(data, end)
            end += self._tail.size
        return self._record._make(self._grouped(values) if self._groups else values), end

    def _grouped(self, values: list[Any]) -> list[Any]:
        """Return `values` with those of inner named tuples in one value each."""
        for position, length, kind in reversed(self._groups):
            values[position : position + length] = [kind(*values[position : position + length])]
        return values


def _numbers(parts: Iterable[Part]) -> list[MessageField]:
    return [part for part in parts if isinstance(part, MessageField)]


def _struct(start: str, numbers: Sequence[MessageField]) -> struct.Struct:
    return struct.Struct(">" + start + "".join(CODES[field.kind] for field in numbers))


class Format(Generic[MessageRecord]):
    """Type of message: number, name, and codec.

    Args:
        kind: number of the type.
        name: name of the type, for people.
        record: named tuple with annotated fields.
        body: type of its field `body`, if it has one.

    Attributes:
        parts: parts of the message behind the header.
        head: header and numbers before the first part of variable length.
    """

    def __init__(
        self, kind: int, name: str, record: type[MessageRecord], body: type[Any] | None = None
    ) -> None:
        self.kind = kind
        self.name = name
        self.record = record
        self._layout = Layout(record, body, "BBB")
        self._pack = self._layout.packer()
        self.parts = self._layout.parts
        self.head = self._layout.head

    def encode(self, message: MessageRecord) -> bytes:
        """Return `message` as bytes; struct.error if a value does not fit its field."""
        return self._pack(MAGIC, VERSION, self.kind, *message)

    def decode(self, payload: bytes, nodes: int) -> MessageRecord:
        """Return the message in `payload`; MalformedMessage if it is none."""
        message, end = self._layout.take(payload, 0, nodes)
        if end != len(payload):
            raise MalformedMessage(f"{len(payload)} bytes, a {self.name} like this has {end}")
        record: MessageRecord = message
        return record


def decoded(payload: bytes, formats: Mapping[int, Format[Any]], nodes: int = 1 << 32) -> Any:
    """Return the message in `payload`, by the format of its type; None without a format.

    Args:
        payload: of a UDP packet.
        formats: formats by number of the type.
        nodes: number of nodes of the network.

    Raises:
        MalformedMessage: another header, a message that is cut short, or invalid values.
    """
    try:
        magic, version, kind = HEADER.unpack_from(payload)
        if (magic, version) != (MAGIC, VERSION):
            raise MalformedMessage(
                f"begins with {payload[:2].hex()}, expected {MAGIC:02x}{VERSION:02x}"
            )
        return formats[kind].decode(payload, nodes) if kind in formats else None
    except struct.error as error:
        raise MalformedMessage(f"{len(payload)} bytes: {error}") from None


def take_apart(parts: Sequence[Part], data: bytes, offset: int) -> tuple[dict[str, Any], int]:
    """Return the values of `parts` in `data` from `offset` on, by name, and the end offset.

    Raises:
        MalformedMessage: `data` is cut short.
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
            raise MalformedMessage(f"{part.name}: {len(data)} bytes are too few")
        kind = part.kind if isinstance(part, MessageField) else "bits"
        number = int.from_bytes(data[offset : offset + size], "big", signed=kind == "i32")
        values[part.name] = dotted(number) if kind == "address" else number
        offset += size
    return values, offset


def flat(parts: Sequence[Part]) -> Mapping[str, str]:
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
