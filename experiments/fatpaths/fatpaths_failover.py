"""Completion times of TCP's flows on Linux when links fail while they run.

FatPaths, section V-G.  Links fail at half of the time: announced, so that both ends lose their
carriers, or silently, so that daemons notice missing hellos.  A flow that does not end has no time;
means are of the others, beside its share.  A flow over layers leaves a dead path
when TCP cuts its window; under ECMP only daemons move it.  Conditions are else those of
fatpaths_fct.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from weft.experiments.engines import common_parameters as common
from weft.experiments.fatpaths import columns, fatpaths_fct, flow_times
from weft.experiments.fatpaths.fatpaths_fct import EXPERIMENT as FCT
from weft.experiments.fatpaths.fatpaths_fct import RANDOM, looks
from weft.experiments.report.panels import Bars
from weft.experiments.runner.definition import Result, Row, Run
from weft.experiments.runner.parameters import Word
from weft.testbed.traffic.flows import FlowResults


def measure(run: Run) -> Result:
    """Return the columns of fatpaths_fct, and those of flows that end and of the others."""
    return fatpaths_fct.measure_times(run, times)


def times(table: FlowResults, fraction: float, seconds: float) -> Row:
    """Return the columns about the flows' times."""
    results = table.results
    ms = 1000 * np.array([np.inf if each.seconds is None else each.seconds for each in results])
    is_counted = fatpaths_fct.is_warm_and_long(table, fraction, seconds)
    return {
        **fatpaths_fct.times(table, fraction, seconds),
        "unfinished_fraction": table.unfinished / len(ms) if len(ms) else None,
        **flow_times.ended_summary("warm_long", ms[is_counted]),
    }


AXES = FCT.axes
EXPERIMENT = replace(
    FCT,
    name="fatpaths_failover",
    question="How long do TCP's flows take over FatPaths' layers when links fail, announced or "
    "silently, beside ECMP?",
    source="FatPaths, section V-G",
    axes={
        **AXES,
        "topology": AXES["topology"].over("slimfly:q=5,p=2"),
        "scheme": AXES["scheme"].over("ecmp", RANDOM),
        "mapping": AXES["mapping"].over("linear"),
        "pattern": AXES["pattern"].over("permutation"),
        "seconds": AXES["seconds"].over(0.3),
        "failed_fraction": common.FAILED_FRACTION.over(0.05),
        "failure": Word(
            meaning="how links fail: not at all, with their carriers, or losing packets silently",
            words=("none", "link", "silent-link"),
        ).over("none", "link", "silent-link"),
    },
    columns={**FCT.columns, **columns.ENDED, "unfinished_fraction": "unfinished flows, of all"},
    version=2,  # flows that do not end are apart
    seeds=10,
    takes_s=None,
    measure=measure,
    plot=Bars(
        columns={"warm_long_ended_mean_ms": "long flows after the failure, mean (ms)"},
        strokes={"warm_long_ended_mean_ms": {"warm_long_ended_p99_ms": "99th percentile (ms)"}},
        facet=("topology", "failed_fraction", "failure"),
        looks=looks,
    ),
)
