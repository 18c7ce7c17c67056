"""How long pairs could not reach each other: pings every 10 ms from a process of their own
(prober.py).

A process, because this one has other things to do meanwhile.  It gets its sockets from here, each
within a server's namespace; it stops when its standard input ends, which a death of this process
brings about too.  How late it was is part of the verdict of the Fidelity in whose `with` it stops.
"""

from __future__ import annotations

import subprocess
from array import array
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass

from weft.testbed.linux import icmp, netns
from weft.testbed.measure import fidelity
from weft.testbed.measure.fidelity import Component, at_most
from weft.testbed.measure.prober import PAIR, READY, REPORT, START
from weft.testbed.runs import isolated_python
from weft.testbed.runs.network_handle import NetworkHandle
from weft.testbed.runs.run import ENVIRONMENT

# requests a second whose answers one process can receive in time, with half of a core
MOST_PER_SECOND = 20_000
# by which a request may be late, for PASS and for WARN: gaps are not known better than that
LATE_INTERVALS = (2, 10)
SETTLE_S = 0.5  # how long stop() waits for the answers that are missing
STOP_TIMEOUT_S = 10.0


@dataclass(frozen=True)
class Gap:
    """A time in which requests were lost: from the last answer before to the first after, in s of
    CLOCK_MONOTONIC.

    begin_s: when probing began, if no answer came before.  end_s: None if none came after.
    """

    begin_s: float
    end_s: float | None
    lost: int

    def length_s(self, until_s: float) -> float:
        """How long it was; one without an end lasts until `until_s`."""
        return (until_s if self.end_s is None else self.end_s) - self.begin_s


@dataclass(frozen=True)
class Outage:
    """One pair: requests sent and answered, and every gap, in order."""

    src: int
    dst: int
    sent: int
    received: int
    gaps: tuple[Gap, ...]


@dataclass(frozen=True)
class OutageTable:
    """What the pairs had from `begin_s` to `end_s`, in s of CLOCK_MONOTONIC.

    interval_s: between requests of a pair; no gap is known better than to this.
    late_s: how late the latest request was sent; a gap no longer than that may be the prober's own
        doing.
    real_time: whether the prober had real-time priority.
    """

    outages: tuple[Outage, ...]
    begin_s: float
    end_s: float
    interval_s: float
    late_s: float
    real_time: bool

    def lateness(self) -> Component:
        """How late the prober was, for the verdict on a run that uses its gaps."""
        pass_ms, warn_ms = (1000 * self.interval_s * most for most in LATE_INTERVALS)
        return at_most("late pings", 1000 * self.late_s, "ms", pass_ms, warn_ms)

    def longest(self) -> tuple[Outage, float] | None:
        """The pair that was cut off longest without a break, and for how many seconds; None if
        nothing was lost."""
        every = [
            (outage, gap.length_s(self.end_s)) for outage in self.outages for gap in outage.gaps
        ]
        return max(every, key=lambda one: one[1], default=None)


def gaps(answers: Sequence[float], begin_s: float) -> tuple[Gap, ...]:
    """The gaps of one pair; `answers`: when each request was answered, in the order of sending, 0
    if it was not."""
    found = []
    last_s, lost = begin_s, 0
    for at_s in answers:
        if not at_s:
            lost += 1
            continue
        if lost:
            found.append(Gap(last_s, max(at_s, last_s), lost))
            lost = 0
        last_s = max(at_s, last_s)
    if lost:
        found.append(Gap(last_s, None, lost))
    return tuple(found)


class OutageProbe:
    """Pings `pairs` between start() and stop(), or within a `with`; then `table` has what came of
    it."""

    def __init__(
        self, net: NetworkHandle, pairs: Sequence[tuple[int, int]], *, interval_ms: float = 10.0
    ) -> None:
        """Raises ValueError if that is more than one process can send in time."""
        if not pairs or interval_ms <= 0:
            raise ValueError("outage: at least one pair, and an interval over 0 ms")
        if len(pairs) * 1000 / interval_ms > MOST_PER_SECOND:
            raise ValueError(
                f"outage: {len(pairs)} pairs each {interval_ms:g} ms are over {MOST_PER_SECOND} "
                f"requests a second; "
                f"take an interval of {len(pairs) * 1000 / MOST_PER_SECOND:g} ms, or fewer pairs"
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
        """What was found; RuntimeError before stop()."""
        if self._table is None:
            raise RuntimeError("outage: not stopped yet")
        return self._table

    def start(self) -> None:
        """Return when the prober is at work; RuntimeError with its own words if it could not
        start."""
        with ExitStack() as stack:
            fds = {}
            for src in {src for src, _ in self.pairs}:
                with netns.inside(self.net.netns(src)):
                    fds[src] = stack.enter_context(icmp.receiver(icmp.ECHO_REPLY)).fileno()
            self._process = process = subprocess.Popen(
                isolated_python.command("weft.testbed.measure.prober", packages=False),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=list(fds.values()),
                cwd=isolated_python.FOLDER,
                env=isolated_python.environment({ENVIRONMENT: self.net.identity.id}),
            )
        assert process.stdin
        assert process.stdout
        address = self.net.topology.naming.address
        pairs = b"".join(PAIR.pack(fds[src], address(dst)) for src, dst in self.pairs)
        with suppress(BrokenPipeError):  # it has ended already: its last line is reported below
            process.stdin.write(START.pack(len(self.pairs), self.interval_s, SETTLE_S) + pairs)
            process.stdin.flush()
        if process.stdout.read(len(READY)) != READY:
            _, words = self._end()
            raise RuntimeError(f"outage: the prober could not start: {words}")

    def stop(self) -> None:
        """End the prober and take its report; RuntimeError with its own words if it has none."""
        if self._process is None:
            return
        report, words = self._end()
        if len(report) < REPORT.size:
            raise RuntimeError(f"outage: the prober died: {words}")
        count, begin_s, end_s, late_s, real_time = REPORT.unpack_from(report)
        answers = array("d", report[REPORT.size : REPORT.size + 8 * count])
        outages = []
        for number, (src, dst) in enumerate(self.pairs):
            own = answers[number :: len(self.pairs)]
            outages.append(
                Outage(src, dst, len(own), sum(1 for at in own if at), gaps(own, begin_s))
            )
        self._table = OutageTable(
            tuple(outages), begin_s, end_s, self.interval_s, late_s, real_time
        )
        fidelity.tell(self.net, self._table.lateness())

    def _end(self) -> tuple[bytes, str]:
        """What the prober wrote since, and the last line of its errors, after its end."""
        assert self._process
        process, self._process = self._process, None
        try:
            report, complaint = process.communicate(timeout=STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            return (
                b"",
                f"killed, as it had got no processor time to end within {STOP_TIMEOUT_S:g} s",
            )
        return report, complaint.decode(errors="replace").strip().rpartition("\n")[
            2
        ] or f"exit {process.returncode}"
