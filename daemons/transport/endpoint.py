"""An endpoint of the purified transport: headers of its packets, parameters, and what it reports.

Every packet begins with 22 bytes, big-endian, which behind Ethernet, IPv4 and UDP headers make a
frame of 64; of data, payload follows.  A switch that trims leaves these 64 bytes: what is cut off
is seen by the length alone.

| bytes | field    | data, kind 1             | ack, 2         | nack, 3        | pull, 4        |
|-------|----------|--------------------------|----------------|----------------|----------------|
| 1     | magic    | 0x6e                     | 0x6e           | 0x6e           | 0x6e           |
| 1     | kind     | 1                        | 2              | 3              | 4              |
| 1     | layer    | of the routes it takes   | of the packet  | of the packet  | of the last    |
|       |          |                          |                |                | packet         |
| 1     | detail   | window: packets unasked  | 1: was marked  | 1: another     | 0              |
|       |          |                          |                | layer may help |                |
| 4     | flow     | number of the message, which its sender uses once                            |
| 4     | sequence | of the packet, from 0    | of the packet  | of the packet  | 0              |
| 8     | number   | bytes of the message     | pulls so far   | pulls so far   | pulls so far   |
| 2     | payload  | bytes in each packet but | 0              | 0              | 0              |
|       |          | the last, with the rest  |                |                |                |

An ack says that a packet has come whole, a nack that only its header has.  No other layer helps
where a packet was trimmed before the link of its destination.  Pulls are the packets of the message
beyond its window that were asked for since it began, so that the next pull makes good a lost one.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

HEADER = struct.Struct(">BBBBIIQH")
LOWER_BYTES = 42  # Ethernet, IPv4 and UDP headers
HEADER_BYTES = LOWER_BYTES + HEADER.size  # of a frame: what a switch leaves when it trims

# Code points of the packets' DS field (RFC 2474), of those for local use.  SAI's proposal for
# packet trimming tells by them, too, whether a packet was trimmed before a link of a host (5 in its
# example) or between switches (7).
TRIMMABLE, CONTROL, TRIMMED, TRIMMED_AT_HOST = 3, 11, 7, 5


WINDOW = 8  # packets
MOST_WINDOW, MOST_LAYERS, MOST_SPRITZ_LAYERS = 255, 256, 64
MOST_PACKETS = 1 << 24  # of a message
MOST_INCOMING, MOST_INCOMING_OF_PEER = 1 << 17, 1 << 14  # messages that a receiver remembers
LONGEST_BACKOFF = 4  # doublings of the timeout
TIMEOUT_FRAMES, LEAST_TIMEOUT_NS = 400, 1_000_000


class Backoff(IntEnum):
    """Units of timeouts in a row, each of which doubles the next.

    PACKET: each packet that is late; the packets of a lost window count one after the other.
    WINDOW: all packets that were sent before the last timeout, together.
    """

    PACKET = 0
    WINDOW = 1


class LayerChoice(IntEnum):
    """Rules for the layer of a packet, as in packet_layers.h.

    FLOW: that of its message, which leaves a layer after a refusal or a silence (FatPaths).
    BLIND: a random one.
    REPS: one that an acknowledgement without a mark came from, once (Bonato et al. 2024).
    SCOUT: the last such one, until an answer is bad.
    SPRAY: all such ones in turn.  Both after Spritz (Bonato et al. 2026).
    MRC: all in turn, but those with a silence, which are probed (arXiv 2605.04333).
    """

    FLOW = 0
    BLIND = 1
    REPS = 2
    SCOUT = 3
    SPRAY = 4
    MRC = 5


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """rate_bps: of the host's link: data leaves, and is pulled, no faster.

    frame_bytes: of a full packet on the link.
    window: packets of each message that are sent without being asked for (FatPaths: 8; NDP's
        authors: 23).
    layers: among which data is moved, 1 for none; or entropy values of packets.
    timeout_ns: silence after which a sender asks what became of a packet: the last resort, where
        its header was lost.
    attempts: timeouts in a row, each up to 16 times as long, after which a message is given up.
    burst: packets by which sending and pulling may lag behind their rate and catch up at once, for
    timers that are late.
    seed: of the draws of layers.
    choice: of the layer of each packet.
    backoff: what counts as one timeout in a row.
    """

    rate_bps: int
    frame_bytes: int = 1514
    window: int = WINDOW
    layers: int = 1
    timeout_ns: int
    attempts: int = 10
    burst: int = 8
    seed: int = 0
    choice: LayerChoice = LayerChoice.FLOW
    backoff: Backoff = Backoff.PACKET

    def __post_init__(self) -> None:
        is_spritz = self.choice in (LayerChoice.SCOUT, LayerChoice.SPRAY)
        for name, least, most in (
            ("rate_bps", 8_000, 10**15),
            ("frame_bytes", HEADER_BYTES + 1, 65_535),
            ("window", 1, MOST_WINDOW),
            ("layers", 1, MOST_SPRITZ_LAYERS if is_spritz else MOST_LAYERS),
            ("timeout_ns", 1, 1 << 50),
            ("attempts", 1, 1_000),
            ("burst", 1, 1_000),
            ("seed", 0, (1 << 32) - 1),
        ):
            if not least <= getattr(self, name) <= most:
                raise ValueError(
                    f"transport: {name} must be {least} to {most}, got {getattr(self, name)}"
                )

    @property
    def payload_bytes(self) -> int:
        """In a full packet."""
        return self.frame_bytes - HEADER_BYTES

    @property
    def lifetime_ns(self) -> int:
        """Return the silence after which a receiver forgets a message.

        The message's sender has given it up before.
        """
        return (self.attempts + 1) * (self.timeout_ns << LONGEST_BACKOFF)

    def gap_ns(self, frame_bytes: int) -> int:
        """Return the transmission time of a frame on the link, in ns."""
        return 8_000_000_000 * frame_bytes // self.rate_bps


def timeout_ns(rate_bps: int, frame_bytes: int = 1514, *, least_ns: int = LEAST_TIMEOUT_NS) -> int:
    """Return a timeout for links of `rate_bps`.

    It is longer than a header takes behind a full queue of headers at each of a few hops, and than
    a packet takes behind those of a window for every other sender.
    """
    return max(least_ns, TIMEOUT_FRAMES * 8_000_000_000 * frame_bytes // rate_bps)


class Delivered(NamedTuple):
    """Message `flow` from host `peer` has arrived completely."""

    peer: int
    flow: int
    size_bytes: int
    at_ns: int


class Finished(NamedTuple):
    """Message `flow` to host `peer` is acknowledged, or given up for the reason `failed`."""

    peer: int
    flow: int
    at_ns: int
    failed: str | None


@dataclass
class EndpointCounters:
    """Counters of a host's endpoint.

    data, headers: packets that arrived whole, and headers that arrived alone.
    duplicates: whole packets that had arrived before.
    strange: packets of an unknown message or layer, or that contradict their message.
    refused: packets of new messages beyond the limits of a receiver's memory.
    sent: packets with payload, with the retransmissions.
    timeouts: probes for packets without an answer.
    pulls: pulls sent.
    """

    data: int = 0
    headers: int = 0
    duplicates: int = 0
    strange: int = 0
    refused: int = 0
    sent: int = 0
    retransmissions: int = 0
    timeouts: int = 0
    pulls: int = 0


def reason(peer: int, silent_ns: int, unacknowledged: int, packets: int) -> str:
    """Return the reason why a message to host `peer` was given up."""
    return (
        f"host {peer} has not answered for {silent_ns / 1e6:.0f} ms; {unacknowledged} of {packets} "
        f"packets not acknowledged"
    )
