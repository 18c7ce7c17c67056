"""Write docs/reference/: pages from the code, and copies of the pages that lie outside docs/.

python docs/reference_pages.py FOLDER
"""

from __future__ import annotations

import argparse
import inspect
import posixpath
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from weft.daemons.core.message_formats import flat
from weft.daemons.core.message_registry import FORMATS
from weft.daemons.transport import endpoint
from weft.experiments.cli import cli
from weft.experiments.cli.catalogue import catalogue, default_sweep, described
from weft.experiments.report import pages as report_pages
from weft.experiments.runner import definition

HERE = Path(__file__).parent
ROOT = HERE.parent
LINK = re.compile(r"\]\((?P<target>[^)#:\s]+)(?P<place>#[^)]*)?\)")
# Pages outside docs/, and their names on the site.
COPIES = {
    "SECURITY.md": "reference/security",
    "CONTRIBUTING.md": "reference/contributing",
    "CHANGES.md": "reference/changes",
    "labs/README.md": "reference/labs/index",
    **{
        f"labs/{path.parent.name}/README.md": f"reference/labs/{path.parent.name}"
        for path in sorted((ROOT / "labs").glob("*/README.md"))
        if path.parent.name != "answers"  # which students do not read beside their tasks
    },
}


def pages() -> dict[str, str]:
    """Return the text of each page of the reference by file name."""
    schemes_and_networks = catalogue()
    titled = {
        "commands": ("Commands", commands()),
        "experiments": ("Experiments", experiment_list()),
        "schemes": ("Routing schemes", schemes(schemes_and_networks)),
        "topologies": ("Topologies", topologies(schemes_and_networks)),
        "transports": ("Simulated transports and traffic", transports(schemes_and_networks)),
        "messages": ("Messages between daemons", messages()),
        "benches": ("All figures of speed", benches()),
        **{
            f"experiments/{name}": (name, experiment_page(experiment))
            for name, experiment in definition.discover().items()
        },
    }
    return {
        f"{name}.md": "\n".join([f"# {title}", "", *lines, ""])
        for name, (title, lines) in titled.items()
    } | {
        f"{page.removeprefix('reference/')}.md": on_site(
            (ROOT / path).read_text(encoding="utf-8"), path
        )
        for path, page in COPIES.items()
    }


def on_site(text: str, path: str) -> str:
    """Return the text of a page of the repository with links to pages and pictures of the site.

    Args:
        text: Markdown.
        path: of the page in the repository, such as `docs/how.md`.
    """
    page = site_page(path) or path
    folder = posixpath.dirname(f"docs/{page}")

    def link(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(path), match["target"]))
        target = f"{target}/README.md" if f"{target}/README.md" in COPIES else target
        if (there := site_page(target)) is not None:
            target = f"docs/{there}.md"
        elif not (ROOT / target).is_file():
            return match[0]
        return f"]({posixpath.relpath(target, folder)}{match['place'] or ''})"

    return LINK.sub(link, text)


def site_page(path: str) -> str | None:
    """Return the name on the site of a page of the repository; None if it is not on the site."""
    if path in COPIES:
        return COPIES[path]
    match = re.fullmatch(r"docs/(.*)\.md", path)
    return match[1] if match else None


def commands() -> Iterator[str]:
    """Yield the help of every command."""
    top = cli.parser()
    yield from fenced(top.format_help())
    (choices,) = [
        action for action in top._actions if isinstance(action, argparse._SubParsersAction)
    ]
    for name, parser in choices.choices.items():
        parser.formatter_class = lambda prog: argparse.HelpFormatter(prog, width=100)
        yield from (f"## weft {name}", "", *fenced(parser.format_help()))


def experiment_list() -> Iterator[str]:
    """Yield a table of all experiments, with the question of each and a link to its page."""
    experiments = definition.discover()
    rows = [
        (f"[{name}](experiments/{name}.md)", escaped(experiment.question))
        for name, experiment in experiments.items()
    ]
    yield from ("`weft describe EXPERIMENT` prints a page, with the runs that are stored.", "")
    yield from table(("experiment", "question"), rows)
    yield from ("```{toctree}", ":hidden:", "", *(f"experiments/{name}" for name in experiments))
    yield "```"


