"""TCP over a channel that loses, delays and reorders at random: each flow ends."""

from __future__ import annotations

import heapq
import random
from ctypes import CDLL, byref, c_uint64
from pathlib import Path

import pytest

from tests.testbed.packets.flow_by_hand import Flow, Segment
from weft.testbed.packets.network import CLASSIC_ECN, DCTCP, RACK, RENO

MS_NS = 1_000_000
MOST_EVENTS = 20_000
LOSSY = 80  # segments of a flow that may be lost or late


class Channel:
    """Both ends of a flow, and the segments between them."""

    def __init__(self, library: CDLL, seed: int, ecn: int, **parameters: int) -> None:
        self.random = random.Random(seed)
        self.packets = self.random.randint(2, 40)
        self.flow = Flow(
            library, ecn, frame_bytes=1514, size_bytes=1448 * self.packets, **parameters
        )
        self.library = library
        library.tcp_receiver_deadline.restype = c_uint64
        self.travelling: list[tuple[int, int, bool, Segment]] = []
        self.sent = 0

    def put(self, segment: Segment, *, is_data: bool) -> None:
        """Let a segment travel, unless it is lost."""
        self.sent += 1
        if self.sent < LOSSY and self.random.random() < 0.2:
            return
        late_ns = self.random.choice([0, 0, 0, 1, 5]) * MS_NS if self.sent < LOSSY else 0
        delay_ns = self.random.randint(10_000, 200_000) + late_ns
        copy = Segment.from_buffer_copy(segment)
        copy.marked = is_data and self.random.random() < 0.1
        heapq.heappush(self.travelling, (self.flow.now + delay_ns, self.sent, is_data, copy))

    def transmit(self) -> None:
        for segment in self.flow.segments():
            self.put(segment, is_data=True)

    def deliver(self) -> None:
        """Let the next segment arrive."""
        _, _, is_data, segment = heapq.heappop(self.travelling)
        if not is_data:
            self.library.tcp_answered(self.flow.flow, c_uint64(self.flow.now), byref(segment))
            return
        for answer in self.flow.take(segment):
            self.put(answer, is_data=False)

    def step(self) -> bool:
        """Handle what is next; return False if nothing is."""
        sender_ns = self.library.tcp_sender_deadline(self.flow.flow)
        receiver_ns = self.library.tcp_receiver_deadline(self.flow.flow)
        arrival_ns = self.travelling[0][0] if self.travelling else 2**64 - 1
        next_ns = min(sender_ns, receiver_ns, arrival_ns)
        if next_ns == 2**64 - 1:
            return False
        self.flow.now = max(self.flow.now, next_ns)
        now = c_uint64(self.flow.now)
        if next_ns == arrival_ns:
            self.deliver()
        elif next_ns == sender_ns:
            self.library.tcp_expire(self.flow.flow, now)
        else:
            answer = Segment()
            self.library.tcp_delayed_answer(self.flow.flow, byref(answer))
            self.put(answer, is_data=False)
        self.transmit()
        return True

    def run(self) -> bool:
        """Return True if all packets are acknowledged at last."""
        self.transmit()
        for _ in range(MOST_EVENTS):
            if self.library.tcp_acknowledged(self.flow.flow) == self.packets:
                return True
            if not self.step():
                return False
        return False


@pytest.mark.parametrize("parameters", [
    {"ecn": DCTCP, "recovery": RACK},
    {"ecn": CLASSIC_ECN, "recovery": RACK, "cubic": 1},
    {"ecn": CLASSIC_ECN, "recovery": RENO},
], ids=["dctcp", "cubic", "reno"])  # fmt: skip
def test_each_flow_ends(parameters: dict[str, int], compiled: Path) -> None:
    library = CDLL(str(compiled))
    stuck = [seed for seed in range(1_000) if not Channel(library, seed, **parameters).run()]
    assert not stuck
