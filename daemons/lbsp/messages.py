"""LBSP's messages beside hellos.

Both kinds are notices: an origin floods its own state, with a sequence number, over a few hops
(daemons/control/scoped_flooding.py).
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

from weft.daemons.control.scoped_flooding import Notice
from weft.daemons.core.message_formats import U8, U32, Format, MessageField, Repeat, decoded
from weft.daemons.core.wire import LBSP_CROWDING, LBSP_FAILURES
from weft.topologies.core.address import Prefix

MOST_STATE = 2
NETWORK = (MessageField("address", "network"), MessageField("u8", "length", most=32))


class LinkFailure(NamedTuple):
    """One failed or degraded link of a notice's origin (LBSP, section 3.3.1).

    kind: failure type (Table 2).
    degraded: 1 for a degraded link, 0 for a failed one.
    affected: affected destinations.
    neighbour: other end of the link, which determines the affected flows: figure 5's A1 and A3, but
        not A0 and A2.
    """

    kind: U8
    degraded: Annotated[int, MessageField("u8", most=1)]
    affected: Annotated[Prefix, NETWORK]
    neighbour: U32


class Failures(NamedTuple):
    """All failed and degraded links of the origin."""

    failures: Annotated[tuple[LinkFailure, ...], Repeat(LinkFailure, "u16")]


class Crowding(NamedTuple):
    """State that the origin's own queues require (LBSP, section 5.1)."""

    state: Annotated[int, MessageField("u8", most=MOST_STATE)]


LbspBody = Failures | Crowding
LbspNotice = Notice[LbspBody]
FORMATS: tuple[Format[Any], ...] = (
    Format(LBSP_FAILURES, "lbsp_failures", Notice, Failures),
    Format(LBSP_CROWDING, "lbsp_crowding", Notice, Crowding),
)
_BY_KIND = {message.kind: message for message in FORMATS}


def encode(notice: LbspNotice) -> bytes:
    """Return `notice` as bytes; struct.error if a field is too large."""
    kind = LBSP_FAILURES if isinstance(notice.body, Failures) else LBSP_CROWDING
    return _BY_KIND[kind].encode(notice)


def decode(payload: bytes) -> LbspNotice | None:
    """Return the notice in `payload`; None for a message of another type.

    Raises:
        wire.MalformedMessage: not a message.
    """
    notice: LbspNotice | None = decoded(payload, _BY_KIND)
    return notice
