"""Completion times when links fail while flows run: FatPaths, section V-G.

TCP's flows run on Linux (fatpaths_failover).  Links fail at half of the time: announced, so that
both ends lose their carriers, or silently, so that daemons notice missing hellos.  A flow over
layers leaves a dead path when TCP cuts its window; under ECMP only daemons move it.  Conditions
are else those of fatpaths_fct.

Flows of the purified transport run on simulated networks (ndp_failover).  Links fail at three
quarters of the time, so that half of the counted flows begin before.  They lose all packets from
then on.  Once all switches know, each layer goes on over live links as on Linux
(daemons/fatpaths/live_layers.py), and minimal paths avoid dead ones.  Conditions are else those of
fatpaths_vs_fattree.
"""

from __future__ import annotations

from dataclasses import replace

from weft.experiments.engines import common_parameters as common
from weft.experiments.fatpaths import fatpaths_feedback, fatpaths_vs_fattree
from weft.experiments.fatpaths.fatpaths_fct import EXPERIMENT as FCT
from weft.experiments.fatpaths.fatpaths_fct import RANDOM, looks
from weft.experiments.fatpaths.fatpaths_feedback import EXPERIMENT as FEEDBACK
from weft.experiments.fatpaths.fatpaths_feedback import PLOT
from weft.experiments.report.panels import Bars
from weft.experiments.runner.definition import Result, Run
from weft.experiments.runner.parameters import Integer, Word, swept
from weft.topologies.core import failures

LINUX = replace(
    FCT,
    name="fatpaths_failover",
    question="How long do TCP's flows take over FatPaths' layers when links fail, announced or "
    "silently, beside ECMP?",
    source="FatPaths, section V-G",
    axes={
        **swept(
            FCT.axes,
            topology=["slimfly:q=5,p=2"],
            scheme=["ecmp", RANDOM],
            mapping=["linear"],
            pattern=["permutation"],
            seconds=[0.3],
        ),
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


FAILED_AT = 3 / 4  # of the time in which flows begin


def measure(run: Run) -> Result:
    """Return the columns of fatpaths_feedback for a network whose links fail."""
    known_us = run.integer("known_us")
    failed_s = FAILED_AT * run.number("seconds")
    how = fatpaths_feedback.carriage(run)._replace(failed_s=failed_s)
    if known_us:
        after = failures.fail_links(run.topology, how.failed)
        detours_s = min(failed_s + known_us / 1e6, how.deadline_s)
        how = how._replace(detours=fatpaths_vs_fattree.next_hops(run, after), detours_s=detours_s)
    return fatpaths_feedback.measure_carried(run, how)


def is_compared(run: Run) -> bool:
    """Return True for one transport over minimal paths, and one delay without failures."""
    has_choice = run.text("routing") == "layers" or run.text("transport") == "ndp"
    return has_choice and (run.number("failed_fraction") > 0 or not run.integer("known_us"))


PACKETS = replace(
    FEEDBACK,
    name="ndp_failover",
    question="How long do flows of the purified transport take when links fail while they run?",
    source="FatPaths, section V-G",
    engines=("packet",),
    axes={
        **swept(
            FEEDBACK.axes,
            topology=["slimfly:q=5,p=4", "slimfly:q=7,p=6"],
            routing=["ecmp", "layers"],
            transport=["ndp", "ndp:choice=reps", "ndp:choice=scout"],
            mapping=["random"],
        ),
        "failed_fraction": common.FAILED_FRACTION.over(0.0, 0.02),
        "known_us": Integer(
            "time from the failure until all switches have other routes; 0: never",
            unit="us",
            least=0,
            most=10**7,
        ).over(0, 100, 1000),
    },
    goes_together=is_compared,
    compared=("routing", "transport"),
    seeds=10,
    takes_s=60,
    measure=measure,
    plot=replace(PLOT, facet=("topology", "failed", "known_us"), wrap=4),
)
