"""The command `weft run`, and options that commands on experiments share."""

from __future__ import annotations

import json
import os
from argparse import ArgumentParser, Namespace
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.experiments.cli.catalogue import Help
from weft.experiments.cli.options import (
    Commands,
    add_command,
    add_costs,
    add_flag,
    add_json,
    add_results,
    address,
)
from weft.experiments.cli.virtual_up import check_costs
from weft.experiments.runner import definition
from weft.experiments.runner.console import Bar, cell, duration, notice, say, show, show_one
from weft.experiments.runner.definition import Entry, Experiment, Row, Run, RunPlan
from weft.experiments.runner.results import RunFailure, Store
from weft.experiments.runner.sweep import Swept, estimates, remaining, sweep, timed, total_s

if TYPE_CHECKING:
    Entries = list[Entry]

WIDEST = 28  # characters of a column
MOST_NAMED = 6  # commits, or cells, in one line


def add_commands(commands: Commands) -> None:
    """Add run."""
    parser = add_command(
        commands,
        "run",
        run,
        "measure the runs of an experiment that are not stored yet",
        add_help=False,
    )
    add_experiment_options(parser, "set values of a parameter")
    parser.add_argument("--seeds", metavar="N", type=int, help="runs of each cell, seeded 0 .. N-1")
    parser.add_argument(
        "--engine", metavar="NAME[,NAME...]", default="", help="graph, fabric, packet or kernel"
    )
    text = "clock of the kernel engine: virtual (exact, repeatable, without root) or real; "
    text += "default: that of the experiment"
    parser.add_argument("--clock", choices=("real", "virtual"), help=text)
    add_costs(parser, 0)
    add_measuring_options(parser)
    add_flag(
        parser,
        "--check-determinism",
        help="measure each new row twice; status 1 if a row differs (--clock virtual)",
    )
    add_flag(parser, "--dry-run", help="print the runs and measure nothing")
    add_json(parser)


def add_measuring_options(parser: ArgumentParser) -> None:
    """Add --jobs, --scheduler, --resume and --fresh."""
    text = "parallel runs; the kernel in real time takes one at a time"
    cores = len(os.sched_getaffinity(0))
    parser.add_argument("--jobs", metavar="N", type=int, default=cores, help=text)
    parser.add_argument(
        "--scheduler",
        metavar="ADDRESS",
        type=address,
        help="measure on the workers of dask.distributed at tcp://HOST:8786 if no kernel is needed",
    )
    group = parser.add_mutually_exclusive_group()
    add_flag(group, "--resume", help="measure only runs that are not stored (the default)")
    add_flag(group, "--fresh", help="measure stored runs again")


def add_experiment_options(
    parser: ArgumentParser, set_help: str, *, optional: bool = False
) -> None:
    """Add EXPERIMENT, --set and --results.

    Args:
        parser: of the command.
        set_help: help of --set.
        optional: EXPERIMENT may be omitted.
    """
    parser.add_argument("-h", "--help", action=Help)
    text = "experiment; `weft list` lists them"
    nargs = {"nargs": "?"} if optional else {}
    parser.add_argument("experiment", metavar="EXPERIMENT", help=text, **nargs)  # type: ignore[arg-type]
    parser.add_argument(
        "--set",
        metavar="KEY=VALUE[,VALUE...]",
        nargs="+",
        action="extend",
        default=[],
        help=set_help,
    )
    add_results(parser)


def run(arguments: Namespace) -> int:
    """Carry out an experiment; return 1 if a run failed or broke its invariants."""
    experiment = definition.find(arguments.experiment)
    plan = _planned(experiment, arguments)
    needs_root = os.geteuid() and any(timed(run) for run in plan.runs)
    if needs_root and not arguments.dry_run:
        raise ValueError(no_root(experiment))
    _advise(experiment, plan, arguments)
    store = Store(Path(arguments.results))
    again = arguments.fresh or (experiment.always_measures and not arguments.resume)
    todo = plan.runs if again else remaining(plan.runs, store)
    if arguments.dry_run:
        if needs_root:
            say(no_root(experiment))
        return print_estimate(experiment, plan.runs, set(todo), store, arguments)
    swept = measure(experiment, todo, store, arguments, again)
    return _report(experiment, plan.runs, swept, store, arguments)


