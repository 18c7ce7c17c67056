"""The loop that carries daemons: one process, one epoll, one node or many.

A turn is one instant: wait until a daemon's deadline or until something urgent can be read; read
the clock; take news of devices; hand every packet that is queued to its daemon, in order of arrival
and with the time of it; then tick those whose deadline has passed.  Packets that came before the
tick are thereby always heard before it, however long the process was kept from running.  Where many
are due and take long, those that have been due longest are ticked, and the others in the next turn.

What is queued is read whenever the process wakes.  Where many daemons share it, that is as soon as
it came.  What a daemon that is alone finds queued may be as old as its last turn, and the kernel is
asked when it came.
"""

from __future__ import annotations

import os
import select
from collections.abc import Callable, Collection, Sequence
from fcntl import ioctl
from math import inf
from operator import attrgetter, itemgetter

from weft.daemons.core.actions import UNCHANGED, Action
from weft.daemons.core.wire import MalformedMessage
from weft.testbed.data_plane.capability import Wakes
from weft.testbed.data_plane.switch_fib import SwitchFib
from weft.testbed.linux import clock, privileges
from weft.testbed.node_daemon.daemon import Daemon, PolledSocket
from weft.testbed.node_daemon.sockets import FRAME_BYTES, SIOCGSTAMPNS, TIMESPEC

Receive = Callable[[bytes, int, float], Sequence[Action]]
Open = Callable[[bytes, float], bytes | None]
timespec = TIMESPEC.unpack
arrival, deadline_of = itemgetter(0), attrgetter("deadline")
EVENTS = 64
NEVER_S = 1e9
AT_ONCE_S = 0.003  # between two turns: what came then may as well have come now
# of reading in a turn, one packet of each socket at most, so that a flood does not stop ticks
ROUNDS = 64
# of ticking, after which daemons that are due are left to the next turn, and sockets are read first
TURN_S = 0.005


