"""What daemons say in captured packets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from weft.daemons.core.message_formats import Malformed
from weft.daemons.core.message_registry import dissect
from weft.testbed.linux.tc import CONTROL_PORT
from weft.testbed.observe.pcapng import read
from weft.topologies.core.address import dotted

IPV4, UDP, ETHERNET_BYTES, UDP_BYTES = 0x0800, 17, 14, 8


def control_payload(frame: bytes) -> tuple[str, bytes] | None:
    """Of an Ethernet frame to the daemons' port: the sender's address and the UDP payload; None of
    any other."""
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
    """The control messages of a capture, in order: `at_s` since 1970, `interface`, `from`, and what
    dissect() tells, or `error`.  ValueError if the file is no capture."""
    for packet in read(path):
        if found := control_payload(packet.data):
            address, payload = found
            told = {"at_s": packet.at_ns / 1e9, "interface": packet.interface, "from": address}
            try:
                yield told | dissect(payload)
            except Malformed as error:
                yield told | {"error": str(error)}
