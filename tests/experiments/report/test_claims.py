"""Claims of papers: queries, rules, outcomes, and those of the five papers."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from dataclasses import replace
from statistics import mean

import numpy as np
import pytest

from weft.experiments.ccrdn.claims import of_flows
from weft.experiments.report import claims
from weft.experiments.report.claims import (
    OURS,
    UNNAMED,
    Claim,
    Form,
    Query,
    Statement,
    Verdict,
    above,
    at_least,
    below,
    between,
    outcome,
    value_text,
    within,
)
from weft.experiments.report.report import claimed
from weft.experiments.runner import definition
from weft.experiments.runner.rows import meaning_of, plain
from weft.topologies import build, canonical

D33 = "dcell:n=3,k=3"
HOPS = Query("hop_length", {"topology": D33, "routing": "pr-gpi"}, "mean_hops", seeds=3)
SAID = Statement("figure 3", "hops are few", "number", "10,000 pairs, mean")
SLIM_FLIES = {q: f"slimfly:q={q},p={p}" for q, p in (("5", 4), ("7", 6), ("19", 14))}
# Networks that words name, and their topologies.
NETWORKS = {
    r"([Dβ])(\d),(\d+)": lambda m: f"{'beta-' * (m[1] == 'β')}dcell:n={m[3]},k={m[2]}",
    r"F(\d),(\d+)": lambda m: f"ficonn:n={m[2]},k={m[1]}",
    r"FT\((\d),(\d+)\)": lambda m: f"fattree:n={m[1]},d={m[2]}",
    r"CLOS\((\d+),(\d+),(\d+)\)": lambda m: f"clos:n={m[1]},r={m[2]},m={m[3]}",
    r"k = (4|8|16)\b(?!:)": lambda m: f"fattree:k={m[1]}",
    r"SF, q = (\d+)|Slim Fly .*q = (\d+)": lambda m: SLIM_FLIES[m[1] or m[2]],
}


def rows_of(values, column="mean_hops", **more):
    """Return a source of rows: the value of each run is values[its routing][its seed], if any."""

    def rows(runs):
        return [
            {
                "run": run.id,
                "seed": run.seed,
                column: values[run.parameters["routing"]][run.seed],
                **more,
            }
            for run in runs
            if run.seed < len(values.get(run.parameters["routing"], []))
        ]

    return rows


def test_a_mean_over_seeds_has_its_interval():
    claim = Claim("hops", SAID, 11.0, HOPS, within(0.5))
    ours = outcome(claim, rows_of({"pr-gpi": [9.0, 11.0, 13.0]}, fidelity="PASS"))
    assert (ours.value, ours.runs, ours.fidelity) == (11.0, 3, "PASS")
    assert ours.half_width == pytest.approx(4.303 * 2 / math.sqrt(3), rel=1e-3)
    assert ours.verdict is Verdict.AGREES


def test_a_ratio_pairs_runs_of_one_seed_and_leaves_out_those_without_a_divisor():
    query = Query("hop_length", HOPS.where, "mean_hops", {"routing": "dr"}, Form.SAVING, seeds=3)
    source = rows_of({"pr-gpi": [5.0, 12.0, 9.0], "dr": [10.0, 20.0]})
    claim = Claim("shorter", SAID, 45, query, within(0.5))
    ours = outcome(claim, source)
    assert (ours.value, ours.runs) == (45.0, 2)  # 50 % and 40 %
    assert query.unit == "%"
    assert outcome(claim, rows_of({"pr-gpi": [5.0], "dr": [0.0]})).runs == 0


def test_a_ratio_of_ratios_and_a_ratio_of_columns():
    query = Query(
        "hop_length", HOPS.where, "mean_hops", {"routing": "dr"},
        against={"routing": "pr-gpe"}, seeds=1,
    )  # fmt: skip
    rows = rows_of({"pr-gpi": [6.0], "dr": [2.0], "pr-gpe": [3.0]})
    assert query.samples(rows)[0] == [[6.0 / 2.0 / (3.0 / 2.0)]]
    by = Query("hop_length", HOPS.where, "mean_hops", by="se_hops", seeds=1)
    assert by.samples(rows_of({"pr-gpi": [6.0]}, se_hops=1.5))[0] == [[4.0]]


def test_rows_that_are_equal_but_for_their_seed_are_one_value():
    ours = outcome(Claim("hops", SAID, 9, HOPS, within(0.5)), rows_of({"pr-gpi": [9.0, 9.0, 9.0]}))
    assert (ours.runs, math.isnan(ours.half_width)) == (1, True)
    other = rows_of({"pr-gpi": [9.0, 9.0, 9.0]})
    seen = outcome(
        Claim("hops", SAID, 9, HOPS, within(0.5)),
        lambda runs: [row | {"late": n} for n, row in enumerate(other(runs))],
    )
    assert seen.runs == 3


def test_draws_that_happen_to_be_equal_all_count():
    rows = rows_of({"pr-gpi": [7.0, 7.0, 10.0]})
    ours = outcome(Claim("hops", SAID, 9, HOPS, within(0.5)), rows)
    assert (ours.value, ours.runs) == (8.0, 3)


def test_repetitions_of_a_list_are_values_and_pair_with_those_of_the_divisor():
    query = Query("hop_length", HOPS.where, "mean_hops", {"routing": "dr"}, seeds=1)
    lists = rows_of({"pr-gpi": [[2.0, 6.0, 4.0]], "dr": [[1.0, 2.0, 4.0]]})
    assert query.samples(lists)[0] == [[2.0, 3.0, 1.0]]
    entries = Query("hop_length", HOPS.where, "mean_hops", entries=True, statistic=max, seeds=1)
    values = rows_of({"pr-gpi": [[2.0, None, 4.0]]})
    assert entries.samples(values)[0] == [[2.0], [4.0]]


def error_of_hops(row, column):
    """Return the standard error of a column in a row of one sample."""
    return row["se_hops"]


def test_a_sample_has_the_interval_of_its_standard_errors():
    query = Query(
        "hop_length", HOPS.where, "mean_hops", form=Form.PERCENT, error=error_of_hops, seeds=1
    )
    ours = outcome(
        Claim("hops", SAID, 1000, query, within(0.5)), rows_of({"pr-gpi": [10.0]}, se_hops=0.1)
    )
    assert (ours.value, ours.runs) == (1000.0, 1)
    assert ours.half_width == pytest.approx(19.6)


def test_a_difference_of_samples_has_the_errors_of_both():
    column = {"column": "mean_hops", "form": Form.PERCENT, "error": error_of_hops, "seeds": 1}
    less = Query("hop_length", {**HOPS.where, "routing": "dr"}, **column)
    query = Query("hop_length", HOPS.where, **column, less=less)
    rows = rows_of({"pr-gpi": [10.0], "dr": [6.0]}, se_hops=0.1)
    ours = outcome(Claim("hops", SAID, 400, query, within(0.5)), rows)
    assert (ours.value, ours.runs) == (400.0, 1)
    assert ours.half_width == pytest.approx(19.6 * math.sqrt(2))
    per = Query("hop_length", HOPS.where, "mean_hops", seeds=1)
    divided = outcome(Claim("hops", SAID, 40, replace(query, per=per), within(0.5)), rows)
    assert divided.half_width == pytest.approx(ours.half_width / 10)
    with pytest.raises(ValueError, match="the errors of both"):
        replace(query, error=None)


def test_a_run_that_two_gains_share_errs_once():
    """(12 - 6) / 8: the error of 8 moves both gains, so 0.75 of it is left of 1.5 and 0.75."""
    column = {"column": "mean_hops", "error": error_of_hops, "seeds": 1, "over": {"routing": "bfs"}}
    less = Query("hop_length", {**HOPS.where, "routing": "dr"}, **column)
    query = Query("hop_length", HOPS.where, **column, less=less)
    rows = rows_of({"pr-gpi": [12.0], "dr": [6.0], "bfs": [8.0]}, se_hops=0.1)
    ours = outcome(Claim("gain", SAID, 0.75, query, within(0.5)), rows)
    assert ours.value == 0.75
    assert ours.half_width == pytest.approx(0.196 / 8 * math.hypot(1, 1, 0.75))


@pytest.mark.parametrize(
    ("others", "verdict", "text"),
    [
        ([8.09, 8.11], Verdict.AGREES, "9.10 ± 0.13; 8.10 ± 0.13"),
        ([11.99, 12.01], Verdict.NOT_COMPARABLE, "9.10 ± 0.13; 12.00 ± 0.13"),
        ([9.0, 11.0], Verdict.UNDECIDED, "9.10 ± 0.13; 10 ± 13"),
        ([], Verdict.AGREES, "9.10 ± 0.13"),
    ],
)
def test_a_verdict_stands_if_it_does_for_each_value_of_an_unnamed_parameter(others, verdict, text):
    query = replace(HOPS, seeds=2)
    otherwise = replace(query, where={**query.where, "routing": "dr"})
    claim = Claim(
        "hops", SAID, "short", query, below(10.5), why_more="x", otherwise=otherwise, unnamed="x"
    )
    ours = outcome(claim, rows_of({"pr-gpi": [9.09, 9.11], "dr": others}))
    assert ours.verdict is verdict
    assert value_text(claim, ours) == f"{text} hops"
    is_apart = verdict is Verdict.NOT_COMPARABLE
    assert claim.reason(ours) == (UNNAMED.format("x") if is_apart else "")
    assert [run.parameters["routing"] for run in claim.runs] == ["pr-gpi"] * 2 + ["dr"] * 2


def test_an_extreme_is_that_of_the_cells_means_with_its_interval():
    networks = {**HOPS.where, "routing": ("pr-gpi", "pr-gpe")}
    query = Query("hop_length", networks, "mean_hops", statistic=max, seeds=3)
    source = rows_of({"pr-gpi": [9.0, 13.0, 11.0], "pr-gpe": [1.0, 20.0, 3.0]})
    ours = outcome(Claim("most", SAID, 11, query, within(0.5)), source)
    assert (ours.value, ours.runs) == (11.0, 3)
    assert ours.half_width > 0


def test_a_maximum_over_samples_has_the_interval_of_its_own_cell():
    networks = {**HOPS.where, "routing": ("pr-gpe", "pr-gpi")}
    query = Query(
        "hop_length", networks, "mean_hops", {"routing": "dr"}, Form.GAIN,
        statistic=max, error=lambda row, column: row["error"], seeds=1,
    )  # fmt: skip
    values = {"pr-gpe": ([11.0], 9.0), "pr-gpi": ([15.0], 0.3), "dr": ([10.0], 0.4)}
    rows = [
        row | {"error": values[run.parameters["routing"]][1]}
        for run in query.runs
        for row in rows_of({key: numbers for key, (numbers, _) in values.items()})([run])
    ]
    ours = outcome(Claim("hops", SAID, 50, query, within(0.1)), lambda runs: rows)
    assert (ours.value, ours.runs) == (pytest.approx(50), 1)
    assert ours.half_width == pytest.approx(1.96 * 150 * math.hypot(0.3 / 15, 0.4 / 10))
    assert ours.verdict is Verdict.UNDECIDED
    divided = replace(query, per=Query("hop_length", networks, "se_hops", statistic=max, seeds=1))
    with_divisor = [row | {"se_hops": 20.0} for row in rows]
    scaled = outcome(Claim("hops", SAID, 2.5, divided, within(0.1)), lambda runs: with_divisor)
    assert scaled.half_width == pytest.approx(ours.half_width / 20)


@pytest.mark.parametrize("links", [1, 200])
def test_the_most_loaded_link_has_at_most_the_error_of_a_count(links):
    busy = 0.05 / links  # of each busy link; the others share the rest
    shares = [busy] * links + [0.95 / 400] * 400
    maxima = np.random.default_rng(1).multinomial(100_000, shares, 2000)[:, :links].max(axis=1)
    row = {"rat_bps": 8.0, "uat_bps": 9.0, "bottleneck_flows": maxima.mean()}
    deviation = maxima.std() / maxima.mean()
    assert deviation < 1.05 * of_flows(row, "rat_bps") / 8
    assert links > 1 or deviation > 0.9 * of_flows(row, "rat_bps") / 8
    assert of_flows(row, "uat_bps") == 0


def test_a_mean_over_drawn_pairs_has_the_interval_of_its_row(all_claims):
    claim = next(
        claim for claim in all_claims.values() if claim.words == "disjoint paths of k', mean, SF"
    )
    rows = [
        {"run": run.id, "cdp_mean_fraction": 0.89, "cdp_mean_error_fraction": 0.003}
        for run in claim.query.runs
    ]
    ours = outcome(claim, lambda runs: rows)
    assert (ours.value, ours.half_width) == (pytest.approx(89), pytest.approx(0.3))


def test_an_error_of_what_is_more_than_a_number_of_each_run_is_refused():
    for more in ({"statistic": sum}, {"entries": True}):
        with pytest.raises(ValueError, match="one number"):
            replace(HOPS, error=error_of_hops, **more)
    with pytest.raises(ValueError, match="not counted"):
        replace(HOPS, per=replace(HOPS, error=error_of_hops))


def test_entries_of_a_list_are_added():
    query = Query(
        "hop_histogram", {"topology": D33, "routing": "dr", "failed_fraction": 0.0}, "x",
        form=Form.PERCENT, bins=(1, 2, 1),
    )  # fmt: skip
    claim = Claim("hops", SAID, 37, query, within(0.5))
    ours = outcome(claim, rows_of({"dr": [[0.5, 0.25, 0.125, 0.125]]}, "x"))
    assert ours.value == 37.5
    every_other = replace(claim, query=replace(query, bins=(1, 3, 2)))
    assert outcome(every_other, rows_of({"dr": [[0.5, 0.25, 0.125, 0.125]]}, "x")).value == 37.5
    assert outcome(every_other, rows_of({"dr": [[0.5, 0.25, 0.125, 0.0]]}, "x")).value == 25


@pytest.mark.parametrize(
    ("word", "values", "unit"),
    [("per", [200 / 50, 300 / 50], ""), ("less", [200 - 50, 300 - 50], "%")],
)
def test_a_gain_beside_another_gain_of_its_run(word, values, unit):
    other = Query("hop_length", HOPS.where, "se_hops", {"routing": "dr"}, Form.GAIN, seeds=2)
    query = replace(other, column="mean_hops", **{word: other})
    rows = [
        {"run": run.id, "mean_hops": 3.0 + run.seed, "se_hops": 1.5}
        if run.parameters["routing"] == "pr-gpi"
        else {"run": run.id, "mean_hops": 1.0, "se_hops": 1.0}
        for run in query.runs
    ]
    assert query.samples(lambda runs: rows)[0] == [values]
    assert query.unit == unit


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
        (within(0.1), 9.5, 0.2, Verdict.AGREES),
        (within(0.1), 8.9, 0.2, Verdict.UNDECIDED),
        (within(0.1), 8.0, 0.2, Verdict.CONTRADICTS),
        (at_least(1), 1.5, 0.4, Verdict.AGREES),
        (at_least(1), 1.5, 0.6, Verdict.UNDECIDED),
        (at_least(1), 0.5, 0.4, Verdict.CONTRADICTS),
        (at_least(1), 1.0, 0.0, Verdict.AGREES),
        (above(1), 1.0, 0.0, Verdict.CONTRADICTS),
        (between(2, 4), 4.5, 0.0, Verdict.CONTRADICTS),
    ],
)
def test_a_rule_needs_the_whole_interval(rule, value, half_width, verdict):
    assert Claim("hops", SAID, 10.0, HOPS, rule).verdict(value, half_width) is verdict


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (within(0.1), "9 to 11 %"),
        (within(0), "10 %"),
        (at_least(1), "at least 1 %"),
        (above(1), "above 1 %"),
        (claims.at_most(2), "at most 2 %"),
        (claims.below(2), "below 2 %"),
        (between(2, 4), "2 to 4 %"),
    ],
)
def test_a_rule_shows_its_bounds(rule, text):
    assert rule.text(10, "%") == text


def test_the_reason_is_that_of_the_side_on_which_ours_lies():
    claim = Claim("hops", SAID, 10, HOPS, within(0.1), why_more="too long", why_less="too short")
    outcomes = [outcome(claim, rows_of({"pr-gpi": [value] * 2})) for value in (12.0, 8.0, 10.0)]
    assert [claim.reason(ours) for ours in outcomes] == ["too long", "too short", ""]


def test_what_is_apart_is_never_compared_and_our_own_holds_or_fails():
    apart = Claim("hops", SAID, 11.0, HOPS, apart="another size")
    rows = rows_of({"pr-gpi": [11.0]})
    assert outcome(apart, rows).verdict is Verdict.NOT_COMPARABLE
    own = Claim("hops", OURS, "", HOPS, at_least(12))
    assert outcome(own, rows).verdict is Verdict.FAILS
    assert outcome(own, rows_of({"pr-gpi": [13.0]})).verdict is Verdict.HOLDS


def test_a_claim_without_query_is_not_comparable_and_one_without_rows_is_not_measured():
    missing = Claim("figure", SAID, apart="an illustration")
    assert outcome(missing, rows_of({})).verdict is Verdict.NOT_COMPARABLE
    claim = Claim("hops", SAID, 1, HOPS, within(0.1))
    assert outcome(claim, rows_of({})).verdict is Verdict.NOT_MEASURED


@pytest.mark.parametrize("statistic", [mean, min, max, sum])
def test_a_claim_of_which_one_cell_lacks_rows_is_not_measured(statistic):
    where = {**HOPS.where, "routing": ("pr-gpi", "pr-gpe")}
    query = Query("hop_length", where, "mean_hops", {"routing": "dr"}, statistic=statistic, seeds=2)
    claim = Claim("hops", SAID, 1, query, within(10))
    measured = {"pr-gpi": [1.0, 2.0], "pr-gpe": [3.0], "dr": [1.0, 1.0]}
    assert outcome(claim, rows_of(measured)).runs > 0
    for part in (
        {**measured, "pr-gpe": []},
        {**measured, "dr": []},
        {**measured, "pr-gpe": [None]},
    ):
        ours = outcome(claim, rows_of(part))
        assert (ours.verdict, ours.runs) == (Verdict.NOT_MEASURED, 0)
    assert outcome(claim, rows_of({**measured, "pr-gpe": []}), in_part=True).runs > 0


def test_a_statement_that_nothing_measures_says_why():
    unmeasured = Claim("hops", SAID, 12, missing="no experiment counts hops")
    ours = outcome(unmeasured, rows_of({}))
    assert ours.verdict is Verdict.NOT_MEASURED
    assert unmeasured.reason(ours) == "no experiment counts hops"


def test_a_claim_is_refused_that_cannot_be_judged():
    for rule, paper, more, reason in (
        (
            within(0.1),
            "up to 30 %",
            {},
            "hops: the rule needs the paper's number, not 'up to 30 %'",
        ),
        (None, 30, {}, "without query or rule"),
        (within(0.1), 30, {"apart": "another size"}, "has no rule"),
        (None, 30, {"missing": "no row"}, "neither query nor rule"),
        (below(1), 30, {"otherwise": HOPS}, "says what `otherwise` has"),
        (below(1), 30, {"unnamed": "the load"}, "says what `otherwise` has"),
    ):
        with pytest.raises(ValueError, match=reason):
            Claim("hops", SAID, paper, HOPS, rule, **more)


@pytest.mark.parametrize(
    ("value", "half_width", "unit", "text"),
    [
        (11.0, math.nan, "hops", "11 hops"),
        (15.4512, 0.012, "%", "15.45 ± 0.01 %"),
        (0.91, 0.0, "ms", "0.91 ms"),
        (1.0, 6e-17, "", "1"),
        (45.71, 2.4, "%", "46 ± 2 %"),
        (3581556.0, math.nan, "", "3,581,556"),
    ],
)
def test_a_number_has_the_digits_that_its_interval_leaves(value, half_width, unit, text):
    assert claims.number_text(value, half_width, unit) == text


@pytest.mark.parametrize(
    ("value", "half_width", "text"),
    [
        (0.95, 0.0212, "0.950 ± 0.021"),
        (0.9148, 0.01481, "0.91480 ± 0.01481"),  # to two digits the interval ends at 0.9
        (0.89996, math.nan, "0.89996"),
        (0.95, 0.0, "0.95"),
    ],
)
def test_the_verdict_follows_from_the_digits_that_are_printed(value, half_width, text):
    claim = Claim("hops", SAID, "as many", HOPS, between(0.9, 1.1))
    assert claims.judged_text(claim, value, half_width) == text


def test_a_claim_has_one_name_for_its_network(all_claims):
    """The first tree in a claim's words is the first one in our size."""
    for name, claim in all_claims.items():
        named = [re.findall(r"FT\(3,\d+\)", text) for text in (claim.words, claim.ours)]
        words, ours = (trees[:1] for trees in named)
        assert not (words and ours) or words == ours, name


