"""Claims of papers beside what is stored."""

from __future__ import annotations

import dataclasses
import math

import pytest

from weft.experiments.report.claims import claims, stated
from weft.experiments.report.report import claimed
from weft.experiments.runner import columns, definition
from weft.experiments.runner.definition import Statement

ABOUT = {"pairs": "1000", "apply": "algorithm", "condition1": 1, "engine": "graph"}


def row(routing, seed, hops, paper, **more):
    told = {
        "topology": "dcell:n=3,k=3",
        "routing": routing,
        "seed": seed,
        **ABOUT,
        "mean_hops": hops,
    }
    return told | ({} if paper is None else {"paper_mean_hops": paper}) | more


def test_a_cell_that_a_paper_gives_is_told_with_its_mean_and_interval():
    experiment = definition.find("hop_length")
    rows = [row("dr", seed, hops, 10.0) for seed, hops in enumerate((9.0, 11.0, 13.0))]
    rows += [row("pr-gpi", 0, 8.5, 9.0, fidelity="PASS"), row("bfs", 0, 8.0, None)]
    rows.append(row("pr-gpi", 1, 8.5, 9.0, fidelity="FAIL"))
    one, two = claims(dataclasses.replace(experiment, statements=()), rows)
    assert (one.cell, one.column, one.unit, one.paper, one.ours, one.runs) == (
        "topology=dcell:n=3,k=3, routing=dr", "mean_hops", "hops", 10.0, 11.0, 3,
    )  # fmt: skip
    assert one.half_width == pytest.approx(4.303 * 2 / math.sqrt(3), rel=1e-3)
    assert (two.cell, two.ours, two.fidelity) == (
        "topology=dcell:n=3,k=3, routing=pr-gpi",
        8.5,
        "FAIL",
    )
    assert "routes of connected pairs" in one.meaning


def test_the_report_begins_with_them_where_there_are_any():
    experiment = definition.find("hop_length")
    rows = [row("dr", 0, 11.0, 10.0), row("bfs", 0, 8.0, None)]
    shown = claimed([(experiment, [(one, {}) for one in rows])])
    assert (
        '<td class="number">10</td><td class="number">11</td><td class="number">1.100</td>' in shown
    )
    assert "bfs" not in shown
    assert claimed([(experiment, [(rows[1], {})])]) == ""


HALF = Statement(
    says="half of DR's <hops>",
    paper=0.5,
    column="mean_hops",
    cell={"topology": "dcell:n=3,k=3", "routing": "pr-gpi"},
    over={"routing": "dr"},
)


def test_what_is_said_of_a_ratio_is_told_for_each_cell_over_the_runs_that_differ_in_that_alone():
    experiment = definition.find("hop_length")
    rows = [
        row("dr", 0, 10.0, None),
        row("dr", 1, 20.0, None),
        row("dr", 2, 0.0, None, condition1=0),
    ]
    rows += [
        row("pr-gpi", 0, 6.0, None, fidelity="PASS"),
        row("pr-gpi", 1, 8.0, None, fidelity="WARN"),
    ]
    rows += [row("pr-gpi", 2, 9.0, None), row("bfs", 0, 1.0, None)]  # of seed 2 there is no DR
    rows += [
        row("dr", 0, 12.0, None, condition1=0, fidelity="FAIL"),
        row("pr-gpi", 0, 9.0, None, condition1=0),
    ]
    rows += [row("pr-gpi", 2, 9.0, None, condition1=0)]  # nothing is divided by zero
    keys = (*experiment.sweep, "engine")
    one, other = stated(experiment, HALF, rows, keys)
    assert (one.cell, one.ours, one.runs, one.fidelity) == ("condition1=1", 0.5, 2, "WARN")
    assert one.half_width == pytest.approx(12.706 * 0.1, rel=1e-3)
    assert (other.cell, other.ours, other.runs, other.fidelity) == ("condition1=0", 0.75, 1, "FAIL")
    assert math.isnan(other.half_width)
    assert (one.says, one.column) == (HALF.says, "mean_hops, over that of routing=dr")
    assert "routes of connected pairs" in one.meaning


def test_the_report_says_what_the_paper_says_in_words_and_in_figures():
    experiment = definition.find("dar_settling")
    cell = {"topology": "clos:n=24,r=48,m=24", "scheme": "dar", "engine": "graph", "seed": 0}
    told = {"max_settling_us": 65.0, "moving_in_last_quarter_fraction": 0.9}
    shown = claimed(
        [(experiment, [({**cell, **told, "host_gbps": gbps}, {}) for gbps in (19.2, 20.8, 40.0)])]
    )
    assert "every permutation settles within 80 us" in shown
    assert (
        '<td class="number">at most 80</td><td class="number">65</td><td class="number"></td>'
        in shown
    )
    assert (
        '<td class="number">1</td><td class="number">0.9</td><td class="number">0.900</td>' in shown
    )
    assert shown.count("<tr>") == 3


@pytest.mark.slow  # every experiment is imported
def test_statements_are_about_runs_and_columns_that_there_are():
    """In cells whose text is that of stored rows, and which can be asked for."""
    found = 0
    for experiment in definition.discover().values():
        for statement in experiment.statements:
            found += 1
            assert columns.meaning_of(statement.column, experiment.columns), (
                experiment.name,
                statement,
            )
            assert statement.over.keys() <= statement.cell.keys(), (experiment.name, statement)
            for cell in (statement.cell, {**statement.cell, **statement.over}):
                for key, value in cell.items():
                    assert (
                        experiment.axes[key].parameter.read(experiment.name, key, str(value))
                        == value
                    )
                assert experiment.runs({key: str(value) for key, value in cell.items()})
    assert found > 15
