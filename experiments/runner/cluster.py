"""Runs of a sweep on the workers of a dask.distributed cluster.

A worker receives a run and returns its result; rows are stored here, so workers share only the
code.  A worker measures one run at a time: the graph engine uses all cores, and times are measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from threading import Lock
from typing import TYPE_CHECKING, Any

from weft.experiments.runner.attempts import EndedRun, attempt
from weft.experiments.runner.definition import Run, find
from weft.experiments.runner.failures import RunFailure, reason
from weft.testbed.linux import clock

if TYPE_CHECKING:
    from distributed import Client

CONNECT_S = 10.0

one_at_a_time = Lock()  # of this process


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