def experiment_page(experiment: definition.Experiment) -> Iterator[str]:
    """Yield the output of `weft describe` for an experiment, without stored runs."""
    description = described(experiment, [])
    yield from (escaped(description["question"]), "")
    yield from (f"Source: {escaped(description['source'])}.", "")
    yield from (f"{default_sweep(experiment)}.", "")
    rows = [
        (
            f"`{key}`",
            parameter["unit"],
            escaped(parameter["meaning"]),
            escaped(parameter["values"]),
            listed(parameter["default"]),
        )
        for key, parameter in description["parameters"].items()
    ]
    yield from table(("parameter", "unit", "meaning", "values", "default"), rows)
    columns = [
        (f"`{column['name']}`", column["unit"], escaped(column["meaning"]))
        for column in description["columns"]
    ]
    yield from table(("column", "unit", "meaning"), columns)


def benches() -> Iterator[str]:
    """Yield the tables of all benches."""
    yield from ("`make bench` measures these figures on your machine.", "")
    for path in sorted(report_pages.BENCH.glob("*.json")):
        yield report_pages.bench_table(path)


def schemes(names: Mapping[str, Any]) -> Iterator[str]:
    """Yield every scheme with its parameters."""
    for kind, title in (
        ("routing", "Routing"),
        ("data_plane", "The data plane of a switch fabric"),
    ):
        yield from (f"## {title}", "")
        for scheme in names[kind]:
            yield from named(scheme, "###")


def topologies(names: Mapping[str, Any]) -> Iterator[str]:
    """Yield every family of networks with its parameters."""
    for family in names["topologies"]:
        yield from named(family, "##", f"Example: `{family['example']}`.")


def transports(names: Mapping[str, Any]) -> Iterator[str]:
    """Yield every transport of `weft simulate` with its parameters, and every pattern."""
    for transport in names["transports"]:
        yield from named(transport, "##")
    yield from ("## Traffic", "")
    rows = ((f"`{entry['name']}`", escaped(entry["summary"])) for entry in names["patterns"])
    yield from table(("pattern", "who sends to whom"), rows)


def named(entry: Mapping[str, Any], level: str, example: str = "") -> Iterator[str]:
    """Yield the section of a named thing: summary, source if any, and parameters."""
    source = f" Source: {escaped(entry['source'])}." if "source" in entry else ""
    yield from (
        f"{level} {entry['name']}",
        "",
        f"{escaped(entry['summary'])}.{source} {example}",
        "",
    )
    rows = []
    for key, parameter in entry["parameters"].items():
        ends = (parameter["least"], parameter["most"])
        span = " .. ".join(str(end) for end in ends if end is not None)
        values = ", ".join(parameter["words"]) if parameter["words"] else span
        default = "" if parameter["default"] is None else f"`{parameter['default']}`"
        rows.append((f"`{key}`", escaped(parameter["meaning"]), escaped(values), default))
    if rows:
        yield from table(("parameter", "meaning", "values", "default"), rows)


def messages() -> Iterator[str]:
    """Yield every message: its type, the width of each field, and what its class says."""
    for message in FORMATS:
        widths = ", ".join(f"{path} {kind}" for path, kind in flat(message.parts).items())
        yield from (f"## {message.name}, type {message.kind}", "", f"`{widths}`", "")
        yield from fenced(inspect.getdoc(message.record) or "")
    yield from ("## The purified transport", "", *fenced(inspect.getdoc(endpoint) or ""))


def fenced(text: str) -> list[str]:
    """Return `text` as a block that is printed as it is."""
    return ["```text", text.rstrip(), "```", ""]


def listed(values: Iterable[object]) -> str:
    """Return the values of a sweep, as many as a table has room for."""
    several = [f"`{value}`" for value in values]
    return ", ".join(several[:6]) + (f" and {len(several) - 6} more" if len(several) > 6 else "")


def escaped(text: str) -> str:
    """Return `text` with its marks of Markdown escaped."""
    return re.sub(r"([\\`*_{}\[\]<>|$])", r"\\\1", " ".join(str(text).split()))


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    """Yield the lines of a table in Markdown."""
    yield "| " + " | ".join(head) + " |"
    yield "|" + " --- |" * len(head)
    for row in rows:
        yield "| " + " | ".join(row) + " |"
    yield ""


def write(folder: Path) -> None:
    """Write the pages into `folder`; remove those of before, leave equal ones alone."""
    texts = pages()
    for path in folder.rglob("*.md"):
        if path.relative_to(folder).as_posix() not in texts:
            path.unlink()
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
