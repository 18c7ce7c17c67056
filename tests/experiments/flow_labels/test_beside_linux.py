"""Simulated flows whose packets are late or labelled, beside the published ones of Linux."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean

import pytest

from weft.experiments.report.published import FOLDER, PublishedSet, runs_of
from weft.experiments.runner.definition import Row, find

WORST = {"failed_links": "0", "pattern": "worst"}
DIED = {"failed_links": "2", "pattern": "permutation", "plb_rounds": "12"}
COLLIDE = {"failed_links": "0", "pattern": "permutation", "way": "plb"}
FAST = {"rto_min_us": "10000"}
CLOS, HYPERX, JELLYFISH = (
    *("clos:n=4,r=4,m=4", "hyperx:l=2,s=3,p=2", "jellyfish:n=8,r=3,p=2,seed=1"),
)


def rows_of(where: Mapping[str, str]) -> tuple[Sequence[Row], Sequence[Row]]:
    """Return the published rows of Linux, and simulated ones of the same ten seeds."""
    experiment = find("flow_labels")
    entries = PublishedSet(FOLDER).selected(experiment, {"engine": "kernel", **where})
    linux = {row["seed"]: row for row, _ in entries}
    simulated = [
        experiment.measure(run).figures
        for run in runs_of("flow_labels").values()
        if run.engine == "packet"
        and run.seed in linux
        and all(str(run.parameters[name]) == value for name, value in where.items())
    ]
    assert len(linux) == len(simulated) == 10
    return list(linux.values()), simulated


def means(where: Mapping[str, str], column: str) -> tuple[float, float]:
    """Return the means of a column of Linux and simulated."""
    linux, simulated = (mean(float(row[column]) for row in rows) for rows in rows_of(where))
    return linux, simulated


@pytest.mark.parametrize(
    "where",
    [
        {"topology": JELLYFISH, "way": "layers", **WORST},
        {"topology": HYPERX, "way": "ugal", **WORST},
        {"topology": CLOS, "way": "gaps", **DIED},
    ],
    ids=lambda where: where["way"],
)
def test_as_many_packets_are_sent_again_and_time_out_as_on_linux(where: Mapping[str, str]) -> None:
    """The model without Linux' undo sent 3 times as many again, without PAWS none timed out."""
    linux, simulated = rows_of(where)
    for column in ("goodput_fraction", "retransmitted_fraction", "timeouts"):
        ratio = mean(float(row[column]) for row in simulated) / mean(
            float(row[column]) for row in linux
        )
        allowed = 0.06 if column == "goodput_fraction" else 0.3
        assert 1 - allowed < ratio < 1 / (1 - allowed), (column, ratio)


@pytest.mark.parametrize(
    ("topology", "way"),
    [(CLOS, "label"), (CLOS, "prr"), (HYPERX, "label"), (HYPERX, "prr"), (JELLYFISH, "prr")],
)
def test_as_many_labelled_flows_stop_as_on_linux(topology: str, way: str) -> None:
    """Of 16 or 18 flows 0.7 to 5.8 stop."""
    linux, simulated = means({"topology": topology, "way": way, **DIED, **FAST}, "stopped_flows")
    assert simulated == pytest.approx(linux, abs=1.1)


@pytest.mark.parametrize(("topology", "rounds"), [(CLOS, 3), (CLOS, 12), (HYPERX, 3), (HYPERX, 12)])
def test_plb_draws_as_many_labels_as_on_linux(topology: str, rounds: int) -> None:
    """Some hundred in a run after 3 rounds, and less than one after 12."""
    where = {"topology": topology, "plb_rounds": str(rounds), **COLLIDE}
    linux, simulated = means(where, "plb_rehashes")
    assert simulated == pytest.approx(linux, rel=0.2, abs=0.5)
