"""PR on a machine that is too slow for its daemons: recovery takes longer, and ends."""

import pytest

from tests.daemons.simulator.slow_machine import slow_down
from weft.daemons.simulator.simulator import Simulator
from weft.topologies import build

FICONN = build("ficonn:n=4,k=2")
SERVERS = range(FICONN.servers)
MOST_PAIRS = 20
BEFORE_S, EVERY_S = 4.0, 0.05


def over(simulator, link):
    """The pairs whose packets pass `link`, and those the other way round."""
    ends = set(FICONN.links[link][[0, 2]].tolist())
    pairs = [(src, dst) for src in SERVERS for dst in SERVERS if src != dst]
    passing = [pair for pair in pairs if ends <= set(simulator.walk(*pair).path)]
    chosen = passing[:: len(passing) // MOST_PAIRS]
    return list(dict.fromkeys([*chosen, *((dst, src) for src, dst in chosen)]))


def lost_after(simulator, pairs, within_s):
    """Let `pairs` send until none loses its packets, or `within_s` have passed; those that do."""
    end_s = simulator.now + within_s
    while simulator.now < end_s:
        lost = {pair for pair in pairs if simulator.send(*pair).lost}
        if not lost:
            break
        simulator.run_for(EVERY_S)
    return lost


def lost_pairs(slowness, within_s):
    """The pairs that are cut off `within_s` after a link in use has died in silence."""
    simulator = Simulator(FICONN, "pr-gpi")
    simulator.run_until_converged()
    slow_down(simulator, SERVERS, slowness, until_s=BEFORE_S + within_s + 2.0)
    link = next(
        link for link, (_, _, far, _) in enumerate(FICONN.links.tolist()) if far < FICONN.servers
    )
    pairs = over(simulator, link)
    assert len(pairs) >= MOST_PAIRS
    for _ in range(round(BEFORE_S / EVERY_S)):
        for pair in pairs:
            simulator.send(*pair)
        simulator.run_for(EVERY_S)
    simulator.fail(link, silent=True)
    simulator.run_for(EVERY_S)
    return lost_after(simulator, pairs, within_s)


@pytest.mark.parametrize("slowness", [4, 10])
def test_all_pairs_recover_in_a_time_in_proportion(slowness):
    """Questions had 300 ms for their answers, and paths whose answers came later were held down for
    up to 30 s."""
    assert lost_pairs(slowness, within_s=0.8 * slowness) == set()
