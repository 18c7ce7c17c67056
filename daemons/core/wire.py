"""Messages <-> bytes, big-endian.

Every message begins with MAGIC, VERSION and its type; those of type 4 and above are for one
neighbour alone, its target.  A message of a type that a scheme has no decoder for is another
scheme's and decodes to None; anything else that is not exactly a message is a MalformedMessage.  So
is one whose numbers no node can mean: a field has room for more than there is of what it counts,
and what lies beyond must not reach those who look things up by it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

MAGIC, VERSION = 0x77, 1
# The type of every message of every scheme; from 128 on they are free for schemes of other
# packages.
HELLO, LINK_STATES, SUMMARY, PROBE, HOP_DIED = 1, 2, 3, 4, 5
LBSP_FAILURES, LBSP_CROWDING = 16, 17
FLOW_PROBE, FLOW_BREAKS = 24, 25
DAR_EAR = 32
MOST_INTERVAL_MS = 10_000  # between two hellos
MOST_VISITED = 64  # servers on a path: what has come further runs in circles
# what is split is split into messages of this size: below Ethernet's 1500 less IP and UDP
PAYLOAD_BYTES = 1400

START = bytes([MAGIC, VERSION])
HEADER = struct.Struct(">BBB")
# header, sender, incarnation, interval_ms, digest, number heard
HELLO_FIXED = struct.Struct(">BBBIQHQH")
HEARD = struct.Struct(">IQ")  # node, incarnation
SEQUENCE = struct.Struct(">I")
LINK_STATES_FIXED = struct.Struct(">BBBIH")  # header, sender, number of advertisements
ADVERTISEMENT = struct.Struct(">IQIH")  # origin, sequence, lifetime_ms, number of links
LINK = struct.Struct(">HI")  # port, neighbour
SUMMARY_FIXED = struct.Struct(">BBBIIIIH")  # header, sender, target, first, last, number of entries
ENTRY = struct.Struct(">IQI")  # origin, sequence, check of the links
# header, sender, target, and so on as in Probe; number visited
PROBE_FIXED = struct.Struct(">BBBIIIIIHIBBB")
HOP_DIED_FIXED = struct.Struct(">BBBIIIIB")  # header, sender, target, near, far, number visited
FIRST_TARGETED = PROBE
SENDER = slice(3, 7)
TARGET = slice(7, 11)  # where the target lies, for those at a crossbar who need not read on
VISITED = struct.Struct(">I")


Decoded = TypeVar("Decoded")


class MalformedMessage(ValueError):
    """Bytes that are no message."""


@dataclass(frozen=True, slots=True)
class Hello:
    """`sender` lives, and at this port has of late heard the nodes in `heard`, each with its
    incarnation.

    incarnation: larger after each start of the sender's daemon.
    sequence: one more in each hello of one incarnation, modulo 2^32.
    interval_ms: how often the sender says so; 1 to MOST_INTERVAL_MS.
    digest: of the sender's link-state database, 0 if it has none.
    """

    sender: int
    incarnation: int
    sequence: int
    interval_ms: int
    digest: int
    heard: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Advertisement:
    """The live links of `origin`, as it says: the one with the largest sequence is the newest.

    lifetime_ms: how much longer it may be believed.
    links: as pack_links() has them, since they are kept and passed on far more often than read: in
        a fat-tree with k = 8, 80 nodes hold those of 80.
    """

    origin: int
    sequence: int
    lifetime_ms: int
    links: bytes


@dataclass(frozen=True, slots=True)
class LinkStates:
    """Advertisements that `sender` passes on."""

    sender: int
    advertisements: tuple[Advertisement, ...]


@dataclass(frozen=True, slots=True)
class Summary:
    """What `sender` has of the origins `first` to `last`, both included, for `target` to send what
    is missing or newer.

    entries: (origin, sequence, check of the links).
    """

    sender: int
    target: int
    first: int
    last: int
    entries: tuple[tuple[int, int, int], ...]


class Probe(NamedTuple):
    """How is the path from `source` to `destination` by way of `way`?  `sender` passes the
    question, or the answer, on to `target`.

    token: the source's own, comes back with the answer.
    way: which of the paths, as daemons/routing/proxy_addresses.py numbers them.
    load: the greatest of the ports that the path leaves a server by, so far; in any one unit.
    verdict: ASKING on the way there, CONNECTED or BROKEN on the way back.
    urgent: 1 if question and answer are to wake the servers on their way, else 0.
    visited: the servers so far, the source first; an answer goes back by them.
    """

    sender: int
    target: int
    source: int
    destination: int
    token: int
    way: int
    load: int
    verdict: int
    urgent: int
    visited: tuple[int, ...]


ASKING, CONNECTED, BROKEN = 0, 1, 2


class HopDied(NamedTuple):
    """The hop from server `near` to its neighbour `far` is dead, which paths of the first of
    `visited` led over.

    `sender` passes that on to `target`, back along `visited`, which ends at `near`.
    """

    sender: int
    target: int
    near: int
    far: int
    visited: tuple[int, ...]


DaemonMessage = Hello | LinkStates | Summary | Probe | HopDied


def is_ours(payload: bytes) -> bool:
    """Whether `payload` begins as all messages do, and so has a sender."""
    return payload.startswith(START) and len(payload) >= SENDER.stop


def hello_body(
    sender: int, incarnation: int, interval_ms: int, digest: int, heard: Iterable[tuple[int, int]]
) -> bytes:
    """A hello without its sequence number, which comes last: what does not change from one hello to
    the next."""
    listed = [HEARD.pack(*entry) for entry in heard]
    fixed = HELLO_FIXED.pack(
        MAGIC, VERSION, HELLO, sender, incarnation, interval_ms, digest, len(listed)
    )
    return fixed + b"".join(listed)


def encode(message: DaemonMessage) -> bytes:
    """`message` as bytes; struct.error if a field has no room."""
    match message:
        case Hello(sender, incarnation, sequence, interval_ms, digest, heard):
            return hello_body(sender, incarnation, interval_ms, digest, heard) + SEQUENCE.pack(
                sequence
            )
        case LinkStates(sender, advertisements):
            parts = [
                LINK_STATES_FIXED.pack(MAGIC, VERSION, LINK_STATES, sender, len(advertisements))
            ]
            for each in advertisements:
                count = len(each.links) // LINK.size
                parts += [
                    ADVERTISEMENT.pack(each.origin, each.sequence, each.lifetime_ms, count),
                    each.links,
                ]
            return b"".join(parts)
        case Summary(sender, target, first, last, entries):
            fixed = SUMMARY_FIXED.pack(
                MAGIC, VERSION, SUMMARY, sender, target, first, last, len(entries)
            )
            return fixed + b"".join([ENTRY.pack(*entry) for entry in entries])
        case Probe(sender, target, source, destination, token, way, load, verdict, urgent, visited):
            path = (source, destination, token, way, load, verdict, urgent, len(visited))
            fixed = PROBE_FIXED.pack(MAGIC, VERSION, PROBE, sender, target, *path)
            return fixed + b"".join([VISITED.pack(node) for node in visited])
        case HopDied(sender, target, near, far, visited):
            fixed = HOP_DIED_FIXED.pack(
                MAGIC, VERSION, HOP_DIED, sender, target, near, far, len(visited)
            )
            return fixed + b"".join([VISITED.pack(node) for node in visited])


def decode(payload: bytes, nodes: int = 1 << 32) -> DaemonMessage | None:
    """The message of this file that `payload` is, None if its type is another; Garbage if it is
    none, or a question or an answer that names a node which is none of the first `nodes`."""
    message = decoded(payload, _DECODERS)
    if isinstance(message, Probe):
        within((message.sender, message.source, message.destination, *message.visited), nodes)
    elif isinstance(message, HopDied):
        within((message.sender, message.near, message.far, *message.visited), nodes)
    return message


def within(numbers: Iterable[int], nodes: int) -> None:
    """Garbage unless all of `numbers` are numbers of the first `nodes` nodes."""
    for number in numbers:
        if not 0 <= number < nodes:
            raise MalformedMessage(f"there is no node {number}, only 0 to {nodes - 1}")


def decoded(payload: bytes, decoders: Mapping[int, Callable[[bytes], Decoded]]) -> Decoded | None:
    """The message that `payload` is by the decoder of its type, None if there is none; Garbage if
    its header is none of ours, or the decoder finds it cut short."""
    try:
        magic, version, kind = HEADER.unpack_from(payload)
        if (magic, version) != (MAGIC, VERSION):
            raise MalformedMessage(
                f"begins with {payload[:2].hex()}, expected {MAGIC:02x}{VERSION:02x}"
            )
        return decoders[kind](payload) if kind in decoders else None
    except struct.error as error:
        raise MalformedMessage(f"{len(payload)} bytes: {error}") from None


def pack_links(links: Iterable[tuple[int, int]]) -> bytes:
    """(port, neighbour) of each link, as an Advertisement has them."""
    return b"".join([LINK.pack(*link) for link in links])


def unpack_links(links: bytes) -> Iterator[tuple[int, int]]:
    """What pack_links() was given."""
    return LINK.iter_unpack(links)


def _hello(payload: bytes) -> Hello:
    *_, sender, incarnation, interval_ms, digest, count = HELLO_FIXED.unpack_from(payload)
    end = HELLO_FIXED.size + count * HEARD.size
    _require(len(payload) == end + SEQUENCE.size)
    if not 0 < interval_ms <= MOST_INTERVAL_MS or incarnation >> 63:
        raise MalformedMessage(
            f"no hello has interval {interval_ms} ms and incarnation {incarnation}"
        )
    heard = tuple(HEARD.iter_unpack(payload[HELLO_FIXED.size : end]))
    return Hello(
        sender, incarnation, SEQUENCE.unpack_from(payload, end)[0], interval_ms, digest, heard
    )


def _link_states(payload: bytes) -> LinkStates:
    *_, sender, count = LINK_STATES_FIXED.unpack_from(payload)
    at, found = LINK_STATES_FIXED.size, []
    for _ in range(count):
        origin, sequence, lifetime_ms, links = ADVERTISEMENT.unpack_from(payload, at)
        at += ADVERTISEMENT.size
        end = at + links * LINK.size
        _require(end <= len(payload))
        found.append(Advertisement(origin, sequence, lifetime_ms, payload[at:end]))
        at = end
    _require(at == len(payload))
    return LinkStates(sender, tuple(found))


def _summary(payload: bytes) -> Summary:
    *_, sender, target, first, last, count = SUMMARY_FIXED.unpack_from(payload)
    _require(len(payload) == SUMMARY_FIXED.size + count * ENTRY.size)
    return Summary(
        sender, target, first, last, tuple(ENTRY.iter_unpack(payload[SUMMARY_FIXED.size :]))
    )


def _probe(payload: bytes) -> Probe:
    *_, sender, target, source, destination, token, way, load, verdict, urgent, count = (
        PROBE_FIXED.unpack_from(payload)
    )
    _require(verdict <= BROKEN and urgent <= 1)
    visited = _visited(payload, PROBE_FIXED.size, count)
    return Probe(sender, target, source, destination, token, way, load, verdict, urgent, visited)


def _hop_died(payload: bytes) -> HopDied:
    *_, sender, target, near, far, count = HOP_DIED_FIXED.unpack_from(payload)
    return HopDied(sender, target, near, far, _visited(payload, HOP_DIED_FIXED.size, count))


def _visited(payload: bytes, at: int, count: int) -> tuple[int, ...]:
    _require(len(payload) == at + count * VISITED.size and 0 < count <= MOST_VISITED)
    return tuple(node for (node,) in VISITED.iter_unpack(payload[at:]))


def _require(well_formed: bool) -> None:
    if not well_formed:
        raise MalformedMessage("lengths do not fit")


_DECODERS: dict[int, Callable[[bytes], DaemonMessage]] = {
    HELLO: _hello,
    LINK_STATES: _link_states,
    SUMMARY: _summary,
    PROBE: _probe,
    HOP_DIED: _hop_died,
}


def packed(sender: int, advertisements: Iterable[Advertisement]) -> Iterator[bytes]:
    """`advertisements` as LinkStates messages of at most PAYLOAD_BYTES, unless one alone is
    longer."""
    batch: list[Advertisement] = []
    size = LINK_STATES_FIXED.size
    for each in advertisements:
        more = ADVERTISEMENT.size + len(each.links)
        if batch and size + more > PAYLOAD_BYTES:
            yield encode(LinkStates(sender, tuple(batch)))
            batch, size = [], LINK_STATES_FIXED.size
        batch.append(each)
        size += more
    if batch:
        yield encode(LinkStates(sender, tuple(batch)))


def summaries(sender: int, target: int, entries: Sequence[tuple[int, int, int]]) -> Iterator[bytes]:
    """`entries`, in order of origin, as Summary messages of at most PAYLOAD_BYTES that together
    cover all origins."""
    most = (PAYLOAD_BYTES - SUMMARY_FIXED.size) // ENTRY.size
    first = 0
    for at in range(0, len(entries) or 1, most):
        batch = tuple(entries[at : at + most])
        last = batch[-1][0] if at + most < len(entries) else 0xFFFFFFFF
        yield encode(Summary(sender, target, first, last, batch))
        first = last + 1
