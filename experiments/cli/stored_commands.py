"""Commands on stored results: describe, plot, export, report and compare."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from weft.experiments.cli import catalogue
from weft.experiments.cli.options import (
    Commands,
    add_command,
    add_flag,
    add_json,
    add_output,
    add_results,
)
from weft.experiments.cli.run_commands import add_experiment_options, several
from weft.experiments.runner import definition
from weft.experiments.runner.console import say, show, stages
from weft.experiments.runner.definition import Entry, Experiment, Row, split
from weft.experiments.runner.rows import encode
from weft.testbed.runs.private_files import owned_by_caller, require_writable, write_whole
from weft.topologies.core.grammar import unknown

if TYPE_CHECKING:
    from weft.experiments.report.comparison import Ratio
    from weft.experiments.report.published import PublishedSet

    Entries = list[Entry]
    Table = list[Row]


def add_commands(commands: Commands) -> None:
    """Add this file's commands to the parser."""
    parser = add_command(
        commands,
        "describe",
        describe,
        "explain an experiment: parameters, columns with units, stored runs, time",
    )
    parser.add_argument(
        "experiment", metavar="EXPERIMENT", help="experiment; `weft list` lists them"
    )
    add_results(parser)
    add_json(parser)

    parser = add_command(
        commands,
        "plot",
        plot,
        "draw the stored runs of an experiment, or every figure",
        add_help=False,
    )
    add_experiment_options(parser, "draw only these values", optional=True)
    add_output(parser, ".png, .pdf or .svg; for every experiment a folder (--results)")
    add_flag(parser, "--json", help="print the names of the files as JSON")
    _add_clock(parser)

    parser = add_command(
        commands,
        "export",
        export,
        "write the stored runs of an experiment for other tools",
        add_help=False,
    )
    add_experiment_options(parser, "write only these values")
    formats = ("csv", "json", "parquet")
    parser.add_argument("--format", choices=formats, default="csv", help="format; default: csv")
    add_output(parser, "write this file; default: standard output")
    add_flag(parser, "--provenance", help="add code, machine and read-back to each row; JSON only")
    _add_clock(parser)

    parser = add_command(
        commands, "report", report, "write a page on all stored runs: figures, numbers, commands"
    )
    add_results(parser)
    add_output(parser, "write this HTML file; default: report.html beside the results")
    add_flag(parser, "--json", help="print the names of the files as JSON")
    _add_compare(commands)


def _add_clock(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--clock", choices=("real", "virtual"), help="select runs on the kernel by their clock"
    )


def describe(arguments: Namespace) -> int:
    """Print all facts about an experiment."""
    from weft.experiments.report.published import results_in

    experiment = definition.find(arguments.experiment)
    entries = results_in(Path(arguments.results)).table(experiment)
    if arguments.json:
        facts = catalogue.described(experiment, entries)
        print(json.dumps(facts, indent=1, ensure_ascii=False))
    else:
        print(catalogue.description(experiment, entries), end="")
    return 0


def stored(name: str, arguments: Namespace) -> tuple[Experiment, Entries]:
    """Return the experiment `name` and its selected (row, provenance) pairs.

    Raises:
        ValueError: no run is selected.
    """
    from weft.experiments.report.published import results_in

    store = results_in(Path(arguments.results))
    try:
        experiment = definition.find(name)
    except ValueError:
        if name in definition.names() or name not in store.experiments():
            raise
        raise ValueError(
            f"{name}: {arguments.results} has its runs, but no package of {sys.prefix} has the "
            "experiment; install its package again"
        ) from None
    selection = experiment.values(definition.assignments(arguments.set))
    clock = arguments.clock
    clocks = (None, clock) if clock else (None, *definition.CLOCKS)
    entries = []
    for row, about in store.table(experiment):
        selected = all(row[key] in values for key, values in selection.items())
        if selected and row.get("clock") in clocks:
            entries.append((row, about))
    if not entries:
        under = f" under the {clock} clock" if clock else ""
        command = f"weft run {name}" + (f" --clock {clock}" if clock else "")
        raise ValueError(
            f"nothing of {name}{under} is stored in {arguments.results}; {command} measures it"
        )
    return experiment, entries


def plot(arguments: Namespace) -> int:
    """Draw the stored runs of an experiment, or of every experiment."""
    name = arguments.experiment
    if not name:
        return print_paths(plot_each(arguments), as_json=arguments.json)
    experiment, entries = stored(name, arguments)
    output = Path(arguments.output or f"{arguments.results}/{name}.png")
    return print_paths(draw(experiment, entries, output), as_json=arguments.json)


