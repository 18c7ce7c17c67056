"""Daemons under a virtual clock notice silent failures when the same daemons in the simulator
do."""

import io
import json
import sys
from pathlib import Path

import pytest

from weft.daemons.core.actions import Note
from weft.daemons.simulator.simulator import Simulator
from weft.daemons.simulator.wires import Wire
from weft.testbed.uml import uml
from weft.topologies import build

PROGRAM = Path(__file__).with_name("silent_failures.py")
FAILURES = 14
WIRE = Wire(delay_s=5e-6)  # hellos go ahead of the rate; over a crossbar it is two
APART_S = 0.5e-6  # a daemon's time is the difference of two clocks' floats, one of them since 1970


def simulated_times(told) -> list[dict[int, float]]:
    """Of each failure when each node around it had lost its last neighbour."""
    began_s = min(told["began"].values())
    starts_s = {int(node): at - began_s for node, at in told["began"].items()}
    simulator = Simulator(build("dcell:n=4,k=1"), "dr", wire=WIRE, starts_s=starts_s)
    noticed: dict[int, float] = {}
    simulator.on_action = lambda now, node, action: (
        noticed.update({node: now})
        if isinstance(action, Note) and " down: " in action.text
        else None
    )
    found = []
    for failure in told["failures"]:
        simulator.run_until(failure["died"] - began_s)
        noticed.clear()
        simulator.fail(failure["link"], silent=True)
        simulator.run_until(failure["mended"] - began_s)
        simulator.restore(failure["link"])
        found.append({node: began_s + at for node, at in noticed.items()})
    return found


@pytest.mark.virtual
def test_silent_failures_are_noticed_when_the_simulator_notices_them():
    """For the same phases of hellos, all of them."""
    out = io.BytesIO()
    argv = [sys.executable, str(PROGRAM), str(FAILURES)]
    assert uml.run(argv, virtual=uml.VirtualClock(seed=1), timeout_s=500, stdout=out) == 0
    told = json.loads(out.getvalue())
    for failure, at in zip(told["failures"], simulated_times(told), strict=True):
        noticed = {int(node): when for node, when in failure["noticed"].items()}
        assert noticed == pytest.approx({node: at[node] for node in noticed}, rel=0, abs=APART_S), (
            failure
        )
