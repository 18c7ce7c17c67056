"""What TAR's servers tell each other beside hellos, as bytes: messages as in wire.py, of a type
that it leaves free."""

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

# header, sender, target, flow, and so on as in FlowProbe; two numbers
FIXED = struct.Struct(">BBBIIIIBIIIIBBB")
ENDS = struct.Struct(">II")  # sender, target: after the header, in both messages
BREAKS = struct.Struct(">BBBIIB")  # header, sender, target, how many
BREAK = struct.Struct(">IIBII")  # flow, token
MOST_BREAKS = 80  # in a message: 1,372 bytes


class FlowProbe(NamedTuple):
    """Where is `flow` to go?  `sender` passes the question, or the answer, on to `target`.

    token: the source's own, comes back with the answer; larger in each question about a flow.
    attempt: questions about it that have failed one after the other.
    lifetime_ms: how long servers shall let the flow follow the path that is found.
    verdict: wire.ASKING on the way there, wire.CONNECTED or wire.BROKEN on the way back.
    marks: what daemons/tar/routing.py lets a probe carry; none in an answer.
    visited: the servers so far, the source first; in an answer the flow's path, by which it goes
        back.
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
    """The paths of `flows`, each with the token of the probe that found it, lead no further:
    `sender` tells `target`, the server before it on each of them."""

    sender: int
    target: int
    flows: tuple[tuple[FiveTuple, int], ...]


def breaks(sender: int, target: int, flows: Sequence[tuple[FiveTuple, int]]) -> list[bytes]:
    """FlowBreaks as bytes, as many messages as it takes; struct.error if a field has no room."""
    return [
        BREAKS.pack(MAGIC, VERSION, FLOW_BREAKS, sender, target, len(some))
        + b"".join(BREAK.pack(*flow, token) for flow, token in some)
        for some in (flows[at : at + MOST_BREAKS] for at in range(0, len(flows), MOST_BREAKS))
    ]


def passed_on(payload: bytes, sender: int, target: int) -> bytes:
    """The FlowProbe `payload` from another server to another."""
    return payload[: HEADER.size] + ENDS.pack(sender, target) + payload[HEADER.size + ENDS.size :]


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
    numbers = (*probe.marks, *probe.visited)
    return FIXED.pack(MAGIC, VERSION, FLOW_PROBE, *fixed) + struct.pack(
        f">{len(numbers)}i", *numbers
    )


def decode(payload: bytes, nodes: int = 1 << 31) -> FlowProbe | FlowBreaks | None:
    """The message that `payload` is, None if it is another scheme's; Garbage if it is none, or
    names a node which is none of the first `nodes`."""
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
    of = (FiveTuple(*flow), token, attempt, lifetime_ms, verdict)
    return FlowProbe(sender, target, *of, numbers[:marks], numbers[marks:])


def _breaks(payload: bytes) -> FlowBreaks:
    _, _, _, sender, target, count = BREAKS.unpack_from(payload)
    flows = tuple(
        (FiveTuple(*flow), token) for *flow, token in BREAK.iter_unpack(payload[BREAKS.size :])
    )
    if len(flows) != count or not flows:
        raise MalformedMessage(f"{len(flows)} flows, said to be {count}")
    return FlowBreaks(sender, target, flows)


_DECODERS: dict[int, Callable[[bytes], FlowProbe | FlowBreaks]] = {
    FLOW_PROBE: _probe,
    FLOW_BREAKS: _breaks,
}
