"""The state that a switch's queues call for, and the one by which it moves packets (LBSP, section
5).
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.daemons.core.actions import SetQueueState
from weft.daemons.core.events import QueuesCall
from weft.testbed.data_plane.capability import LinuxCapability
from weft.testbed.data_plane.plane_tables import SwitchQueueState


class LinuxQueueStates(LinuxCapability):
    """Those of one switch.  Its queues call for state 0 as long as the data plane moves nothing."""

    actions = (SetQueueState,)

    def __init__(self, queue_state: SwitchQueueState) -> None:
        self._queue_state = queue_state

    def apply(self, actions: Sequence[SetQueueState]) -> str:
        self._queue_state.enter(actions[-1].state)
        return ""

    def look(self, now: float) -> list[QueuesCall]:
        return [QueuesCall(self._queue_state.wanted())]
