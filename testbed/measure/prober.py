"""The process behind outage.py: sends echo requests at a steady rate, and notes when each answer
came.

Standard input: Start, then a Pair for each pair; its end means stop.  Standard output: "!" once it
is at work; when stopped, a Report and then, request by request, when its answer came, in seconds of
CLOCK_MONOTONIC, 0 if it did not. Request j is for pair j modulo their number, so that requests come
evenly over the interval.

When told to stop it asks every pair once more.  Otherwise a pair whose last request left just
before its route was back would seem cut off for ever.
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
REPORT = struct.Struct(
    "=Qddd?"
)  # requests, begin and end in s of CLOCK_MONOTONIC, worst lateness in s, real time or not
READY = b"!"
DATA_BYTES = 56
PRIORITY = 11  # real time: above routing daemons, whose work after a failure is what is measured


class Prober:
    """Requests sent so far, and their answers."""

    def __init__(self, pairs: list[tuple[int, int]], interval_s: float) -> None:
        self.step_s = interval_s / len(pairs)
        self.token = int.from_bytes(os.urandom(4), "big")
        self.base = int.from_bytes(os.urandom(2), "big")
        made = {fd: socket.socket(fileno=fd) for fd in {fd for fd, _ in pairs}}
        self.sockets = made
        self.pairs = [
            (made[fd], (socket.inet_ntoa(struct.pack(">I", to)), 0), self._echo(i))
            for i, (fd, to) in enumerate(pairs)
        ]
        self.answers = array("d")
        self.late_s = 0.0

    def _echo(self, pair: int) -> icmp.Echo:
        return icmp.Echo((self.base + pair) & 0xFFFF, self.token, DATA_BYTES)

    def send_due(self, begin_s: float) -> float:
        """Send what is due, of a turn's requests; the time at which the next one is.

        No more at once: a prober that is late must still receive answers, and the request to stop.
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

    def hear(self, fd: int) -> None:
        """Read every answer that waits in a socket."""
        behind_s = clock.wall() - clock.monotonic()
        while got := icmp.receive(self.sockets[fd]):
            packet, ns = got
            answer = icmp.parse(packet)
            if answer is None or answer.token != self.token:
                continue
            pair = ((answer.key >> 16) - self.base) & 0xFFFF
            turn = len(self.answers) // len(self.pairs)
            turn -= (turn - answer.key) & 0xFFFF  # the last turn with this sequence number
            number = turn * len(self.pairs) + pair
            if not self.answers[number]:
                self.answers[number] = ns / 1e9 - behind_s

    def lacks(self, last_s: float) -> bool:
        """Whether a request of the last `last_s` seconds of sending has no answer yet."""
        return 0.0 in self.answers[-math.ceil(last_s / self.step_s) :]


def work(prober: Prober, settle_s: float) -> tuple[float, float]:
    """Probe until standard input ends, ask every pair once more, then wait `settle_s` at most for
    answers; when probing began and ended."""
    poll = select.epoll()
    for fd in prober.sockets:
        poll.register(fd, select.EPOLLIN)
    poll.register(sys.stdin.fileno(), select.EPOLLIN | select.EPOLLHUP)
    begin_s = clock.monotonic()
    next_s, end_s, requests = begin_s, 0.0, math.inf
    while not end_s or (clock.monotonic() < end_s + settle_s and prober.lacks(settle_s)):
        if not end_s:
            next_s = prober.send_due(begin_s)
            if len(prober.answers) >= requests:
                end_s = clock.monotonic()
        until = end_s + settle_s if end_s else next_s
        for fd, _ in poll.poll(max(0.0, until - clock.monotonic())):
            if fd == sys.stdin.fileno():
                poll.unregister(fd)
                requests = len(prober.answers) + len(prober.pairs)
            else:
                prober.hear(fd)
    return begin_s, end_s


def main() -> None:
    stdin, stdout = sys.stdin.buffer, sys.stdout.buffer
    count, interval_s, settle_s = START.unpack(stdin.read(START.size))
    prober = Prober([PAIR.unpack(stdin.read(PAIR.size)) for _ in range(count)], interval_s)
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(PRIORITY))
        real_time = True
    except PermissionError:  # reported: a late prober makes gaps
        real_time = False
    stdout.write(READY)
    stdout.flush()
    begin_s, end_s = work(prober, settle_s)
    stdout.write(REPORT.pack(len(prober.answers), begin_s, end_s, prober.late_s, real_time))
    stdout.write(prober.answers.tobytes())
    stdout.flush()


if __name__ == "__main__":
    main()
