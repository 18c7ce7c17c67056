"""Iterations of DAR until no link is bad: DAR, section 5.1, figures 10, 11 and 12.

The iteration of section 2 on CLOS(n,r,m), from figure 9's start, for flows of 1/p of a link's rate.
Input and output leaves are apart, so no link is spare where m p = n.  Not in the paper are
rule=informed, whose requests carry the map of spines with room, and rule=persistent: informed
requests, a rest of one iteration at least, and pauses of leaves.  Beside them the Markov
models of sections 3.1 and 3.2 (p = 1) and 3.3 (p = 2, n >= 4).  The figures of the paper: 10a
m=n=r, p=1; 10b m=2n=2r, p=1; 11 n=m=6, p=1, by r; 12 m=n=r, p=2.
"""

from __future__ import annotations

from contextlib import suppress

import numpy as np

from weft.daemons.dar import iteration
from weft.daemons.dar.iteration import (
    DEST,
    FLOW,
    GROWTHS,
    KEYS,
    MOVES,
    PAUSE_PERCENT,
    REQUESTS,
    SPOILT,
    STARTS,
    SWAPS,
    IterationRules,
)
from weft.experiments.dar.models import full_rate, half_rate, single_output
from weft.experiments.dar.settings import clos_size, generator
from weft.experiments.dar.simulation import TRAFFIC, network, simulate, standard_error
from weft.experiments.engines.arrays import Ints
from weft.experiments.report.panels import Curves, melted, varied
from weft.experiments.runner.definition import Experiment, Result, Row, Run, Table
from weft.experiments.runner.parameters import Integer, Number, Spec, Word
from weft.topologies import canonical

MOST_FLOWS = 20_000
MOST_TIGHT = 42  # flows where m p = n: the paper's rule takes exponentially long in them
MOST_MODELLED = 40  # n and r of the models
COLUMNS = {
    "mean_iterations": "simulated",
    "p99_iterations": "99th percentile",
    "single_output_model_iterations": "model 3.1, single output",
    "last_step_model_iterations": "model 3.2 or 3.3, last step",
}
CURVES: Row = {
    "informed, simulated": "informed requests",
    "informed, 99th percentile": "informed, 99th percentile",
    "persistent, simulated": "persistent walk",
    "persistent, 99th percentile": "persistent, 99th percentile",
    "paper, simulated": "the paper's rule",
}


def size(topology: str) -> tuple[int, int, int]:
    """Return n, r and m of `topology`; ValueError unless it is a small enough Clos network."""
    n, r, m = clos_size(topology)
    if n * r > MOST_FLOWS or m > 2 * n:
        raise ValueError(
            f"dar_convergence: take at most {MOST_FLOWS} hosts and m <= 2n, got {topology}"
        )
    return n, r, m


def rules(run: Run) -> IterationRules:
    """Return the choices of `run` that the paper leaves open."""
    persistent = run.text("rule") == "persistent"
    return IterationRules(
        p=run.integer("p"),
        start=STARTS[run.text("start")],
        every_link=int(run.text("requests") == "every-link"),
        swap=int(run.text("swap") == "yes"),
        stay=int(run.text("new_spine") == "any"),
        informed=int(run.text("rule") != "paper"),
        key=KEYS[run.text("key")],
        rest=max(run.integer("rest_iterations"), persistent),
        pause_percent=PAUSE_PERCENT * persistent,
    )


def check(run: Run) -> None:
    """Raise ValueError if the iteration does not converge, or takes exponentially long."""
    n, r, m = size(run.text("topology"))
    p, key = run.integer("p"), run.text("key")
    iteration.check(n, r, m, rules(run))
    together = 1
    if run.text("traffic") == "pairs":
        if n % 2:
            raise ValueError(
                f"dar_convergence: pairs need an even number of hosts at a leaf, got n={n}"
            )
        together = 2 if KEYS[key] == DEST else 1
    flows_of_spine = p // together * together
    if m * flows_of_spine < n:
        raise ValueError(f"dar_convergence: pairs do not fit {m} spines at p={p}: take key=flow")
    if m * flows_of_spine == n and run.text("rule") == "paper" and n * r > MOST_TIGHT:
        instead = "take more spines, a larger p or rule=informed"
        raise ValueError(
            f"dar_convergence: {n * r} flows and m p = n settle after exponentially long: {instead}"
        )


