"""Layouts of the C structs of integers in a compiled BPF program, out of its BTF.

The format is the kernel's Documentation/bpf/btf.rst; clang writes it into the section .BTF of the
object file.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

SECTION = b".BTF"
# ELF64 header: offset, size and number of section headers, and the number of that with names
ELF = struct.Struct("=40xQ10xHHH")
SECTION_HEADER = struct.Struct("=II16xQQ")
HEADER = struct.Struct("=HBBIIIII")
MAGIC = 0xEB9F
TYPE = struct.Struct("=III")  # name, info, size or type
MEMBER = struct.Struct("=III")  # name, type, offset in bits
ARRAY = struct.Struct("=III")  # type of an element, type of the index, number of elements
INT_KIND, ARRAY_KIND, STRUCT_KIND = 1, 3, 4
TRANSPARENT = frozenset({8, 9, 10, 11, 18})  # typedef, volatile, const, restrict, type tag
FIXED_BYTES = {INT_KIND: 4, ARRAY_KIND: 12, 14: 4, 17: 4}  # bytes that follow a type, by kind
# the same, for each member
BYTES_EACH = {STRUCT_KIND: 12, 5: 12, 6: 8, 13: 8, 15: 12, 19: 12}
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
    """Return every struct of integers in an object file, by name; raise ValueError without BTF."""
    types, strings = _types(section(path.read_bytes(), SECTION, path))
    structs = {}
    for kind, name, body, size in types:
        if kind != STRUCT_KIND:
            continue
        fields = {}
        for name_offset, type_, bits in MEMBER.iter_unpack(body):
            integers = _integers(types, type_)
            if integers:
                fields[_text(strings, name_offset)] = StructField(
                    bits // 8, struct.calcsize(f"={integers}"), integers
                )
        if name and len(fields) == len(body) // MEMBER.size:
            structs[_text(strings, name)] = StructLayout(size, fields)
    return structs


def section(elf: bytes, section_name: bytes, path: Path) -> bytes:
    """Return the contents of a section of the ELF64 file `path`; ValueError if it has none."""
    headers_at, size, count, names = ELF.unpack_from(elf)
    headers = [SECTION_HEADER.unpack_from(elf, headers_at + i * size) for i in range(count)]
    names_at = headers[names][2]
    for name, _, offset, length in headers:
        if elf[names_at + name : elf.index(b"\0", names_at + name)] == section_name:
            return elf[offset : offset + length]
    raise ValueError(f"{path}: no section {section_name.decode()}; `make bpf` compiles it with one")


# kind, offset of the name, bytes that follow, and size or other type
Types = list[tuple[int, int, bytes, int]]


def _types(btf: bytes) -> tuple[Types, bytes]:
    """Return every type, counted from 1, and the strings."""
    magic, _, _, header, types_at, types_size, strings_at, strings_size = HEADER.unpack_from(btf)
    if magic != MAGIC:
        raise ValueError(f"BTF begins with {magic:#x}, expected {MAGIC:#x}: another byte order?")
    types: Types = [(0, 0, b"", 0)]
    offset, end = header + types_at, header + types_at + types_size
    while offset < end:
        name, info, size = TYPE.unpack_from(btf, offset)
        kind, members = info >> 24 & 0x1F, info & 0xFFFF
        offset += TYPE.size
        length = FIXED_BYTES.get(kind, 0) + BYTES_EACH.get(kind, 0) * members
        types.append((kind, name, btf[offset : offset + length], size))
        offset += length
    return types, btf[header + strings_at : header + strings_at + strings_size]


def _integers(types: Types, number: int) -> str:
    """Return the integers of a type as a format of `struct`.

    It is empty for other types, and for structs with padding.
    """
    kind, _, body, size = types[number]
    if kind in TRANSPARENT:
        return _integers(types, size)
    if kind == INT_KIND:
        return CODES.get(size, "")
    if kind == ARRAY_KIND:
        element, _, count = ARRAY.unpack(body)
        return _integers(types, element) * int(count)
    if kind == STRUCT_KIND:
        parts = [_integers(types, type_) for _, type_, _ in MEMBER.iter_unpack(body)]
        whole = "".join(parts)
        return whole if all(parts) and struct.calcsize(f"={whole}") == size else ""
    return ""


def _text(strings: bytes, start: int) -> str:
    return strings[start : strings.index(b"\0", start)].decode()
