"""Messages <-> bytes, big-endian.

Every message begins with MAGIC, VERSION and its type.  Types 5 to 255 are free.  A message of a type that is not known
here is somebody else's and decodes to None; anything else that is not exactly a message is Garbage.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

MAGIC, VERSION = 0x77, 1
HELLO, LINK_STATES, SUMMARY, PROBE = 1, 2, 3, 4
PAYLOAD_BYTES = 1400  # what is split is split into messages of this size: below Ethernet's 1500 less IP and UDP

HEADER = struct.Struct(">BBB")
HELLO_FIXED = struct.Struct(">BBBIQHQH")  # header, sender, incarnation, interval_ms, digest, number heard
HEARD = struct.Struct(">IQ")  # node, incarnation
SEQUENCE = struct.Struct(">I")
LINK_STATES_FIXED = struct.Struct(">BBBIH")  # header, sender, number of advertisements
ADVERTISEMENT = struct.Struct(">IQIH")  # origin, sequence, lifetime_ms, number of links
LINK = struct.Struct(">HI")  # port, neighbour
SUMMARY_FIXED = struct.Struct(">BBBIIIIH")  # header, sender, target, first, last, number of entries
ENTRY = struct.Struct(">IQ")  # origin, sequence
PROBE_FIXED = struct.Struct(">BBBIIIIIHIBB")  # header, sender, target, and so on as in Probe; number visited
PROBE_TARGET = slice(7, 11)  # where its target lies, for those at a crossbar who need not read on
VISITED = struct.Struct(">I")


class Garbage(ValueError):
    """Bytes that are no message."""


@dataclass(frozen=True, slots=True)
class Hello:
    """`sender` lives, and at this port has of late heard the nodes in `heard`, each with its incarnation.

    incarnation: larger after each start of the sender's daemon.
    sequence: larger in each hello of one incarnation.
    interval_ms: how often the sender says so; at least 1.
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
    links: (port, neighbour) of each.
    """

    origin: int
    sequence: int
    lifetime_ms: int
    links: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class LinkStates:
    """Advertisements that `sender` passes on."""

    sender: int
    advertisements: tuple[Advertisement, ...]


@dataclass(frozen=True, slots=True)
class Summary:
    """What `sender` has of the origins `first` to `last`, both included, for `target` to send what is missing or newer.

    entries: (origin, sequence).
    """

    sender: int
    target: int
    first: int
    last: int
    entries: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Probe:
    """How is the path from `source` to `destination` by way of `way`?  `sender` passes the question, or the answer, on
    to `target`.

    token: the source's own, comes back with the answer.
    way: which of the paths, as daemons/routing/via.py numbers them.
    load: the greatest of the ports that the path leaves a server by, so far; in any one unit.
    verdict: ASKING on the way there, CONNECTED or BROKEN on the way back.
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
    visited: tuple[int, ...]


ASKING, CONNECTED, BROKEN = 0, 1, 2

Message = Hello | LinkStates | Summary | Probe


def hello_body(sender: int, incarnation: int, interval_ms: int, digest: int, heard: Iterable[tuple[int, int]]) -> bytes:
    """A hello without its sequence number, which comes last: what does not change from one hello to the next."""
    listed = [HEARD.pack(*entry) for entry in heard]
    fixed = HELLO_FIXED.pack(MAGIC, VERSION, HELLO, sender, incarnation, interval_ms, digest, len(listed))
    return fixed + b"".join(listed)


def encode(message: Message) -> bytes:
    """`message` as bytes; struct.error if a field has no room."""
    match message:
        case Hello(sender, incarnation, sequence, interval_ms, digest, heard):
            return hello_body(sender, incarnation, interval_ms, digest, heard) + SEQUENCE.pack(sequence)
        case LinkStates(sender, advertisements):
            parts = [LINK_STATES_FIXED.pack(MAGIC, VERSION, LINK_STATES, sender, len(advertisements))]
            for each in advertisements:
                parts.append(ADVERTISEMENT.pack(each.origin, each.sequence, each.lifetime_ms, len(each.links)))
                parts += [LINK.pack(*link) for link in each.links]
            return b"".join(parts)
        case Summary(sender, target, first, last, entries):
            fixed = SUMMARY_FIXED.pack(MAGIC, VERSION, SUMMARY, sender, target, first, last, len(entries))
            return fixed + b"".join([ENTRY.pack(*entry) for entry in entries])
        case Probe(sender, target, source, destination, token, way, load, verdict, visited):
            path = (source, destination, token, way, load, verdict, len(visited))
            fixed = PROBE_FIXED.pack(MAGIC, VERSION, PROBE, sender, target, *path)
            return fixed + b"".join([VISITED.pack(node) for node in visited])


