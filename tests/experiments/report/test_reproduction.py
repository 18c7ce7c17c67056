"""Repetition of published results: selection, samples, and verdicts."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import NamedTuple

import pytest

from weft.experiments.cli.cli import main
from weft.experiments.report import reproduction
from weft.experiments.report.claims import OURS, Claim, Query, all_claims
from weft.experiments.report.published import PublishedSet
from weft.experiments.report.reproduction import Likeness, compare, sample, select
from weft.experiments.runner import provenance
from weft.experiments.runner.definition import find

EXPERIMENT = find("ccrdn_properties")
RUNS = EXPERIMENT.runs()
RUN = RUNS[0]
HERE = {"arithmetic": {"numpy": "2", "numba_instructions": "avx"}}
THERE = {"numpy": "2", "numba_instructions": "neon"}


class Answer(NamedTuple):
    status: int
    out: str
    err: str


@pytest.fixture
def weft(capsys):
    """Run a command."""

    def run(*argv):
        status = main([str(word) for word in argv])
        return Answer(status, *capsys.readouterr())

    return run


def likeness(new, old, *, published=HERE["arithmetic"], experiment=EXPERIMENT, run=RUN):
    return compare(experiment, run, ({"x": new}, HERE), ({"x": old}, published))


def test_a_selection_is_a_paper_a_place_a_claim_an_experiment_or_all():
    assert set(select(["ccrdn"], runs=False).claims) == {
        name for name in all_claims() if name.startswith("ccrdn-")
    }
    places = {
        claim.place for claim in select(["ccrdn", "figure", "13"], runs=False).claims.values()
    }
    assert places == {"section 7.3, figure 13a", "section 7.3, figure 13b"}
    two = select(["ccrdn-1", "dar", "table", "1"], runs=False).claims
    assert {name.partition("-")[0] for name in two} == {"ccrdn", "dar"}
    own = select(["dar", "own"], runs=False).claims.values()
    assert {claim.statement for claim in own} == {OURS}
    (claim,) = select(["ccrdn_properties"]).claims.values()
    assert claim.query.experiment == "ccrdn_properties"
    assert len(select(["all"], runs=False).claims) == len(all_claims())


@pytest.mark.parametrize("words", [["ccrdn", "figure", "77"], ["nothing"], ["ccrdn-999"]])
def test_what_is_not_there_is_refused(words):
    with pytest.raises(ValueError, match="there are"):
        select(words)


def test_the_runs_of_a_claim_have_those_to_divide_by():
    runs = select(["ccrdn-2"]).runs.values()
    assert {run.text("routing") for run in runs} == {"pr-gpi", "dr"}


def test_a_sample_has_every_experiment_and_ends_in_time():
    others = find("hop_histogram").runs()
    seconds = {run.id: 50.0 for run in RUNS} | {run.id: 1.0 for run in others[:-1]}
    chosen = sample([*RUNS, *others], seconds)
    assert {run.experiment for run in chosen} == {"ccrdn_properties", "hop_histogram"}
    assert sum(seconds[run.id] for run in chosen) <= reproduction.SAMPLE_S
    assert others[-1] not in chosen  # its time is not known


@pytest.mark.parametrize(
    ("new", "old", "published", "expected"),
    [
        (0.3, 0.3, HERE["arithmetic"], Likeness.BITS),
        (0.1 + 0.2, 0.3, HERE["arithmetic"], Likeness.DIFFERENT),
        (0.1 + 0.2, 0.3, THERE, Likeness.CLOSE),
        ([1.0, 0.1 + 0.2], [1.0, 0.3], THERE, Likeness.CLOSE),
        (0.3001, 0.3, THERE, Likeness.DIFFERENT),
        ([1.0], [1.0, 2.0], THERE, Likeness.DIFFERENT),
        (None, 0.3, THERE, Likeness.DIFFERENT),
        (1, 1.0, HERE["arithmetic"], Likeness.DIFFERENT),
    ],
)
def test_floats_may_differ_in_the_last_place_between_instruction_sets_alone(
    new, old, published, expected
):
    assert likeness(new, old, published=published).likeness is expected


def test_processor_times_are_not_compared():
    run = find("zero_load_latency").runs()[0]
    rows = [({"latency_ms": value, "mean_hops": 3.0}, HERE) for value in (1.0, 2.0)]
    published = (rows[1][0], HERE["arithmetic"])
    assert compare(find("zero_load_latency"), run, rows[0], published).likeness is Likeness.BITS


def verdict(values, published_values, likenesses, column="servers"):
    """Return the verdict on a claim whose runs have these values and comparisons."""

    class FixedRows(PublishedSet):
        def rows(self, runs):
            return rows_of(published_values)

    def rows_of(numbers):
        return [{"run": run.id, column: x} for run, x in zip(RUNS, numbers, strict=False)]

    query = Query("ccrdn_properties", {}, column)
    claim = Claim("servers", OURS, "", query, apart="a test")
    new = {row["run"]: (row, HERE) for row in rows_of(values)}
    rows = {
        run.id: reproduction.RowComparison(likeness)
        for run, likeness in zip(RUNS, likenesses, strict=False)
    }
    return reproduction.compare_claim(claim, rows, new, FixedRows(Path("nowhere")))


def test_a_claim_is_as_like_as_its_least_like_row():
    bits, close, other = Likeness.BITS, Likeness.CLOSE, Likeness.DIFFERENT
    assert verdict([1, 2], [1, 2], [bits, bits]).likeness is bits
    assert verdict([1, 2], [1, 2], [bits, close]).likeness is close
    changed = verdict([1, 3], [1, 2], [bits, other])
    assert changed.text == "different by 33.33 %; 2 of 9 runs"
    assert verdict([], [1, 2], []).likeness is Likeness.NOT_MEASURED
    assert verdict([1], [], [bits]).likeness is Likeness.NOT_PUBLISHED


def test_rows_in_real_time_are_compared_by_the_interval():
    real = [Likeness.INTERVAL] * 3
    assert verdict([9, 10, 11], [10, 11, 12], real).likeness is Likeness.INTERVAL


def test_a_ratio_of_real_times_waits_for_all_its_rows():
    """A sample may have the rows to divide by alone."""
    without = verdict([math.nan], [10, 11], [Likeness.INTERVAL])
    assert without.text == "not measured; 1 of 9 runs"


def test_the_command_measures_publishes_and_compares(weft, tmp_path, monkeypatch):
    words = ["reproduce", "ccrdn-1", "--jobs", "1", "--results", tmp_path / "results"]
    words += ["--published", tmp_path / "set"]
    monkeypatch.setattr(provenance, "code", lambda: ("0123456789", False))
    dry = weft(*words, "--dry-run")
    assert "9 runs, 0 of them stored" in dry.err
    assert "without compiling" in dry.err
    assert weft(*words, "--publish").status == 0
    elsewhere = [*words[:-4], "--results", tmp_path / "other", *words[-2:], "--dry-run"]
    assert "9 runs, 9 of them stored or published" in weft(*elsewhere, "--publish").err
    assert "9 runs, 0 of them stored;" in weft(*elsewhere).err
    claim = weft("claims", "ccrdn-1", "--published", tmp_path / "set", "--json")
    assert json.loads(claim.out)[0]["again_s"] > 0
    same = weft(*words, "--check")
    assert (same.status, "same to the bit" in same.out) == (0, True)
    path = tmp_path / "set" / "ccrdn_properties.jsonl"
    path.write_text(path.read_text().replace('"links": 61230', '"links": 61231'))
    changed = weft(*words, "--check", "--json")
    assert changed.status == 1
    assert json.loads(changed.out)[0]["verdict"].startswith("different")
    assert "in links" in changed.err


def test_an_experiment_without_runs_in_the_set_is_refused_with_the_place_of_sweeps(
    weft, tmp_path, monkeypatch
):
    monkeypatch.setattr(provenance, "code", lambda: ("0" * 12, False))
    for flags in ([], ["--publish"]):
        done = weft("reproduce", "first_light", *flags, "--results", tmp_path)
        assert done.status == 2
        assert "SWEEPS in the experiment's file" in done.err.splitlines()[-1]


def test_a_check_that_would_compare_nothing_is_refused_before_it_measures(
    weft, tmp_path, monkeypatch
):
    words = ["--check", "--results", tmp_path / "results", "--published"]
    with monkeypatch.context() as patch:
        patch.setattr(reproduction, "select", lambda names: pytest.fail("it plans first"))
        missing = weft("reproduce", "ccrdn-1", *words, tmp_path / "none")
    assert (missing.status, "no published results in" in missing.err) == (2, True)
    (tmp_path / "set").mkdir()
    assert weft("reproduce", "ccrdn-1", *words, tmp_path / "set").status == 2
    (tmp_path / "set" / "ccrdn_properties.jsonl").write_text("")
    other = weft("reproduce", "ccrdn-1", *words, tmp_path / "set")
    assert (other.status, "nothing to compare" in other.err) == (2, True)
    without = next(name for name, claim in all_claims().items() if not claim.query)
    no_runs = weft("reproduce", without, "--check", "--results", tmp_path / "results")
    assert (no_runs.status, "nothing to compare" in no_runs.err) == (2, True)
    assert not (tmp_path / "results").exists()


def test_claims_without_a_set_are_refused(weft, tmp_path):
    refused = weft("claims", "ttc-1", "--published", tmp_path)
    assert (refused.status, refused.out) == (2, "")
    assert f"no published results in {tmp_path}" in refused.err


def test_changed_code_is_not_published(weft, tmp_path, monkeypatch):
    monkeypatch.setattr(provenance, "code", lambda: ("0123456789", True))
    refused = weft("reproduce", "ccrdn-1", "--publish", "--published", tmp_path)
    assert (refused.status, "clean commit" in refused.err) == (2, True)
    assert "name a paper" in weft("reproduce").err
