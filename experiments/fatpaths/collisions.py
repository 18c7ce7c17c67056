"""How many flows meet at the same pair of routers?  FatPaths, figure 4.

Hosts are placed at random, so this depends on the number of routers and of hosts at each alone.
The paper takes it that three disjoint paths are needed, since with D > 1 nearly no pair has more
than three flows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from weft.experiments.engines.workloads import mapped, pairs
from weft.experiments.fatpaths import graph_columns
from weft.experiments.fatpaths.path_diversity import collisions
from weft.experiments.fatpaths.table_iv import NETWORK, colour, label
from weft.experiments.report import panels, style
from weft.experiments.runner.definition import Experiment, Result, Row, Run, Table
from weft.experiments.runner.parameters import Integer, Spec
from weft.topologies import build

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LARGE = 50_000  # hosts, from which on lines are dashed
PATTERNS = ("permutation", "off-diagonal:c=1", "shuffle", "k-permutation:k=4", "stencil:offset=42")


def check_pattern(text: str) -> None:
    """ValueError for what is no traffic pattern."""
    pairs(text, 5_000, np.random.default_rng(0))


def measure(run: Run) -> Result:
    """Of all ordered pairs of routers, the share with 0, 1, 2, ... flows.

    How many have more than three or nine.
    """
    topology, rng = build(run.text("topology")), np.random.default_rng(run.seed)
    links = topology.links[topology.level == 0]
    router_of = np.empty(topology.servers, dtype=np.int64)
    router_of[links[:, 0]] = links[:, 2] - topology.servers
    router_of = np.unique(router_of, return_inverse=True)[1]
    chosen = pairs(run.text("pattern"), topology.servers, rng)
    if run.integer("mapped"):
        chosen = mapped(rng, topology.servers, chosen)
    counts = collisions(chosen, router_of)
    share = counts / counts.sum()
    return Result(
        figures={
            "hosts": topology.servers,
            "flow_shares": share.tolist(),
            "over_three_fraction": float(share[4:].sum()),
            "nine_or_more_fraction": float(share[9:].sum()),
            "most_flows": len(share) - 1,
        }
    )


def check(run: Run) -> None:
    """ValueError for a pattern that this network has too few hosts for."""
    pairs(run.text("pattern"), build(run.text("topology")).servers, np.random.default_rng(0))


def plot(table: Table, figure: Figure) -> None:
    """Draw the share of router pairs over their flows, a panel for each pattern."""
    patterns = list(dict.fromkeys(str(row["pattern"]) for row in table))
    figure.set_size_inches(2.6 * len(patterns) + 1, 3.9)
    grid = figure.subplots(1, len(patterns), sharey=True, squeeze=False)[0]
    for axes, pattern in zip(grid, patterns, strict=True):
        rows = {str(row["topology"]): row for row in panels.select(table, pattern=pattern)}
        for row in sorted(rows.values(), key=place_of):
            draw_network(axes, row)
        axes.set(title=pattern, xlabel="flows of a router pair", yscale="log", ylim=(3e-8, 1.5))
        axes.locator_params(axis="x", integer=True)
        axes.axvline(3, color=style.FAINT, zorder=0)
    grid[0].set_ylabel("fraction of router pairs")
    panels.legend(figure, loc="outside upper left", ncols=6)


def place_of(row: Row) -> tuple[str, int]:
    """Return the key of the order of lines."""
    return colour(str(row["topology"])), int(str(row["hosts"]))


def draw_network(axes: Axes, row: Row) -> None:
    """Draw the shares of one network, dashed for a large one."""
    name, hosts, shares = str(row["topology"]), int(str(row["hosts"])), row["flow_shares"]
    assert isinstance(shares, list)
    flows = [count for count, share in enumerate(shares) if share]
    dash, marker = ("-", "o") if hosts < LARGE else ("--", "D")
    axes.plot(
        flows,
        [shares[count] for count in flows],
        dash,
        color=colour(name),
        marker=marker,
        ms=3.5,
        label=f"{label(name).split(' ')[0]}, {hosts:,} hosts",
    )


EXPERIMENT = Experiment(
    name="collisions",
    question="How many flows of the same pair of routers collide under FatPaths' traffic patterns?",
    source="FatPaths, figure 4",
    engines=("graph",),
    axes={
        "topology": NETWORK.over(
            *("slimfly:q=19,p=14", "dragonfly:p=8,palm=0", "complete:n=101,p=100"),
            *("slimfly:q=41,p=31", "dragonfly:p=13,palm=0", "complete:n=317,p=316"),
        ),
        "pattern": Spec(
            meaning="who sends to whom",
            form="permutation, stencil:offset=42, ...",
            check=check_pattern,
        ).over(*list(PATTERNS)),
        "mapped": Integer(meaning="1: hosts are placed at random", least=0, most=1).over(1),
    },
    columns=graph_columns.COLLISIONS,
    seeds=1,
    measure=measure,
    plot=plot,
    takes_s=5,
    check=check,
)
