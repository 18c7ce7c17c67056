"""What TAR's servers tell each other beside hellos, as bytes: messages as in wire.py, of a type that it leaves free."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from daemons.protocol import Flow
from daemons.wire import BROKEN, HEADER, MAGIC, VERSION, Garbage

FLOW_PROBE = 24
FIXED = struct.Struct(">BBBIIIIBIIIIBBB")  # header, sender, target, flow, and so on as in FlowProbe; two numbers
NUMBER = struct.Struct(">i")


@dataclass(frozen=True, slots=True)
class FlowProbe:
    """Where is `flow` to go?  `sender` passes the question, or the answer, on to `target`.

    token: the source's own, comes back with the answer; larger in each question about a flow.
    attempt: questions about it that have failed one after the other.
    lifetime_ms: how long servers shall let the flow follow the path that is found.
    verdict: wire.ASKING on the way there, wire.CONNECTED or wire.BROKEN on the way back.
    marks: what daemons/routing/tar.py lets a probe carry; none in an answer.
    visited: the servers so far, the source first; in an answer the flow's path, by which it goes back.
    """

    sender: int
    target: int
    flow: Flow
    token: int
    attempt: int
    lifetime_ms: int
    verdict: int
    marks: tuple[int, ...]
    visited: tuple[int, ...]


def encode(probe: FlowProbe) -> bytes:
    """`probe` as bytes; struct.error if a field has no room."""
    counts = (len(probe.marks), len(probe.visited))
    fixed = (
        probe.sender,
        probe.target,
        *probe.flow,
        probe.token,
        probe.attempt,
        probe.lifetime_ms,
        probe.verdict,
        *counts,
    )
    numbers = [NUMBER.pack(number) for number in (*probe.marks, *probe.visited)]
    return FIXED.pack(MAGIC, VERSION, FLOW_PROBE, *fixed) + b"".join(numbers)


def decode(payload: bytes) -> FlowProbe | None:
    """The probe that `payload` is, None if it is another message; Garbage if it is none."""
    try:
        magic, version, kind = HEADER.unpack_from(payload)
        if (magic, version) != (MAGIC, VERSION):
            raise Garbage(f"begins with {payload[:2].hex()}, expected {MAGIC:02x}{VERSION:02x}")
        if kind != FLOW_PROBE:
            return None
        _, _, _, sender, target, *flow, token, attempt, lifetime_ms, verdict, marks, visited = FIXED.unpack_from(
            payload
        )
        numbers = tuple(number for (number,) in NUMBER.iter_unpack(payload[FIXED.size :]))
    except struct.error as error:
        raise Garbage(f"{len(payload)} bytes: {error}") from None
    if len(numbers) != marks + visited or not visited or verdict > BROKEN or min(numbers[marks:]) < 0:
        raise Garbage("lengths or values do not fit")
    of = (Flow(*flow), token, attempt, lifetime_ms, verdict)
    return FlowProbe(sender, target, *of, numbers[:marks], numbers[marks:])
