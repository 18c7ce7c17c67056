"""Windows of CUBIC, against the formulas of RFC 9438 in floating point, and HyStart's rules."""

from __future__ import annotations

from collections.abc import Iterator
from ctypes import CDLL, c_uint32, c_uint64, create_string_buffer
from pathlib import Path

import pytest

from tests.testbed.packets.flow_by_hand import Flow
from weft.testbed.packets.network import CLASSIC_ECN, RACK

C, BETA = 0.4, 0.7  # RFC 9438, sections 4.1.2 and 4.6
MS_NS = 1_000_000
TICK_NS = MS_NS
RTT_NS = 100 * MS_NS
UNLIMITED = 2**31 - 1


class Window:
    """A window, and the answers that come evenly while it is in flight."""

    def __init__(self, library: CDLL, rtt_ns: int = RTT_NS) -> None:
        self.library, self.state = library, create_string_buffer(256)
        self.rtt_ns, self.now, self.packets, self.growth = rtt_ns, 0, 0, 0
        self.answers, self.held_ns = 0.0, 0
        library.cubic_reset(self.state, c_uint64(0), c_uint32(0))

    def lose(self, packets: int) -> int:
        """Return what a loss leaves of a window of `packets`."""
        self.packets, self.growth = self.library.cubic_threshold(self.state, c_uint32(packets)), 0
        return self.packets

    def sample(self, rtt_ns: int, acknowledged: int = 0, threshold: int = 0) -> bool:
        numbers = self.packets, threshold, acknowledged, acknowledged + self.packets
        return bool(
            self.library.cubic_sample(
                self.state,
                c_uint64(self.now),
                c_uint64(rtt_ns),
                c_uint64(self.held_ns),
                *map(c_uint32, numbers),
                c_uint64(TICK_NS),
            )
        )

    def pace(self, acknowledged: int) -> int:
        tick = self.now // TICK_NS + 1
        return self.library.cubic_pace(
            self.state,
            c_uint32(self.packets),
            c_uint32(acknowledged),
            c_uint64(tick),
            c_uint64(TICK_NS),
        )

    def run(self, seconds: float) -> int:
        """Let the window grow for so long; return it."""
        for _ in range(round(1000 * seconds)):
            self.now += MS_NS
            self.answers += self.packets * MS_NS / self.rtt_ns
            acknowledged, self.answers = int(self.answers), self.answers % 1
            if not acknowledged:
                continue
            pace = self.pace(acknowledged)
            if self.growth >= pace:  # from a slower pace: one packet, as Linux does
                self.growth, self.packets = 0, self.packets + 1
            self.growth += acknowledged
            self.packets += self.growth // pace
            self.growth %= pace
        return self.packets


@pytest.fixture
def window(compiled: Path) -> Iterator[Window]:
    return Window(CDLL(str(compiled)))


def test_after_a_loss_the_window_is_the_cubic_function_of_time(window: Window) -> None:
    assert window.lose(1000) == int(717 / 1024 * 1000)
    plateau_s = ((1000 - window.packets) / C) ** (1 / 3)
    window.sample(RTT_NS)
    for second in range(1, 20):
        expected = C * (second - plateau_s) ** 3 + 1000
        assert window.run(1) == pytest.approx(expected, rel=0.01)


def test_small_windows_grow_as_those_of_reno_with_the_same_beta(compiled: Path) -> None:
    window = Window(CDLL(str(compiled)), rtt_ns=10 * MS_NS)
    window.lose(20)
    window.sample(10 * MS_NS)
    per_round_trip = 3 * (1 - BETA) / (1 + BETA)  # section 4.3
    assert window.run(3) == pytest.approx(14 + 300 * per_round_trip, rel=0.03)


def test_who_loses_twice_aims_at_a_lower_plateau(window: Window) -> None:
    """Fast convergence, section 4.7."""
    window.lose(1000)
    window.sample(RTT_NS)
    window.lose(800)
    plateau = 800 * (1 + BETA) / 2
    assert window.run(((plateau - 560) / C) ** (1 / 3)) == pytest.approx(plateau, rel=0.01)


def test_a_window_of_two_is_the_least_that_a_loss_leaves(window: Window) -> None:
    assert window.lose(2) == 2


def test_before_any_loss_it_grows_by_a_twentieth_at_least(window: Window) -> None:
    window.packets = 1000
    window.sample(RTT_NS)
    assert window.pace(1) == 20
    window.lose(1000)
    window.packets = 2000  # far above the plateau, at once
    assert window.pace(1) == 100 * 2000
    window.library.cubic_reset(window.state, c_uint64(window.now), c_uint32(0))
    window.packets = 1000
    assert window.pace(1) == 20


def test_the_plateau_waits_while_nothing_is_in_flight(window: Window) -> None:
    window.lose(1000)
    window.sample(RTT_NS)
    window.run(1)
    before = window.now // TICK_NS + 1
    window.now += 5_000 * MS_NS
    now = window.now // TICK_NS + 1
    window.library.cubic_idle(window.state, c_uint64(before), c_uint64(now))
    plateau_s = ((1000 - 700) / C) ** (1 / 3)
    assert window.run(1) == pytest.approx(C * (2 - plateau_s) ** 3 + 1000, rel=0.01)


