"""Commands for work of one's own: new writes a package or a lab, conform tries a scheme."""

from __future__ import annotations

import json
import re
from argparse import Namespace
from collections.abc import Callable, Iterable
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

from weft.experiments.cli.options import Commands, add_command, add_flag, add_json, add_seed
from weft.topologies import modules
from weft.topologies.core.grammar import quoted

if TYPE_CHECKING:
    from weft.experiments.demo.conformance import Finding

STARTERS = "weft.experiments.starters"
PACKAGES = {  # kind -> group of entry points, object of the module, and what to try
    "scheme": ("schemes", "", "weft conform $name"),
    "rule": ("schemes", "", "weft simulate fattree:k=4 --routing $name"),
    "topology": ("topologies", "", "weft topo $name:n=5 --plot $name.png"),
    "experiment": ("experiments", ":EXPERIMENT", "weft run $name && weft plot $name"),
}
LAB = "lab"
NAME = r"[a-z]([a-z0-9_]{0,29}[a-z0-9])?"  # pip takes no package whose name ends with _


def add_commands(commands: Commands) -> None:
    """Add new and conform."""
    parser = add_command(
        commands,
        "new",
        new,
        "write a package that works: a scheme, rule of switches, topology or experiment; or a lab",
    )
    parser.add_argument("kind", choices=(*PACKAGES, LAB), help=", ".join((*PACKAGES, LAB)))
    parser.add_argument("name", help="lower-case letters, digits and _")
    parser.add_argument(
        "--into", metavar="DIR", type=Path, help="a folder that does not exist; default: weft-NAME"
    )
    parser = add_command(
        commands,
        "conform",
        conform,
        "try whether daemons of a scheme do on every engine what it predicts",
    )
    parser.add_argument("scheme", help="such as dr, or pr-gpi:hello_ms=50")
    parser.add_argument("network", nargs="*", help="small networks; default: six of six families")
    add_seed(parser, 0, "default: 0")
    add_flag(parser, "--without-linux", help="the simulator and simulated packets only")
    add_json(parser)


def new(arguments: Namespace) -> int:
    """Write a package or a lab; print what to do with it."""
    kind, name = arguments.kind, arguments.name
    if not re.fullmatch(NAME, name):
        raise ValueError(
            f"NAME must be a lower-case letter, then up to 30 of them, digits and _, "
            f"the last no _, got {quoted(name)}"
        )
    if name in _known(kind):
        raise ValueError(f"the {kind} {name} is there already: take another name")
    folder = arguments.into or Path(f"weft-{name}")
    if folder.exists():
        raise ValueError(f"{folder} is there already: name another folder with --into")
    folder.mkdir(parents=True)
    for file, text in _contents(kind, name).items():
        (folder / file).parent.mkdir(exist_ok=True)
        (folder / file).write_text(text, encoding="utf-8")
    print(f"{folder}: {', '.join(sorted(path.name for path in folder.iterdir()))}")
    if kind == LAB:
        print(f"try it: weft check {folder}/lab.yaml; `weft check --help` grades a class")
        return 0
    print(f"install it, in the environment of weft: pip install --editable {_path(folder)}")
    print(f"try it: {Template(PACKAGES[kind][-1]).substitute(name=name)}")
    print(f"test it: python -m pytest {folder}")
    return 0


def _path(folder: Path) -> str:
    """Return a path that pip does not take for the name of a package."""
    return f"{folder}" if folder.is_absolute() else f"./{folder}"


def _known(kind: str) -> set[str]:
    """Return the names that are taken."""
    from weft.daemons.core import registry
    from weft.experiments.runner.definition import discover

    registered: dict[str, Callable[[], Iterable[str]]] = {
        "scheme": registry.schemes,
        "rule": registry.schemes,
        "topology": modules,
        "experiment": discover,
    }
    return set(registered[kind]()) if kind in registered else set()


def _contents(kind: str, name: str) -> dict[str, str]:
    """Return the text of each file."""
    starters = {"lab.yaml": "lab", "README.md": "lab_text"}
    values = {"name": name, "kind": kind, "files": f'py-modules = ["weft_{name}"]'}
    if kind != LAB:
        starters = {
            "pyproject.toml": "pyproject",
            f"weft_{name}.py": kind,
            f"test_{name}.py": f"{kind}_test",
        }
        values["group"], values["object"], _ = PACKAGES[kind]
    if kind == "rule":  # a package, because a module has no files of its own
        starters[f"weft_{name}/__init__.py"] = starters.pop(f"weft_{name}.py")
        starters[f"weft_{name}/{name}.c"] = "rule_code"
        own = f"weft_{name}"
        values["files"] = f'packages = ["{own}"]\npackage-data = {{ {own} = ["*.c"] }}'
    text = {file: files(STARTERS) / f"{starter}.txt" for file, starter in starters.items()}
    return {
        file: Template(path.read_text(encoding="utf-8")).substitute(values)
        for file, path in text.items()
    }


def conform(arguments: Namespace) -> int:
    """Compare the engines; print a line for each, and return 1 if one differs."""
    from weft.experiments.demo.conformance import NETWORKS, findings
    from weft.experiments.runner.console import notice
    from weft.experiments.runner.sweep import SilentWatcher

    networks = arguments.network or NETWORKS
    watcher = None if arguments.without_linux else SilentWatcher()
    if watcher:
        notice("conform: Linux takes half a minute for each network (--without-linux)")
    report = []
    for finding in findings(arguments.scheme, networks, arguments.seed, watcher):
        report.append(finding)
        if not arguments.json:
            print(_words(finding), flush=True)
    if arguments.json:
        print(json.dumps([finding._asdict() for finding in report]))
    if all(finding.left_out for finding in report):
        raise ValueError(f"{arguments.scheme}: no engine could be asked; name a network for it")
    return int(any(finding.difference for finding in report))


def _words(finding: Finding) -> str:
    begin = f"{finding.network:<18} {finding.engine:<20}"
    if finding.left_out:
        return f"{begin} left out: {finding.left_out}"
    if finding.difference:
        return f"{begin} DIFFERS: {finding.difference}"
    return f"{begin} agrees, healthy and with failed links ({finding.checked} states)"