def test_the_report_begins_with_the_claims_that_have_rows():
    shown = claimed(
        lambda runs: [
            {
                "run": run.id,
                "mean_hops": 8.0 if run.parameters["routing"] == "pr-gpi" else 10.0,
                "se_hops": 0.1,
            }
            for run in runs
            if run.experiment == "hop_length" and run.parameters["topology"] == "dcell:n=18,k=2"
        ]
    )
    assert '<td class="words">1.25</td>' in shown  # GP_0 over GP_I
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
        assert meaning_of(query.column, experiment.columns), (name, query.column)
        assert set(query.over) <= {*experiment.axes, *claims.SETTINGS}, name


def test_a_mean_is_over_seeds_alone(all_claims):
    for name, claim in all_claims.items():
        if claim.query and claim.query.statistic is mean:
            cells = {
                (run.engine, run.clock, *run.parameters.values())
                for (run, _, _), *_ in claim.query.terms
            }
            assert len(cells) == 1, (name, plain(sorted(map(str, cells))[:3]))


def test_a_claim_says_what_the_paper_says(all_claims):
    for name, claim in all_claims.items():
        statement = claim.statement
        assert claim.words, name
        assert (statement is OURS) == (statement.kind == "our own"), name
        if statement is OURS:
            assert claim.rule, name
            assert claim.ours, name
            assert claim.paper == "", name
        else:
            assert statement.place, name
            assert statement.quote, name
            assert statement.setting, name
        for reason in (claim.why_more, claim.why_less, claim.apart, claim.missing):
            assert len(reason.split()) <= 35, name


