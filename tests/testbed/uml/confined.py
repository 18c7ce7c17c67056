"""Processes that are confined as the kernel of User-Mode Linux is, without one.

Started as a program, it has uml_confine.c confine it, and becomes the command in its arguments, or
runs the Python that follows -c: what that may do is what a command could that has taken over the
kernel.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

from weft.testbed.uml import confinement, uml
from weft.testbed.uml.confinement import Channels

PROCESSES = 20


def run_confined(
    *argv: str, common: Path, folder: Path, writable: Path | None = None, file_bytes: int = 1 << 20
) -> str:
    """Return the output of a command that is confined as a kernel would be, and its errors.

    common: empty folder, for the channels.
    """
    Channels(common).__exit__(None, None, None)
    (common / "rules").write_text(confinement.rules(common, folder, writable))
    done = subprocess.run(
        [sys.executable, "-I", __file__, *argv],
        cwd=folder,
        env={
            "PATH": os.environ["PATH"],
            "LD_PRELOAD": str(uml.PRELOADED),
            "WEFT_RULES": str(common / "rules"),
            "WEFT_FILE_BYTES": str(file_bytes),
            "WEFT_PROCESSES": str(PROCESSES),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.stdout


if __name__ == "__main__":
    # without a function it starts no process, but the library confines this one before it tries
    ctypes.CDLL(None).clone(None, None, 0, None)
    if sys.argv[1] == "-c":
        exec(sys.argv[2])
    else:
        os.execvp(sys.argv[1], sys.argv[1:])
