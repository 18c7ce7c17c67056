"""The command `weft run`, and what the other commands about experiments share with it."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from weft.experiments.cli.experiment_description import Help
from weft.experiments.cli.virtual_up import check_costs

if TYPE_CHECKING:
    from weft.experiments.runner.definition import Experiment, Row, Run
    from weft.experiments.runner.failures import RunFailure
    from weft.experiments.runner.results import Store
    from weft.experiments.runner.sweep import Swept

    Entries = list[tuple[Row, dict[str, Any]]]

RESULTS = "WEFT_RESULTS"  # the environment variable that says where results are kept
WHERE = f"where results are kept (${RESULTS}, or ./results)"
WIDEST = 28  # characters of a column
MOST_NAMED = 6  # commits, or cells, that a line names


def add_commands(commands: Any) -> None:
    """Add run."""
    add = commands.add_parser(
        "run", help="measure what an experiment asks for and is not stored yet", add_help=False
    )
    shared(add, "values of a parameter")
    add.add_argument("--seeds", metavar="N", type=int, help="runs of each cell, seeded 0 .. N-1")
    add.add_argument(
        "--engine", metavar="NAME[,NAME...]", default="", help="graph, fabric or kernel"
    )
    clocks = (
        "of the kernel engine; virtual: exact and repeatable, computing takes no time, "
        "needs no root (real)"
    )
    add.add_argument("--clock", choices=("real", "virtual"), default="real", help=clocks)
    hop = "ns that the processor takes for each packet that arrives at a node (0; --clock virtual)"
    add.add_argument("--hop-ns", metavar="N", type=int, default=0, help=hop)
    call = "ns that each system call takes of its process (0; --clock virtual)"
    add.add_argument("--syscall-ns", metavar="N", type=int, default=0, help=call)
    cores = len(os.sched_getaffinity(0))
    add.add_argument(
        "--jobs",
        metavar="N",
        type=int,
        default=cores,
        help="runs at a time; one on the kernel in real time",
    )
    workers = (
        "dask.distributed, tcp://HOST:8786: its workers measure what needs no kernel "
        "of this machine"
    )
    add.add_argument("--scheduler", metavar="ADDRESS", default="", help=workers)
    again = add.add_mutually_exclusive_group()
    again.add_argument(
        "--resume", action="store_true", help="measure only what is not stored yet (the default)"
    )
    again.add_argument(
        "--fresh", "--no-resume", action="store_true", help="measure again what is stored"
    )
    checked = "measure what is measured now once more; status 1 if a row differs (--clock virtual)"
    add.add_argument("--check-determinism", action="store_true", help=checked)
    add.add_argument(
        "--dry-run",
        action="store_true",
        help="print which runs would be measured, and measure nothing",
    )
    add.add_argument("--json", action="store_true", help="print the rows as JSON")
    add.set_defaults(action=run)


def shared(add: argparse.ArgumentParser, values: str, *, optional: bool = False) -> None:
    """What run, plot and export have in common; `values`: what --set is for; `optional`: whether
    EXPERIMENT is."""
    add.add_argument("-h", "--help", action=Help)
    named = add.add_argument("experiment", metavar="EXPERIMENT", help="`weft list` has them")
    if optional:
        named.nargs, named.required = "?", False
    form = "KEY=VALUE[,VALUE...]"
    add.add_argument("--set", metavar=form, nargs="+", action="extend", default=[], help=values)
    results = os.environ.get(RESULTS) or "results"
    add.add_argument("--results", metavar="DIR", default=results, help=WHERE)


def run(given: argparse.Namespace) -> int:
    """Carry an experiment out; status 1 if a run failed or did not give what it must."""
    from pathlib import Path

    from weft.experiments.runner import definition
    from weft.experiments.runner.console import say
    from weft.experiments.runner.results import Store
    from weft.experiments.runner.sweep import remaining, timed

    experiment = definition.find(given.experiment)
    if given.check_determinism and given.clock != "virtual":
        raise ValueError(
            "--check-determinism needs --clock virtual: in real time no two runs are the same"
        )
    costs = {name: getattr(given, name) for name in definition.COSTS}
    check_costs(costs, given.clock)
    if given.jobs < 1:
        raise ValueError(f"--jobs must be at least 1, got {given.jobs}")
    engines = list(dict.fromkeys(given.engine.split(","))) if given.engine else []
    asked = definition.assignments(given.set)
    runs, refused = experiment.plan(
        asked, seeds=given.seeds, engines=engines, clock=given.clock, **costs
    )
    if refused:
        say(skipped(experiment, refused))
    store = Store(Path(given.results))
    again = given.fresh or (experiment.always_measures and not given.resume)
    todo = runs if again else remaining(runs, store)
    needs_root = os.geteuid() and any(timed(run) for run in runs)
    if given.dry_run:
        if needs_root:
            say(no_root(experiment))
        return foretell(experiment, runs, set(todo), store, given)
    if needs_root:
        raise ValueError(no_root(experiment))
    swept = measure(experiment, todo, store, given, again)
    entries = store.entries(run for run in runs if run not in swept.failures)
    measured = {run.id for run in swept.measured}
    print_rows([row for row, _ in entries], measured, given.json, parameters=experiment.sweep)
    say(summary(experiment, entries, swept, store))
    if given.check_determinism and (differing := _differences(swept, entries)):
        return differing
    return verdict(experiment, [row for row, _ in entries], swept.failures)


def _differences(swept: Swept, entries: Entries) -> int:
    """Measure once more what was measured now; 1, with a line for each, if a row differs."""
    from weft.experiments.runner.console import say
    from weft.experiments.runner.determinism import differences

    found = differences(swept.measured, [row for row, _ in entries])
    for line in found:
        say(f"weft: {line}")
    if not found:
        say(f"measured once more, {len(swept.measured)} runs gave the same rows")
    return 1 if found else 0


def measure(
    experiment: Experiment,
    todo: Sequence[Run],
    store: Store,
    given: argparse.Namespace,
    again: bool,
) -> Swept:
    """Carry `todo` out, with a bar."""
    from weft.experiments.runner.console import Bar
    from weft.experiments.runner.provenance import code_and_machine
    from weft.experiments.runner.sweep import sweep

    engines = {run.engine for run in todo}
    about = code_and_machine(kernel="kernel" in engines) if todo else {}
    with Bar(experiment.name, len(todo), ticking=engines == {"kernel"}) as bar:
        where = {"jobs": given.jobs, "scheduler": given.scheduler}
        return sweep(experiment, todo, store, **where, about=about, watcher=bar, again=again)


def skipped(experiment: Experiment, refused: Mapping[str, str]) -> str:
    """The line that names the cells whose values do not go together."""
    cells: dict[str, list[str]] = {}
    for cell, why in refused.items():
        cells.setdefault(why, []).append(cell)
    each = [
        f"{several(of, '; ')} ({why.removeprefix(experiment.name + ': ')})"
        for why, of in cells.items()
    ]
    count = f"{len(refused)} cell{'s' if len(refused) > 1 else ''}"
    return (
        f"{experiment.name}: {count} left out, whose values do not go together: {'; '.join(each)}"
    )


def several(names: Collection[str], between: str = ", ") -> str:
    """The first of `names`, and how many more there are."""
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return between.join(list(names)[:MOST_NAMED]) + more


def foretell(
    experiment: Experiment,
    runs: Sequence[Run],
    todo: Collection[Run],
    store: Store,
    given: argparse.Namespace,
) -> int:
    """Print every run of the sweep, whether it would be measured, and about how long that would
    take."""
    from weft.experiments.runner.console import duration, say, show
    from weft.experiments.runner.estimate import estimates, is_least, total_s

    expected = estimates(experiment, runs, store)
    rows: list[Row] = [
        {
            **run.parameters,
            "seed": run.seed,
            "engine": run.engine,
            "run": run.id,
            "stored": run not in todo,
            "estimated_s": expected[run],
        }
        for run in runs
    ]
    if given.json:
        print(json.dumps(rows, indent=1))
    else:
        show(rows, list(rows[0]) if rows else [])
        took_s = total_s({run: expected[run] for run in todo}, given.jobs)
        bound = "at least" if is_least(todo, experiment, store) else "about"
        about = (
            "in a time that was never measured"
            if took_s is None
            else f"in {bound} {duration(took_s)}"
        )
        say(
            f"{len(todo)} of {len(runs)} runs would be measured, {about}; "
            f"{len(runs) - len(todo)} are stored"
        )
    return 0


def print_rows(
    rows: list[Row], measured: Collection[str], as_json: bool, *, parameters: Collection[str]
) -> None:
    """The rows on standard output; a table says which were `measured` now, by their ids, if others
    were not.

    parameters: what tells rows apart, which a table has however long it is.
    """
    from weft.experiments.runner.console import show, show_one

    if as_json:
        print(json.dumps(rows, indent=1))
    elif len(rows) == 1:
        show_one(rows[0])
    elif rows:
        shown, names = rows, columns(rows, parameters)
        if 0 < len(measured) < len(rows):
            shown = [
                {**row, "measured": "now" if row["run"] in measured else "before"} for row in rows
            ]
            names = [*names, "measured"]
        show(shown, names)


def summary(
    experiment: Experiment,
    entries: Sequence[tuple[Row, Mapping[str, Any]]],
    swept: Swept,
    store: Store,
) -> str:
    """How many rows were measured now, and how many were stored before, by which commits."""
    now = {run.id for run in swept.measured}
    commits = [commit(about) for row, about in entries if row["run"] not in now]
    parts = [f"{len(now)} measured now"]
    if commits:
        parts.append(f"{len(commits)} stored before, by {several(dict.fromkeys(commits))}")
    if swept.failures:
        parts.append(f"{len(swept.failures)} failed")
    return f"{experiment.name}: {', '.join(parts)}; rows in {store.path}"


def commit(about: Mapping[str, Any]) -> str:
    """The commit that a row was measured by, with a + if files differed from it."""
    found = about.get("commit")
    return f"commit {found}{'+' if about.get('dirty') else ''}" if found else "an installed weft"


def verdict(experiment: Experiment, rows: list[Row], failures: Mapping[Run, RunFailure]) -> int:
    """1 if a run failed or did not give what it must, with a line on standard error for each
    reason; else 0."""
    from weft.experiments.runner.console import say

    for run, failure in failures.items():
        say(f"weft: {experiment.name}: {run} failed: {failure.reason}")
    broken = {key: sum(not row.get(key, True) for row in rows) for key in experiment.must_hold}
    for key, count in broken.items():
        if count:
            say(f"weft: {experiment.name}: {key} does not hold in {count} of {len(rows)} runs")
    return 1 if failures or any(broken.values()) else 0


def columns(rows: list[Row], parameters: Collection[str]) -> list[str]:
    """What fits a terminal: everything but the run's id, distributions, and long texts other than
    those of `parameters` in which rows differ."""
    from weft.experiments.runner.console import cell

    keys = dict.fromkeys(key for row in rows for key in row if key != "run")
    texts = {key: {cell(row.get(key)) for row in rows} for key in keys}
    apart = {key for key in parameters if len(texts.get(key, ())) > 1}
    short = [key for key in keys if key in apart or max(map(len, texts[key])) <= WIDEST]
    return [key for key in short if not any(isinstance(row.get(key), list) for row in rows)]


def no_root(experiment: Experiment) -> str:
    """What to say to someone who runs `experiment` on the kernel engine without being root."""
    others = [engine for engine in experiment.engines if engine != "kernel"]
    instead = f"--engine {others[0]} needs none, and " if others else ""
    uml = f"`weft uml -- weft run {experiment.name}` brings a kernel of its own"
    return f"{experiment.name}: the kernel engine needs root; {instead}{uml}"
