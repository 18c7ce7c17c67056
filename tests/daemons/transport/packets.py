"""Packets of the purified transport to bytes and back, in Python, for its model in this folder.

testbed/traffic/ndp_machine.c has the same in C.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from weft.daemons.transport.endpoint import HEADER

MAGIC = 0x6E
DATA, ACK, NACK, PULL = 1, 2, 3, 4


class MalformedPacket(ValueError):
    """Bytes that are no packet of this transport."""


@dataclass(frozen=True, slots=True)
class Data:
    """Packet `sequence`, from 0, of message `flow`, whose number its sender uses once.

    layer: of the routes that it takes.
    window: packets of each message that the sender sends without being asked.
    size_bytes: of the whole message.
    payload_bytes: in each of its packets but the last, which has the rest.
    """

    flow: int
    sequence: int
    layer: int
    window: int
    size_bytes: int
    payload_bytes: int

    @property
    def own_bytes(self) -> int:
        """Payload of this packet."""
        return min(self.payload_bytes, self.size_bytes - self.sequence * self.payload_bytes)


@dataclass(frozen=True, slots=True)
class Ack:
    """Packet `sequence` of `flow` has come whole; `pulls` packets have been pulled so far.

    congested: whether it was marked.
    """

    flow: int
    sequence: int
    layer: int
    pulls: int
    congested: bool = False


@dataclass(frozen=True, slots=True)
class Nack:
    """Of packet `sequence` of `flow` only the header has come, by `layer`.

    congested: whether another layer may help: not where the packet was trimmed before the link of
        its destination.
    """

    flow: int
    sequence: int
    layer: int
    pulls: int
    congested: bool


@dataclass(frozen=True, slots=True)
class Pull:
    """Since the message began, `pulls` packets of `flow` were asked for beyond its window.

    So a pull that is lost is made good by the next.
    """

    flow: int
    layer: int
    pulls: int


TransportPacket = Data | Ack | Nack | Pull


def packets_of(size_bytes: int, payload_bytes: int) -> int:
    """Return the number of packets of a message."""
    return -(-size_bytes // payload_bytes)


def encode(packet: TransportPacket) -> bytes:
    """The header of `packet`; struct.error if a field has no room."""
    match packet:
        case Data(flow, sequence, layer, window, size_bytes, payload_bytes):
            return HEADER.pack(
                MAGIC, DATA, layer, window, flow, sequence, size_bytes, payload_bytes
            )
        case Ack(flow, sequence, layer, pulls, congested):
            return HEADER.pack(MAGIC, ACK, layer, congested, flow, sequence, pulls, 0)
        case Nack(flow, sequence, layer, pulls, congested):
            return HEADER.pack(MAGIC, NACK, layer, congested, flow, sequence, pulls, 0)
        case Pull(flow, layer, pulls):
            return HEADER.pack(MAGIC, PULL, layer, 0, flow, 0, pulls, 0)


def decode(payload: bytes, layers: int) -> tuple[TransportPacket, bool]:
    """Return the packet of a datagram, and whether it is whole.

    Raises:
        MalformedPacket: it is no packet, or its layer is not below `layers`.
    """
    try:
        magic, kind, layer, detail, flow, sequence, number, payload_size = HEADER.unpack_from(
            payload
        )
    except struct.error:
        raise MalformedPacket(f"{len(payload)} bytes, a header has {HEADER.size}") from None
    rest = len(payload) - HEADER.size
    if magic != MAGIC:
        raise MalformedPacket(f"begins with {magic:02x}, expected {MAGIC:02x}")
    if layer >= layers:
        raise MalformedPacket(f"layer {layer} of {layers}")
    if kind == DATA:
        data = Data(flow, sequence, layer, detail, number, payload_size)
        _check_data(data, rest)
        return data, rest > 0
    # Only an answer's congestion mark is in `detail`, and a pull has neither that nor a sequence.
    pull_with_more = kind == PULL and (detail or sequence)
    if rest or payload_size or detail > 1 or number >> 32 or pull_with_more:
        raise MalformedPacket("an answer with more than belongs there")
    if kind == ACK:
        return Ack(flow, sequence, layer, number, bool(detail)), True
    if kind == NACK:
        return Nack(flow, sequence, layer, number, bool(detail)), True
    if kind == PULL:
        return Pull(flow, layer, number), True
    raise MalformedPacket(f"kind {kind}, there are {DATA} to {PULL}")


def _check_data(data: Data, rest: int) -> None:
    """Raise MalformedPacket if fields of `data` contradict each other or `rest`, its payload."""
    size = data.payload_bytes
    if not (size and data.window and data.size_bytes > data.sequence * size):
        raise MalformedPacket(
            f"packet {data.sequence} of a message of {data.size_bytes} bytes, {size} in each "
            f"packet, window {data.window}"
        )
    if rest not in (0, data.own_bytes):
        raise MalformedPacket(f"{rest} bytes of payload where there are {data.own_bytes}, or none")
