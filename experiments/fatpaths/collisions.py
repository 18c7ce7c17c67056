"""Flows between the same pair of routers: FatPaths, figure 4.

Hosts are placed at random, so this depends on the number of routers and of hosts at each alone.
In the paper three disjoint paths are needed, since with D > 1 nearly no pair has more than three
flows.
"""

from __future__ import annotations

import numpy as np

from weft.experiments.engines.workloads import mapped, pairs
from weft.experiments.fatpaths import columns
from weft.experiments.fatpaths.path_diversity import collisions
from weft.experiments.fatpaths.table_iv import NETWORK, looks
from weft.experiments.report.panels import Curves, exploded
from weft.experiments.runner.definition import Experiment, Result, Run, Table
from weft.experiments.runner.parameters import Integer, Spec

PATTERNS = ("permutation", "off-diagonal:c=1", "shuffle", "k-permutation:k=4", "stencil:offset=42")


def check_pattern(text: str) -> None:
    """Raise ValueError unless `text` is a traffic pattern."""
    pairs(text, 5_000, np.random.default_rng(0))


def measure(run: Run) -> Result:
    """Return the share of ordered pairs of routers with 0, 1, 2, ... flows."""
    topology, rng = run.topology, np.random.default_rng(run.seed)
    links = topology.links[topology.level == 0]
    router_of = np.empty(topology.servers, dtype=np.int64)
    router_of[links[:, 0]] = links[:, 2] - topology.servers
    router_of = np.unique(router_of, return_inverse=True)[1]
    flows = pairs(run.text("pattern"), topology.servers, rng)
    if run.integer("mapped"):
        flows = mapped(rng, topology.servers, flows)
    counts = collisions(flows, router_of)
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
    """Raise ValueError for a pattern that this network has too few hosts for."""
    pairs(run.text("pattern"), run.topology.servers, np.random.default_rng(0))


def shares(table: Table) -> Table:
    """Return a row for each number of flows that some pair has."""
    return [row for row in exploded(table, ("flow_shares",), "flows") if row["flow_shares"]]


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
            "who sends to whom",
            form="permutation, stencil:offset=42, ...",
            check=check_pattern,
        ).over(*PATTERNS),
        "mapped": Integer("1: hosts are placed at random", least=0, most=1).over(1),
    },
    columns=columns.COLLISIONS,
    seeds=1,
    measure=measure,
    plot=Curves(
        columns={"flow_shares": "fraction of router pairs"},
        x="flows",
        series="topology",
        facet=("pattern", "mapped"),
        log=("flow_shares",),
        rows=shares,
        looks=looks,
    ),
    takes_s=5,
    check=check,
)
