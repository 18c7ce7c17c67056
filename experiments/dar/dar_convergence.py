"""How many iterations does DAR take until no link is bad?  DAR, section 5.1, figures 10, 11 and 12.

The iteration of section 2 on CLOS(n,r,m), from figure 9's start, for flows of 1/p of a link's rate:
the paper's rule, and requests that carry the map of spines with room (rule=informed, not in the
paper).  Beside them the Markov models of sections 3.1 and 3.2 (p = 1) and 3.3 (p = 2, n >= 4).  The
figures of the paper: 10a m=n=r, p=1; 10b m=2n=2r, p=1; 11 n=m=6, p=1, by r; 12 m=n=r, p=2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import cycle
from typing import TYPE_CHECKING

import numpy as np

from weft.daemons.dar import iteration
from weft.daemons.dar.iteration import DEST, FLOW, KEYS, STARTS, IterationRules
from weft.experiments.dar import columns
from weft.experiments.dar.models import full_rate, half_rate, single_output
from weft.experiments.dar.simulation import PAIRS, TRAFFIC, network, permute, simulate
from weft.experiments.engines.arrays import Ints
from weft.experiments.report import panels, style
from weft.experiments.runner.definition import Experiment, Result, Row, Run, Table, Value, canonical
from weft.experiments.runner.parameters import Integer, Spec, Word
from weft.topologies.core.grammar import parse

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_FLOWS = 20_000
MOST_TIGHT = 42  # flows where m p = n: the paper's rule takes exponentially long in them
MOST_MODELLED = 40  # n and r of the models
DRAWN = ("topology", "p", "rule")  # by axes, panels and lines
RULES = {"paper": 0, "informed": 1}
SERIES = (
    ("paper", "mean_iterations", "the paper's rule, simulated", "o-"),
    ("informed", "mean_iterations", "informed requests, simulated", "s-"),
    ("paper", "single_output_model_iterations", "model 3.1, single output", ":"),
    ("paper", "last_step_model_iterations", "model 3.2 or 3.3, last step", "--"),
)


def size(topology: str) -> tuple[int, int, int]:
    """n, r and m of `topology`; ValueError unless it is a Clos network of few enough hosts."""
    name, given = parse(topology)
    if name != "clos":
        raise ValueError(
            f"dar_convergence: the network must be clos:n=..,r=..,m=.., got {topology}"
        )
    n, r, m = (int(given[key]) for key in "nrm")
    if n * r > MOST_FLOWS or m > 2 * n:
        raise ValueError(
            f"dar_convergence: take at most {MOST_FLOWS} hosts and m <= 2n, got {topology}"
        )
    return n, r, m


def rules(run: Run) -> IterationRules:
    """What `run` asks for, where the paper leaves it open."""
    informed = RULES[run.text("rule")]
    return IterationRules(
        p=run.integer("p"),
        start=STARTS[run.text("start")],
        every_link=int(run.text("requests") == "every-link"),
        swap=int(run.text("swap") == "yes"),
        stay=int(run.text("new_spine") == "any"),
        informed=informed,
        key=KEYS[run.text("key")],
        rest=run.integer("rest_iterations"),
    )


def check(run: Run) -> None:
    """ValueError for a network on which the iteration does not converge, or not in bearable
    time.
    """
    n, r, m = size(run.text("topology"))
    chosen, each = rules(run), 1
    iteration.check(n, r, m, chosen)
    if run.text("traffic") == "pairs":
        if n % 2:
            raise ValueError(
                f"dar_convergence: pairs need an even number of hosts at a leaf, got n={n}"
            )
        net = network(n, r, m)
        permute(net, PAIRS, [1, 2, 3, 4])
        iteration.check_traffic(net, chosen)
        each = 2 if chosen.key == DEST else 1
    if m * (chosen.p // each * each) == n and not chosen.informed and n * r > MOST_TIGHT:
        instead = "take more spines, a larger p or rule=informed"
        raise ValueError(
            f"dar_convergence: {n * r} flows and m p = n settle after exponentially long: {instead}"
        )


def solved(model: Callable[[], float]) -> float | None:
    """The value of `model`, None where it has none."""
    try:
        return model()
    except ValueError:
        return None


def models(n: int, r: int, m: int, chosen: IterationRules) -> dict[str, float | None]:
    """Expected iterations by the paper's models, as far as they are for such a network, and for its
    rule.
    """
    single = last = None
    if not chosen.informed and max(n, r) <= MOST_MODELLED:
        if chosen.p == 1 and chosen.key == FLOW:
            links = min(n, m) if chosen.start == iteration.MODULO else m
            single = solved(lambda: single_output(n, m, links=links))
            last = solved(lambda: full_rate(n, m).iterations(r))
        if chosen.p == 2 and chosen.key == FLOW:
            last = solved(lambda: half_rate(n, m).iterations(r))
    return {"single_output_model_iterations": single, "last_step_model_iterations": last}


def measure(run: Run) -> Result:
    """Return iterations over permutations, and requests, moves and swaps of a flow."""
    n, r, m = size(run.text("topology"))
    iteration_rules = rules(run)
    outcome = simulate(
        network(n, r, m),
        iteration_rules,
        TRAFFIC[run.text("traffic")],
        run.integer("permutations"),
        np.random.default_rng(run.seed),
        most=run.integer("most_iterations"),
    )
    requests, moves, swaps = (outcome.counts.mean(axis=0) / (n * r)).tolist()
    return Result(
        figures={
            **statistics(outcome.iterations),
            "settled_fraction": float((outcome.iterations >= 0).mean()),
            "requests_per_flow": requests,
            "moves_per_flow": moves,
            "swaps_per_flow": swaps,
            **models(n, r, m, iteration_rules),
        }
    )


def statistics(iterations: Ints) -> dict[str, Value]:
    """Return the columns about iterations, each None unless every permutation settled."""
    if (iterations < 0).any():
        keys = ("mean", "standard_error", "median", "p99", "worst")
        return {f"{key}_iterations": None for key in keys}
    several = len(iterations) > 1
    error = float(iterations.std(ddof=1) / np.sqrt(len(iterations))) if several else None
    return {
        "mean_iterations": float(iterations.mean()),
        "standard_error_iterations": error,
        "median_iterations": float(np.quantile(iterations, 0.5)),
        "p99_iterations": float(np.quantile(iterations, 0.99)),
        "worst_iterations": int(iterations.max()),
    }


def series_of(table: Table) -> dict[str, list[Row]]:
    """Return the rows of each panel by its title; each row has its place on the axis as `x`.

    The title ends with the name of the axis.
    """
    groups: dict[str, list[Row]] = {}
    varied = [
        key for key in EXPERIMENT.axes if key not in DRAWN and len({row[key] for row in table}) > 1
    ]
    for row in table:
        n, r, m = size(str(row["topology"]))
        more = "".join(f", {style.words(key)} = {row[key]}" for key in ("p", *varied))
        if n == r:
            title = f"m = r = n{more}, by n" if m == n else f"m = {m / n:g} n, r = n{more}, by n"
            groups.setdefault(title, []).append({**row, "x": n})
        groups.setdefault(f"n = {n}, m = {m}{more}, by r", []).append({**row, "x": r})
    series = {title: rows for title, rows in groups.items() if len({row["x"] for row in rows}) > 1}
    return dict(sorted((series or groups).items()))


def draw(axes: Axes, rows: Sequence[Row]) -> None:
    """Draw means of the simulation and its 99th percentiles, and the models, over n or r."""
    for colour, (rule, key, label, look) in zip(cycle(style.SEVERAL), SERIES, strict=False):
        of_rule = panels.select(rows, rule=rule)
        means = panels.means_by(of_rule, "x", key)
        axes.plot(*means, look, color=colour, label=label, markersize=4.5)
        if key == "mean_iterations":
            tails = panels.means_by(of_rule, "x", "p99_iterations")
            axes.plot(*tails, "_", color=colour, markersize=9)


def plot(table: Table, figure: Figure) -> None:
    """Draw iterations over n or r, a panel for each series of networks."""
    groups = series_of(table)
    grid = panels.grid(
        figure, len(groups), 3, panel=(3.2, 2.9), margin=(0, 1.1), ylabel="iterations"
    )
    for axes, (title, rows) in zip(grid, groups.items(), strict=True):
        draw(axes, rows)
        name, _, axis = title.rpartition(", by ")
        axes.set(title=name, xlabel=axis)
        if any(row["p"] == 1 for row in rows):
            axes.set_yscale("log")
        axes.locator_params(axis="x", integer=True)
    heading = "means; bars: 99th percentiles"
    panels.legend(figure, loc="outside upper left", ncols=2, title=heading, alignment="left")


TIGHT, DOUBLE, BY_R = (2, 3, 4, 5, 6, 8, 12, 16, 24), (2, 3, 4, 5, 6, 7, 8, 10, 12), (2, 3, 4, 5, 7)
EXPERIMENT = Experiment(
    name="dar_convergence",
    question="How many iterations does DAR take until no link is bad?",
    source="DAR, section 5.1, figures 10 to 12",
    engines=("graph",),
    axes={
        "topology": Spec(
            meaning="network", form="clos:n=..,r=..,m=..", check=size, canonical=canonical
        ).over(
            *(f"clos:n={n},r={n},m={n}" for n in TIGHT),
            *(f"clos:n={n},r={n},m={2 * n}" for n in DOUBLE),
            *(f"clos:n=6,r={r},m=6" for r in BY_R),
        ),
        "p": Integer(meaning="flows that a link carries", unit="flows", least=1, most=64).over(
            1, 2
        ),
        "rule": Word(
            meaning="what a request says of spines: nothing, or which have room", words=tuple(RULES)
        ).over("paper", "informed"),
        "traffic": Word(
            meaning="permutations: those of section 5 that are hard, or all; or two flows of a "
            "leaf to the same host",
            words=tuple(TRAFFIC),
        ).over("worst"),
        "start": Word(
            meaning="spines at first: host mod n, any, any whose uplink has room, host mod m",
            words=tuple(STARTS),
        ).over("modulo"),
        "requests": Word(
            meaning="bad links of a leaf that it asks about", words=("fullest-link", "every-link")
        ).over("fullest-link"),
        "key": Word(
            meaning="what moves: a flow, or all flows of a leaf to the same host", words=tuple(KEYS)
        ).over("flow"),
        "swap": Word(
            meaning="whether a flow is swapped back from an uplink that is full",
            words=("yes", "no"),
        ).over("yes"),
        "new_spine": Word(
            meaning="spines to which a flow may be moved: with its own or without",
            words=("any", "other"),
        ).over("any"),
        "rest_iterations": Integer(
            meaning="iterations for which a flow that has moved is not asked for",
            unit="iterations",
            least=0,
            most=1000,
        ).over(0),
        "permutations": Integer(
            meaning="permutations of a run", unit="permutations", least=1, most=1_000_000
        ).over(400),
        "most_iterations": Integer(
            meaning="iterations after which a run gives a permutation up",
            unit="iterations",
            least=1,
            most=10**9,
        ).over(1_000_000),
    },
    columns=columns.CONVERGENCE,
    seeds=1,
    measure=measure,
    plot=plot,
    check=check,
    takes_s=25,
)
