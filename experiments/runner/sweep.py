"""Carrying a sweep out: what is stored is not repeated, what fails is noted, what is finished is
kept."""

from __future__ import annotations

import ctypes
import multiprocessing
import signal
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, count
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple, Protocol, cast

from weft.experiments.runner.definition import Experiment, Result, Run
from weft.experiments.runner.failures import RunFailure, reason
from weft.experiments.runner.results import RunClaim, Store
from weft.testbed.linux import clock

PR_SET_PDEATHSIG = 1
number_of_worker = 0  # of this process
LOOK_EVERY_S = 0.1  # whether another process has ended a run


class EndedRun(NamedTuple):
    """A run that ended, what it gave or why there is none, how long it took, and with what it was
    measured."""

    run: Run
    given: Result | RunFailure
    wall_s: float
    about: Mapping[str, Any]


class Swept(NamedTuple):
    """measured: the runs that are stored now by this sweep.  failures: those that could not be
    measured."""

    measured: list[Run]
    failures: dict[Run, RunFailure]


RunAttempt = Callable[[Run], EndedRun]


class Watcher(Protocol):
    """Is told of every run that ends."""

    def ended(self, run: Run, failure: RunFailure | None) -> None: ...


def remaining(runs: Iterable[Run], store: Store) -> list[Run]:
    """Those of `runs` that have no result."""
    states: dict[str, dict[str, str]] = {}
    for run in (runs := list(runs)):
        states.setdefault(run.experiment, store.states(run.experiment))
    return [run for run in runs if states[run.experiment].get(run.id) != "done"]


def sweep(
    experiment: Experiment,
    runs: Sequence[Run],
    store: Store,
    *,
    jobs: int,
    about: Mapping[str, Any],
    watcher: Watcher,
    scheduler: str = "",
    again: bool = False,
) -> Swept:
    """Carry `runs` out and store what they give, with what is to be said `about` code and machine.

    Runs on the kernel in real time come one at a time, for they would slow each other; others
    `jobs` at a time, or on the workers of the dask.distributed `scheduler`.  What another process
    is measuring is waited for; `again`: what is stored is measured, too.  KeyboardInterrupt ends
    the sweep with what was finished stored, and so does an OSError of `store`.
    """
    swept = Swept([], {})
    together, alone = (
        Queue([run for run in runs if timed(run) is by_machine], store, watcher, again=again)
        for by_machine in (False, True)
    )
    one = partial(attempt, experiment, about)
    try:
        several = on_workers(scheduler, together) if scheduler else carry_out(one, together, jobs)
        for ended in chain(several, carry_out(one, alone, 1)):
            failure = keep(store, ended)
            if failure:
                swept.failures[ended.run] = failure
            else:
                swept.measured.append(ended.run)
            watcher.ended(ended.run, failure)
    finally:
        store.release_claims()
    return swept


def timed(run: Run) -> bool:
    """Whether other work on this machine would change what `run` gives."""
    return run.engine == "kernel" and run.clock == "real"


def keep(store: Store, ended: EndedRun) -> RunFailure | None:
    """Store what became of a run; why it failed, if it did."""
    failure = ended.given if isinstance(ended.given, RunFailure) else None
    if not isinstance(ended.given, RunFailure):
        try:
            store.put(ended.run, ended.given, ended.about, ended.wall_s)
        except (ValueError, TypeError) as error:  # what it gave is no row
            failure = RunFailure(reason(error), traceback.format_exc())
    if failure:
        store.fail(ended.run, failure, ended.wall_s)
    return failure


class Queue:
    """Runs that are to be measured, each handed out once this process has claimed it."""

    def __init__(self, runs: Iterable[Run], store: Store, watcher: Watcher, *, again: bool) -> None:
        self.left, self.store, self.watcher, self.again = deque(runs), store, watcher, again

    def take(self) -> Run | None:
        """A run that nobody else measures; None if there is none at present."""
        for _ in range(len(self.left)):
            run = self.left.popleft()
            claim = self.store.claim(run, again=self.again)
            if claim is RunClaim.OURS:
                return run
            if claim is RunClaim.STORED:
                self.watcher.ended(run, None)
            else:
                self.left.append(run)
        return None

    def wait(self) -> Run | None:
        """A run that nobody else measures, once there is one; None if others have ended all that
        were left."""
        while not (run := self.take()) and self.left:
            clock.sleep(LOOK_EVERY_S)
        return run