@pytest.mark.parametrize(
    ("gap_ms", "packets", "threshold", "held_ms", "ends"),
    [
        (2, 16, UNLIMITED, 0, True),
        (2, 16, UNLIMITED, 8, True),  # half of what devices may have held answers back, too
        (3, 16, UNLIMITED, 0, False),  # no train
        (2, 15, UNLIMITED, 0, False),  # too small a window
        (2, 16, 16, 0, False),  # no slow start
    ],
)
def test_a_train_of_half_a_round_trip_ends_slow_start(
    window: Window, gap_ms: int, packets: int, threshold: int, held_ms: int, ends: bool
) -> None:
    window.packets, window.held_ns = packets, held_ms * MS_NS
    assert not window.sample(RTT_NS, 1, threshold)  # a round begins
    ended = []
    while window.now < RTT_NS:
        window.now += gap_ms * MS_NS
        ended.append(window.sample(RTT_NS, 2, threshold))
    first = ended.index(True) if ends else len(ended)
    assert sum(ended) == ends  # once
    if ends:
        half_ns = (RTT_NS + held_ms * MS_NS) / 2
        assert half_ns < (first + 1) * gap_ms * MS_NS <= half_ns + gap_ms * MS_NS


@pytest.mark.parametrize(
    ("least_ms", "rise_us", "ends"),
    [
        (10, 4_000, False),
        (10, 4_001, True),
        (80, 10_000, False),
        (80, 10_001, True),  # an eighth
        (200, 16_000, False),
        (200, 16_001, True),
    ],
)
def test_a_round_trip_that_has_risen_ends_slow_start(
    window: Window, least_ms: int, rise_us: int, ends: bool
) -> None:
    window.packets = 100
    assert not window.sample(least_ms * MS_NS, 1, UNLIMITED)
    ended = []
    for _ in range(9):
        window.now += 3 * MS_NS  # no train
        ended.append(window.sample(least_ms * MS_NS + 1000 * rise_us, 200, UNLIMITED))
    assert ended == [*8 * [False], ends]


def test_one_short_round_trip_of_eight_hides_the_others(window: Window) -> None:
    window.packets = 100
    window.sample(10 * MS_NS, 1, UNLIMITED)
    for number in range(20):
        window.now += 3 * MS_NS
        rtt_ns = (12 if number == 5 else 30) * MS_NS
        assert not window.sample(rtt_ns, 200, UNLIMITED)


def test_round_trips_soon_after_a_loss_are_those_of_its_queue(window: Window) -> None:
    window.lose(1000)
    window.pace(1)  # the epoch begins
    window.sample(MS_NS)
    window.now += 999 * MS_NS
    window.sample(MS_NS)
    slow = window.pace(1)
    window.now += 1 * MS_NS
    window.sample(10 * RTT_NS)
    window.now += 40 * MS_NS
    assert window.pace(1) < slow  # a target ten round trips away


def test_each_round_has_samples_and_a_train_of_its_own(window: Window) -> None:
    """The first round's short round trips say nothing of the second one's queue."""
    window.packets = 100
    for acknowledged in (1, *8 * [50]):  # the round ends with packet 101
        window.now += 3 * MS_NS
        assert not window.sample(10 * MS_NS, acknowledged, UNLIMITED)
    ended = []
    for acknowledged in (102, *8 * [150]):
        window.now += 3 * MS_NS
        ended.append(window.sample(30 * MS_NS, acknowledged, UNLIMITED))
    assert ended == [*8 * [False], True]


@pytest.fixture
def flow(compiled: Path) -> Flow:
    library = CDLL(str(compiled))
    rto_min_ns = 100_000 * MS_NS  # no timeout, and no rest that ends a window
    return Flow(library, CLASSIC_ECN, recovery=RACK, cubic=1, rto_min_ns=rto_min_ns)


class Sender:
    """A flow of which each packet is answered, and how many are in flight."""

    def __init__(self, flow: Flow) -> None:
        self.flow, self.acknowledged = flow, 0
        self.sent = len(flow.send())

    @property
    def in_flight(self) -> int:
        return self.sent - self.acknowledged

    def answer(self, packets: int, *, first_is_marked: bool = False) -> None:
        for number in range(packets):
            self.acknowledged += 1
            is_marked = first_is_marked and not number
            for packet in self.flow.answer(self.acknowledged, congested=is_marked):
                self.sent = max(self.sent, packet + 1)

    def lose_a_third(self) -> None:
        """Let a mark cut the window of 16 at which a train of answers has ended slow start."""
        self.answer(20)
        assert self.in_flight == 16
        self.answer(16, first_is_marked=True)


def test_a_mark_leaves_seven_tenths_of_a_window(flow: Flow) -> None:
    sender = Sender(flow)
    sender.lose_a_third()
    assert sender.in_flight == 11


def test_a_flow_that_rests_does_not_hurry_along_the_curve(flow: Flow) -> None:
    """20 s later the curve would be far higher, and half as many packets again would leave."""
    sender = Sender(flow)
    sender.lose_a_third()
    while sender.in_flight:
        sender.answer(1)
    flow.now += 20_000 * MS_NS
    flow.library.tcp_write(flow.flow, c_uint64(flow.now), c_uint64(1_000_000))
    sender.sent += len(flow.send())
    before = sender.in_flight
    sender.answer(before)
    assert before <= sender.in_flight <= before + 2


def test_after_a_timeout_no_loss_before_it_counts(flow: Flow) -> None:
    """Without a plateau the window grows by a twentieth, up to one it would hardly grow at all."""
    flow.library.tcp_write(flow.flow, c_uint64(0), c_uint64(100_000_000))
    sender = Sender(flow)
    sender.answer(2_500)
    window = sender.in_flight
    assert window > 80
    while sender.in_flight >= window:  # a probe, then the timeout
        sent = flow.expire()
        if sent == [sender.acknowledged]:
            break
    sender.answer(1)
    flow.answer(sender.acknowledged, (sender.sent - 2, sender.sent))  # so others were lost
    sender.answer(window)
    before = sender.in_flight
    assert before < window
    sender.answer(10 * before)
    assert sender.in_flight > 1.3 * before
