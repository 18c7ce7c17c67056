"""LBSP's messages beside hellos, as bytes, with the header and types of wire.py.

Both kinds are notices: an origin floods its own state, with a sequence number, over a few hops
(daemons/control/scoped_flooding.py).
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

    kind: failure type (Table 2).
    affected: affected destinations.
    neighbour: other end of the link, which determines the affected flows: figure 5's A1 and A3, but
        not A0 and A2.
    """

    kind: int
    affected: Prefix
    neighbour: int
    degraded: bool


@dataclass(frozen=True, slots=True)
class Failures:
    """All failed and degraded links of the origin."""

    failures: tuple[LinkFailure, ...]


@dataclass(frozen=True, slots=True)
class Crowding:
    """State that the origin's own queues require (LBSP, section 5.1)."""

    state: int


LbspBody = Failures | Crowding
LbspNotice = Notice[LbspBody]


def encode(notice: LbspNotice) -> bytes:
    """Return `notice` as bytes; struct.error if a field is too large."""
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
        FAILURE.pack(failure.kind, failure.degraded, *failure.affected, failure.neighbour)
        for failure in notice.body.failures
    ]
    return fixed + COUNT.pack(len(entries)) + b"".join(entries)


def decode(payload: bytes) -> LbspNotice | None:
    """Return the notice in `payload`; None for a message of another type.

    Raises:
        wire.MalformedMessage: not a message.
    """
    return decoded(payload, _DECODERS)


def _notice(body: Callable[[bytes], LbspBody], payload: bytes) -> LbspNotice:
    *_, sender, target, origin, sequence, lifetime_ms, hops = NOTICE.unpack_from(payload)
    return Notice(sender, target, origin, sequence, lifetime_ms, hops, body(payload[NOTICE.size :]))


def _failures(rest: bytes) -> Failures:
    (count,) = COUNT.unpack_from(rest)
    if len(rest) != COUNT.size + count * FAILURE.size:
        raise MalformedMessage("lengths do not fit")
    failures = []
    for kind, degraded, network, length, neighbour in FAILURE.iter_unpack(rest[COUNT.size :]):
        if degraded > 1 or length > 32:
            raise MalformedMessage(
                f"degraded must be 0 or 1 and a prefix at most /32, got {degraded} and /{length}"
            )
        failures.append(LinkFailure(kind, Prefix(network, length), neighbour, bool(degraded)))
    return Failures(tuple(failures))


def _crowding(rest: bytes) -> Crowding:
    (state,) = STATE.unpack(rest)
    if state > MOST_STATE:
        raise MalformedMessage(f"states are 0 to {MOST_STATE}, got {state}")
    return Crowding(state)


_DECODERS: dict[int, Callable[[bytes], LbspNotice]] = {
    LBSP_FAILURES: partial(_notice, _failures),
    LBSP_CROWDING: partial(_notice, _crowding),
}
