"""The command compare: two sides of what is stored of an experiment, as ratios with intervals."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.experiments.cli.run_commands import several, shared

if TYPE_CHECKING:
    from weft.experiments.runner.definition import Experiment, Row

    Table = list[Row]


def add_commands(commands: Any) -> None:
    """Add compare."""
    text = "ratios of what is stored: two values of a parameter, or two folders of results"
    add = commands.add_parser("compare", help=text, add_help=False)
    shared(add, "compare only these")
    side = (
        "KEY=VALUE of a parameter, of engine, clock or seed; or a folder of results, of "
        "another commit or kernel"
    )
    add.add_argument("a", metavar="A", help=side)
    add.add_argument("b", metavar="B", help="the same; what is printed is B relative to A")
    add.add_argument("--figure", metavar="NAME[,NAME...]", default="", help="only these columns")
    add.add_argument(
        "--by", metavar="KEY[,KEY...]", default="", help="ratios for each value of these columns"
    )
    add.add_argument("--json", action="store_true", help="print the ratios as JSON")
    add.add_argument("-o", "--output", metavar="FILE", help="draw them too: .png, .pdf or .svg")
    add.set_defaults(action=compare)


def compare(given: argparse.Namespace) -> int:
    """Print, and draw if asked, the ratio of each figure."""
    from weft.experiments.report import comparison, figures
    from weft.experiments.runner import definition
    from weft.experiments.runner.console import say, show
    from weft.experiments.runner.ownership import owned_by_caller

    experiment = definition.find(given.experiment)
    (a, fixed_a), (b, fixed_b) = (side(experiment, text, given) for text in (given.a, given.b))
    differing = {*fixed_a, *fixed_b}
    by = columns(experiment, given.by)
    paired = comparison.pairs(experiment, a, b, differing)
    if not paired:
        raise ValueError(
            f"{experiment.name}: {len(a)} runs of {given.a} and {len(b)} of {given.b}, none "
            f"of which agree in the rest"
        )
    found = comparison.ratios(paired, chosen(experiment, given.figure, paired), by)
    if given.json:
        print(json.dumps([one.row() for one in found], indent=1))
    elif found:
        rows = [one.row() for one in found]
        show(rows, list(rows[0]))
    say(f"{experiment.name}: {len(paired)} pairs of runs; A is {given.a}, B is {given.b}")
    if given.output and found:
        with owned_by_caller(Path(given.output)), figures.new() as figure:
            comparison.draw(found, (given.a, given.b), figure)
            figures.save(figure, given.output)
        print(given.output)
    return 0


def side(
    experiment: Experiment, text: str, given: argparse.Namespace
) -> tuple[Table, dict[str, str]]:
    """Return the rows of one side, and the columns that chose them; raise ValueError if there are
    none."""
    from weft.experiments.runner import definition
    from weft.experiments.runner.results import Store

    wanted = definition.assignments(given.set)
    root, fixed = Path(given.results), {}
    if "=" in text:
        key, _, value = text.partition("=")
        fixed = {key: value}
    elif Path(text).is_dir():
        root = Path(text)
    else:
        raise ValueError(f"{text!r}: neither KEY=VALUE nor a folder of results")
    rows = [row for row, _ in Store(root).table(experiment)]
    only = {key: values(experiment, rows, key, value) for key, value in (wanted | fixed).items()}
    chosen_rows = [
        row for row in rows if all(str(row.get(key)) in texts for key, texts in only.items())
    ]
    if not chosen_rows:
        there = {str(row[key]): None for row in rows for key in fixed if key in row}
        instead = f"; stored are {several(there)}" if there else ""
        raise ValueError(f"nothing of {experiment.name} with {text} is stored in {root}{instead}")
    return chosen_rows, fixed


def values(experiment: Experiment, rows: Table, key: str, text: str) -> set[str]:
    """Return the values that `text` lists, as rows have them.

    A value that is stored needs no check: what it names may be gone, such as a package with a
    scheme.
    """
    from weft.experiments.report.comparison import IDENTITY
    from weft.experiments.runner.definition import split

    texts = set(split(text))
    if key in IDENTITY or texts <= {str(row.get(key)) for row in rows}:
        return texts
    return {str(value) for value in experiment.values({key: text})[key]}


def columns(experiment: Experiment, text: str) -> list[str]:
    """The parameters that `text` lists; ValueError for one that there is not."""
    from weft.topologies.core.grammar import unknown

    found = text.split(",") if text else []
    for name in found:
        if name not in experiment.sweep:
            raise ValueError(f"{experiment.name}: " + unknown("parameter", name, experiment.sweep))
    return found


def chosen(experiment: Experiment, text: str, paired: list[tuple[Row, Row]]) -> list[str]:
    """The figures that `text` lists, or all that are numbers; ValueError for one that there is
    not."""
    from weft.experiments.report.comparison import figures_of
    from weft.topologies.core.grammar import unknown

    there = figures_of(experiment, [row for pair in paired for row in pair])
    wanted = text.split(",") if text else there
    for name in wanted:
        if name not in there:
            raise ValueError(f"{experiment.name}: " + unknown("figure", name, there))
    return wanted
