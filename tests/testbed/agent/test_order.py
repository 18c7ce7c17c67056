"""What a daemon does leaves it in the order in which its state machine asked for it."""

import pytest

from weft.daemons.core.actions import Action, Flow, Hop, Performer, Send, SetFlowRewrite, SetQueueState, SetRoute
from weft.testbed.agent.daemon import Daemon
from weft.testbed.agent.transport import ROUTINE, URGENT
from weft.topologies.core.address import Prefix


class Wire:
    def __init__(self, done: list[object]) -> None:
        self.done = done

    def sendto(self, payload: bytes, group: object) -> None:
        self.done.append((payload, group))


def daemon() -> tuple[Daemon, list[object]]:
    """A daemon without a kernel, and what it does."""
    done: list[object] = []
    made = Daemon.__new__(Daemon)
    made.links, made._sent = {0: Wire(done)}, 0  # type: ignore[dict-item]
    made._performer = Performer({SetRoute: done.extend, SetFlowRewrite: done.extend})
    return made, done


def test_nothing_is_sent_before_the_changes_that_precede_it_are_made() -> None:
    one, done = daemon()
    route, flow = SetRoute(Prefix(10 << 24, 8), (Hop(0, 1),)), SetFlowRewrite(Flow(1, 2, 6, 0), 65)
    one.perform([flow, Send(0, b"answer"), route, flow])
    assert done == [flow, (b"answer", URGENT), route]
    one.perform([Send(0, b"hello", routine=True)])
    assert done[3:] == [flow, (b"hello", ROUTINE)]


@pytest.mark.parametrize("action", [SetQueueState(1), Action()])
def test_what_nobody_carries_out_raises(action: Action) -> None:
    with pytest.raises(TypeError, match="nobody here carries out"):
        daemon()[0].perform([action])
