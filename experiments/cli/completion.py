"""The command completion, and completions for a shell, by argcomplete.

argcomplete reads commands and options from the parser; an argument's name selects its completer.
"""

from __future__ import annotations

from argparse import Action, ArgumentParser, Namespace, _SubParsersAction
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from weft.daemons.core import registry
from weft.experiments.cli.options import Commands, add_command
from weft.experiments.runner import definition
from weft.testbed.runs import run
from weft.topologies import build, families, modules

if TYPE_CHECKING:
    from weft.topologies.core.topology import Topology

Completer = Callable[..., Iterable[str]]
SHELLS = ("bash", "zsh", "fish")
HOW = {
    "bash": 'eval "$(weft completion bash)" in ~/.bashrc',
    "zsh": 'eval "$(weft completion zsh)" in ~/.zshrc, after compinit',
    "fish": "weft completion fish > ~/.config/fish/completions/weft.fish",
}


def add_commands(commands: Commands) -> None:
    """Add completion."""
    parser = add_command(
        commands,
        "completion",
        completion,
        "print shell code that completes commands, options, experiments, networks and schemes",
        epilog="; ".join(HOW.values()),
    )
    parser.add_argument("shell", choices=SHELLS, help="shell")


def completion(arguments: Namespace) -> int:
    """Print the shell code."""
    from argcomplete.shell_integration import shellcode

    print(shellcode(["weft"], shell=arguments.shell), end="")
    return 0


def complete(parser: ArgumentParser) -> None:
    """Print completions for the calling shell, and exit."""
    import argcomplete

    prepare(parser)
    argcomplete.autocomplete(parser)


def prepare(parser: ArgumentParser) -> None:
    """Attach completers to the arguments of `parser` and of its commands."""
    for action in parser._actions:
        if isinstance(action, _SubParsersAction):
            for command in action.choices.values():
                prepare(command)
        elif function := completer(action):
            action.completer = function  # type: ignore[attr-defined]


def completer(action: Action) -> Completer | None:
    """Return the completer of `action`; None where argcomplete needs none, as for files."""
    completers: dict[str, Completer] = {
        "experiment": experiments,
        "names": published,
        "topology": topologies,
        "routing": schemes,
        "scheme": schemes,
        "run": live_runs,
        "set": assignments,
        "engine": engines,
        "node": nodes,
        "only_to": nodes,
        "src": nodes,
        "dst": nodes,
        "link": links,
        "fail": links,
    }
    if action.dest == "what":  # of several commands; the metavar says what is meant
        return links_and_nodes if "LINK" in str(action.metavar) else catalogued
    return completers.get(action.dest)


def experiments(**_: Any) -> list[str]:
    """Return the names of experiments."""
    return definition.names()


def published(**_: Any) -> list[str]:
    """Return papers, claims and experiments that `weft reproduce` takes."""
    from weft.experiments.report.claims import PAPERS, all_claims

    return ["all", *PAPERS, *all_claims(), *experiments()]


def topologies(**_: Any) -> list[str]:
    """Return an example of every family of networks."""
    return [family.example for family in families().values()]


def schemes(**_: Any) -> list[str]:
    """Return the names of routing schemes."""
    return list(registry.schemes())


def engines(**_: Any) -> Sequence[str]:
    """Return the names of engines."""
    return definition.ENGINES


def catalogued(**_: Any) -> list[str]:
    """Return what `weft list` takes."""
    from weft.experiments.cli.graph_commands import SECTIONS
    from weft.experiments.engines.workloads import PATTERNS
    from weft.testbed.packets.transport import ALL

    return [*SECTIONS, *modules(), *schemes(), *ALL, *PATTERNS]


def nodes(parsed_args: Namespace | None = None, **_: Any) -> list[str]:
    """Return the names of the nodes of the network that the command line names."""
    network = _topology(parsed_args)
    return [network.naming.name(node) for node in range(network.nodes)] if network else []


def links(parsed_args: Namespace | None = None, **_: Any) -> list[str]:
    """Return the names of the links of the network that the command line names."""
    network = _topology(parsed_args)
    return [network.link_name(link) for link in range(len(network.links))] if network else []


def links_and_nodes(parsed_args: Namespace | None = None, **_: Any) -> list[str]:
    """Return the names of links and nodes."""
    return [*links(parsed_args), *nodes(parsed_args)]


def _topology(arguments: Namespace | None) -> Topology | None:
    """Return the network of the argument `topology`, or of the run; None if there is none."""
    from weft.testbed.network.handle import Handle

    with suppress(ValueError, OSError):
        if spec := getattr(arguments, "topology", None):
            return build(spec)
        return Handle.open(getattr(arguments, "run", None)).topology
    return None


def assignments(prefix: str = "", parsed_args: Namespace | None = None, **_: Any) -> Iterator[str]:
    """Yield KEY= for each parameter of the experiment on the command line.

    After KEY=, its values.
    """
    with suppress(ValueError):  # unknown experiment
        sweep = definition.find(str(getattr(parsed_args, "experiment", ""))).sweep
        key, equals, _value = prefix.partition("=")
        if equals:
            yield from (f"{key}={value}" for value in sweep.get(key, ()))
        else:
            yield from (f"{name}=" for name in sweep)


def live_runs(**_: Any) -> list[str]:
    """Return the runs that are up and visible to this user."""
    with suppress(ValueError, OSError):
        return [record.id for record in run.runs() if record.alive()]
    return []
