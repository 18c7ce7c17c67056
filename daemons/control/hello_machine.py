"""Base of state machines that send hellos: what follows from them is up to each."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

from weft.daemons.control.hello import HelloOutcome, Neighbourhood
from weft.daemons.core import wire
from weft.daemons.core.actions import NOTHING, UNCHANGED, Action
from weft.daemons.core.contract import Adjacencies, useless
from weft.daemons.core.events import DaemonEvent


class HelloMachine(ABC):
    """State machine of the node of `neighbourhood`; it uses hellos only, and no events."""

    def __init__(self, neighbourhood: Neighbourhood) -> None:
        self.node = neighbourhood.node
        self._neighbourhood = neighbourhood

    @abstractmethod
    def _follow(self, outcomes: Iterable[HelloOutcome], now: float) -> list[Action]:
        """Return the actions in `outcomes`, and those that changes of neighbours require."""

    def _hello(self, hello: wire.Hello, payload: bytes, port: int, now: float) -> Sequence[Action]:
        """Handle a hello with news, encoded in `payload`."""
        return self._follow(self._neighbourhood.receive(hello, payload, port, now), now)

    def _other(
        self, message: wire.DaemonMessage | None, payload: bytes, port: int, now: float
    ) -> Sequence[Action]:
        """Handle another message; None if its type is none of wire.py."""
        return NOTHING

    @property
    def deadline(self) -> float:
        return self._neighbourhood.deadline

    def start(self, now: float) -> Sequence[Action]:
        return self._follow(self._neighbourhood.start(now), now)

    def receive(self, payload: bytes, port: int, now: float) -> Sequence[Action]:
        if self._neighbourhood.refresh(payload, port, now):
            return UNCHANGED
        message = wire.decode(payload)
        if isinstance(message, wire.Hello):
            return self._hello(message, payload, port, now)
        return self._other(message, payload, port, now)

    def link_changed(self, port: int, up: bool, now: float) -> Sequence[Action]:
        return self._follow(self._neighbourhood.link_changed(port, up, now), now)

    def event(self, event: DaemonEvent, now: float) -> Sequence[Action]:
        raise useless(event)

    def tick(self, now: float) -> Sequence[Action]:
        return self._follow(self._neighbourhood.tick(now), now)

    def slow_down(self, factor: int, now: float) -> Sequence[Action]:
        return self._follow(self._neighbourhood.slow_down(factor, now), now)

    def converged(self) -> bool:
        return self._neighbourhood.complete()

    def adjacencies(self) -> Adjacencies:
        return self._neighbourhood.adjacencies()

    def status(self) -> dict[str, Any]:
        return self._neighbourhood.status()
