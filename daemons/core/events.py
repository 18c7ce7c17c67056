"""Events: reports of a runtime's capabilities to a state machine, beside packets.

The capabilities that a scheme needs determine its events (capabilities.py).  Addresses are IPv4, as
integers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from weft.daemons.core.actions import FiveTuple


class DaemonEvent:
    """Something that happened at a node."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class DestinationInUse(DaemonEvent):
    """This server sent a packet of its own to `destination`, the first one or after a pause."""

    destination: int


@dataclass(frozen=True, slots=True)
class FlowInUse(DaemonEvent):
    """This server sent a packet of its own in `flow`, the first one ever or after a pause."""

    flow: FiveTuple


@dataclass(frozen=True, slots=True)
class Refused(DaemonEvent):
    """A server on the path refused a packet of this server's own to `destination`."""

    destination: int


@dataclass(frozen=True, slots=True)
class Measured(DaemonEvent):
    """Measured load of each port, in kbit/s sent."""

    loads: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class QueuesCall(DaemonEvent):
    """The queue lengths of this switch require `state` (LBSP, section 5.1)."""

    state: int


@dataclass(frozen=True, slots=True)
class LinkDegraded(DaemonEvent):
    """The link at `port` carries less than its rate; with degraded=False, its full rate again."""

    port: int
    degraded: bool


class SeenFlow(NamedTuple):
    """A flow in the flow table of a switch.

    port: output port of a flow from a host of this switch; input port of any other flow.
    idle_s: time since its last packet, in s.
    rested_s: time since its port changed, in s.
    """

    flow: FiveTuple
    port: int
    idle_s: float = 0.0
    rested_s: float = 0.0


@dataclass(frozen=True, slots=True)
class FlowsSeen(DaemonEvent):
    """The flow table of a switch, once a period.

    Flows between two hosts of the switch are left out.
    """

    flows: tuple[SeenFlow, ...]


@dataclass(frozen=True, slots=True)
class LongQueue(DaemonEvent):
    """A packet of `flow` joined a queue beyond the threshold (DAR, section 4).

    The data plane is silent about a flow that rests: one that this switch has just moved, or, if it
    is no flow of the switch's own hosts, just reported.

    port: as in SeenFlow.
    """

    flow: FiveTuple
    port: int
