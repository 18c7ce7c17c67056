"""Carrying a sweep out: what is stored is not repeated, what fails is noted, what is finished is kept."""

from __future__ import annotations

import ctypes
import multiprocessing
import signal
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from multiprocessing.connection import Connection, wait
from typing import Any, Protocol, cast

from experiments.runner.definition import Experiment, Run
from experiments.runner.ledger import Failure, Ledger, reason
from experiments.runner.results import Store

PR_SET_PDEATHSIG = 1

Ended = tuple[Run, Failure | None, float]
Attempt = Callable[[Run], Ended]


class Watcher(Protocol):
    """Is told of every run that ends."""

    def ended(self, run: Run, failure: Failure | None) -> None: ...


def remaining(runs: Iterable[Run], store: Store, ledger: Ledger) -> list[Run]:
    """Those of `runs` that have no result; what a killed sweep stored but did not enter in the ledger is entered."""
    left: list[Run] = []
    states: dict[str, dict[str, str]] = {}
    for run in runs:
        known = states.setdefault(run.experiment, ledger.states(run.experiment))
        if run not in store:
            left.append(run)
        elif known.get(run.id) != "done":
            ledger.done(run, store.circumstances(run)["wall_s"])
    return left


def sweep(
    experiment: Experiment,
    runs: Sequence[Run],
    store: Store,
    ledger: Ledger,
    *,
    jobs: int,
    circumstances: Mapping[str, Any],
    watcher: Watcher,
    scheduler: str = "",
) -> dict[Run, Failure]:
    """Carry `runs` out and store what they give; returns those that could not be measured.

    Runs on the kernel come one at a time, for they would slow each other; others `jobs` at a time, or on the workers of
    the dask.distributed `scheduler`.  KeyboardInterrupt ends the sweep with what was finished stored.
    """
    failures: dict[Run, Failure] = {}
    one = partial(attempt, experiment, store, circumstances)
    store.sweep_up()
    try:
        away = [run for run in runs if scheduler and run.engine != "kernel"]
        here = [run for run in runs if not scheduler or run.engine == "kernel"]
        for run, failure, wall_s in chain(elsewhere(store, scheduler, away), carry_out(one, here, jobs)):
            if failure:
                failures[run] = failure
                ledger.failed(run, failure, wall_s)
            else:
                ledger.done(run, wall_s)
            watcher.ended(run, failure)
    finally:
        store.sweep_up()
    return failures


def carry_out(one: Attempt, runs: Sequence[Run], jobs: int) -> Iterator[Ended]:
    """Each of `runs` as it ends."""
    together = [run for run in runs if run.engine != "kernel" and jobs > 1]
    if together:
        yield from in_processes(one, together, min(jobs, len(together)))
    for run in runs:
        if run.engine == "kernel" or jobs == 1:
            yield one(run)


def in_processes(one: Attempt, runs: Sequence[Run], jobs: int) -> Iterator[Ended]:
    """carry_out() in `jobs` processes, which end with this one whatever becomes of it.

    A process that dies, for want of memory perhaps, costs the run that it was at and no other.
    """
    import pyarrow.parquet  # noqa: F401  once, before the processes part

    left = list(reversed(runs))
    workers: dict[Connection, Worker] = {}
    try:
        while left or workers:
            while left and len(workers) < jobs:
                worker = Worker(one)
                workers[worker.pipe] = worker
                worker.give(left.pop())
            for pipe in wait(list(workers)):
                worker = workers[cast(Connection, pipe)]
                yield worker.take()
                if left and worker.process.is_alive():
                    worker.give(left.pop())
                else:
                    workers.pop(worker.pipe).end()
    finally:
        for worker in workers.values():
            worker.end()


class Worker:
    """A process that carries out one run after the other."""

    def __init__(self, one: Attempt) -> None:
        context = multiprocessing.get_context("fork")  # inherits what is imported and compiled already
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=work, args=(one, theirs), daemon=True)
        self.process.start()
        theirs.close()  # so that its death is the end of the pipe

    def give(self, run: Run) -> None:
        self.run, self.begin = run, time.monotonic()
        self.pipe.send(run)

    def take(self) -> Ended:
        """What became of the run that was given."""
        try:
            ended: Ended = self.pipe.recv()
        except (EOFError, ConnectionError):
            self.process.join()
            why = f"the process that measured it died (exit status {self.process.exitcode})"
            return self.run, Failure(why, ""), time.monotonic() - self.begin
        return ended

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


def work(one: Attempt, pipe: Connection) -> None:
    """What a Worker does: leave Ctrl-C to the parent, die with it, and carry out the runs that it sends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    while True:
        pipe.send(one(pipe.recv()))


def elsewhere(store: Store, scheduler: str, runs: Sequence[Run]) -> Iterator[Ended]:
    """Each of `runs` as it ends on a worker of `scheduler` and is stored here."""
    if not runs:
        return
    from experiments.runner.cluster import on_cluster

    for run, given, circumstances, wall_s in on_cluster(scheduler, runs):
        if isinstance(given, Failure):
            yield run, given, wall_s
            continue
        try:
            store.put(run, given, circumstances, wall_s)
        except Exception as error:
            yield run, Failure(reason(error), traceback.format_exc()), wall_s
        else:
            yield run, None, wall_s


def attempt(experiment: Experiment, store: Store, circumstances: Mapping[str, Any], run: Run) -> Ended:
    """Measure and store `run`, and the wall time in seconds that it took; an error is its outcome, not the sweep's."""
    begin = time.monotonic()
    try:
        result = experiment.measure(run)
        wall_s = time.monotonic() - begin
        store.put(run, result, circumstances, wall_s)
    except Exception as error:
        if stop := interrupt_behind(error):
            raise stop from error
        return run, Failure(reason(error), traceback.format_exc()), time.monotonic() - begin
    return run, None, wall_s


def interrupt_behind(error: BaseException) -> BaseException | None:
    """The interrupt that `error` came in the way of: while a context is left, what it waits for may be gone already."""
    before = error.__context__
    while before and isinstance(before, Exception):
        before = before.__context__
    return before
