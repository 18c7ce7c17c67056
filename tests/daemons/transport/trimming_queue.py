"""Trimming queue of a switch port and its wire (NDP, Handley et al., SIGCOMM 2017, 3.1), in Python.

Two queues share the link: a short one for data, and one with priority for trimmed headers and
control packets.  If both wait, `share` headers go for each data packet, so that neither starves.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from tests.daemons.transport.endpoint import Transmission
from weft.daemons.transport.packets import (
    CONTROL,
    HEADER_BYTES,
    TRIMMABLE,
    TRIMMED,
    TRIMMED_AT_HOST,
    TransportPacket,
)


class Frame(NamedTuple):
    """Packet on a link.

    src, dst: hosts.
    code_point: trimmable, trimmed, or control packet.
    waypoints: the switch that it visits first, + 1, or 0; empty until that is chosen.
    """

    src: int
    dst: int
    code_point: int
    length_bytes: int
    packet: TransportPacket
    retransmitted: bool = False
    marked: bool = False
    waypoints: list[int] = []  # noqa: RUF012 - frame_of() gives each frame its own

    @property
    def is_header(self) -> bool:
        """True if it goes ahead of data."""
        return self.code_point != TRIMMABLE


@dataclass(frozen=True, kw_only=True)
class LinkModel:
    """Properties of a link and its queues.

    delay_ns: propagation delay.
    trim_bytes: capacity of the data queue for what is forwarded.
    header_bytes: capacity of the header queue.
    share: headers sent for each data packet if both wait.
    retransmissions_first: retransmitted packets have a queue of their own before other data.
    mark_packets: packets in a data queue from which on those that arrive are marked; 0: never.
    """

    rate_bps: int
    delay_ns: int = 1_000
    trim_bytes: int = 8 * 1514
    header_bytes: int = 8 * 9_000
    share: int = 10
    retransmissions_first: bool = False
    mark_packets: int = 0


@dataclass
class TrimmingCounters:
    """Counters of a port: frames and bytes sent, packets trimmed, headers lost, longest queues."""

    frames: int = 0
    bytes_: int = 0
    trimmed: int = 0
    headers_lost: int = 0
    most_data_bytes: int = 0
    most_header_bytes: int = 0


class TrimmingQueue:
    """Queue and link of one port.

    A packet for the last place of the data queue is trimmed with probability 1/2, so that
    synchronized senders do not always lose the same packets.  NDP's switches trim the new packet or
    the last one in the queue, half each; queues of Linux cannot.

    Args:
        model: properties of the link.
        to_host: True if the link leads to a host.
        draw: random number in [0, 1).
        at: (time, call), schedules a call.
        deliver: called with each frame at the other end.
    """

    def __init__(
        self,
        model: LinkModel,
        to_host: bool,
        draw: Callable[[], float],
        at: Callable[[int, Callable[[], None]], None],
        deliver: Callable[[Frame], None],
    ) -> None:
        self.model = model
        self.counters = TrimmingCounters()
        self._to_host = to_host
        self._draw = draw
        self._at = at
        self._deliver = deliver
        self._data = (deque[Frame](), deque[Frame]())  # retransmitted packets, others
        self._data_bytes = [0, 0]
        self._headers: deque[Frame] = deque()
        self._header_bytes = self._in_a_row = 0
        self._busy = False

    def put(self, now: int, frame: Frame, *, own: bool = False) -> None:
        """Enqueue `frame`, trimmed if the queue requires it; a host's own is neither trimmed nor
        marked."""
        place = int(not (frame.retransmitted and self.model.retransmissions_first))
        if frame.is_header:
            self._put_header(frame)
        elif not own and self.trims(frame.length_bytes, place):
            self.counters.trimmed += 1
            code_point = TRIMMED_AT_HOST if self._to_host else TRIMMED
            self._put_header(frame._replace(code_point=code_point, length_bytes=HEADER_BYTES))
        else:
            marks_from = 0 if own else self.model.mark_packets
            if marks_from and len(self._data[place]) >= marks_from:
                frame = frame._replace(marked=True)
            self._data[place].append(frame)
            self._data_bytes[place] += frame.length_bytes
            waiting = self._data_bytes[place]
            self.counters.most_data_bytes = max(self.counters.most_data_bytes, waiting)
        if not self._busy:
            self._serve(now)

    def load(self, in_bytes: int) -> int:
        """Return the packets, or the bytes, that wait."""
        if in_bytes:
            return sum(self._data_bytes) + self._header_bytes
        return sum(map(len, (*self._data, self._headers)))

    def clear(self) -> None:
        """Lose all frames that wait."""
        for queue in (*self._data, self._headers):
            queue.clear()
        self._data_bytes, self._header_bytes = [0, 0], 0

    def trims(self, length_bytes: int, place: int) -> bool:
        """Return True if a data packet of this length would be trimmed before queue `place`."""
        if length_bytes <= HEADER_BYTES:
            return False
        room = self.model.trim_bytes - self._data_bytes[place] - length_bytes
        return room < 0 or (room < length_bytes and self._draw() < 0.5)

    def _put_header(self, frame: Frame) -> None:
        if self._header_bytes + frame.length_bytes > self.model.header_bytes:
            self.counters.headers_lost += 1
            return
        self._headers.append(frame)
        self._header_bytes += frame.length_bytes
        self.counters.most_header_bytes = max(self.counters.most_header_bytes, self._header_bytes)

    def _serve(self, now: int) -> None:
        """Start transmission of the next frame."""
        waiting = [place for place in range(2) if self._data[place]]
        if self._headers and (self._in_a_row < self.model.share or not waiting):
            frame = self._headers.popleft()
            self._header_bytes -= frame.length_bytes
            self._in_a_row += 1
        elif waiting:
            frame = self._data[waiting[0]].popleft()
            self._data_bytes[waiting[0]] -= frame.length_bytes
            self._in_a_row = 0
        else:
            self._busy = False
            return
        self._busy = True
        self.counters.frames += 1
        self.counters.bytes_ += frame.length_bytes
        sent = now + 8_000_000_000 * frame.length_bytes // self.model.rate_bps
        self._at(sent, lambda: self._serve(sent))
        self._at(sent + self.model.delay_ns, lambda: self._deliver(frame))


def frame_of(src: int, transmission: Transmission) -> Frame:
    """Return the frame in which host `src` sends a packet."""
    dst, packet, payload_bytes, retransmitted = transmission
    code_point = TRIMMABLE if payload_bytes else CONTROL
    return Frame(
        src, dst, code_point, HEADER_BYTES + payload_bytes, packet, retransmitted, False, []
    )
