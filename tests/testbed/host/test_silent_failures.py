"""Daemons under a virtual clock notice silent failures when the same daemons in the simulator do."""

import io
import json
import sys
from pathlib import Path

import pytest

from weft.daemons.simulator.simulator import Simulator
from weft.daemons.simulator.wires import Wire
from weft.testbed.host import uml
from weft.topologies import build

PROGRAM = Path(__file__).with_name("silent_failures.py")
FAILURES = 14
WIRE = Wire(delay_s=16e-6)  # 5 us and a hello's time on a link of 100 Mbit/s; over a crossbar it is two
LATE_S = 0.00107  # a daemon's waits are rounded up to 1 ms by epoll, and 0.05 ms and more by the kernel


def simulated(told, *, sooner_s: float = 0.0) -> list[dict[int, float]]:
    """Of each failure when each node around it had lost its last neighbour, if links die so much sooner."""
    began_s = min(told["began"].values())
    starts_s = {int(node): at - began_s for node, at in told["began"].items()}
    simulator = Simulator(build("dcell:n=4,k=1"), "dr", wire=WIRE, starts_s=starts_s)
    noticed: dict[int, float] = {}
    simulator.on_note = lambda now, node, text: noticed.update({node: now}) if " down: " in text else None
    found = []
    for failure in told["failures"]:
        simulator.run_until(failure["died"] - sooner_s - began_s)
        noticed.clear()
        simulator.fail(failure["link"], silent=True)
        simulator.run_until(failure["mended"] - began_s)
        simulator.restore(failure["link"])
        found.append({node: began_s + at for node, at in noticed.items()})
    return found


@pytest.mark.virtual
def test_silent_failures_are_noticed_when_the_simulator_notices_them():
    """For the same phases of hellos.  What dies just after the simulator's hello may die before the kernel's; those
    neighbours, 1 ms of 30, are not compared."""
    out = io.BytesIO()
    argv = [sys.executable, str(PROGRAM), str(FAILURES)]
    assert uml.run(argv, virtual=uml.VirtualClock(seed=1), timeout_s=100, stdout=out) == 0
    told = json.loads(out.getvalue())
    compared = 0
    for failure, at, sooner in zip(told["failures"], simulated(told), simulated(told, sooner_s=LATE_S), strict=True):
        for node, noticed in failure["noticed"].items():
            if at.get(int(node)) == sooner.get(int(node)):
                assert 0 <= noticed - at[int(node)] <= 2 * LATE_S, (failure, node)
                compared += 1
    assert compared >= 0.8 * sum(len(failure["noticed"]) for failure in told["failures"])
