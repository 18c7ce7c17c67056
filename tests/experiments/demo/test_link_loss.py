"""Lost pairs of schemes whose hosts choose paths, and what is said where engines differ."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from weft.daemons.core import registry
from weft.experiments.cli.cli import main
from weft.experiments.runner.definition import DIFFERENCE, find

DR, BFS = registry.schemes()["dr"], registry.schemes()["bfs"]
WHERE = {"topology": "dcell:n=3,k=1", "failed_links": "2"}


def row(monkeypatch, **fields):
    """Return the row of a scheme with the daemons of dr and other `fields`, in the simulator."""
    scheme = replace(DR, **fields)
    monkeypatch.setattr(registry, "schemes", lambda: {"bfs": BFS, "dr": scheme})
    experiment = find("link_loss")
    (run,) = experiment.plan(WHERE, seeds=1, engines=["fabric"]).runs
    return experiment.carry_out(run).figures


def test_a_pair_with_a_path_that_only_hosts_choose_is_lost(monkeypatch):
    figures = row(monkeypatch, path=BFS.path)  # as if a host could choose any path
    assert figures["lost_graph_fraction"] > 0
    assert figures["equal"] is True
    assert DIFFERENCE not in figures


@pytest.mark.parametrize("arrives", [True, False])
def test_a_pair_that_engines_disagree_on_is_named_with_both_paths(monkeypatch, arrives):
    figures = row(monkeypatch, connects=lambda topology, options, src, dst: arrives)
    assert figures["equal"] is False
    predicted, walked = ("arrives", "is lost") if arrives else ("is lost", "arrives")
    pair, _, words = figures[DIFFERENCE].partition(": ")
    assert " to " in pair
    graph, fabric = words.split("; ")
    assert graph.startswith(predicted)
    assert graph.endswith("(graph)")
    assert fabric.startswith(f"{walked}, path {pair.partition(' ')[0]} ")
    assert fabric.endswith("(fabric)")


def test_the_command_says_where_engines_differ(monkeypatch, capsys, tmp_path):
    broken = replace(DR, connects=lambda topology, options, src, dst: False)
    monkeypatch.setattr(registry, "schemes", lambda: {"bfs": BFS, "dr": broken})
    words = ["run", "link_loss", "--engine", "fabric", "--seeds", "1", "--jobs", "1", "--json"]
    settings = [f"{key}={value}" for key, value in WHERE.items()]
    status = main([*words, "--results", str(tmp_path), "--set", *settings])
    output = capsys.readouterr()
    (stored,) = json.loads(output.out)
    assert status == 1
    assert f"weft: link_loss: {stored[DIFFERENCE]}\n" in output.err
