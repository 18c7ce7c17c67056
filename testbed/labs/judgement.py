"""Verdicts on what the checks of a lab have measured: pure functions, a line of text each."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from weft.testbed.measure.outage import OutageTable
from weft.testbed.measure.ping import Ping
from weft.testbed.measure.traceroute import Trace
from weft.topologies.core.grammar import printable

Name = Callable[[int], str]
SHOWN = 80  # characters of a command's output


class CheckVerdict(NamedTuple):
    """Verdict on a check, and what was measured."""

    passed: bool
    measured: str


def of_pings(pings: Sequence[Ping], name: Name, *, reachable: bool) -> CheckVerdict:
    """Judge that every pair has an answer, or that none has."""
    wrong = [ping for ping in pings if bool(ping.received) != reachable]
    if not wrong:
        return CheckVerdict(True, f"{len(pings)} of {len(pings)} pairs")
    first = wrong[0]
    pair = f"{name(first.src)} -> {name(first.dst)}"
    reason = ", ".join(first.reasons) or ("no answer" if reachable else "an answer")
    return CheckVerdict(False, f"{len(wrong)} of {len(pings)} pairs differ, {pair}: {reason}")


def of_path(trace: Trace, expected: Sequence[int], name: Name) -> CheckVerdict:
    """Judge that the packet went exactly along `expected`."""
    end = f" ({trace.reason})" if trace.reason else ""
    passed = trace.nodes == tuple(expected) and not trace.reason
    return CheckVerdict(passed, " ".join(map(name, trace.nodes)) + end)


def of_loss(table: OutageTable, below_percent: float) -> CheckVerdict:
    """Judge that less than `below_percent` of all requests have no answer."""
    sent = sum(outage.sent for outage in table.outages)
    received = sum(outage.received for outage in table.outages)
    percent = 100 * (sent - received) / sent if sent else 100.0
    return CheckVerdict(percent < below_percent, f"{percent:.3g} % of {sent}")


def of_recovery(table: OutageTable, event_s: float, within_s: float, name: Name) -> CheckVerdict:
    """Judge that each pair is answered again at most `within_s` after the event.

    Args:
        table: outages of the pairs from before the event until `within_s` after it.
        event_s: time of the event on the clock of the table.
        within_s: longest time from the event to the first answer after its last gap.
        name: name of a node.
    """
    if table.begin_s > event_s:
        return CheckVerdict(False, "the machine is too busy: probing began after the event")
    longest_s, text = 0.0, "no outage"
    for outage in table.outages:
        pair = f"{name(outage.src)} -> {name(outage.dst)}"
        for gap in outage.gaps:
            if gap.end_s is None:
                return CheckVerdict(False, f"{pair}: still out")
            if gap.end_s - event_s > longest_s:
                longest_s = gap.end_s - event_s
                text = f"{pair}: {1000 * longest_s:.0f} ms"
    return CheckVerdict(longest_s <= within_s, text)


def of_goodput(goodput_bps: float, least_bps: int) -> CheckVerdict:
    """Judge that more than `least_bps` of payload arrived."""
    return CheckVerdict(goodput_bps > least_bps, f"{goodput_bps / 1e6:.3g} Mbit/s")


def of_route(next_hops: Sequence[int], via: Sequence[int] | None, name: Name) -> CheckVerdict:
    """Judge that there is a route, and that `via` are all of its next hops."""
    passed = bool(next_hops) and (via is None or sorted(via) == sorted(next_hops))
    return CheckVerdict(passed, " ".join(map(name, next_hops)) or "no route")


def of_output(output: str, pattern: str) -> CheckVerdict:
    """Judge that the output of a command contains a match of `pattern`, lines apart."""
    return CheckVerdict(re.search(pattern, output, re.MULTILINE) is not None, last_line(output))


def last_line(output: str) -> str:
    """Return the last line of a command's output, short and without control characters."""
    return printable(output.strip().rpartition("\n")[2][:SHOWN])
