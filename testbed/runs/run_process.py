"""A process that belongs to a run without being part of it: it watches the run, and ends with
it."""

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
END_S = 5.0  # what it may take to end


def start(
    run: RunRecord,
    module: str,
    argv: Sequence[str],
    *,
    stdout: int | IO[Any] | None = None,
    alone: bool = False,
) -> subprocess.Popen[bytes]:
    """Start the module of weft's called `module` as a process of `run`: whoever takes the run down
    ends it.

    alone: let it outlive this process, deaf to the keyboard; its errors go to the run's log.
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
        )


def end_with_parent() -> None:
    """Let this process end when the one that started it does, in whatever way, and in silence when
    its reader goes away or somebody presses Ctrl-C."""
    parent = os.getppid()
    for number in (signal.SIGINT, signal.SIGPIPE, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    netns.libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def wait(process: subprocess.Popen[bytes], run: RunRecord) -> int:
    """Return when `process` has ended: 0 if it ended with its run, else its exit status.

    OSError if somebody has killed it and the run goes on.

    However this call ends, the process has ended too.
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
        raise OSError(f"somebody has killed what watches run {run.id}")
    return abs(status)
