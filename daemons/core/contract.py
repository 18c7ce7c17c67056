"""The contract between a routing protocol and whatever carries it: Linux (testbed/agent/daemon.py) or wires in memory
(daemons/simulator).

A protocol is a state machine of one node.  Four things can happen to it; what to do about them comes back as data, to
be done in order.  It never reads a clock, never draws a random number, never touches a socket, so that a test can be
its network and its time.

A turn of the carrier: sleep until `deadline` or until something can be read; read the clock, once; hand over everything
that is queued at any port, in order of arrival; and only then, if `deadline` has passed, tick().  A carrier that was
kept from running thereby lets the neighbours speak before their silence is judged.

A protocol starts with a forwarding table that holds none of its routes.  So does one that is started again: the carrier
takes away what its predecessor left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from topologies.core.address import Prefix


class Hop(NamedTuple):
    """The next node of a route: which port leads there, and who it is (a crossbar port leads to several nodes)."""

    port: int
    node: int


@dataclass(frozen=True, slots=True)
class Send:
    """Put `payload` on the wire at `port`, for everybody there to hear.

    routine: says nothing new.  Whoever hears it may leave it unread until something else wakes it, and is then told
        when it came: where hundreds of daemons share a machine, waking them is what hellos cost.
    """

    port: int
    payload: bytes
    routine: bool = False


@dataclass(frozen=True, slots=True)
class SetRoute:
    """Forward `prefix` to any one of `hops`.

    An empty tuple: to nobody, packets there are refused.  Where a shorter prefix that is set covers it, they must not
    follow that one: in a fat-tree the shorter prefix leads up, to a switch whose only way is back down.

    unless_set: only if the table has no route to `prefix`, be it of a daemon that ran before this one.
    """

    prefix: Prefix
    hops: tuple[Hop, ...]
    unless_set: bool = False


@dataclass(frozen=True, slots=True)
class Steer:
    """Let this node's own packets for the server at `destination` bear the address `steered` on their way; None: that
    of DR's path (daemons/routing/proxy_addresses.py)."""

    destination: int
    steered: int | None


@dataclass(frozen=True, slots=True)
class Readdress:
    """Give packets for `prefix`, this node's own and others', that first octet before their route is looked up; None:
    leave it as it is.  What comes out may be changed once more.  Prefixes do not overlap."""

    prefix: Prefix
    first_octet: int | None


class Flow(NamedTuple):
    """Packets that belong together: IPv4 addresses of the servers, as integers; the protocol's number; source and
    destination port, 16 bits each, 0 where the protocol has none."""

    source: int
    destination: int
    protocol: int
    ports: int


@dataclass(frozen=True, slots=True)
class SetFlow:
    """Let packets of `flow` that this node sends or passes on bear an address with that first octet when their route is
    looked up; None: that of packets of which nothing is known."""

    flow: Flow
    first_octet: int | None


@dataclass(frozen=True, slots=True)
class SetState:
    """Let a switch move packets between its link groups as this state of LBSP says (daemons/lbsp/routing.py)."""

    state: int


@dataclass(frozen=True, slots=True)
class Note:
    """Something that a person reading the node's log would want to know."""

    text: str


Action = Send | SetRoute | Steer | Readdress | SetFlow | SetState | Note
NOTHING: Sequence[Action] = ()


class Adjacencies(NamedTuple):
    """Neighbours, each counted at every port at which it is: those that the topology promises, those that are up, and
    how often one was lost."""

    promised: int
    up: int
    lost: int


class RoutingProtocol(Protocol):
    """Feed it what happened and the time in seconds, from any origin; do what it returns, in order."""

    @property
    def deadline(self) -> float:
        """Call tick() no later than this; ask again after every call."""

    def start(self, now: float) -> Sequence[Action]:
        """What to do first; called once, before anything else."""

    def receive(self, payload: bytes, port: int, now: float) -> Sequence[Action]:
        """`payload` was heard at `port`; `now` is when it came.  Garbage is dropped, never raised."""

    def link_changed(self, port: int, up: bool, now: float) -> Sequence[Action]:
        """The carrier of `port` came or went.  Ports are taken to be up before the first call."""

    def tick(self, now: float) -> Sequence[Action]:
        """The deadline has passed (or somebody called early, which does no harm)."""

    def converged(self) -> bool:
        """Whether every neighbour that the topology promises is up, and every route that they give is set."""

    def adjacencies(self) -> Adjacencies:
        """How many neighbours there are; asked after every change."""

    def status(self) -> dict[str, Any]:
        """What a person wants to see, JSON-able: neighbours, routes, counters."""


class SteeringProtocol(RoutingProtocol, Protocol):
    """A protocol of a server that steers its own packets; its carrier tells it more.

    Addresses are IPv4, as integers.
    """

    def in_use(self, destination: int, now: float) -> Sequence[Action]:
        """A packet of this server's own for `destination` was sent: the first one, or the first for some time."""

    def refused(self, destination: int, now: float) -> Sequence[Action]:
        """Some server on the way refused a packet of ours for `destination`."""

    def measured(self, loads: Mapping[int, int]) -> None:
        """What leaves by each port, in kbit/s."""


class FlowProtocol(RoutingProtocol, Protocol):
    """A protocol of a server that gives each flow a path of its own; its carrier tells it more."""

    def in_use(self, flow: Flow, now: float) -> Sequence[Action]:
        """A packet of this server's own was sent: the first one of `flow`, or the first for some time."""

    def refused(self, destination: int, now: float) -> Sequence[Action]:
        """Some server on the way refused a packet of ours for `destination`."""

    def measured(self, loads: Mapping[int, int]) -> None:
        """What leaves by each port, in kbit/s."""


class CrowdProtocol(RoutingProtocol, Protocol):
    """A protocol of a switch that answers for what its queues and links are like; its carrier tells it more."""

    def crowded(self, state: int, now: float) -> Sequence[Action]:
        """The queues of this switch call for `state` (LBSP, section 5.1)."""

    def degrade(self, port: int, degraded: bool, now: float) -> Sequence[Action]:
        """The link at `port` carries less than it should, or as much again; ValueError if no other switch is there."""
