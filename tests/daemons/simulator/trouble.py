"""What may befall a network, one thing after the other, for tests of daemons on wires in memory."""

from __future__ import annotations

import random

from daemons.simulator.simulator import Simulator


def befall(fabric: Simulator, draw: random.Random, dead: set[int]) -> None:
    """Let one link die, perhaps in silence, or come back if it is among the `dead`; have one server late, and at times
    one start again."""
    link, servers = draw.randrange(len(fabric.topology.links)), fabric.topology.servers
    if link in dead:
        fabric.restore(link)
        dead.discard(link)
    else:
        fabric.fail(link, silent=draw.random() < 0.5)
        dead.add(link)
    if draw.random() < 0.3:
        fabric.restart(draw.randrange(servers))
    fabric.stall(draw.randrange(servers), 0.05)
