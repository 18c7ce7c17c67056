"""The process behind outage.py: send echo requests at a steady rate and record the answers.

Standard input: START, then a PAIR for each pair; its end means stop.  Standard output: "!" when
ready; after the stop a REPORT, then for each request the time of its answer in s of
CLOCK_MONOTONIC, 0 without one.  Request j is for pair j modulo their number, so requests are spread
evenly over the interval.

After the stop each pair gets one more request.  Otherwise a pair whose last request left just
before its route was restored would seem cut off for ever.
"""

from __future__ import annotations

import math
import os
import select
import socket
import struct
import sys
from array import array

from weft.testbed.linux import clock, icmp

# number of pairs, seconds between requests to each, seconds to wait for the last answers
START = struct.Struct("=Idd")
PAIR = struct.Struct("=iI")  # descriptor of the raw socket to use, destination address
# requests, begin and end in s of CLOCK_MONOTONIC, worst lateness in s, real-time priority
REPORT = struct.Struct("=Qddd?")
READY = b"!"
DATA_BYTES = 56
PRIORITY = 11  # real time: above the routing daemons, which are measured


class Prober:
    """Requests sent so far, and their answers."""

    def __init__(self, pairs: list[tuple[int, int]], interval_s: float) -> None:
        self.step_s = interval_s / len(pairs)
        self.token = int.from_bytes(os.urandom(4), "big")
        self.base = int.from_bytes(os.urandom(2), "big")
        self.sockets = {fd: socket.socket(fileno=fd) for fd in {fd for fd, _ in pairs}}
        self.pairs = [
            (
                self.sockets[fd],
                (socket.inet_ntoa(struct.pack(">I", to)), 0),
                icmp.Echo((self.base + number) & 0xFFFF, self.token, DATA_BYTES),
            )
            for number, (fd, to) in enumerate(pairs)
        ]
        self.answers = array("d")
        self.late_s = 0.0

    def send_due(self, begin_s: float) -> float:
        """Send the requests that are due, at most one to each pair; return when the next is due.

        A late prober must still receive answers and the request to stop.
        """
        for _ in self.pairs:
            number = len(self.answers)
            due = begin_s + number * self.step_s
            now = clock.monotonic()
            if due > now:
                return due
            self.late_s = max(self.late_s, now - due)
            turn, pair = divmod(number, len(self.pairs))
            sender, to, echo = self.pairs[pair]
            self.answers.append(0.0)
            try:
                sender.sendto(echo.request(turn & 0xFFFF), to)
            except OSError:  # no route: counts as lost
                continue
        return begin_s + len(self.answers) * self.step_s

    def receive(self, fd: int) -> None:
        """Read all answers that wait in a socket."""
        offset_s = clock.wall() - clock.monotonic()
        while datagram := icmp.receive(self.sockets[fd]):
            packet, ns = datagram
            answer = icmp.parse(packet)
            if answer is None or answer.token != self.token:
                continue
            pair = ((answer.key >> 16) - self.base) & 0xFFFF
            turn = len(self.answers) // len(self.pairs)
            turn -= (turn - answer.key) & 0xFFFF  # the last turn with this sequence number
            number = turn * len(self.pairs) + pair
            if not self.answers[number]:
                self.answers[number] = ns / 1e9 - offset_s

    def has_open(self, last_s: float) -> bool:
        """Return True if a request of the last `last_s` seconds of sending has no answer yet."""
        return 0.0 in self.answers[-math.ceil(last_s / self.step_s) :]


def work(prober: Prober, settle_s: float) -> tuple[float, float]:
    """Probe until standard input ends, ask each pair once more, then await answers for `settle_s`.

    Returns:
        Begin and end of probing, in s of CLOCK_MONOTONIC.
    """
    poll = select.epoll()
    for fd in prober.sockets:
        poll.register(fd, select.EPOLLIN)
    poll.register(sys.stdin.fileno(), select.EPOLLIN | select.EPOLLHUP)
    begin_s = clock.monotonic()
    next_s = begin_s
    end_s = 0.0
    requests = math.inf
    while not end_s or (clock.monotonic() < end_s + settle_s and prober.has_open(settle_s)):
        if not end_s:
            next_s = prober.send_due(begin_s)
            if len(prober.answers) >= requests:
                end_s = clock.monotonic()
        wake_s = end_s + settle_s if end_s else next_s
        for fd, _ in poll.poll(max(0.0, wake_s - clock.monotonic())):
            if fd == sys.stdin.fileno():
                poll.unregister(fd)
                requests = len(prober.answers) + len(prober.pairs)
            else:
                prober.receive(fd)
    return begin_s, end_s


def main() -> None:
    stdin, stdout = sys.stdin.buffer, sys.stdout.buffer
    count, interval_s, settle_s = START.unpack(stdin.read(START.size))
    prober = Prober([PAIR.unpack(stdin.read(PAIR.size)) for _ in range(count)], interval_s)
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(PRIORITY))
        real_time = True
    except PermissionError:  # reported, because a late prober causes gaps
        real_time = False
    stdout.write(READY)
    stdout.flush()
    begin_s, end_s = work(prober, settle_s)
    stdout.write(REPORT.pack(len(prober.answers), begin_s, end_s, prober.late_s, real_time))
    stdout.write(prober.answers.tobytes())
    stdout.flush()


if __name__ == "__main__":
    main()
