"""Actions of a state machine leave its daemon in their order."""

from math import inf

import pytest

from weft.daemons.core.actions import (
    Action,
    FiveTuple,
    Hop,
    Send,
    SetFlowRewrite,
    SetQueueState,
    SetRoute,
)
from weft.testbed.node_daemon.daemon import SLICE, Daemon, Slices
from weft.topologies.core.address import Prefix

URGENT, ROUTINE = "urgent", "routine"


class Wire:
    def __init__(self, done: list[object]) -> None:
        self.done = done

    def say(self, payload: bytes, routine: bool, *, queued: bool) -> None:
        assert not queued
        self.done.append((payload, ROUTINE if routine else URGENT))


class Idle:
    """A state machine that wants nothing."""

    deadline = inf

    def converged(self) -> bool:
        return True


def daemon() -> tuple[Daemon, list[object]]:
    """A daemon without a kernel, and what it does."""
    done: list[object] = []
    made = Daemon.__new__(Daemon)
    made.links, made._sent = {0: Wire(done)}, 0  # type: ignore[dict-item]
    made._slices = Slices({SetRoute: done.extend, SetFlowRewrite: done.extend}, made._send)
    made.protocol, made._news, made._reconcile_s = Idle(), False, inf  # type: ignore[assignment]
    return made, done


def test_nothing_is_sent_before_the_changes_that_precede_it_are_made() -> None:
    router, done = daemon()
    route, flow = (
        SetRoute(Prefix(10 << 24, 8), (Hop(0, 1),)),
        SetFlowRewrite(FiveTuple(1, 2, 6, 0), 65),
    )
    router.perform([flow, Send(0, b"answer"), route, flow])
    assert done == [flow, (b"answer", URGENT)]
    router.perform([Send(0, b"hello", routine=True)])
    assert done[2:] == [route, flow, (b"hello", ROUTINE)]


def routes(count: int) -> list[SetRoute]:
    return [SetRoute(Prefix(number << 8, 24), (Hop(0, 1),)) for number in range(count)]


def test_many_changes_are_made_in_slices_and_in_order() -> None:
    router, done = daemon()
    many, told, flow = (
        routes(2 * SLICE + 5),
        Send(0, b"news"),
        SetFlowRewrite(FiveTuple(1, 2, 6, 0), 65),
    )
    router.perform([*many, told, flow, told])
    assert done == many[:SLICE]
    router.perform([Send(0, b"hello", routine=True)])
    assert done == [*many[:SLICE], (b"hello", ROUTINE)]  # it overtakes what waits
    del done[SLICE]
    for turn in (1, 2):
        router.finish(float(turn))
        assert done == many[: SLICE * turn]
        assert router.deadline == turn
    router.finish(3.0)
    assert done == [*many, (b"news", URGENT), flow, (b"news", URGENT)]
    assert router.deadline == inf


def test_who_has_changes_to_make_has_not_converged() -> None:
    router, _ = daemon()
    said = list[str]()
    router._log, router._counters, router._converged, router.inherited = (
        Said(said),
        Cells(),
        False,
        0,
    )  # type: ignore[assignment]
    router.perform(routes(SLICE + 1))
    router._update_converged(0.0)
    assert said == []
    router.finish(1.0)
    router.finish(2.0)
    router._update_converged(2.0)
    assert said == ["converged"]


class Said:
    def __init__(self, said: list[str]) -> None:
        self.write = said.append


class Cells:
    def set(self, **values: object) -> None:
        pass


@pytest.mark.parametrize("action", [SetQueueState(1), Action()])
def test_what_nobody_carries_out_raises(action: Action) -> None:
    with pytest.raises(TypeError, match="no handler for"):
        daemon()[0].perform([action])