def models(run: Run) -> Row:
    """Return the expected iterations by the paper's models, None if they do not apply."""
    n, r, m = size(run.text("topology"))
    columns: Row = {
        "single_output_model_iterations": None,
        "last_step_model_iterations": None,
    }
    if run.text("rule") != "paper" or KEYS[run.text("key")] != FLOW or max(n, r) > MOST_MODELLED:
        return columns
    with suppress(ValueError):
        if run.integer("p") == 1:
            columns["single_output_model_iterations"] = single_output(n, m)
            columns["last_step_model_iterations"] = full_rate(n, m).iterations(r)
        elif run.integer("p") == 2:
            weighted = run.text("model_3_3") == "weighted"
            model = half_rate(n, m, weighted=weighted)
            columns["last_step_model_iterations"] = model.iterations(r)
    return columns


def measure(run: Run) -> Result:
    """Return iterations over permutations, and requests, moves and swaps of a flow."""
    n, r, m = size(run.text("topology"))
    outcome = simulate(
        network(n, r, m),
        rules(run),
        TRAFFIC[run.text("traffic")],
        run.integer("permutations"),
        generator(run),
        most=run.integer("most_iterations"),
        error_fraction=run.number("error_percent") / 100,
    )
    totals = outcome.counts.sum(axis=0)
    flows = n * r * len(outcome.iterations)
    moves = max(1, int(totals[MOVES] + totals[SWAPS]))
    return Result(
        {
            **statistics(outcome.iterations),
            "settled_fraction": (outcome.iterations >= 0).mean(),
            "requests_per_flow": totals[REQUESTS] / flows,
            "moves_per_flow": totals[MOVES] / flows,
            "swaps_per_flow": totals[SWAPS] / flows,
            "new_bad_links_per_move": totals[SPOILT] / moves,
            "excess_growths": totals[GROWTHS],
            **models(run),
        }
    )


def statistics(iterations: Ints) -> Row:
    """Return the columns about iterations, each None unless every permutation settled."""
    drawn: Row = {"sampled_permutations": len(iterations)}
    if (iterations < 0).any():
        keys = ("mean", "standard_error", "median", "p99", "worst")
        return drawn | {f"{key}_iterations": None for key in keys}
    return drawn | {
        "mean_iterations": iterations.mean(),
        "standard_error_iterations": standard_error(iterations),
        "median_iterations": np.quantile(iterations, 0.5),
        "p99_iterations": np.quantile(iterations, 0.99),
        "worst_iterations": iterations.max(),
    }


def figures_of(n: int, r: int, m: int, p: int) -> dict[str, int]:
    """Return the place on the axis of a network in each figure of the paper, or a similar one."""
    places = {f"figure 11, n = {n}, m = {m}, by r" + f", p = {p}" * (p > 1): r}
    if n == r and m == n:
        places[{1: "figure 10a", 2: "figure 12"}.get(p, "m = r = n") + f", p = {p}"] = n
    elif n == r:
        places["figure 10b, p = 1" if m == 2 * n and p == 1 else f"m = {m / n:g} n, p = {p}"] = n
    return places


def series(table: Table) -> Table:
    """Return a row for each figure, network and curve; figures of a single network are left out."""
    rows = [
        row | {"figure": figure, "n_or_r": place}
        for row in table
        for figure, place in figures_of(*clos_size(row["topology"]), row["p"]).items()
    ]
    curves = varied(rows, ("figure",), "n_or_r")
    return [
        row | {"curve": CURVES.get(f"{row['rule']}, {row['column']}", row["column"])}
        for row in melted(curves or rows, COLUMNS, "column", "iterations")
    ]


