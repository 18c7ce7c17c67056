"""Capabilities of the Linux runtime (daemons/core/contract.py): the base, and a switch's.

A capability applies the actions that it lists, and returns the events that its sockets or its polls
of the kernel bring.
"""

from __future__ import annotations

import select
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Any, NamedTuple, Protocol

from weft.daemons.core.actions import Action, SetFlowPort, SetQueueState
from weft.daemons.core.contract import (
    DaemonEvent,
    FlowPlacement,
    FlowsSeen,
    LinkDegraded,
    LongQueue,
    QueuesCall,
    SeenFlow,
)
from weft.testbed.data_plane.plane_tables import (
    LongQueues,
    SwitchFlows,
    SwitchQueueState,
    is_destination,
    to_destination,
)
from weft.testbed.linux import clock, netlink
from weft.testbed.linux.tc import root_counters


class Wakes(IntEnum):
    """Events of a readable socket that wake its daemon, as epoll's bits."""

    NEVER = 0  # read when something else wakes the daemon
    AT_ONCE = select.EPOLLIN
    # for events as frequent as packets, which must not starve the others
    ONCE_A_TICK = select.EPOLLIN | select.EPOLLONESHOT


class OpenDescriptor(Protocol):
    """A socket, or another open descriptor with its interface."""

    def fileno(self) -> int: ...
    def detach(self) -> int: ...
    def close(self) -> None: ...


class EventSource(NamedTuple):
    """A socket, a function that reads its events, and when the socket wakes the daemon."""

    socket: OpenDescriptor
    read: Callable[[], Iterable[DaemonEvent]]
    wakes: Wakes


class LinuxCapability:
    """A capability without actions and events."""

    actions: Sequence[type[Action]] = ()

    def apply(self, actions: Sequence[Any]) -> str:
        """Apply `actions`, of the classes in `self.actions`, and return a line to log or "".

        Raises:
            NetlinkError, BpfError: the kernel refused a change.
        """
        raise NotImplementedError

    def sources(self) -> Sequence[EventSource]:
        return ()

    def look(self, now: float) -> Iterable[DaemonEvent]:
        """Return events that only a poll of the kernel shows; called at every tick."""
        return ()

    def reconcile(self) -> None:
        """Retry the changes of the last apply() that the kernel refused."""

    def sockets(self) -> Sequence[OpenDescriptor]:
        return ()

    def close(self) -> None:
        """Close the sockets; applied changes stay."""
        for open_socket in self.sockets():
            open_socket.close()


LEAST_FRACTION = 0.7
LOOKS = 2  # slow samples in a row that make a link degraded
HOLD_S = 10.0
NS = 1e-9


class PortSample(NamedTuple):
    """A port's bytes sent in total and bytes waiting, at a time."""

    at_s: float
    sent_bytes: int
    waiting_bytes: int


class DegradedLinkDetector:
    """Detector of degraded links by a switch's own queues, at `ports`, whose links have `rate_bps`.

    If a backlog takes a healthy link longer than one sampling interval to drain, the link was busy
    for the whole interval.  A link that then sends less than `LEAST_FRACTION` of its rate, twice in
    a row, is degraded.  Traffic leaves a degraded link, so its recovery cannot be measured: it is
    tried again after `HOLD_S`.
    """

    def __init__(self, ports: Iterable[int], rate_bps: int) -> None:
        self._rate_bps = rate_bps
        self._before: dict[int, PortSample] = {}
        self._slow_samples: dict[int, int] = dict.fromkeys(ports, 0)  # in a row
        self._retry_s: dict[int, float] = {}  # by degraded port

    def judge(self, counters: Mapping[int, tuple[int, int]], now: float) -> dict[int, bool]:
        """Return ports whose link has become degraded (True) or is to be tried again (False).

        Args:
            counters: bytes sent and bytes waiting at each port, by port number.
            now: time in seconds.
        """
        changed = {port: False for port, retry_s in self._retry_s.items() if retry_s <= now}
        for port in changed:
            del self._retry_s[port]
        for port, (sent_bytes, waiting_bytes) in counters.items():
            before = self._before.get(port)
            sample = PortSample(now, sent_bytes, waiting_bytes)
            self._before[port] = sample
            if before is None or port in self._retry_s:
                continue
            is_slow = self._is_slow(before, sample)
            self._slow_samples[port] = self._slow_samples[port] + 1 if is_slow else 0
            if self._slow_samples[port] >= LOOKS:
                self._slow_samples[port] = 0
                self._retry_s[port] = now + HOLD_S
                changed[port] = True
        return changed

    def _is_slow(self, before: PortSample, sample: PortSample) -> bool:
        possible_bytes = self._rate_bps / 8 * (sample.at_s - before.at_s)
        if before.waiting_bytes <= possible_bytes:
            return False
        return sample.sent_bytes - before.sent_bytes < LEAST_FRACTION * possible_bytes


class LinuxLinkRates(LinuxCapability):
    """Watches `ports`, by number their interface indexes, that should send at `rate_bps`.

    queues: a socket in the switch's namespace, which stays its owner's.
    """

    def __init__(self, ports: Mapping[int, int], rate_bps: int, queues: netlink.Socket) -> None:
        self._detector, self._queues = DegradedLinkDetector(ports, rate_bps), queues
        self._port = {ifindex: port for port, ifindex in ports.items()}

    def look(self, now: float) -> list[LinkDegraded]:
        counters = {
            self._port[ifindex]: (queue.sent_bytes, queue.waiting_bytes)
            for ifindex, queue in root_counters(self._queues)
            if ifindex in self._port
        }
        changed = self._detector.judge(counters, now)
        return [LinkDegraded(port, degraded) for port, degraded in changed.items()]


class LinuxQueueStates(LinuxCapability):
    """Queue states of one switch (LBSP, section 5).

    They call for state 0 until the data plane moves packets.
    """

    actions = (SetQueueState,)

    def __init__(self, queue_state: SwitchQueueState) -> None:
        self._queue_state = queue_state

    def apply(self, actions: Sequence[SetQueueState]) -> str:
        self._queue_state.enter(actions[-1].state)
        return ""

    def look(self, now: float) -> list[QueuesCall]:
        return [QueuesCall(self._queue_state.pending_state())]


class LinuxFlowPlacements(LinuxCapability):
    """The flow table of a switch (DAR): the daemon reads it once a period and sets output ports.

    Flows that join queues beyond the threshold are reported at once.

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
