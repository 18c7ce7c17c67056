"""Files that comments, docstrings and documents name are there."""

import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TEXTS = (".py", ".md", ".c", ".h", ".sh", ".toml", ".yml")
MADE = re.compile(r"<!-- file: (\S+) -->")  # by who follows a page of docs
# a name in quotation marks may be a file to be made
NAMED = re.compile(r"(?<![\"\w./-])[\w./-]*\b\w+\.py\b")
TEST = re.compile(r"`(tests/[\w/]+\.py)?::(test_\w+)`")
if not (ROOT / ".git").exists():
    pytest.skip("an archive has no list of its files", allow_module_level=True)
FILES = tuple(subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True).split())


@cache
def ends_of(files: tuple[str, ...]) -> frozenset[str]:
    """Return the ends of the paths `files`, of whole folders."""
    parts = [file.split("/") for file in files]
    return frozenset("/".join(names[-i:]) for names in parts for i in range(1, len(names) + 1))


def missing(text: str, files: tuple[str, ...]) -> list[str]:
    """Names of Python files in `text` that are no file's own name, and no path's end, among
    `files`."""
    created = set(MADE.findall(text))
    return [
        name
        for name in NAMED.findall(text)
        if not name.startswith("/")  # a file of another package
        and name.lstrip("./") not in created
        and name.lstrip("./") not in ends_of(files)
    ]


def test_every_file_that_is_named_exists():
    texts = {path for path in FILES if path.endswith(TEXTS) and (ROOT / path).exists()} - {
        "tests/test_references.py"
    }
    absent = {path: missing((ROOT / path).read_text(), FILES) for path in sorted(texts)}
    assert {path: names for path, names in absent.items() if names} == {}


def test_every_test_that_is_named_exists():
    """Named as pytest has it; without its file, of the file that was named last."""
    count = 0
    for path in (path for path in FILES if path.endswith(".md")):
        file = ""
        for named, test in TEST.findall((ROOT / path).read_text()):
            file, count = named or file, count + 1
            assert f"\ndef {test}(" in (ROOT / file).read_text(), f"{path}: {file}::{test}"
    assert count > 20


def test_a_file_that_moved_is_missed():
    assert missing(
        'see old.py, "made.py", room/there.py and other/there.py', ("a/room/there.py",)
    ) == [
        "old.py",
        "other/there.py",
    ]