TIGHT = (2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 48)
DOUBLE = range(2, 13)
BY_R = (2, 3, 4, 5, 7)
VARIED = ("traffic", "start", "requests", "key", "swap", "new_spine", "rest_iterations")
EXPERIMENT = Experiment(
    name="dar_convergence",
    question="How many iterations does DAR take until no link is bad?",
    source="DAR, section 5.1, figures 10 to 12",
    engines=("graph",),
    axes={
        "topology": Spec(
            "network", form="clos:n=..,r=..,m=..", check=size, canonical=canonical
        ).over(
            *(f"clos:n={n},r={n},m={n}" for n in TIGHT),
            *(f"clos:n={n},r={n},m={2 * n}" for n in DOUBLE),
            *(f"clos:n=6,r={r},m=6" for r in BY_R),
        ),
        "p": Integer("flows that a link carries", unit="flows", least=1, most=64).over(1, 2),
        "rule": Word(
            "what a request says of spines: nothing, or which have room; or a persistent walk, too",
            words=("paper", "informed", "persistent"),
        ).over("paper", "informed"),
        "traffic": Word(
            "permutations: those of section 5 that are hard, or all; or two flows of a "
            "leaf to the same host",
            words=tuple(TRAFFIC),
        ).over("worst"),
        "start": Word(
            "first spine: host mod n, any, any whose uplink has room, host mod m",
            words=tuple(STARTS),
        ).over("modulo"),
        "requests": Word(
            "bad links of a leaf that it asks about", words=("fullest-link", "every-link")
        ).over("fullest-link"),
        "key": Word(
            "what moves: a flow, or all flows of a leaf to the same host", words=tuple(KEYS)
        ).over("flow"),
        "swap": Word(
            "whether a flow is swapped back from an uplink that is full",
            words=("yes", "no"),
        ).over("yes"),
        "new_spine": Word(
            "spines to which a flow may be moved: with its own or without",
            words=("any", "other"),
        ).over("any"),
        "rest_iterations": Integer(
            "iterations for which a flow that has moved is not asked for",
            unit="iterations",
            least=0,
            most=1000,
        ).over(0),
        "permutations": Integer(
            "permutations of a batch", unit="permutations", least=2, most=1_000_000
        ).over(1000),
        "error_percent": Number(
            "standard error of the mean, of the mean: batches follow until it is reached",
            unit="%",
            least=0.01,
            most=1000,
        ).over(3.0),
        "model_3_3": Word(
            "model 3.3: moves that induce another: those to a full uplink, or all",
            words=("weighted", "unweighted"),
        ).over("weighted"),
        "most_iterations": Integer(
            "iterations after which a run gives a permutation up",
            unit="iterations",
            least=1,
            most=10**9,
        ).over(1_000_000),
    },
    columns={
        "sampled_permutations": "permutations that were measured",
        "mean_iterations": (
            "iterations until no link is bad, mean over permutations; null if one did not settle, "
            "as below"
        ),
        "standard_error_iterations": "its standard error",
        "median_iterations": "median over permutations",
        "p99_iterations": "99th percentile over permutations",
        "worst_iterations": "most over permutations",
        "settled_fraction": "permutations that settled within most_iterations",
        "requests_per_flow": "requests that outputs sent",
        "moves_per_flow": "moves of flows to another spine",
        "swaps_per_flow": "swaps of two flows",
        "new_bad_links_per_move": "links to output leaves that became bad, for a move or a swap",
        "excess_growths": "iterations in which the flows above p, summed over links, grew",
        "*_model_iterations": (
            "what the paper's models of sections 3.1 (single output) and 3.2 or 3.3 "
            "(last step) expect; null where they say nothing"
        ),
    },
    seeds=3,
    version=2,
    measure=measure,
    plot=Curves(
        columns={"iterations": "iterations"},
        facet=("figure", *VARIED),
        x="n_or_r",
        series="curve",
        log=("iterations",),
        rows=series,
    ),
    check=check,
    takes_s=100,
)
