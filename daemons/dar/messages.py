"""Explicit Adaptation Request (EAR; DAR, section 4), a message of daemons/core/wire.py.

The paper gives it 8 bytes and leaves the layout open.  Ours has the flow's 5-tuple, because an
input leaf moves single flows, and its spine, so that a late or repeated request has no effect.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

from weft.daemons.core.message_formats import (
    U16,
    U32,
    U64,
    Bits,
    Format,
    MessageField,
    NodeNumber,
    decoded,
)
from weft.daemons.core.wire import DAR_EAR, FlowAddresses

MOST_SPINES = 64


class Ear(NamedTuple):
    """Request of `origin` to input leaf `leaf` to move `flow` to another spine.

    `sender` passes it on to `target`.

    sequence: grows with each request of `origin`, also across its restarts.
    spine: spine of the flow.
    count: flows on this spine, at most 65,535.
    spines, room: number of spines, and those with room towards `origin`, bit j for spine j; 0 and 0
        if unknown.
    """

    sender: U32
    target: U32
    origin: NodeNumber
    leaf: U32
    sequence: U64
    flow: FlowAddresses
    spine: U32
    count: U16  # type: ignore[assignment]  # hides tuple.count()
    spines: Annotated[int, MessageField("u8", most=MOST_SPINES)] = 0
    room: Annotated[int, Bits("spines")] = 0


EAR = Format(DAR_EAR, "dar_ear", Ear)


def encode(ear: Ear) -> bytes:
    """Return `ear` as bytes; struct.error or OverflowError if a field is too large."""
    return EAR.encode(ear)


def decode(payload: bytes, nodes: int = 1 << 32) -> Ear | None:
    """Return the request in `payload`; None for a message of another type.

    Raises:
        wire.MalformedMessage: not a message, or its origin is none of the first `nodes` nodes.
    """
    ear: Ear | None = decoded(payload, {DAR_EAR: EAR}, nodes)
    return ear
