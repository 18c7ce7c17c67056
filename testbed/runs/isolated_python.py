"""Python processes that import weft's and Python's modules only, and none from the current folder.

`python -m` searches the current folder and PYTHONPATH first: as root, it would run a module called
pickle from another user's folder.  An isolated process starts in /, does not search there, and
inherits only the environment variables in KEPT.
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
# weft's folder, which may be site-packages, comes after Python's own modules, and before installed
# packages, which may hold another weft; folders of other schemes come last
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
    """Return the command that runs the weft module `module`, in FOLDER with environment().

    Args:
        module: full name of the module.
        arguments: of the module.
        packages: it imports installed packages.
        search: further folders to import from, searched last.
    """
    others = ":".join(str(path.absolute()) for path in search)
    site = [] if packages else ["-S"]
    return [sys.executable, "-P", "-s", *site, "-c", START, str(ROOT), others, module, *arguments]


def shell_command(module: str) -> list[str]:
    """Return a command without line breaks that runs the weft module `module` of this checkout.

    It is for files of commands; unlike command() it needs no environment(), and its packages are
    those that this Python finds.
    """
    return ["env", f"PYTHONPATH={ROOT}", sys.executable, "-P", "-m", module]


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment of an isolated process: KEPT variables of this process, and `more`."""
    inherited = {name: os.environ[name] for name in KEPT if name in os.environ}
    return {"PATH": PROGRAMS, **inherited, **(more or {})}
