import json
import sys
from dataclasses import dataclass, replace

import pytest
from quick import EXPERIMENT

from weft.experiments.cli.cli import main
from weft.experiments.runner import definition, provenance
from weft.experiments.runner.definition import Run, assignments, split
from weft.topologies import canonical


def a_run(**changed):
    content = {
        "experiment": "quick",
        "version": 1,
        "parameters": {"size": 1},
        "seed": 0,
        "engine": "graph",
    }
    return Run(**{**content, **changed})


def test_a_run_is_its_content():
    # the same on every machine, in every version of Python
    assert a_run().id == a_run().id == "0df729f120801c4c"
    others = [
        {"experiment": "other"},
        {"version": 2},
        {"parameters": {"size": 2}},
        {"seed": 1},
        {"engine": "kernel"},
    ]
    assert len({a_run(**other).id for other in others} | {a_run().id}) == 6
    assert a_run() in {a_run()}


def test_the_order_of_parameters_is_not_content():
    assert a_run(parameters={"a": 1, "b": 2}).id == a_run(parameters={"b": 2, "a": 1}).id


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("0,1,2", ["0", "1", "2"]),
        ("dcell:n=4,k=1", ["dcell:n=4,k=1"]),
        ("dcell:n=4,k=1,ficonn:n=4,k=2", ["dcell:n=4,k=1", "ficonn:n=4,k=2"]),
        ("star:n=4,dcell:n=3,k=0", ["star:n=4", "dcell:n=3,k=0"]),
        ("dr,dr:dead=3,hello_ms=30,bfs", ["dr", "dr:dead=3,hello_ms=30", "bfs"]),
    ],
)
def test_a_comma_within_a_specification_does_not_separate(text, values):
    assert split(text) == values


@pytest.mark.parametrize("text", ["", ",", "1,,2", "1,"])
def test_an_empty_value_is_refused(text):
    with pytest.raises(ValueError, match="a value is empty"):
        split(text)


def test_a_key_is_set_once():
    assert assignments(["a=1,2", "b=x:y=2"]) == {"a": "1,2", "b": "x:y=2"}
    with pytest.raises(ValueError, match=r"^a is set twice: write a=1,2,3$"):
        assignments(["a=1", "b=x:y=2", "a=2,3"])
    for item in ("a", "a=", "=1"):
        with pytest.raises(ValueError, match="expected key=value"):
            assignments([item])


def test_every_cell_and_seed_is_a_run():
    runs = EXPERIMENT.runs()
    assert len(runs) == len(set(runs)) == 2 * 3 * 2
    assert {run.engine for run in runs} == {"graph"}
    assert dict(runs[0].parameters) == {"scheme": "dr", "size": 1, "load_fraction": 0.5}


def test_given_values_replace_those_of_the_sweep():
    runs = EXPERIMENT.runs(
        {"size": "7,9,7", "load_fraction": "1"}, seeds=3, engines=["kernel", "graph"]
    )
    assert len(runs) == 2 * 2 * 3 * 2
    assert {run.parameters["size"] for run in runs} == {7, 9}
    assert all(type(run.parameters["load_fraction"]) is float for run in runs)


@pytest.mark.parametrize(
    ("parameters", "options", "says"),
    [
        (
            {"sise": "1"},
            {},
            (
                "quick: no parameter 'sise', did you mean size? (there are: load_fraction, "
                "scheme, size)"
            ),
        ),
        ({"size": "x"}, {}, "quick: size must be an integer, got 'x'"),
        ({"load_fraction": "x"}, {}, "quick: load_fraction must be a number, got 'x'"),
        ({}, {"seeds": 0}, "quick: seeds is a number of runs, 1 to 100000, got 0"),
        ({}, {"seeds": 100_001}, "quick: seeds is a number of runs, 1 to 100000, got 100001"),
        ({}, {"seeds": [3]}, "quick: seeds is a number of runs, 1 to 100000, got [3]"),
        ({}, {"engines": ["fabric"]}, "quick: no engine 'fabric' (there are: graph, kernel)"),
    ],
)
def test_wrong_input_is_one_line(parameters, options, says):
    with pytest.raises(ValueError, match="quick") as error:
        EXPERIMENT.runs(parameters, **options)
    assert str(error.value) == says


@dataclass(frozen=True, kw_only=True)
class Later(Run):
    """A run as it may be some day."""

    clock: str = "real"


def test_a_later_field_is_no_content_where_it_has_its_default():
    content = a_run().content
    assert Later(**content).id == a_run().id == "0df729f120801c4c"
    assert Later(**content, clock="virtual").id != a_run().id
    assert Later(**content, clock="virtual").content["clock"] == "virtual"
    assert Run(**content) == a_run()


def fits(run):
    if (run.text("scheme"), run.integer("size")) == ("bfs", 2):
        raise ValueError("quick: bfs has no squares of 2")


def test_cells_that_do_not_go_together_are_left_out_and_named():
    experiment = replace(EXPERIMENT, check=fits)
    plan = experiment.plan({"size": "1,2"}, seeds=3)
    assert len(plan.runs) == 3 * 3
    assert plan.refused == {"scheme=bfs size=2": "quick: bfs has no squares of 2"}
    assert plan.runs == [
        run
        for run in EXPERIMENT.runs({"size": "1,2"}, seeds=3)
        if str(run)[:17] != "scheme=bfs size=2"
    ]
    assert set(experiment.plan({"size": "1,2"}, engines=["graph", "kernel"]).refused) == {
        "scheme=bfs size=2 engine=graph",
        "scheme=bfs size=2 engine=kernel",
    }


