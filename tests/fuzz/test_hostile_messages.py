"""The search for hostile messages: that it finds what is wrong, and finds nothing in a little
time."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import suppress

import pytest

from tests.fuzz.hostile_messages import (
    HEALS_S,
    Campaign,
    corpus,
    coverage_corpus,
    input_of,
    network_for,
    schemes,
)
from weft.daemons.core import wire
from weft.daemons.core.actions import Action, FiveTuple
from weft.daemons.core.contract import (
    DaemonEvent,
    DestinationInUse,
    FlowInUse,
    FlowsSeen,
    LinkDegraded,
    LongQueue,
    Measured,
    QueuesCall,
    Refused,
    SeenFlow,
)
from weft.daemons.proxy.daemon import Pr
from weft.daemons.simulator.simulator import Simulator
from weft.daemons.tar.daemon import TarRouting
from weft.topologies import build

TYPES = (
    *(
        wire.HELLO,
        wire.LINK_STATES,
        wire.SUMMARY,
        wire.PROBE,
        wire.HOP_DIED,
        wire.LBSP_FAILURES,
        wire.LBSP_CROWDING,
    ),
    *(wire.FLOW_PROBE, wire.FLOW_BREAKS, wire.DAR_EAR),
)


@pytest.mark.parametrize("scheme", schemes())
@pytest.mark.slow
def test_hostile_messages_raise_nothing_and_the_network_heals(scheme: str) -> None:
    campaign = Campaign(scheme, random.Random(f"1 {scheme}"))
    campaign.run(1500)
    assert [failure.line() for failure in campaign.failures] == []
    assert len(campaign.seen) > 8


NUMBERS = (-(2**40), -1, 0, 1, 2, 3, 7, 255, 256, 2**16, 2**32 - 1, 2**32, 2**63)


def hostile_events(draw: random.Random) -> list[DaemonEvent]:
    """Return one event of each kind, with numbers that no capability tells."""

    def number() -> int:
        return draw.choice(NUMBERS)

    flow = FiveTuple(number(), number(), number(), number())
    return [
        DestinationInUse(number()),
        FlowInUse(flow),
        Refused(number()),
        Measured({number(): number() for _ in range(3)}),
        QueuesCall(number()),
        LinkDegraded(number(), draw.random() < 0.5),
        FlowsSeen((SeenFlow(flow, number(), number(), number()),)),
        LongQueue(flow, number()),
    ]


@pytest.mark.parametrize("scheme", schemes())
def test_hostile_events_are_refused_or_do_no_harm_later(scheme: str) -> None:
    simulator, draw = Simulator(build(network_for(scheme)), scheme), random.Random(scheme)
    simulator.run_for(0.5)
    for _ in range(20):
        for event in hostile_events(draw):
            with suppress(ValueError):
                simulator.tell(draw.choice(list(simulator._nodes)), event)
        simulator.run_for(0.1)


@pytest.mark.slow
def test_what_a_search_by_coverage_has_found_raises_nothing() -> None:
    said = {
        name: [input_of(*message) for message in coverage_corpus() if message[0] == name]
        for name in schemes()
    }
    for name, inputs in said.items():
        campaign = Campaign(name, random.Random(1))
        for data in inputs:
            campaign.say_input(data)
        campaign.pass_time(HEALS_S)
        assert [failure.line() for failure in campaign.failures] == []
    assert sum(map(len, said.values())) > 300


@pytest.mark.slow
def test_messages_of_every_type_are_overheard_or_known() -> None:
    said = {payload[2] for payload in corpus() if len(payload) > 2}
    for scheme in ("bfs", "pr-gpi", "lbsp", "tar"):
        said |= {
            payload[2] for payload in Campaign(scheme, random.Random(1)).kept if len(payload) > 2
        }
    assert said >= set(TYPES)


def test_a_check_that_is_missing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    decode = wire.decode
    monkeypatch.setattr(wire, "decode", lambda payload, nodes=0: decode(payload))
    campaign = Campaign("pr-gpi", random.Random(1))
    campaign.run(5000)
    assert campaign.failures
    assert "IndexError" in campaign.failures[0].line()


@pytest.mark.parametrize(("scheme", "machine"), [("pr-gpi", Pr), ("tar", TarRouting)])
def test_what_a_message_leaves_behind_to_raise_later_is_found(
    scheme: str, machine: type[Pr | TarRouting], monkeypatch: pytest.MonkeyPatch
) -> None:
    tick = machine.tick

    def fail(self: Pr | TarRouting, now: float) -> Sequence[Action]:
        if now > 10.0:
            raise KeyError("left behind")
        return tick(self, now)

    monkeypatch.setattr(machine, "tick", fail)
    campaign = Campaign(scheme, random.Random(1))
    campaign.run(10)
    assert "left behind" in campaign.failures[0].line()
