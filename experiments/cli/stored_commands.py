"""The commands about what is stored of experiments: describe, plot, export and report."""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import TYPE_CHECKING, Any

from weft.experiments.cli.run_commands import RESULTS, WHERE, shared

if TYPE_CHECKING:
    from pathlib import Path

    from weft.experiments.runner.definition import Experiment, Row

    Entries = list[tuple[Row, dict[str, Any]]]


def add_commands(commands: Any) -> None:
    """Add describe, plot, export and report."""
    text = (
        "an experiment: its parameters, its columns with units, what is stored of it, "
        "how long it takes"
    )
    add = commands.add_parser("describe", help=text)
    add.add_argument("experiment", metavar="EXPERIMENT", help="`weft list` has them")
    add.add_argument(
        "--results", metavar="DIR", default=os.environ.get(RESULTS) or "results", help=WHERE
    )
    add.add_argument("--json", action="store_true", help="print JSON")
    add.set_defaults(action=describe)

    add = commands.add_parser(
        "plot", help="draw what is stored of an experiment, or of each", add_help=False
    )
    shared(add, "draw only these", optional=True)
    add.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help=".png, .pdf or .svg; of each, a directory (that of the results)",
    )
    _choose_clock(add)
    add.set_defaults(action=plot)

    add = commands.add_parser(
        "export", help="write what is stored of an experiment for other tools", add_help=False
    )
    shared(add, "write only these")
    add.add_argument(
        "--format",
        choices=("csv", "json", "parquet"),
        default="csv",
        help="csv, json or parquet (csv)",
    )
    add.add_argument("-o", "--output", metavar="FILE", help="a file (standard output)")
    with_it = (
        "with each row what it was measured with: the code, the machine, what was "
        "read back; JSON only"
    )
    add.add_argument("--provenance", action="store_true", help=with_it)
    _choose_clock(add)
    add.set_defaults(action=export)

    add = commands.add_parser(
        "report", help="one page about everything that is stored: figures, numbers, commands"
    )
    add.add_argument(
        "--results", metavar="DIR", default=os.environ.get(RESULTS) or "results", help=WHERE
    )
    add.add_argument(
        "-o", "--output", metavar="FILE", help="an HTML file (report.html beside the results)"
    )
    add.set_defaults(action=report)


def describe(given: argparse.Namespace) -> int:
    """Say all there is to know of an experiment."""
    from pathlib import Path

    from weft.experiments.cli import experiment_description
    from weft.experiments.runner import definition
    from weft.experiments.runner.results import Store

    experiment = definition.find(given.experiment)
    entries = Store(Path(given.results)).table(experiment)
    if given.json:
        print(
            json.dumps(
                experiment_description.described(experiment, entries), indent=1, ensure_ascii=False
            )
        )
    else:
        print(experiment_description.description(experiment, entries), end="")
    return 0


def _choose_clock(add: argparse.ArgumentParser) -> None:
    text = "only what was measured under this clock, of the runs on the kernel"
    add.add_argument("--clock", choices=("real", "virtual"), help=text)


def stored(given: argparse.Namespace) -> tuple[Experiment, Entries]:
    """The experiment that is asked for, and its rows with their provenance; ValueError if it has
    none."""
    from pathlib import Path

    from weft.experiments.runner import definition
    from weft.experiments.runner.results import Store

    experiment = definition.find(given.experiment)
    chosen = experiment.values(definition.assignments(given.set))
    table = Store(Path(given.results)).table(experiment)
    clocks = (None, given.clock) if given.clock else (None, *definition.CLOCKS)
    entries = [
        (row, about)
        for row, about in table
        if row.get("clock") in clocks and all(row[key] in values for key, values in chosen.items())
    ]
    if not entries:
        clock, asked = (
            (f" under the {given.clock} clock", f" --clock {given.clock}")
            if given.clock
            else ("", "")
        )
        raise ValueError(
            f"nothing of {experiment.name}{clock} is stored in {given.results}; weft run "
            f"{experiment.name}{asked} "
            "measures it"
        )
    return experiment, entries


def plot(given: argparse.Namespace) -> int:
    """Draw what is stored of an experiment, or of each that has something."""
    from pathlib import Path

    if given.experiment:
        _, entries = stored(given)
        draw(
            given.experiment,
            entries,
            Path(given.output or f"{given.results}/{given.experiment}.png"),
        )
        return 0
    return plot_each(given)


def plot_each(given: argparse.Namespace) -> int:
    """Draw every experiment that is stored, into the directory `output`."""
    from pathlib import Path

    from weft.experiments.report.figures import FORMATS
    from weft.experiments.runner.console import say
    from weft.experiments.runner.results import Store

    folder = Path(given.output or given.results)
    if given.set or folder.suffix in FORMATS:
        raise ValueError(
            "without EXPERIMENT every one is drawn: -o DIR says where, and --set has no meaning"
        )
    names = Store(Path(given.results)).experiments()
    if not names:
        raise ValueError(f"nothing is stored in {given.results}; weft run measures")
    for name in names:
        given.experiment = name
        try:
            _, entries = stored(given)
        except ValueError as error:  # of an experiment, or a version of it, that there was once
            say(f"weft: {name} is not drawn: {error}")
        else:
            draw(name, entries, folder / f"{name}.png")
    return 0


def draw(name: str, entries: Entries, output: Path) -> None:
    """A figure of the rows of the experiment called `name`; where they are of several clocks, one
    of each, in files that carry the clock's name unless it is the first, the real one."""
    from weft.experiments.report import figures
    from weft.experiments.runner import definition
    from weft.experiments.runner.ownership import owned_by_caller

    for number, (clock, of_clock) in enumerate(figures.by_clock(entries).items()):
        path = output.with_name(f"{output.stem}.{clock}{output.suffix}") if number else output
        with owned_by_caller(path):
            figures.plot(definition.find(name), of_clock, path)
        print(path)


def export(given: argparse.Namespace) -> int:
    """Write what is stored of an experiment."""
    from pathlib import Path

    from weft.experiments.runner.export import written
    from weft.experiments.runner.ownership import owned_by_caller

    if given.provenance and given.format != "json":
        raise ValueError(f"--provenance goes with --format json, not {given.format}")
    if given.format == "parquet" and not given.output:
        raise ValueError("Parquet is binary: -o FILE says where it goes")
    _, entries = stored(given)
    rows = [{**row, "provenance": about} if given.provenance else row for row, about in entries]
    content = written(rows, given.format)
    if not given.output:
        sys.stdout.write(content.decode())
        return 0
    with owned_by_caller(Path(given.output)):
        Path(given.output).write_bytes(content)
    return 0


def report(given: argparse.Namespace) -> int:
    """Write a page about every experiment that has something stored."""
    from pathlib import Path

    from weft.experiments.report.report import machines, page
    from weft.experiments.runner import definition
    from weft.experiments.runner.console import say
    from weft.experiments.runner.ownership import owned_by_caller
    from weft.experiments.runner.results import Store

    store = Store(Path(given.results))
    found = []
    for name in store.experiments():
        try:
            experiment = definition.find(name)
        except ValueError as error:  # an experiment that there was once
            say(f"weft: {name} is left out: {error}")
        else:
            found += [(experiment, entries)] if (entries := store.table(experiment)) else []
    if not found:
        raise ValueError(f"nothing is stored in {given.results}; weft run measures")
    output = Path(given.output or f"{given.results}/report.html")
    with owned_by_caller(output):
        output.write_text(page(found, machines(found), store.path.stat().st_size), encoding="utf-8")
    print(output)
    return 0
