"""Count and log the packets that a daemon lost at this node, by reason."""

from __future__ import annotations

import errno
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from weft.daemons.core.actions import Action
from weft.testbed.node_daemon.node_counters import NodeCounters
from weft.testbed.node_daemon.sealed_channel import PortChannel

MOST_TRACEBACKS = 8  # logged


class LostPackets:
    """The lost packets of one daemon."""

    def __init__(
        self, counters: NodeCounters, log: Callable[[str], None], channels: Sequence[PortChannel]
    ) -> None:
        """counters: its row; log: writes a line; channels: of its ports."""
        self._counters = counters
        self._log = log
        self._refusals = [channel.dropped for channel in channels]
        self._dropped: Counter[str] = Counter()
        self._refused = 0
        self._raised: set[str] = set()

    def on_sending(self, error: OSError) -> None:
        """Count a packet that could not be sent; most often its device is down."""
        why = errno.errorcode.get(error.errno or 0, str(error))
        if why not in self._dropped:
            self._log(f"packets dropped on sending: {error.strerror}")
        self._dropped[why] += 1
        self._counters.set(dropped=self._dropped.total())

    def on_handling(self, what: str = "packet") -> None:
        """Count a packet, or another `what`, that raised the current exception; log new ones."""
        self._counters.add("packets_failed")
        text = traceback.format_exc().rstrip()
        if text not in self._raised and len(self._raised) < MOST_TRACEBACKS:
            self._raised.add(text)
            self._log(f"a {what} was dropped because it raised this exception:\n{text}")

    def guarded(
        self, what: str, handle: Callable[..., Sequence[Action]], *arguments: object
    ) -> Sequence[Action]:
        """Return `handle(*arguments)`; if it raises, count a lost `what` and return no actions."""
        try:
            return handle(*arguments)
        except Exception:
            self.on_handling(what)
            return ()

    def look_for_refused(self) -> None:
        """Update the count of packets that the channels refused; called at every tick."""
        if any(self._refusals):
            self._count_refused()

    def _count_refused(self) -> None:
        reasons = self._refused_by_reason()
        if reasons.total() == self._refused:
            return
        if not self._refused:
            self._log(f"packets refused: {', '.join(reasons)}; `weft status` counts them")
        self._refused = reasons.total()
        self._counters.set(refused=self._refused)

    def status(self) -> dict[str, Any]:
        """Return the counts by reason, JSON-able."""
        return {
            "dropped": dict(self._dropped),
            "refused": dict(self._refused_by_reason()),
        }

    def _refused_by_reason(self) -> Counter[str]:
        """Return the refused packets of all channels, by reason."""
        return sum(self._refusals, Counter())
