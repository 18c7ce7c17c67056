"""Every column of every experiment is explained."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

import pytest
from quick import EXPERIMENT

from weft.experiments.runner import definition
from weft.experiments.runner.rows import CIRCUMSTANCES, column_unit, meaning_of, row_of, unexplained

# A cell of every experiment that needs no kernel, as small as it goes; other parameters are those
# of the first cell.
CELLS = {
    "ccrdn_properties": {"topology": "dcell:n=3,k=3"},
    "hop_length": {"topology": "dcell:n=3,k=3", "routing": "pr-gpi", "pairs": "100"},
    "connectivity": {
        "topology": "dcell:n=4,k=3",
        "routing": "dfr",
        "failed_fraction": "0.1",
        "flows": "100",
    },
    "hop_histogram": {"topology": "dcell:n=3,k=1", "routing": "dr", "flows": "100"},
    "flow_histogram": {"topology": "dcell:n=3,k=1", "routing": "dr", "flows": "100"},
    "throughput": {
        "topology": "dcell:n=3,k=1",
        "routing": "pr-gpi",
        "traffic": "uniform:flows=100",
    },
    "zero_load_latency": {"topology": "dcell:n=4,k=3", "routing": "dr", "costs": "paper"},
    "completion_time": {"topology": "dcell:n=3,k=1", "routing": "dr", "workload": "one-to-all"},
    "one_failure": {"topology": "dcell:n=3,k=1", "pairs": "5", "congestion_control": "reno"},
    "flow_completion": {"topology": "dcell:n=3,k=1", "scheme": "dr", "size_bytes": "10000"},
    "collisions": {"topology": "slimfly:q=5,p=4", "pattern": "permutation"},
    "diversity": {"topology": "slimfly:q=5,p=4", "pairs": "20", "fours": "20"},
    "layered_throughput": {
        "topology": "slimfly:q=3,p=2",
        "scheme": "intree",
        "layers": "2",
        "bound": "short",
    },
    "layer_paths": {"topology": "slimfly:q=3,p=2", "construction": "lnmp", "layers": "2"},
    "lowdiameter_sizes": {"topology": "slimfly:q=19,p=14"},
    "topology_cost": {"family": "slimfly", "hosts": "200"},
    "dar_convergence": {"topology": "clos:n=2,r=2,m=2", "permutations": "3"},
    "dar_settling": {"topology": "clos:n=2,r=2,m=2", "host_gbps": "19.2", "time_us": "500"},
    "dar_table": {"topology": "clos:n=2,r=2,m=2", "time_us": "500", "skipped_us": "100"},
    "dar_permutations": {"topology": "clos:n=2,r=2,m=2", "message_kb": "16"},
    "dar_tiers": {"d": "2", "permutations": "3"},
    "dar_churn": {"topology": "clos:n=2,r=3,m=2", "lifetime_periods": "4"},
    "dar_goodput": {
        "topology": "clos:n=2,r=2,m=2",
        "scheme": "dar",
        "warm_up_s": "1",
        "seconds": "1",
    },
    "fatpaths_vs_fattree": {"topology": "slimfly:q=3,p=1", "layers": "2", "seconds": "0.001"},
    "fatpaths_tail": {"topology": "slimfly:q=3,p=1", "layers": "2", "seconds": "0.001"},
    "fatpaths_density": {"topology": "slimfly:q=3,p=1", "layers": "2", "seconds": "0.001"},
    "fatpaths_feedback": {"topology": "slimfly:q=3,p=1", "layers": "2", "seconds": "0.001"},
    "fatpaths_tcp": {"topology": "slimfly:q=3,p=1", "layers": "2", "seconds": "0.001"},
    "ndp_incast": {
        "topology": "star:n=3",
        "traffic": "incast:senders=2",
        "transport": "ndp",
        "message_kb": "10",
    },
    "ndp_failover": {"topology": "slimfly:q=3,p=1", "layers": "2", "seconds": "0.001"},
    "ndp_load": {"topology": "star:n=4", "transport": "ndp", "lambda_per_s": "100", "seconds": "1"},
    "detour_load": {
        "topology": "complete:n=4,p=1",
        "routing": "ugal",
        "load_fraction": "0.5",
        "slots": "10",
    },
    "lbsp_tcp": {
        "topology": "fattree:k=8",
        "workload": "long",
        "scheme": "lbsp",
        "damage": "link",
        "flow_bytes": "10000000",
    },
    "lbsp_queues": {
        "topology": "fattree:k=4",
        "load_fraction": "0.5",
        "slots": "50",
        "patterns": "1",
    },
    "link_loss": {"topology": "dcell:n=3,k=1", "failed_links": "1"},
    "collectives": {"topology": "star:n=4", "scheme": "ecmp", "ranks": "4", "size_bytes": "1024"},
    "fabrics": {"topology": "complete:n=4,p=1", "scheme": "ecmp", "seconds": "0.001"},
    "flow_labels": {
        "topology": "clos:n=2,r=2,m=2",
        "way": "layers",
        "failed_links": "1",
        "after_s": "0.05",
        "rate_mbps": "20",
    },
    "plane_failure": {
        "topology": "planes:k=2,of=star:n=3",
        "failure": "silent",
        "size_bytes": "1000000",
        "transport": "ndp:choice=mrc",
    },
    "ttc_flow": {"topology": "fattree:k=4", "scheme": "ttc", "k": "2", "repetitions": "2"},
    "ttc_packet": {
        "topology": "fattree:k=4",
        "load_fraction": "0.5",
        "slots": "60",
        "watched_slots": "30",
    },
    "ttc_theory": {"load_fraction": "0.5", "delta": "1", "queues": "20"},
}
ENGINES = ("graph", "fabric", "packet")
FLOOR = Path(definition.__file__).parents[1]


@cache
def trees() -> dict[Path, ast.AST]:
    """The syntax of every file that may write a column; parsed when first asked for, as it takes a
    second."""
    return {
        path: ast.parse(path.read_text())
        for path in FLOOR.glob("*/*.py")
        if "columns" not in path.stem
    }


def is_explanation(node: ast.AST) -> bool:
    """Return True for what has a dictionary of columns with their meanings or labels."""
    if isinstance(node, ast.keyword):
        return node.arg == "columns"
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Dict):
        return False
    return any(isinstance(name, ast.Name) and name.id.endswith("COLUMNS") for name in node.targets)


def column_patterns() -> Iterator[str]:
    """Every text in the code of experiments that may be a column's name; what is put into one is a
    *.  Explanations of columns do not count."""
    left: list[ast.AST] = list(trees().values())
    while left:
        node = left.pop()
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        if isinstance(node, ast.JoinedStr):
            parts = [
                str(part.value) if isinstance(part, ast.Constant) else "*" for part in node.values
            ]
            if any(len(part) > 3 for part in parts):
                yield "".join(parts)
        left += [child for child in ast.iter_child_nodes(node) if not is_explanation(child)]


def literal_figures(tree: ast.AST) -> set[str]:
    """The columns that a module's runs give, as far as they stand in it: Result({"name": ...})."""
    results = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "Result"
    ]
    figures = [
        value
        for one in results
        for value in (*one.args, *(k.value for k in one.keywords if k.arg == "figures"))
    ]
    keys = [key for one in figures if isinstance(one, ast.Dict) for key in one.keys]
    return {str(key.value) for key in keys if isinstance(key, ast.Constant)}


