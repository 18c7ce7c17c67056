"""The compiled transport with checks of the compiler."""

import subprocess
from pathlib import Path

import pytest

from weft.testbed.traffic import ndp_library


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the library, compiled without warnings and with UBSan."""
    library = tmp_path_factory.mktemp("ndp") / "ndp.so"
    rooms = ndp_library.PATH.parent, ndp_library.PATH.parents[1] / "packets"
    sources = [str(source) for room in rooms for source in room.glob("*.c")]
    flags = [
        "-std=gnu11",
        "-O1",
        "-g",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-fsanitize=undefined",
        "-fno-sanitize-recover",
    ]
    subprocess.run(["gcc", *flags, "-shared", "-fPIC", "-o", str(library), *sources], check=True)
    return library
