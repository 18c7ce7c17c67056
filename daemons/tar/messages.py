"""TAR's messages beside hellos, as bytes, with the header and types of wire.py."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import NamedTuple

from weft.daemons.core.actions import FiveTuple
from weft.daemons.core.wire import (
    BROKEN,
    FLOW_BREAKS,
    FLOW_PROBE,
    HEADER,
    MAGIC,
    VERSION,
    MalformedMessage,
    decoded,
    within,
)

# header, fields of FlowProbe up to the verdict, number of marks, number of visited servers
FIXED = struct.Struct(">BBBIIIIBIIIIBBB")
ENDS = struct.Struct(">II")  # sender and target, after the header of every message
BREAKS = struct.Struct(">BBBIIB")  # header, sender, target, number of flows
BREAK = struct.Struct(">IIBII")  # flow, token
MOST_BREAKS = 80  # in one message: 1,372 bytes


class FlowProbe(NamedTuple):
    """A probe that sets up the path of `flow`, or its answer; `sender` passes it on to `target`.

    token: number of the probe at its source; grows with each probe of a flow.
    attempt: consecutive failed probes of the flow.
    lifetime_ms: time for which servers keep the flow on the path.
    verdict: wire.ASKING in a probe, wire.CONNECTED or wire.BROKEN in an answer.
    marks: marks of a probe (daemons/tar/routing.py); empty in an answer.
    visited: in a probe, the servers so far, the source first; in an answer, the flow's path.
    """

    sender: int
    target: int
    flow: FiveTuple
    token: int
    attempt: int
    lifetime_ms: int
    verdict: int
    marks: tuple[int, ...]
    visited: tuple[int, ...]


class FlowBreaks(NamedTuple):
    """Broken paths: `sender` tells `target`, the server before it on the paths of `flows`.

    flows: each with the token of the probe that set up its path.
    """

    sender: int
    target: int
    flows: tuple[tuple[FiveTuple, int], ...]


def breaks(sender: int, target: int, flows: Sequence[tuple[FiveTuple, int]]) -> list[bytes]:
    """Return FlowBreaks messages for `flows`, as bytes; struct.error if a field is too large."""
    payloads = []
    for start in range(0, len(flows), MOST_BREAKS):
        batch = flows[start : start + MOST_BREAKS]
        header = BREAKS.pack(MAGIC, VERSION, FLOW_BREAKS, sender, target, len(batch))
        payloads.append(header + b"".join(BREAK.pack(*flow, token) for flow, token in batch))
    return payloads


def passed_on(payload: bytes, sender: int, target: int) -> bytes:
    """Return the FlowProbe `payload` with another sender and target."""
    return payload[: HEADER.size] + ENDS.pack(sender, target) + payload[HEADER.size + ENDS.size :]


def encode(probe: FlowProbe) -> bytes:
    """Return `probe` as bytes; struct.error if a field is too large."""
    sender, target, flow, *values, marks, visited = probe
    counts = (len(marks), len(visited))
    fixed = FIXED.pack(MAGIC, VERSION, FLOW_PROBE, sender, target, *flow, *values, *counts)
    return fixed + struct.pack(f">{sum(counts)}i", *marks, *visited)


def decode(payload: bytes, nodes: int = 1 << 31) -> FlowProbe | FlowBreaks | None:
    """Return the message in `payload`; None if it is another scheme's.

    Raises:
        wire.MalformedMessage: not a message, or it names a node that is none of the first `nodes`.
    """
    message = decoded(payload, _DECODERS)
    if isinstance(message, FlowProbe):
        within(
            (message.sender, *message.visited, *(mark for mark in message.marks if mark >= 0)),
            nodes,
        )
    return message


def _probe(payload: bytes) -> FlowProbe:
    _, _, _, sender, target, *flow, token, attempt, lifetime_ms, verdict, marks, visited = (
        FIXED.unpack_from(payload)
    )
    numbers = struct.unpack(f">{marks + visited}i", payload[FIXED.size :])
    if not visited or verdict > BROKEN or min(numbers[marks:]) < 0:
        raise MalformedMessage("values do not fit")
    values = (FiveTuple(*flow), token, attempt, lifetime_ms, verdict)
    return FlowProbe(sender, target, *values, numbers[:marks], numbers[marks:])


def _breaks(payload: bytes) -> FlowBreaks:
    _, _, _, sender, target, count = BREAKS.unpack_from(payload)
    flows = tuple(
        (FiveTuple(*flow), token) for *flow, token in BREAK.iter_unpack(payload[BREAKS.size :])
    )
    if len(flows) != count or not flows:
        raise MalformedMessage(f"{len(flows)} flows; the header says {count}")
    return FlowBreaks(sender, target, flows)


_DECODERS: dict[int, Callable[[bytes], FlowProbe | FlowBreaks]] = {
    FLOW_PROBE: _probe,
    FLOW_BREAKS: _breaks,
}
