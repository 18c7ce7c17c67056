"""Links that lose, delay, duplicate, corrupt or reorder the messages of daemons.

At both ends of such a link a filter drops the daemons' packets on arrival.  This process sees them
before the filter, and sends their replacements from the far end with another type of service,
which the filter passes, and without a UDP checksum, so that a changed bit reaches the daemon.
All other packets pass.

Where a packet crosses two links, at a crossbar, only the first link alters it.
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
from weft.testbed.linux import clock, netns, tc, tc_filters
from weft.testbed.linux.netlink import NetlinkMessage
from weft.testbed.network.handle import Handle
from weft.testbed.plan.network_plan import End

ETH_P_ALL = 3
PAYLOAD = 14 + 20 + 8  # its offset in a frame, behind an IP header without options
TYPE_OF_SERVICE, IP_CHECKSUM, UDP_CHECKSUM = 15, slice(24, 26), slice(40, 42)
MARK = 0x04  # type of service of the packets that this process sends
FRAME_BYTES = 2048
PRIORITY = 2  # of the filter, behind the one that drops everything


class AlteredLinks:
    """The altered links of `network`, none at first.

    random: decides the fate of each packet.
    """

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
        """Alter the daemons' packets on `link` as `wire` says; None: let them pass.

        Raises the first exception of the thread that forwards packets.
        """
        if self._failed:
            raise self._failed
        with self._lock:
            for tap in self._taps.pop(link, []):
                self._poll.unregister(tap.receiver)
                tap.close()
            if wire is not None:
                self._taps[link] = [self._tap(link, near, wire) for near in (0, 1)]
        if wire is not None and self._thread is None:
            self._thread = threading.Thread(target=self._run, daemon=True, name="altered links")
            self._thread.start()

    def _tap(self, link: int, near: int, wire: Wire) -> _Tap:
        ends = self._network.both_ends(link)
        tap = _Tap(self._network, ends[near], ends[1 - near], Passage([wire], self._random))
        self._poll.register(tap.receiver, select.EPOLLIN)
        return tap

    def close(self) -> None:
        """Let the packets of all links pass again, and end the thread."""
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
        """Read the packets that have arrived, and send those that are due."""
        now = clock.monotonic()
        for taps in self._taps.values():
            for tap in taps:
                if tap.receiver.fileno() in ready:
                    self._schedule(tap, now)
        while self._late and self._late[0][0] <= now:
            _, _, tap, frame = heappop(self._late)
            tap.send(frame)

    def _schedule(self, tap: _Tap, now: float) -> None:
        for frame in tap.frames():
            for late_s, payload in tap.passage.arrivals(frame[PAYLOAD:]):
                self._count += 1
                heappush(self._late, (now + late_s, self._count, tap, frame[:PAYLOAD] + payload))


class _Tap:
    """One direction of a link, whose packets are replaced.

    They are received and dropped at the near end, and their replacements sent from the far end.

    near, far: node, port and interface.
    passage: the fate of each packet.
    """

    def __init__(
        self,
        network: Handle,
        near: tuple[int, int, End],
        far: tuple[int, int, End],
        passage: Passage,
    ) -> None:
        self._network = network
        self._node, _, self._end = near
        self.passage = passage
        far_node, _, far_end = far
        kind = socket.SOCK_RAW | socket.SOCK_NONBLOCK
        with netns.inside(network.netns(self._node)):
            self.receiver = socket.socket(socket.AF_PACKET, kind, socket.htons(ETH_P_ALL))
            self.receiver.bind((self._end.dev, ETH_P_ALL))
        with netns.inside(network.netns(far_node)):
            self._sender = socket.socket(socket.AF_PACKET, kind)
            self._sender.setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, tc.CONTROL_PRIORITY)
            self._sender.bind((far_end.dev, 0))
        with network.at(self._node) as routes:
            routes.request([drop_control(self._end)])

    def frames(self) -> Iterator[bytes]:
        """Yield the daemons' packets that have arrived, marked."""
        while True:
            try:
                frame, (_, _, kind, *_) = self.receiver.recvfrom(FRAME_BYTES)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:  # the device is down
                return
            if (
                kind != socket.PACKET_OUTGOING
                and is_control(frame)
                and frame[TYPE_OF_SERVICE] != MARK
            ):
                yield mark_frame(frame)

    def send(self, frame: bytes) -> None:
        """Send `frame`; it is lost if the link is down."""
        with suppress(OSError):
            self._sender.send(frame)

    def close(self) -> None:
        """Remove the filter, and close the sockets."""
        with self._network.at(self._node) as routes:
            routes.request([tc_filters.remove_filter(self._end, PRIORITY)])
        self.receiver.close()
        self._sender.close()


def is_control(frame: bytes) -> bool:
    """Return whether `frame` has the format that tc.of_control_packets() matches."""
    whole_udp = (
        len(frame) > 42 and frame[12:15] == b"\x08\x00\x45" and frame[20] & 0xBF == frame[21] == 0
    )
    port = struct.pack(">H", tc_filters.CONTROL_PORT)
    return whole_udp and frame[22:24] == b"\xff\x11" and frame[36:38] == port


def drop_control(end: End) -> NetlinkMessage:
    """Return the change that drops daemons' packets arriving at `end`, except marked ones."""
    program = [
        (0x30, 0, 0, 15),
        (0x15, 8, 0, MARK),
        *tc_filters.control_packet_program(tc_filters.TC_ACT_SHOT, tc_filters.TC_ACT_UNSPEC),
    ]
    return tc_filters.classic_filter(end, tc_filters.INGRESS_HOOK, PRIORITY, program)


def mark_frame(frame: bytes) -> bytes:
    """Return the UDP `frame` with MARK, a correct IP checksum, and no UDP checksum."""
    copy = bytearray(frame)
    copy[TYPE_OF_SERVICE] = MARK
    copy[IP_CHECKSUM] = copy[UDP_CHECKSUM] = b"\0\0"
    total = sum(struct.unpack(">10H", copy[14:34]))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    copy[IP_CHECKSUM] = struct.pack(">H", ~total & 0xFFFF)
    return bytes(copy)
