"""Claims of papers: queries, rules, outcomes, and those of the five papers."""

from __future__ import annotations

import math
from statistics import mean

import pytest

from weft.experiments.report import claims
from weft.experiments.report.claims import (
    AtLeast,
    Between,
    Claim,
    Form,
    Query,
    Verdict,
    Within,
    outcome,
)
from weft.experiments.report.report import claimed
from weft.experiments.runner import columns, definition
from weft.experiments.runner.rows import plain

D33 = "dcell:n=3,k=3"
HOPS = Query("hop_length", {"topology": D33, "routing": "pr-gpi"}, "mean_hops", seeds=3)


def rows_of(values, column="mean_hops", **more):
    """Return a source of rows: the value of each run is values[its routing][its seed], if any."""

    def rows(runs):
        return [
            {"run": run.id, column: values[run.parameters["routing"]][run.seed], **more}
            for run in runs
            if run.seed < len(values.get(run.parameters["routing"], []))
        ]

    return rows


def test_a_mean_over_seeds_has_its_interval():
    claim = Claim("hops", "figure 3", 11.0, HOPS, Within(0.5))
    ours = outcome(claim, rows_of({"pr-gpi": [9.0, 11.0, 13.0]}, fidelity="PASS"))
    assert (ours.value, ours.runs, ours.fidelity) == (11.0, 3, "PASS")
    assert ours.half_width == pytest.approx(4.303 * 2 / math.sqrt(3), rel=1e-3)
    assert ours.verdict is Verdict.AGREES


def test_a_ratio_pairs_runs_of_one_seed_and_leaves_out_those_without_a_divisor():
    query = Query("hop_length", HOPS.where, "mean_hops", {"routing": "dr"}, Form.SAVING, seeds=3)
    source = rows_of({"pr-gpi": [5.0, 12.0, 9.0], "dr": [10.0, 20.0]})
    ours = outcome(Claim("shorter", "figure 3", 45, query, Within(0.5)), source)
    assert (ours.value, ours.runs) == (45.0, 2)  # 50 % and 40 %
    assert query.unit == "%"
    assert outcome(Claim("", "", 1, query), rows_of({"pr-gpi": [5.0], "dr": [0.0]})).runs == 0


def test_an_extreme_is_over_all_rows_and_has_no_interval():
    query = Query("hop_length", HOPS.where, "mean_hops", statistic=max, seeds=3)
    ours = outcome(Claim("most", "", "", query), rows_of({"pr-gpi": [9.0, 13.0, 11.0]}))
    assert ours.value == 13.0
    assert math.isnan(ours.half_width)


def test_entries_of_a_list_are_added():
    query = Query(
        "hop_histogram", {"topology": D33, "routing": "dr", "failed_fraction": 0.0}, "x",
        form=Form.PERCENT, bins=(1, 2),
    )  # fmt: skip
    ours = outcome(Claim("", "", "", query), rows_of({"dr": [[0.5, 0.25, 0.125, 0.125]]}, "x"))
    assert ours.value == 37.5


def test_a_parameter_that_is_not_named_has_the_values_of_the_default_sweep():
    (run,) = Query("hop_length", HOPS.where, "mean_hops").runs
    assert run.parameters["pairs"] == "100000"
    virtual = Query(
        "ttc_kernel", {"clock": "virtual", "hop_ns": 500, "scheme": "ttc", "traffic": "tcp"}, "x"
    )
    assert {(run.engine, run.clock, run.hop_ns) for run in virtual.runs} == {
        ("kernel", "virtual", 500)
    }


@pytest.mark.parametrize(
    ("rule", "value", "half_width", "verdict"),
    [
        (Within(0.1), 9.5, 0.2, Verdict.AGREES),
        (Within(0.1), 8.9, 0.2, Verdict.UNDECIDED),
        (Within(0.1), 8.0, 0.2, Verdict.CONTRADICTS),
        (AtLeast(1), 1.5, 0.4, Verdict.AGREES),
        (AtLeast(1), 1.5, 0.6, Verdict.UNDECIDED),
        (AtLeast(1), 0.5, 0.4, Verdict.CONTRADICTS),
        (Between(2, 4), 4.5, 0.0, Verdict.CONTRADICTS),
    ],
)
def test_a_rule_needs_the_whole_interval(rule, value, half_width, verdict):
    assert rule.verdict(10.0, value, half_width) is verdict


