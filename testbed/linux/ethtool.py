"""Offloads turned off and read back, so that switches see single packets."""

from __future__ import annotations

import ctypes
import fcntl
import socket
import struct

SIOCETHTOOL = 0x8946
GSTRINGS, GFEATURES, SFEATURES, GSSET_INFO = 0x1B, 0x3A, 0x3B, 0x37
ETH_SS_FEATURES = 4
STRING_BYTES = 32
BUNDLING = (
    "tx-tcp-segmentation",
    "tx-tcp-ecn-segmentation",
    "tx-tcp-mangleid-segmentation",
    "tx-tcp6-segmentation",
    "tx-generic-segmentation",
    "tx-gso-partial",
    "tx-gso-list",
    "tx-udp-segmentation",
    "rx-gro",
    "rx-gro-list",
    "rx-gro-hw",
    "rx-udp-gro-forwarding",
)


def _ioctl(control: socket.socket, dev: str, buffer: ctypes.Array[ctypes.c_char]) -> None:
    try:
        fcntl.ioctl(
            control, SIOCETHTOOL, struct.pack("16sP16x", dev.encode(), ctypes.addressof(buffer))
        )
    except OSError as error:
        raise OSError(error.errno, f"ethtool {dev}: {error.strerror}") from None


def _features(control: socket.socket, dev: str) -> tuple[int, frozenset[int]]:
    """Return the number of the kernel's features, and the numbers of those that bundle packets."""
    info = ctypes.create_string_buffer(
        struct.pack("=IIQI", GSSET_INFO, 0, 1 << ETH_SS_FEATURES, 0), 20
    )
    _ioctl(control, dev, info)
    count = struct.unpack_from("=I", info.raw, 16)[0]
    names = ctypes.create_string_buffer(
        struct.pack("=III", GSTRINGS, ETH_SS_FEATURES, count), 12 + count * STRING_BYTES
    )
    _ioctl(control, dev, names)
    numbers = set()
    for i in range(count):
        name = (
            names.raw[12 + i * STRING_BYTES : 12 + (i + 1) * STRING_BYTES].split(b"\0")[0].decode()
        )
        if name in BUNDLING:
            numbers.add(i)
    return count, frozenset(numbers)


class Offloads:
    """Offloads of the devices in the namespace of the constructing thread."""

    known: tuple[int, frozenset[int]] | None = None

    def __init__(self) -> None:
        self.control = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)

    def close(self) -> None:
        self.control.close()

    def turn_off(self, dev: str) -> None:
        """Turn off all offloads of `dev` that bundle packets.

        Raises:
            OSError: an offload stays on.
        """
        if Offloads.known is None:
            Offloads.known = _features(self.control, dev)
        count, bundling = Offloads.known
        blocks = (count + 31) // 32
        valid = [sum(1 << i % 32 for i in bundling if i // 32 == block) for block in range(blocks)]
        request = b"".join(struct.pack("=II", mask, 0) for mask in valid)
        _ioctl(
            self.control,
            dev,
            ctypes.create_string_buffer(struct.pack("=II", SFEATURES, blocks) + request),
        )
        features = ctypes.create_string_buffer(
            struct.pack("=II", GFEATURES, blocks), 8 + 16 * blocks
        )
        _ioctl(self.control, dev, features)
        for block, mask in enumerate(valid):
            _, _, active, _ = struct.unpack_from("=IIII", features.raw, 8 + 16 * block)
            if active & mask:
                raise OSError(
                    f"ethtool {dev}: offloads {active & mask:#x} of block {block} stay on"
                )
