"""Layouts of the C structs of integers in a compiled BPF program, out of its BTF.

The format is the kernel's Documentation/bpf/btf.rst.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from weft.testbed.linux import compiled, libbpf

TYPE = struct.Struct("=III")  # name, info, size or type
MEMBER = struct.Struct("=III")  # name, type, offset in bits
ARRAY = struct.Struct("=III")  # type of an element, type of the index, number of elements
INT_KIND, ARRAY_KIND, STRUCT_KIND = 1, 3, 4
CODES = {1: "B", 2: "H", 4: "I", 8: "Q"}  # formats of `struct`, by size


class StructField(NamedTuple):
    """A field of a struct: offset and size in bytes, and its integers as a format of `struct`."""

    offset: int
    size: int
    integers: str


class StructLayout:
    """A struct of integers and of arrays of them.

    size: in bytes.
    fields: by name, in the order of the source.
    """

    def __init__(self, size: int, fields: Mapping[str, StructField]) -> None:
        self.size = size
        self.fields = fields

    def pack(self, values: Mapping[str, int | Sequence[int]]) -> bytes:
        """Return the struct with these values, other fields 0.

        Raises:
            ValueError: there is no such field.
        """
        packed = bytearray(self.size)
        for name, value in values.items():
            if name not in self.fields:
                raise ValueError(f"the struct has no field {name}, it has {', '.join(self.fields)}")
            field = self.fields[name]
            numbers = (value,) if isinstance(value, int) else value
            struct.pack_into(f"={field.integers}", packed, field.offset, *numbers)
        return bytes(packed)

    def unpack(self, packed: bytes) -> dict[str, tuple[int, ...]]:
        """Return the integers of each field."""
        return {
            name: struct.unpack_from(f"={field.integers}", packed, field.offset)
            for name, field in self.fields.items()
        }


@lru_cache(maxsize=4)
def layouts(path: Path) -> Mapping[str, StructLayout]:
    """Return every struct of integers in an object file, by name.

    Raises:
        NotCompiledError: the file is missing or older than its sources.
        BpfError: it has no BTF.
    """
    compiled.require(path)
    with closing(Types(path)) as types:
        structs = {}
        for number in range(1, len(types)):
            kind, name, body, size = types.read(number)
            if kind != STRUCT_KIND or not name:
                continue
            fields = {}
            for name_offset, type_, bits in MEMBER.iter_unpack(body):
                if integers := types.integers(type_):
                    length = struct.calcsize(f"={integers}")
                    fields[types.text(name_offset)] = StructField(bits // 8, length, integers)
            if len(fields) == len(body) // MEMBER.size:
                structs[types.text(name)] = StructLayout(size, fields)
        return structs


class BtfType(NamedTuple):
    """A type: its kind, the offset of its name, its members, and its size."""

    kind: int
    name: int
    body: bytes
    size: int


class Types:
    """The types of an object file, counted from 1, until close()."""

    def __init__(self, path: Path) -> None:
        """Read the types; raise BpfError if there are none."""
        with libbpf.listening() as messages:
            self._btf = libbpf.library().btf__parse(os.fsencode(path), None)
            if not self._btf:
                raise libbpf.error(f"{path}: no BTF; `make bpf` compiles it with some", messages)

    def close(self) -> None:
        libbpf.library().btf__free(self._btf)

    def __len__(self) -> int:
        return int(libbpf.library().btf__type_cnt(self._btf))

    def text(self, offset: int) -> str:
        """Return the name at an offset of the strings."""
        name: bytes = libbpf.library().btf__name_by_offset(self._btf, offset)
        return name.decode()

    def read(self, number: int) -> BtfType:
        """Return a type; it has a body if it is an array or a struct."""
        place = libbpf.library().btf__type_by_id(self._btf, number)
        name, info, size = TYPE.unpack(ctypes.string_at(place, TYPE.size))
        kind = info >> 24 & 0x1F
        length = {ARRAY_KIND: ARRAY.size, STRUCT_KIND: MEMBER.size * (info & 0xFFFF)}.get(kind, 0)
        return BtfType(kind, name, ctypes.string_at(place + TYPE.size, length), size)

    def integers(self, number: int) -> str:
        """Return the integers of a type as a format of `struct`.

        It is empty for other types, and for structs with padding.
        """
        kind, _, body, size = self.read(libbpf.library().btf__resolve_type(self._btf, number))
        if kind == INT_KIND:
            return CODES.get(size, "")
        if kind == ARRAY_KIND:
            element, _, count = ARRAY.unpack(body)
            return self.integers(element) * int(count)
        if kind == STRUCT_KIND:
            parts = [self.integers(type_) for _, type_, _ in MEMBER.iter_unpack(body)]
            whole = "".join(parts)
            return whole if all(parts) and struct.calcsize(f"={whole}") == size else ""
        return ""
