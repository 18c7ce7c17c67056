"""A host's endpoint of the purified transport: all its messages, and the pace of data and pulls.

The caller passes in packets that arrive and calls poll() at deadline(); poll() returns the packets
to send.  All times are integers in nanoseconds.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from typing import NamedTuple

from tests.daemons.transport.incoming import Incoming
from tests.daemons.transport.outgoing import OutgoingMessage
from tests.daemons.transport.packets import Ack, Data, Nack, Pull, TransportPacket
from weft.daemons.transport.endpoint import (
    HEADER_BYTES,
    MOST_INCOMING,
    MOST_INCOMING_OF_PEER,
    Delivered,
    EndpointCounters,
    Finished,
    Parameters,
)


class Transmission(NamedTuple):
    """`packet` goes to host `peer`, with this much payload.

    Data without any is a question (outgoing.py).
    """

    peer: int
    packet: TransportPacket
    payload_bytes: int
    retransmitted: bool = False


class _Pace:
    """Time at which the next packet of a kind is due, at a limited rate."""

    def __init__(self, burst_ns: int) -> None:
        self.due, self._burst_ns = 0, burst_ns

    def took(self, now: int, gap_ns: int) -> None:
        self.due = max(self.due, now - self._burst_ns) + gap_ns


class Endpoint:
    """The transport of one host.

    events: what has come to an end, the caller's to take away.
    """

    def __init__(self, parameters: Parameters) -> None:
        self.parameters, self.counters = parameters, EndpointCounters()
        self.events: list[Delivered | Finished] = []
        self.outgoing: dict[int, OutgoingMessage] = {}  # by flow
        self._active: dict[int, OutgoingMessage] = {}  # those that are not done
        # By peer and flow, in the order in which they were heard; complete ones answer duplicates.
        self.incoming: OrderedDict[tuple[int, int], Incoming] = OrderedDict()
        self._incoming_of: Counter[int] = Counter()  # messages by peer
        self._gap_ns = parameters.gap_ns(parameters.frame_bytes)
        self._sending, self._pulling = (_Pace(parameters.burst * self._gap_ns) for _ in range(2))
        self._answers: deque[Transmission] = deque()
        self._senders: deque[OutgoingMessage] = deque()
        self._peers: deque[int] = deque()  # from which something is to be pulled
        self._wanted: dict[int, deque[Incoming]] = {}  # by peer
        self._timer: int | None = None  # no deadline of a message is earlier

    def send(self, now: int, flow: int, peer: int, size_bytes: int) -> None:
        """Begin to send a message to host `peer`.

        ValueError if the number `flow` is in use, or the size is out of range.
        """
        if flow in self.outgoing:
            raise ValueError(f"transport: flow {flow} has been used")
        self.outgoing[flow] = self._active[flow] = message = OutgoingMessage(
            flow, peer, size_bytes, self.parameters, now
        )
        self._list(message)

    def receive(
        self, now: int, peer: int, packet: TransportPacket, whole: bool, congested: bool = False
    ) -> None:
        """Handle a packet from host `peer`.

        Args:
            now: time, in ns.
            peer: the sender.
            packet: the packet.
            whole: False for data without its payload.
            congested: marked, or trimmed before a link between switches.
        """
        if packet.layer >= self.parameters.layers:
            self.counters.strange += 1
            return
        if isinstance(packet, Data):
            self._receive_data(now, peer, packet, whole, congested)
            return
        message = self.outgoing.get(packet.flow)
        if not message or message.peer != peer:
            self.counters.strange += 1
            return
        if message.done or message.failed:
            return
        match packet:
            case Ack():
                message.acknowledged(packet, now)
            case Nack():
                message.refused(packet, now)
            case Pull():
                message.pulled(packet, now)
        if message.done:
            del self._active[packet.flow]
            self.events.append(Finished(peer, packet.flow, now, None))
        self._list(message)

    def poll(self, now: int) -> list[Transmission]:
        """Return the packets to send now: probes and answers, then pulls, then data that is due."""
        frames: list[Transmission] = []
        if self._timer is not None and self._timer <= now:
            self._expire(now, frames)
        frames += self._answers
        self._answers.clear()
        while self._peers and self._pulling.due <= now:
            self._pull(now, frames)
        while self._senders and self._sending.due <= now:
            self._send(now, frames)
        return frames

    def deadline(self) -> int | None:
        """Return the time of the next poll(), in the past for at once.

        None: not before a packet arrives.
        """
        if self._answers:
            return 0
        times = [self._pulling.due] if self._peers else []
        times += [self._sending.due] if self._senders else []
        times += [] if self._timer is None else [self._timer]
        return min(times, default=None)

    def _receive_data(self, now: int, peer: int, data: Data, whole: bool, congested: bool) -> None:
        message = self.incoming.get((peer, data.flow)) or self._begin(now, peer, data)
        if not message:
            return
        if not message.belongs(data, whole):
            self.counters.strange += 1
            return
        message.heard_at = now
        self.incoming.move_to_end((peer, data.flow))
        self.counters.data += whole
        self.counters.headers += not whole
        was_done, duplicates = message.done, message.duplicates
        self._answers.append(Transmission(peer, message.arrive(data, whole, congested), 0))
        self.counters.duplicates += message.duplicates - duplicates
        if message.done and not was_done:
            self.events.append(Delivered(peer, data.flow, message.size_bytes, now))
        if message.queued and not message.listed:
            message.listed = True
            wanted = self._wanted.setdefault(peer, deque())
            if not wanted:
                self._peers.append(peer)
            wanted.append(message)

    def _begin(self, now: int, peer: int, data: Data) -> Incoming | None:
        """Return the new message of `data`; count the packet if it cannot be one."""
        self._forget(now)
        if len(self.incoming) >= MOST_INCOMING or self._incoming_of[peer] >= MOST_INCOMING_OF_PEER:
            self.counters.refused += 1
            return None
        try:
            message = Incoming(peer, data, now)
        except ValueError:
            self.counters.strange += 1
            return None
        self.incoming[peer, data.flow] = message
        self._incoming_of[peer] += 1
        return message

    def _forget(self, now: int) -> None:
        """Forget the messages that have been silent for a lifetime."""
        while self.incoming:
            key, message = next(iter(self.incoming.items()))
            if message.listed or now - message.heard_at <= self.parameters.lifetime_ns:
                return
            del self.incoming[key]
            self._incoming_of[message.peer] -= 1

    def _pull(self, now: int, frames: list[Transmission]) -> None:
        """Pull a packet from the host that waits longest, or cross out what has come without."""
        peer = self._peers.popleft()
        wanted = self._wanted[peer]
        message = wanted.popleft()
        if message.queued:
            frames.append(Transmission(peer, message.pull(), 0))
            self.counters.pulls += 1
            self._pulling.took(now, self._gap_ns)
        message.listed = message.queued > 0
        if message.listed:
            wanted.append(message)
        if wanted:
            self._peers.append(peer)

    def _send(self, now: int, frames: list[Transmission]) -> None:
        """Send a packet of the message that waits longest, or cross it out."""
        message = self._senders.popleft()
        message.listed = False
        if not message.may_send:
            return
        before = message.retransmissions
        data = message.send(now)
        self.counters.sent += 1
        again = message.retransmissions > before
        self.counters.retransmissions += again
        frames.append(Transmission(message.peer, data, data.own_bytes, again))
        self._sending.took(now, self.parameters.gap_ns(HEADER_BYTES + data.own_bytes))
        self._wake(now + message.timeout_ns(now))
        self._list(message)

    def _expire(self, now: int, frames: list[Transmission]) -> None:
        """Ask after the packets whose deadline has come."""
        self._timer = None
        for message in list(self._active.values()):
            is_new = not message.bad_layers
            if (at := message.deadline()) is not None and at <= now:
                for data in message.expire(now):
                    frames.append(Transmission(message.peer, data, 0))
                    self.counters.timeouts += 1
                if message.failed:
                    del self._active[message.flow]
                    self.events.append(Finished(message.peer, message.flow, now, message.failed))
                    continue
            if (at := message.deadline()) is not None:
                self._wake(at)
            if message.bad_layers:
                if not is_new and message.probes_at <= now:
                    frames += [Transmission(message.peer, data, 0) for data in message.probe()]
                    is_new = True
                if is_new:
                    message.probes_at = now + self.parameters.timeout_ns
                self._wake(message.probes_at)

    def _wake(self, at: int) -> None:
        self._timer = at if self._timer is None else min(self._timer, at)

    def _list(self, message: OutgoingMessage) -> None:
        if message.may_send and not message.listed:
            message.listed = True
            self._senders.append(message)
