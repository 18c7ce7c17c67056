"""Catalogue of experiments, networks, schemes, transports, patterns, and options of links.

Experiments are described in full, for `weft describe` and `weft run EXPERIMENT --help`.
"""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from weft.daemons.core import registry
from weft.daemons.core.scheme import Scheme
from weft.experiments.runner import definition
from weft.experiments.runner.console import duration, say
from weft.experiments.runner.definition import Entry, Experiment
from weft.experiments.runner.rows import Column, column_unit, explained, unexplained
from weft.topologies import family, modules
from weft.topologies.core.family import IntegerParameter
from weft.topologies.core.grammar import loaded
from weft.topologies.core.link import MOST_MTU_BYTES, MTU_BYTES

if TYPE_CHECKING:
    Entries = Sequence[Entry]


LINKS = {
    "--queue": IntegerParameter(meaning="packets that wait at a port", least=1, default=250),
    "--trim": IntegerParameter(
        meaning="queued packets above which a switch trims UDP packets of code point 3 to headers, "
        "under schemes of the data plane; 0 for never",
        least=0,
        default=0,
    ),
    "--headers": IntegerParameter(
        meaning="headers that wait at a port that trims", least=1, default=1125
    ),
    "--mtu": IntegerParameter(
        meaning="bytes of the longest packet",
        least=MTU_BYTES,
        most=MOST_MTU_BYTES,
        default=MTU_BYTES,
    ),
}


def catalogue(*kinds: str) -> dict[str, list[dict[str, Any]]]:
    """Return what has a name, JSON-able: for each of `kinds`, all by default, a list of entries.

    Only modules of these kinds are imported.

    links: options of a network's links.
    data_plane: schemes that a running switch fabric can change to; their daemons are ecmp's.
    """
    return {kind: ENTRIES[kind]() for kind in kinds or ENTRIES}


def say_left_out(failures: Iterable[str]) -> None:
    """Name the packages that cannot be loaded."""
    for failure in failures:
        say(f"weft: left out: {failure}")


def _experiments() -> list[dict[str, Any]]:
    say_left_out(definition.failures())
    return [experiment_entry(experiment) for experiment in definition.discover().values()]


def _families() -> list[dict[str, Any]]:
    named, failures = loaded(family, modules())
    say_left_out(failures)
    return [
        {
            "name": entry.name,
            "summary": entry.summary,
            "source": entry.source,
            "example": entry.example,
            "parameters": as_dicts(entry.parameters),
        }
        for entry in named.values()
    ]


def _schemes(*, balancing: bool) -> list[dict[str, Any]]:
    schemes = registry.schemes().values()
    say_left_out(registry.failures() if balancing else ())  # once, of both kinds
    return [as_dict(scheme) for scheme in schemes if only_balances(scheme) == balancing]


def experiment_entry(experiment: Experiment) -> dict[str, Any]:
    """Return the entry of an experiment."""
    parameters = {
        key: {"meaning": parameter.meaning, "unit": parameter.unit, "values": parameter.range}
        for key, (parameter, _) in experiment.axes.items()
    }
    return {
        "name": experiment.name,
        "question": experiment.question,
        "source": experiment.source,
        "engines": list(experiment.engines),
        "sweep": {key: list(values) for key, values in experiment.sweep.items()},
        "parameters": parameters,
        "seeds": experiment.seeds,
        "takes_s": experiment.takes_s,
    }


def only_balances(scheme: Scheme) -> bool:
    """Return True if `scheme` differs from ecmp in its data plane alone."""
    ecmp = registry.find("ecmp")
    return scheme is not ecmp and scheme.machine is ecmp.machine and scheme.selection is not None


def as_dict(scheme: Scheme) -> dict[str, Any]:
    """Return the entry of a scheme."""
    parameters = scheme.parameters
    if scheme.selection and only_balances(scheme):
        parameters = scheme.selection.parameters
    return {
        "name": scheme.name,
        "summary": scheme.summary,
        "source": scheme.source,
        "parameters": as_dicts(parameters),
    }


def as_dicts(parameters: Mapping[str, IntegerParameter]) -> dict[str, dict[str, Any]]:
    """Return the parameters with default and range as users write them."""
    entries = {key: asdict(parameter) for key, parameter in parameters.items()}
    for key, entry in entries.items():
        if entry["words"]:
            entry["default"] = entry["words"][entry["default"]]
        elif parameters[key].decimals:
            for name in ("default", "least", "most"):
                if entry[name] is not None:
                    entry[name] = float(parameters[key].written(entry[name]))
    return entries


def _transports() -> list[dict[str, Any]]:
    from weft.testbed.packets.transport import PARAMETERS, SUMMARIES

    return [
        {"name": name, "summary": summary, "parameters": as_dicts(PARAMETERS[name])}
        for name, summary in SUMMARIES.items()
    ]


def _patterns() -> list[dict[str, Any]]:
    from weft.experiments.engines.workloads import PATTERNS

    return [
        {
            "name": f"{name}:{pattern.parameter}=N" if pattern.parameter else name,
            "summary": pattern.meaning,
        }
        for name, pattern in PATTERNS.items()
    ]


