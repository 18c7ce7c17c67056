"""Results of messages at a host, and counters of its endpoint."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


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
