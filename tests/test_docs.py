"""Every command of the documentation is one that there is, and those of the tutorials do what they
should.

A block of commands is fenced as `console`; a command begins with $, and with sudo where it takes
root.  What stands before a block says what becomes of it: `<!-- run -->` and `<!-- run as root -->`
are run by tests, in the order of the page and in one folder, in which `<!-- file: NAME -->` puts
the block behind it.  Lines behind a command that is run are its output, in which ... stands for
any text, and whose numbers may differ by a tenth.  A block of Python before one of text prints
that text to the letter; `<!-- slow -->` says that it takes many seconds.  Commands of all other
blocks, of indented ones and within sentences are parsed: options, experiments, parameters, networks
and schemes must be there.  Those that have --dry-run are run with it.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import pytest

from weft.daemons.core import registry
from weft.experiments.cli import catalogue, cli
from weft.experiments.runner import definition
from weft.testbed.labs import lab_file
from weft.testbed.labs.lab_file import NamedText
from weft.topologies import canonical

ROOT = Path(__file__).parent.parent
FENCED = re.compile(
    r"(?:<!-- (?P<what>[^\n]*?) -->\n)?```(?P<kind>\w+)\n(?P<text>.*?)```", re.DOTALL
)
PRINTING = re.compile(
    r"(?:<!-- (?P<what>[^\n]*?) -->\n)?```python\n(?P<code>(?:(?!```).)*)```\n\n"
    r"```text\n(?P<text>.*?)```",
    re.DOTALL,
)
INDENTED = re.compile(r"^ {4}\$ (.*)$", re.MULTILINE)
# a comment, when pasted
ROOT_PROMPT = re.compile(r"^(?: {4})?# (?:sudo |weft |\.venv/|make |python ).*", re.MULTILINE)
QUOTED = re.compile(r"`(weft\s[^`]+)`(?! is refused)")
# Of examples whose parts the reader fills in, or that a page says with an ellipsis.
PLACEHOLDER = re.compile(r"\b[A-Z]{3,}\b|\.\.\.|\bT\b|\bR\b|\bE\b")
# that writes a file
FILE_COMMAND = re.compile(r"^(?: {4})?\$ (printf '.*?' > [\w.]+)", re.MULTILINE)
FILES = (".yaml", ".yml", ".json", ".py")  # that describe a network, and are the reader's
OF_EXAMPLES = ("torus", "deflection", "mine", "degree", "tcp_share")  # that other packages bring


class Block(NamedTuple):
    """what: run, run as root, file: NAME, or empty.  kind: console, python, ..."""

    what: str
    kind: str
    text: str

    def steps(self) -> list[tuple[str, str]]:
        """Return each command with the output that the page shows; "" where it shows none."""
        parts = re.split(r"^\$ ", self.text.replace("\\\n", ""), flags=re.MULTILINE)[1:]
        return [
            (command, output) for command, _, output in (part.partition("\n") for part in parts)
        ]

    def commands(self) -> list[str]:
        """Return its commands without the prompt, each with the lines that continue it."""
        text = self.text.replace("\\\n", "")
        return [line[2:] for line in text.splitlines() if line.startswith("$ ")]


def pages() -> dict[str, str]:
    """Every page of the documentation, by its path."""
    paths = [
        path
        for pattern in ("README.md", "docs/*.md", "docs/notes/*.md", "docs/tutorials/*.md")
        for path in ROOT.glob(pattern)
    ]
    return {
        path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted(paths)
    }


PAGES = pages()


def blocks(text: str) -> list[Block]:
    return [
        Block(found["what"] or "", found["kind"], found["text"]) for found in FENCED.finditer(text)
    ]


def weft_commands(text: str) -> Iterator[list[str]]:
    """The words behind `weft` of every command of weft in a page; comments, pipes and other
    programs left out."""
    text = re.sub(r"\\\n\s*", " ", text)
    lines = [line for block in blocks(text) if block.kind == "console" for line in block.commands()]
    lines += [
        *INDENTED.findall(FENCED.sub("", text)),
        *map(" ".join, map(str.split, QUOTED.findall(FENCED.sub("", text)))),
    ]
    for line in lines:
        for part in re.split(r"&&|\||;| > ", line):
            words = words_of(part)
            if words[:2] == ["docker", "run"]:
                words = words[words.index("weft") + 1 :]
            while words and (words[0] == "sudo" or "=" in words[0]):
                words = words[1:]
            if (
                len(words) > 1
                and words[0].rpartition("/")[2] == "weft"
                and not PLACEHOLDER.search(part)
            ):
                yield words[1:]


def words_of(command: str) -> list[str]:
    """The words of a command as a shell has them; of a part whose quotation marks are in others, as
    they stand."""
    try:
        return shlex.split(command, comments=True)
    except ValueError:
        return command.split()


parser = cache(cli.parser)


def check_words(words: list[str]) -> None:
    """ValueError unless there is such a command, with all that it names."""
    with contextlib.suppress(SystemExit):  # of --help
        arguments = parser().parse_args(words)
        check(arguments)
        if words[0] in ("uml", "mn") and "weft" in words[1:]:
            check_words(words[words.index("weft") + 1 :])


def check(arguments: argparse.Namespace) -> None:
    """ValueError unless experiments, parameters, networks and schemes that `arguments` names are
    there, and the page's labs are labs, with its answers."""
    values = vars(arguments)
    name = values.get("experiment")
    if name and not {name, *re.findall(r"\w+", " ".join(values.get("set") or []))} & {*OF_EXAMPLES}:
        definition.find(name).values(definition.assignments(values.get("set") or []))
    network = str(values.get("topology") or "")
    if network and not network.startswith(("file:", *OF_EXAMPLES)) and not network.endswith(FILES):
        canonical(network)
    for key in ("routing", "scheme"):
        spec = values.get(key)
        if spec and not spec.startswith(("none", *OF_EXAMPLES)):
            registry.scheme(spec)
    texts = {
        key: NamedText(path.read_text(), str(path))
        for key in ("lab", "answer", "hidden")
        if (path := Path(str(values.get(key)))).is_file()
    }
    if "lab" in texts:
        text, name = texts.pop("lab")
        lab_file.parse(text, name=name, **texts)