def print_paths(paths: Iterable[Path], *, as_json: bool) -> int:
    """Print each of `paths` once it is written, or all as JSON."""
    if as_json:
        print(json.dumps([str(path) for path in paths]))
        return 0
    for path in paths:
        print(path)
    return 0


def plot_each(arguments: Namespace) -> Iterator[Path]:
    """Draw every stored experiment, or the pages' figures of the published set, into --output."""
    from weft.experiments.report.figures import FORMATS
    from weft.experiments.report.published import PublishedSet, results_in

    folder = Path(arguments.output or arguments.results)
    if arguments.set or folder.suffix in FORMATS:
        raise ValueError("without EXPERIMENT, -o names a folder and --set is not allowed")
    store = results_in(Path(arguments.results))
    with owned_by_caller(folder):
        folder.mkdir(parents=True, exist_ok=True)
    if isinstance(store, PublishedSet):
        yield from draw_page_figures(store, folder)
        return
    names = store.experiments()
    if not names:
        raise ValueError(f"nothing is stored in {arguments.results}; weft run measures")
    for name in names:
        try:
            experiment, entries = stored(name, arguments)
        except ValueError as error:  # of a former experiment, or of a former version
            say(f"weft: {name} is not drawn: {error}")
        else:
            yield from draw(experiment, entries, folder / f"{name}.png")


def draw_page_figures(published: PublishedSet, folder: Path) -> Iterator[Path]:
    """Draw the figures of the pages into `folder`; yield their paths."""
    from weft.experiments.report.published import page_figures

    for figure in page_figures():
        with owned_by_caller(folder / f"{figure.name}.png"):
            path = figure.draw(published, folder)
        if path:
            yield path
        else:
            say(f"weft: {figure.name} is not drawn: {figure.experiment} has no such row")


def draw(experiment: Experiment, entries: Entries, output: Path) -> Iterator[Path]:
    """Draw one figure for each clock, and yield its path.

    The name of a further clock is added to the file's name.
    """
    from weft.experiments.report import figures

    for number, (clock, of_clock) in enumerate(figures.by_clock(entries).items()):
        path = output.with_name(f"{output.stem}.{clock}{output.suffix}") if number else output
        with stages("drawing", f"plot {experiment.name}"), owned_by_caller(path):
            figures.plot(experiment, of_clock, path)
        yield path


def export(arguments: Namespace) -> int:
    """Write the stored rows of an experiment."""
    if arguments.provenance and arguments.format != "json":
        raise ValueError(f"--provenance needs --format json, not {arguments.format}")
    if arguments.format == "parquet" and not arguments.output:
        raise ValueError("--format parquet needs -o FILE: Parquet is binary")
    _, entries = stored(arguments.experiment, arguments)
    rows = [row | {"provenance": about} if arguments.provenance else row for row, about in entries]
    content = encode(rows, arguments.format)
    if not arguments.output:
        sys.stdout.write(content.decode())
        return 0
    write_whole(Path(arguments.output), content)
    return 0


def report(arguments: Namespace) -> int:
    """Write a page on every stored experiment."""
    from weft.experiments.report.published import results_in
    from weft.experiments.report.report import machines, page

    output = Path(arguments.output or f"{arguments.results}/report.html")
    store = results_in(Path(arguments.results))
    names = store.experiments()
    if names:
        require_writable(output)
    tables = []
    for name in names:
        try:
            experiment = definition.find(name)
        except ValueError as error:  # a former experiment
            say(f"weft: {name} is left out: {error}")
        else:
            if entries := store.table(experiment):
                tables.append((experiment, entries))
    if not tables:
        raise ValueError(f"nothing is stored in {arguments.results}; weft run measures")
    text = page(tables, machines(tables), store.rows, store.size())
    write_whole(output, text.encode())
    return print_paths([output], as_json=arguments.json)


def _add_compare(commands: Commands) -> None:
    parser = add_command(
        commands,
        "compare",
        compare,
        "print ratios of stored figures: two values of a parameter, or two folders of results",
        add_help=False,
    )
    add_experiment_options(parser, "compare only these values")
    parser.add_argument(
        "a",
        metavar="A",
        help="KEY=VALUE of a parameter, of engine, clock or seed; or a folder of results",
    )
    parser.add_argument("b", metavar="B", help="like A; ratios are B over A")
    parser.add_argument(
        "--columns", metavar="KEY[,KEY...]", default="", help="compare only these columns"
    )
    parser.add_argument(
        "--by",
        metavar="KEY[,KEY...]",
        default="",
        help="print ratios for each value of these columns",
    )
    add_json(parser)
    add_output(parser, "draw the ratios: .png, .pdf or .svg")


