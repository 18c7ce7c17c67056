"""Messages that schemes share, and the numbers of all types of messages.

Every message begins with MAGIC, VERSION and its type.  A message of type 4 or above has a target,
the one neighbour that it is for.  A message of another scheme, whose type has no format here,
decodes to None.  Any other payload that is not exactly one message raises MalformedMessage, also if
it names a node that does not exist: receivers use these numbers as indexes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Any, NamedTuple

from weft.daemons.core.actions import FiveTuple
from weft.daemons.core.message_formats import (
    MAGIC,
    NODE,
    U16,
    U32,
    U64,
    VERSION,
    Format,
    Layout,
    MessageField,
    NodeNumber,
    Repeat,
    decoded,
    fields,
)
from weft.daemons.core.message_formats import MalformedMessage as MalformedMessage

# Types of all messages of all schemes; types from 128 on are for schemes of other packages.
HELLO, LINK_STATES, SUMMARY, PROBE, HOP_DIED = 1, 2, 3, 4, 5
LBSP_FAILURES, LBSP_CROWDING = 16, 17
FLOW_PROBE, FLOW_BREAKS = 24, 25
DAR_EAR = 32
MOST_INTERVAL_MS = 10_000  # between two hellos
MOST_VISITED = 64  # servers on a path; a longer path loops
# size limit of messages that can be split: below Ethernet's 1500 less IP and UDP
PAYLOAD_BYTES = 1400

START = bytes([MAGIC, VERSION])
SEQUENCE = struct.Struct(">I")  # end of a hello
FIRST_TARGETED = PROBE
SENDER = slice(3, 7)
TARGET = slice(7, 11)  # other servers at a crossbar read no further
ASKING, CONNECTED, BROKEN = 0, 1, 2

FlowAddresses = Annotated[
    FiveTuple, fields("source:address destination:address protocol:u8 ports:u32")
]
ProbeVerdict = Annotated[int, MessageField("u8", most=BROKEN)]
Visited = Annotated[tuple[int, ...], Repeat(NODE, "u8", least=1, most=MOST_VISITED)]


class HeardNode(NamedTuple):
    """Node that the sender of a hello heard recently, and its incarnation."""

    node: U32
    incarnation: U64


class Hello(NamedTuple):
    """Sign of life of `sender`, with the nodes that it heard recently at this port.

    incarnation: larger after each start of the sender's daemon.
    interval_ms: time between hellos of the sender.
    digest: of the sender's link-state database; 0 without one.
    heard: nodes and their incarnations.
    sequence: one more in each hello of one incarnation, modulo 2^32.
    """

    sender: U32
    incarnation: Annotated[int, MessageField("u64", most=(1 << 63) - 1)]
    interval_ms: Annotated[int, MessageField("u16", least=1, most=MOST_INTERVAL_MS)]
    digest: U64
    heard: Annotated[tuple[tuple[int, int], ...], Repeat(HeardNode, "u16")]
    sequence: U32


class AdvertisedLink(NamedTuple):
    """Live link of the origin of an advertisement."""

    port: U16
    neighbour: U32


class Advertisement(NamedTuple):
    """Live links of `origin`; of several advertisements the largest sequence is the newest.

    lifetime_ms: remaining validity.
    links: as pack_links() returns them, because nodes store and forward links far more often than
        they read them.
    """

    origin: U32
    sequence: U64
    lifetime_ms: U32
    links: Annotated[bytes, Repeat(AdvertisedLink, "u16", packed=True)]


class LinkStates(NamedTuple):
    """Advertisements that `sender` forwards."""

    sender: U32
    advertisements: Annotated[tuple[Advertisement, ...], Repeat(Advertisement, "u16")]


class SummaryEntry(NamedTuple):
    """Stored advertisement of an origin, and the check sum of its links."""

    origin: U32
    sequence: U64
    check: U32


class Summary(NamedTuple):
    """Contents of the sender's database; `target` answers with missing and newer advertisements.

    first, last: range of origins, both included.
    """

    sender: U32
    target: U32
    first: U32
    last: U32
    entries: Annotated[tuple[tuple[int, int, int], ...], Repeat(SummaryEntry, "u16")]


class Probe(NamedTuple):
    """Path probe from `source` to `destination`: is the path up, and what is its highest load?

    sender, target: neighbours that forward the probe or its answer.
    token: number of the source's own, returned in the answer.
    way: candidate path, as numbered in daemons/routing/route_addresses.py.
    load: highest load of the ports by which the path leaves a server so far; in any one unit.
    verdict: ASKING in a probe, CONNECTED or BROKEN in an answer.
    urgent: 1 if probe and answer wake the servers on their way, else 0.
    visited: servers so far, the source first; the answer takes them in reverse.
    """

    sender: NodeNumber
    target: U32
    source: NodeNumber
    destination: NodeNumber
    token: U32
    way: U16
    load: U32
    verdict: ProbeVerdict
    urgent: Annotated[int, MessageField("u8", most=1)]
    visited: Visited


class HopDied(NamedTuple):
    """Report to the first of `visited` that its paths use a dead hop, from `near` to `far`.

    sender, target: neighbours that forward the report, back along `visited`, which ends at `near`.
    """

    sender: NodeNumber
    target: U32
    near: NodeNumber
    far: NodeNumber
    visited: Visited


DaemonMessage = Hello | LinkStates | Summary | Probe | HopDied
FORMATS: tuple[Format[Any], ...] = (
    Format(HELLO, "hello", Hello),
    Format(LINK_STATES, "link_states", LinkStates),
    Format(SUMMARY, "summary", Summary),
    Format(PROBE, "probe", Probe),
    Format(HOP_DIED, "hop_died", HopDied),
)
_BY_KIND = {message.kind: message for message in FORMATS}
_BY_RECORD = {message.record: message for message in FORMATS}
_LINK = Layout(AdvertisedLink).head
_HEARD = Layout(HeardNode).head
_ADVERTISEMENT_BYTES = Layout(Advertisement).head.size
_ENTRY_BYTES = Layout(SummaryEntry).head.size


def is_ours(payload: bytes) -> bool:
    """Return True if `payload` begins with our magic and version, and has a sender."""
    return payload.startswith(START) and len(payload) >= SENDER.stop


def hello_body(
    sender: int, incarnation: int, interval_ms: int, digest: int, heard: Iterable[tuple[int, int]]
) -> bytes:
    """Return a hello without its last field, the sequence number, which alone changes each time."""
    entries = [_HEARD.pack(*entry) for entry in heard]
    numbers = (sender, incarnation, interval_ms, digest, len(entries))
    return _BY_KIND[HELLO].head.pack(MAGIC, VERSION, HELLO, *numbers) + b"".join(entries)


def encode(message: DaemonMessage) -> bytes:
    """Return `message` as bytes; struct.error if a value does not fit its field."""
    return _BY_RECORD[type(message)].encode(message)


def decode(payload: bytes, nodes: int = 1 << 32) -> DaemonMessage | None:
    """Return the message in `payload`; None for a type that is not of this module.

    Args:
        payload: of a UDP packet.
        nodes: number of nodes of the network.

    Raises:
        MalformedMessage: no message, or a probe or report that names a node from `nodes` on.
    """
    message: DaemonMessage | None = decoded(payload, _BY_KIND, nodes)
    return message


def pack_links(links: Iterable[tuple[int, int]]) -> bytes:
    """Return (port, neighbour) of each link as the `links` of an Advertisement."""
    return b"".join([_LINK.pack(*link) for link in links])


def unpack_links(links: bytes) -> Iterator[tuple[int, int]]:
    """Yield (port, neighbour) of each link in the `links` of an Advertisement."""
    return _LINK.iter_unpack(links)


def packed(sender: int, advertisements: Iterable[Advertisement]) -> Iterator[bytes]:
    """Yield `advertisements` as LinkStates messages of at most PAYLOAD_BYTES.

    An advertisement that alone is longer has a message of its own.
    """
    batch: list[Advertisement] = []
    batch_bytes = empty_bytes = _BY_KIND[LINK_STATES].head.size
    for advertisement in advertisements:
        more_bytes = _ADVERTISEMENT_BYTES + len(advertisement.links)
        if batch and batch_bytes + more_bytes > PAYLOAD_BYTES:
            yield encode(LinkStates(sender, tuple(batch)))
            batch = []
            batch_bytes = empty_bytes
        batch.append(advertisement)
        batch_bytes += more_bytes
    if batch:
        yield encode(LinkStates(sender, tuple(batch)))


def summaries(sender: int, target: int, entries: Sequence[tuple[int, int, int]]) -> Iterator[bytes]:
    """Yield `entries`, sorted by origin, as Summary messages that together cover all origins.

    Messages have at most PAYLOAD_BYTES.
    """
    most = (PAYLOAD_BYTES - _BY_KIND[SUMMARY].head.size) // _ENTRY_BYTES
    first = 0
    for begin in range(0, len(entries) or 1, most):
        batch = tuple(entries[begin : begin + most])
        last = batch[-1][0] if begin + most < len(entries) else 0xFFFFFFFF
        yield encode(Summary(sender, target, first, last, batch))
        first = last + 1
