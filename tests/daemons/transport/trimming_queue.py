"""Trimming queue of a switch port and its wire (NDP, Handley et al., SIGCOMM 2017, 3.1), in Python.

Two queues share the link: a short one for data, and one with priority for trimmed headers and
control packets.  If both wait, `share` headers go for each data packet, so that neither starves.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from tests.daemons.transport.endpoint import Transmission
from tests.daemons.transport.packets import TransportPacket
from weft.daemons.transport.endpoint import (
    CONTROL,
    HEADER_BYTES,
    TRIMMABLE,
    TRIMMED,
    TRIMMED_AT_HOST,
)


class Frame(NamedTuple):
    """Packet on a link.

    src, dst: hosts.
    code_point: trimmable, trimmed, or control packet.
    waypoints: the switch that it visits first, + 1, or 0; empty until that is chosen.
    room: that it takes at the node where it is, a LinkRoom.
    """

    src: int
    dst: int
    code_point: int
    length_bytes: int
    packet: TransportPacket
    retransmitted: bool = False
    marked: bool = False
    waypoints: list[int] = []  # noqa: RUF012 - frame_of() gives each frame its own
    room: Any = None

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
    room_bytes, resume_bytes, cut_through_bytes: see struct packet_link.
    """

    rate_bps: int
    delay_ns: int = 1_000
    trim_bytes: int = 8 * 1514
    header_bytes: int = 8 * 9_000
    share: int = 10
    retransmissions_first: bool = False
    mark_packets: int = 0
    room_bytes: int = 0
    resume_bytes: int = 0
    cut_through_bytes: int = 0

    def time_ns(self, length_bytes: int) -> int:
        """Return how long the link carries so many bytes."""
        return 8_000_000_000 * length_bytes // self.rate_bps


