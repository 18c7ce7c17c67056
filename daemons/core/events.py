"""What a carrier's capabilities tell a state machine, beside what it hears on the wire.

Which events there are follows from what the scheme needs (capabilities.py).  Addresses are IPv4, as integers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from weft.daemons.core.actions import Flow


class Event:
    """Something that happened at a node."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class DestinationInUse(Event):
    """A packet of this server's own for `destination` was sent: the first one, or the first for some time."""

    destination: int


@dataclass(frozen=True, slots=True)
class FlowInUse(Event):
    """A packet of this server's own was sent: the first one of `flow`, or the first for some time."""

    flow: Flow


@dataclass(frozen=True, slots=True)
class Refused(Event):
    """Some server on the way refused a packet of this server's own for `destination`."""

    destination: int


@dataclass(frozen=True, slots=True)
class Measured(Event):
    """What leaves by each port, in kbit/s."""

    loads: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class QueuesCall(Event):
    """The queues of this switch call for `state` (LBSP, section 5.1)."""

    state: int


@dataclass(frozen=True, slots=True)
class LinkDegraded(Event):
    """The link at `port` carries less than it should; or, not `degraded`, as much again."""

    port: int
    degraded: bool


class SeenFlow(NamedTuple):
    """A flow in the table of a switch.

    port: by which its packets leave, if a host of this switch sends them; else by which they come in.
    idle_s: since its last packet.  rested_s: since its port changed.
    queued: whether, of late, a packet of it found as much waiting as calls for another way.
    """

    flow: Flow
    port: int
    idle_s: float = 0.0
    rested_s: float = 0.0
    queued: bool = False


@dataclass(frozen=True, slots=True)
class FlowsSeen(Event):
    """The table of a switch's flows, once a period.  Flows between two hosts of the switch are not in it."""

    flows: tuple[SeenFlow, ...]
