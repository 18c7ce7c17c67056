from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from weft.testbed.uml import uml


@pytest.fixture
def public_copy() -> Iterator[Path]:
    """Yield a copy of what `testbed/machine` imports, which every user may read, unlike a checkout
    below root's home."""
    left_out = shutil.ignore_patterns("__pycache__", "bpf")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        for part in ("testbed", "daemons", "topologies"):
            shutil.copytree(uml.PROJECT / part, folder / part, ignore=left_out)
        shutil.copytree(uml.PROJECT / "weft", folder / "weft", symlinks=True)
        yield folder
