"""Perform many changes in slices, one a turn, so that other daemons of the process can run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from weft.daemons.core.actions import Action, Performer, Send

SLICE = 64  # actions in a turn: a millisecond or two


class Slices(Performer):
    """Performs actions in order, at most SLICE in each turn.

    Changes wait for the end of the turn, or for a packet that follows them; packets wait for the
    changes before them.  Routine packets overtake waiting changes, so that neighbours do not
    declare a daemon dead that sets many routes.
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
        """Perform `action`, now or later.

        Raises:
            TypeError: the action has no handler.
        """
        if isinstance(action, Send):
            if self.waiting:
                self.go_on()
            if not self.waiting or action.routine:
                self._send((action,))
                return
        super().add(action)

    def go_on(self) -> None:
        """Perform as many waiting actions as this turn allows."""
        self._left -= self.carry_out(self._left)

    def end_turn(self) -> bool:
        """Perform waiting actions and start another turn; return True if actions are left."""
        if self.waiting:
            self.go_on()
        self._left = SLICE
        return bool(self.waiting)
