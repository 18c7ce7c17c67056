"""The state that a switch's queues call for, and its present state (LBSP, section 5)."""

from __future__ import annotations

from collections.abc import Sequence

from weft.daemons.core.actions import SetQueueState
from weft.daemons.core.events import QueuesCall
from weft.testbed.data_plane.capability import LinuxCapability
from weft.testbed.data_plane.plane_tables import SwitchQueueState


class LinuxQueueStates(LinuxCapability):
    """Queue states of one switch.  They call for state 0 until the data plane moves packets."""

    actions = (SetQueueState,)

    def __init__(self, queue_state: SwitchQueueState) -> None:
        self._queue_state = queue_state

    def apply(self, actions: Sequence[SetQueueState]) -> str:
        self._queue_state.enter(actions[-1].state)
        return ""

    def look(self, now: float) -> list[QueuesCall]:
        return [QueuesCall(self._queue_state.pending_state())]
