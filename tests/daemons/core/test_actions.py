"""Actions are carried out in order, and none is left out."""

import pytest

from weft.daemons.core.actions import (
    Action,
    Flow,
    Hop,
    Note,
    Performer,
    SetFlowRewrite,
    SetQueueState,
    SetRoute,
    handler_of,
)
from weft.topologies.core.address import Prefix

FLOW = Flow(1, 2, 6, 0)
ROUTE = SetRoute(Prefix(10 << 24, 8), (Hop(0, 1),))


class Unknown(Action):
    pass


def performer():
    done = []
    handlers = {kind: lambda actions, name=name: done.append((name, list(actions))) for kind, name in KINDS.items()}
    return Performer(handlers), done


KINDS = {SetRoute: "routes", SetFlowRewrite: "flows"}


def test_what_follows_one_another_is_done_together_and_nothing_overtakes_another_kind():
    one, done = performer()
    set_flow, forget = SetFlowRewrite(FLOW, 65), SetFlowRewrite(FLOW, None)
    for action in (ROUTE, ROUTE, set_flow, ROUTE, forget, forget):
        one.add(action)
    assert done == [("routes", [ROUTE, ROUTE]), ("flows", [set_flow]), ("routes", [ROUTE])]
    one.flush()
    assert done[3:] == [("flows", [forget, forget])]
    one.flush()
    assert len(done) == 4


@pytest.mark.parametrize("action", [Unknown(), SetQueueState(1), Note("x")])
def test_an_action_that_nobody_carries_out_raises(action):
    one, _ = performer()
    with pytest.raises(
        TypeError, match=f"nobody here carries out {type(action).__name__}, only SetFlowRewrite, SetRoute"
    ):
        one.add(action)


def test_kinds_are_told_exactly():
    class Special(SetQueueState):
        pass

    with pytest.raises(TypeError, match="Special"):
        handler_of({SetQueueState: print}, Special(0))
