"""Silences of others, and a controller's machines, in simulated time."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from weft.testbed.cluster.agent import NEWS
from weft.testbed.cluster.controller import BEAT_S, Controller
from weft.testbed.cluster.leases import GONE_S, LATE_S, Leases
from weft.testbed.runs.run import RunRecord


def test_a_silence_begins_with_the_last_message_and_ends_with_the_next():
    leases, now_s = Leases(0.0, 0.1), 0.0
    leases.renew("near")
    leases.renew("far")
    for turn in range(1, 101):
        now_s = 0.1 * turn
        leases.turn(now_s)
        leases.renew("near")
        assert leases.silent(2.05) == ({"far"} if now_s > 2.05 else set())
    leases.renew("far")
    assert leases.silent(0.0) == set()
    leases.turn(now_s + 0.1)
    leases.forget("near")
    assert leases.silent(0.0) == {"far"}


@pytest.mark.parametrize("pause_s", [2.6, 8.0, 3600.0])
def test_who_did_not_run_takes_nobody_for_silent(pause_s):
    leases = Leases(0.0, 0.1)
    leases.renew("far")
    leases.turn(0.1)
    leases.turn(0.1 + pause_s)
    assert leases.silent(LATE_S) == set()
    assert leases.longest_pause_s == pytest.approx(pause_s - 0.1)
    end_s = 0.1 + pause_s + LATE_S
    turns = 0
    while not leases.silent(LATE_S):
        turns += 1
        leases.turn(0.1 + pause_s + 0.1 * turns)
    assert abs(0.1 + pause_s + 0.1 * turns - end_s) < 0.3


class SimulatedAgent:
    """A connection to an agent that runs but in some intervals, and may end."""

    def __init__(self, name: str, pauses: list[tuple[float, float]], ends_s: float) -> None:
        self.name = name
        self.is_asked = False
        self.answers = 0
        self.beats: list[int] = []
        self.is_closed = False
        self._pauses, self._ends_s = pauses, ends_s

    def has_answered(self, now_s: float) -> bool:
        if now_s >= self._ends_s:
            return True
        return self.is_asked and not any(begin <= now_s < end for begin, end in self._pauses)

    def answer(self, now_s: float) -> dict[str, Any]:
        if now_s >= self._ends_s:
            raise OSError(f"machine {self.name}: its agent has ended")
        self.is_asked = False
        self.answers += 1
        return {"waiting": [], **NEWS}

    def send(self, request: Mapping[str, Any]) -> None:
        self.is_asked = True
        self.beats.append(request["count"])

    def close(self) -> None:
        self.is_closed = True


class SimulatedController(Controller):
    """A controller whose agents are simulated, in steps of its turns."""

    def __init__(self, folder: Path, *agents: SimulatedAgent) -> None:
        (folder / "run.json").write_text(json.dumps({"parts": [], "machines": {}}))
        super().__init__(RunRecord("demo", 1, folder))
        self._connections = {agent.name: agent for agent in agents}
        self._agents = {agent.name: agent for agent in agents}
        for agent in agents:
            agent.answer = lambda answer=agent.answer: answer(self.now_s)
        self.now_s = 0.0

    def _ready(self, names: Any, timeout_s: float) -> list[str]:
        return [name for name in names if self._agents[name].has_answered(self.now_s)]

    def states(self, seconds: float, own_pauses: Mapping[float, float] | None = None) -> list[str]:
        """Return the states of the machine far that follow each other, each once."""
        leases = Leases(self.now_s, BEAT_S)
        for name in self._agents:
            leases.renew(name)
        states: list[str] = []
        while self.now_s < seconds:
            state = self.turn(leases, self.now_s)
            word = "dead" if "far" in state["dead"] else "late" if "far" in state["late"] else "up"
            assert "near" not in [*state["dead"], *state["late"]]
            states += [word] * (states[-1:] != [word])
            self.now_s += BEAT_S + (own_pauses or {}).get(self.now_s, 0.0)
        return states


@pytest.mark.parametrize(
    ("pause_s", "states"),
    [
        (1.0, ["up"]),
        (2.6, ["up", "late", "up"]),
        (6.0, ["up", "late", "up"]),
        (8.0, ["up", "late", "up"]),
        (12.0, ["up", "late", "dead"]),
        (3600.0, ["up", "late", "dead"]),
    ],
)
def test_a_machine_that_answers_within_the_bound_is_taken_back(tmp_path, pause_s, states):
    near = SimulatedAgent("near", [], 1e9)
    far = SimulatedAgent("far", [(5.0, 5.0 + pause_s)], 1e9)
    controller = SimulatedController(tmp_path, near, far)
    assert controller.states(3700.0) == states
    # who is dead is told to remove its part, and never comes back
    assert far.is_closed == (states[-1] == "dead")
    assert not near.is_closed
    assert near.beats == sorted(set(near.beats))


def test_a_machine_may_be_late_again_and_again(tmp_path):
    pauses = [(begin, begin + 8.0) for begin in (5.0, 20.0, 35.0)]
    far = SimulatedAgent("far", pauses, 1e9)
    controller = SimulatedController(tmp_path, SimulatedAgent("near", [], 1e9), far)
    assert controller.states(60.0) == ["up", *["late", "up"] * 3]


def test_a_controller_that_did_not_run_takes_no_machine_for_late(tmp_path):
    agents = [SimulatedAgent(name, [], 1e9) for name in ("near", "far")]
    assert SimulatedController(tmp_path, *agents).states(60.0, {5.0: 8.0, 20.0: 30.0}) == ["up"]


def test_a_machine_whose_agent_has_ended_is_dead_at_once(tmp_path):
    far = SimulatedAgent("far", [], 5.0)
    controller = SimulatedController(tmp_path, SimulatedAgent("near", [], 1e9), far)
    assert controller.states(60.0) == ["up", "dead"]
    assert controller.now_s >= 60.0
    assert far.beats[-1] <= 5.0 / BEAT_S + 2


def test_a_bound_leaves_room_for_a_machine_to_be_late():
    assert BEAT_S < LATE_S < GONE_S