def named_topologies(words):
    """Return the topologies of the networks that words name."""
    return {
        canonical(topology(match))
        for pattern, topology in NETWORKS.items()
        for match in re.finditer(pattern, words)
    }


def test_networks_in_words_are_seen():
    assert named_topologies("routes, D3,4 and β2,18, over F3,10") == {
        canonical(name) for name in ("dcell:n=4,k=3", "beta-dcell:n=18,k=2", "ficonn:n=10,k=3")
    }
    assert named_topologies("FT(3,8), k = 8") == {
        canonical("fattree:n=3,d=8"),
        canonical("fattree:k=8"),
    }


def test_a_claim_is_of_the_networks_that_its_words_name(all_claims):
    for name, claim in all_claims.items():
        paper = name.partition("-")[0]
        if not claim.query:
            continue
        words = claim.words if paper == "lbsp" else re.sub(r"k = \d+", "", claim.words)
        used = {
            canonical(run.text("topology"))
            for run in claim.query.runs
            if "topology" in run.parameters
        }
        assert named_topologies(words) <= used, name
        if named_topologies(words) and not re.search(r"\ball\b| to |fat-tree", words):
            assert used <= named_topologies(words), name


def test_a_claim_says_how_many_hosts_its_networks_have(all_claims):
    said = defaultdict(set)
    for claim in all_claims.values():
        runs = claim.query.runs if claim.query else []
        networks = {run.parameters.get("topology") for run in runs}
        for text in re.findall(r"[\d,]+(?: to [\d,]+)? hosts", claim.words + "; " + claim.ours):
            said[text] |= {build(network).servers for network in networks if network}
    assert len(said) > 5
    for text, hosts in said.items():
        numbers = [number.replace(",", "") for number in re.findall(r"[\d,]+", text)]
        rounded = {round(n, len(numbers[0].rstrip("0")) - len(str(n))) for n in hosts}
        if len(numbers) == 2:
            assert [min(hosts), max(hosts)] == [*map(int, numbers)], text
        elif hosts:
            assert int(numbers[0]) in rounded, text


