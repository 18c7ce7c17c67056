"""Fluids over weighted paths: rates and times by hand."""

from __future__ import annotations

import numpy as np
import pytest

from weft.experiments.collectives.message_cost import (
    FluidPath,
    FluidReplay,
    FluidUse,
    FrameCost,
)
from weft.testbed.schedules import goal
from weft.testbed.schedules.tasks import TaskGraph

COST = FrameCost(rate_bps=8 * 10**9, delay_ns=1000, frame_bytes=1050, header_bytes=50)


def path(*channels: int) -> FluidPath:
    """Return a path over whole channels."""
    return FluidPath(np.array(channels), np.ones(len(channels)), len(channels))


def test_a_spread_flow_uses_a_part_of_each_channel() -> None:
    spread = FluidPath(np.array([0, 1, 2]), np.array([1.0, 0.5, 0.5]), 2)
    use = FluidUse.of([spread, path(1)])
    assert use.rates(3) == pytest.approx([2 / 3, 2 / 3])
    use = FluidUse.of([spread, path(1), path(0)])
    assert use.rates(3) == pytest.approx([0.5, 0.75, 0.5])


MESSAGES = """num_ranks 3
rank 0 {
a: send 1000000b to 2
b: send 1000000b to 2 tag 1
}
rank 1 {
c: calc 500000
s: send 500000b to 2
s requires c
}
rank 2 {
recv 1000000b from 0
recv 1000000b from 0 tag 1
recv 500000b from 1
}
"""


def test_messages_of_a_pair_follow_each_other_and_share_with_others() -> None:
    """A byte takes 1 ns; the second sender comes after 0.5 ms, and both share the link to host 2.

    The frames of 1 MB have 1,050,000 bytes.
    """
    graph = TaskGraph(goal.parsed(MESSAGES), range(3))
    fluids = FluidReplay(lambda src, dst: path(src, 2), 3, COST)
    progress = fluids.run(graph, 10**10, lambda: None)
    assert progress.left == 0
    ends_ns = sorted(
        (task.src, progress.end_ns[number])
        for number, task in enumerate(graph.tasks)
        if task.size_bytes
    )
    latency_ns = 2 * 1000 + 1050
    other_ns = 500_000 + 2 * 525_000 + latency_ns
    first_ns = other_ns + 1_050_000 - 500_000 - 525_000  # what is left at the full rate
    second_ns = 2 * 1_050_000 + 525_000 + latency_ns  # the link to host 2 never rests
    expected_ns = [first_ns, second_ns, other_ns]
    assert [end_ns for _, end_ns in ends_ns] == pytest.approx(expected_ns, abs=2)
    assert fluids.bits.tolist() == pytest.approx([16.8e6, 4.2e6, 21e6])
