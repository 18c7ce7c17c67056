"""Completion times of flows whose packets choose layers by the answers to earlier ones.

After FatPaths, on its networks: REPS (Bonato et al., EuroSys 2026), and Spritz' Scout and Spray
(Bonato et al., 2026), over the layers of FatPaths, beside its own rule and random layers
(daemons/transport/parameters.py, LayerChoice).  Some links may lose all packets, which no switch
notices.  Conditions are else those of fatpaths_vs_fattree; switches mark from four packets on.
"""

from __future__ import annotations

from dataclasses import replace

from weft.experiments.engines import common_parameters as common
from weft.experiments.fatpaths.fatpaths_vs_fattree import EXPERIMENT as VS_FATTREE
from weft.experiments.report.panels import Bars, number_of
from weft.experiments.runner.definition import Run, Table
from weft.experiments.runner.parameters import swept
from weft.testbed.packets.transport import transport

CHOICES = {
    "flow": "FatPaths",
    "blind": "random layers",
    "reps": "REPS",
    "scout": "Spritz, Scout",
    "spray": "Spritz, Spray",
}


def with_choices(table: Table) -> Table:
    """Return the rows with the rule of packets and the failed links in words."""
    return [
        {
            **row,
            "rule": "minimal paths"
            if row["routing"] == "ecmp"
            else CHOICES[transport(str(row["transport"])).choice],
            "failed": f"{100 * number_of(row, 'failed_fraction'):g} % of links",
        }
        for row in table
    ]


def has_layers(run: Run) -> bool:
    """Return True for networks with layers."""
    return run.text("routing") == "layers"


AXES = VS_FATTREE.axes
PLOT = Bars(
    columns={
        "long_mean_ms": "(a) long flows (ms)",
        "short_mean_ms": "(b) short flows (ms)",
    },
    strokes={
        "long_mean_ms": {"long_p99_ms": "99th percentile"},
        "short_mean_ms": {"short_p99_ms": "99th percentile"},
    },
    by=("rule",),
    facet=("topology", "mapping", "failed"),
    rows=with_choices,
)
EXPERIMENT = replace(
    VS_FATTREE,
    name="fatpaths_feedback",
    question="How long do flows take whose packets choose layers by feedback on earlier packets?",
    source="REPS, EuroSys 2026; Spritz, 2026; on FatPaths' networks",
    axes={
        **swept(
            AXES,
            topology=["slimfly:q=5,p=4", "dragonfly:p=3,a=6,h=2,palm=0"],
            routing=["layers"],
            construction=["random"],
            transport=["ndp", *(f"ndp:choice={word}" for word in CHOICES if word != "flow")],
        ),
        "failed_fraction": common.FAILED_FRACTION.over(0.0, 0.02),
    },
    goes_together=has_layers,
    compared=("transport",),
    version=1,
    seeds=10,
    takes_s=600,
    plot=PLOT,
)
