"""Sweeps: measure the runs that are not stored, store results and failures at once.

A run is measured in a process here, on a kernel of its own, or by a worker of a dask.distributed
cluster.  A worker receives a run and returns its result; rows are stored here, so workers share
only the code.  A worker measures one run at a time: the graph engine uses all cores, and times are
measured.

How long it will take is told by stored runs, or by the time that the experiment declares.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import signal
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import chain, count
from multiprocessing.connection import Connection, wait
from statistics import mean
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

from weft.daemons.core.compiled import compile_s
from weft.experiments.runner.definition import Experiment, Result, Run, find
from weft.experiments.runner.results import RunClaim, RunFailure, Store, reason
from weft.testbed.linux import clock
from weft.testbed.linux.process import interrupt_behind

if TYPE_CHECKING:
    from distributed import Client

PR_SET_PDEATHSIG = 1
CTRL_C = {signal.SIGINT}
CONNECT_S, POLL_S = 10.0, 0.1  # POLL_S: for runs that other processes measure
DECLARED_CORES = 2  # on which takes_s was measured

worker_number = 0  # of this process
one_at_a_time = Lock()  # of this process


class EndedRun(NamedTuple):
    """A finished run: result or failure, wall time without compiling, provenance, and compiling."""

    run: Run
    outcome: Result | RunFailure
    wall_s: float
    about: Mapping[str, Any]
    compile_s: float = 0.0


RunAttempt = Callable[[Run], EndedRun]


def attempt(
    experiment: Experiment, about: Mapping[str, Any], run: Run, *, pinned: bool = True
) -> EndedRun:
    """Measure `run`; an error becomes its outcome and does not end the sweep.

    Args:
        experiment: that the run is of.
        about: provenance; `inside` is added, that of the kernel for virtual time.
        run: to measure.
        pinned: a kernel for virtual time has the processor of this worker.
    """
    from weft.experiments.runner import virtual_runs

    begin, compiled_s = clock.monotonic(), compile_s()
    outcome: Result | RunFailure
    try:
        if run.clock == "virtual":
            core = virtual_runs.core(worker_number) if pinned else None
            outcome, inside = virtual_runs.measure(run, core=core)
            about = {**about, "inside": dict(inside)}
        else:
            outcome = experiment.carry_out(run)
    except (Exception, SystemExit) as error:  # an experiment of a package may call sys.exit()
        if stop := interrupt_behind(error):
            raise stop from error
        outcome = RunFailure(reason(error), traceback.format_exc())
    compiled_s = compile_s() - compiled_s
    return EndedRun(run, outcome, clock.monotonic() - begin - compiled_s, about, compiled_s)


class Swept(NamedTuple):
    """Outcome of a sweep.  measured: runs that this sweep stored.  failures: by run."""

    measured: list[Run]
    failures: dict[Run, RunFailure]


class Watcher(Protocol):
    """Receiver of progress: ended() is called for each finished run."""

    def ended(
        self, run: Run, failure: RunFailure | None, run_s: float = 0.0, compile_s: float = 0.0, /
    ) -> None: ...


class SilentWatcher:
    """Receiver of progress that prints nothing."""

    def ended(self, *_: object) -> None: ...


def remaining(runs: Iterable[Run], store: Store) -> list[Run]:
    """Return the runs without a stored row."""
    states: dict[str, dict[str, str]] = {}
    runs = list(runs)
    for run in runs:
        states.setdefault(run.experiment, store.states(run.experiment))
    return [run for run in runs if states[run.experiment].get(run.id) != "done"]


def sweep(
    experiment: Experiment,
    runs: Sequence[Run],
    store: Store,
    *,
    workers: int | str,
    about: Mapping[str, Any],
    watcher: Watcher,
    again: bool = False,
) -> Swept:
    """Measure `runs` and store the results.

    Runs on the kernel in real time are measured one at a time, because they slow each other.  The
    sweep waits for runs that another process measures.  After KeyboardInterrupt, or an OSError of
    `store`, the finished runs are stored.

    Args:
        experiment: that the runs are of.
        runs: to measure.
        store: for the results.
        watcher: is told of each run that ends.
        workers: number of processes, or the address of a scheduler of dask.distributed.
        about: provenance: code and machine.
        again: measure stored runs, too.
    """
    swept = Swept([], {})
    together, alone = (
        Queue([run for run in runs if timed(run) is by_machine], store, watcher, again=again)
        for by_machine in (False, True)
    )
    run_attempt = partial(attempt, experiment, about)
    try:
        if isinstance(workers, str):
            ended_runs = on_workers(workers, together)
        else:
            ended_runs = carry_out(run_attempt, together, workers)
        for ended in chain(ended_runs, carry_out(run_attempt, alone, 1)):
            failure = keep(store, ended)
            if failure:
                swept.failures[ended.run] = failure
            else:
                swept.measured.append(ended.run)
            watcher.ended(ended.run, failure, ended.wall_s, ended.compile_s)
    finally:
        store.release_claims()
    return swept


def timed(run: Run) -> bool:
    """Return True if other work on this machine would change the result of `run`."""
    return run.engine == "kernel" and run.clock == "real"


def keep(store: Store, ended: EndedRun) -> RunFailure | None:
    """Store the outcome of a run; return its failure, if any."""
    failure = ended.outcome if isinstance(ended.outcome, RunFailure) else None
    if not isinstance(ended.outcome, RunFailure):
        try:
            store.put(ended.run, ended.outcome, ended.about, ended.wall_s)
        except (ValueError, TypeError) as error:  # a row cannot hold the result
            failure = RunFailure(reason(error), traceback.format_exc())
    if failure:
        store.fail(ended.run, failure, ended.wall_s)
    return failure


class Queue:
    """Runs to measure; take() claims each for this process."""

    def __init__(self, runs: Iterable[Run], store: Store, watcher: Watcher, *, again: bool) -> None:
        self.remaining = deque(runs)
        self.store = store
        self.watcher = watcher
        self.again = again

    def take(self) -> Run | None:
        """Claim and return a run; None if other processes measure all that remain."""
        for _ in range(len(self.remaining)):
            run = self.remaining.popleft()
            claim = self.store.claim(run, again=self.again)
            if claim is RunClaim.OURS:
                return run
            if claim is RunClaim.STORED:
                self.watcher.ended(run, None)
            else:
                self.remaining.append(run)
        return None

    def wait(self) -> Run | None:
        """Wait until a run can be claimed, and return it; None if none remains."""
        while not (run := self.take()) and self.remaining:
            clock.sleep(POLL_S)
        return run


def carry_out(run_attempt: RunAttempt, queue: Queue, jobs: int) -> Iterator[EndedRun]:
    """Yield each run of `queue` when it ends, `jobs` in parallel."""
    if jobs > 1 and queue.remaining:
        yield from in_processes(run_attempt, queue, min(jobs, len(queue.remaining)))
        return
    while run := queue.wait():
        yield run_attempt(run)


def in_processes(run_attempt: RunAttempt, queue: Queue, jobs: int) -> Iterator[EndedRun]:
    """Yield each run of `queue` when it ends, measured by `jobs` processes.

    The processes die with this one.  A process that dies fails its current run only.
    """
    workers: dict[Connection, Worker] = {}
    numbers = count()
    try:
        while queue.remaining or workers:
            while len(workers) < jobs and (run := queue.take() if workers else queue.wait()):
                worker = Worker(run_attempt, next(numbers))
                workers[worker.pipe] = worker
                worker.give(run)
            # wait() of an empty list never returns
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
    """A process that measures one run after the other."""

    def __init__(self, run_attempt: RunAttempt, number: int) -> None:
        # a fork inherits imported modules and compiled code
        context = multiprocessing.get_context("fork")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=work, args=(run_attempt, theirs, number), daemon=True)
        signal.pthread_sigmask(signal.SIG_BLOCK, CTRL_C)  # until it ignores it
        try:
            self.process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, CTRL_C)
        theirs.close()  # the death of the process closes the pipe

    def give(self, run: Run) -> None:
        self.run = run
        self.begin_s = clock.monotonic()
        self.pipe.send(run)

    def take(self) -> EndedRun:
        """Return the outcome of the current run, or the failure that the process died."""
        try:
            ended: EndedRun = self.pipe.recv()
        except (EOFError, ConnectionError):
            self.process.join()
            why = f"the process that measured it died (exit status {self.process.exitcode})"
            return EndedRun(self.run, RunFailure(why, ""), clock.monotonic() - self.begin_s, {})
        return ended

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


def work(run_attempt: RunAttempt, pipe: Connection, number: int) -> None:
    """Measure the runs from `pipe` in a Worker's process.

    The process ignores Ctrl-C and dies with its parent.
    """
    global worker_number
    worker_number = number
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, CTRL_C)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    while True:
        pipe.send(run_attempt(pipe.recv()))


def on_workers(scheduler: str, queue: Queue) -> Iterator[EndedRun]:
    """Yield each run of `queue` when it ends on a worker of `scheduler`."""
    while first := queue.wait():
        runs = [first]
        while run := queue.take():
            runs.append(run)
        yield from on_cluster(scheduler, runs)


def on_cluster(address: str, runs: Sequence[Run]) -> Iterator[EndedRun]:
    """Yield each of `runs` when it ends on a worker of the scheduler at `address`.

    A run whose worker dies is measured by another worker, unless it has killed several.

    Raises:
        ValueError: distributed is not installed, or there are no workers.
        OSError: the scheduler does not answer.
    """
    client = connect(address)
    try:
        yield from answers(client, runs)
    finally:
        client.close()


def connect(address: str) -> Client:
    """Return a client of the scheduler at `address`, such as tcp://host:8786."""
    try:
        from distributed import Client
    except ImportError:
        raise ValueError(
            "--scheduler needs dask.distributed: pip install 'weft-testbed[cluster]'"
        ) from None
    client = Client(address, timeout=CONNECT_S, set_as_default=False)
    if not client.scheduler_info()["workers"]:
        client.close()
        raise ValueError(
            f"the scheduler at {address} has no workers: dask worker {address} starts one"
        )
    return client


