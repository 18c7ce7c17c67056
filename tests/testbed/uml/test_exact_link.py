"""The discipline of exact links in the kernel for virtual time, against a model of a link in a few
lines, and against the chain of disciplines that links have on the real clock."""

from __future__ import annotations

import json
import sys
from collections import deque
from fractions import Fraction
from math import floor
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.testbed.uml.test_virtual_clock import inside
from weft.testbed.linux import tc

pytestmark = pytest.mark.virtual
PROGRAM = Path(__file__).with_name("exact_link.py")
FRAMES = 1500
CONTROL, HEADERS, DATA = tc.CONTROL_PRIORITY, tc.HEADER_PRIORITY, 0


class Frame(NamedTuple):
    bytes_: int
    priority: int
    sent_ns: int
    arrived_ns: int | None


class Link:
    """A link in exact arithmetic: the frames sent, and when each arrives at the other end."""

    def __init__(self, rate_bps, queue_packets, delay_us=0, header_packets=0, hop_ns=0):
        self.rate_bps = rate_bps
        self.delay_ns = 1000 * delay_us
        self.hop_ns = hop_ns
        self.room = {DATA: queue_packets, HEADERS: header_packets}
        self.waiting = {DATA: deque(), HEADERS: deque()}
        self.free_ns = Fraction(0)
        self.headers_in_a_row = 0
        self.arrivals = {}

    def give(self, number, frame):
        """Take frame `number` at the time at which it is sent."""
        self.send_until(frame.sent_ns)
        if frame.priority == CONTROL:
            self.arrivals[number] = frame.sent_ns + self.delay_ns
            return
        queue = HEADERS if frame.priority == HEADERS and self.room[HEADERS] else DATA
        if len(self.waiting[queue]) < self.room[queue]:
            self.waiting[queue].append((number, frame))
        self.send_until(frame.sent_ns)

    def send_until(self, now_ns):
        """Send what waits and begins until `now_ns`."""
        while any(self.waiting.values()) and floor(self.free_ns) <= now_ns:
            header_next = self.headers_in_a_row < tc.HEADER_SHARE or not self.waiting[DATA]
            queue = HEADERS if self.waiting[HEADERS] and header_next else DATA
            self.headers_in_a_row = self.headers_in_a_row + 1 if queue == HEADERS else 0
            number, frame = self.waiting[queue].popleft()
            begin_ns = max(self.free_ns, Fraction(frame.sent_ns))
            self.free_ns = begin_ns + Fraction(8 * 10**9 * frame.bytes_, self.rate_bps)
            self.arrivals[number] = floor(self.free_ns) + self.delay_ns

    def received(self):
        """Return when the far end has handled each frame, one after the other."""
        self.send_until(float("inf"))
        done_ns = 0
        handled = {}
        for number, arrival_ns in sorted(self.arrivals.items(), key=lambda item: item[::-1]):
            done_ns = max(done_ns, arrival_ns) + self.hop_ns
            handled[number] = done_ns if self.hop_ns else arrival_ns
        return handled


def run(kind, *, priorities=(DATA,), seed=1, **settings):
    """Return the frames that were sent over a link, and what its discipline counted."""
    drawn = {"frames": FRAMES, "seed": seed, "priorities": priorities, **settings}
    *frames, counted = json.loads(inside(sys.executable, str(PROGRAM), kind, json.dumps(drawn)))
    return [Frame(*frame) for frame in frames], counted


@pytest.mark.parametrize(
    "settings",
    [
        {"rate_bps": 10**9, "queue_packets": 20, "delay_us": 5},
        {"rate_bps": 10**7, "queue_packets": 3},
        {"rate_bps": 9_999_999_937, "queue_packets": 250, "delay_us": 1},
        {"rate_bps": 10**9, "queue_packets": 20, "delay_us": 50, "hop_ns": 9000},
        {"rate_bps": 10**9, "queue_packets": 8, "header_packets": 4, "delay_us": 7},
    ],
    ids=["1 Gbit/s", "short queue", "a prime rate", "hop", "headers"],
)
def test_every_frame_arrives_when_the_model_says(settings):
    priorities = (DATA, DATA, DATA, HEADERS, HEADERS, CONTROL)
    frames, (packets, control, drops, header_drops, longest) = run(
        "exact", priorities=priorities, **settings
    )
    link = Link(**settings)
    for number, frame in enumerate(frames):
        link.give(number, frame)
    expected = link.received()
    assert {
        number: frame.arrived_ns
        for number, frame in enumerate(frames)
        if frame.arrived_ns is not None
    } == expected
    assert packets == len(expected)
    assert control == sum(frame.priority == CONTROL for frame in frames)
    assert drops + header_drops == len(frames) - packets > 0
    assert settings["queue_packets"] <= longest
    assert longest <= settings["queue_packets"] + settings.get("header_packets", 0)
    assert (header_drops > 0) == ("header_packets" in settings)


@pytest.mark.parametrize("seed", [1, 2])
def test_frames_are_those_of_htb_and_netem_without_bursts(seed):
    """The chain gives a frame to the far end when its first bit leaves, not its last.  Now and then
    HTB sends 1 ns late."""
    settings = {"rate_bps": 10**9, "queue_packets": 20, "delay_us": 5, "seed": seed}
    (exact, exact_counted), (chain, chain_counted) = (
        run(kind, priorities=(DATA, DATA, CONTROL), **settings) for kind in ("exact", "chain")
    )
    begin_ns, chain_begin_ns = exact[0].sent_ns, chain[0].sent_ns
    late_ns = []
    for mine, other in zip(exact, chain, strict=True):
        assert (other.bytes_, other.priority) == (mine.bytes_, mine.priority)
        assert other.sent_ns - chain_begin_ns == mine.sent_ns - begin_ns
        assert (other.arrived_ns is None) == (mine.arrived_ns is None)
        if mine.arrived_ns is not None:
            frame_ns = 0 if mine.priority == CONTROL else 8 * mine.bytes_
            first_bit_ns = mine.arrived_ns - begin_ns - frame_ns
            late_ns.append(other.arrived_ns - chain_begin_ns - first_bit_ns)
    assert sorted(set(late_ns)) in ([0], [0, 1])
    assert exact_counted == chain_counted


def test_a_link_without_a_rate_delays_and_drops_nothing():
    frames, (packets, _, _, _, longest) = run("exact", delay_us=5)
    assert {frame.arrived_ns - frame.sent_ns for frame in frames} == {5000}
    assert (packets, longest) == (FRAMES, 0)


def test_a_deviation_of_the_delay_is_uniform_and_frames_overtake():
    settings = {"rate_bps": 10**9, "queue_packets": 250, "delay_us": 500}
    frames, _ = run("exact", jitter_us=400, **settings)
    link = Link(**settings)
    for number, frame in enumerate(frames):
        link.give(number, frame)
    exact = link.received()
    off_ns = [frames[number].arrived_ns - arrival_ns for number, arrival_ns in exact.items()]
    assert max(map(abs, off_ns)) <= 400_000
    assert min(off_ns) < -390_000
    assert max(off_ns) > 390_000
    assert abs(sum(off_ns) / len(off_ns)) < 30_000
    arrivals = [frames[number].arrived_ns for number in sorted(exact)]
    assert arrivals != sorted(arrivals)
