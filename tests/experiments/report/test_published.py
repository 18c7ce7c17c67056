"""The published set: what may enter it, how it is kept, and that it can be measured again."""

from __future__ import annotations

import errno
import gzip
import json
import re
import tracemalloc
import warnings
from pathlib import Path

import pytest

from weft.experiments.report import pages
from weft.experiments.report.claims import Verdict, all_claims, outcome
from weft.experiments.report.published import (
    FOLDER,
    MOST_TEXT_BYTES,
    SUFFIXES,
    PublishedSet,
    results_in,
    runs_of,
)
from weft.experiments.report.reproduction import Likeness, compare
from weft.experiments.runner.definition import find
from weft.experiments.runner.provenance import arithmetic
from weft.experiments.runner.results import Store
from weft.experiments.runner.rows import provenance_of, row_of

PUBLISHED = PublishedSet(FOLDER)
EXPERIMENT = find("ccrdn_properties")
RUNS = EXPERIMENT.runs()
ABOUT = {
    "commit": "0123456789",
    "dirty": False,
    "arithmetic": {"numpy": "2.0"},
    "machine": {"architecture": "x86_64", "kernel": "6.1", "cpu_model": "secret"},
}
# Published time of a run that quick tests measure again, at most and where there is a choice.
QUICK_S, FAST_S = 3.5, 1.0


def entry(run, value=0.1 + 0.2, about=ABOUT, **more):
    row = {**run.parameters, "servers": value, "seed": 0, "engine": "graph", "run": run.id, **more}
    return row, {**about, "run": {**run.content, "id": run.id}, "wall_s": 1.234}


def test_rows_come_back_to_the_bit_and_sorted(tmp_path):
    published = PublishedSet(tmp_path)
    path = published.publish(EXPERIMENT, RUNS, [entry(run) for run in reversed(RUNS)])
    rows = published.rows(RUNS)
    assert [row["run"] for row in rows] == [run.id for run in RUNS]
    assert {row["servers"] for row in rows} == {0.1 + 0.2}
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["row"]["topology"] for line in lines[1:]] == sorted(
        run.text("topology") for run in RUNS
    )
    assert published.table(EXPERIMENT)[0][1]["wall_s"] == 1.2
    assert published.experiments() == ["ccrdn_properties"]
    assert results_in(tmp_path).experiments() == ["ccrdn_properties"]
    assert type(results_in(tmp_path / "none")) is Store


def test_no_machine_is_named(tmp_path):
    path = PublishedSet(tmp_path).publish(EXPERIMENT, RUNS, [entry(RUNS[0])])
    assert "secret" not in path.read_text()
    assert "kernel" not in path.read_text().splitlines()[0]


def test_a_row_that_is_the_same_keeps_its_line_and_others_are_replaced(tmp_path):
    published = PublishedSet(tmp_path)
    published.publish(EXPERIMENT, RUNS, [entry(run) for run in RUNS[:3]])
    later = ABOUT | {"commit": "abcdef"}
    new = [entry(RUNS[0], about=later), entry(RUNS[1], value=2, about=later)]
    published.publish(EXPERIMENT, RUNS[:2], new)
    commits = {row["run"]: about["commit"] for row, about in published.entries(RUNS)}
    assert commits == {RUNS[0].id: "0123456789", RUNS[1].id: "abcdef"}


def test_a_stop_loses_no_row_and_what_others_publish_meanwhile_stays(tmp_path, monkeypatch):
    published, other = PublishedSet(tmp_path), PublishedSet(tmp_path)
    path = published.publish(EXPERIMENT, RUNS, [entry(RUNS[0])])
    assert len(other.rows(RUNS)) == 1
    published.publish(EXPERIMENT, RUNS, [entry(RUNS[1])])
    other.publish(EXPERIMENT, RUNS, [entry(RUNS[2])])
    assert len(PublishedSet(tmp_path).rows(RUNS)) == 3
    before = path.read_bytes()

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        published.publish(EXPERIMENT, RUNS, [entry(RUNS[3])])
    assert [(file, file.read_bytes()) for file in tmp_path.iterdir()] == [(path, before)]


def test_a_long_file_is_compressed_and_the_same_again(tmp_path):
    published = PublishedSet(tmp_path)
    rows = [entry(run, list=[0.5] * 50_000) for run in RUNS]
    path = published.publish(EXPERIMENT, RUNS, rows)
    content = path.read_bytes()
    assert path.name == "ccrdn_properties.jsonl.gz"
    assert published.publish(EXPERIMENT, RUNS, rows).read_bytes() == content
    short = published.publish(EXPERIMENT, RUNS, [entry(run) for run in RUNS])
    assert list(tmp_path.iterdir()) == [short]