def answers(client: Client, runs: Sequence[Run]) -> Iterator[EndedRun]:
    """Yield each of `runs` when it ends; cancel the others when the caller stops."""
    from distributed import as_completed

    pending = {}
    for run in runs:
        key = f"{run.id}-{clock.wall_ns()}"
        pending[client.submit(answer, run, pure=False, key=key)] = run
    try:
        for future in as_completed(list(pending), loop=client.loop):
            if future.status == "finished":
                yield future.result()
            elif future.status == "cancelled":
                raise ConnectionError("the scheduler ended and lost its runs")
            else:
                error = future.exception()
                yield EndedRun(pending[future], RunFailure(reason(error), ""), 0.0, {})
            del pending[future]  # frees the result in the scheduler
    finally:
        client.cancel(list(pending))


def answer(run: Run) -> EndedRun:
    """Measure `run`; called on a worker."""
    experiment = find(run.experiment)
    version = experiment.version_of(run.engine, run.parameters)
    if version != run.version:
        raise ValueError(f"{run.experiment} is version {version} on the worker, {run.version} here")
    with one_at_a_time:
        return attempt(experiment, about_here(), run, pinned=False)


@cache
def about_here() -> dict[str, Any]:
    """Return the provenance of this process."""
    from weft.experiments.runner.provenance import code_and_machine

    return code_and_machine(kernel=False)


