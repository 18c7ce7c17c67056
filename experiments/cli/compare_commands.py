"""The command compare: stored runs of two sides, as ratios with confidence intervals."""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from weft.experiments.cli.options import Commands, add_command, add_json, add_output
from weft.experiments.cli.run_commands import add_experiment_options, several
from weft.experiments.runner import definition
from weft.experiments.runner.console import say, show
from weft.experiments.runner.definition import Experiment, Row, split
from weft.experiments.runner.ownership import owned_by_caller
from weft.topologies.core.grammar import unknown

if TYPE_CHECKING:
    from weft.experiments.report.comparison import Ratio

    Table = list[Row]


def add_commands(commands: Commands) -> None:
    """Add compare."""
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
        draw(ratios, (arguments.a, arguments.b), arguments.output)
    return 0


def draw(ratios: list[Ratio], sides: tuple[str, str], output: str) -> None:
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
