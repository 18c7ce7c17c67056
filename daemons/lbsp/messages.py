"""What LBSP's switches tell each other beside hellos, as bytes: messages as in wire.py, of types
that it leaves free.

Both kinds are notices: what an origin says of itself, under a sequence number, to all within a few
hops (daemons/control/scoped_flooding.py).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from weft.daemons.control.scoped_flooding import Notice
from weft.daemons.core.wire import (
    LBSP_CROWDING,
    LBSP_FAILURES,
    MAGIC,
    VERSION,
    MalformedMessage,
    decoded,
)
from weft.topologies.core.address import Prefix

NOTICE = struct.Struct(">BBBIIIQIB")  # header, sender, target, origin, sequence, lifetime_ms, hops
COUNT = struct.Struct(">H")
FAILURE = struct.Struct(">BBIBI")  # kind, degraded, network, length, neighbour
STATE = struct.Struct(">B")
MOST_STATE = 2


@dataclass(frozen=True, slots=True)
class LinkFailure:
    """One failed or degraded link of a notice's origin (LBSP, section 3.3.1).

    kind: its failure type (Table 2).  affected: the destinations that are.
    neighbour: its other end, which tells whose flows are affected: figure 5's A1 and A3, but not A0
        and A2.
    """

    kind: int
    affected: Prefix
    neighbour: int
    degraded: bool


@dataclass(frozen=True, slots=True)
class Failures:
    """All links of the origin that do not work as they should; none: they all do."""

    failures: tuple[LinkFailure, ...]


@dataclass(frozen=True, slots=True)
class Crowding:
    """The state that the origin's own queues call for (LBSP, section 5.1)."""

    state: int


LbspBody = Failures | Crowding
LbspNotice = Notice[LbspBody]  # what is sent


def encode(notice: LbspNotice) -> bytes:
    """`notice` as bytes; struct.error if a field has no room."""
    kind = LBSP_FAILURES if isinstance(notice.body, Failures) else LBSP_CROWDING
    fixed = NOTICE.pack(
        MAGIC,
        VERSION,
        kind,
        notice.sender,
        notice.target,
        notice.origin,
        notice.sequence,
        notice.lifetime_ms,
        notice.hops,
    )
    if isinstance(notice.body, Crowding):
        return fixed + STATE.pack(notice.body.state)
    entries = [
        FAILURE.pack(each.kind, each.degraded, *each.affected, each.neighbour)
        for each in notice.body.failures
    ]
    return fixed + COUNT.pack(len(entries)) + b"".join(entries)


def decode(payload: bytes) -> LbspNotice | None:
    """The notice that `payload` is, None for a message of another type; Garbage if it is
    neither."""
    return decoded(payload, _DECODERS)


def _notice(body: Callable[[bytes], LbspBody], payload: bytes) -> LbspNotice:
    *_, sender, target, origin, sequence, lifetime_ms, hops = NOTICE.unpack_from(payload)
    return Notice(sender, target, origin, sequence, lifetime_ms, hops, body(payload[NOTICE.size :]))


def _failures(rest: bytes) -> Failures:
    (count,) = COUNT.unpack_from(rest)
    if len(rest) != COUNT.size + count * FAILURE.size:
        raise MalformedMessage("lengths do not fit")
    found = []
    for kind, degraded, network, length, neighbour in FAILURE.iter_unpack(rest[COUNT.size :]):
        if degraded > 1 or length > 32:
            raise MalformedMessage(
                f"no failure is degraded {degraded} and affects a prefix of length {length}"
            )
        found.append(LinkFailure(kind, Prefix(network, length), neighbour, bool(degraded)))
    return Failures(tuple(found))


def _crowding(rest: bytes) -> Crowding:
    (state,) = STATE.unpack(rest)
    if state > MOST_STATE:
        raise MalformedMessage(f"there is no state {state}")
    return Crowding(state)


_DECODERS: dict[int, Callable[[bytes], LbspNotice]] = {
    LBSP_FAILURES: partial(_notice, _failures),
    LBSP_CROWDING: partial(_notice, _crowding),
}
