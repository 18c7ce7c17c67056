"""Processes that watch a run and end with it."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from typing import IO, Any

from weft.testbed.linux import clock, netns
from weft.testbed.runs import isolated_python, private_files
from weft.testbed.runs.run import ENVIRONMENT, RunRecord

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
            isolated_python.command(module, argv),
            cwd=isolated_python.FOLDER,
            env=isolated_python.environment({ENVIRONMENT: run.id}),
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=errors,
            start_new_session=alone,
            # Python would show where Ctrl-C met its imports; the module decides about it after them
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
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
