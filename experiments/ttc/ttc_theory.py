"""Queue lengths under TTC, in the limit of many queues and with finitely many.

TTC, section 5: packets arrive at N queues in a Poisson process of rate `load` each and are served
one at a time, each taking an exponential time of mean 1.  s_i is the fraction of queues with at
least i packets; s_i = 1 for i <= 0.  As N grows it follows equation (9),

    ds_i/dt = load (s_(i-1) - s_i) (s_(i-1-delta) + s_(i+delta)) - (s_i - s_(i+1)),

whose fixed point (10) decays doubly exponentially (theorem 5.2): log 1/s_i grows like z^i.  Our
derivation of z: far out s_i is about load s_(i-1) s_(i-1-delta), so z^(delta+1) = z^delta + 1.

The formulas are lost in the text of the paper that we have; these follow from its definitions.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.random import Generator

from weft.daemons.core.compiled import compiled
from weft.daemons.routing.selection import below, ttc
from weft.experiments.engines.arrays import Floats, Ints, int_zeros
from weft.experiments.report import panels
from weft.experiments.report.panels import Curves
from weft.experiments.runner.definition import Experiment, Result, Run, Table
from weft.experiments.runner.parameters import Integer, Number

SMALLEST = 1e-280  # fractions below this are not told apart from none
PRECISION = 1e-13  # to which the fractions of the fixed point are found, relative to each
EVENTS_AT_ONCE = 1 << 17
WARM_UP, DURATION = 20, 200  # of simulations, in mean service times: the first over 1 - load
LEAST_DRAWN = 1e-8
SEEN = 1e-5  # finite simulations say little about fractions below this
LEAST_LOAD, MOST_LOAD, MOST_DELTA = 1e-9, 0.9999, 100
MOST_EVENTS = 4e9  # some two minutes


def fixed_point(load: float, delta: int) -> Floats:
    """Return the fixed point s_0, s_1, ... (equation 10), as far as SMALLEST."""
    s = compiled(relax)(np.zeros(64 + 8 * delta), load, delta)
    return s[: np.flatnonzero(s > SMALLEST)[-1] + 1]


def relax(s: Floats, load: float, delta: int) -> Floats:
    """Return the solution of equation (10) for the first len(s) fractions; those beyond are 0.

    `s` is zeros on entry.

    Summed from i on, (10) says that packets arrive at queues with i-1 packets or more as fast as
    queues with i or more let packets go (our derivation):

        s_i = load (s_(i-1) s_(i+delta) + sum over a = i-1 .. i+delta-1 of (s_a - s_(a+1))
        s_(a-delta)).

    All its terms are positive, so the tail keeps its relative accuracy.  It is solved from i = 1
    upwards, again and again, and each s_i goes half the way to its new value: the whole way would
    make it swing for a large delta.
    """
    s[0], last, worst = 1.0, len(s) - delta - 1, 1.0
    while worst > PRECISION:
        worst = 0.0
        for i in range(1, last):
            new = s[i - 1] * s[i + delta]
            for a in range(i - 1, i + delta):
                new += (s[a] - s[a + 1]) * (s[a - delta] if a > delta else 1.0)
            new = min(load * new, s[i - 1])
            if new > SMALLEST:
                worst = max(worst, abs(s[i] / new - 1))
            s[i] += (new - s[i]) / 2
    return s


def growth(delta: int) -> float:
    """Return z > 1 with z^(delta+1) = z^delta + 1."""
    low, high = 1.0, 2.0
    for _ in range(60):
        z = (low + high) / 2
        low, high = (z, high) if z ** (delta + 1) < z**delta + 1 else (low, z)
    return low


def supermarket(length: Ints, delta: int, arrival: int, draws: Ints, at_least: Floats) -> None:
    """Simulate events of finitely many queues; `length` changes in place.

    at_least[i] is raised by the number of queues with i packets or more, after each event.

    arrival: the probability that an event is an arrival and no (possible) departure, as a 32-bit
        fraction.
    draws: shape (events, 3), 32 bits each.
    """
    n, most = len(length), len(at_least)
    for queue in range(n):
        for i in range(min(length[queue] + 1, most)):
            at_least[i] += len(draws)
    for event in range(len(draws)):
        remaining = len(draws) - event  # events for which a change counts, with this one
        queue = below(draws[event, 1], n)
        if draws[event, 0] < arrival:
            queue = ttc(length, queue, draws[event, 2], delta, 0)
            length[queue] += 1
            if length[queue] < most:
                at_least[length[queue]] += remaining
        elif length[queue]:
            if length[queue] < most:
                at_least[length[queue]] -= remaining
            length[queue] -= 1


def events(queues: int, load: float) -> tuple[int, int]:
    """Return the numbers of events of the simulation: to warm up, and watched."""
    per_time = queues * (1 + load)
    return round(WARM_UP / (1 - load) * per_time), round(DURATION * per_time)


def simulate(
    queues: int, load: float, delta: int, *, warm_up: int, watched: int, rng: Generator
) -> Floats:
    """Return s_i of `queues` queues, averaged over `watched` events after `warm_up`."""
    length = int_zeros(queues)
    arrival = round(load / (1 + load) * (1 << 32))
    run = compiled(supermarket)
    sums = np.zeros(64 + math.ceil(16 / (1 - load)))
    for remaining, into in ((warm_up, np.zeros_like(sums)), (watched, sums)):
        while remaining > 0:
            count = min(remaining, EVENTS_AT_ONCE)
            run(length, delta, arrival, rng.integers(1 << 32, size=(count, 3)), into)
            remaining -= count
    fractions: Floats = sums / sums[0]
    return fractions


def measured_growth(limit: Floats, delta: int) -> float | None:
    """Return the growth of log 1/s_i over the last 2 (delta + 1) steps, in which it swings twice.

    None if fewer are known.
    """
    count = 2 * (delta + 1)
    steps = np.diff(np.log(-np.log(limit[2:])))[-count:]
    return float(np.exp(steps.mean())) if len(steps) == count else None


def measure(run: Run) -> Result:
    """Return mean queue and tail of the fixed point and of simulated queues."""
    load, delta, queues = (
        float(run.parameters["load_fraction"]),
        run.integer("delta"),
        run.integer("queues"),
    )
    limit = fixed_point(load, delta)
    warm_up, watched = events(queues, load)
    rng = run.generator()
    finite = simulate(queues, load, delta, warm_up=warm_up, watched=watched, rng=rng)
    common = min(len(limit), len(finite))
    differs = np.abs(finite[1:common] - limit[1:common])
    visible = limit[1:common] > min(SEEN, load / 2)
    return Result(
        {
            "mean_queue_packets": limit[1:].sum(),
            "simulated_mean_queue_packets": finite[1:].sum(),
            "worst_error_fraction": differs[visible].max(),
            "z": growth(delta),
            "measured_z": measured_growth(limit, delta),
            "at_least": limit.tolist(),
            "simulated_at_least": finite[finite > 0].tolist(),
        }
    )


def check(run: Run) -> None:
    """Raise ValueError unless the simulation ends in minutes."""
    load, queues = run.number("load_fraction"), run.integer("queues")
    if sum(events(queues, load)) > MOST_EVENTS:
        most = int(queues * MOST_EVENTS / sum(events(queues, load)))
        instead = f"take at most {most} queues, or a lower load"
        raise ValueError(
            f"ttc_theory: {queues} queues at load {load} take too long to settle: {instead}"
        )


def tails(table: Table) -> Table:
    """Return a row for each length of a queue, at the limit and simulated."""
    lists = {"at_least": "limit", "simulated_at_least": "simulated"}
    rows = panels.melted(table, lists, "source", "fraction")
    points = panels.exploded(rows, ["fraction"], "queue_packets")
    return [point for point in points if point["fraction"] > LEAST_DRAWN]


EXPERIMENT = Experiment(
    name="ttc_theory",
    question="Does TTC's threshold cost the doubly exponential tail of two choices?",
    source="TTC, section 5, theorem 5.2",
    engines=("graph",),
    axes={
        "load_fraction": Number(
            "load of every queue", unit="fraction", least=LEAST_LOAD, most=MOST_LOAD
        ).over(0.5, 0.8, 0.95),
        "delta": Integer("threshold of TTC", unit="packets", least=0, most=MOST_DELTA).over(
            0, 1, 2, 3
        ),
        "queues": Integer("queues of the simulation", unit="queues", least=2, most=1_000_000).over(
            2000
        ),
    },
    columns={
        "mean_queue_packets": "mean queue at the fixed point of equation (9)",
        "simulated_mean_queue_packets": "mean queue of the simulated queues",
        "worst_error_fraction": (
            "largest difference between the two in the fraction of queues with i packets or more"
        ),
        "z": "the factor by which log 1/s_i grows with i: the root of z^(delta+1) = z^delta + 1",
        "measured_z": (
            "the same, measured at the end of the fixed point; null where too few s_i are known"
        ),
        "at_least": "list: s_i, the fraction of queues with at least i packets, at the fixed point",
        "simulated_at_least": "list: the same of the simulated queues",
    },
    seeds=5,
    takes_s=26,
    measure=measure,
    plot=Curves(
        columns={"fraction": "fraction of queues at least as long"},
        x="queue_packets",
        series="delta",
        dash="source",
        facet=("queues", "load_fraction"),
        always=2,
        log=("fraction",),
        rows=tails,
    ),
    check=check,
)