def decode(payload: bytes) -> Message | None:
    """The message that `payload` is, None if its type is not known here; Garbage if it is none."""
    try:
        magic, version, kind = HEADER.unpack_from(payload)
        if (magic, version) != (MAGIC, VERSION):
            raise Garbage(f"begins with {payload[:2].hex()}, expected {MAGIC:02x}{VERSION:02x}")
        return _DECODERS[kind](payload) if kind in _DECODERS else None
    except struct.error as error:
        raise Garbage(f"{len(payload)} bytes: {error}") from None


def _hello(payload: bytes) -> Hello:
    *_, sender, incarnation, interval_ms, digest, count = HELLO_FIXED.unpack_from(payload)
    end = HELLO_FIXED.size + count * HEARD.size
    _require(len(payload) == end + SEQUENCE.size and interval_ms > 0)
    heard = tuple(HEARD.iter_unpack(payload[HELLO_FIXED.size : end]))
    return Hello(sender, incarnation, SEQUENCE.unpack_from(payload, end)[0], interval_ms, digest, heard)


def _link_states(payload: bytes) -> LinkStates:
    *_, sender, count = LINK_STATES_FIXED.unpack_from(payload)
    at, found = LINK_STATES_FIXED.size, []
    for _ in range(count):
        origin, sequence, lifetime_ms, links = ADVERTISEMENT.unpack_from(payload, at)
        at += ADVERTISEMENT.size
        end = at + links * LINK.size
        _require(end <= len(payload))
        found.append(Advertisement(origin, sequence, lifetime_ms, tuple(LINK.iter_unpack(payload[at:end]))))
        at = end
    _require(at == len(payload))
    return LinkStates(sender, tuple(found))


def _summary(payload: bytes) -> Summary:
    *_, sender, target, first, last, count = SUMMARY_FIXED.unpack_from(payload)
    _require(len(payload) == SUMMARY_FIXED.size + count * ENTRY.size)
    return Summary(sender, target, first, last, tuple(ENTRY.iter_unpack(payload[SUMMARY_FIXED.size :])))


def _probe(payload: bytes) -> Probe:
    *_, sender, target, source, destination, token, way, load, verdict, count = PROBE_FIXED.unpack_from(payload)
    _require(len(payload) == PROBE_FIXED.size + count * VISITED.size and verdict <= BROKEN and count > 0)
    visited = tuple(node for (node,) in VISITED.iter_unpack(payload[PROBE_FIXED.size :]))
    return Probe(sender, target, source, destination, token, way, load, verdict, visited)


def _require(well_formed: bool) -> None:
    if not well_formed:
        raise Garbage("lengths do not fit")


_DECODERS: dict[int, Callable[[bytes], Message]] = {
    HELLO: _hello,
    LINK_STATES: _link_states,
    SUMMARY: _summary,
    PROBE: _probe,
}


def packed(sender: int, advertisements: Iterable[Advertisement]) -> Iterator[bytes]:
    """`advertisements` as LinkStates messages of at most PAYLOAD_BYTES, unless one alone is longer."""
    batch: list[Advertisement] = []
    size = LINK_STATES_FIXED.size
    for each in advertisements:
        more = ADVERTISEMENT.size + len(each.links) * LINK.size
        if batch and size + more > PAYLOAD_BYTES:
            yield encode(LinkStates(sender, tuple(batch)))
            batch, size = [], LINK_STATES_FIXED.size
        batch.append(each)
        size += more
    if batch:
        yield encode(LinkStates(sender, tuple(batch)))


def summaries(sender: int, target: int, entries: Sequence[tuple[int, int]]) -> Iterator[bytes]:
    """`entries`, in order of origin, as Summary messages of at most PAYLOAD_BYTES that together cover all origins."""
    most = (PAYLOAD_BYTES - SUMMARY_FIXED.size) // ENTRY.size
    first = 0
    for at in range(0, len(entries) or 1, most):
        batch = tuple(entries[at : at + most])
        last = batch[-1][0] if at + most < len(entries) else 0xFFFFFFFF
        yield encode(Summary(sender, target, first, last, batch))
        first = last + 1
