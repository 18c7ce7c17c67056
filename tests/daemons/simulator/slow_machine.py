"""A machine that is too slow for its daemons, for tests on wires in memory: they run by turns."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial

from weft.daemons.simulator.simulator import Simulator


def slow_down(simulator: Simulator, nodes: Sequence[int], slowness: float, until_s: float) -> None:
    """Let each of `nodes` run a part 1 / slowness of the time up to `until_s`, for 1 to 40 ms at a
    time."""
    draw = random.Random(1)
    for node in nodes:
        now = simulator.now
        while now < until_s:
            runs_s = draw.uniform(0.001, 0.040)
            stalls_s = runs_s * (slowness - 1) * draw.uniform(0.5, 1.5)
            simulator.at(now, partial(simulator.stall, node, stalls_s))
            now += stalls_s + runs_s