def test_a_rule_has_the_bounds_that_words_of_the_paper_name(all_claims):
    bound_words = {"above": 1, "over": 1, "more than": 1, "at least": 1, "below": -1, "at most": -1}
    for name, claim in all_claims.items():
        if not claim.rule or not isinstance(claim.paper, str):
            continue
        least, most = claim.rule.bounds(claim.paper)
        for number in map(float, re.findall(r"\d+(?:\.\d+)?", claim.paper)):
            assert least <= number <= most, name
        for words, side in bound_words.items():
            if claim.paper.startswith(words + " "):
                assert (math.isinf(most), math.isinf(least)) == (side > 0, side < 0), name


def test_a_maximum_of_the_paper_is_compared_with_a_maximum(all_claims):
    for name, claim in all_claims.items():
        if claim.statement.kind == "up to" and str(claim.paper).startswith("up to") and claim.rule:
            assert claim.query.statistic is max, name


def test_a_row_to_divide_by_has_the_version_of_its_own_cell(all_claims):
    claim = next(
        claim
        for claim in all_claims.values()
        if claim.query and claim.query.experiment == "dar_goodput"
    )
    experiment = definition.find("dar_goodput")
    changed = claims.changed(claim.query.runs[0], {"scheme": "dar:p=1,elephant_kb=0,detect=queue"})
    assert (claim.query.runs[0].version, changed.version) == (
        experiment.version,
        experiment.version + 1,
    )
