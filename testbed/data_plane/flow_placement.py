"""The flow table of a switch: its daemon reads it once a period and sets output ports (DAR).

Flows that join queues beyond the threshold are reported at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from weft.daemons.core.actions import SetFlowPort
from weft.daemons.core.capabilities import FlowPlacement
from weft.daemons.core.events import FlowsSeen, LongQueue, SeenFlow
from weft.testbed.data_plane.capability import EventSource, LinuxCapability, OpenDescriptor, Wakes
from weft.testbed.data_plane.plane_tables import (
    LongQueues,
    SwitchFlows,
    is_destination,
    to_destination,
)
from weft.testbed.linux import clock

NS = 1e-9


class LinuxFlowPlacements(LinuxCapability):
    """Flow placements at one switch.

    ports: index of each port's interface, by port.
    queues: reports about the switch's queues; None for a switch that makes none.
    """

    actions = (SetFlowPort,)

    def __init__(
        self,
        need: FlowPlacement,
        flows: SwitchFlows,
        ports: Mapping[int, int],
        queues: LongQueues | None = None,
    ) -> None:
        self._need, self._flows, self._ifindex = need, flows, ports
        self._queues = queues
        self._port = {ifindex: port for port, ifindex in ports.items()}
        self._turn: int | None = None

    def apply(self, actions: Sequence[SetFlowPort]) -> str:
        now_ns = round(clock.monotonic() / NS)
        for action in actions:
            self._flows.place(action.flow, self._ifindex[action.port], now_ns)
            if self._need.by_destination:
                self._flows.place(
                    to_destination(action.flow.destination), self._ifindex[action.port], now_ns
                )
        return ""

    def look(self, now: float) -> list[FlowsSeen]:
        turn = self._need.turn(now)
        if turn == self._turn:
            return []
        self._turn = turn
        entries = self._flows.read_all()
        destinations = {flow.destination for flow in entries if not is_destination(flow)}
        seen_flows = []
        for flow, noted in entries.items():
            idle_s = now - noted.last_ns * NS
            if idle_s > self._need.idle_s:
                # the entry of a destination stays while flows depend on it
                if not is_destination(flow) or flow.destination not in destinations:
                    self._flows.forget(flow)
            elif noted.port in self._port and not is_destination(flow):
                moved_s = now - noted.moved_ns * NS
                seen_flows.append(SeenFlow(flow, self._port[noted.port], idle_s, moved_s))
        return [FlowsSeen(tuple(seen_flows))]

    def sources(self) -> list[EventSource]:
        queues = self._queues
        return [EventSource(queues.ring, self._reports, Wakes.AT_ONCE)] if queues else []

    def sockets(self) -> list[OpenDescriptor]:
        return [self._queues.ring] if self._queues else []

    def _reports(self) -> list[LongQueue]:
        assert self._queues
        return [
            LongQueue(flow, self._port[ifindex])
            for flow, ifindex in self._queues.read()
            if ifindex in self._port
        ]
