import os
import shutil
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from quick import EXPERIMENT, measure

from weft.experiments.runner import results
from weft.experiments.runner.definition import Result
from weft.experiments.runner.parameters import Integer
from weft.experiments.runner.results import NAME, RunClaim, RunFailure, Store
from weft.experiments.runner.rows import row_of

ABOUT = {"commit": "abc", "dirty": False}


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "results")


def put_run(store, run):
    store.put(run, measure(run), ABOUT, 0.25)


def test_a_row_comes_back_as_it_was_with_its_provenance(store):
    run = EXPERIMENT.runs({"scheme": "dr", "size": "3"}, engines=["kernel"])[0]
    put_run(store, run)
    row = {
        "scheme": "dr",
        "size": 3,
        "load_fraction": 0.5,
        "area_bytes": 9,
        "delays_us": [1.5, 0.0],
        "right": True,
    }
    (stored,) = store.rows([run])
    assert stored == {
        **row,
        "seed": 0,
        "engine": "kernel",
        "clock": "real",
        "fidelity": "FAIL",
        "run": run.id,
    }
    assert list(stored) == [*row, "seed", "engine", "clock", "fidelity", "run"]
    about = store.provenance(run)
    assert about == {
        "run": {**run.content, "id": run.id},
        "commit": "abc",
        "dirty": False,
        "seen": "here",
        "fidelity": "FAIL",
        "wall_s": 0.25,
    }
    assert store.table(EXPERIMENT) == [(stored, about)]
    assert store.experiments() == ["quick"]


def test_only_where_something_is_emulated_is_there_fidelity(store):
    run = EXPERIMENT.runs()[0]
    put_run(store, run)
    assert "fidelity" not in store.rows([run])[0]


def test_numbers_of_numpy_are_numbers(store):
    run = EXPERIMENT.runs()[0]
    figures = {
        "a": np.float64(1.5),
        "b": np.int64(2),
        "c": [np.float32(0.5)],
        "d": np.bool_(True),
        "e": (1, 2),
    }
    store.put(run, Result(figures=figures, circumstances={"seen": np.int64(3)}), ABOUT, 0.25)
    (row,) = store.rows([run])
    assert {key: row[key] for key in figures} == {
        "a": 1.5,
        "b": 2,
        "c": [0.5],
        "d": True,
        "e": [1, 2],
    }
    assert store.provenance(run)["seen"] == 3


def test_a_query_creates_no_file(store):
    run = EXPERIMENT.runs()[0]
    assert run not in store
    assert (store.rows([run]), store.table(EXPERIMENT), store.experiments()) == ([], [], [])
    with pytest.raises(KeyError):
        store.provenance(run)
    store.release_claims()
    assert not store.root.exists()


def test_the_version_of_a_revised_cell_is_one_higher(store):
    graph = replace(EXPERIMENT, revised=lambda engine, parameters: engine == "graph")
    kernel = replace(EXPERIMENT, revised=lambda engine, parameters: engine == "kernel")
    before, after = (plan.runs(seeds=1)[0] for plan in (kernel, graph))
    assert (before.engine, before.version, after.version) == ("graph", 1, 2)
    put_run(store, before)
    assert len(store.table(kernel)) == 1
    assert store.table(graph) == []
    put_run(store, after)
    assert len(store.table(graph)) == 1
    assert [row["run"] for row, _ in store.table(graph)] == [after.id]


def test_rows_of_another_version_do_not_answer_the_question(store):
    put_run(store, EXPERIMENT.runs()[0])
    assert len(store.table(EXPERIMENT)) == 1
    assert store.table(replace(EXPERIMENT, version=2)) == []
    more = Integer(meaning="more", least=0, most=9).over(1)
    assert store.table(replace(EXPERIMENT, axes={**EXPERIMENT.axes, "more": more})) == []


def test_the_table_is_in_order(store):
    for run in reversed(EXPERIMENT.runs({"size": "10,9"})):
        put_run(store, run)
    order = [(row["scheme"], row["size"], row["seed"]) for row, _ in store.table(EXPERIMENT)]
    assert order == sorted(order)


