"""Print what is missing before a tag may be published; exit status 1 if anything is.

python3 tools/release_check.py vX.Y.Z

It needs nothing but Python, so that a workflow can run it first.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
ADDRESSES = {
    "contact": "a person or a list with an email address, to whom defects of security are reported",
    "repository-code": "the address of the repository, for the clone line of README",
}


def missing(tag: str, root: Path = ROOT) -> Iterator[str]:
    """Yield a line for each thing that is missing for `tag`."""
    version = tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"]
    citation = (root / "CITATION.cff").read_text(encoding="utf-8")
    changes = (root / "CHANGES.md").read_text(encoding="utf-8")
    if tag != f"v{version}":
        yield f"pyproject.toml has version {version}: the tag is to be v{version}, not {tag}"
    if f"\nversion: {version}\n" not in citation:
        yield f"CITATION.cff: its version is to be {version}"
    if not re.search(rf"^## {re.escape(version)}, \d{{4}}-\d\d-\d\d$", changes, re.MULTILINE):
        yield f"CHANGES.md: no heading '## {version}, YYYY-MM-DD'"
    for key, meaning in ADDRESSES.items():
        if not re.search(rf"^{key}:", citation, re.MULTILINE):
            yield f"CITATION.cff: no {key}: {meaning}"


def main() -> None:
    """Print all lines for the tag of the command line."""
    if len(sys.argv) != 2:
        sys.exit("release_check: name the tag, such as v0.1.0")
    lines = list(missing(sys.argv[1]))
    sys.exit("\n".join(lines) or 0)


if __name__ == "__main__":
    main()
