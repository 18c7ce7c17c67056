"""One run under the virtual clock: on a kernel of its own, booted for it and seeded with it
(testbed/uml/uml.py).

A run is handed over as JSON and its answer comes back as JSON.  Inside nothing of the host is
writable, compiled code is kept for this run alone, and the environment says no more than where
programs are, so that what happens depends on the code and on the run, and on nothing else.  What an
experiment predicts of the run is computed outside: a model is no part of what is measured, and its
compiled code would be made anew for each run.
"""

from __future__ import annotations

import json
import os
import traceback
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from weft.experiments.runner.definition import Result, Run, find
from weft.experiments.runner.failures import RunFailure, reason
from weft.testbed.linux import clock
from weft.testbed.network.bring_up import HOP_NS
from weft.testbed.runs import isolated_python
from weft.testbed.uml import uml

FOLDER = Path("/run/uml")
RUN, ANSWER = "run.json", "answer.json"
COMPILED = "/tmp/compiled"  # where numba keeps its work inside
MEMORY_MB = 3000
LONGEST_S = 86_400.0  # of real time


@dataclass(frozen=True)
class VirtualRunResult:
    """What a run gave or why there is none, and what was said of the machine inside."""

    given: Result | RunFailure
    about: Mapping[str, Any]


def measure(run: Run, *, core: int | None = None) -> VirtualRunResult:
    """Measure `run` on a kernel of its own, which stays on processor `core`; what is predicted of
    it is computed here.

    FileNotFoundError if that kernel has not been built and cannot be, ChildProcessError with its
    last words if it dies, and whatever the prediction raises.
    """
    exchange = uml.Exchange({RUN: json.dumps(run.content)}, [ANSWER])
    seeded = uml.VirtualClock(seed=run.seed + 1, syscall_ns=run.syscall_ns)
    environment = os.environ | {"NUMBA_CACHE_DIR": COMPILED, HOP_NS: str(run.hop_ns)}
    argv = isolated_python.command("weft.experiments.runner.virtual_runs")
    status = uml.run(
        argv,
        virtual=seeded,
        memory_mb=MEMORY_MB,
        core=core,
        timeout_s=LONGEST_S,
        env=environment,
        exchange=exchange,
    )
    if ANSWER not in exchange.taken:
        raise ChildProcessError(f"{run}: ended with status {status} and without an answer")
    told = json.loads(exchange.taken[ANSWER])
    if "failure" in told:
        return VirtualRunResult(RunFailure(**told["failure"]), told["about"])
    return VirtualRunResult(
        find(run.experiment).with_prediction(run, Result(**told["result"])), told["about"]
    )


def core(number: int) -> int:
    """The processor for the worker with that number: another for each, as long as there are any."""
    cores = sorted(os.sched_getaffinity(0))
    return cores[number % len(cores)]


def answer(run: Run) -> dict[str, Any]:
    """What is measured of a run, JSON-able; called inside."""
    from weft.experiments.runner.provenance import code_and_machine

    begin = clock.monotonic()
    told: dict[str, Any]
    try:
        result = find(run.experiment).measure(run)
        told = {"result": asdict(replace(result, virtual_s=round(clock.monotonic() - begin, 9)))}
    except Exception as error:
        told = {"failure": RunFailure(reason(error), traceback.format_exc())._asdict()}
    return {**told, "about": code_and_machine(kernel=True)}


def main() -> None:
    """Within User-Mode Linux: do the run that lies in FOLDER, and leave the answer there."""
    run = Run(**json.loads((FOLDER / RUN).read_text(encoding="utf-8")))
    (FOLDER / ANSWER).write_text(json.dumps(answer(run)), encoding="utf-8")


if __name__ == "__main__":
    main()