@pytest.mark.parametrize(
    ("about", "row", "reason"),
    [
        ({"dirty": True}, {}, "no commit has"),
        ({"commit": None}, {}, "no commit has"),
        ({}, {"fidelity": "FAIL"}, "failed fidelity"),
    ],
)
def test_rows_of_unknown_code_or_failed_fidelity_are_refused(tmp_path, about, row, reason):
    with pytest.raises(ValueError, match=reason):
        PublishedSet(tmp_path).publish(
            EXPERIMENT, RUNS, [entry(RUNS[0], about=ABOUT | about, **row)]
        )
    assert list(tmp_path.iterdir()) == []


def lines_of(row=None, **fields):
    """Return the two lines of a set with one run, whose fields and cells are replaced."""
    cells = {"run": "1", "seed": 0, "engine": "graph", "servers": 3, **(row or {})}
    line = {"version": 1, "by": "k", "wall_s": 0.5, "row": cells, **fields}
    return [
        json.dumps({"key": "k", "commit": "0123456789"}),
        json.dumps({name: value for name, value in line.items() if value is not None}),
    ]


@pytest.mark.parametrize(
    ("lines", "number", "reason"),
    [
        (["{", *lines_of()], 1, "no line of JSON"),
        (["[" * 100_000], 1, "no line of JSON"),
        (["[]"], 1, "an object of JSON"),
        (['{"key": "k"}'], 1, "commit is missing"),
        (['{"commit": "0", "key": 3}'], 1, "key must be str, got 3"),
        (lines_of(by="other"), 2, "no line before has the provenance 'other'"),
        (lines_of(by=["k"]), 2, "by must be str"),
        (lines_of(wall_s="0.5"), 2, "wall_s must be float or int, got '0.5'"),
        (lines_of(version=True), 2, "version must be int"),
        (lines_of(version=None), 2, "version is missing"),
        ([lines_of()[0], '{"row": 3, "version": 1, "by": "k", "wall_s": 1}'], 2, "row must be"),
        (lines_of({"run": 7}), 2, "run must be str"),
        (lines_of({"seed": None}), 2, "seed must be int"),
        (lines_of({"servers": {}}), 2, "servers must be a number, a text, or a list"),
        (lines_of({"servers": [[1]]}), 2, "servers must be a number, a text, or a list"),
        (lines_of({"servers": float("nan")}), 2, "no line of JSON"),
        ([*lines_of(), lines_of()[1]], 3, "the run 1 stands twice"),
        ([lines_of()[0], lines_of()[0]], 2, "the provenance k stands twice"),
    ],
)
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_damaged_file_is_refused_with_its_line(tmp_path, suffix, lines, number, reason):
    content = "\n".join(lines).encode()
    path = tmp_path / f"ccrdn_properties{suffix}"
    path.write_bytes(gzip.compress(content) if suffix.endswith("gz") else content)
    with pytest.raises(ValueError, match=re.escape(f"{path}:{number}: ") + f".*{reason}"):
        PublishedSet(tmp_path).table(EXPERIMENT)


@pytest.mark.parametrize("damage", [lambda archive: archive[:-9], lambda archive: b"no" + archive])
def test_a_damaged_archive_is_refused(tmp_path, damage):
    path = tmp_path / "ccrdn_properties.jsonl.gz"
    path.write_bytes(damage(gzip.compress("\n".join(lines_of()).encode())))
    with pytest.raises(ValueError, match=re.escape(f"{path}: no whole gzip archive")):
        PublishedSet(tmp_path).table(EXPERIMENT)


def test_an_archive_of_a_long_text_is_refused_unread(tmp_path):
    path = tmp_path / "ccrdn_properties.jsonl.gz"
    path.write_bytes(gzip.compress(bytes(2 * MOST_TEXT_BYTES), 1))
    tracemalloc.start()
    with pytest.raises(ValueError, match=rf"its text is longer than {MOST_TEXT_BYTES} bytes"):
        PublishedSet(tmp_path).table(EXPERIMENT)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 2 * MOST_TEXT_BYTES


def test_two_files_of_an_experiment_are_refused(tmp_path):
    paths = [tmp_path / f"ccrdn_properties{suffix}" for suffix in SUFFIXES]
    paths[0].write_text("\n".join(lines_of()))
    paths[1].write_bytes(gzip.compress(paths[0].read_bytes()))
    line = f"{paths[0]} and {paths[1].name}: both exist; remove the older one"
    published = PublishedSet(tmp_path)
    for read in (
        lambda: published.table(EXPERIMENT),
        lambda: published.publish(EXPERIMENT, [], []),
    ):
        with pytest.raises(ValueError, match=f"^{re.escape(line)}$"):
            read()


@pytest.mark.parametrize("name", PUBLISHED.experiments())
def test_the_set_has_runs_that_the_claims_and_figures_need(name):
    stale = PUBLISHED.states(name).keys() - runs_of(name).keys()
    assert not stale, f"{len(stale)} rows of former sweeps: weft reproduce {name} --publish"


