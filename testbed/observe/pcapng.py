"""Files of packets in pcapng (draft-ietf-opsawg-pcapng), and the messages of daemons in them."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from weft.daemons.core.message_formats import MalformedMessage
from weft.daemons.core.message_registry import dissect
from weft.testbed.linux.tc_filters import CONTROL_PORT
from weft.topologies.core.address import dotted

SECTION, INTERFACE, STATISTICS, PACKET = 0x0A0D0D0A, 1, 5, 6
BYTE_ORDER, ETHERNET = 0x1A2B3C4D, 1
IF_NAME, IF_RESOLUTION, EPB_FLAGS, ISB_DROPS, APPLICATION = 2, 9, 2, 5, 4
INBOUND, OUTBOUND = 1, 2
MOST_BLOCK_BYTES = 1 << 24  # a longer one would be read into memory for nothing
NANOSECONDS = b"\x09"  # resolution of times
IPV4, UDP, ETHERNET_BYTES, UDP_BYTES = 0x0800, 17, 14, 8


class CapturedPacket(NamedTuple):
    """A packet.

    time_ns: since 1970.
    data: the bytes that were kept.
    length: of the packet.
    direction: INBOUND or OUTBOUND; 0: unknown.
    """

    interface: str
    time_ns: int
    data: bytes
    length: int
    direction: int


def _block(kind: int, body: bytes) -> bytes:
    size = 12 + len(body)
    return struct.pack("<II", kind, size) + body + struct.pack("<I", size)


def _option(code: int, value: bytes) -> bytes:
    return struct.pack("<HH", code, len(value)) + _padded(value)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)


END_OF_OPTIONS = _option(0, b"")


class Files:
    """The files of one link or node: DIR/NAME.pcapng.

    If their size is limited, they are the newest of NAME.00001.pcapng, NAME.00002.pcapng, ...

    dropped: packets that the kernel dropped, by interface; written at the end.
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
        self._folder = folder
        self._name = name
        self._interfaces = interfaces
        self._snap_bytes = snap_bytes
        self._most_bytes = most_bytes
        self._most_files = most_files
        self._paths: list[Path] = []
        self._number = 0
        self._size = 0
        self.dropped = [0] * len(interfaces)
        self._file = self._next()

    def _next(self) -> BinaryIO:
        """Start another file; remove the oldest beyond the limit."""
        self._number += 1
        number = f".{self._number:05}" if self._most_bytes else ""
        path = self._folder / f"{self._name}{number}.pcapng"
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
        file = os.fdopen(os.open(path, flags, 0o644), "wb", buffering=1 << 16)
        self._paths.append(path)
        while self._most_files and len(self._paths) > self._most_files:
            self._paths.pop(0).unlink(missing_ok=True)
        header = self._header()
        file.write(header)
        file.flush()  # a reader takes a file without a header for no capture
        self._size = len(header)
        return file

    def _header(self) -> bytes:
        section = struct.pack("<IHHq", BYTE_ORDER, 1, 0, -1)
        header = _block(SECTION, section + _option(APPLICATION, b"weft") + END_OF_OPTIONS)
        interface = struct.pack("<HHI", ETHERNET, 0, self._snap_bytes)
        resolution = _option(IF_RESOLUTION, NANOSECONDS)
        for name in self._interfaces:
            options = _option(IF_NAME, name.encode()) + resolution + END_OF_OPTIONS
            header += _block(INTERFACE, interface + options)
        return header

    def write(self, interface: int, time_ns: int, data: bytes, length: int, direction: int) -> None:
        """Write a packet.

        Args:
            interface: number in `interfaces`.
            time_ns: since 1970.
            data: the bytes that are kept.
            length: of the packet.
            direction: INBOUND or OUTBOUND.
        """
        fixed = struct.pack("<III", interface, *_halves(time_ns))
        fixed += struct.pack("<II", len(data), length)
        options = _option(EPB_FLAGS, struct.pack("<I", direction)) + END_OF_OPTIONS
        block = _block(PACKET, fixed + _padded(data) + options)
        if self._most_bytes and self._size + len(block) > self._most_bytes:
            self._file.close()
            self._file = self._next()
        self._file.write(block)
        self._size += len(block)

    def flush(self) -> None:
        """Make written packets visible to readers."""
        self._file.flush()

    def close(self, end_ns: int) -> None:
        """Write the numbers of dropped packets, as of `end_ns` since 1970, and close the file."""
        for interface, dropped in enumerate(self.dropped):
            options = _option(ISB_DROPS, struct.pack("<Q", dropped)) + END_OF_OPTIONS
            fixed = struct.pack("<III", interface, *_halves(end_ns))
            self._file.write(_block(STATISTICS, fixed + options))
        self._file.close()