@pytest.mark.parametrize("page", PAGES)
def test_every_command_is_one_that_there_is(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_files(page, tmp_path)
    for words in weft_commands(PAGES[page]):
        try:
            check_words(words)
        except ValueError as error:
            if re.search(
                "arguments are required|expected (one|at least one|[0-9]) argument", str(error)
            ):
                # a sentence names a command, or an option of it
                continue
            pytest.fail(f"{page}: weft {' '.join(words)}: {error}")


@pytest.mark.parametrize("page", PAGES)
def test_no_command_stands_behind_the_prompt_of_root(page):
    """A shell takes `# weft up ...` for a comment."""
    text = FENCED.sub(lambda block: block[0] if block["kind"] == "console" else "", PAGES[page])
    assert not [line[0] for line in ROOT_PROMPT.finditer(text)]


@pytest.mark.parametrize("page", PAGES)
def test_no_command_says_without_root_beside_a_target_that_calls_sudo(page):
    rules = re.split(r"\n(?=[a-z-]+:)", (ROOT / "Makefile").read_text(encoding="utf-8"))
    targets = {rule.partition(":")[0] for rule in rules if "$(SUDO)" in rule.partition("\n")[2]}
    assert {"uml-kernel", "demo"} <= targets
    for line in re.findall(r"^ *\$ .*(?:without|no) root.*", PAGES[page], re.MULTILINE):
        assert not {*re.findall(r"\bmake ([a-z-]+)", line)} & targets, line


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", PAGES)
def test_every_command_that_can_be_rehearsed_is_not_refused(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WEFT_RESULTS", str(tmp_path / "results"))
    write_files(page, tmp_path)
    for words in weft_commands(PAGES[page]):
        if (
            words[0] in ("run", "up")
            and is_whole(words)
            and not any(name in " ".join(words) for name in OF_EXAMPLES)
        ):
            status = cli.main(
                [*(word for word in words if word not in ("--nat", "--dry-run")), "--dry-run"]
            )
            assert status == 0, f"{page}: weft {' '.join(words)}: {capsys.readouterr().err}"


def is_whole(words: list[str]) -> bool:
    """Return whether `words` are a command, and not an option of one that a sentence names."""
    try:
        parser().parse_args(words)
    except (SystemExit, ValueError):
        return False
    return True


def write_files(page: str, folder: Path) -> None:
    """Write what the page shows as files."""
    for block in blocks(PAGES[page]):
        if block.what.startswith("file: "):
            (folder / block.what.removeprefix("file: ")).write_text(block.text)
    for command in FILE_COMMAND.findall(PAGES[page]):
        subprocess.run(command, shell=True, cwd=folder, check=True)


@pytest.mark.parametrize(
    "line",
    [
        "$ weft run link_lost",
        "$ weft run link_loss --set failed=1",
        "$ weft topo dcell:n=1,k=1",
        "$ sudo weft up dcell:n=4,k=1 --routing drx",
        "$ weft uml -- weft up dcell:n=4,k=1 --rte 20mbit",
    ],
)
def test_a_command_that_there_is_not_is_seen(line):
    (words,) = weft_commands(f"```console\n{line}\n```")
    with pytest.raises(ValueError, match=r"."):
        check_words(words)


@pytest.fixture
def follow(tmp_path):
    """Do what a page says, up to its end: files are written, commands of one kind run one after the
    other."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (tmp_path / "work").mkdir()
    for name in ("deflection", "torus"):
        shutil.copytree(ROOT / "examples" / name, tmp_path / "work/examples" / name)
    how = "--quiet --no-index --no-deps --no-build-isolation --target"
    for name, text in {
        "weft": 'exec "$WEFT_PYTHON" -P -m weft.experiments.cli.cli "$@"',
        "python": 'exec "$WEFT_PYTHON" "$@"',
        "sudo": 'exec "$@"',
        "dask": 'exec "$WEFT_PYTHON" -m dask "$@"',
        "pip": f'shift; exec "$WEFT_PYTHON" -m pip install {how} "$WEFT_SITE" "$@"',
    }.items():
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": f"{tmp_path / 'site'}:{ROOT}",
        "WEFT_PYTHON": sys.executable,
        "WEFT_SITE": str(tmp_path / "site"),
    }

    def run(page, kind):
        ran = 0
        for block in blocks(PAGES[page]):
            if block.what.startswith("file: "):
                (tmp_path / "work" / block.what.removeprefix("file: ")).write_text(block.text)
            for command, output in block.steps() if block.what == kind else ():
                done = subprocess.run(
                    ["bash", "-c", command],
                    cwd=tmp_path / "work",
                    env=environment,
                    capture_output=True,
                    text=True,
                )
                assert done.returncode == 0, f"{page}: {command}: {done.stderr}"
                assert not output or alike(done.stdout, output), f"{page}: {command}: {done.stdout}"
                ran += 1
        return ran

    return run


def alike(printed: str, shown: str) -> bool:
    """Return whether `printed` differs from `shown` in nothing but numbers, by a tenth, blanks, and
    the texts that ... stands for."""
    number = r"\b\d+(?:\.\d+)?\b"
    parts = re.split(rf"({number}|\.\.\.)", " ".join(shown.split()))
    numbers = [float(part) for part in parts if re.fullmatch(number, part)]
    pattern = "".join(
        ".*" if part == "..." else f"({number})" if re.fullmatch(number, part) else re.escape(part)
        for part in parts
    )
    match = re.fullmatch(pattern, " ".join(printed.split()))
    return match is not None and [*map(float, match.groups())] == pytest.approx(numbers, rel=0.1)


@pytest.mark.parametrize(
    ("printed", "equal"),
    [
        ("h0 h4  (4 hops, 2.1 ms)\n", True),
        ("h0 h4  (4 hops, 2.9 ms)\n", False),
        ("h0 h5  (4 hops, 2.1 ms)\n", False),
        ("no path\n", False),
    ],
)
@pytest.mark.parametrize("shown", ["h0 h4  (4 hops, 2.0 ms)\n", "h0 h4 ... 2.0 ms)\n"])
def test_an_output_that_a_page_does_not_show_is_seen(printed, shown, equal):
    assert alike(printed, shown) == equal


def pages_with(kind: str) -> list[str]:
    return [
        page for page, text in PAGES.items() if any(block.what == kind for block in blocks(text))
    ]


@pytest.mark.slow
@pytest.mark.parametrize("page", pages_with("run"))
def test_what_needs_no_root_works(follow, page):
    assert follow(page, "run")


@pytest.mark.kernel
@pytest.mark.parametrize("page", pages_with("run as root"))
def test_what_takes_root_works(follow, page):
    try:
        assert follow(page, "run as root")
    finally:
        for name in re.findall(r"--detach (\w+)", PAGES[page]):
            with contextlib.suppress(ValueError):  # it is down already
                cli.main(["down", "--run", name])


def test_every_error_that_the_index_explains_is_one_of_ours():
    sources = "\n".join(
        path.read_text()
        for folder in ("topologies", "daemons", "testbed", "experiments")
        for path in (ROOT / folder).rglob("*.py")
    )
    sources = re.sub(r'"\n\s*f?"', "", sources).replace("`", "")
    for line in PAGES["docs/errors.md"].splitlines():
        for said in (
            re.findall(r"`([^`]+)`", line.split(" | ")[0]) if line.startswith("| `") else ()
        ):
            kind = re.fullmatch(r"no (family|scheme|experiment|parameter)", said)
            assert (f'unknown("{kind[1]}"' if kind else said) in sources, said


def printing() -> list[object]:
    """Return the page, the code and the text of each block of Python that a page shows to print."""
    return [
        pytest.param(
            page,
            found["code"],
            found["text"],
            marks=[pytest.mark.slow] * (found["what"] == "slow"),
            id=page,
        )
        for page, text in PAGES.items()
        for found in PRINTING.finditer(text)
    ]


@pytest.mark.parametrize(("page", "code", "shown"), printing())
def test_python_prints_what_the_page_shows(page, code, shown, capsys):
    exec(compile(code, page, "exec"), {})
    assert capsys.readouterr().out == shown


@pytest.fixture(scope="module")
def reference():
    """The module that writes the reference."""
    spec = importlib.util.spec_from_file_location(
        "reference_pages", ROOT / "docs/reference_pages.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_reference_imports_no_tests():
    tree = ast.parse((ROOT / "docs/reference_pages.py").read_text())
    modules = [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert [name for name in modules if name.startswith("tests")] == []


@pytest.mark.slow
def test_the_reference_has_all_that_there_is(reference):
    pages = reference.pages()
    for name in definition.names():
        page = pages[f"experiments/{name}.md"]
        assert page.startswith(f"# {name}\n")
        assert f"](experiments/{name}.md)" in pages["experiments.md"]
        tables = [line for line in page.splitlines() if line[:1] == "|"]
        assert all(line.count("|") - line.count("\\|") >= 4 for line in tables)
    assert all(f"\n### {name}\n" in pages["schemes.md"] for name in registry.schemes())
    assert "## weft describe" in pages["commands.md"]
    assert "| `window` |" in pages["transports.md"]
    assert "| `incast:senders=N` |" in pages["transports.md"]
    assert "## hello, type 1" in pages["messages.md"]
    assert "| 4     | sequence | of the packet" in pages["messages.md"]
    assert "## Bringing networks up" in pages["benches.md"]
    assert pages["security.md"].startswith("# Security")
    assert "](../how.md)" in pages["contributing.md"]


@pytest.mark.parametrize(
    ("path", "text", "linked"),
    [
        ("docs/how.md", "[a](../SECURITY.md#keys)", "[a](reference/security.md#keys)"),
        ("docs/notes/ndp.md", "[a](../../SECURITY.md)", "[a](../reference/security.md)"),
        ("docs/how.md", "[a](machine.md)", "[a](machine.md)"),
        ("SECURITY.md", "[a](docs/how.md)", "[a](../how.md)"),
        ("SECURITY.md", "![a](figures/ttc_tcp.png)", "![a](../../figures/ttc_tcp.png)"),
        ("labs/README.md", "[a](incast)", "[a](incast.md)"),
        ("labs/incast/README.md", "[a](../README.md)", "[a](index.md)"),
        ("docs/how.md", "[a](https://pyodide.org)", "[a](https://pyodide.org)"),
        ("docs/how.md", "[a](#later)", "[a](#later)"),
        ("docs/teach.md", "[a](../labs/answers/README.md)", "[a](../labs/answers/README.md)"),
    ],
)
def test_links_lead_to_the_copies_on_the_site(reference, path, text, linked):
    assert reference.on_site(text, path) == linked


def test_every_page_is_reached_from_the_index():
    listed = set(re.findall(r"^[\w/]+$", PAGES["docs/index.md"], re.MULTILINE))
    names = {page[len("docs/") : -len(".md")] for page in PAGES if page.startswith("docs/")}
    assert names - {"index"} <= listed
    copies = {"reference/security", "reference/contributing", "reference/changes"}
    assert copies | {"reference/labs/index"} <= listed


def test_the_counts_of_readme_are_those_of_weft():
    names = catalogue.catalogue()
    schemes = len(names["routing"]) + len(names["data_plane"])
    counts = f"{len(names['topologies'])} families|{schemes} routing schemes"
    for count in f"{counts}|{len(definition.names())} experiments".split("|"):
        assert count in PAGES["README.md"].replace("\n", " ")


def test_the_film_is_the_output_of_the_command_that_it_names():
    film = ElementTree.parse(ROOT / "docs/film.svg").getroot()
    texts = ["".join(text.itertext()) for text in film.iter("{http://www.w3.org/2000/svg}text")]
    check_words(texts[0].removeprefix("$ weft ").split())
    verdicts = [text for text in texts if text.startswith("PASS ")]
    assert len(verdicts) == 16
    assert any("dies, silent: noticed in" in text for text in verdicts)
