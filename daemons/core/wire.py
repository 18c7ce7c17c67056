"""Encoding and decoding of messages; numbers are big-endian.

Every message begins with MAGIC, VERSION and its type.  A message of type 4 or above has a target,
the one neighbour that it is for.  A message of another scheme, whose type has no decoder, decodes
to None.  Any other payload that is not exactly one message raises MalformedMessage, also if it
names a node that does not exist: receivers use these numbers as indexes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

MAGIC, VERSION = 0x77, 1
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
TARGET = slice(7, 11)  # other servers at a crossbar read no further
VISITED = struct.Struct(">I")


Decoded = TypeVar("Decoded")


class MalformedMessage(ValueError):
    """Error: a payload that is no message."""


@dataclass(frozen=True, slots=True)
class Hello:
    """Sign of life of `sender`, with the nodes that it heard recently at this port.

    incarnation: larger after each start of the sender's daemon.
    sequence: one more in each hello of one incarnation, modulo 2^32.
    interval_ms: time between hellos of the sender; 1 to MOST_INTERVAL_MS.
    digest: of the sender's link-state database; 0 without one.
    heard: nodes and their incarnations.
    """

    sender: int
    incarnation: int
    sequence: int
    interval_ms: int
    digest: int
    heard: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Advertisement:
    """Live links of `origin`; of several advertisements the largest sequence is the newest.

    lifetime_ms: remaining validity.
    links: as pack_links() returns them, because nodes store and forward links far more often than
        they read them.
    """

    origin: int
    sequence: int
    lifetime_ms: int
    links: bytes


@dataclass(frozen=True, slots=True)
class LinkStates:
    """Advertisements that `sender` forwards."""

    sender: int
    advertisements: tuple[Advertisement, ...]


@dataclass(frozen=True, slots=True)
class Summary:
    """Contents of the sender's database; `target` answers with missing and newer advertisements.

    first, last: range of origins, both included.
    entries: (origin, sequence, check sum of the links).
    """

    sender: int
    target: int
    first: int
    last: int
    entries: tuple[tuple[int, int, int], ...]


class Probe(NamedTuple):
    """Path probe from `source` to `destination`: is the path up, and what is its highest load?

    sender, target: neighbours that forward the probe or its answer.
    token: number of the source's own, returned in the answer.
    way: candidate path, as numbered in daemons/routing/proxy_addresses.py.
    load: highest load of the ports by which the path leaves a server so far; in any one unit.
    verdict: ASKING in a probe, CONNECTED or BROKEN in an answer.
    urgent: 1 if probe and answer wake the servers on their way, else 0.
    visited: servers so far, the source first; the answer takes them in reverse.
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
    """Report to the first of `visited` that its paths use a dead hop, from `near` to `far`.

    sender, target: neighbours that forward the report, back along `visited`, which ends at `near`.
    """

    sender: int
    target: int
    near: int
    far: int
    visited: tuple[int, ...]


DaemonMessage = Hello | LinkStates | Summary | Probe | HopDied


def is_ours(payload: bytes) -> bool:
    """Return True if `payload` begins with our magic and version, and has a sender."""
    return payload.startswith(START) and len(payload) >= SENDER.stop


def hello_body(
    sender: int, incarnation: int, interval_ms: int, digest: int, heard: Iterable[tuple[int, int]]
) -> bytes:
    """Return a hello without its last field, the sequence number, which alone changes each time."""
    entries = [HEARD.pack(*entry) for entry in heard]
    fixed = HELLO_FIXED.pack(
        MAGIC, VERSION, HELLO, sender, incarnation, interval_ms, digest, len(entries)
    )
    return fixed + b"".join(entries)


def encode(message: DaemonMessage) -> bytes:
    """Return `message` as bytes; struct.error if a value does not fit its field."""
    match message:
        case Hello(sender, incarnation, sequence, interval_ms, digest, heard):
            body = hello_body(sender, incarnation, interval_ms, digest, heard)
            return body + SEQUENCE.pack(sequence)
        case LinkStates():
            return _encode_link_states(message)
        case Summary(sender, target, first, last, entries):
            fixed = SUMMARY_FIXED.pack(
                MAGIC, VERSION, SUMMARY, sender, target, first, last, len(entries)
            )
            return fixed + b"".join([ENTRY.pack(*entry) for entry in entries])
        case Probe(sender, target, source, destination, token, way, load, verdict, urgent, visited):
            path = (source, destination, token, way, load, verdict, urgent, len(visited))
            fixed = PROBE_FIXED.pack(MAGIC, VERSION, PROBE, sender, target, *path)
            return fixed + _pack_visited(visited)
        case HopDied(sender, target, near, far, visited):
            fixed = HOP_DIED_FIXED.pack(
                MAGIC, VERSION, HOP_DIED, sender, target, near, far, len(visited)
            )
            return fixed + _pack_visited(visited)


