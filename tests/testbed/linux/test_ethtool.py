"""Requests to ethtool's ioctl, answered by a device in memory."""

from __future__ import annotations

import ctypes
import struct

import pytest

from weft.testbed.linux import interface

NAMES = ["tx-checksum-ipv4", *[f"feature-{i}" for i in range(40)], "rx-gro", "tx-gso-list"]
BUNDLING = {NAMES.index("rx-gro"), NAMES.index("tx-gso-list")}


class Device:
    """A device with the features NAMES, all on, of which `fixed` cannot be turned off."""

    def __init__(self, fixed: frozenset[int] = frozenset()) -> None:
        self.active = set(range(len(NAMES)))
        self.fixed = fixed
        self.requests: list[int] = []

    def ioctl(self, control: object, request: int, argument: bytes) -> None:
        assert request == 0x8946
        name, address = struct.unpack("16sP16x", argument)
        assert name.rstrip(b"\0") == b"d0"
        (command,) = struct.unpack("=I", ctypes.string_at(address, 4))
        self.requests.append(command)
        answer = {
            interface.GSSET_INFO: self.count,
            interface.GSTRINGS: self.names,
            interface.SFEATURES: self.turn_off,
            interface.GFEATURES: self.features,
        }[command](address)
        ctypes.memmove(address, answer, len(answer))

    def count(self, address: int) -> bytes:
        command, _, sets, _ = struct.unpack("=IIQI", ctypes.string_at(address, 20))
        assert sets == 1 << interface.ETH_SS_FEATURES
        return struct.pack("=IIQI", command, 0, sets, len(NAMES))

    def names(self, address: int) -> bytes:
        header = ctypes.string_at(address, 12)
        assert struct.unpack("=III", header)[1:] == (interface.ETH_SS_FEATURES, len(NAMES))
        return header + b"".join(struct.pack("32s", name.encode()) for name in NAMES)

    def turn_off(self, address: int) -> bytes:
        _, blocks = struct.unpack("=II", ctypes.string_at(address, 8))
        assert blocks == 2
        request = struct.unpack("=4I", ctypes.string_at(address + 8, 8 * blocks))
        valid = request[0] | request[2] << 32
        assert request[1] == request[3] == 0
        self.active -= {i for i in self.active - self.fixed if valid >> i & 1}
        return b""

    def features(self, address: int) -> bytes:
        _, blocks = struct.unpack("=II", ctypes.string_at(address, 8))
        active = sum(1 << i for i in self.active)
        masks = [active >> 32 * block & 0xFFFFFFFF for block in range(blocks)]
        states = (struct.pack("=IIII", 0, 0, mask, 0) for mask in masks)
        return ctypes.string_at(address, 8) + b"".join(states)


@pytest.fixture
def offloads(monkeypatch: pytest.MonkeyPatch) -> interface.Offloads:
    monkeypatch.setattr(interface.Offloads, "known", None)
    return interface.Offloads()


def test_features_that_bundle_packets_are_turned_off_and_no_others(
    monkeypatch: pytest.MonkeyPatch, offloads: interface.Offloads
) -> None:
    device = Device()
    monkeypatch.setattr(interface.fcntl, "ioctl", device.ioctl)
    offloads.turn_off("d0")
    assert set(range(len(NAMES))) - device.active == BUNDLING
    offloads.turn_off("d0")  # the kernel's names are read once
    assert device.requests.count(interface.GSTRINGS) == 1
    assert device.requests.count(interface.SFEATURES) == 2


def test_a_feature_that_stays_on_is_an_error(
    monkeypatch: pytest.MonkeyPatch, offloads: interface.Offloads
) -> None:
    device = Device(fixed=frozenset({NAMES.index("rx-gro")}))
    monkeypatch.setattr(interface.fcntl, "ioctl", device.ioctl)
    with pytest.raises(OSError, match="ethtool d0: offloads 0x200 of block 1 stay on"):
        offloads.turn_off("d0")
