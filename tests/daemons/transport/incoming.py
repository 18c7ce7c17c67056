"""A message at its receiver: what has come, and how much more to pull."""

from __future__ import annotations

from tests.daemons.transport.packets import Ack, Data, Nack, Pull, packets_of
from weft.daemons.transport.endpoint import MOST_PACKETS


class Incoming:
    """The message that `data` belongs to, from host `peer`.

    Raises ValueError if it has more packets than a message may have.  What it occupies grows with
    the packets
    that come, not with the size that the first one claims.

    A message needs as many transmissions as it has packets and as headers have come alone.  The
    window was sent unasked; the others are pulled, one for each arrival, so that as many are on
    their way as before.

    queued: pulls that wait for their turn.  listed: whether it is in line for that; its endpoint's.
    duplicates: packets that had come before.
    heard_at: time of the last packet, ns.
    """

    def __init__(self, peer: int, data: Data, now: int) -> None:
        self.peer, self.flow = peer, data.flow
        self.size_bytes, self.payload_bytes, self.window = (
            data.size_bytes,
            data.payload_bytes,
            data.window,
        )
        self.packets = packets_of(data.size_bytes, data.payload_bytes)
        if self.packets > MOST_PACKETS:
            raise ValueError(
                f"a message of {self.packets} packets, expected {MOST_PACKETS} at the most"
            )
        self.queued, self.listed, self.duplicates, self.heard_at = 0, False, 0, now
        self._received = bytearray()  # a byte for each packet up to the last that came whole
        self._left, self._trimmed, self._pulls = self.packets, 0, 0
        self._layer = data.layer

    @property
    def done(self) -> bool:
        """Return True if all packets have arrived."""
        return self._left == 0

    def belongs(self, data: Data, whole: bool) -> bool:
        """Return whether the sender of this message can have sent `data`.

        It agrees about the message.  If it is whole, it is no packet beyond the window, the pulls,
        and the questions: each of these was answered as a trimmed header, but for one that may be
        lost.
        """
        mine = (self.size_bytes, self.payload_bytes, self.window)
        sent = self.window + self._pulls + self._trimmed + 1
        return (data.size_bytes, data.payload_bytes, data.window) == mine and not (
            whole and data.sequence >= sent
        )

    def arrive(self, data: Data, whole: bool, congested: bool) -> Ack | Nack:
        """The answer to `data`, of which perhaps only the header has come.

        congested: it was marked, or trimmed before a link between switches.
        """
        self._layer = data.layer
        if self.done or (data.sequence < len(self._received) and self._received[data.sequence]):
            self.duplicates += whole
            return Ack(self.flow, data.sequence, data.layer, self._pulls, congested)
        if whole:
            self._received.extend(bytes(max(0, data.sequence + 1 - len(self._received))))
            self._received[data.sequence] = 1
            self._left -= 1
        else:
            self._trimmed += 1
        if self.done:
            self.queued = 0
        elif (
            min(self.window, self.packets) + self._pulls + self.queued
            < self.packets + self._trimmed
        ):
            self.queued += 1
        if whole:
            return Ack(self.flow, data.sequence, data.layer, self._pulls, congested)
        return Nack(self.flow, data.sequence, data.layer, self._pulls, congested)

    def pull(self) -> Pull:
        """One of those that are queued."""
        self.queued -= 1
        self._pulls += 1
        return Pull(self.flow, self._layer, self._pulls)
