"""All options of all commands: one name, one meaning, one way to write it."""

from __future__ import annotations

import argparse
from collections import defaultdict

import pytest

from weft.experiments.cli import cli
from weft.experiments.runner import definition

# Commands whose output is that of another program, a stream or a file, or that print nothing.
WITHOUT_JSON = {
    "agent": "starts by itself, for its controller",
    "capture": "its result is files",
    "completion": "prints shell code",
    "daemon": "prints the log of a daemon until it is stopped",
    "degrade": "prints nothing",
    "down": "prints nothing",
    "events": "prints JSON always",
    "exec": "prints what the command prints",
    "export": "has --format json",
    "fail": "prints the time",
    "impair": "prints nothing",
    "machines": "prints what the command prints",
    "mn": "prints what the script prints",
    "mpirun": "prints what the program prints",
    "new": "prints what to do with the files",
    "rekey": "prints nothing",
    "restart": "prints nothing",
    "restore": "prints nothing",
    "save": "prints a file for weft up",
    "scheme": "prints nothing",
    "uml": "prints what the command prints",
    "view": "serves a page",
}
# Options whose values are written in two ways, because one command takes more.
TWO_FORMS = {
    "--fail": "of a simulation it has a time",
    "--machines": "place takes a number, too",
    "--output": "a folder for capture",
    "--run": "agent has a part of a run",
}


def commands():
    """Return the parser of each command, by name."""
    top = cli.parser()
    (action,) = (
        action for action in top._actions if isinstance(action, argparse._SubParsersAction)
    )
    return action.choices


def options():
    """Return the options, with their commands, by their long name."""
    by_name = defaultdict(list)
    for command, parser in commands().items():
        for action in parser._actions:
            if action.option_strings:
                by_name[action.option_strings[-1]].append((command, action))
    return by_name


@pytest.mark.parametrize("name", commands())
def test_a_command_prints_json_or_has_a_reason_not_to(name):
    has_json = "--json" in commands()[name]._option_string_actions
    assert has_json != (name in WITHOUT_JSON)


@pytest.mark.parametrize("name", options())
def test_an_option_is_written_alike_everywhere(name):
    uses = options()[name]
    names = {tuple(action.option_strings) for _, action in uses}
    assert len(names) == 1, "one of the commands lacks its short name"
    forms = {(action.nargs, action.metavar) for _, action in uses}
    assert (len(forms) > 1) == (name in TWO_FORMS)


@pytest.mark.parametrize("name", commands())
def test_a_help_text_says_what_a_default_is_in_the_same_words(name):
    for action in commands()[name]._actions:
        text = action.help or ""
        if "default" in text and "(the default)" not in text:
            assert "default: " in text
        has_default = action.default not in (None, "", 0, False, argparse.SUPPRESS, float("inf"))
        if action.option_strings and has_default and action.default != []:
            assert "default: " in text or action.dest == "jobs", action.option_strings


@pytest.mark.parametrize("name", commands())
def test_help_texts_begin_in_one_column(name):
    if name == "mn":  # its help is Mininet's
        return
    lines = commands()[name].format_help().splitlines()
    entries = [line for line in lines if line.startswith("  -")]
    assert entries
    for line in entries:
        words, text = line[: cli.HELP_COLUMN], line[cli.HELP_COLUMN :]
        assert not text or words.endswith("  ") or "  " not in line.strip()


def test_positional_arguments_are_in_capitals():
    for name, parser in commands().items():
        for action in parser._actions:
            if not action.option_strings and not action.choices:
                shown = parser._get_formatter()._format_args(
                    action, action.dest.upper() if action.metavar is None else action.metavar
                )
                usage = " ".join(parser.format_usage().split())
                assert shown.upper() in usage or parser.usage, (name, usage)


def test_questions_are_those_of_the_experiments():
    """Which are read from the source, without an import."""
    questions = {name: experiment.question for name, experiment in definition.discover().items()}
    assert definition.questions() == questions
