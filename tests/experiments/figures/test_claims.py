"""Claims of papers beside what is stored."""

from __future__ import annotations

import math

import pytest

from weft.experiments.figures.claims import claims
from weft.experiments.figures.report import claimed
from weft.experiments.runner import definition

ABOUT = {"pairs": "1000", "apply": "algorithm", "condition1": 1, "engine": "graph"}


def row(routing, seed, hops, paper, **more):
    told = {"topology": "dcell:n=3,k=3", "routing": routing, "seed": seed, **ABOUT, "mean_hops": hops}
    return told | ({} if paper is None else {"paper_mean_hops": paper}) | more


def test_a_cell_that_a_paper_gives_is_told_with_its_mean_and_interval():
    experiment = definition.find("hop_length")
    rows = [row("dr", seed, hops, 10.0) for seed, hops in enumerate((9.0, 11.0, 13.0))]
    rows += [row("pr-gpi", 0, 8.5, 9.0, fidelity="PASS"), row("bfs", 0, 8.0, None)]
    rows.append(row("pr-gpi", 1, 8.5, 9.0, fidelity="FAIL"))
    one, two = claims(experiment, rows)
    assert (one.cell, one.column, one.unit, one.paper, one.ours, one.runs) == (
        "topology=dcell:n=3,k=3, routing=dr", "mean_hops", "hops", 10.0, 11.0, 3,
    )  # fmt: skip
    assert one.half_width == pytest.approx(4.303 * 2 / math.sqrt(3), rel=1e-3)
    assert (two.cell, two.ours, two.fidelity) == ("topology=dcell:n=3,k=3, routing=pr-gpi", 8.5, "FAIL")
    assert "routes of connected pairs" in one.meaning


def test_the_report_begins_with_them_where_there_are_any():
    experiment = definition.find("hop_length")
    rows = [row("dr", 0, 11.0, 10.0), row("bfs", 0, 8.0, None)]
    shown = claimed([(experiment, [(one, {}) for one in rows])])
    assert '<td class="number">10</td><td class="number">11</td><td class="number">1.100</td>' in shown
    assert "bfs" not in shown
    assert claimed([(experiment, [(rows[1], {})])]) == ""
