"""Carrying a sweep out: what is stored is not repeated, what fails is noted, what is finished is kept."""

from __future__ import annotations

import ctypes
import multiprocessing
import signal
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import Any, Protocol

from experiments.ledger import Failure
from experiments.spec import Experiment, Result, Run
from experiments.store import Store, row_of

PR_SET_PDEATHSIG = 1

Ended = tuple[Run, Result | Failure, float]


class Watcher(Protocol):
    """Is told of every run that ends."""

    def ended(self, run: Run, ended: Result | Failure) -> None: ...


def sweep(
    experiment: Experiment,
    runs: Sequence[Run],
    store: Store,
    *,
    jobs: int,
    circumstances: Mapping[str, Any],
    watcher: Watcher,
) -> dict[Run, Failure]:
    """Carry `runs` out and store what they give; returns those that could not be measured.

    Runs on the kernel come one at a time, for they would slow each other; others `jobs` at a time.  KeyboardInterrupt
    ends the sweep with what was finished stored.
    """
    store.sweep_up()
    failures: dict[Run, Failure] = {}
    for run, ended, wall_s in carry_out(experiment, runs, jobs):
        if isinstance(ended, Failure):
            failures[run] = ended
            store.failed(run, ended, wall_s)
        else:
            store.put(run, ended, circumstances, wall_s)
        watcher.ended(run, ended)
    return failures


def carry_out(experiment: Experiment, runs: Sequence[Run], jobs: int) -> Iterator[Ended]:
    """Each of `runs` as it ends, with the wall time that it took in seconds."""
    together = [run for run in runs if run.engine != "kernel" and jobs > 1]
    alone = [run for run in runs if run.engine == "kernel" or jobs == 1]
    if together:
        yield from in_processes(experiment, together, min(jobs, len(together)))
    for run in alone:
        yield attempt(experiment, run)


def in_processes(experiment: Experiment, runs: Sequence[Run], jobs: int) -> Iterator[Ended]:
    """carry_out() with `jobs` processes, which end with this one whatever becomes of it."""
    context = multiprocessing.get_context("fork")  # inherits what is imported and compiled already
    pool = ProcessPoolExecutor(jobs, mp_context=context, initializer=follow_parent)
    try:
        for future in as_completed([pool.submit(attempt, experiment, run) for run in runs]):
            yield future.result()
    except BaseException:
        for child in multiprocessing.active_children():
            child.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def follow_parent() -> None:
    """Leave Ctrl-C to the parent, and die with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def attempt(experiment: Experiment, run: Run) -> Ended:
    """Measure `run`; an error is its outcome, and does not end the sweep."""
    begin = time.monotonic()
    try:
        result = experiment.measure(run)
        row_of(run, result)  # refuses here what would otherwise stop the sweep when it is stored
    except Exception as error:
        return run, Failure(reason(error), traceback.format_exc()), time.monotonic() - begin
    return run, result, time.monotonic() - begin


def reason(error: BaseException) -> str:
    """What went wrong, in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}".removesuffix(": ")