def test_rows_come_in_the_order_in_which_they_are_asked_for(store):
    runs = EXPERIMENT.runs()
    for run in reversed(runs):
        put_run(store, run)
    assert [row["run"] for row in store.rows(runs[3:1:-1])] == [runs[3].id, runs[2].id]


def test_a_failure_is_kept_until_there_is_a_row_and_takes_none_away(store):
    run = EXPERIMENT.runs()[0]
    store.fail(run, RunFailure("why", "where"), 1.0)
    assert store.failures("quick") == {run.id: RunFailure("why", "where")}
    assert run not in store
    put_run(store, run)
    assert (store.failures("quick"), run in store) == ({}, True)
    store.fail(run, RunFailure("why", "where"), 1.0)
    assert (store.failures("quick"), len(store.rows([run]))) == ({}, 1)


@pytest.mark.parametrize(
    ("figures", "says"),
    [
        ({"size": 1}, "figure size has the name of a parameter or circumstance"),
        ({"seed": 1}, "figure seed has the name of a parameter or circumstance"),
        ({"x_s": float("nan")}, "figure x_s is nan; what could not be measured is None"),
        ({"x_s": np.float32("inf")}, "figure x_s is inf; what could not be measured is None"),
        ({"x_s": [1.0, float("inf")]}, "figure x_s is inf; what could not be measured is None"),
    ],
)
def test_figures_that_say_two_things_or_nothing_are_refused(figures, says):
    with pytest.raises(ValueError, match="figure") as error:
        row_of(EXPERIMENT.runs()[0], Result(figures=figures))
    assert str(error.value) == says


def test_what_is_no_row_leaves_what_was_there(store):
    run = EXPERIMENT.runs()[0]
    put_run(store, run)
    with pytest.raises(TypeError, match="set cannot be stored as JSON"):
        store.put(run, Result(figures={}, circumstances={"seen": {1}}), ABOUT, 0.25)
    assert store.rows([run])[0]["area_bytes"] == 1


# -- claims


def elsewhere(store, run, then="print(claim)"):
    """Return what another process prints that claims `run` and executes `then`."""
    code = (
        "from pathlib import Path; from quick import EXPERIMENT; from "
        "weft.experiments.runner.results import Store\n"
        f"store = Store(Path({str(store.root)!r})); (run,) = [r for r in EXPERIMENT.runs() if "
        f"r.id == {run.id!r}]\n"
        f"claim = store.claim(run).value\n{then}"
    )
    paths = [str(Path(__file__).parents[3]), str(Path(__file__).parent)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, "-c", code], env=environment, **pipes)


def test_a_run_that_another_process_measures_is_taken_until_that_is_stored_given_up_or_dead(store):
    run, other = EXPERIMENT.runs()[:2]
    process = elsewhere(store, run, "print(claim, flush=True); input()")
    assert process.stdout.readline() == "ours\n"
    assert store.claim(run) is RunClaim.TAKEN
    assert store.claim(run, again=True) is RunClaim.TAKEN
    assert store.claim(other) is RunClaim.OURS
    process.kill()
    process.communicate()
    assert store.claim(run) is RunClaim.OURS
    assert elsewhere(store, run).communicate()[0] == "taken\n"
    store.release_claims()
    assert elsewhere(store, run).communicate()[0] == "ours\n"
    put_run(store, run)
    assert store.claim(run) is RunClaim.STORED
    assert elsewhere(store, run).communicate()[0] == "stored\n"
    assert store.claim(run, again=True) is RunClaim.OURS


def test_a_process_is_known_by_more_than_its_number():
    own = results.myself()
    pid, ticks, boot = own.split(":")
    assert results.lives(own)
    assert not results.lives(f"{pid}:{int(ticks) - 1}:{boot}")
    assert not results.lives(f"{pid}:{ticks}:another")
    other = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    name = f"{other.pid}:{results.began(other.pid)}:{boot}"
    assert results.lives(name)
    other.kill()
    os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)
    assert not results.lives(name)  # a zombie
    other.communicate()
    assert not results.lives(f"{other.pid}:{results.began(other.pid)}:{boot}")


