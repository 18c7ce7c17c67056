"""Python processes that import what belongs to weft and to Python, and nothing that lies where they
are started.

`python -m` looks for modules in the current folder first, and where PYTHONPATH says, so that a
module called pickle in a folder of somebody else's would be run by root.  Such a process starts in
/, does not look there, and has no more of the environment than is named here.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[3]
FOLDER = "/"
PROGRAMS = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
KEPT = ("LANG", "LC_ALL", "TZ", "PYTHONHASHSEED", "PYTHONDONTWRITEBYTECODE")
# The folder that holds weft comes behind Python's own modules, for it is site-packages where weft
# is installed, and ahead of what else is installed, which may have another weft; others' come last.
START = """
import sys
from runpy import run_module
_, root, others, module, *arguments = sys.argv
first = next((at for at, path in enumerate(sys.path) if path.endswith("-packages")), len(sys.path))
sys.path[first:first], sys.path[len(sys.path):] = [root], [path for path in others.split(":") if path]
sys.argv[1:] = arguments
run_module(module, run_name="__main__", alter_sys=True)
"""  # noqa: E501


def command(
    module: str,
    arguments: Iterable[str] = (),
    *,
    packages: bool = True,
    search: Sequence[Path] = (),
) -> list[str]:
    """The command that runs the module of weft's called `module`, to be run in FOLDER with
    environment().

    packages: whether it needs those that are installed.  search: folders with more of what it
    imports, which are asked last.
    """
    others = ":".join(str(path.absolute()) for path in search)
    site = [] if packages else ["-S"]
    return [sys.executable, "-P", "-s", *site, "-c", START, str(ROOT), others, module, *arguments]


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """What such a process gets of this one's environment, and `more`."""
    kept = {name: os.environ[name] for name in KEPT if name in os.environ}
    return {"PATH": PROGRAMS, **kept, **(more or {})}
