"""The contract between a state machine, which decides what one node does, and whatever carries it: Linux
(testbed/agent/daemon.py) or wires in memory (daemons/simulator).

Five things can happen to a state machine; what to do about them comes back as data (actions.py), to be done in order.
It never reads a clock, never draws a random number, never touches a socket, so that a test can be its network and its
time.

A turn of the carrier: sleep until `deadline` or until something can be read; read the clock, once; hand over everything
that is queued at any port, in order of arrival; and only then, if `deadline` has passed, tick().  A carrier that was
kept from running thereby lets the neighbours speak before their silence is judged.

Actions are carried out in order, whatever their kinds: a Send leaves only after every change that precedes it has been
made, since what it says may be that the change has been made.  A carrier may make changes together as long as nobody
outside can tell.

A state machine starts with a forwarding table that holds none of its routes.  So does one that is started again: the
carrier takes away what its predecessor left.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from weft.daemons.core.actions import Action
from weft.daemons.core.events import Event


class Adjacencies(NamedTuple):
    """Neighbours, each counted at every port at which it is: those that the topology promises, those that are up, and
    how often one was lost."""

    promised: int
    up: int
    lost: int


class StateMachine(Protocol):
    """Feed it what happened and the time in seconds, from any origin; do what it returns, in order."""

    @property
    def deadline(self) -> float:
        """Call tick() no later than this; ask again after every call."""

    def start(self, now: float) -> Sequence[Action]:
        """What to do first; called once, before anything else."""

    def receive(self, payload: bytes, port: int, now: float) -> Sequence[Action]:
        """`payload` was heard at `port`; `now` is when it came.  UNCHANGED spares the question for the deadline.

        wire.Garbage if no node of this network can have said it: the carrier drops it, and counts it.
        """

    def link_changed(self, port: int, up: bool, now: float) -> Sequence[Action]:
        """The carrier of `port` came or went.  Ports are taken to be up before the first call."""

    def event(self, event: Event, now: float) -> Sequence[Action]:
        """A capability that the scheme needs, or an operator, tells something.

        ValueError, in one line, if this state machine has no use for that.
        """

    def tick(self, now: float) -> Sequence[Action]:
        """The deadline has passed (or somebody called early, which does no harm)."""

    def converged(self) -> bool:
        """Whether every neighbour that the topology promises is up, and every route that they give is set."""

    def adjacencies(self) -> Adjacencies:
        """How many neighbours there are; asked after every change."""

    def status(self) -> dict[str, Any]:
        """What a person wants to see, JSON-able: neighbours, routes, counters."""


def useless(event: Event) -> ValueError:
    """What event() raises for one that the state machine has no use for."""
    return ValueError(f"this node's scheme has no use for {event}")
