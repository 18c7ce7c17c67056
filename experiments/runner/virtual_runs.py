"""One run under the virtual clock, on a kernel that is booted and seeded for it.

Run and answer pass as JSON.  Inside, nothing of the host is writable, compiled code is kept for
this run alone, and the environment only says where programs are, so the result depends on the code
and the run alone.  Predictions are computed outside: a model is no part of the measurement, and
each run would compile its code again.

A run can be measured again, to check that it is repeatable.
"""

from __future__ import annotations

import json
import os
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, NamedTuple

from weft.experiments.runner.definition import Experiment, Result, Row, Run, find
from weft.experiments.runner.results import RunFailure, reason
from weft.experiments.runner.rows import plain_or_nothing, row_of, text_of
from weft.testbed.linux import clock
from weft.testbed.machine.machine import machine
from weft.testbed.runs import isolated_python
from weft.testbed.uml import host_questions, uml, virtual_kernel

RUN = "run.json"  # file inside
COMPILED = "/tmp/compiled"  # where numba keeps its work inside
MEMORY_MB = 3000
LONGEST_S = 86_400.0  # of real time


class VirtualRunResult(NamedTuple):
    """Result or failure of a run, and the provenance inside its kernel."""

    outcome: Result | RunFailure
    about: Mapping[str, Any]


def measure(run: Run, *, core: int | None = None) -> VirtualRunResult:
    """Measure `run` on a kernel of its own on processor `core`; compute predictions here.

    Raises:
        FileNotFoundError: the kernel is not built and cannot be built.
        ChildProcessError: the kernel died.
    """
    exchange = uml.Exchange({RUN: json.dumps(run.content)})
    settings = uml.VirtualClock(seed=run.seed + 1, syscall_ns=run.syscall_ns, hop_ns=run.hop_ns)
    argv = isolated_python.command("weft.experiments.runner.virtual_runs")
    status = uml.run(
        argv,
        virtual=settings,
        memory_mb=MEMORY_MB,
        core=core,
        timeout_s=LONGEST_S,
        env=os.environ | {"NUMBA_CACHE_DIR": COMPILED},
        exchange=exchange,
    )
    if not exchange.report:
        raise ChildProcessError(f"{run}: ended with status {status} and without an answer")
    reply = json.loads(exchange.report)
    if "failure" in reply:
        return VirtualRunResult(RunFailure(**reply["failure"]), reply["about"])
    result = find(run.experiment).with_prediction(run, Result(**reply["result"]))
    return VirtualRunResult(result, reply["about"])


def default_clock(experiment: Experiment, engines: Sequence[str]) -> str:
    """Return the clock of an experiment on `engines`, or on its default engine if there are none.

    That is the clock that it declares, or the real one on a machine without a virtual kernel.
    """
    on_kernel = "kernel" in (engines or experiment.engines[:1])
    if on_kernel and experiment.clock == "virtual" and virtual_kernel.find():
        return "virtual"
    return "real"


def core(number: int) -> int:
    """Return the processor for a worker; workers share processors if there are too few."""
    cores = sorted(os.sched_getaffinity(0))
    return cores[number % len(cores)]


def differences(runs: Sequence[Run], rows: Sequence[Row]) -> list[str]:
    """Measure `runs` again and return a line for each whose row is not the one in `rows`."""
    stored = {row["run"]: row for row in rows}
    lines = []
    for run in runs:
        outcome = measure(run).outcome
        if not isinstance(outcome, Result):
            lines.append(f"{run}: measured once more it failed: {outcome.reason}")
            continue
        row = row_of(run, outcome)
        before = stored[run.id]
        keys = [
            key
            for key in {**row, **before}
            if text_of({key: row.get(key)}) != text_of({key: before.get(key)})
        ]
        if keys:
            lines.append(f"{run}: measured once more it gives another {', '.join(sorted(keys))}")
    return lines


def answer(run: Run) -> dict[str, Any]:
    """Measure a run inside the kernel; return the answer, JSON-able.

    Its provenance is the machine inside.  The code is the same as outside, where git takes no
    processor time of the run.
    """
    begin = clock.monotonic()
    reply: dict[str, Any]
    try:
        result = find(run.experiment).measure(run)
        reply = {"result": asdict(replace(result, virtual_s=round(clock.monotonic() - begin, 9)))}
    except Exception as error:
        reply = {"failure": RunFailure(reason(error), traceback.format_exc())._asdict()}
    return {**reply, "about": {"machine": machine()}}


def main() -> None:
    """Inside User-Mode Linux: measure the run in the file RUN, and report the answer."""
    run = Run(**json.loads((host_questions.FOLDER / RUN).read_text(encoding="utf-8")))
    host_questions.report(json.dumps(answer(run), default=plain_or_nothing))


if __name__ == "__main__":
    main()
