"""Files that comments, docstrings and documents name are there."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TEXTS = (".py", ".md", ".c", ".h", ".sh", ".toml", ".yml")
MADE = re.compile(r"<!-- file: (\S+) -->")  # by who follows a page of docs
NAMED = re.compile(r"(?<![\"\w./-])[\w./-]*\b\w+\.py\b")  # a name in quotation marks may be a file to be made
FILES = subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True).split()


def missing(text: str, files: list[str]) -> list[str]:
    """Names of Python files in `text` that are no file's own name, and no path's end, among `files`."""
    ends = {"/".join(parts[-i:]) for parts in (file.split("/") for file in files) for i in range(1, len(parts) + 1)}
    ends |= set(MADE.findall(text))
    return [name for name in NAMED.findall(text) if name.lstrip("./") not in ends]


@pytest.mark.parametrize("path", [path for path in FILES if path.endswith(TEXTS) and (ROOT / path).exists()])
def test_every_file_that_is_named_exists(path):
    if path != "tests/test_references.py":
        assert missing((ROOT / path).read_text(), FILES) == []


def test_a_file_that_moved_is_missed():
    assert missing('see old.py, "made.py", room/there.py and other/there.py', ["a/room/there.py"]) == [
        "old.py",
        "other/there.py",
    ]
