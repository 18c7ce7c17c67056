"""One flow of simulated TCP, of which a test carries each segment."""

from __future__ import annotations

from collections.abc import Iterator
from ctypes import (
    CDLL,
    POINTER,
    Structure,
    byref,
    c_uint8,
    c_uint32,
    c_uint64,
    c_void_p,
    create_string_buffer,
)
from itertools import chain

from weft.testbed.packets.network import RENO, TcpCounters, TcpParameters

SYN, DATA, ACK = 1, 3, 4  # enum of tcp_machine.h
MOST_ANSWERS = 2
RTT_NS = 100_000
NEVER = 2**64 - 1


class Segment(Structure):
    """struct tcp_segment."""

    _fields_ = (
        *((name, c_uint32) for name in ("flow", "sequence", "stamp_ms", "window")),
        *(
            (name, c_uint8)
            for name in (
                *("kind", "n_blocks", "layer", "reduced"),
                *("congested", "repeated", "marked", "capable"),
            )
        ),
        ("blocks", c_uint32 * 6),
    )


ARENA = create_string_buffer(32)  # struct arena: memory of all flows, until the tests end


class Flow:
    """A flow whose segments a test carries by hand."""

    def __init__(
        self,
        library: CDLL,
        ecn: int,
        *,
        size_bytes: int = 1_000_000,
        is_open: bool = True,
        **parameters: int,
    ) -> None:
        self.library, self.now = library, 0
        library.tcp_new.restype = c_void_p
        library.tcp_new.argtypes = [POINTER(TcpParameters), c_uint32, c_void_p]
        library.tcp_sender_deadline.restype = c_uint64
        library.tcp_counters.restype = POINTER(TcpCounters)
        values = {"rto_min_ns": 200_000, "jiffy_ns": 200_000, "frame_bytes": 9_000, **parameters}
        parameters_of = TcpParameters(ecn=ecn, one_message=is_open, **{"recovery": RENO, **values})
        self.flow = c_void_p(library.tcp_new(byref(parameters_of), 0, ARENA))
        if is_open:
            library.tcp_open(self.flow, c_uint64(0), c_uint64(RTT_NS))
        self.write(size_bytes)

    def write(self, size_bytes: int) -> None:
        """Add a message."""
        self.library.tcp_write(self.flow, c_uint64(self.now), c_uint64(size_bytes))

    def segments(self) -> Iterator[Segment]:
        """Yield the segments that the sender sends now, each the same object with other values."""
        segment = Segment()
        while self.library.tcp_next(self.flow, c_uint64(self.now), byref(segment)):
            self.library.tcp_sent(self.flow, c_uint64(self.now), byref(segment))
            yield segment
        self.library.tcp_pause(self.flow, c_uint64(self.now))

    def send(self) -> list[int]:
        """Return the packets that the sender sends now."""
        return [segment.sequence for segment in self.segments()]

    def answer(
        self,
        sequence: int,
        *blocks: tuple[int, int],
        congested: bool = False,
        repeated: bool = False,
        stamp_ms: int | None = None,
    ) -> list[int]:
        """Acknowledge the packets before `sequence`, and `blocks`; return what is sent then.

        repeated: the first block has arrived before.  stamp_ms: echo of a time stamp; that of now.
        """
        self.now += RTT_NS // 10
        if stamp_ms is None:
            stamp_ms = self.stamp_ms
        ack = Segment(0, sequence, stamp_ms, 10_000, ACK, congested=congested, repeated=repeated)
        ack.n_blocks = len(blocks)
        for number, value in enumerate(chain.from_iterable(blocks)):
            ack.blocks[number] = value
        self.library.tcp_answered(self.flow, c_uint64(self.now), byref(ack))
        return self.send()

    @property
    def stamp_ms(self) -> int:
        """Return the time stamp of a packet that is sent now."""
        return self.now // 10**6 + 1

    def take(self, data: Segment) -> list[Segment]:
        """Return the answers to a segment at the receiver."""
        answers = (Segment * MOST_ANSWERS)()
        now = c_uint64(self.now)
        return list(answers)[: self.library.tcp_receive(self.flow, now, byref(data), answers)]

    def receive(
        self, sequence: int, stamp_ms: int = 0, kind: int = DATA, **fields: int
    ) -> Segment | None:
        """Return the last answer to a packet, which may be marked unless `fields` say other."""
        values = {"capable": 1, **fields}
        answers = self.take(Segment(sequence=sequence, stamp_ms=stamp_ms, kind=kind, **values))
        return answers[-1] if answers else None

    def label(self, *, of_receiver: bool = False) -> int:
        """Return how often an end has drawn its flow label."""
        return int(self.library.tcp_label(self.flow, of_receiver) & 0xFF)

    @property
    def counters(self) -> TcpCounters:
        """Return the flow's counters."""
        return TcpCounters.from_buffer_copy(self.library.tcp_counters(self.flow).contents)

    def expire(self) -> list[int]:
        """Let the sender's timer expire; return what is sent then."""
        self.now = self.library.tcp_sender_deadline(self.flow)
        self.library.tcp_expire(self.flow, c_uint64(self.now))
        return self.send()
