"""The sweep of flow_labels, and two of its runs under the virtual clock."""

from __future__ import annotations

import pytest

from weft.experiments.flow_labels.flow_labels import EXPERIMENT, WAYS, failed
from weft.experiments.runner import virtual_runs
from weft.experiments.runner.definition import Result
from weft.experiments.runner.rows import row_of
from weft.topologies import build

SMALL = {"topology": "clos:n=4,r=2,m=2", "after_s": "0.2", "rate_mbps": "50"}


def test_plb_alone_has_several_numbers_of_rounds():
    rounds = {
        way: {
            run.integer("plb_rounds") for run in EXPERIMENT.default_runs() if run.text("way") == way
        }
        for way in WAYS
    }
    assert rounds.pop("plb") == {12, 3}
    assert set(map(frozenset, rounds.values())) == {frozenset({12})}


def test_every_way_loses_the_same_links():
    topology = build("clos:n=4,r=4,m=4")
    runs = [run for run in EXPERIMENT.default_runs() if run.integer("failed_links") == 2]
    links = {(run.seed, tuple(failed(run, topology))) for run in runs}
    assert len(links) == EXPERIMENT.seeds
    for _, (first, second) in links:
        assert first != second
        assert topology.level[first] == topology.level[second] == 1


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        ({"topology": "dcell:n=3,k=1"}, "must have linked switches, not dcell:n=3,k=1"),
        ({"topology": "star:n=4"}, "must have linked switches, not star:n=4"),
        ({"topology": "clos:n=2,r=2,m=1", "failed_links": "3"}, "has 2 links between switches"),
        ({"way": "nonsense"}, "way"),
    ],
)
def test_wrong_parameters_are_one_line(texts, words):
    with pytest.raises(ValueError, match=words) as error:
        EXPERIMENT.plan(texts, clock="virtual")
    assert "\n" not in str(error.value)


def row(**texts: str):
    """Return the row of a run under the virtual clock."""
    run, *_ = EXPERIMENT.plan({**SMALL, **texts}, seeds=1, clock="virtual").runs
    outcome = virtual_runs.measure(run).outcome
    assert isinstance(outcome, Result), outcome
    return row_of(run, outcome)


@pytest.mark.virtual
def test_plb_draws_labels_where_flows_collide():
    marked = {"way": "plb", "failed_links": "0", "plb_rounds": "1"}
    first = row(**marked)
    assert first["plb_rehashes"] > 0
    assert 0 < first["new_labels"] <= first["plb_rehashes"] + first["timeout_rehashes"]
    assert row(**marked) == first
    without = row(way="prr", failed_links="0", plb_rounds="12")
    assert (without["plb_rehashes"], without["new_labels"]) == (0, without["timeout_rehashes"])


@pytest.mark.virtual
def test_prr_alone_leaves_dead_links():
    rows = {
        way: row(way=way, failed_links="1", plb_rounds="12", after_s="0.5")
        for way in ("ports", "label", "prr")
    }
    assert rows["ports"]["stopped_flows"] > 0 < rows["label"]["stopped_flows"]
    assert rows["prr"]["stopped_flows"] == 0 < rows["prr"]["new_labels"]
    assert rows["label"]["timeout_rehashes"] == rows["label"]["new_labels"] == 0
    assert rows["ports"]["timeout_rehashes"] > 0 == rows["ports"]["new_labels"]
