"""What `from weft import build, run` gives: networks and experiments for programs and notebooks."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from weft.experiments.runner import definition
from weft.experiments.runner.definition import Row, Run
from weft.experiments.runner.failures import RunFailure
from weft.experiments.runner.parameters import Scalar
from weft.experiments.runner.provenance import code_and_machine
from weft.experiments.runner.results import Store
from weft.experiments.runner.sweep import remaining, sweep, timed
from weft.experiments.runner.virtual_runs import default_clock
from weft.testbed.mininet import mininet_topology

Given = Scalar | Sequence[Scalar]
build = mininet_topology.as_topology  # of a spec, a networkx graph or a Topo; needs no Mininet


class _Quiet:
    """Watches a sweep and says nothing."""

    def ended(self, run: Run, failure: RunFailure | None) -> None: ...


def run(
    experiment: str,
    /,
    *,
    seeds: int | None = None,
    engine: str = "",
    clock: str = "",
    jobs: int | None = None,
    results: str | Path | None = None,
    fresh: bool = False,
    **parameters: Given,
) -> list[Row]:
    """The rows of an experiment, measured now unless they are stored, as `weft run` does it.

        run("link_loss", topology="dcell:n=4,k=1", failed_links=[0, 2, 4], engine="graph")

    parameters: a value or several of each, those of the default sweep for the others.
    jobs: how many runs at a time, as many as there are processors unless it says else.
    results: the folder where they are stored: $WEFT_RESULTS, or ./results.
    clock: of the kernel engine, real or virtual; the one that the experiment declares by default.
    fresh: measure again what is stored.

    A list of dicts, as pandas.DataFrame() takes it; `weft describe EXPERIMENT` explains its
    columns.  ValueError for what is unknown or out of range, PermissionError where root is needed,
    RuntimeError if a run failed; what the others gave is stored then.
    """
    asked = definition.find(experiment)
    engines = [engine] if engine else []
    clock = clock or default_clock(asked, engines)
    runs = asked.plan(texts(parameters), seeds=seeds, engines=engines, clock=clock).runs
    store = Store(Path(results or os.environ.get("WEFT_RESULTS") or "results"))
    again = fresh or asked.always_measures
    todo = runs if again else remaining(runs, store)
    if os.geteuid() and any(timed(one) for one in todo):
        raise PermissionError(f"{experiment}: the kernel engine needs root, unless clock='virtual'")
    about = code_and_machine(kernel=any(one.engine == "kernel" for one in todo)) if todo else {}
    several = jobs or len(os.sched_getaffinity(0))
    swept = sweep(asked, todo, store, jobs=several, about=about, watcher=_Quiet(), again=again)
    for one, failure in swept.failures.items():
        raise RuntimeError(f"{experiment}: {one} failed: {failure.reason}")
    return store.rows(runs)


def texts(parameters: Mapping[str, Given]) -> dict[str, str]:
    """The values as `--set` takes them."""
    return {
        key: ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
        for key, value in parameters.items()
    }
