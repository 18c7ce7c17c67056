"""Expected wall time of runs, from stored runs or the time that the experiment declares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean

from weft.experiments.runner.definition import Experiment, Run
from weft.experiments.runner.results import Store
from weft.experiments.runner.sweep import timed

DECLARED_CORES = 2  # on which takes_s was measured


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
    declared_s = declared(experiment)
    expected_s: dict[Run, float | None] = {}
    for run in runs:
        engine = (run.engine, run.clock)
        cell = tuple(run.parameters[key] for key in experiment.sweep)
        times_s = stored_s.get((*engine, *cell)) or stored_s.get(engine)
        expected_s[run] = mean(times_s) if times_s else declared_s
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
