"""Completion times of TCP's flows on Linux when links fail while they run.

FatPaths, section V-G.  Links fail at half of the time: announced, so that both ends lose their
carriers, or silently, so that daemons notice missing hellos.  A flow over layers leaves a dead path
when TCP cuts its window; under ECMP only daemons move it.  Conditions are else those of
fatpaths_fct.
"""

from __future__ import annotations

from dataclasses import replace

from weft.experiments.engines import common_parameters as common
from weft.experiments.fatpaths.fatpaths_fct import EXPERIMENT as FCT
from weft.experiments.fatpaths.fatpaths_fct import RANDOM, looks
from weft.experiments.report.panels import Bars
from weft.experiments.runner.parameters import Word

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
    version=1,
    seeds=3,
    takes_s=None,
    plot=Bars(
        columns={"warm_long_mean_ms": "long flows after the failure, mean (ms)"},
        strokes={"warm_long_mean_ms": {"warm_long_p99_ms": "99th percentile (ms)"}},
        facet=("topology", "failed_fraction", "failure"),
        looks=looks,
    ),
)
