"""Processes of a run: isolated Python, which may watch the run and end with it.

They import weft's and Python's modules only, and none from the current folder.  `python -m`
searches the current folder and PYTHONPATH first: as root, it would run a module called pickle from
another user's folder.  An isolated process starts in /, does not search there, and inherits only
the environment variables in KEPT.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, Any

from weft.testbed.linux import clock, netns
from weft.testbed.runs import private_files
from weft.testbed.runs.run import ENVIRONMENT, RunRecord

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


PR_SET_PDEATHSIG = 1
END_S = 5.0  # time to end after SIGTERM


def start(
    run: RunRecord,
    module: str,
    argv: Sequence[str],
    *,
    stdout: int | IO[Any] | None = None,
    alone: bool = False,
) -> subprocess.Popen[bytes]:
    """Start the weft module `module` as a process of `run`, which ends with the run.

    Args:
        run: the run.
        module: full name of the module.
        argv: its arguments.
        stdout: as of subprocess.Popen.
        alone: the process outlives this one and the terminal; its errors go to the run's log.
    """
    with ExitStack() as opened:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        path = run.directory / "log" / "view.err"
        errors = (
            opened.enter_context(open(private_files.open_file(path, flags), "wb"))
            if alone
            else None
        )
        return subprocess.Popen(
            command(module, argv),
            cwd=FOLDER,
            env=environment({ENVIRONMENT: run.id}),
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=errors,
            start_new_session=alone,
        )


def end_with_parent() -> None:
    """End this process with its parent, and without a traceback on SIGINT, SIGTERM or SIGPIPE."""
    parent = os.getppid()
    for number in (signal.SIGINT, signal.SIGPIPE, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    netns.libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def wait(process: subprocess.Popen[bytes], run: RunRecord) -> int:
    """Wait for the end of `process`, which also ends if this call is interrupted.

    Returns:
        0 if it ended with its run, else its exit status.

    Raises:
        OSError: the process was killed, and the run goes on.
    """
    try:
        status = process.wait()
    except BaseException:
        process.terminate()
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        raise
    if status == -signal.SIGPIPE:
        raise BrokenPipeError("the reader of the events went away")
    if status == -signal.SIGKILL:
        with suppress(TimeoutError):
            clock.wait_until("the run has ended", lambda: not run.alive(), timeout_s=END_S)
            return 0
        raise OSError(f"the process that watches run {run.id} was killed")
    return abs(status)