def _pack_visited(nodes: Iterable[int]) -> bytes:
    return b"".join([VISITED.pack(node) for node in nodes])


def _encode_link_states(message: LinkStates) -> bytes:
    advertisements = message.advertisements
    fixed = LINK_STATES_FIXED.pack(MAGIC, VERSION, LINK_STATES, message.sender, len(advertisements))
    parts = [fixed]
    for advertisement in advertisements:
        parts.append(
            ADVERTISEMENT.pack(
                advertisement.origin,
                advertisement.sequence,
                advertisement.lifetime_ms,
                len(advertisement.links) // LINK.size,
            )
        )
        parts.append(advertisement.links)
    return b"".join(parts)


def decode(payload: bytes, nodes: int = 1 << 32) -> DaemonMessage | None:
    """Return the message in `payload`; None for a type that is not of this module.

    Args:
        payload: of a UDP packet.
        nodes: number of nodes of the network.

    Raises:
        MalformedMessage: no message, or a probe or report that names a node from `nodes` on.
    """
    message = decoded(payload, _DECODERS)
    if isinstance(message, Probe):
        within((message.sender, message.source, message.destination, *message.visited), nodes)
    elif isinstance(message, HopDied):
        within((message.sender, message.near, message.far, *message.visited), nodes)
    return message


def within(numbers: Iterable[int], nodes: int) -> None:
    """Raise MalformedMessage unless all of `numbers` are below `nodes`."""
    for number in numbers:
        if not 0 <= number < nodes:
            raise MalformedMessage(f"there is no node {number}, only 0 to {nodes - 1}")


def decoded(payload: bytes, decoders: Mapping[int, Callable[[bytes], Decoded]]) -> Decoded | None:
    """Return the message in `payload`, by the decoder of its type; None without a decoder.

    Raises:
        MalformedMessage: another header, or a message that is cut short.
    """
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
    """Return (port, neighbour) of each link as the `links` of an Advertisement."""
    return b"".join([LINK.pack(*link) for link in links])


def unpack_links(links: bytes) -> Iterator[tuple[int, int]]:
    """Yield (port, neighbour) of each link in the `links` of an Advertisement."""
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
    advertisements = []
    end = LINK_STATES_FIXED.size
    for _ in range(count):
        origin, sequence, lifetime_ms, links = ADVERTISEMENT.unpack_from(payload, end)
        begin = end + ADVERTISEMENT.size
        end = begin + links * LINK.size
        _require(end <= len(payload))
        advertisements.append(Advertisement(origin, sequence, lifetime_ms, payload[begin:end]))
    _require(end == len(payload))
    return LinkStates(sender, tuple(advertisements))


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


def _visited(payload: bytes, offset: int, count: int) -> tuple[int, ...]:
    _require(len(payload) == offset + count * VISITED.size and 0 < count <= MOST_VISITED)
    return tuple(node for (node,) in VISITED.iter_unpack(payload[offset:]))


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
    """Yield `advertisements` as LinkStates messages of at most PAYLOAD_BYTES.

    An advertisement that alone is longer has a message of its own.
    """
    batch: list[Advertisement] = []
    batch_bytes = LINK_STATES_FIXED.size
    for advertisement in advertisements:
        more_bytes = ADVERTISEMENT.size + len(advertisement.links)
        if batch and batch_bytes + more_bytes > PAYLOAD_BYTES:
            yield encode(LinkStates(sender, tuple(batch)))
            batch = []
            batch_bytes = LINK_STATES_FIXED.size
        batch.append(advertisement)
        batch_bytes += more_bytes
    if batch:
        yield encode(LinkStates(sender, tuple(batch)))


def summaries(sender: int, target: int, entries: Sequence[tuple[int, int, int]]) -> Iterator[bytes]:
    """Yield `entries`, sorted by origin, as Summary messages that together cover all origins.

    Messages have at most PAYLOAD_BYTES.
    """
    most = (PAYLOAD_BYTES - SUMMARY_FIXED.size) // ENTRY.size
    first = 0
    for begin in range(0, len(entries) or 1, most):
        batch = tuple(entries[begin : begin + most])
        last = batch[-1][0] if begin + most < len(entries) else 0xFFFFFFFF
        yield encode(Summary(sender, target, first, last, batch))
        first = last + 1