def estimates(experiment: Experiment, runs: Sequence[Run], store: Store) -> dict[Run, float | None]:
    """Return the expected time of each run by itself, in s; None if it is unknown.

    It is the mean of stored runs of the same cell, or else of all that are stored on the same
    engine and clock, or else the time that the experiment declares.
    """
    stored_s: dict[tuple[object, ...], list[float]] = {}
    for row, about in store.table(experiment):
        wall_s = about.get("wall_s")
        if wall_s is not None:
            engine = (row["engine"], row.get("clock", "real"))
            cell = tuple(row[key] for key in experiment.sweep)
            for key in (engine, (*engine, *cell)):
                stored_s.setdefault(key, []).append(float(wall_s))
    declared_s = cache(partial(declared, experiment))  # which plans its sweep
    expected_s: dict[Run, float | None] = {}
    for run in runs:
        engine = (run.engine, run.clock)
        cell = tuple(run.parameters[key] for key in experiment.sweep)
        times_s = stored_s.get((*engine, *cell)) or stored_s.get(engine)
        expected_s[run] = mean(times_s) if times_s else declared_s()
    return expected_s


def declared(experiment: Experiment) -> float | None:
    """Return the time of a run of the default sweep on one core, as the experiment declares it."""
    if experiment.takes_s is None:
        return None
    runs = experiment.default_runs()
    cores = 1 if timed(runs[0]) and experiment.clock == "real" else DECLARED_CORES
    return cores * experiment.takes_s / len(runs)


def total_s(expected_s: Mapping[Run, float | None], jobs: int) -> float | None:
    """Return the time of all runs, `jobs` at a time; None if that of any is unknown.

    Runs on the kernel in real time go one after the other.
    """
    if None in expected_s.values():
        return None
    alone_s = sum(seconds or 0 for run, seconds in expected_s.items() if timed(run))
    together_s = [seconds or 0 for run, seconds in expected_s.items() if not timed(run)]
    return alone_s + max(sum(together_s) / max(1, jobs), max(together_s, default=0))
