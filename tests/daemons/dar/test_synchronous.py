"""Where all leaves look at once, the daemons' iterations are those of the abstract iteration, in
distribution.

One thing differs.  The abstract iteration moves a flow that was asked for even where it has been
swapped back for another meanwhile; a daemon takes such a request for a stale one.  So the reference
here is made of the pure functions, with that rule.
"""

import random

import numpy as np
import pytest

from tests.daemons.dar.dar_fabric import Fabric
from weft.daemons.dar import iteration
from weft.daemons.dar.iteration import DEST, ClosFlows, IterationRules
from weft.daemons.routing.selection import below
from weft.daemons.simulator.wires import Wire

PERIOD_S = 0.010
TOTAL = ["requests", "moves", "swaps"]


def worst_permutation(n, r, generator):
    """The n flows of each leaf go to different leaves, in an order of its own, and to no leaf
    twice."""
    hosts = {leaf: generator.sample(range(n), n) for leaf in range(r)}
    destination = [0] * (n * r)
    free = {leaf: list(hosts[leaf]) for leaf in range(r)}
    for leaf in range(r):
        for at, output in enumerate(generator.sample(range(r), r)[:n]):
            destination[leaf * n + at] = output * n + free[output].pop()
    return destination


def abstract(n, r, m, rules, destination, seed):
    """Iterations until all is well, requests and moves."""
    flows = n * r
    net = ClosFlows(
        n,
        r,
        m,
        destination,
        [0] * flows,
        [0] * flows,
        [0] * (r * m),
        [0] * (r * m),
        [0] * (flows + r * m + r),
        [0] * (r * m),
        [0] * flows,
    )
    state, counts, iterations = [seed, 2, 3, 4], [0] * iteration.COUNTERS, 0
    iteration.invert(net)
    iteration.place(net, rules, state)
    while iteration.excess(net, rules.p):
        iterations += 1
        of_outputs, count = iteration.request(net, rules, state)
        assert of_outputs == count  # figure 9's start leaves no uplink overfull
        counts[0] += count
        net.room[:] = net.down
        wanted = [(flow, net.spine[flow]) for flow in net.requested[:count]]
        while wanted:
            flow, spine = wanted.pop(below(iteration.draw(state), len(wanted)))
            if net.spine[flow] == spine:
                iteration.move(net, rules, flow, rules.informed, counts, state)
    return iterations, counts[:3]


def paired(n, r, generator):
    """Of each leaf pairs of flows go to the same host, of leaves to which no other pair of it
    goes."""
    destination = []
    for leaf in range(r):
        own = [(leaf + at // 2) % r * n + at // 2 * 2 for at in range(n)]
        destination += generator.sample(own, n)
    return destination


def synchronous(fabric, destination, ports):
    """The same of the daemons."""
    simulator = fabric.simulator
    periods = int(simulator.now / PERIOD_S) + 20  # what was there before counts no more
    simulator.run_until((periods + 0.5) * PERIOD_S)
    flows = [fabric.flows.begin(src, dst, ports) for src, dst in enumerate(destination)]
    before = [fabric.total("ears", "sent"), fabric.total("moves"), fabric.total("swaps")]
    iterations = 0
    while fabric.worst() > fabric.p:
        iterations += 1
        simulator.run_for(PERIOD_S)
    after = [fabric.total("ears", "sent"), fabric.total("moves"), fabric.total("swaps")]
    for flow in flows:
        fabric.flows.end(flow)
    return iterations, [now - then for now, then in zip(after, before, strict=True)]


VARIANTS = {
    "paper, p=2": ((6, 6, 6), IterationRules(p=2, folded=1), 240),
    "paper, p=1": ((3, 3, 6), IterationRules(p=1, folded=1), 300),
    "no spare link": ((3, 3, 3), IterationRules(p=1, folded=1), 200),
    "informed": ((6, 6, 6), IterationRules(p=2, folded=1, informed=1), 240),
    "every link": ((6, 6, 6), IterationRules(p=2, folded=1, every_link=1), 200),
    "by destination": ((6, 6, 6), IterationRules(p=2, folded=1, key=DEST), 1200),
}


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
def test_the_daemons_iterate_as_the_abstract_iteration_does(variant):
    (n, r, m), rules, runs = VARIANTS[variant]
    generator = random.Random(11)
    options = f"p={rules.p},informed={rules.informed},every={rules.every_link},together=1,cool=0,hello_ms=1000"  # noqa: E501
    wire = Wire(delay_s=50e-6, jitter_s=20e-6)  # requests come in random order
    by_destination = rules.key == DEST
    options += f",key={'dest' if by_destination else 'flow'}"
    fabric = Fabric(f"clos:n={n},r={r},m={m}", options, wire=wire, random=random.Random(12))
    ours, theirs = [], []
    for run in range(runs):
        destination = (paired if by_destination else worst_permutation)(n, r, generator)
        took, counts = synchronous(fabric, destination, run)
        ours.append([took, *counts])
        for again in range(4):
            took, counts = abstract(n, r, m, rules, destination, 1 + 4 * run + again)
            theirs.append([took, *counts])
    ours, theirs = np.array(ours), np.array(theirs)
    errors = np.sqrt(ours.var(0, ddof=1) / len(ours) + theirs.var(0, ddof=1) / len(theirs))
    difference = np.abs(ours.mean(0) - theirs.mean(0))
    assert (difference <= 3.3 * errors).all(), (ours.mean(0), theirs.mean(0), errors)
    assert distance(ours[:, 0], theirs[:, 0]) <= 1.95 * np.sqrt(1 / len(ours) + 1 / len(theirs))


def distance(one, other):
    """Kolmogorov and Smirnov's: the greatest difference of the two distributions; 1.95 is the bound
    of 0.1 %."""
    at = np.arange(max(one.max(), other.max()) + 1)
    return max(abs((one <= value).mean() - (other <= value).mean()) for value in at)
