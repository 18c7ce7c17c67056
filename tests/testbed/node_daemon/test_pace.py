"""Hellos as rare as the processor time demands: in simulated time, and in a process."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from itertools import accumulate, starmap, zip_longest
from pathlib import Path

import pytest

from weft.daemons.core.actions import Action, Note, Send
from weft.daemons.simulator.simulator import Simulator
from weft.testbed.node_daemon import loop
from weft.testbed.node_daemon.loop import (
    BUSY_LOOKS,
    CALM_LOOKS,
    LOOK_S,
    MOST_FACTOR,
    MOST_RUN,
    MOST_WAIT,
    Pace,
)
from weft.testbed.node_daemon.watchdog import ProcessorUse
from weft.topologies import build

DCELL = build("dcell:n=4,k=1")
SHARE, PERIOD_S = 0.95, 1.0  # as Linux has them
# twice what two processors can do, with hellos as on any machine
MESSAGE_S, ROUTE_S = 0.0025, 0.005


class Processor:
    """A processor that runs its daemons' work in order, for SHARE of each period.

    busy_s: time in which somebody ran, or nobody might.
    """

    def __init__(self, simulator: Simulator, nodes: Sequence[int]) -> None:
        self.busy_s = 0.0
        self._simulator = simulator
        self._nodes = nodes
        self._until_s = 0.0
        self._spent: tuple[float, float] = (0.0, 0.0)  # end of a period, time spent in it
        self._due_s = 0.0

    def charge(self, cost_s: float) -> None:
        """Take so much time; the daemons go on after it."""
        if not self._due_s:
            self._simulator.at(self._simulator.now, self._run)
        self._due_s += cost_s

    def _run(self) -> None:
        now = self._simulator.now
        begin_s = end_s = max(now, self._until_s)
        while self._due_s > 0:
            period_end_s, spent_s = self._spent
            if end_s >= period_end_s:
                period_end_s, spent_s = (end_s // PERIOD_S + 1) * PERIOD_S, 0.0
            runs_s = min(self._due_s, period_end_s - end_s, SHARE * PERIOD_S - spent_s)
            self._due_s -= runs_s
            self._spent = period_end_s, spent_s + runs_s
            end_s = end_s + runs_s if runs_s > 0 else period_end_s
        self._due_s = 0.0
        self._until_s = end_s
        self.busy_s += end_s - begin_s
        for node in self._nodes:
            self._simulator.stall(node, end_s - now)

    def use(self) -> ProcessorUse:
        """Return the use of one of many daemons, which often waits while others run."""
        return ProcessorUse("R", 0, round(0.6e9 * self.busy_s))


class Machine:
    """Two processors too slow for the daemons of a network, in a simulator."""

    def __init__(self, spec: str) -> None:
        self.simulator = simulator = Simulator(DCELL, spec)
        self.servers = range(DCELL.servers)
        self.processors = [Processor(simulator, self.servers[i::2]) for i in range(2)]
        self.paces = [Pace(SHARE, self.processors[node % 2].use) for node in self.servers]
        simulator.on_action = self._charge
        simulator.at(LOOK_S, self._look)

    def _charge(self, now: float, node: int, action: Action) -> None:
        if not isinstance(action, Note):
            self.processors[node % 2].charge(MESSAGE_S if isinstance(action, Send) else ROUTE_S)

    def _look(self) -> None:
        for node, own in zip(self.servers, self.paces, strict=True):
            if own.look(self.simulator.now):
                self.simulator.slow_down(node, own.factor)
        self.simulator.at(self.simulator.now + LOOK_S, self._look)

    def losses(self) -> int:
        return sum(self.simulator.status(node)["downs"] for node in self.servers)

    def busy_parts(self, seconds: float) -> list[float]:
        """Run for a time; return the part of it in which each processor was busy."""
        before_s = [processor.busy_s for processor in self.processors]
        self.simulator.run_for(seconds)
        return [
            (processor.busy_s - busy_s) / seconds
            for processor, busy_s in zip(self.processors, before_s, strict=True)
        ]


@pytest.mark.parametrize("spec", ["dr", "pr-gpi", "dfr"])
def test_a_slow_machine_keeps_time_for_what_comes_at_once_and_notices_deaths_in_proportion(
    spec: str,
) -> None:
    """With hellos as on any machine, its processors were busy all the time."""
    machine = Machine(spec)
    simulator = machine.simulator
    assert simulator.run_until_converged(within_s=10.0) > 0
    simulator.run_for(10.0)
    assert max(machine.busy_parts(10.0)) < MOST_RUN * SHARE
    assert machine.losses() == 0
    link = int(DCELL.ports(0)[-1][3])
    simulator.fail(link, silent=True)
    simulator.run_for(10 * max(own.factor for own in machine.paces) * 0.030)
    assert machine.losses() == 2, "both ends"
    simulator.restore(link)
    simulator.run_until_converged()
    assert machine.losses() == 2


def factors(run: Sequence[float] = (), wait: Sequence[float] = (), share: float = 1.0) -> list[int]:
    """Return the factor after each look at a process that runs or waits for parts of the time."""
    ran_ns, waited_ns = (
        accumulate(round(part * LOOK_S * 1e9) for part in (0.0, *parts)) for parts in (run, wait)
    )
    readings = starmap(partial(ProcessorUse, "R"), zip_longest(ran_ns, waited_ns, fillvalue=0))
    own = Pace(share, partial(next, readings))
    seen = []
    for turn in range(max(len(run), len(wait)) + 1):
        own.look(10.0 + turn * LOOK_S)
        seen.append(own.factor)
    return seen[1:]


@pytest.mark.parametrize("how", ["run", "wait"])
def test_who_lacks_time_slows_down_by_steps_and_goes_on_when_it_is_calm(how: str) -> None:
    up = factors(**{how: [1.0] * BUSY_LOOKS * 7})
    assert up[BUSY_LOOKS - 1 :: BUSY_LOOKS] == [2, 4, 8, 16, 32, MOST_FACTOR, MOST_FACTOR]
    both = factors(**{how: [1.0] * BUSY_LOOKS * 2 + [0.1] * CALM_LOOKS * 3})
    assert both[BUSY_LOOKS * 2 + CALM_LOOKS - 1 :: CALM_LOOKS] == [2, 1, 1]


def test_a_single_computation_or_a_load_that_fits_changes_nothing() -> None:
    assert set(factors([1.0, 0.0] * 10, [1.0, 0.0] * 10)) == {1}
    assert set(factors([MOST_RUN - 0.05] * 10, [MOST_WAIT - 0.05] * 10)) == {1}


def test_the_share_of_real_time_counts_and_not_the_whole_processor() -> None:
    assert set(factors([MOST_RUN / 2 - 0.05] * 10, share=0.5)) == {1}
    assert factors([MOST_RUN / 2 + 0.05] * BUSY_LOOKS, share=0.5)[-1] == 2


@pytest.mark.parametrize(
    ("policy", "runtime", "share"),
    [
        (os.SCHED_FIFO, "950000", 0.95),
        (os.SCHED_FIFO, "-1", 1.0),  # no limit
        (os.SCHED_OTHER, "950000", 1.0),
    ],
)
def test_the_share_is_the_kernels(
    policy: int, runtime: str, share: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sched_rt_runtime_us").write_text(f"{runtime}\n")
    (tmp_path / "sched_rt_period_us").write_text("1000000\n")
    monkeypatch.setattr(loop, "SETTINGS", tmp_path)
    monkeypatch.setattr(os, "sched_getscheduler", lambda pid: policy)
    assert loop.own_share() == share


def test_this_process_can_be_read() -> None:
    assert loop.own_use().ran_ns > 0
    assert 0 < loop.own_share() <= 1
