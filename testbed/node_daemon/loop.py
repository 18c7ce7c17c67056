"""The loop that serves daemons: one process, one epoll, one node or many.

A turn happens at one instant: wait until a daemon's deadline or until an urgent socket is readable;
read the clock; handle changes of devices; pass every queued packet to its daemon, in order of
arrival and with its time of arrival; then tick the daemons whose deadline has passed.  A packet
that arrived before a tick is thus always handled before it, however late the process runs.  If
ticks take longer than TURN_S, the daemons that were due first are ticked, the others in the next
turn.

All queued packets are read whenever the process wakes.  After a long wait, the kernel is asked for
their times of arrival.

The loop also decides how rarely its process sends hellos, by the processor time that it wants and
gets.

Daemons have real-time priority, and the kernel leaves that all but a part of each second (950 ms by
default, sched_rt_runtime_us).  Once it is spent, all daemons stand still for the rest of the
second; long before, they wait for each other.  Hellos are then late, neighbours seem dead, and
routes without them cost more time still.

A process that shares a processor with few others sees this by the time in which it runs, one of
many by the time in which it waits to run: twenty on two processors without a moment's rest ran for
a tenth of the time and waited for six tenths.  A process that runs for more than MOST_RUN of its
share, or waits for more than MOST_WAIT of the time, in BUSY_LOOKS, doubles the interval of its
hellos; one with less than half of both in CALM_LOOKS halves it again.
"""

from __future__ import annotations

import os
import select
from collections.abc import Callable, Collection, Sequence
from fcntl import ioctl
from math import inf
from operator import attrgetter, itemgetter
from pathlib import Path

from weft.daemons.core.actions import UNCHANGED, Action
from weft.daemons.core.wire import MalformedMessage
from weft.testbed.data_plane.capabilities import Wakes
from weft.testbed.data_plane.groups import SwitchFib
from weft.testbed.linux import clock, process
from weft.testbed.node_daemon import watchdog
from weft.testbed.node_daemon.daemon import Daemon, PolledSocket
from weft.testbed.node_daemon.sockets import FRAME_BYTES, SIOCGSTAMPNS, TIMESPEC
from weft.testbed.node_daemon.watchdog import ProcessorUse

LOOK_S = 0.25
MOST_RUN, MOST_WAIT = 0.75, 0.3  # the rest is for what comes at once
BUSY_LOOKS, CALM_LOOKS = 2, 4  # in a row: a single computation of routes changes nothing
MOST_FACTOR = 32  # neighbours of daemons with hellos of 30 ms then notice a death in 3 s
SETTINGS = Path("/proc/sys/kernel")
Receive = Callable[[bytes, int, float], Sequence[Action]]
Open = Callable[[bytes, float], bytes | None]
timespec = TIMESPEC.unpack
EVENTS = 64
NEVER_S = 1e9
# added where the timer, set in whole ns, would expire before its deadline and the loop would poll
EARLY_S = 1e-7
AT_ONCE_S = 0.003  # between two turns: packets in between count as arriving now
# of reading in a turn, one packet of each socket a round, so that a flood does not stop ticks
ROUNDS = 64
# of ticking in a turn; daemons still due wait for the next turn, which reads sockets first
TURN_S = 0.005


def own_share() -> float:
    """Return the part of a processor's time that the scheduler leaves to this process, 0 to 1."""
    if os.sched_getscheduler(0) != os.SCHED_FIFO:
        return 1.0
    runtime_us, period_us = (
        int((SETTINGS / f"sched_rt_{name}_us").read_text()) for name in ("runtime", "period")
    )
    return runtime_us / period_us if 0 < runtime_us < period_us else 1.0


def own_use() -> ProcessorUse:
    """Return what this process has used."""
    return watchdog.processor_use(os.getpid())


