"""Completion times with the purified transport when links fail while flows run.

FatPaths, section V-G, on simulated networks; fatpaths_failover has TCP on Linux.  Links fail at
three quarters of the time, so that half of the counted flows begin before.  They lose all packets
from then on.  Once all switches know, each layer goes on over live links as on Linux
(daemons/fatpaths/live_layers.py), and minimal paths avoid dead ones.  Conditions are else those of
fatpaths_vs_fattree.
"""

from __future__ import annotations

from dataclasses import replace

from weft.experiments.engines import common_parameters as common
from weft.experiments.fatpaths import fatpaths_feedback, fatpaths_vs_fattree
from weft.experiments.fatpaths.fatpaths_feedback import EXPERIMENT as FEEDBACK
from weft.experiments.fatpaths.fatpaths_feedback import PLOT
from weft.experiments.runner.definition import Result, Run
from weft.experiments.runner.parameters import Integer, swept
from weft.topologies.core import failures

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


AXES = FEEDBACK.axes
EXPERIMENT = replace(
    FEEDBACK,
    name="ndp_failover",
    question="How long do flows of the purified transport take when links fail while they run?",
    source="FatPaths, section V-G",
    engines=("packet",),
    axes={
        **swept(
            AXES,
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