# -- what is wrong with the file


def says(store, action):
    with pytest.raises(OSError, match=NAME) as error:
        action()
    text = str(error.value)
    assert text.startswith(f"{store.path}: ")
    assert "\n" not in text
    return text.removeprefix(f"{store.path}: ")


def all_ways(store):
    run = EXPERIMENT.runs()[0]
    return [lambda: store.table(EXPERIMENT), lambda: store.claim(run), lambda: put_run(store, run)]


def test_a_file_that_is_something_else_is_named(store):
    store.root.mkdir()
    store.path.write_bytes(b"no database" * 1000)
    for way in all_ways(store):
        assert (
            says(store, way)
            == "file is not a database; move the file away to measure its runs again"
        )
    store.path.unlink()
    sqlite3.connect(store.path).executescript("CREATE TABLE other (x)").connection.close()
    for way in all_ways(store):
        assert says(store, way) == "not a file of weft's results"


def test_a_file_of_a_later_weft_is_named_and_not_touched(store):
    put_run(store, EXPERIMENT.runs()[0])
    with sqlite3.connect(store.path) as db:
        db.execute("PRAGMA user_version = 2")
    db.close()
    for way in all_ways(store):
        assert says(store, way) == "the file has version 2; this weft reads version 1"


def test_damage_is_told_and_not_taken_for_a_result(store):
    runs = EXPERIMENT.runs()
    for run in runs:
        put_run(store, run)
    content = store.path.read_bytes()
    store.path.write_bytes(content[: len(content) // 2])
    for way in all_ways(store):
        assert (
            says(store, way)
            == "database disk image is malformed; move the file away to measure its runs again"
        )
    store.path.write_bytes(content.replace(b'"area_bytes": 4', b'"area_bytes": 5'))
    assert says(store, lambda: store.rows(runs)).endswith(
        "is damaged; weft run quick --fresh measures it again"
    )


def test_a_full_disk_is_named_and_what_was_stored_stays(store, monkeypatch):
    runs = EXPERIMENT.runs()
    put_run(store, runs[0])
    from weft.experiments.runner import results

    connect = results.connect

    def full(path, *, write):
        db = connect(path, write=write)
        db.execute(f"PRAGMA max_page_count = {db.execute('PRAGMA page_count').fetchone()[0]}")
        return db

    monkeypatch.setattr(results, "connect", full)
    large = Result(figures={"delays_us": [0.5] * 10_000})
    assert says(store, lambda: store.put(runs[1], large, ABOUT, 0.25)) == "database or disk is full"
    monkeypatch.undo()
    assert [run in store for run in runs[:2]] == [True, False]


FULL = """
import sqlite3, subprocess, sys
from contextlib import closing
from pathlib import Path
from quick import EXPERIMENT, measure
from weft.experiments.runner.results import Store
root, run = Path(sys.argv[1]), EXPERIMENT.runs()[0]
store = Store(root / "results")
for kib in range(4, 132, 4):
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={kib}k", "tmpfs", str(root)], check=True)
    said = "stored"
    try:
        store.put(run, measure(run), {"commit": "abc", "dirty": False}, 0.25)
    except OSError as error:
        said = str(error).removeprefix(f"{store.path}: ")
    left, sound = [path.name for path in store.root.iterdir()], "none"
    if store.path.exists():
        with closing(sqlite3.connect(f"file:{store.path}?mode=ro", uri=True)) as db:
            sound, = db.execute("PRAGMA quick_check").fetchone()
    print(kib, said, sound, left, sep="; ")
    subprocess.run(["umount", str(root)], check=True)
"""


def test_a_disk_that_fills_while_the_file_is_made_leaves_a_good_file_or_none(own_mounts, tmp_path):
    filled = own_mounts(sys.executable, "-c", FULL, str(tmp_path))
    lines = [line.split("; ", 1)[1] for line in filled.stdout.splitlines()]
    full, whole = "database or disk is full; none; []", f"ok; ['{NAME}']"
    assert set(lines) <= {full, f"database or disk is full; {whole}", f"stored; {whole}"}, (
        filled.stdout
    )
    assert (len(lines), lines[0], lines[-1]) == (32, full, f"stored; {whole}"), filled.stderr


@pytest.fixture
def own_mounts():
    """Run a command as root in a mount namespace of its own, with `quick` to import."""
    unshared = (
        ["unshare", "--user", "--map-root-user", "--mount"]
        if os.geteuid()
        else ["unshare", "--mount"]
    )
    if (
        not shutil.which("unshare")
        or subprocess.run([*unshared, "true"], capture_output=True).returncode
    ):
        pytest.skip("no mount namespace of our own")
    paths = [str(Path(__file__).parents[3]), str(Path(__file__).parent)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    return lambda *argv: subprocess.run(
        [*unshared, *argv], env=environment, capture_output=True, text=True
    )


def test_what_may_not_be_written_is_read_and_named(store, own_mounts):
    run = EXPERIMENT.runs()[0]
    put_run(store, run)
    code = (
        "from quick import EXPERIMENT; from weft.experiments.runner.results import Store; from "
        "pathlib import Path\n"
        f"store = Store(Path({str(store.root)!r})); run, other = EXPERIMENT.runs()[:2]\n"
        "print(len(store.rows([run])))\n"
        "try:\n    store.claim(other)\nexcept OSError as error:\n    print(error)"
    )
    script = 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && exec "$2" -c "$3"'
    done = own_mounts("sh", "-c", script, "sh", str(store.root), sys.executable, code)
    assert done.stdout == f"1\n{store.path}: not writable\n", done.stderr


# -- the first result creates the file


def test_what_a_process_left_that_died_while_it_made_the_file_is_removed(store):
    store.root.mkdir()
    gone = subprocess.Popen(["true"])
    dead = f"{gone.pid}-1-{results.boot()}"
    gone.wait()
    own = results.myself().replace(":", "-")
    left = [store.root / f".{NAME}.{dead}.tmp{end}" for end in ("", "-wal")]
    other = (
        store.root / f".{NAME}.{os.getppid()}-{results.began(os.getppid())}-{results.boot()}.tmp"
    )
    for path in (*left, other):
        path.write_text("")
    put_run(store, EXPERIMENT.runs()[0])
    assert sorted(path.name for path in store.root.iterdir()) == sorted([NAME, other.name])
    assert own not in NAME


def test_two_that_make_the_file_at_once_make_one(store, monkeypatch):
    run, other = EXPERIMENT.runs()[:2]
    from weft.experiments.runner import results

    put_in_place = results.put_in_place

    def late(unfinished, path):
        monkeypatch.undo()
        assert elsewhere(store, other).communicate()[0] == "ours\n"
        put_in_place(unfinished, path)

    monkeypatch.setattr(results, "put_in_place", late)
    put_run(store, run)
    put_run(store, other)
    assert len(store.rows([run, other])) == 2
    assert [path.name for path in store.root.iterdir()] == [NAME]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_what_is_made_under_sudo_belongs_to_who_called_it_and_nothing_else(store, monkeypatch):
    store.root.mkdir()
    mine = store.root / "notes"
    mine.write_text("")
    monkeypatch.setenv("SUDO_UID", "1234")
    monkeypatch.setenv("SUDO_GID", "1235")
    put_run(store, EXPERIMENT.runs()[0])
    deeper = Store(store.root / "a" / "b")
    put_run(deeper, EXPERIMENT.runs()[0])

    def owner(path):
        return path.stat().st_uid, path.stat().st_gid

    assert [owner(path) for path in (store.path, store.root / "a", deeper.root, deeper.path)] == [
        (1234, 1235)
    ] * 4
    assert [owner(path) for path in (store.root, mine)] == [(0, 0)] * 2
