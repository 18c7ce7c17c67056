"""Actions are carried out in order, and none is left out."""

import pytest

from weft.daemons.core.actions import (
    Action,
    FiveTuple,
    Hop,
    Note,
    Performer,
    SetFlowRewrite,
    SetQueueState,
    SetRoute,
    handler_of,
)
from weft.topologies.core.address import Prefix

FLOW = FiveTuple(1, 2, 6, 0)
ROUTE = SetRoute(Prefix(10 << 24, 8), (Hop(0, 1),))


class Unknown(Action):
    pass


def performer():
    done = []
    handlers = {
        kind: lambda actions, name=name: done.append((name, list(actions)))
        for kind, name in KINDS.items()
    }
    return Performer(handlers), done


KINDS = {SetRoute: "routes", SetFlowRewrite: "flows"}


def test_what_follows_one_another_is_done_together_and_nothing_overtakes_another_kind():
    queue, done = performer()
    set_flow, forget = SetFlowRewrite(FLOW, 65), SetFlowRewrite(FLOW, None)
    for action in (ROUTE, ROUTE, set_flow, ROUTE, forget, forget):
        queue.add(action)
    assert done == []
    queue.flush()
    found = [
        ("routes", [ROUTE, ROUTE]),
        ("flows", [set_flow]),
        ("routes", [ROUTE]),
        ("flows", [forget, forget]),
    ]
    assert done == found
    queue.flush()
    assert done == found


@pytest.mark.parametrize("most", [1, 2, 3, 5, 7, 8])
def test_a_few_at_a_time_make_the_same_order(most):
    queue, done = performer()
    given = [
        ROUTE,
        ROUTE,
        SetFlowRewrite(FLOW, 65),
        ROUTE,
        ROUTE,
        ROUTE,
        SetFlowRewrite(FLOW, None),
    ]
    for action in given:
        queue.add(action)
    for count in range(1, 10):
        assert queue.carry_out(most) == max(0, min(most, len(given) - most * (count - 1)))
        assert [action for _, batch in done for action in batch] == given[: most * count]
        assert list(queue.waiting) == given[most * count :]


@pytest.mark.parametrize("action", [Unknown(), SetQueueState(1), Note("x")])
def test_an_action_that_nobody_carries_out_raises(action):
    queue, _ = performer()
    with pytest.raises(
        TypeError,
        match=f"no handler for {type(action).__name__}; there are handlers for "
        f"SetFlowRewrite, SetRoute",
    ):
        queue.add(action)


def test_kinds_are_told_exactly():
    class Special(SetQueueState):
        pass

    with pytest.raises(TypeError, match="Special"):
        handler_of({SetQueueState: print}, Special(0))
