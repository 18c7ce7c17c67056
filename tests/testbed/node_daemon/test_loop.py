"""The loop without a kernel's network: what packets cannot do to it."""

from __future__ import annotations

import fcntl
import select
import socket
from collections.abc import Iterator, Sequence
from contextlib import suppress
from math import inf
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.daemons.core.actions import NOTHING, UNCHANGED, Action, Note
from weft.daemons.core.contract import DaemonEvent, DestinationInUse
from weft.daemons.core.wire import MalformedMessage
from weft.testbed.linux import clock
from weft.testbed.node_daemon.counters import (
    COLUMNS,
    LATENESS_US,
    MOST_TRACEBACKS,
    WORDS,
    LostPackets,
    NodeCounters,
)
from weft.testbed.node_daemon.daemon import Daemon
from weft.testbed.node_daemon.loop import TURN_S, Loop, Pace
from weft.testbed.node_daemon.sealed_channel import Bare
from weft.testbed.node_daemon.sockets import SIOCGSTAMPNS, TIMESPEC
from weft.testbed.node_daemon.watchdog import ProcessorUse


class Machine:
    """Raises over a packet what the packet says."""

    deadline = inf

    def __init__(self) -> None:
        self.heard: list[bytes] = []

    def receive(self, payload: bytes, port: int, now: float) -> Sequence[Action]:
        self.heard.append(payload)
        if payload == b"garbage":
            raise MalformedMessage("no message")
        if payload.startswith(b"in "):
            self.deadline = float(payload.removeprefix(b"in "))
        if payload == b"index":
            raise IndexError("no such server")
        if payload.isdigit():
            exec(f"{chr(10) * int(payload)}raise KeyError({int(payload)})")
        return UNCHANGED if payload == b"said again" else NOTHING


@pytest.fixture
def loop_and_daemon() -> Iterator[tuple[Loop, Daemon, socket.socket, list[str]]]:
    """A loop that serves one daemon with one port, the far end of that, and the daemon's log."""
    log: list[str] = []
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    daemon = Daemon.__new__(Daemon)
    daemon.protocol, daemon.deadline, daemon.closed = Machine(), inf, False  # type: ignore[assignment]
    daemon.received = daemon.garbage = 0
    channel = Bare([1])
    daemon._counters = NodeCounters(memoryview(bytearray(8 * WORDS)).cast("Q"), 0.03)
    daemon.lost = LostPackets(daemon._counters, log.append, [channel])
    loop = Loop([])
    loop._ears[near.fileno()] = (near.recv, channel.open, daemon.protocol.receive, 0, daemon)
    loop._queued.register(near, select.EPOLLIN)
    with near, far:
        yield loop, daemon, far, log


def test_a_packet_over_which_the_state_machine_raises_is_dropped_counted_and_logged_once(
    loop_and_daemon: tuple[Loop, Daemon, socket.socket, list[str]],
) -> None:
    loop, daemon, far, log = loop_and_daemon
    sent = [b"index", b"sound", b"index", b"garbage", b"sound"]
    for payload in sent:
        far.send(payload)
    loop._hand_over(loop._read(loop._before, []), [])
    assert daemon.protocol.heard == sent  # type: ignore[attr-defined]
    assert (daemon.closed, loop.failed, daemon.garbage) == (False, 0, 1)
    assert daemon._counters._cells[COLUMNS["packets_failed"]] == 2
    assert len(log) == 1
    assert "IndexError: no such server" in log[0]


def test_a_packet_may_bring_the_deadline_forward_though_there_is_nothing_to_do(
    loop_and_daemon: tuple[Loop, Daemon, socket.socket, list[str]],
) -> None:
    loop, daemon, far, _ = loop_and_daemon
    for payload, deadline in ((b"said again", inf), (b"in 7", 7.0), (b"in 9", 7.0), (b"in 3", 3.0)):
        far.send(payload)
        loop._hand_over(loop._read(loop._before, []), [])
        assert daemon.deadline == deadline
    assert daemon.received == 4


def test_what_a_daemon_heard_that_has_gone_in_the_same_turn_is_nobodys(
    loop_and_daemon: tuple[Loop, Daemon, socket.socket, list[str]],
) -> None:
    loop, daemon, far, _ = loop_and_daemon
    far.send(b"late")
    heard = loop._read(loop._before, [])
    loop._ears.clear()
    loop._hand_over(heard, [])
    assert daemon.received == 0