def test_a_claim_without_query_is_missing_and_one_without_rows_is_not_measured():
    missing = Claim("figure", "figure 1", "", why="an illustration")
    assert outcome(missing, rows_of({})).verdict is Verdict.MISSING
    assert outcome(Claim("", "", 1, HOPS), rows_of({})).verdict is Verdict.NOT_MEASURED


def test_words_have_no_value_to_be_within():
    with pytest.raises(ValueError, match="hops: Within needs the paper's number, got 'up to 30 %'"):
        Claim("hops", "figure 3", "up to 30 %", HOPS, Within(0.1))


def test_a_claim_under_review_has_no_other_verdict_once_it_is_measured():
    claim = Claim("hops", "figure 3", 11.0, HOPS, Within(0.5), "old reason", review="a timer")
    ours = outcome(claim, rows_of({"pr-gpi": [11.0]}))
    assert (ours.verdict, ours.value, claim.reason) == (Verdict.UNDER_REVIEW, 11.0, "a timer")
    assert outcome(claim, rows_of({})).verdict is Verdict.NOT_MEASURED


@pytest.mark.parametrize(
    ("value", "half_width", "unit", "text"),
    [
        (11.0, math.nan, "hops", "11 hops"),
        (15.4512, 0.012, "%", "15.45 ± 0.01 %"),
        (0.91, 0.0, "ms", "0.91 ms"),
        (45.71, 2.4, "%", "46 ± 2 %"),
        (3581556.0, math.nan, "", "3,581,556"),
    ],
)
def test_a_number_has_the_digits_that_its_interval_leaves(value, half_width, unit, text):
    assert claims.number_text(value, half_width, unit) == text


def test_the_report_begins_with_the_claims_that_have_rows():
    shown = claimed(
        lambda runs: [
            {"run": run.id, "mean_hops": 8.0 if run.parameters["routing"] == "pr-gpi" else 10.0}
            for run in runs
            if run.experiment == "hop_length" and run.parameters["topology"] == D33
        ]
    )
    assert '<td class="words">20 %</td>' in shown
    assert "not measured" not in shown
    assert claimed(lambda runs: []) == ""


@pytest.fixture(scope="module")
def all_claims():
    return claims.all_claims()


def test_every_claim_asks_for_a_column_of_runs_that_exist(all_claims):
    for name, claim in all_claims.items():
        query = claim.query
        if not query:
            continue
        experiment = definition.find(query.experiment)
        assert query.runs, name
        assert columns.meaning_of(query.column, experiment.columns), (name, query.column)
        assert set(query.over) <= {*experiment.axes, *claims.SETTINGS}, name


def test_a_mean_is_over_seeds_alone(all_claims):
    for name, claim in all_claims.items():
        if claim.query and claim.query.statistic is mean:
            cells = {
                (run.engine, run.clock, *run.parameters.values()) for run, _ in claim.query.pairs
            }
            assert len(cells) == 1, (name, plain(sorted(map(str, cells))[:3]))


def test_a_missing_claim_says_why(all_claims):
    for name, claim in all_claims.items():
        assert claim.query or claim.why, name
        assert claim.words, name
        assert claim.place, name
        assert len(claim.reason.split()) <= 35, name


def test_readme_has_no_claim_under_review(all_claims):
    assert [name for name, claim in all_claims.items() if claim.in_readme and claim.review] == []


def test_a_row_to_divide_by_has_the_version_of_its_own_cell(all_claims):
    pairs = all_claims["dar-9"].query.pairs
    experiment = definition.find("dar_goodput")
    assert {(run.version, base.version) for run, base in pairs} == {
        (experiment.version + 1, experiment.version)
    }
