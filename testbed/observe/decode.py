"""Messages of routing daemons in captured packets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from weft.daemons.core.message_formats import MalformedMessage
from weft.daemons.core.message_registry import dissect
from weft.testbed.linux.tc import CONTROL_PORT
from weft.testbed.observe.pcapng import read
from weft.topologies.core.address import dotted

IPV4, UDP, ETHERNET_BYTES, UDP_BYTES = 0x0800, 17, 14, 8


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
