"""The search for hostile messages: that it finds what is wrong, and finds nothing in a little time."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from tests.fuzz.hostile_messages import HEALS_S, Campaign, corpus, coverage_corpus, input_of, schemes
from weft.daemons.core import wire
from weft.daemons.core.actions import Action
from weft.daemons.proxy.daemon import Pr
from weft.daemons.tar.daemon import TarRouting

TYPES = (
    *(wire.HELLO, wire.LINK_STATES, wire.SUMMARY, wire.PROBE, wire.HOP_DIED, wire.LBSP_FAILURES, wire.LBSP_CROWDING),
    *(wire.FLOW_PROBE, wire.FLOW_BREAKS, wire.DAR_EAR),
)


@pytest.mark.parametrize("scheme", schemes())
@pytest.mark.slow
def test_hostile_messages_raise_nothing_and_the_network_heals(scheme: str) -> None:
    campaign = Campaign(scheme, random.Random(f"1 {scheme}"))
    campaign.run(500)
    assert [failure.line() for failure in campaign.failures] == []
    assert len(campaign.seen) > 8


@pytest.mark.slow
def test_what_a_search_by_coverage_has_found_raises_nothing() -> None:
    said = {name: [input_of(*one) for one in coverage_corpus() if one[0] == name] for name in schemes()}
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
        said |= {payload[2] for payload in Campaign(scheme, random.Random(1)).kept if len(payload) > 2}
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
