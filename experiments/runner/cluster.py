"""Runs of a sweep on the workers of a dask.distributed cluster.

A worker gets a run and sends back what it gave; rows are stored here, so nothing need be shared but
the code.  It carries one run out at a time however many threads it has: the graph engine uses all
cores, and times are measured. Under the virtual clock the run has a kernel of its own there, too.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator, Sequence
from functools import cache
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

from weft.experiments.runner import virtual_runs
from weft.experiments.runner.definition import Result, Run, find
from weft.experiments.runner.failures import RunFailure, reason
from weft.testbed.linux import clock

if TYPE_CHECKING:
    from distributed import Client

CONNECT_S = 10.0

one_at_a_time = Lock()  # of this process


class WorkerResult(NamedTuple):
    """What became of a run on a worker: its result or why there is none, about the worker's code
    and machine, and the wall time."""

    run: Run
    given: Result | RunFailure
    about: dict[str, Any]
    wall_s: float


def on_cluster(address: str, runs: Sequence[Run]) -> Iterator[WorkerResult]:
    """Each of `runs` as it ends on a worker of the scheduler at `address`, tcp://host:8786 say.

    ValueError if distributed is not installed or there are no workers, OSError if the scheduler
    does not answer.  A worker that dies costs no run, unless the same run has killed several.
    """
    client = connect(address)
    try:
        yield from answers(client, runs)
    finally:
        client.close()


def connect(address: str) -> Client:
    """A client of the scheduler at `address`, which has workers."""
    try:
        from distributed import Client
    except ImportError:
        raise ValueError(
            "--scheduler needs dask.distributed: pip install 'weft-testbed[cluster]'"
        ) from None
    if not re.fullmatch(r"[a-z]+://\S+:\d+", address):
        raise ValueError(f"a scheduler's address looks like tcp://127.0.0.1:8786, got {address}")
    client = Client(address, timeout=CONNECT_S, set_as_default=False)
    if not client.scheduler_info()["workers"]:
        client.close()
        raise ValueError(
            f"the scheduler at {address} has no workers: dask worker {address} starts one"
        )
    return client


def answers(client: Client, runs: Sequence[Run]) -> Iterator[WorkerResult]:
    """Each of `runs` as it ends; what has not when nobody asks any more is cancelled."""
    from distributed import as_completed

    asked = {
        client.submit(answer, run, pure=False, key=f"{run.id}-{clock.wall_ns()}"): run
        for run in runs
    }
    try:
        for future in as_completed(list(asked), loop=client.loop):
            if future.status == "finished":
                yield future.result()
            elif future.status == "cancelled":
                raise ConnectionError("the scheduler is gone, and with it the runs that it had")
            else:
                error = future.exception()
                yield WorkerResult(asked[future], RunFailure(reason(error), ""), {}, 0.0)
            del asked[future]  # and with it what the scheduler keeps
    finally:
        client.cancel(list(asked))


def answer(run: Run) -> WorkerResult:
    """Carry `run` out; called on a worker."""
    experiment = find(run.experiment)
    if experiment.version != run.version:
        raise ValueError(
            f"{run.experiment} is version {experiment.version} on the worker, {run.version} here"
        )
    with one_at_a_time:
        begin = clock.monotonic()
        about = about_here()
        given: Result | RunFailure
        try:
            if run.clock == "virtual":
                found = virtual_runs.measure(run)
                given, about = found.given, {**about, "inside": dict(found.about)}
            else:
                given = experiment.carry_out(run)
        except Exception as error:
            given = RunFailure(reason(error), traceback.format_exc())
        return WorkerResult(run, given, about, clock.monotonic() - begin)


@cache
def about_here() -> dict[str, Any]:
    """The code and the machine of this process."""
    from weft.experiments.runner.provenance import code_and_machine

    return code_and_machine(kernel=False)
