"""How long do TTC's queues grow?  The limit of many queues, its fixed point, and finitely many queues beside it.

TTC, section 5: packets arrive at N queues in a Poisson process of rate `load` each and are served one at a time, each
taking an exponential time of mean 1.  s_i is the fraction of queues with at least i packets; s_i = 1 for i <= 0.  As N
grows it follows equation (9),

    ds_i/dt = load (s_(i-1) - s_i) (s_(i-1-delta) + s_(i+delta)) - (s_i - s_(i+1)),

whose fixed point (10) decays doubly exponentially (theorem 5.2): log 1/s_i grows like z^i.  Our derivation of z: far
out s_i is about load s_(i-1) s_(i-1-delta), so z^(delta+1) = z^delta + 1.

The formulas are lost in the text of the paper that we have; these follow from its definitions.
"""

from __future__ import annotations

import math
from itertools import cycle
from typing import TYPE_CHECKING

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from daemons.routing.selection import below, ttc
from experiments.figures import style
from experiments.graph_engine.compiled import compiled
from experiments.runner.definition import Experiment, Result, Run, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Floats = NDArray[np.float64]
SMALLEST = 1e-280  # fractions below this are not told apart from none
EVENTS_AT_ONCE = 1 << 17
SEEN = 1e-5  # finite simulations say little about fractions below this


def derivative(s: Floats, load: float, delta: int) -> Floats:
    """ds_i/dt for i = 0 .. len(s)-1 (equation 9); beyond the end s_i = 0."""
    i = np.arange(1, len(s))
    far = np.concatenate([s, np.zeros(delta + 1)])
    before, behind = s[np.maximum(i - 1 - delta, 0)], far[i + delta]
    change = load * (s[i - 1] - s[i]) * (before + behind) - (s[i] - far[i + 1])
    return np.concatenate([[0.0], change])


def integrate(s: Floats, load: float, delta: int, *, duration: float, step: float = 0.05) -> Floats:
    """The state `duration` after `s`, by classical Runge-Kutta; time in mean service times."""
    for _ in range(round(duration / step)):
        k1 = derivative(s, load, delta)
        k2 = derivative(s + step / 2 * k1, load, delta)
        k3 = derivative(s + step / 2 * k2, load, delta)
        k4 = derivative(s + step * k3, load, delta)
        s = s + step / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return s


def fixed_point(load: float, delta: int) -> Floats:
    """s_0, s_1, ... where nothing changes any more (equation 10), as far as SMALLEST.

    t_i = s_i - s_(i+1) obeys t_i = load t_(i-1) (s_(i-1-delta) + s_(i+delta)).  All its terms are positive, so the tail
    keeps its relative accuracy.  The s on the right is that of the round before, until two rounds agree.
    """
    size = 64 + 8 * delta + math.ceil(16 / (1 - load))
    s = load ** np.arange(size, dtype=float)
    while True:
        t = np.empty(size)
        t[0] = 1 - load
        far = np.concatenate([s, np.zeros(delta)])
        for i in range(1, size):
            t[i] = load * t[i - 1] * (s[max(i - 1 - delta, 0)] + far[i + delta])
        new = np.cumsum(t[::-1])[::-1]
        new /= new[0]
        with np.errstate(divide="ignore", invalid="ignore"):
            change = np.abs(new / s - 1)
        s = (new + s) / 2
        if np.all(change[s > SMALLEST] < 1e-12):
            return s[s > SMALLEST]


def growth(delta: int) -> float:
    """z > 1 with z^(delta+1) = z^delta + 1."""
    low, high = 1.0, 2.0
    for _ in range(60):
        z = (low + high) / 2
        low, high = (z, high) if z ** (delta + 1) < z**delta + 1 else (low, z)
    return low


def supermarket(
    length: NDArray[np.int64], delta: int, arrival: int, draws: NDArray[np.int64], at_least: Floats
) -> None:
    """Events of finitely many queues, of which `length` changes in place; at_least[i] is raised by the number of queues
    with i packets or more, after each event.

    arrival: the probability that an event is an arrival and no (possible) departure, as a 32-bit fraction.
    draws: shape (events, 3), 32 bits each.
    """
    n = len(length)
    now = np.zeros(len(at_least), np.int64)
    for queue in range(n):
        for i in range(length[queue] + 1):
            now[i] += 1
    for event in range(len(draws)):
        queue = below(draws[event, 1], n)
        if draws[event, 0] < arrival:
            queue = ttc(length, queue, draws[event, 2], delta, 0)
            length[queue] += 1
            now[length[queue]] += 1
        elif length[queue]:
            now[length[queue]] -= 1
            length[queue] -= 1
        for i in range(len(at_least)):
            if now[i] == 0:
                break
            at_least[i] += now[i]