def _report(
    experiment: Experiment,
    runs: Sequence[Run],
    swept: Swept,
    store: Store,
    arguments: Namespace,
) -> int:
    """Print the rows of `runs` and their defects; return the exit status."""
    entries = store.entries(run for run in runs if run not in swept.failures)
    rows = [row for row, _ in entries]
    measured = {run.id for run in swept.measured}
    print_rows(rows, measured, arguments.json, parameters=experiment.sweep)
    say(summary(experiment, entries, swept, store))
    if arguments.check_determinism and _differ(swept, rows):
        return 1
    return verdict(experiment, rows, swept.failures)


def _planned(experiment: Experiment, arguments: Namespace) -> RunPlan:
    """Return the runs that the options select; ValueError if options conflict."""
    from weft.experiments.runner.virtual_runs import default_clock

    engines = list(dict.fromkeys(arguments.engine.split(","))) if arguments.engine else []
    clock = arguments.clock or default_clock(experiment, engines)
    if arguments.check_determinism and clock != "virtual":
        cause = "in real time no two runs are the same"
        raise ValueError(f"--check-determinism needs --clock virtual: {cause}")
    costs = {name: getattr(arguments, name) for name in definition.COSTS}
    check_costs(costs, clock)
    if arguments.jobs < 1:
        raise ValueError(f"--jobs must be at least 1, got {arguments.jobs}")
    values = definition.assignments(arguments.set)
    return experiment.plan(values, seeds=arguments.seeds, engines=engines, clock=clock, **costs)


def _advise(experiment: Experiment, plan: RunPlan, arguments: Namespace) -> None:
    """Say which cells are left out, and that the clock is not the one that is declared."""
    if plan.refused:
        say(skipped(experiment, plan.refused))
    if not arguments.clock and experiment.clock == "virtual" and any(map(timed, plan.runs)):
        say(f"{experiment.name}: in real time; `make uml-kernel` builds a kernel for exact time")


def _differ(swept: Swept, rows: list[Row]) -> bool:
    """Measure the new rows again; print a line for each difference."""
    from weft.experiments.runner.virtual_runs import differences

    lines = differences(swept.measured, rows)
    for line in lines:
        say(f"weft: {line}")
    if not lines:
        say(f"measured once more, {len(swept.measured)} runs gave the same rows")
    return bool(lines)


def measure(
    experiment: Experiment,
    todo: Sequence[Run],
    store: Store,
    arguments: Namespace,
    again: bool,
) -> Swept:
    """Sweep `todo` with a progress bar."""
    from weft.experiments.runner.provenance import code_and_machine

    engines = {run.engine for run in todo}
    about = code_and_machine(kernel="kernel" in engines) if todo else {}
    beginning = "code is compiled at its first use" if "graph" in engines else ""
    if any(run.clock == "virtual" for run in todo):
        notice(f"{experiment.name}: a kernel for virtual time boots for each run")
    ticking = engines == {"kernel"}
    with Bar(experiment.name, len(todo), ticking=ticking, beginning=beginning) as bar:
        return sweep(
            experiment,
            todo,
            store,
            workers=arguments.scheduler or arguments.jobs,
            about=about,
            watcher=bar,
            again=again,
        )


def skipped(experiment: Experiment, refused: Mapping[str, str]) -> str:
    """Return the line that names the refused cells by their reasons."""
    cells: dict[str, list[str]] = {}
    for name, reason in refused.items():
        cells.setdefault(reason.removeprefix(experiment.name + ": "), []).append(name)
    groups = [f"{several(names, '; ')} ({reason})" for reason, names in cells.items()]
    count = f"{len(refused)} cell{'s' if len(refused) > 1 else ''}"
    return (
        f"{experiment.name}: {count} left out, whose values do not go together: {'; '.join(groups)}"
    )


def several(names: Collection[str], between: str = ", ") -> str:
    """Return the first of `names`, and the number of the others."""
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return between.join(list(names)[:MOST_NAMED]) + more


def print_estimate(
    experiment: Experiment,
    runs: Sequence[Run],
    todo: Collection[Run],
    store: Store,
    arguments: Namespace,
) -> int:
    """Print every run of the sweep, whether it is stored, and the estimated time."""
    estimate_s = estimates(experiment, runs, store)
    rows: list[Row] = [
        {
            **run.parameters,
            "seed": run.seed,
            "engine": run.engine,
            "run": run.id,
            "stored": run not in todo,
            "estimated_s": estimate_s[run],
        }
        for run in runs
    ]
    if arguments.json:
        print(json.dumps(rows, indent=1))
        return 0
    show(rows, list(rows[0]) if rows else [])
    sum_s = total_s({run: estimate_s[run] for run in todo}, arguments.jobs)
    time = "in a time that was never measured"
    if sum_s is not None:
        time = f"in about {duration(sum_s)}"
    stored = len(runs) - len(todo)
    say(f"{len(todo)} of {len(runs)} runs would be measured, {time}; {stored} are stored")
    return 0