ENTRIES: dict[str, Callable[[], list[dict[str, Any]]]] = {
    "experiments": _experiments,
    "topologies": _families,
    "routing": partial(_schemes, balancing=False),
    "data_plane": partial(_schemes, balancing=True),
    "transports": _transports,
    "patterns": _patterns,
    "links": lambda: [{"name": name, **parameter} for name, parameter in as_dicts(LINKS).items()],
}


WIDTH = 110


class Help(argparse.Action):
    """Option -h: help on the experiment that the command line names, or on the command."""

    def __init__(self, option_strings: Sequence[str], dest: str, **arguments: Any) -> None:
        super().__init__(
            option_strings,
            argparse.SUPPRESS,
            nargs=0,
            default=argparse.SUPPRESS,
            help="show this help and exit; after EXPERIMENT: its parameters, and how long it takes",
        )

    def __call__(
        self, parser: argparse.ArgumentParser, arguments: argparse.Namespace, *_: object
    ) -> NoReturn:
        name = getattr(arguments, "experiment", None)
        print(experiment_help(name, parser.prog) if name else parser.format_help(), end="")
        parser.exit()


def experiment_help(name: str, command: str) -> str:
    """Return the help of the experiment `name`; ValueError if there is none."""
    experiment = definition.find(name)
    lines = [
        (
            f"usage: {command} {name} [--set KEY=VALUE[,VALUE...] ...]   (`{command} --help` "
            f"has the other options)"
        ),
        "",
        *head(experiment),
        f"columns:  `weft describe {name}` explains what comes out",
        "",
        *parameters(experiment),
    ]
    return "\n".join(lines) + "\n"


def described(experiment: Experiment, entries: Entries) -> dict[str, Any]:
    """Return all facts about an experiment and its stored `entries`, JSON-able.

    A column that is stored and not declared has an empty meaning.
    """
    names = dict.fromkeys(key for row, _ in entries for key in row)
    strange = unexplained(names, experiment.columns, experiment.sweep)
    table = [
        *explained(experiment.columns),
        *(Column(name, column_unit(name), "") for name in strange),
    ]
    entry = experiment_entry(experiment)
    defaults = entry.pop("sweep")
    for key, about in entry["parameters"].items():
        about["default"] = defaults[key]
    return {
        **entry,
        "default_runs": len(experiment.default_runs()),
        "columns": [column._asdict() for column in table],
        "must_hold": list(experiment.must_hold),
        "stored": stored(entries),
    }


def stored(entries: Entries) -> dict[str, Any]:
    """Return number, commits (None for an installed weft) and median time of the stored runs."""
    from statistics import median

    took = [float(about["wall_s"]) for _, about in entries if about.get("wall_s") is not None]
    commits = dict.fromkeys(about.get("commit") for _, about in entries)
    return {
        "runs": len(entries),
        "commits": list(commits),
        "median_s": median(took) if took else None,
    }


def description(experiment: Experiment, entries: Entries) -> str:
    """Return the same facts as text."""
    description = described(experiment, entries)
    stored = description["stored"]
    took = "" if stored["median_s"] is None else f", {duration(stored['median_s'])} each (median)"
    lines = [
        *head(experiment),
        f"stored:   {stored['runs']} runs{took}",
        "",
        *parameters(experiment),
        "",
        "columns:",
    ]
    for column in description["columns"]:
        unit = f" ({column['unit']})" if column["unit"] else ""
        meaning = column["meaning"] or "not explained by this version of the experiment"
        lines += hanging(f"{column['name']}{unit}: {meaning}", "  ", "      ")
    if experiment.must_hold:
        lines += [
            "",
            *hanging(
                f"true in every run unless something is broken: {', '.join(experiment.must_hold)}"
            ),
        ]
    return "\n".join(lines) + "\n"


def head(experiment: Experiment) -> Iterator[str]:
    """Yield question, source, engines, and the default sweep with its time."""
    yield from (*hanging(experiment.question), "")
    yield f"source:   {experiment.source}"
    yield f"engines:  {', '.join(experiment.engines)}"
    yield f"default:  {default_sweep(experiment)}"


def parameters(experiment: Experiment) -> Iterator[str]:
    """Yield every parameter with its unit, default and values."""
    yield "parameters:"
    for key, (parameter, defaults) in experiment.axes.items():
        unit = f" ({parameter.unit})" if parameter.unit else ""
        yield from hanging(f"{key}{unit}: {parameter.meaning}", "  ", "      ")
        for label, text in (
            ("default", ", ".join(map(str, defaults))),
            ("values", parameter.range),
        ):
            yield from hanging(text, f"      {label + ':':<9}", " " * 15)


def hanging(text: str, first: str = "", later: str = "") -> list[str]:
    """Return `text` in lines of a terminal's width, whose words stay whole."""
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=first,
        subsequent_indent=later,
        break_long_words=False,
        break_on_hyphens=False,
    )


def default_sweep(experiment: Experiment) -> str:
    """Return size and time of the default sweep as text."""
    runs = experiment.default_runs()
    seeds = f"{experiment.seeds} seed{'s' if experiment.seeds > 1 else ''}"
    size = (
        f"{len(runs)} runs ({len(runs) // experiment.seeds} cells, {seeds} each) on the "
        f"{runs[0].engine} engine"
    )
    took = "their time was not measured"
    if experiment.takes_s is not None:
        took = f"about {duration(experiment.takes_s)} on two cores"
    return f"{size}; {took}"
