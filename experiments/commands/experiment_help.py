"""What `weft run EXPERIMENT --help` prints: the question, the default sweep, and every parameter."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from weft.experiments.runner.definition import Experiment

WIDTH = 110


class Help(argparse.Action):
    """-h and --help: of the experiment that was named before it, or else of the command."""

    def __init__(self, option_strings: Sequence[str], dest: str, **given: Any) -> None:
        text = "show this help and exit; after EXPERIMENT: its parameters, and how long it takes"
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, default=argparse.SUPPRESS, help=text)

    def __call__(self, parser: argparse.ArgumentParser, given: argparse.Namespace, *_: object) -> NoReturn:
        name = getattr(given, "experiment", None)
        print(experiment_help(name, parser.prog) if name else parser.format_help(), end="")
        parser.exit()


def experiment_help(name: str, command: str) -> str:
    """The help of the experiment called `name`; ValueError if there is none."""
    from weft.experiments.runner.definition import find

    experiment = find(name)
    lines = [
        f"usage: {command} {name} [--set KEY=VALUE[,VALUE...] ...]   (`{command} --help` has the other options)",
        "",
        *textwrap.wrap(experiment.question, WIDTH),
        "",
        f"source:   {experiment.source}",
        f"engines:  {', '.join(experiment.engines)}",
        f"default:  {default_sweep(experiment)}",
        "",
        "parameters:",
    ]
    for key, parameter in experiment.parameters.items():
        unit = f" ({parameter.unit})" if parameter.unit else ""
        lines.append(f"  {key}{unit}: {parameter.meaning}")
        values = ", ".join(map(str, experiment.sweep[key]))
        for what, text in (("default", values), ("values", parameter.range)):
            lines += textwrap.wrap(
                text,
                WIDTH,
                initial_indent=f"      {what + ':':<9}",
                subsequent_indent=" " * 15,
                break_long_words=False,
                break_on_hyphens=False,
            )
    return "\n".join(lines) + "\n"


def default_sweep(experiment: Experiment) -> str:
    """How large the default sweep is, and how long it takes."""
    from weft.experiments.runner.console import duration

    runs = experiment.runs()
    seeds = f"{experiment.seeds} seed{'s' if experiment.seeds > 1 else ''}"
    size = f"{len(runs)} runs ({len(runs) // experiment.seeds} cells, {seeds} each) on the {runs[0].engine} engine"
    took = "nobody has measured how long they take"
    if experiment.takes_s is not None:
        took = f"about {duration(experiment.takes_s)} on two cores"
    return f"{size}; {took}"
