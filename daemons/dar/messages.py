"""The Explicit Adaptation Request (EAR; DAR, section 4) as bytes: a message as in
daemons/core/wire.py.

The paper leaves its layout open and gives it 8 bytes.  Ours names the flow by its 5-tuple, since
that is what an input leaf moves, and the spine by which it comes, so that a request which is late
or repeated has no effect.
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
    """`origin` asks the input leaf `leaf` to move `flow` to another spine; `sender` passes that on
    to `target`.

    sequence: larger in each request of `origin`, and larger than those of the daemon that ran there
        before.
    spine: by which the flow comes.  count: flows that come by it, at most 65,535.
    spines, room: how many spines there are, and the set of those that have room towards `origin`,
        bit j for spine j; 0 and 0: that is not told.
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
    """`ear` as bytes; struct.error or OverflowError if a field has no room."""
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
    """The request that `payload` is, None for a message of another type; Garbage if it is
    neither."""
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
