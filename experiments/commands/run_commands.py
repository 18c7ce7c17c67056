"""The commands about experiments: run, plot."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from experiments.runner.definition import Experiment, Row, Run
    from experiments.runner.ledger import Failure

RESULTS = "WEFT_RESULTS"  # the environment variable that says where results are kept
WIDEST = 28  # characters of a column


def add_commands(commands: Any) -> None:
    """Add run and plot."""
    add = commands.add_parser("run", help="measure what an experiment asks for and is not stored yet")
    shared(add, "values of a parameter")
    add.add_argument("--seeds", metavar="N", type=int, help="runs of each cell, seeded 0 .. N-1")
    add.add_argument("--engine", metavar="NAME[,NAME...]", default="", help="graph, fabric or kernel")
    cores = len(os.sched_getaffinity(0))
    add.add_argument("--jobs", metavar="N", type=int, default=cores, help="runs at a time; on the kernel it is one")
    workers = "dask.distributed, tcp://HOST:8786: its workers measure what needs no kernel of this machine"
    add.add_argument("--scheduler", metavar="ADDRESS", default="", help=workers)
    again = add.add_mutually_exclusive_group()
    again.add_argument("--resume", action="store_true", help="measure only what is not stored yet (the default)")
    again.add_argument("--fresh", "--no-resume", action="store_true", help="measure again what is stored")
    add.add_argument("--json", action="store_true", help="print the rows as JSON")
    add.set_defaults(action=run)

    add = commands.add_parser("plot", help="draw what is stored of an experiment")
    shared(add, "draw only these")
    add.add_argument("-o", "--output", metavar="FILE", help=".png, .pdf or .svg (figures/EXPERIMENT.png)")
    add.set_defaults(action=plot)


def shared(add: argparse.ArgumentParser, values: str) -> None:
    """What run and plot have in common; `values`: what --set is for."""
    add.add_argument("experiment", metavar="EXPERIMENT", help="`weft list` has them")
    form = "KEY=VALUE[,VALUE...]"
    add.add_argument("--set", metavar=form, nargs="+", action="extend", default=[], help=values)
    results = os.environ.get(RESULTS) or "results"
    where = f"where results are kept (${RESULTS}, or ./results)"
    add.add_argument("--results", metavar="DIR", default=results, help=where)


def run(given: argparse.Namespace) -> int:
    """Carry an experiment out; status 1 if a run failed or did not give what it must."""
    from pathlib import Path

    from experiments.runner import definition
    from experiments.runner.console import Bar, say, show, show_one
    from experiments.runner.ledger import Ledger
    from experiments.runner.provenance import circumstances
    from experiments.runner.results import Store
    from experiments.runner.sweep import remaining, sweep

    experiment = definition.find(given.experiment)
    if given.jobs < 1:
        raise ValueError(f"--jobs must be at least 1, got {given.jobs}")
    engines = list(dict.fromkeys(given.engine.split(","))) if given.engine else []
    runs = experiment.runs(definition.assignments(given.set), seeds=given.seeds, engines=engines)
    if os.geteuid() and any(run.engine == "kernel" for run in runs):
        raise ValueError(no_root(experiment))
    store = Store(Path(given.results))
    ledger = Ledger(store.root / "ledger.sqlite")
    todo = runs if given.fresh else remaining(runs, store, ledger)
    engines_used = {run.engine for run in todo}
    about = circumstances(kernel="kernel" in engines_used) if todo else {}
    try:
        with Bar(experiment.name, len(todo), ticking=engines_used == {"kernel"}) as bar:
            where = {"jobs": given.jobs, "scheduler": given.scheduler}
            failures = sweep(experiment, todo, store, ledger, **where, circumstances=about, watcher=bar)
    finally:
        give_back(store.root)
    rows = store.rows(run for run in runs if run not in failures)
    if given.json:
        print(json.dumps(rows, indent=1))
    else:
        if len(rows) == 1:
            show_one(rows[0])
        elif rows:
            show(rows, columns(rows))
        measured = f"{len(todo) - len(failures)} of {len(runs)} runs measured"
        say(f"{experiment.name}: {measured}, rows in {given.results}/{experiment.name}")
    return verdict(experiment, rows, failures)


def give_back(root: Path) -> None:
    """Let what root measured under sudo belong to whoever called it, who will want to plot and to delete it."""
    if os.geteuid() == 0 and (user := os.environ.get("SUDO_UID")):
        for path in (root, *root.rglob("*")):
            os.chown(path, int(user), int(os.environ.get("SUDO_GID", user)), follow_symlinks=False)


def verdict(experiment: Experiment, rows: list[Row], failures: Mapping[Run, Failure]) -> int:
    """1 if a run failed or did not give what it must, with a line on standard error for each reason; else 0."""
    from experiments.runner.console import say

    for run, failure in failures.items():
        say(f"weft: {experiment.name}: {run} failed: {failure.reason}")
    broken = {key: sum(not row.get(key, True) for row in rows) for key in experiment.must_hold}
    for key, count in broken.items():
        if count:
            say(f"weft: {experiment.name}: {key} does not hold in {count} of {len(rows)} runs")
    return 1 if failures or any(broken.values()) else 0


def columns(rows: list[Row]) -> list[str]:
    """What fits a terminal: everything but the run's id, distributions and long texts."""
    from experiments.runner.console import cell

    keys = dict.fromkeys(key for row in rows for key in row if key != "run")
    short = [key for key in keys if all(len(cell(row.get(key))) <= WIDEST for row in rows)]
    return [key for key in short if not any(isinstance(row.get(key), list) for row in rows)]


def no_root(experiment: Experiment) -> str:
    others = [engine for engine in experiment.engines if engine != "kernel"]
    instead = f"--engine {others[0]} needs none, and " if others else ""
    uml = f"`weft uml -- weft run {experiment.name}` brings a kernel of its own"
    return f"{experiment.name}: the kernel engine needs root; {instead}{uml}"


def plot(given: argparse.Namespace) -> int:
    """Draw what is stored of an experiment."""
    from pathlib import Path

    from experiments.figures import figures
    from experiments.runner import definition
    from experiments.runner.results import Store

    experiment = definition.find(given.experiment)
    chosen = experiment.values(definition.assignments(given.set))
    entries = [
        (row, about)
        for row, about in Store(Path(given.results)).table(experiment)
        if all(row[key] in values for key, values in chosen.items())
    ]
    if not entries:
        raise ValueError(
            f"nothing of {experiment.name} is stored in {given.results}; weft run {experiment.name} measures it"
        )
    output = given.output or f"figures/{experiment.name}.png"
    figures.plot(experiment, entries, output)
    print(output)
    return 0
