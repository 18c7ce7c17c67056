"""The command completion, and what a shell is told when somebody presses Tab: argcomplete's work,
with our names.

argcomplete asks the parser for commands and options; what stands in the place of an argument, its
name tells.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any

Completer = Callable[..., Iterable[str]]
SHELLS = ("bash", "zsh", "fish")
HOW = {
    "bash": 'eval "$(weft completion bash)" in ~/.bashrc',
    "zsh": 'eval "$(weft completion zsh)" in ~/.zshrc, behind compinit',
    "fish": "weft completion fish > ~/.config/fish/completions/weft.fish",
}


def add_commands(commands: Any) -> None:
    """Add completion."""
    text = (
        "what a shell must read so that Tab completes commands, options, experiments, "
        "networks and schemes"
    )
    add = commands.add_parser(
        "completion", help=text, description=f"Print {text}.", epilog="; ".join(HOW.values())
    )
    add.add_argument("shell", choices=SHELLS, help="which shell is asked for")
    add.set_defaults(action=completion)


def completion(given: argparse.Namespace) -> int:
    """Print the code."""
    from argcomplete.shell_integration import shellcode

    print(shellcode(["weft"], shell=given.shell), end="")
    return 0


def complete(parser: argparse.ArgumentParser) -> None:
    """Answer the shell that asks, and exit."""
    import argcomplete

    prepare(parser)
    argcomplete.autocomplete(parser)


def prepare(parser: argparse.ArgumentParser) -> None:
    """Say of every argument of `parser` and of its commands what may stand there."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                prepare(command)
        elif chosen := completer(action):
            action.completer = chosen  # type: ignore[attr-defined]


def completer(action: argparse.Action) -> Completer | None:
    """What finds the values of `action`; None for those of which argcomplete knows enough, such as
    files."""
    known: dict[str, Completer] = {
        "experiment": experiments,
        "topology": topologies,
        "routing": schemes,
        "scheme": schemes,
        "run": live_runs,
        "set": assignments,
    }
    return known.get(action.dest)


def experiments(**_: Any) -> list[str]:
    """Names of experiments."""
    from weft.experiments.runner import definition

    return definition.names()


def topologies(**_: Any) -> list[str]:
    """An example of every family of networks."""
    from weft.topologies import families

    return [family.example for family in families().values()]


def schemes(**_: Any) -> list[str]:
    """Names of routing schemes."""
    from weft.daemons.core import registry

    return list(registry.schemes())


def assignments(
    prefix: str = "", parsed_args: argparse.Namespace | None = None, **_: Any
) -> Iterator[str]:
    """KEY= for each parameter of the experiment that was named before, and behind one the values of
    its sweep."""
    from weft.experiments.runner import definition

    with suppress(ValueError):  # there is no such experiment
        sweep = definition.find(str(getattr(parsed_args, "experiment", ""))).sweep
        key, equals, _value = prefix.partition("=")
        if equals:
            yield from (f"{key}={value}" for value in sweep.get(key, ()))
        else:
            yield from (f"{name}=" for name in sweep)


def live_runs(**_: Any) -> list[str]:
    """Networks that are up, as far as one may know."""
    from weft.testbed.runs import run

    with suppress(ValueError, OSError):
        return [one.id for one in run.runs() if one.alive()]
    return []
