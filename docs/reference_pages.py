"""Writes docs/reference/: commands, experiments, schemes, topologies and messages, out of the code
that knows them.

python docs/reference_pages.py FOLDER
"""

from __future__ import annotations

import argparse
import inspect
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from weft.daemons.core.message_formats import flat
from weft.daemons.core.message_registry import FORMATS
from weft.daemons.transport import packets
from weft.experiments.cli import cli, experiment_description
from weft.experiments.cli.catalogue import catalogue
from weft.experiments.runner import definition

HERE = Path(__file__).parent


def pages() -> dict[str, str]:
    """The pages, by file name."""
    found = catalogue()
    made = {
        "commands": ("Commands", commands()),
        "experiments": ("Experiments", experiments()),
        "schemes": ("Routing schemes", schemes(found)),
        "topologies": ("Topologies", topologies(found)),
        "messages": ("Messages between daemons", messages()),
        "more": ("More", more()),
    }
    return {
        f"{name}.md": "\n".join([f"# {title}", "", *lines, ""])
        for name, (title, lines) in made.items()
    }


def commands() -> Iterator[str]:
    """Yield the text of every command's --help."""
    top = cli.parser()
    yield from fenced(top.format_help())
    (chosen,) = [
        action for action in top._actions if isinstance(action, argparse._SubParsersAction)
    ]
    for name, parser in chosen.choices.items():
        parser.formatter_class = lambda prog: argparse.HelpFormatter(prog, width=100)
        yield from (f"## weft {name}", "", *fenced(parser.format_help()))


def experiments() -> Iterator[str]:
    """Yield the text of `weft describe` for every experiment, without stored rows."""
    yield from ("`weft describe EXPERIMENT` prints this, with what is stored.", "")
    for name, experiment in definition.discover().items():
        found = experiment_description.described(experiment, [])
        yield from (
            f"## {name}",
            "",
            escaped(found["question"]),
            "",
            f"Source: {escaped(found['source'])}.",
            "",
        )
        yield from (f"{experiment_description.default_sweep(experiment)}.", "")
        rows = [
            (
                f"`{key}`",
                one["unit"],
                escaped(one["meaning"]),
                escaped(one["values"]),
                listed(one["default"]),
            )
            for key, one in found["parameters"].items()
        ]
        yield from table(("parameter", "unit", "meaning", "values", "default"), rows)
        rows = [
            (f"`{one['name']}`", one["unit"], escaped(one["meaning"])) for one in found["columns"]
        ]
        yield from table(("column", "unit", "meaning"), rows)


def schemes(found: Mapping[str, Any]) -> Iterator[str]:
    """Every scheme with its parameters."""
    for kind, title in (
        ("routing", "Routing"),
        ("data_plane", "The data plane of a switch fabric"),
    ):
        yield from (f"## {title}", "")
        for one in found[kind]:
            yield from named(one, "###")


def topologies(found: Mapping[str, Any]) -> Iterator[str]:
    """Every family of networks."""
    for one in found["topologies"]:
        yield from named(one, "##", f"Example: `{one['example']}`.")


def more() -> Iterator[str]:
    """The pages that the index does not list."""
    index = (HERE / "index.md").read_text(encoding="utf-8").split()
    rest = sorted(
        path.stem for path in HERE.glob("*.md") if path.stem != "index" and path.stem not in index
    )
    yield from ("Pages about single subjects.", "", "```{toctree}", ":maxdepth: 1", "")
    yield from (*(f"../{name}" for name in rest), "```")


def named(one: Mapping[str, Any], level: str, more: str = "") -> Iterator[str]:
    """A scheme or a family: what it is, where it comes from, its parameters."""
    yield from (
        f"{level} {one['name']}",
        "",
        f"{escaped(one['summary'])}. Source: {escaped(one['source'])}. {more}",
        "",
    )
    rows = []
    for key, has in one["parameters"].items():
        reach = " .. ".join(str(has[end]) for end in ("least", "most") if has[end] is not None)
        values = ", ".join(has["words"]) if has["words"] else reach
        default = "" if has["default"] is None else f"`{has['default']}`"
        rows.append((f"`{key}`", escaped(has["meaning"]), escaped(values), default))
    if rows:
        yield from table(("parameter", "meaning", "values", "default"), rows)


def messages() -> Iterator[str]:
    """Yield every message: its type, the width of each field, and what its class says."""
    for message in FORMATS:
        widths = ", ".join(f"{path} {kind}" for path, kind in flat(message.parts).items())
        yield from (f"## {message.name}, type {message.kind}", "", f"`{widths}`", "")
        yield from fenced(inspect.getdoc(message.record) or "")
    yield from ("## The purified transport", "", *fenced(inspect.getdoc(packets) or ""))
    for name, record in vars(packets).items():
        if inspect.isclass(record) and record.__module__ == packets.__name__ and record.__doc__:
            fields = ", ".join(f"{key}: {kind}" for key, kind in record.__annotations__.items())
            yield from (f"### {name}", "", *fenced(f"{name}({fields})\n\n{inspect.getdoc(record)}"))


def fenced(text: str) -> list[str]:
    """`text` as it is."""
    return ["```text", text.rstrip(), "```", ""]


def listed(values: Iterable[object]) -> str:
    """Values of a sweep, as many as a table has room for."""
    several = [f"`{value}`" for value in values]
    return ", ".join(several[:6]) + (f" and {len(several) - 6} more" if len(several) > 6 else "")


def escaped(text: str) -> str:
    """`text` in which nothing is markup."""
    return re.sub(r"([\\`*_{}\[\]<>|$])", r"\\\1", " ".join(str(text).split()))


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    """A table in Markdown."""
    yield "| " + " | ".join(head) + " |"
    yield "|" + " --- |" * len(head)
    for row in rows:
        yield "| " + " | ".join(row) + " |"
    yield ""


def write(folder: Path) -> None:
    """Write the pages into `folder`; files that are the same already are left alone."""
    folder.mkdir(exist_ok=True)
    for name, text in pages().items():
        path = folder / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