def print_rows(
    rows: list[Row], measured: Collection[str], as_json: bool, *, parameters: Collection[str]
) -> None:
    """Print rows as a table or JSON.

    Args:
        rows: at least the rows of the runs in `measured`.
        measured: ids of the runs of this sweep; the table marks them if other rows are older.
        as_json: print JSON.
        parameters: columns that a table keeps however wide they are, if rows differ in them.
    """
    if as_json:
        print(json.dumps(rows, indent=1))
    elif len(rows) == 1:
        show_one(rows[0])
    elif rows:
        names = columns(rows, parameters)
        if 0 < len(measured) < len(rows):
            ages = ["now" if row["run"] in measured else "before" for row in rows]
            rows = [{**row, "measured": age} for row, age in zip(rows, ages, strict=True)]
            names = [*names, "measured"]
        show(rows, names)


def summary(experiment: Experiment, entries: Entries, swept: Swept, store: Store) -> str:
    """Return the counts of new and stored rows, and the commits of the stored ones.

    It names --fresh where code that no commit has, then or now, may differ from that of these rows.
    """
    from weft.experiments.runner.provenance import code

    measured = {run.id for run in swept.measured}
    stored = [about for row, about in entries if row["run"] not in measured]
    commits = [commit(about) for about in stored]
    is_unsure = stored and (code()[1] or any(about.get("dirty") for about in stored))
    advice = "; code is uncommitted: --fresh measures stored rows again" if is_unsure else ""
    parts = [f"{len(measured)} measured now"]
    if commits:
        parts.append(f"{len(commits)} stored before, by {several(dict.fromkeys(commits))}")
    if swept.failures:
        parts.append(f"{len(swept.failures)} failed")
    return f"{experiment.name}: {', '.join(parts)}; rows in {store.path}{advice}"


def commit(provenance: Mapping[str, Any]) -> str:
    """Return the commit of a row, with a + if tracked files differed from it."""
    name = provenance.get("commit")
    if not name:
        return "an installed weft"
    return f"commit {name}{'+' if provenance.get('dirty') else ''}"


def verdict(experiment: Experiment, rows: list[Row], failures: Mapping[Run, RunFailure]) -> int:
    """Return 1 if a run failed or broke an invariant, else 0; print each cause."""
    for run, failure in failures.items():
        say(f"weft: {experiment.name}: {run} failed: {failure.reason}")
    broken = {key: sum(not row.get(key, True) for row in rows) for key in experiment.must_hold}
    for key, count in broken.items():
        if count:
            say(f"weft: {experiment.name}: {key} does not hold in {count} of {len(rows)} runs")
    for text in dict.fromkeys(
        row[definition.DIFFERENCE] for row in rows if row.get(definition.DIFFERENCE)
    ):
        say(f"weft: {experiment.name}: {text}")
    return 1 if failures or any(broken.values()) else 0


def columns(rows: list[Row], parameters: Collection[str]) -> list[str]:
    """Return the columns for a terminal.

    Run ids and distributions are left out, and long texts unless they are of `parameters` in which
    rows differ.
    """
    names = []
    for key in dict.fromkeys(key for row in rows for key in row if key != "run"):
        texts = {cell(row.get(key)) for row in rows}
        varied = key in parameters and len(texts) > 1
        if not varied and max(map(len, texts)) > WIDEST:
            continue
        if not any(isinstance(row.get(key), list) for row in rows):
            names.append(key)
    return names


def no_root(experiment: Experiment) -> str:
    """Return the message for a user without root who selects the kernel engine."""
    others = [engine for engine in experiment.engines if engine != "kernel"]
    instead = f"--engine {others[0]} needs none, and " if others else ""
    uml = f"`weft uml -- weft run {experiment.name}` brings a kernel of its own, and "
    uml += "--clock virtual needs no root (make uml-kernel)"
    return f"{experiment.name}: the kernel engine needs root; {instead}{uml}"
