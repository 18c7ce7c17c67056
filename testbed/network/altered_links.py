"""Links of an open network that alter what daemons say to each other: they lose it, or let it
arrive late, twice, with a bit changed, or once more after others.

At both ends of such a link a filter drops the daemons' packets when they arrive, and this process,
which sees them before the filter, sends from the far end what is to arrive in their place.  That
carries another type of service, by which the filter knows it.  All other packets pass.  What is
sent has no UDP checksum, so that the kernel does not notice a changed bit before the daemon does.

At a crossbar, where a packet crosses two links, the first that alters it is the only one.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import suppress
from heapq import heappop, heappush

from weft.daemons.simulator.wires import Passage, Randomness, Wire
from weft.testbed.linux import clock, netns, tc
from weft.testbed.network.handle import Handle
from weft.testbed.plan.network_plan import End

ETH_P_ALL = 3
PAYLOAD = 14 + 20 + 8  # where it begins in a frame, behind an IP header without options
TYPE_OF_SERVICE, IP_CHECKSUM, UDP_CHECKSUM = 15, slice(24, 26), slice(40, 42)
MARK = 0x04  # type of service of what this process has sent
FRAME_BYTES = 2048


class AlteredLinks:
    """Those of `network`, none at first; `random` decides what becomes of each packet."""

    def __init__(self, network: Handle, random: Randomness) -> None:
        self._network, self._random = network, random
        self._taps: dict[int, list[_Tap]] = {}  # by link
        self._lock = threading.Lock()
        self._poll = select.epoll()
        self._wake, self._waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._poll.register(self._wake, select.EPOLLIN)
        self._late: list[tuple[float, int, _Tap, bytes]] = []
        self._count = 0
        self._over = False
        self._thread: threading.Thread | None = None
        self._failed: BaseException | None = None

    def alter(self, link: int, wire: Wire | None) -> None:
        """Let `link` do to the daemons' packets as `wire` says from now on; None: as it is made.

        Raises what has gone wrong since the last call."""
        if self._failed:
            raise self._failed
        with self._lock:
            for tap in self._taps.pop(link, []):
                self._poll.unregister(tap.heard)
                tap.close()
            if wire is not None:
                self._taps[link] = [self._tap(link, near, wire) for near in (0, 1)]
        if wire is not None and self._thread is None:
            self._thread = threading.Thread(target=self._run, daemon=True, name="altered links")
            self._thread.start()

    def _tap(self, link: int, near: int, wire: Wire) -> _Tap:
        ends = self._network.both_ends(link)
        tap = _Tap(
            self._network, ends[near][0], ends[near][2], ends[1 - near][0], ends[1 - near][2]
        )
        tap.passage = Passage([wire], self._random)
        self._poll.register(tap.heard, select.EPOLLIN)
        return tap

    def close(self) -> None:
        """Let all links be as they are made."""
        for link in list(self._taps):
            self.alter(link, None)
        self._over = True
        os.write(self._waker, b"x")
        if self._thread:
            self._thread.join()
        self._poll.close()
        os.close(self._wake)
        os.close(self._waker)

    def _run(self) -> None:
        try:
            while not self._over:
                wait_s = max(0.0, self._late[0][0] - clock.monotonic()) if self._late else -1
                ready = {fd for fd, _ in self._poll.poll(wait_s)}
                with self._lock:
                    self._turn(ready)
        except BaseException as error:
            self._failed = error

    def _turn(self, ready: set[int]) -> None:
        """Read what has been heard, and send what is due."""
        now = clock.monotonic()
        for taps in self._taps.values():
            for tap in taps:
                if tap.heard.fileno() in ready:
                    self._plan(tap, now)
        while self._late and self._late[0][0] <= now:
            _, _, tap, frame = heappop(self._late)
            tap.send(frame)

    def _plan(self, tap: _Tap, now: float) -> None:
        for frame in tap.frames():
            for late_s, payload in tap.passage.arrivals(frame[PAYLOAD:]):
                self._count += 1
                heappush(self._late, (now + late_s, self._count, tap, frame[:PAYLOAD] + payload))


class _Tap:
    """The near end of a link, where packets are heard and dropped, and the far one, from which they
    are sent again."""

    passage: Passage

    def __init__(self, network: Handle, near: int, here: End, far: int, there: End) -> None:
        self._network, self._near, self._here = network, near, here
        kind = socket.SOCK_RAW | socket.SOCK_NONBLOCK
        with netns.inside(network.netns(near)):
            self.heard = socket.socket(socket.AF_PACKET, kind, socket.htons(ETH_P_ALL))
            self.heard.bind((here.dev, ETH_P_ALL))
        with netns.inside(network.netns(far)):
            self._sender = socket.socket(socket.AF_PACKET, kind)
            self._sender.setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, tc.CONTROL_PRIORITY)
            self._sender.bind((there.dev, 0))
        with network.at(near) as routes:
            routes.request([tc.drop_control(here.ifindex, here.dev, MARK)])

    def frames(self) -> Iterator[bytes]:
        """The daemons' packets that have arrived, marked."""
        while True:
            try:
                frame, (_, _, kind, *_) = self.heard.recvfrom(FRAME_BYTES)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:  # the device is down
                return
            if (
                kind != socket.PACKET_OUTGOING
                and tc.is_control(frame)
                and frame[TYPE_OF_SERVICE] != MARK
            ):
                yield marked(frame)

    def send(self, frame: bytes) -> None:
        """Let `frame` arrive, if the link carries anything."""
        with suppress(OSError):
            self._sender.send(frame)

    def close(self) -> None:
        """Let packets pass."""
        with self._network.at(self._near) as routes:
            tc.pass_control(routes, self._here.ifindex, self._here.dev)
        self.heard.close()
        self._sender.close()


def marked(frame: bytes) -> bytes:
    """`frame`, of UDP, with MARK, a right IP checksum, and no UDP checksum."""
    made = bytearray(frame)
    made[TYPE_OF_SERVICE] = MARK
    made[IP_CHECKSUM] = made[UDP_CHECKSUM] = b"\0\0"
    total = sum(struct.unpack(">10H", made[14:34]))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    made[IP_CHECKSUM] = struct.pack(">H", ~total & 0xFFFF)
    return bytes(made)
