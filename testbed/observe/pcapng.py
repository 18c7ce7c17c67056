"""Files of packets, pcapng (draft-ietf-opsawg-pcapng), written as packets come and read back."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

SECTION, INTERFACE, STATISTICS, PACKET = 0x0A0D0D0A, 1, 5, 6
BYTE_ORDER, ETHERNET = 0x1A2B3C4D, 1
IF_NAME, IF_RESOLUTION, EPB_FLAGS, ISB_DROPS, APPLICATION = 2, 9, 2, 5, 4
INBOUND, OUTBOUND = 1, 2


class CapturedPacket(NamedTuple):
    """A packet: of which interface, when in ns since 1970, its bytes as far as they were kept."""

    interface: str
    at_ns: int
    data: bytes


def _block(kind: int, body: bytes) -> bytes:
    size = 12 + len(body)
    return struct.pack("<II", kind, size) + body + struct.pack("<I", size)


def _option(code: int, value: bytes) -> bytes:
    return struct.pack("<HH", code, len(value)) + _padded(value)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)


class Files:
    """The files of one link or node: DIR/NAME.pcapng; where they are limited, NAME.00001.pcapng and
    so on, of which the newest are kept.

    dropped: by interface, packets that the kernel had no room for, told at the end.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        interfaces: Sequence[str],
        snap_bytes: int,
        *,
        most_bytes: int,
        most_files: int,
    ) -> None:
        self._folder, self._name, self._interfaces, self._snap_bytes = (
            folder,
            name,
            interfaces,
            snap_bytes,
        )
        self._most_bytes, self._most_files = most_bytes, most_files
        self._paths: list[Path] = []
        self._number = self._size = 0
        self.dropped = [0] * len(interfaces)
        self._file = self._next()

    def _next(self) -> BinaryIO:
        self._number += 1
        number = f".{self._number:05}" if self._most_bytes else ""
        path = self._folder / f"{self._name}{number}.pcapng"
        fd = os.open(
            path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644
        )
        made = os.fdopen(fd, "wb", buffering=1 << 16)
        self._paths.append(path)
        while self._most_files and len(self._paths) > self._most_files:
            self._paths.pop(0).unlink(missing_ok=True)
        head = _block(
            SECTION,
            struct.pack("<IHHq", BYTE_ORDER, 1, 0, -1)
            + _option(APPLICATION, b"weft")
            + _option(0, b""),
        )
        for name in self._interfaces:
            options = (
                _option(IF_NAME, name.encode()) + _option(IF_RESOLUTION, b"\x09") + _option(0, b"")
            )
            head += _block(INTERFACE, struct.pack("<HHI", ETHERNET, 0, self._snap_bytes) + options)
        made.write(head)
        self._size = len(head)
        return made

    def write(self, interface: int, at_ns: int, data: bytes, length: int, direction: int) -> None:
        """A packet of `length` bytes, of which `data` is kept; at_ns: since 1970; direction:
        INBOUND or OUTBOUND."""
        fixed = struct.pack("<IIIII", interface, at_ns >> 32, at_ns & 0xFFFFFFFF, len(data), length)
        made = _block(
            PACKET,
            fixed
            + _padded(data)
            + _option(EPB_FLAGS, struct.pack("<I", direction))
            + _option(0, b""),
        )
        if self._most_bytes and self._size + len(made) > self._most_bytes:
            self._file.close()
            self._file = self._next()
        self._file.write(made)
        self._size += len(made)

    def flush(self) -> None:
        """Let others read what was written."""
        self._file.flush()

    def close(self, at_ns: int) -> None:
        """Note what was dropped, as of `at_ns` since 1970, and end the file."""
        for interface, dropped in enumerate(self.dropped):
            options = _option(ISB_DROPS, struct.pack("<Q", dropped)) + _option(0, b"")
            fixed = struct.pack("<III", interface, at_ns >> 32, at_ns & 0xFFFFFFFF)
            self._file.write(_block(STATISTICS, fixed + options))
        self._file.close()


def read(path: Path) -> Iterator[CapturedPacket]:
    """The packets of a file as Files writes it; one that is cut short, as of a capture that goes
    on, ends there.

    ValueError if it is no pcapng file of this byte order, its times are not in ns, or its packets'
    blocks are wrong.
    """
    names: list[str] = []
    with open(path, "rb") as file:
        while len(head := file.read(8)) == 8:
            kind, size = struct.unpack("<II", head)
            if kind == SECTION:
                names.clear()
            if (not names and kind not in (SECTION, INTERFACE)) or size < 12:
                raise ValueError(
                    f"{path} is no pcapng file, or one that was written on another kind of machine"
                )
            body = file.read(size - 8)
            # Before its size is believed, which the other byte order makes huge.
            if kind == SECTION and len(body) >= 4 and body[:4] != struct.pack("<I", BYTE_ORDER):
                raise ValueError(
                    f"{path} is no pcapng file, or one that was written on another kind of machine"
                )
            if len(body) < size - 8:
                return
            if kind == INTERFACE:
                options = _options(body[8:-4])
                if options.get(IF_RESOLUTION) != b"\x09":
                    raise ValueError(f"{path}: times are not in ns, as weft capture writes them")
                names.append(options.get(IF_NAME, b"").decode(errors="replace"))
            elif kind == PACKET:
                if len(body) < 24:
                    raise ValueError(f"{path}: the block of a packet is too short")
                interface, high, low, kept, _ = struct.unpack_from("<IIIII", body)
                if interface >= len(names):
                    raise ValueError(
                        f"{path}: a packet of interface {interface}, which is not declared"
                    )
                yield CapturedPacket(names[interface], high << 32 | low, body[20 : 20 + kept])


def _options(data: bytes) -> dict[int, bytes]:
    found, at = {}, 0
    while at + 4 <= len(data):
        code, size = struct.unpack_from("<HH", data, at)
        if not code:
            break
        found[code] = data[at + 4 : at + 4 + size]
        at += 4 + (size + 3) // 4 * 4
    return found