@pytest.mark.parametrize("name", definition.names())
def test_an_experiment_explains_its_columns_and_no_others(name):
    experiment = definition.find(name)
    assert experiment.columns
    assert not experiment.columns.keys() & {*experiment.sweep, *CIRCUMSTANCES}
    assert all(
        text and text == text.strip() and not text.endswith(".")
        for text in experiment.columns.values()
    )


def test_every_column_that_is_explained_is_written_somewhere():
    """One that is misspelt, or that there was once, is not."""
    names = set(column_patterns())
    forms = [name for name in names if "*" in name and len(name) > 4]  # not of a glob
    for experiment in definition.discover().values():
        for name in experiment.columns:
            there = (
                name.removeprefix("*_") in names
                or any(fnmatchcase(written, name) for written in names)
                or any(fnmatchcase(name.replace("*", "x"), form) for form in forms)
            )
            assert there, f"{experiment.name}: {name}"


def test_every_column_that_is_written_is_explained():
    """Also of experiments on the kernel, which is not asked here."""
    sources = definition._sources()
    without = {}
    for path in {source.path for source in sources.values()}:
        experiments = [definition.find(name) for name in sources if sources[name].path == path]
        columns = {name: text for one in experiments for name, text in one.columns.items()}
        sweep = {key for experiment in experiments for key in experiment.sweep}
        if written := literal_figures(trees()[path]):
            without[path.stem] = unexplained(written, columns, sweep)
    assert len(without) > 15
    assert {name: those for name, those in without.items() if those} == {}


def test_every_experiment_that_needs_no_kernel_has_a_cell_here():
    without = {
        name
        for name, experiment in definition.discover().items()
        if set(experiment.engines) & set(ENGINES)
    }
    assert set(CELLS) == without


@pytest.mark.parametrize("name", CELLS)
@pytest.mark.slow
def test_what_a_run_gives_is_explained(name):
    experiment = definition.find(name)
    parameters = {
        key: CELLS[name].get(key, str(values[0])) for key, values in experiment.sweep.items()
    }
    engine = next(engine for engine in experiment.engines if engine in ENGINES)
    (run, *_), refused = experiment.plan(parameters, seeds=1, engines=[engine])
    assert not refused
    row = row_of(run, experiment.carry_out(run))
    assert unexplained(row, experiment.columns, experiment.sweep) == []


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("goodput_bps", "bit/s"),
        ("late_fraction", "fraction"),
        ("median_packet_times", "packet times"),
        ("p99_times", "times"),
        ("first_changes_per_1000_slots", "per 1000 slots"),
        ("up*_mean_queue_packets", "packets"),
        ("links_by_flows", ""),
        ("equal", ""),
    ],
)
def test_the_unit_is_the_end_of_the_name(name, unit):
    assert column_unit(name) == unit


def test_what_is_not_declared_is_seen():
    names = ["size", "seed", "area_bytes", "delays_us", "up1_load", "up_load_x"]
    declared = {"area_bytes": "its area", "up*_load": "of a layer"}
    assert unexplained(names, declared, EXPERIMENT.sweep) == ["delays_us", "up_load_x"]
    assert meaning_of("up1_load", declared) == "of a layer"