def _halves(time_ns: int) -> tuple[int, int]:
    return time_ns >> 32, time_ns & 0xFFFFFFFF


def read(path: Path) -> Iterator[CapturedPacket]:
    """Yield the packets of a file that Files wrote.

    A truncated block, as in a capture that still runs, ends them.

    Raises:
        ValueError: no pcapng file of this byte order, times not in ns, or a malformed block.
    """
    names: list[str] = []
    with open(path, "rb") as file:
        for kind, body in _blocks(path, file):
            if kind == SECTION:
                names.clear()
            elif kind == INTERFACE:
                options = _options(body[8:-4])
                if options.get(IF_RESOLUTION) != NANOSECONDS:
                    raise ValueError(f"{path}: times are not in ns, as weft capture writes them")
                names.append(options.get(IF_NAME, b"").decode(errors="replace"))
            elif not names:
                raise _no_capture(path)
            elif kind == PACKET:
                yield _packet(path, body, names)


def _blocks(path: Path, file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yield type and body of each block; the file must begin with a section or an interface."""
    first = True
    while len(header := file.read(8)) == 8 or first:
        if len(header) < 8:
            raise _no_capture(path)
        kind, size = struct.unpack("<II", header)
        if size < 12 or (first and kind not in (SECTION, INTERFACE)):
            raise _no_capture(path)
        first = False
        body = file.read(min(size - 8, MOST_BLOCK_BYTES))
        # checked before the size: the other byte order makes it huge
        if kind == SECTION and len(body) >= 4 and body[:4] != struct.pack("<I", BYTE_ORDER):
            raise _no_capture(path)
        if size - 8 > MOST_BLOCK_BYTES:
            raise ValueError(
                f"{path}: a block of {size} bytes; at most {MOST_BLOCK_BYTES} are read"
            )
        if len(body) < size - 8:
            return
        yield kind, body


def _no_capture(path: Path) -> ValueError:
    return ValueError(
        f"{path} is no pcapng file, or one that was written on another kind of machine"
    )


def _packet(path: Path, body: bytes, names: Sequence[str]) -> CapturedPacket:
    if len(body) < 24:
        raise ValueError(f"{path}: the block of a packet is too short")
    interface, high, low, size, length = struct.unpack_from("<IIIII", body)
    if interface >= len(names):
        raise ValueError(f"{path}: a packet of interface {interface}, which is not declared")
    flags = _options(body[20 + size + -size % 4 : -4]).get(EPB_FLAGS, bytes(4))
    direction = int.from_bytes(flags, "little") & (INBOUND | OUTBOUND)
    data = body[20 : 20 + size]
    return CapturedPacket(names[interface], high << 32 | low, data, length, direction)


def _options(data: bytes) -> dict[int, bytes]:
    options = {}
    start = 0
    while start + 4 <= len(data):
        code, size = struct.unpack_from("<HH", data, start)
        if not code:
            break
        options[code] = data[start + 4 : start + 4 + size]
        start += 4 + (size + 3) // 4 * 4
    return options


def control_payload(frame: bytes) -> tuple[str, bytes] | None:
    """Return the sender's address and the UDP payload of an Ethernet frame to the daemons' port.

    None for any other frame.
    """
    if (
        len(frame) < ETHERNET_BYTES + 20
        or int.from_bytes(frame[12:14], "big") != IPV4
        or frame[23] != UDP
    ):
        return None
    start = ETHERNET_BYTES + 4 * (frame[14] & 15)
    if int.from_bytes(frame[start + 2 : start + 4], "big") != CONTROL_PORT:
        return None
    end = start + int.from_bytes(frame[start + 4 : start + 6], "big")
    return dotted(int.from_bytes(frame[26:30], "big")), frame[start + UDP_BYTES : end]


def messages(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the control messages of a capture in order.

    Keys: `at_s` since 1970, `interface`, `from`, and those of dissect(), or `error`.

    Raises:
        ValueError: the file is no capture.
    """
    for packet in read(path):
        control = control_payload(packet.data)
        if control is None:
            continue
        address, payload = control
        header = {"at_s": packet.time_ns / 1e9, "interface": packet.interface, "from": address}
        try:
            yield header | dissect(payload)
        except MalformedMessage as error:
            yield header | {"error": str(error)}
