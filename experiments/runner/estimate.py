"""How long runs will take, by those that are stored, or else by the time that the experiment
declares.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import mean

from weft.daemons.core import registry
from weft.daemons.core.node_config import routers
from weft.experiments.runner.definition import Experiment, Run
from weft.experiments.runner.results import Store
from weft.experiments.runner.sweep import timed
from weft.testbed.plan.plane_selection import has_daemons
from weft.topologies import build

DECLARED_CORES = 2  # on which takes_s was measured
# Under the virtual clock, on a quiet machine: boot of the kernel and Python, and each node's share
# of the bring-up.
BOOT_S, NODE_S = 3.0, 0.03
TICK_S = 0.0005  # of a daemon under the virtual clock: a round of hellos, said and heard


def estimates(experiment: Experiment, runs: Sequence[Run], store: Store) -> dict[Run, float | None]:
    """Return about how long each run takes by itself, in s; None if that is unknown.

    The mean of stored runs of the same cell, or else of all that are stored on the same engine and
    clock.  Without either it is the time that the experiment declares, to which a virtual clock
    adds boot and bring-up unless the experiment declares that clock.
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
        like = taken.get(
            (*engine, *(run.parameters[key] for key in experiment.sweep))
        ) or taken.get(engine)
        if like or run.clock == experiment.clock:
            found[run] = mean(like) if like else declared_s
        else:
            found[run] = with_setup_s(run, declared_s)
    return found


def with_setup_s(run: Run, declared_s: float | None) -> float | None:
    """Return the declared time of `run` and what a virtual clock adds to it, in s."""
    return None if declared_s is None else declared_s + setup_s(run) + daemons_s(run, declared_s)


def setup_s(run: Run) -> float:
    """Return what boot and bring-up add to `run` in s: nothing in real time, whose declared times
    contain them.
    """
    if run.clock == "real":
        return 0.0
    topology = run.parameters.get("topology")
    return BOOT_S + NODE_S * (build(str(topology)).nodes if topology else 0)


def daemons_s(run: Run, virtual_s: float) -> float:
    """Return what daemons add to `run` in s: nothing in real time, where they run meanwhile.

    Args:
        virtual_s: how long the network is up.
    """
    routing, topology = (run.parameters.get(key) for key in ("routing", "topology"))
    if run.clock == "real" or not routing or not topology or not has_daemons(str(routing)):
        return 0.0
    hello_s = registry.scheme(str(routing))[1]["hello_ms"] / 1000
    return len(routers(build(str(topology)))) * virtual_s / hello_s * TICK_S


def is_least(runs: Iterable[Run], experiment: Experiment, store: Store) -> bool:
    """Return whether the estimate of `runs` is a lower bound: traffic under a virtual clock was
    never timed.
    """
    timed_clocks = {
        row.get("clock", "real") for row, about in store.table(experiment) if about.get("wall_s")
    }
    return any(run.clock == "virtual" and "virtual" not in timed_clocks for run in runs)


def declared(experiment: Experiment) -> float | None:
    """What a run of the default sweep takes on one core, by the time that the experiment declares
    for all of them.
    """
    if experiment.takes_s is None:
        return None
    runs = experiment.runs()
    cores = 1 if timed(runs[0]) and experiment.clock == "real" else DECLARED_CORES
    return cores * experiment.takes_s / len(runs)


def total_s(expected: Mapping[Run, float | None], jobs: int) -> float | None:
    """How long the runs take, those on the kernel in real time one after the other, others `jobs`
    at a time; None if there is none.
    """
    if None in expected.values():
        return None
    alone = sum(took or 0 for run, took in expected.items() if timed(run))
    together = [took or 0 for run, took in expected.items() if not timed(run)]
    return alone + max(sum(together) / max(1, jobs), max(together, default=0))