class Loop:
    """Serves its daemons until each has been asked to end or has failed."""

    def __init__(self, daemons: Collection[Daemon]) -> None:
        self.failed = 0
        self._daemons: list[Daemon] = []
        self._wake, self._queued = select.epoll(), select.epoll()
        self._ears: dict[int, tuple[Callable[[int], bytes], Open, Receive, int, Daemon]] = {}
        self._backlog = False  # whether the last turn left packets unread
        self._handlers: dict[int, tuple[Daemon, Callable[[float], None]]] = {}
        self._once: set[int] = set()  # those that wake it once a tick
        self._quiet: set[int] = set()  # of those, the ones that have since the last tick
        self._before = 0.0
        self._stamp = bytearray(TIMESPEC.size)
        # Under a virtual clock what is saved is reading the clock, and epoll's timeouts are too
        # coarse: see _wait().
        self._timer = clock.Timer() if clock.is_virtual() else None
        self._timed = inf  # what it was set to
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
        """Whose daemons it serves."""
        return tuple(daemon.interfaces.node for daemon in self._daemons)

    def name(self) -> str:
        """What to call a process that runs it, in 15 letters."""
        more = f" +{len(self._daemons) - 1}" if len(self._daemons) > 1 else ""
        return f"weft {self._daemons[0].interfaces.name}{more}"[:15]

    def rights(self) -> set[int]:
        """The capabilities that its daemons need from their start on: to set routes, and, where
        there is a data plane, to wait for packets that are on their way through it
        (plane_tables.settle())."""
        waits = any(isinstance(daemon.fib, SwitchFib) for daemon in self._daemons)
        needed = {privileges.CAP_NET_ADMIN, *([privileges.CAP_NET_RAW] if waits else [])}
        return needed | privileges.of_maps(os.uname().release)

    def descriptors(self) -> list[int]:
        """All that it has open."""
        return [
            self._wake.fileno(),
            self._queued.fileno(),
            *([self._timer.fileno()] if self._timer else []),
            *self._never_empty,
            *(fd for each in self._daemons for fd in each.descriptors()),
        ]

    def disown(self) -> None:
        """Another process, forked from this one, runs it: let go of everything, and take nothing
        away."""
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
        """Closing a descriptor takes it out of every epoll."""
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

    def _do(self, daemon: Daemon, work: Callable[..., None], *given: object) -> None:
        """Do what ends this daemon if it raises; the others go on."""
        try:
            work(*given)
        except Exception:
            self._fail(daemon)

    def _fail(self, daemon: Daemon) -> None:
        """What it decided by itself has raised: who knows what it would do next."""
        self.failed += 1
        daemon.log_exception()
        daemon.count_death()
        self._drop(daemon, "it failed")

    def start(self) -> None:
        """Let the daemons begin."""
        now = self._before = clock.monotonic()  # what was queued before, they hear now
        for daemon in list(self._daemons):
            self._do(daemon, daemon.start, now)

    def run(self) -> None:
        """Start the daemons, and serve them until none is left; what ends it from outside ends all
        of them."""
        try:
            self.start()
            while self._daemons:
                self.turn()
        finally:
            self.end("its process ends")

    def end(self, why: str) -> None:
        """Let go of all of them."""
        for daemon in list(self._daemons):
            self._drop(daemon, why)
        self._close_timer()

    def turn(self) -> None:
        """Wait until there is something to do, and do it."""
        woken = self._wait(min([daemon.deadline for daemon in self._daemons]))
        now = clock.monotonic()
        busy: list[Daemon] = []
        for fd, _ in woken:
            if fd in self._once:
                self._quiet.add(fd)
            self._handle(fd, now, busy)
        self._hand_over(self._read(now, busy), busy)
        due = [daemon for daemon in self._daemons if daemon.deadline <= now]
        began = now
        if len(due) > 1:
            due.sort(key=deadline_of)
            began = clock.monotonic()
        for ticked, daemon in enumerate(due):
            if ticked and clock.monotonic() - began > TURN_S:
                break
            self._do(daemon, daemon.tick, now)
        if due and self._quiet:
            for fd in self._quiet & self._handlers.keys():
                self._wake.modify(fd, Wakes.ONCE_A_TICK)
            self._quiet.clear()
        for daemon in busy:
            if not daemon.closed:
                self._do(daemon, daemon.finish, now)

    def _wait(self, deadline: float) -> list[tuple[int, int]]:
        """What has woken it, or nothing when it is time.

        epoll rounds its timeout up to a millisecond, and Python reads the clock for it twice.
        Under a virtual clock a timer is exact, and half of the system calls that a daemon makes
        without it read the clock.
        """
        if self._timer is None:
            wait_s = (
                0.0
                if self._backlog
                else max(0.0, deadline - clock.monotonic())
                if deadline < inf
                else None
            )
            return self._wake.poll(wait_s, EVENTS)
        if deadline != self._timed:
            self._timer.set(min(deadline, NEVER_S))
            self._timed = deadline
        return self._wake.poll(0.0 if self._backlog else None, EVENTS)

    def _handle(self, fd: int, now: float, busy: list[Daemon]) -> None:
        """Read what is no packet; nothing if it is one, or if its daemon has gone."""
        if fd in self._handlers:
            daemon, handler = self._handlers[fd]
            self._do(daemon, handler, now)
            busy.append(daemon)

    def _read(self, now: float, busy: list[Daemon]) -> list[tuple[float, int, bytes]]:
        """What came before `now`: when, the descriptor at which, and what, in order of arrival.

        Written for speed, as is what follows: hundreds of processes share the cache, so that what
        is not touched is what costs nothing.
        """
        heard: list[tuple[float, int, bytes]] = []
        queued, ears, earliest = self._queued.poll, self._ears, self._before
        self._before = now
        stamp = self._stamp if now - earliest > AT_ONCE_S else None
        unix_s = clock.wall() - now
        at = now
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
                except BlockingIOError:  # epoll counted one whose checksum was wrong
                    continue
                if stamp:
                    ioctl(fd, SIOCGSTAMPNS, stamp)
                    seconds, ns = timespec(stamp)
                    at = seconds - unix_s + ns * 1e-9
                    # Two clocks were compared, and one of them may have been set meanwhile.
                    at = earliest if at < earliest else now if at > now else at
                heard.append((at, fd, frame))
        heard.sort(key=arrival)  # of those that came together, in the order in which they were read
        return heard

    def _hand_over(self, heard: Sequence[tuple[float, int, bytes]], busy: list[Daemon]) -> None:
        """Let the daemons have what was heard, and note which of them had something to do."""
        ears = self._ears
        for at, fd, frame in heard:
            if fd not in ears:  # its daemon has gone in this very turn
                continue
            _, open_, receive, port, daemon = ears[fd]
            daemon.received += 1
            try:
                payload = open_(frame, at)
                if payload is None:
                    continue
                actions = receive(payload, port, at)
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
                # it may be what somebody hostile has made of it, who shall not end a daemon
                daemon.lost.on_handling()
                busy.append(daemon)
