"""How long runs will take, by those that are stored, or else by the time that the experiment declares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean

from weft.experiments.runner.definition import Experiment, Run
from weft.experiments.runner.results import Store
from weft.experiments.sweeps.sweep import timed

DECLARED_CORES = 2  # on which takes_s was measured


def estimates(experiment: Experiment, runs: Sequence[Run], store: Store) -> dict[Run, float | None]:
    """About how long each run takes by itself, in s; None if nobody knows.

    The mean of stored runs of the same cell, or else of all that are stored on the same engine and clock.
    """
    taken: dict[tuple[object, ...], list[float]] = {}
    for row, about in store.table(experiment):
        wall_s = about.get("wall_s")
        if wall_s is not None:
            engine = (row["engine"], row.get("clock", "real"))
            cell = tuple(row[key] for key in experiment.sweep)
            for key in (engine, (*engine, *cell)):
                taken.setdefault(key, []).append(float(wall_s))
    declared_s = declared(experiment)
    found: dict[Run, float | None] = {}
    for run in runs:
        engine = (run.engine, run.clock)
        like = taken.get((*engine, *(run.parameters[key] for key in experiment.sweep))) or taken.get(engine)
        found[run] = mean(like) if like else declared_s
    return found


def declared(experiment: Experiment) -> float | None:
    """What a run of the default sweep takes on one core, by the time that the experiment declares for all of them."""
    if experiment.takes_s is None:
        return None
    runs = experiment.runs()
    cores = 1 if timed(runs[0]) else DECLARED_CORES
    return cores * experiment.takes_s / len(runs)


def total_s(expected: Mapping[Run, float | None], jobs: int) -> float | None:
    """How long the runs take, those on the kernel in real time one after the other, others `jobs` at a time; None if
    nobody knows of one."""
    if None in expected.values():
        return None
    alone = sum(took or 0 for run, took in expected.items() if timed(run))
    together = [took or 0 for run, took in expected.items() if not timed(run)]
    return alone + max(sum(together) / max(1, jobs), max(together, default=0))