def test_if_no_cell_is_left_that_is_wrong_input():
    with pytest.raises(ValueError, match=r"^quick: bfs has no squares of 2$"):
        replace(EXPERIMENT, check=fits).plan({"size": "2", "scheme": "bfs"})


def test_a_wrong_value_is_not_merely_left_out():
    with pytest.raises(ValueError, match=r"^quick: size must be at most 1000, got 1001$"):
        EXPERIMENT.plan({"size": "1,1001"})


def test_one_network_has_one_name():
    assert canonical("dcell:k=1,n=4") == "dcell:n=4,k=1"
    with pytest.raises(ValueError, match="dcell: n must be at least 3, got 1"):
        canonical("dcell:n=1,k=1")


def test_every_experiment_is_found_and_complete():
    experiments = definition.discover()
    assert {"first_light", "link_loss"} <= set(experiments)
    for name, experiment in experiments.items():
        assert experiment.name == name
        assert set(experiment.engines) <= set(definition.ENGINES)
        assert experiment.question.endswith("?")


@pytest.mark.slow
def test_every_experiment_has_runs():
    """This builds the networks and layers of every sweep, which takes seconds for some."""
    for experiment in definition.discover().values():
        assert experiment.default_runs()


def test_an_unknown_experiment_is_answered_with_the_known_ones():
    with pytest.raises(ValueError, match="no experiment 'link_los', did you mean link_loss"):
        definition.find("link_los")


# -- experiments of other packages


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Install a package with an entry point: its name, and the text of its module."""

    def install(name, text, value="theirs:EXPERIMENT"):
        (tmp_path / "theirs.py").write_text(text)
        about = tmp_path / "theirs-1.0.dist-info"
        about.mkdir(exist_ok=True)
        (about / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
        (about / "entry_points.txt").write_text(f"[weft.experiments]\n{name} = {value}\n")
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.delitem(sys.modules, "theirs", raising=False)

    return install


def version_now(**parameters):
    """Return the version of a cell by the packages and files that there are now."""
    provenance.modules_of.cache_clear()
    provenance.code_number.cache_clear()
    return EXPERIMENT.version_of("graph", {"size": 1, **parameters})


def test_rows_of_a_package_are_of_its_code(package):
    """A change of the file is another version, whose rows are measured again."""
    versions = [version_now()]
    for text in ("from quick import EXPERIMENT\n", "from quick import EXPERIMENT  # changed\n"):
        package("quick", text)
        versions.append(version_now())
    provenance.modules_of.cache_clear()
    assert versions[0] == EXPERIMENT.version
    assert len(set(versions)) == 3
    assert {version % provenance.STEP for version in versions} == {EXPERIMENT.version}


def test_a_package_of_a_scheme_counts_where_the_scheme_runs(tmp_path, monkeypatch):
    folder = tmp_path / "weft_theirs"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "rule.c").write_text("one")
    monkeypatch.syspath_prepend(tmp_path)
    modules = {"theirs": "weft_theirs.scheme"}
    monkeypatch.setattr(provenance, "modules_by_name", lambda: modules)
    before = version_now(scheme="theirs:delta=2")
    assert version_now(scheme="ecmp") == EXPERIMENT.version != before
    (folder / "rule.c").write_text("two")
    assert version_now(scheme="theirs:delta=2") not in (before, EXPERIMENT.version)


def test_a_package_adds_an_experiment(package, capsys, tmp_path):
    package("quick", "from quick import EXPERIMENT\n")
    assert "quick" in definition.names()
    assert definition.find("quick") is EXPERIMENT
    assert (
        main(["run", "quick", "--results", str(tmp_path / "results"), "--set", "size=1", "--json"])
        == 0
    )
    assert len(json.loads(capsys.readouterr().out)) == 4
    with pytest.raises(ValueError, match=r"no experiment 'quik', did you mean quick\?"):
        definition.find("quik")


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        (
            "quick",
            "import nothing_of_that_name",
            "ModuleNotFoundError: No module named 'nothing_of_that_name'",
        ),
        ("quick", "EXPERIMENT = 1", "is no Experiment of that name"),
        ("slow", "from quick import EXPERIMENT", "is no Experiment of that name"),
    ],
)
def test_a_package_that_is_wrong_is_named(package, name, text, says):
    package(name, text)
    with pytest.raises(ValueError, match="experiment") as error:
        definition.find(name)
    assert str(error.value) == f"experiment {name}, theirs:EXPERIMENT: {says}"


def test_two_experiments_of_one_name_are_refused(package):
    package("hop_length", "from quick import EXPERIMENT")
    with pytest.raises(ValueError, match="there are several experiments called hop_length"):
        definition.names()
    assert definition.find("hop_length").source.startswith("CCRDN")


def test_the_module_of_an_experiment_is_there_unless_another_package_has_it():
    assert definition.module_of("one_failure").EXPERIMENT.name == "one_failure"
    assert definition.module_of("quick") is None
