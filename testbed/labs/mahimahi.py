"""Traces of a link's capacity in the format of Mahimahi (Netravali et al., USENIX ATC 2015).

Each line is a time in ms at which the link may send one packet of 1504 bytes.  After its last line
a trace repeats.
"""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

from weft.topologies.core.grammar import quoted
from weft.topologies.core.link import LEAST_BPS

PACKET_BITS = 8 * 1504
WINDOW_MS = 100  # the rate is constant for so long
MOST_BYTES = 1 << 24


def read(path: Path) -> list[int]:
    """Return the times in ms of the trace at `path`; ValueError names the line that is wrong."""
    try:
        with path.open(encoding="ascii") as file:
            text = file.read(MOST_BYTES + 1)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no trace of Mahimahi"
        raise ValueError(f"{path.name}: {reason}") from None
    if len(text) > MOST_BYTES:
        raise ValueError(f"{path.name}: a trace has at most {MOST_BYTES} bytes")
    times_ms = [0]
    for number, line in enumerate(text.splitlines(), 1):
        if not line.isdecimal() or len(line) > 9 or int(line) < times_ms[-1]:
            expected = "milliseconds, not before the line above"
            raise ValueError(f"{path.name}:{number}: {expected}, got {quoted(line)}")
        times_ms.append(int(line))
    if not times_ms[-1]:
        raise ValueError(f"{path.name}: a trace lasts more than 0 ms")
    return times_ms[1:]


def rates(times_ms: list[int], length_s: float) -> list[tuple[float, int]]:
    """Return (seconds, rate in bit/s) of each change of the rate, within `length_s`."""
    period_ms = times_ms[-1]
    packets = Counter(max(1, time_ms) for time_ms in times_ms)
    changes: list[tuple[float, int]] = []
    for begin_ms in range(0, math.ceil(1000 * length_s), WINDOW_MS):
        # the packet at the period's end belongs to it, so times begin at 1
        times = (time_ms % period_ms + 1 for time_ms in range(begin_ms, begin_ms + WINDOW_MS))
        count = sum(packets[time_ms] for time_ms in times)
        # a link cannot be slower, also in a window without a packet
        bps = max(LEAST_BPS, count * PACKET_BITS * 1000 // WINDOW_MS)
        if not changes or changes[-1][1] != bps:
            changes.append((begin_ms / 1000, bps))
    return changes
