"""Interface for programs and notebooks: `from weft import build, run`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from weft.experiments.runner import definition
from weft.experiments.runner.definition import Experiment, Run
from weft.experiments.runner.parameters import Scalar
from weft.experiments.runner.provenance import code_and_machine
from weft.experiments.runner.results import Store
from weft.experiments.runner.sweep import SilentWatcher, remaining, sweep, timed
from weft.experiments.runner.virtual_runs import default_clock
from weft.testbed.mininet import mininet_topology

MOST_ROWS = 100
Given = Scalar | Sequence[Scalar]
build = mininet_topology.as_topology  # of a spec, a networkx graph or a Topo; needs no Mininet


class Rows(list[dict[str, Any]]):
    """Rows of results, which a notebook shows as a table."""

    def _repr_html_(self) -> str:
        columns = list(dict.fromkeys(key for row in self for key in row))
        head = "".join(f"<th>{escape(name)}</th>" for name in columns)
        lines = (
            "".join(f"<td>{escape(_text(row.get(name, '')))}</td>" for name in columns)
            for row in self[:MOST_ROWS]
        )
        body = "".join(f"<tr>{line}</tr>" for line in lines)
        rest = f"<p>{len(self) - MOST_ROWS} more rows</p>" if len(self) > MOST_ROWS else ""
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{rest}"


def _text(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


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
) -> Rows:
    """Return the rows of an experiment, measured now unless they are stored, as `weft run` does.

        run("link_loss", topology="dcell:n=4,k=1", failed_links=[0, 2, 4], engine="graph")

    Args:
        experiment: its name.
        seeds: runs of each cell; the experiment's number by default.
        engine: graph, fabric, packet or kernel; the experiment's first by default.
        clock: of the kernel engine, real or virtual; the one that the experiment declares by
            default.
        jobs: parallel runs; as many as there are processors by default.
        results: folder of results: $WEFT_RESULTS, or ./results.
        fresh: measure stored runs again.
        parameters: a value or several of each; others have those of the default sweep.

    Returns:
        A list of dicts, as pandas.DataFrame() takes it; `weft describe EXPERIMENT` explains them.
        A notebook shows it as a table.

    Raises:
        ValueError: a name or value is unknown or out of range.
        PermissionError: the runs need root.
        RuntimeError: a run failed; the rows of the others are stored.
    """
    selected = definition.find(experiment)
    engines = [engine] if engine else []
    clock = clock or default_clock(selected, engines)
    runs = selected.plan(texts(parameters), seeds=seeds, engines=engines, clock=clock).runs
    store = Store(Path(results or os.environ.get("WEFT_RESULTS") or "results"))
    again = fresh or selected.always_measures
    todo = runs if again else remaining(runs, store)
    if todo:
        _measure(selected, todo, store, jobs or len(os.sched_getaffinity(0)), again)
    return Rows(store.rows(runs))


def _measure(
    experiment: Experiment, todo: Sequence[Run], store: Store, jobs: int, again: bool
) -> None:
    """Measure `todo`; PermissionError if they need root, RuntimeError if one failed."""
    name = experiment.name
    if os.geteuid() and any(timed(run) for run in todo):
        raise PermissionError(f"{name}: the kernel engine needs root, unless clock='virtual'")
    about = code_and_machine(kernel=any(run.engine == "kernel" for run in todo))
    watcher = SilentWatcher()
    swept = sweep(experiment, todo, store, workers=jobs, about=about, watcher=watcher, again=again)
    for run, failure in swept.failures.items():
        raise RuntimeError(f"{name}: {run} failed: {failure.reason}")


def texts(parameters: Mapping[str, Given]) -> dict[str, str]:
    """Return the values as `--set` takes them."""
    return {
        key: ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
        for key, value in parameters.items()
    }
