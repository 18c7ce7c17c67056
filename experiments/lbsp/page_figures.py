"""Figures of the page on LBSP, in the paper's layout."""

from __future__ import annotations

from functools import partial

from weft.experiments.lbsp.lbsp_queues import by_hop_and_states
from weft.experiments.report.panels import Bars, Curves, Panels, Stack
from weft.experiments.report.published import PageFigure
from weft.experiments.runner.definition import Table

PARTS = {"short": "short flows", "long": "long flows", "drawn": "flows to a pod"}
DAMAGES = {
    "none": "healthy",
    "link": "a link failed",
    "node": "a switch failed",
    "degraded": "a degraded link",
}


def flows(letter: str, workload: str, column: str, damages: str, k: int = 8) -> Panels:
    """Return part `letter` of figures 6 and 7: `column` of the flows of a workload."""
    label = {"mean_ms": "mean time (ms)", "p999_ms": "99.9th percentile (ms)"}[column]
    part = f"({letter}) {PARTS[workload]}, k = {k}"
    return Bars(
        columns={column: label},
        by=("scheme", "state"),
        facet=("part",),
        log=(column,) if (workload, "degraded" in damages) == ("short", True) else (),
        rows=partial(selected, part, k, workload, damages.split()),
    )


def selected(part: str, k: int, workload: str, damages: list[str], table: Table) -> Table:
    """Return the rows of a workload in some states, with their names; empty without damage."""
    table = [row for row in table if row["topology"] == f"fattree:k={k}"]
    if not any((row["workload"], row["damage"]) == (workload, damages[1]) for row in table):
        return []
    ratios = {row["oversubscription"] for row in table if row["workload"] == workload}
    return [
        row
        | {
            "state": DAMAGES[row["damage"]],
            "part": part + f", {row['oversubscription']}:1" * (len(ratios) > 1),
        }
        for damage in damages
        for row in sorted(table, key=lambda row: row["oversubscription"])
        if (row["workload"], row["damage"]) == (workload, damage)
    ]


SIMULATED = {"engine": "packet", "scheme": "lbsp,spray", "rounds": "50,3000"}
FIGURES = (
    PageFigure(
        "lbsp_figure6",
        "lbsp_tcp",
        {**SIMULATED, "oversubscription": "1"},
        Stack(
            flows("a", "short", "p999_ms", "none link node"),
            flows("b", "long", "p999_ms", "none link node"),
        ),
    ),
    PageFigure(
        "lbsp_figure7",
        "lbsp_tcp",
        SIMULATED,
        Stack(
            flows("a", "drawn", "p999_ms", "none link", 16),
            flows("b", "short", "p999_ms", "none degraded"),
            flows("c", "long", "p999_ms", "none degraded"),
        ),
    ),
    PageFigure(
        "lbsp_figure9",
        "lbsp_queues",
        {"arrivals": "paced", "engine": "graph"},
        Curves(
            columns={
                "queue_packets": "(a) mean queue (packets)",
                "apart_packets": "(b) link groups apart (packets)",
            },
            x="load_fraction",
            series="hop",
            dash="variant",
            log=("queue_packets", "apart_packets"),
            rows=by_hop_and_states,
        ),
    ),
)
