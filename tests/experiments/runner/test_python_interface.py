"""Experiments and networks from a program."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import quick

import weft
from weft.experiments.runner import definition


@pytest.fixture(autouse=True)
def quick_experiment(monkeypatch, tmp_path):
    monkeypatch.setattr(definition, "find", lambda name: quick.EXPERIMENT)
    monkeypatch.setenv("WEFT_RESULTS", str(tmp_path / "results"))
    monkeypatch.setenv("WEFT_TEST_LOG", str(tmp_path / "log"))


def measurement_count(tmp_path):
    return len((tmp_path / "log").read_text().splitlines())


def test_rows_come_from_what_is_stored_and_what_is_measured(tmp_path):
    rows = weft.run("quick", size=[1, 2], scheme="dr", seeds=1)
    assert [(row["size"], row["area_bytes"]) for row in rows] == [(1, 1), (2, 4)]
    again = weft.run("quick", size=[1, 2, 3], scheme="dr", seeds=1)
    assert again[:2] == rows
    assert measurement_count(tmp_path) == 3
    weft.run("quick", size=3, scheme="dr", seeds=1, fresh=True)
    assert measurement_count(tmp_path) == 4


def test_results_may_lie_elsewhere(tmp_path):
    weft.run("quick", size=1, scheme="dr", seeds=1, results=tmp_path / "there")
    assert (tmp_path / "there" / "results.sqlite").exists()
    assert not (tmp_path / "results").exists()


def test_what_is_wrong_is_told(monkeypatch):
    with pytest.raises(ValueError, match="no parameter 'sise', did you mean size"):
        weft.run("quick", sise=1)
    with pytest.raises(
        RuntimeError, match=r"quick: scheme=broken .* failed: RuntimeError: the reason"
    ):
        weft.run("quick", scheme="broken", size=1, seeds=1)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(PermissionError, match="the kernel engine needs root"):
        weft.run("quick", engine="kernel", size=1)


def test_the_names_of_the_package():
    assert set(weft.__all__) <= set(dir(weft))
    for name in weft.__all__:
        assert getattr(weft, name)
    with pytest.raises(AttributeError, match="module 'weft' has no attribute 'nets'"):
        _ = weft.nets


def test_a_process_that_asks_for_none_of_them_imports_none():
    program = (
        "import sys; before = set(sys.modules); import weft; print(*set(sys.modules) - before)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["weft"]


def test_graphs_and_packets_need_no_mininet():
    """In a process of its own: here a module that imports Mininet is there from other tests."""
    program = (
        "import sys; sys.modules['mininet'] = None; import networkx as nx, weft;"
        "print(weft.build(nx.cycle_graph(5)).servers, weft.run, weft.simulate);"
        "from weft.experiments.cli import graph_commands, simulate_commands"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("5 ")


def test_a_networkx_graph_is_a_network():
    import networkx as nx

    topology = weft.build(nx.cycle_graph(5))
    assert (topology.servers, topology.switches, len(topology.links)) == (5, 5, 10)
    assert weft.build(topology) is topology
