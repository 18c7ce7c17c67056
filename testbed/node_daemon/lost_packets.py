"""The packets of a daemon that were lost at this node, counted and logged by why."""

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
    """Those of one daemon.

    counters: its row.  log: writes a line.  channels: of its ports.
    """

    def __init__(
        self, counters: NodeCounters, log: Callable[[str], None], channels: Sequence[PortChannel]
    ) -> None:
        self._counters, self._log = counters, log
        self._refusals = [channel.dropped for channel in channels]
        self._dropped: Counter[str] = Counter()
        self._failed = self._refused = 0
        self._raised: set[str] = set()

    def on_sending(self, error: OSError) -> None:
        """A packet that cannot leave is lost, as it might be on the wire; most often its device is
        down, which is no error and told separately."""
        why = errno.errorcode.get(error.errno or 0, str(error))
        if why not in self._dropped:
            self._log(f"packets dropped on sending: {error.strerror}")
        self._dropped[why] += 1
        self._counters.set(dropped=self._dropped.total())

    def on_handling(self, what: str = "packet") -> None:
        """What is being handled was raised over a packet, or over another thing that came: log it
        unless it is known."""
        self._failed += 1
        self._counters.set(packets_failed=self._failed)
        told = traceback.format_exc().rstrip()
        if told not in self._raised and len(self._raised) < MOST_TRACEBACKS:
            self._raised.add(told)
            self._log(f"a {what} was dropped over which this was raised:\n{told}")

    def guarded(
        self, what: str, handle: Callable[..., Sequence[Action]], *given: object
    ) -> Sequence[Action]:
        """What `handle` makes of what is `given`, a `what`; nothing, which is counted, if it
        raises."""
        try:
            return handle(*given)
        except Exception:
            self.on_handling(what)
            return ()

    def look_for_refused(self) -> None:
        """Count what the channels have dropped since this was called last; called at every tick."""
        if any(self._refusals):
            self._count_refused()

    def _count_refused(self) -> None:
        refused = self._by_why().total()
        if refused != self._refused:
            if not self._refused:
                self._log(
                    f"packets refused: {', '.join(self._by_why())}; `weft status` counts them"
                )
            self._refused = refused
            self._counters.set(refused=refused)

    def status(self) -> dict[str, Any]:
        """All of them, JSON-able."""
        return {
            "dropped": dict(self._dropped),
            "refused": dict(self._by_why()),
            "packets_failed": self._failed,
        }

    def _by_why(self) -> Counter[str]:
        """Packets that were refused."""
        return sum(self._refusals, Counter())
