"""One run of a sweep, measured in this process or on a kernel of its own."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from typing import Any, NamedTuple

from weft.daemons.core.compiled import compile_s
from weft.experiments.runner.definition import Experiment, Result, Run
from weft.experiments.runner.failures import RunFailure, interrupt_behind, reason
from weft.testbed.linux import clock

worker_number = 0  # of this process


class EndedRun(NamedTuple):
    """A finished run: result or failure, wall time without compiling, provenance, and compiling."""

    run: Run
    outcome: Result | RunFailure
    wall_s: float
    about: Mapping[str, Any]
    compile_s: float = 0.0


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
    except Exception as error:
        if stop := interrupt_behind(error):
            raise stop from error
        outcome = RunFailure(reason(error), traceback.format_exc())
    compiled_s = compile_s() - compiled_s
    return EndedRun(run, outcome, clock.monotonic() - begin - compiled_s, about, compiled_s)
