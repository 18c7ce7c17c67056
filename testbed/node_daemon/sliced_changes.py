"""Many changes, made a slice in each turn, so that other daemons of the process get their turns
meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from weft.daemons.core.actions import Action, Performer, Send

SLICE = 64  # actions in a turn: a millisecond or two


class Slices(Performer):
    """Has actions carried out in order, at most SLICE in each turn.

    Changes wait for the end of the turn or for a packet to be sent behind them, and packets for the
    changes before them.  But routine packets, which say nothing new, overtake what does not fit
    into the turn: neighbours shall not take a daemon that sets routes for dead.
    """

    def __init__(
        self,
        handlers: Mapping[type[Action], Callable[[Sequence[Any]], None]],
        send: Callable[[Sequence[Send]], None],
    ) -> None:
        super().__init__({Send: send, **handlers})
        self._send = send
        self._left = SLICE  # in this turn

    def add(self, action: Action) -> None:
        """Have `action` carried out, now or later; TypeError if nobody does that."""
        if isinstance(action, Send):
            if self.waiting:
                self.go_on()
            if not self.waiting or action.routine:
                self._send((action,))
                return
        super().add(action)

    def go_on(self) -> None:
        """Have carried out as much of what waits as this turn has room for."""
        self._left -= self.carry_out(self._left)

    def end_turn(self) -> bool:
        """Go on, and begin another turn; whether something is left for it."""
        if self.waiting:
            self.go_on()
        self._left = SLICE
        return bool(self.waiting)