def test_packets_cannot_fill_the_log(
    loop_and_daemon: tuple[Loop, Daemon, socket.socket, list[str]],
) -> None:
    loop, daemon, far, log = loop_and_daemon
    for number in range(5 * MOST_TRACEBACKS):
        far.send(b"%d" % number)
        loop._hand_over(loop._read(loop._before, []), [])
    assert daemon._counters.status()["packets_failed"] == 5 * MOST_TRACEBACKS
    assert len(log) == MOST_TRACEBACKS


@settings(max_examples=40)
@given(st.lists(st.floats(-1e9, 1e9) | st.floats(-0.5, 0.5), min_size=1, max_size=6))
def test_a_wall_clock_that_is_set_moves_no_arrival_out_of_its_turn(steps_s: list[float]) -> None:
    """The kernel stamps packets by the wall clock, which may be set at any moment."""
    step_s = 0.0
    wall = clock.wall
    with (
        mock.patch.object(clock, "wall", side_effect=lambda: wall() + step_s),
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as near,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as far,
    ):
        near.bind(("127.0.0.1", 0))
        with suppress(FileNotFoundError):
            fcntl.ioctl(near, SIOCGSTAMPNS, bytearray(TIMESPEC.size))
        loop = Loop([])
        loop._ears[near.fileno()] = (near.recv, None, None, 0, None)  # type: ignore[assignment]
        loop._queued.register(near, select.EPOLLIN)
        for change_s in steps_s:
            step_s = change_s
            before = loop._before = clock.monotonic()
            far.sendto(b"a", near.getsockname())
            far.sendto(b"b", near.getsockname())
            select.select([near], [], [], 30)
            now = clock.monotonic() + 1.0  # late enough for stamps to be read
            heard = loop._read(now, [])
            assert [frame for *_, frame in heard] == [b"a", b"b"]
            assert all(before <= at <= now for at, *_ in heard)


class Eventful(Machine):
    """Raises over an event what its destination says."""

    def event(self, event: DaemonEvent, now: float) -> Sequence[Action]:
        assert isinstance(event, DestinationInUse)
        if event.destination == 1:
            raise KeyError("no such server")
        return (Note(f"in use: {event.destination}"),)


def test_an_event_over_which_the_state_machine_raises_is_dropped_and_those_after_it_are_not(
    loop_and_daemon: tuple[Loop, Daemon, socket.socket, list[str]],
) -> None:
    """Any user's packet can make a DestinationInUse event."""
    loop, daemon, _, log = loop_and_daemon
    daemon.protocol = Eventful()  # type: ignore[assignment]
    told: list[Action] = []
    daemon.perform = told.extend  # type: ignore[method-assign]
    loop._do(daemon, daemon._tell, [DestinationInUse(number) for number in (1, 2, 1, 3)], 0.0)
    assert told == [Note("in use: 2"), Note("in use: 3")]
    assert (daemon.closed, loop.failed) == (False, 0)
    assert daemon._counters._cells[COLUMNS["packets_failed"]] == 2
    assert len(log) == 1
    assert "a DestinationInUse was dropped because it raised this exception" in log[0]
    assert "no such server" in log[0]


class Dying:
    """A daemon all of whose own decisions raise."""

    def __init__(self) -> None:
        self.closed, self.deadline, self.deaths, self.why = False, 0.0, 0, ""

    def decide(self, now: float) -> None:
        raise KeyError("what next?")

    start = tick = decide

    def note_failure(self) -> None:
        self.deaths += 1

    def close(self, why: str) -> None:
        self.closed, self.why = True, why


@pytest.mark.parametrize("turn", ["start", "turn"])
def test_a_daemon_whose_own_decision_raises_ends_counted_for_its_supervisor_to_start_another(
    turn: str,
) -> None:
    loop, daemon, other = Loop([]), Dying(), SlowDaemon()
    loop._daemons = [daemon]  # type: ignore[list-item]
    for fd, owner in enumerate((daemon, other, daemon)):
        loop._ears[fd] = (bytes, None, None, 0, owner)  # type: ignore[assignment]
    getattr(loop, turn)()
    assert (daemon.closed, daemon.deaths, daemon.why) == (True, 1, "it failed")
    assert (loop._daemons, loop.failed) == ([], 1)
    assert [ear[-1] for ear in loop._ears.values()] == [other]  # the rest hear on


