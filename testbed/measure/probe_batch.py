"""Many probes from one process: sent as fast as the network takes them, answered in any order,
given up in time.

No more are on their way at once than the shortest queue holds, so probes alone never overflow a
queue, whatever their paths have in common.
"""

from __future__ import annotations

import select
import socket
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Collection
from contextlib import ExitStack
from typing import Generic, NamedTuple, TypeVar

from weft.testbed.linux import clock, icmp, netns
from weft.testbed.runs.network_handle import NetworkHandle, smallest_queue

ProbeKind = TypeVar("ProbeKind")

MOST_ON_THEIR_WAY = 500  # where no queue is limited: more gain nothing
# A probe without an answer counts as on its way only so long: were each lost one to keep its place
# until its timeout, the probes of a network in pieces would wait for each other.  Small packets
# alone have left a queue by then (250 of 98 bytes at 20 Mbit/s take 10 ms).
HELD_S = 0.05


class SentProbe(NamedTuple):
    """Identity of a probe that is on its way: who sent it, and its number there."""

    source: int
    sequence: int


class ProbeBatch(ABC, Generic[ProbeKind]):
    """Sends probes and matches the answers to them; run() returns when each was answered, lost or
    refused.

    A kind of probe says how to send one, which answers are its own, and what follows from them:
    each of answered(), lost() and refused() may fire() again.
    """

    def __init__(
        self, net: NetworkHandle, sources: Collection[int], kinds: Collection[int], timeout_s: float
    ) -> None:
        """`sources`: the nodes that send; `kinds`: the types of ICMP that answer."""
        self.timeout_s = timeout_s
        self._most = smallest_queue(net) or MOST_ON_THEIR_WAY
        self._waiting: deque[tuple[float, int, ProbeKind]] = deque()
        self._sent: dict[SentProbe, tuple[ProbeKind, int]] = {}
        self._ages: deque[tuple[float, SentProbe]] = deque()  # of all probes sent, in order
        self._held: deque[tuple[float, SentProbe]] = deque()  # those sent most recently
        self._on_their_way: set[SentProbe] = set()
        self._sequence = dict.fromkeys(sources, 0)
        self._sources: dict[int, int] = {}
        self.heard: dict[int, socket.socket] = {}
        self.senders: dict[int, socket.socket] = {}
        with ExitStack() as stack:
            self._poll = stack.enter_context(select.epoll())
            for source in sources:
                with netns.inside(net.netns(source)):
                    heard = self.heard[source] = stack.enter_context(icmp.receiver(*kinds))
                    self.senders[source] = stack.enter_context(self.sender())
                self._sources[heard.fileno()] = source
                self._poll.register(heard, select.EPOLLIN)
            self._open = stack.pop_all()

    @abstractmethod
    def sender(self) -> socket.socket:
        """A socket, in the namespace of the thread, to send from."""

    @abstractmethod
    def send(self, sender: socket.socket, probe: ProbeKind, sequence: int) -> None:
        """Put `probe` on the wire as number `sequence`, 1 .. 65535; OSError if the kernel has no
        way for it."""

    @abstractmethod
    def is_mine(self, answer: icmp.IcmpReply) -> bool:
        """Whether `answer` is about a probe of this batch; the lower half of its key is then the
        sequence."""

    @abstractmethod
    def answered(self, probe: ProbeKind, answer: icmp.IcmpReply, rtt_us: float) -> None:
        """The first answer to `probe` came."""

    @abstractmethod
    def lost(self, probe: ProbeKind) -> None:
        """No answer came in time."""

    @abstractmethod
    def refused(self, probe: ProbeKind, why: OSError) -> None:
        """The sender's own kernel would not send it."""

    def fire(self, source: int, probe: ProbeKind, at: float = 0.0) -> None:
        """Send `probe` from `source` in its turn, not before `at` on CLOCK_MONOTONIC."""
        self._waiting.append((at, source, probe))

    def run(self) -> None:
        """Work until nothing is left to do; then close the sockets."""
        with self._open:
            while self._waiting or self._sent:
                now = clock.monotonic()
                self._send_due(now)
                self._receive(self._pause(now))
                self._expire(clock.monotonic())

    def _send_due(self, now: float) -> None:
        while self._waiting and self._waiting[0][0] <= now and len(self._on_their_way) < self._most:
            _, source, probe = self._waiting.popleft()
            sequence = self._sequence[source] = self._sequence[source] % 0xFFFF + 1
            sent = SentProbe(source, sequence)
            ns = clock.wall_ns()  # the clock by which the kernel stamps the answer
            try:
                self.send(self.senders[source], probe, sequence)
            except BlockingIOError:  # what this sender sent before still waits in its own queue
                self._waiting.append((now + 0.001, source, probe))
                return
            except OSError as error:
                self.refused(probe, error)
                continue
            self._sent[sent] = (probe, ns)
            self._on_their_way.add(sent)
            self._ages.append((now, sent))
            self._held.append((now, sent))

    def _pause(self, now: float) -> float:
        """Seconds until there is something to do even if no answer comes."""
        events = [self._ages[0][0] + self.timeout_s] if self._ages else []
        if self._waiting and len(self._on_their_way) < self._most:
            events.append(self._waiting[0][0])
        elif self._waiting and self._held:
            events.append(self._held[0][0] + HELD_S)
        return max(0.0, min(events, default=now) - now)

    def _receive(self, pause_s: float) -> None:
        for fd, _ in self._poll.poll(pause_s):
            source = self._sources[fd]
            while got := icmp.receive(self.heard[source]):
                packet, ns = got
                answer = icmp.parse(packet)
                if answer is None or not self.is_mine(answer):
                    continue
                key = SentProbe(source, answer.key & 0xFFFF)
                self._on_their_way.discard(key)
                if key in self._sent:  # else a second answer, or one that comes too late
                    probe, sent_ns = self._sent.pop(key)
                    self.answered(probe, answer, (ns - sent_ns) / 1000)

    def _expire(self, now: float) -> None:
        while self._held and self._held[0][0] + HELD_S <= now:
            self._on_their_way.discard(self._held.popleft()[1])
        while self._ages and (
            self._ages[0][1] not in self._sent or self._ages[0][0] + self.timeout_s <= now
        ):
            _, sent = self._ages.popleft()
            if sent in self._sent:
                probe, _ = self._sent.pop(sent)
                self.lost(probe)
