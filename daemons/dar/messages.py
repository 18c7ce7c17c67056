"""Explicit Adaptation Request (EAR; DAR, section 4) as bytes, a message of daemons/core/wire.py.

The paper gives it 8 bytes and leaves the layout open.  Ours has the flow's 5-tuple, because an
input leaf moves single flows, and its spine, so that a late or repeated request has no effect.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from weft.daemons.core.actions import FiveTuple
from weft.daemons.core.wire import DAR_EAR, MAGIC, VERSION, MalformedMessage, decoded

# header, sender, target, origin, leaf, sequence; source, destination, protocol, ports; spine,
# count, spines
FIXED = struct.Struct(">BBBIIIIQIIBIIHB")
MOST_SPINES = 64


@dataclass(frozen=True, slots=True)
class Ear:
    """Request of `origin` to input leaf `leaf` to move `flow` to another spine.

    `sender` passes it on to `target`.

    sequence: grows with each request of `origin`, also across its restarts.
    spine: spine of the flow.
    count: flows on this spine, at most 65,535.
    spines, room: number of spines, and those with room towards `origin`, bit j for spine j; 0 and 0
        if unknown.
    """

    sender: int
    target: int
    origin: int
    leaf: int
    sequence: int
    flow: FiveTuple
    spine: int
    count: int
    spines: int = 0
    room: int = 0


def encode(ear: Ear) -> bytes:
    """Return `ear` as bytes; struct.error or OverflowError if a field is too large."""
    fixed = FIXED.pack(
        MAGIC,
        VERSION,
        DAR_EAR,
        ear.sender,
        ear.target,
        ear.origin,
        ear.leaf,
        ear.sequence,
        *ear.flow,
        ear.spine,
        ear.count,
        ear.spines,
    )
    return fixed + ear.room.to_bytes(-(-ear.spines // 8), "big")


def decode(payload: bytes) -> Ear | None:
    """Return the request in `payload`; None for a message of another type.

    Raises:
        wire.MalformedMessage: not a message.
    """
    return decoded(payload, {DAR_EAR: _ear})


def _ear(payload: bytes) -> Ear:
    (
        *_,
        sender,
        target,
        origin,
        leaf,
        sequence,
        source,
        destination,
        protocol,
        ports,
        spine,
        count,
        spines,
    ) = FIXED.unpack_from(payload)
    room = int.from_bytes(payload[FIXED.size :], "big")
    if len(payload) != FIXED.size + -(-spines // 8) or spines > MOST_SPINES or room >> spines:
        raise MalformedMessage(f"a map of {spines} spines in {len(payload) - FIXED.size} bytes")
    flow = FiveTuple(source, destination, protocol, ports)
    return Ear(sender, target, origin, leaf, sequence, flow, spine, count, spines, room)