def test_every_claim_with_a_query_has_rows():
    for name, claim in all_claims().items():
        if claim.query:
            assert outcome(claim, PUBLISHED.rows).runs, f"{name}: weft reproduce {name} --publish"


def test_a_claim_that_our_rows_contradict_has_the_reason_for_its_side():
    unexplained = {
        name
        for name, claim in all_claims().items()
        if (ours := outcome(claim, PUBLISHED.rows)).verdict is Verdict.CONTRADICTS
        and not claim.reason(ours)
    }
    assert unexplained == set()


def test_our_own_results_hold():
    verdicts = {
        name: outcome(claim, PUBLISHED.rows).verdict for name, claim in all_claims().items()
    }
    assert [name for name, verdict in verdicts.items() if verdict is Verdict.FAILS] == []


def sample(name, engine, clock="real", **values):
    """Return the published run with `values` that shows most and its time; None if none is.

    That is the one with most figures other than 0 of those that are fast, else the fastest.  Runs
    of other versions are left out.  Those of other processors are not: at most the last bits of
    theirs differ.
    """
    rows = [
        (row, about)
        for row, about in PUBLISHED.table(find(name))
        if (row["engine"], row.get("clock", "real")) == (engine, clock)
        and values.items() <= row.items()
    ]
    own = {key: value for key, value in arithmetic().items() if "instructions" not in key}.items()
    timed = [(about["wall_s"], row) for row, about in rows if own <= about.items()]
    if rows and not timed:
        pytest.skip("the set was measured with other versions")
    if not timed:
        return None
    limit_s = max(FAST_S, min(wall_s for wall_s, _ in timed))
    shown = [(sum(map(bool, row.values())), -s, row["run"]) for s, row in timed if s <= limit_s]
    _, less_s, run = max(shown)
    return runs_of(name)[run], -less_s


def transports_of(name):
    """Return the column of a simulated transport and the published ones; None without several."""
    rows = [row for row, _ in PUBLISHED.table(find(name)) if row["engine"] == "packet"]
    for column in ("transport", "tcp"):
        values = sorted({row[column] for row in rows if column in row})
        if len(values) > 1:
            return column, values
    return None


@pytest.mark.parametrize(
    "name", [name for name in PUBLISHED.experiments() if {*find(name).engines} - {"kernel"}]
)
def test_a_sample_of_the_set_is_the_same_when_it_is_measured_again(name):
    for engine in {*find(name).engines} - {"kernel"}:
        run, wall_s = sample(name, engine) or (None, 0.0)
        if run and wall_s <= QUICK_S:
            assert difference(run, find(name).carry_out(run)) is None


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in PUBLISHED.experiments() if transports_of(name)])
def test_a_sample_of_each_transport_is_the_same(name):
    """A change of one model of TCP leaves the rows of the others, or their versions are raised."""
    column, values = transports_of(name)
    for value in values:
        run, _ = sample(name, "packet", **{column: value})
        assert difference(run, find(name).carry_out(run)) is None


@pytest.mark.virtual
def test_a_sample_under_the_virtual_clock_is_the_same():
    from weft.experiments.runner import virtual_runs

    for name in PUBLISHED.experiments():
        if found := sample(name, "kernel", "virtual"):
            assert difference(found[0], virtual_runs.measure(found[0]).outcome) is None, name


def difference(run, result):
    """Return how the row of `result` differs from the published one; None if it does not."""
    about = provenance_of(run, result, {"arithmetic": arithmetic()}, 0.0)
    (published,) = PUBLISHED.entries([run])
    compared = compare(find(run.experiment), run, (row_of(run, result), about), published)
    if compared.likeness in (Likeness.BITS, Likeness.CLOSE):
        return None
    warnings.warn(f"{run}: {compared}", stacklevel=2)  # which a second try of the test keeps
    return str(run), compared


@pytest.mark.parametrize("page", pages.pages(), ids=lambda path: path.name)
def test_tables_of_claims_on_pages_are_those_of_the_set(page):
    text = page.read_text(encoding="utf-8")
    assert pages.with_blocks(text, PUBLISHED) == text, "make pages"


def numbers_in_tables(text):
    """Return the lines of tables outside of blocks that have digits."""
    lines = pages.BLOCK.sub("", text).splitlines()
    return [line for line in lines if line.startswith("|") and re.search(r"[0-9]", line)]


def test_claims_and_readme_have_no_results_but_those_of_the_set():
    claims = (pages.ROOT / "docs/claims.md").read_text(encoding="utf-8")
    readme = (pages.ROOT / "README.md").read_text(encoding="utf-8")
    section = readme.partition("## What comes out")[2].partition("\n## ")[0]
    assert numbers_in_tables(claims) == []
    assert numbers_in_tables(section) == []
    assert numbers_in_tables("| a | 3 % |\n") != []