def compare(arguments: Namespace) -> int:
    """Print the ratio of each figure, and draw them with --output."""
    from weft.experiments.report import comparison

    experiment = definition.find(arguments.experiment)
    a, fixed_a = side(experiment, arguments.a, arguments)
    b, fixed_b = side(experiment, arguments.b, arguments)
    by = columns(experiment, arguments.by)
    pairs = comparison.pairs(experiment, a, b, {*fixed_a, *fixed_b})
    if not pairs:
        counts = f"{len(a)} runs of {arguments.a} and {len(b)} of {arguments.b}"
        raise ValueError(f"{experiment.name}: {counts}, none of which agree in the rest")
    ratios = comparison.ratios(pairs, figure_names(experiment, arguments.columns, pairs), by)
    rows = [ratio.row() for ratio in ratios]
    if arguments.json:
        print(json.dumps(rows, indent=1))
    elif rows:
        show(rows)
    sides = f"A is {arguments.a}, B is {arguments.b}"
    say(f"{experiment.name}: {len(pairs)} pairs of runs; {sides}")
    if arguments.output and ratios:
        draw_ratios(ratios, (arguments.a, arguments.b), arguments.output)
    return 0


def draw_ratios(ratios: list[Ratio], sides: tuple[str, str], output: str) -> None:
    """Draw `ratios` into the file `output`, and print its name."""
    from weft.experiments.report import comparison, figures

    with owned_by_caller(Path(output)), figures.new() as figure:
        comparison.draw(ratios, sides, figure)
        figures.save(figure, output)
    print(output)


def side(experiment: Experiment, text: str, arguments: Namespace) -> tuple[Table, dict[str, str]]:
    """Return the rows of a side, and the column that selects them, by name.

    Raises:
        ValueError: no stored row matches.
    """
    from weft.experiments.report.published import results_in

    root = Path(arguments.results)
    fixed: dict[str, str] = {}
    if "=" in text:
        key, _, value = text.partition("=")
        fixed[key] = value
    elif Path(text).is_dir():
        root = Path(text)
    else:
        raise ValueError(f"{text!r}: neither KEY=VALUE nor a folder of results")
    rows = [row for row, _ in results_in(root).table(experiment)]
    selection = {
        key: values(experiment, rows, key, value)
        for key, value in (definition.assignments(arguments.set) | fixed).items()
    }
    selected = [
        row for row in rows if all(str(row.get(key)) in texts for key, texts in selection.items())
    ]
    if not selected:
        stored = {str(row[key]): None for row in rows for key in fixed if key in row}
        others = f"; stored are {several(stored)}" if stored else ""
        raise ValueError(f"nothing of {experiment.name} with {text} is stored in {root}{others}")
    return selected, fixed


def values(experiment: Experiment, rows: Table, key: str, text: str) -> set[str]:
    """Return the values that `text` lists, as rows spell them.

    A stored value needs no check: a scheme may belong to a package that is no longer installed.
    """
    from weft.experiments.report.comparison import IDENTITY

    texts = set(split(text))
    if key in IDENTITY or texts <= {str(row.get(key)) for row in rows}:
        return texts
    return {str(value) for value in experiment.values({key: text})[key]}


def columns(experiment: Experiment, text: str) -> list[str]:
    """Return the parameters that `text` lists; ValueError for an unknown one."""
    names = text.split(",") if text else []
    for name in names:
        if name not in experiment.sweep:
            raise ValueError(f"{experiment.name}: " + unknown("parameter", name, experiment.sweep))
    return names


def figure_names(experiment: Experiment, text: str, pairs: list[tuple[Row, Row]]) -> list[str]:
    """Return the figures that `text` lists, by default all numeric ones.

    ValueError for an unknown one.
    """
    from weft.experiments.report.comparison import figures_of

    numeric = figures_of(experiment, [row for pair in pairs for row in pair])
    names = text.split(",") if text else numeric
    for name in names:
        if name not in numeric:
            raise ValueError(f"{experiment.name}: " + unknown("figure", name, numeric))
    return names
