"""TAR's messages beside hellos."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

from weft.daemons.core.actions import FiveTuple
from weft.daemons.core.message_formats import (
    HEADER,
    U32,
    Format,
    MessageField,
    NodeNumber,
    Repeat,
    decoded,
)
from weft.daemons.core.wire import FLOW_BREAKS, FLOW_PROBE, FlowAddresses, ProbeVerdict

ENDS = struct.Struct(">II")  # sender and target, after the header of every message
MOST_BREAKS = 80  # in one message: 1,372 bytes
SERVER = MessageField("i32", "node", least=0, is_node=True)
# a negative mark names no server
MARK = MessageField("i32", "mark", is_node=True)


class FlowProbe(NamedTuple):
    """A probe that sets up the path of `flow`, or its answer; `sender` passes it on to `target`.

    token: number of the probe at its source; grows with each probe of a flow.
    attempt: consecutive failed probes of the flow.
    lifetime_ms: time for which servers keep the flow on the path.
    verdict: wire.ASKING in a probe, wire.CONNECTED or wire.BROKEN in an answer.
    marks: marks of a probe (daemons/tar/routing.py); empty in an answer.
    visited: in a probe, the servers so far, the source first; in an answer, the flow's path.
    """

    sender: NodeNumber
    target: U32
    flow: FlowAddresses
    token: U32
    attempt: U32
    lifetime_ms: U32
    verdict: ProbeVerdict
    marks: Annotated[tuple[int, ...], Repeat(MARK, "u8")]
    visited: Annotated[tuple[int, ...], Repeat(SERVER, "u8", least=1)]


class BrokenPath(NamedTuple):
    """Flow whose path is broken, and the token of the probe that set it up."""

    flow: FlowAddresses
    token: U32


class FlowBreaks(NamedTuple):
    """Broken paths: `sender` tells `target`, the server before it on the paths of `flows`."""

    sender: U32
    target: U32
    flows: Annotated[tuple[tuple[FiveTuple, int], ...], Repeat(BrokenPath, "u8", least=1)]


PROBE = Format(FLOW_PROBE, "flow_probe", FlowProbe)
BREAKS = Format(FLOW_BREAKS, "flow_breaks", FlowBreaks)
FORMATS: tuple[Format[Any], ...] = (PROBE, BREAKS)
_BY_KIND = {message.kind: message for message in FORMATS}


def breaks(sender: int, target: int, flows: Sequence[tuple[FiveTuple, int]]) -> list[bytes]:
    """Return FlowBreaks messages for `flows`, as bytes; struct.error if a field is too large."""
    return [
        BREAKS.encode(FlowBreaks(sender, target, tuple(flows[start : start + MOST_BREAKS])))
        for start in range(0, len(flows), MOST_BREAKS)
    ]


def passed_on(payload: bytes, sender: int, target: int) -> bytes:
    """Return the FlowProbe `payload` with another sender and target."""
    return payload[: HEADER.size] + ENDS.pack(sender, target) + payload[HEADER.size + ENDS.size :]


def encode(probe: FlowProbe) -> bytes:
    """Return `probe` as bytes; struct.error if a field is too large."""
    return PROBE.encode(probe)


def decode(payload: bytes, nodes: int = 1 << 31) -> FlowProbe | FlowBreaks | None:
    """Return the message in `payload`; None if it is another scheme's.

    Raises:
        wire.MalformedMessage: not a message, or it names a node that is none of the first `nodes`.
    """
    message: FlowProbe | FlowBreaks | None = decoded(payload, _BY_KIND, nodes)
    return message
