"""Sequences of faults of a network, for tests of daemons on wires in memory."""

from __future__ import annotations

import random

from weft.daemons.simulator.simulator import Simulator


def befall(simulator: Simulator, draw: random.Random, dead: set[int]) -> None:
    """Let one link die, perhaps in silence, or come back if it is among the `dead`; have one server
    late, and at times one start again."""
    link, servers = draw.randrange(len(simulator.topology.links)), simulator.topology.servers
    if link in dead:
        simulator.restore(link)
        dead.discard(link)
    else:
        simulator.fail(link, silent=draw.random() < 0.5)
        dead.add(link)
    if draw.random() < 0.3:
        simulator.restart(draw.randrange(servers))
    simulator.stall(draw.randrange(servers), 0.05)