class Busy:
    """A daemon with `work` slices of 2 ms to do, and something due every 10 ms beside them."""

    closed, received = False, 0

    def __init__(self, now: list[float], work: int) -> None:
        self.now, self.work, self.deadline = now, work, 0.0
        self.due = 0.0
        self.late: list[float] = []

    def tick(self, now: float) -> None:
        if now >= self.due:
            self.late.append(now - self.due)
            self.due = now + 0.010
        if self.work:
            self.work -= 1
            self.now[0] += 0.002
        self.deadline = now if self.work else self.due


def test_many_that_have_much_to_do_are_served_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """No daemon waits for all others, and sockets are read after every TURN_S of ticking."""
    now = [0.0]
    monkeypatch.setattr(clock, "monotonic", lambda: now[0])
    loop, many = Loop([]), [Busy(now, 20) for _ in range(10)]
    loop._daemons = list(many)  # type: ignore[arg-type]
    turns = 0
    while any(slow.work for slow in many):
        before = now[0]
        loop.turn()
        assert now[0] - before <= TURN_S + 0.002 + 1e-9
        turns += 1
    assert now[0] == pytest.approx(10 * 20 * 0.002)
    assert max(max(slow.late) for slow in many) <= 10 * 0.002 + TURN_S
    assert turns >= 60


@given(st.floats(0.001, 1e6))
def test_a_virtual_timer_does_not_expire_before_its_deadline(deadline: float) -> None:
    """Or the loop would find nothing due, and poll until the clock has moved."""
    with mock.patch.object(clock, "is_virtual", return_value=True):
        loop = Loop([])
    loop.end("the test needs no real timer")
    loop._timer, loop._wake = mock.Mock(), mock.Mock()
    loop._wait(deadline)
    (at_s,) = loop._timer.set.call_args.args
    assert deadline <= round(at_s * 1e9) / 1e9 < deadline + 2e-7


class SlowDaemon:
    """A daemon that notes how far it is slowed down."""

    closed, deadline = False, 0.0

    def __init__(self) -> None:
        self.factors: list[int] = []

    def tick(self, now: float) -> None:
        self.deadline = now

    def slow_down(self, factor: int, now: float) -> None:
        self.factors.append(factor)


def test_daemons_of_a_process_that_lacks_processor_time_are_slowed_down_and_go_on_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [0.0]
    wanted_s = [0.0]
    monkeypatch.setattr(clock, "monotonic", lambda: now[0])
    loop, daemons = Loop([]), [SlowDaemon(), SlowDaemon()]
    loop._daemons = list(daemons)  # type: ignore[arg-type]
    loop._pace = Pace(1.0, lambda: ProcessorUse("R", 0, round(1e9 * wanted_s[0])))
    for part in (1.0, 0.0):
        for _ in range(300):
            loop.turn()
            now[0] += 0.01
            wanted_s[0] += 0.01 * part
    assert [daemon.factors for daemon in daemons] == [[2, 4, 8, 16, 32, 16, 8]] * 2


def test_ticks_of_a_daemon_that_is_slowed_down_are_late_however_punctual() -> None:
    """Fidelity counts them, for neighbours notice a death later than they should."""
    cells = memoryview(bytearray(8 * WORDS)).cast("Q")
    counters = NodeCounters(cells, 0.03)
    late = []
    for factor in (1, 2, 1):
        counters.slow_down(factor)
        counters.tick(0.0001, 0, 0)
        late.append(cells[COLUMNS["late_ticks"]])
    assert late == [0, 1, 1]
    assert (counters.status()["ticks"], cells[COLUMNS["worst_late_us"]]) == (3, 100)


@given(st.lists(st.integers(0, 400_000), min_size=1, max_size=20))
def test_each_tick_is_counted_once_in_the_class_of_its_lateness(late_us: list[int]) -> None:
    counters = NodeCounters(memoryview(bytearray(8 * WORDS)).cast("Q"), 0.03)
    for number, us in enumerate(late_us):
        counters.tick((us + 0.5) / 1e6, 2 * number, 3 * number)
    status, least = counters.status(), -1
    for most in LATENESS_US:
        assert status["lateness"][f"<={most}us"] == sum(least < us <= most for us in late_us)
        least = most
    assert sum(status["lateness"].values()) == status["ticks"] == len(late_us)
    assert status["worst_late_us"] == max(late_us)
    assert status["late_ticks"] == sum(us >= 30_000 for us in late_us)
    assert (status["sent"], status["received"]) == (2 * number, 3 * number)