class Pace:
    """The factor by which a process lengthens the interval of its hellos.

    factor: a power of 2.
    look_s: time of the next look.
    """

    def __init__(self, share: float, read_use: Callable[[], ProcessorUse] = own_use) -> None:
        self.factor = 1
        self.look_s = -inf
        self._share = share
        self._read = read_use
        self._use = ProcessorUse("R", 0, 0)
        self._last_s = inf
        self._busy_looks = self._calm_looks = 0

    def look(self, now: float) -> bool:
        """Read what the process has used since the last look; return True if `factor` changes."""
        use, before = self._read(), self._use
        passed_ns = (now - self._last_s) * 1e9
        self._use, self._last_s, self.look_s = use, now, now + LOOK_S
        if passed_ns <= 0:  # the first look
            return False
        run = (use.ran_ns - before.ran_ns) / (passed_ns * self._share * MOST_RUN)
        load = max(run, (use.waited_ns - before.waited_ns) / (passed_ns * MOST_WAIT))
        self._busy_looks = self._busy_looks + 1 if load > 1 else 0
        self._calm_looks = self._calm_looks + 1 if load < 0.5 else 0
        factor = self.factor
        if self._busy_looks >= BUSY_LOOKS:
            factor = min(2 * factor, MOST_FACTOR)
        elif self._calm_looks >= CALM_LOOKS:
            factor = max(factor // 2, 1)
        changes = factor != self.factor
        if changes:
            self.factor, self._busy_looks, self._calm_looks = factor, 0, 0
        return changes


arrival, deadline_of = itemgetter(0), attrgetter("deadline")


class Loop:
    """Serves its daemons until each was asked to end or has failed."""

    _pace: Pace | None = None  # in virtual time computing takes none

    def __init__(self, daemons: Collection[Daemon]) -> None:
        self.failed = 0
        self._daemons: list[Daemon] = []
        self._wake, self._queued = select.epoll(), select.epoll()
        self._ears: dict[int, tuple[Callable[[int], bytes], Open, Receive, int, Daemon]] = {}
        self._backlog = False  # whether the last turn left packets unread
        self._handlers: dict[int, tuple[Daemon, Callable[[float], None]]] = {}
        self._once: set[int] = set()  # descriptors that wake the loop once a tick
        self._quiet: set[int] = set()  # of these, those that woke it since the last tick
        self._before = 0.0
        self._stamp = bytearray(TIMESPEC.size)
        # virtual time: reading the clock costs most, and epoll's timeouts are too coarse (_wait())
        self._timer = clock.Timer() if clock.is_virtual() else None
        self._timer_s = inf  # expiry of the timer
        self._never_empty: list[int] = []
        if self._timer:
            self._wake.register(self._timer, select.EPOLLIN)
            self._never_empty.append(os.eventfd(1))  # lets epoll return at once without a timeout
            self._queued.register(self._never_empty[0], select.EPOLLIN)
        for daemon in daemons:
            self._add(daemon)

    def _add(self, daemon: Daemon) -> None:
        self._daemons.append(daemon)
        for port, link in daemon.links.items():
            for ear in (link.urgent, link.routine):
                self._ears[ear.fileno()] = (
                    ear.recv,
                    link.channel.open,
                    daemon.protocol.receive,
                    port,
                    daemon,
                )
                self._queued.register(ear, select.EPOLLIN)
            self._wake.register(link.urgent, select.EPOLLIN)
        requests: PolledSocket = (
            daemon.requests.socket,
            lambda now: self._answer(daemon),
            Wakes.AT_ONCE,
        )
        for source, handler, wakes in (*daemon.sources(), requests):
            self._handlers[source.fileno()] = (daemon, handler)
            if wakes:
                self._wake.register(source, wakes)
            if wakes == Wakes.ONCE_A_TICK:
                self._once.add(source.fileno())
            if wakes != Wakes.AT_ONCE:
                self._queued.register(source, select.EPOLLIN)

    def nodes(self) -> tuple[int, ...]:
        """Return the nodes of its daemons."""
        return tuple(daemon.interfaces.node for daemon in self._daemons)

    def name(self) -> str:
        """Return a name for its process, of at most 15 letters."""
        more = f" +{len(self._daemons) - 1}" if len(self._daemons) > 1 else ""
        return f"weft {self._daemons[0].interfaces.name}{more}"[:15]

    def rights(self) -> set[int]:
        """Return the Linux capabilities that its daemons need after their start.

        They set routes.  With a data plane they also wait for packets inside its program, see
        plane_tables.settle().
        """
        waits = any(isinstance(daemon.fib, SwitchFib) for daemon in self._daemons)
        needed = {process.CAP_NET_ADMIN, *([process.CAP_NET_RAW] if waits else [])}
        return needed | process.map_capabilities(os.uname().release)

    def descriptors(self) -> list[int]:
        """Return all open descriptors."""
        return [
            self._wake.fileno(),
            self._queued.fileno(),
            *([self._timer.fileno()] if self._timer else []),
            *self._never_empty,
            *(fd for daemon in self._daemons for fd in daemon.descriptors()),
        ]

    def disown(self) -> None:
        """Close the descriptors, because a forked process runs the loop; change nothing else."""
        self._wake.close()
        self._queued.close()
        self._close_timer()
        for daemon in self._daemons:
            daemon.disown()

    def _close_timer(self) -> None:
        if self._timer:
            self._timer.close()
            self._timer = None
        while self._never_empty:
            os.close(self._never_empty.pop())

    def _drop(self, daemon: Daemon, why: str) -> None:
        """Close a daemon; closing a descriptor removes it from every epoll."""
        self._daemons.remove(daemon)
        self._ears = {fd: ear for fd, ear in self._ears.items() if ear[-1] is not daemon}
        self._handlers = {
            fd: entry for fd, entry in self._handlers.items() if entry[0] is not daemon
        }
        self._once &= self._handlers.keys()
        daemon.close(why)

    def _answer(self, daemon: Daemon) -> None:
        if not daemon.read_request():
            self._drop(daemon, "asked to")

    def _do(self, daemon: Daemon, work: Callable[..., None], *arguments: object) -> None:
        """Call `work`; an exception ends this daemon, and the others go on."""
        try:
            work(*arguments)
        except Exception:
            # the state of the daemon may be inconsistent
            self.failed += 1
            daemon.note_failure()
            self._drop(daemon, "it failed")

    def start(self) -> None:
        """Start the daemons."""
        now = self._before = clock.monotonic()  # packets queued earlier count as arriving now
        if not self._timer:
            self._pace = Pace(own_share())
        for daemon in list(self._daemons):
            self._do(daemon, daemon.start, now)

    def run(self) -> None:
        """Start the daemons and serve them until none is left; an exception closes all of them."""
        try:
            self.start()
            while self._daemons:
                self.turn()
        finally:
            self.end("its process ends")

    def end(self, why: str) -> None:
        """Close all daemons."""
        for daemon in list(self._daemons):
            self._drop(daemon, why)
        self._close_timer()

    def turn(self) -> None:
        """Wait until a socket is readable or a deadline has passed, and handle both."""
        woken = self._wait(min([daemon.deadline for daemon in self._daemons]))
        now = clock.monotonic()
        busy: list[Daemon] = []
        for fd, _ in woken:
            if fd in self._once:
                self._quiet.add(fd)
            self._handle(fd, now, busy)
        self._hand_over(self._read(now, busy), busy)
        due = [daemon for daemon in self._daemons if daemon.deadline <= now]
        began_s = now
        if len(due) > 1:
            due.sort(key=deadline_of)
            began_s = clock.monotonic()
        for ticked, daemon in enumerate(due):
            if ticked and clock.monotonic() - began_s > TURN_S:
                break
            self._do(daemon, daemon.tick, now)
        if due and self._quiet:
            for fd in self._quiet & self._handlers.keys():
                self._wake.modify(fd, Wakes.ONCE_A_TICK)
            self._quiet.clear()
        for daemon in busy:
            if not daemon.closed:
                self._do(daemon, daemon.finish, now)
        self._keep_pace(now)

    def _keep_pace(self, now: float) -> None:
        """Slow all daemons down, or let them go on, if the process lacks time or has it again."""
        if self._pace and self._pace.look_s <= now and self._pace.look(now):
            for daemon in list(self._daemons):
                self._do(daemon, daemon.slow_down, self._pace.factor, now)

    def _wait(self, deadline: float) -> list[tuple[int, int]]:
        """Return the readable descriptors that wake the loop; none at the deadline.

        epoll rounds its timeout up to a millisecond, and Python reads the clock for it twice.  A
        virtual clock needs an exact timer, and would spend half of its system calls on the clock.
        """
        if self._timer and deadline != self._timer_s:
            at_s = min(deadline, NEVER_S)
            early = round(at_s * 1e9) / 1e9 < at_s
            self._timer.set(at_s + EARLY_S if early else at_s)
            self._timer_s = deadline
        if self._backlog:
            return self._wake.poll(0.0, EVENTS)
        if self._timer or deadline == inf:
            return self._wake.poll(None, EVENTS)
        return self._wake.poll(max(0.0, deadline - clock.monotonic()), EVENTS)

    def _handle(self, fd: int, now: float, busy: list[Daemon]) -> None:
        """Read a descriptor that is no packet socket; ignore packet sockets and closed daemons."""
        if fd in self._handlers:
            daemon, handler = self._handlers[fd]
            self._do(daemon, handler, now)
            busy.append(daemon)

    def _read(self, now: float, busy: list[Daemon]) -> list[tuple[float, int, bytes]]:
        """Return (time, descriptor, frame) of all packets before `now`, in order of arrival.

        Written for speed, like _hand_over(): hundreds of processes share the cache, so that what
        is not touched is what costs nothing.
        """
        packets: list[tuple[float, int, bytes]] = []
        queued = self._queued.poll
        ears = self._ears
        earliest = self._before
        self._before = now
        long_wait = now - earliest > AT_ONCE_S
        unix_s = clock.wall() - now if long_wait else 0.0
        arrival_s = now
        self._backlog = True
        wait_s, rest = (None, 1) if self._never_empty else (0, 0)
        for _ in range(ROUNDS):
            ready = queued(wait_s, EVENTS)
            if len(ready) <= rest:
                self._backlog = False
                break
            for fd, _ in ready:
                if fd not in ears:
                    self._handle(fd, now, busy)
                    continue
                try:
                    frame = ears[fd][0](FRAME_BYTES)
                except BlockingIOError:  # epoll counted a packet with a wrong checksum
                    continue
                if long_wait:
                    arrival_s = self._arrival_s(fd, unix_s)
                    # the wall clock may have been set in between
                    arrival_s = min(max(arrival_s, earliest), now)
                packets.append((arrival_s, fd, frame))
        packets.sort(key=arrival)  # stable: packets of one time stay in the order of reading
        return packets

    def _arrival_s(self, fd: int, unix_s: float) -> float:
        """Return when the packet that was read last arrived; `unix_s` is the epoch of its clock."""
        ioctl(fd, SIOCGSTAMPNS, self._stamp)
        seconds, ns = timespec(self._stamp)
        return float(seconds - unix_s + ns * 1e-9)

    def _hand_over(self, packets: Sequence[tuple[float, int, bytes]], busy: list[Daemon]) -> None:
        """Pass packets to their daemons; add the daemons that need finish() to `busy`."""
        ears = self._ears
        for arrival_s, fd, frame in packets:
            if fd not in ears:  # its daemon was closed in this turn
                continue
            _, open_, receive, port, daemon = ears[fd]
            daemon.received += 1
            try:
                payload = open_(frame, arrival_s)
                if payload is None:
                    continue
                actions = receive(payload, port, arrival_s)
                if actions is UNCHANGED:  # nearly always
                    continue
                if actions:
                    daemon.perform(actions)
                    busy.append(daemon)
                elif daemon.protocol.deadline < daemon.deadline:
                    daemon.deadline = daemon.protocol.deadline
            except MalformedMessage:
                daemon.garbage += 1
            except Exception:
                # a hostile packet must not stop a daemon
                daemon.lost.on_handling()
                busy.append(daemon)