class LinkRoom:
    """Room of a node for the frames that came over one link.

    Args:
        model: the link.
        at: (time, call), schedules a call.
        go_on: called when the sender hears of room.

    Attributes:
        held: lengths of the frames that the node holds, and the largest sum of them.
        waited_ns: time in which the sender had to wait.
    """

    def __init__(
        self,
        model: LinkModel,
        at: Callable[[int, Callable[[], None]], None],
        go_on: Callable[[int], None],
    ) -> None:
        self.held: list[int] = []
        self.most_bytes = self.waited_ns = 0
        self._model, self._at, self._go_on = model, at, go_on
        self._credit_bytes = model.room_bytes
        self._paused = self._told = False
        self._waiting_since: int | None = None

    def admits(self, now: int, length_bytes: int) -> bool:
        """Return True if a frame may be sent that needs so much room."""
        admits = not self._paused
        if not self._model.resume_bytes:
            admits = length_bytes <= self._credit_bytes
        self.stop_waiting(now)
        self._waiting_since = None if admits else now
        return admits

    def stop_waiting(self, now: int) -> None:
        """Count the time in which a frame has waited."""
        if self._waiting_since is not None:
            self.waited_ns += now - self._waiting_since
        self._waiting_since = None

    def send(self, length_bytes: int) -> None:
        """Spend credits."""
        self._credit_bytes -= length_bytes

    def take(self, now: int, length_bytes: int) -> None:
        """Hold a frame that arrives."""
        self.held.append(length_bytes)
        self.most_bytes = max(self.most_bytes, sum(self.held))
        if self._model.resume_bytes and sum(self.held) > self._model.room_bytes and not self._told:
            self._told = True
            self._notify(now, paused=True)

    def free(self, now: int, length_bytes: int) -> None:
        """Hold a frame no longer."""
        self.held.remove(length_bytes)
        if not self._model.resume_bytes:
            self._notify(now, credit_bytes=length_bytes)
        elif sum(self.held) <= self._model.resume_bytes and self._told:
            self._told = False
            self._notify(now, paused=False)

    def _notify(self, now: int, *, credit_bytes: int = 0, paused: bool = False) -> None:
        heard = now + self._model.time_ns(HEADER_BYTES) + self._model.delay_ns

        def hear() -> None:
            self._credit_bytes += credit_bytes
            self._paused = paused
            self._go_on(heard)

        self._at(heard, hear)


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
        peer: node there.
    """

    def __init__(
        self,
        model: LinkModel,
        to_host: bool,
        draw: Callable[[], float],
        at: Callable[[int, Callable[[], None]], None],
        deliver: Callable[[Frame], None],
        peer: int = -1,
    ) -> None:
        self.model = model
        self.counters = TrimmingCounters()
        self._peer, self._to_host = peer, to_host
        self.room = LinkRoom(model, at, self._go_on)
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

    def clear(self, now: int) -> None:
        """Lose all frames that wait."""
        self.room.stop_waiting(now)
        for frame in (*self._data[0], *self._data[1], *self._headers):
            if frame.room:
                frame.room.free(now, frame.length_bytes)
        for queue in (*self._data, self._headers):
            queue.clear()
        self._data_bytes, self._header_bytes = [0, 0], 0

    def trims(self, length_bytes: int, place: int) -> bool:
        """Return True if a data packet of this length would be trimmed before queue `place`."""
        if length_bytes <= HEADER_BYTES or self.model.room_bytes:
            return False
        room = self.model.trim_bytes - self._data_bytes[place] - length_bytes
        return room < 0 or (room < length_bytes and self._draw() < 0.5)

    def _put_header(self, frame: Frame) -> None:
        is_full = self._header_bytes + frame.length_bytes > self.model.header_bytes
        if is_full and not self.model.room_bytes:
            self.counters.headers_lost += 1
            return
        self._headers.append(frame)
        self._header_bytes += frame.length_bytes
        self.counters.most_header_bytes = max(self.counters.most_header_bytes, self._header_bytes)

    def _go_on(self, now: int) -> None:
        if not self._busy:
            self._serve(now)

    def _serve(self, now: int) -> None:
        """Start transmission of the next frame, if there is room for it."""
        waiting = [place for place in range(2) if self._data[place]]
        is_header = self._headers and (self._in_a_row < self.model.share or not waiting)
        self._busy = False
        if not is_header and not waiting:
            return
        queue = self._headers if is_header else self._data[waiting[0]]
        frame = queue[0]
        need = 0 if frame.dst == self._peer else frame.length_bytes
        if self.model.room_bytes and not self.room.admits(now, need):
            return
        queue.popleft()
        if is_header:
            self._header_bytes -= frame.length_bytes
            self._in_a_row += 1
        else:
            self._data_bytes[waiting[0]] -= frame.length_bytes
            self._in_a_row = 0
        self._send(now, frame, need)

    def _send(self, now: int, frame: Frame, need: int) -> None:
        self._busy = True
        self.counters.frames += 1
        self.counters.bytes_ += frame.length_bytes
        taken, following = frame.room, None
        if self.model.room_bytes and need:
            self.room.send(need)
            following = self.room
        sent = arrived = now + self.model.time_ns(frame.length_bytes)
        head = self.model.cut_through_bytes
        if head and head < frame.length_bytes and frame.dst != self._peer:
            arrived = now + self.model.time_ns(head)

        def finish() -> None:
            if taken:
                taken.free(sent, frame.length_bytes)
            self._serve(sent)

        moved = frame._replace(room=following)
        self._at(sent, finish)
        self._at(arrived + self.model.delay_ns, lambda: self._deliver(moved))


def frame_of(src: int, transmission: Transmission) -> Frame:
    """Return the frame in which host `src` sends a packet."""
    dst, packet, payload_bytes, retransmitted = transmission
    code_point = TRIMMABLE if payload_bytes else CONTROL
    return Frame(
        src, dst, code_point, HEADER_BYTES + payload_bytes, packet, retransmitted, False, []
    )
