"""Completion times by the number n and the density rho of random layers.

FatPaths' figure 12: times of long flows, those of 1 MiB and more.  Conditions are those of
fatpaths_vs_fattree.
"""

from __future__ import annotations

from dataclasses import replace

from weft.experiments.fatpaths.fatpaths_vs_fattree import EXPERIMENT as VS_FATTREE
from weft.experiments.report.panels import Curves
from weft.experiments.runner.definition import Run
from weft.experiments.runner.parameters import swept

TIMES = {
    "long_mean_ms": "(a) long flows, mean (ms)",
    "long_p99_ms": "(b) 99th percentile (ms)",
}


def every_run(run: Run) -> bool:
    """Keep every cell in the sweep."""
    return True


AXES = VS_FATTREE.axes
EXPERIMENT = replace(
    VS_FATTREE,
    name="fatpaths_density",
    question="How do the number and the density of random layers change the times of flows?",
    source="FatPaths, figure 12",
    axes=swept(
        AXES,
        topology=["slimfly:q=7,p=6", "dragonfly:p=3,palm=0"],
        routing=["layers"],
        construction=["random"],
        mapping=["linear"],
        layers=[4, 9, 16, 63],
        rho=[0.4, 0.6, 0.8, 1.0],
    ),
    goes_together=every_run,
    compared=(),
    version=1,
    seeds=3,
    takes_s=300,
    plot=Curves(
        columns=TIMES,
        x="layers",
        series="rho",
        facet=("topology", "mapping", "load_fraction", "seconds", "transport"),
        always=2,
        log=("layers", *TIMES),
    ),
)