def simulate(queues: int, load: float, delta: int, *, warm_up: float, duration: float, rng: Generator) -> Floats:
    """s_i of `queues` queues, averaged over `duration` mean service times after `warm_up` of them."""
    length = np.zeros(queues, np.int64)
    events_per_time = queues * (1 + load)
    arrival = round(load / (1 + load) * (1 << 32))
    run = compiled(supermarket)
    sums = np.zeros(64 + math.ceil(16 / (1 - load)))
    for span, into in ((warm_up, np.zeros_like(sums)), (duration, sums)):
        left = round(span * events_per_time)
        while left > 0:
            count = min(left, EVENTS_AT_ONCE)
            run(length, delta, arrival, rng.integers(1 << 32, size=(count, 3)), into)
            left -= count
    found: Floats = sums / sums[0]
    return found


def measure(run: Run) -> Result:
    """Mean queue length and tail of the fixed point, and of a simulation of finitely many queues."""
    load, delta = float(run.parameters["load_fraction"]), run.integer("delta")
    limit = fixed_point(load, delta)
    finite = simulate(
        run.integer("queues"), load, delta, warm_up=20 / (1 - load), duration=200.0, rng=np.random.default_rng(run.seed)
    )
    both = min(len(limit), len(finite))
    seen = (limit[:both] > SEEN) & (np.arange(both) > 0)
    exponents = np.log(-np.log(limit[2:]))
    return Result(
        figures={
            "mean_queue_packets": float(limit[1:].sum()),
            "simulated_mean_queue_packets": float(finite[1:].sum()),
            "worst_error_fraction": float(np.max(np.abs(finite[:both] - limit[:both])[seen])),
            "z": growth(delta),
            "measured_z": float(np.exp(np.mean(np.diff(exponents[-2 * (delta + 1) - 1 :])))),
            "at_least": limit.tolist(),
            "simulated_at_least": finite[finite > 0].tolist(),
        }
    )


def check(run: Run) -> None:
    """ValueError unless the queues are stable and there are at least two."""
    if not 0 < float(run.parameters["load_fraction"]) < 1:
        raise ValueError(f"ttc_theory: load_fraction must lie between 0 and 1, got {run.parameters['load_fraction']}")
    if run.integer("delta") < 0 or run.integer("queues") < 2:
        raise ValueError("ttc_theory: delta must be at least 0 and queues at least 2")


def plot(table: Table, figure: Figure) -> None:
    """Fractions of queues by length: a line through the fixed point, a mark for the simulation."""
    loads = sorted({float(str(row["load_fraction"])) for row in table})
    for axes, load in zip(np.atleast_1d(figure.subplots(1, len(loads), sharey=True)), loads, strict=True):
        of_load = [row for row in table if row["load_fraction"] == load]
        deltas = sorted({int(str(row["delta"])) for row in of_load})
        for colour, delta in zip(cycle(style.SEVERAL), deltas, strict=False):
            rows = [row for row in of_load if row["delta"] == delta]
            limit, finite = (np.array(rows[0][key]) for key in ("at_least", "simulated_at_least"))
            axes.semilogy(limit, color=colour, label=f"Δ = {delta}")
            axes.semilogy(np.arange(len(finite)), finite, "o", color=colour, markerfacecolor=style.PAPER)
        longest = max(int((np.array(row["at_least"]) > 1e-8).sum()) for row in of_load)
        axes.set(xlabel="queue (packets)", title=f"load {load:g}", ylim=(1e-8, 2), xlim=(-0.5, longest + 0.5))
    figure.axes[0].legend(title="line: limit\nmarks: simulation", loc="lower left")
    figure.axes[0].set_ylabel("fraction of queues at least as long")


EXPERIMENT = Experiment(
    name="ttc_theory",
    question="Does TTC's threshold cost the doubly exponential tail of two choices?",
    source="TTC, section 5, theorem 5.2",
    engines=("graph",),
    sweep={"load_fraction": [0.5, 0.8, 0.95], "delta": [0, 1, 2, 3], "queues": [2000]},
    seeds=1,
    measure=measure,
    plot=plot,
    check=check,
)
