"""Outages of pairs: pings every 10 ms from a process of their own (prober.py).

The prober is a process because this one is busy meanwhile.  It inherits sockets that were opened
in the servers' namespaces.  It stops when its standard input ends, so also when this process dies.
Its lateness is a component of an active Fidelity.
"""

from __future__ import annotations

import subprocess
from array import array
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass

from weft.testbed.linux import icmp, netns
from weft.testbed.measure import fidelity
from weft.testbed.measure.fidelity import Component, at_most
from weft.testbed.measure.prober import PAIR, READY, REPORT, START
from weft.testbed.runs import isolated_python
from weft.testbed.runs.network_handle import NetworkHandle
from weft.testbed.runs.run import ENVIRONMENT

# requests a second whose answers one process receives in time with half of a core
MOST_PER_SECOND = 20_000
# intervals by which a request may be late, for PASS and for WARN; gaps are known no better
LATE_INTERVALS = (2, 10)
SETTLE_S = 0.5  # time that stop() waits for missing answers
STOP_TIMEOUT_S = 10.0


@dataclass(frozen=True)
class Gap:
    """Lost requests in a row; times are on CLOCK_MONOTONIC.

    Attributes:
        begin_s: last answer before them; start of probing if none came.
        end_s: first answer after them; None if none came.
    """

    begin_s: float
    end_s: float | None
    lost: int

    def length_s(self, until_s: float) -> float:
        """Return the length; a gap without an end lasts until `until_s`."""
        return (until_s if self.end_s is None else self.end_s) - self.begin_s


@dataclass(frozen=True)
class Outage:
    """Requests of one pair: sent, answered, and the gaps in order."""

    src: int
    dst: int
    sent: int
    received: int
    gaps: tuple[Gap, ...]


@dataclass(frozen=True)
class OutageTable:
    """Outages of the pairs from `begin_s` to `end_s`, on CLOCK_MONOTONIC.

    Attributes:
        interval_s: between requests of a pair; the resolution of a gap.
        late_s: lateness of the latest request; a gap no longer than that may be the prober's own.
        real_time: the prober had real-time priority.
    """

    outages: tuple[Outage, ...]
    begin_s: float
    end_s: float
    interval_s: float
    late_s: float
    real_time: bool

    def lateness(self) -> Component:
        """Return the lateness of the prober as a component of fidelity."""
        pass_ms, warn_ms = (1000 * self.interval_s * most for most in LATE_INTERVALS)
        return at_most("late pings", 1000 * self.late_s, "ms", pass_ms, warn_ms)

    def longest(self) -> tuple[Outage, float] | None:
        """Return the pair with the longest gap, and its length in s; None without a gap."""
        lengths = [
            (outage, gap.length_s(self.end_s)) for outage in self.outages for gap in outage.gaps
        ]
        return max(lengths, key=lambda pair: pair[1], default=None)


def gaps(answers: Sequence[float], begin_s: float) -> tuple[Gap, ...]:
    """Return the gaps of one pair.

    Args:
        answers: time of each answer in the order of the requests, 0 if there was none.
        begin_s: start of probing.
    """
    closed = []
    last_s = begin_s
    lost = 0
    for answer_s in answers:
        if not answer_s:
            lost += 1
            continue
        if lost:
            closed.append(Gap(last_s, max(answer_s, last_s), lost))
            lost = 0
        last_s = max(answer_s, last_s)
    return (*closed, Gap(last_s, None, lost)) if lost else tuple(closed)


class OutageProbe:
    """Ping `pairs` from start() to stop(), or during a `with` block; then read `table`."""

    def __init__(
        self, net: NetworkHandle, pairs: Sequence[tuple[int, int]], *, interval_ms: float = 10.0
    ) -> None:
        """Prepare the pings.

        Raises:
            ValueError: more requests a second than one process sends in time.
        """
        if not pairs or interval_ms <= 0:
            raise ValueError("outage: at least one pair, and an interval over 0 ms")
        if len(pairs) * 1000 / interval_ms > MOST_PER_SECOND:
            least_ms = len(pairs) * 1000 / MOST_PER_SECOND
            raise ValueError(
                f"outage: {len(pairs)} pairs each {interval_ms:g} ms are over {MOST_PER_SECOND} "
                f"requests a second; take an interval of {least_ms:g} ms, or fewer pairs"
            )
        self.net = net
        self.pairs = list(pairs)
        self.interval_s = interval_ms / 1000
        self._process: subprocess.Popen[bytes] | None = None
        self._table: OutageTable | None = None

    def __enter__(self) -> OutageProbe:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def table(self) -> OutageTable:
        """Return the outages.

        Raises:
            RuntimeError: stop() has not been called.
        """
        if self._table is None:
            raise RuntimeError("outage: not stopped yet")
        return self._table

    def start(self) -> None:
        """Start the prober and return when it is ready.

        Raises:
            RuntimeError: the prober could not start; the message has its last line of errors.
        """
        with ExitStack() as stack:
            fds = {}
            for src in {src for src, _ in self.pairs}:
                with netns.inside(self.net.netns(src)):
                    fds[src] = stack.enter_context(icmp.receiver(icmp.ECHO_REPLY)).fileno()
            self._process = self._spawn(fds.values())
        address = self.net.topology.naming.address
        pairs = b"".join(PAIR.pack(fds[src], address(dst)) for src, dst in self.pairs)
        assert self._process.stdin
        with suppress(BrokenPipeError):  # it has ended; its last line is reported below
            self._process.stdin.write(
                START.pack(len(self.pairs), self.interval_s, SETTLE_S) + pairs
            )
            self._process.stdin.flush()
        assert self._process.stdout
        if self._process.stdout.read(len(READY)) != READY:
            _, complaint = self._end()
            raise RuntimeError(f"outage: the prober could not start: {complaint}")

    def _spawn(self, fds: Iterable[int]) -> subprocess.Popen[bytes]:
        """Start the prober with these sockets."""
        return subprocess.Popen(
            isolated_python.command("weft.testbed.measure.prober", packages=False),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=list(fds),
            cwd=isolated_python.FOLDER,
            env=isolated_python.environment({ENVIRONMENT: self.net.identity.id}),
        )

    def stop(self) -> None:
        """End the prober and read its report.

        Raises:
            RuntimeError: there is no report; the message has the prober's last line of errors.
        """
        if self._process is None:
            return
        report, complaint = self._end()
        if len(report) < REPORT.size:
            raise RuntimeError(f"outage: the prober died: {complaint}")
        count, begin_s, end_s, late_s, real_time = REPORT.unpack_from(report)
        answers = array("d", report[REPORT.size : REPORT.size + 8 * count])
        outages = []
        for number, (src, dst) in enumerate(self.pairs):
            own = answers[number :: len(self.pairs)]
            received = sum(1 for answer_s in own if answer_s)
            outages.append(Outage(src, dst, len(own), received, gaps(own, begin_s)))
        self._table = OutageTable(
            tuple(outages), begin_s, end_s, self.interval_s, late_s, real_time
        )
        fidelity.add_component(self.net, self._table.lateness())

    def _end(self) -> tuple[bytes, str]:
        """End the prober; return its output and the last line of its errors."""
        assert self._process
        process = self._process
        self._process = None
        try:
            report, errors = process.communicate(timeout=STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            return b"", f"it did not end within {STOP_TIMEOUT_S:g} s and was killed"
        last_line = errors.decode(errors="replace").strip().rpartition("\n")[2]
        return report, last_line or f"exit {process.returncode}"
