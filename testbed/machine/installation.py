"""The installation of weft: its version, and how to install a package that is missing."""

from __future__ import annotations

import sys
import tomllib
from importlib import metadata
from pathlib import Path

FOLDER = Path(__file__).parents[3]  # of the package weft: a work tree, or site-packages
# How to install optional packages.
PACKAGES = {
    "mininet": (
        "Mininet of the system: `apt-get install mininet`, and `python3 -m venv "
        "--system-site-packages` for an environment that sees it; graphs and the simulator do "
        "without"
    ),
    "distributed": "dask.distributed: pip install 'weft-testbed[cluster]'",
    "pymetis": "pymetis: pip install 'weft-testbed[cluster]'",
    "pyarrow": "pyarrow: pip install 'weft-testbed[parquet]'",
    "scapy": "scapy: pip install 'weft-testbed[packets]'",
}


def version() -> str:
    """Return the version of the installed package, or else of the work tree."""
    try:
        return metadata.version("weft-testbed")
    except metadata.PackageNotFoundError:
        project = tomllib.loads((FOLDER / "pyproject.toml").read_text(encoding="utf-8"))
        return str(project["project"]["version"])


def missing(error: ModuleNotFoundError) -> ModuleNotFoundError | None:
    """Return `error` with a message that says how to install the package.

    None if the missing module is one of weft's, which is a fault of weft.
    """
    name = str(error.name).partition(".")[0]
    if name == "weft":
        return None
    # by what name others install it is not known: the index may have a stranger's by this one
    package = PACKAGES.get(name, f"the Python package {name}, which {sys.prefix} lacks")
    return ModuleNotFoundError(f"this needs {package}", name=error.name)