def carry_out(one: RunAttempt, queue: Queue, jobs: int) -> Iterator[EndedRun]:
    """Each run of `queue` as it ends, `jobs` at a time."""
    if jobs > 1 and queue.left:
        yield from in_processes(one, queue, min(jobs, len(queue.left)))
        return
    while run := queue.wait():
        yield one(run)


def in_processes(one: RunAttempt, queue: Queue, jobs: int) -> Iterator[EndedRun]:
    """carry_out() in `jobs` processes, which end with this one whatever becomes of it.

    A process that dies, for want of memory perhaps, costs the run that it was at and no other.
    """
    workers: dict[Connection, Worker] = {}
    numbers = count()
    try:
        while queue.left or workers:
            while len(workers) < jobs and (run := queue.take() if workers else queue.wait()):
                worker = Worker(one, next(numbers))
                workers[worker.pipe] = worker
                worker.give(run)
            # without one it would wait for ever
            for pipe in wait(list(workers)) if workers else ():
                worker = workers[cast(Connection, pipe)]
                yield worker.take()
                if worker.process.is_alive() and (run := queue.take()):
                    worker.give(run)
                else:
                    workers.pop(worker.pipe).end()
    finally:
        for worker in workers.values():
            worker.end()


class Worker:
    """A process that carries out one run after the other."""

    def __init__(self, one: RunAttempt, number: int) -> None:
        # inherits what is imported and compiled already
        context = multiprocessing.get_context("fork")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=work, args=(one, theirs, number), daemon=True)
        self.process.start()
        theirs.close()  # so that its death is the end of the pipe

    def give(self, run: Run) -> None:
        self.run, self.begin = run, clock.monotonic()
        self.pipe.send(run)

    def take(self) -> EndedRun:
        """What became of the run that was given."""
        try:
            ended: EndedRun = self.pipe.recv()
        except (EOFError, ConnectionError):
            self.process.join()
            why = f"the process that measured it died (exit status {self.process.exitcode})"
            return EndedRun(self.run, RunFailure(why, ""), clock.monotonic() - self.begin, {})
        return ended

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


def work(one: RunAttempt, pipe: Connection, number: int) -> None:
    """What a Worker does: leave Ctrl-C to the parent, die with it, and carry out the runs that it
    sends."""
    global number_of_worker
    number_of_worker = number
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    while True:
        pipe.send(one(pipe.recv()))


def on_workers(scheduler: str, queue: Queue) -> Iterator[EndedRun]:
    """Each run of `queue` as it ends on a worker of `scheduler`."""
    from weft.experiments.runner.cluster import on_cluster

    while first := queue.wait():
        runs = [first]
        while run := queue.take():
            runs.append(run)
        for answer in on_cluster(scheduler, runs):
            yield EndedRun(answer.run, answer.given, answer.wall_s, answer.about)


def attempt(experiment: Experiment, about: Mapping[str, Any], run: Run) -> EndedRun:
    """Measure `run`; an error is its outcome, not the sweep's."""
    begin = clock.monotonic()
    try:
        if run.clock == "virtual":
            return under_virtual_clock(about, run)
        result = experiment.carry_out(run)
    except Exception as error:
        if stop := interrupt_behind(error):
            raise stop from error
        return EndedRun(
            run, RunFailure(reason(error), traceback.format_exc()), clock.monotonic() - begin, {}
        )
    return EndedRun(run, result, clock.monotonic() - begin, about)


def under_virtual_clock(about: Mapping[str, Any], run: Run) -> EndedRun:
    """Measure `run` on a kernel of its own; about code and machine, that kernel has its own say."""
    from weft.experiments.runner import virtual_runs

    begin = clock.monotonic()
    answer = virtual_runs.measure(run, core=virtual_runs.core(number_of_worker))
    return EndedRun(
        run, answer.given, clock.monotonic() - begin, {**about, "inside": dict(answer.about)}
    )


def interrupt_behind(error: BaseException) -> BaseException | None:
    """The interrupt that `error` came in the way of: while a context is left, what it waits for may
    be gone already."""
    before = error.__context__
    while before and isinstance(before, Exception):
        before = before.__context__
    return before
