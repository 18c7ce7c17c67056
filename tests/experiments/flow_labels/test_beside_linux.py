"""Simulated flows whose packets are late, beside the published ones of Linux."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import mean

import pytest

from weft.experiments.report.published import FOLDER, PublishedSet, runs_of
from weft.experiments.runner.definition import find

WORST = {"failed_links": "0", "pattern": "worst"}
DIED = {"failed_links": "2", "pattern": "permutation", "plb_rounds": "12"}


@pytest.mark.parametrize(
    "where",
    [
        {"topology": "jellyfish:n=8,r=3,p=2,seed=1", "way": "layers", **WORST},
        {"topology": "hyperx:l=2,s=3,p=2", "way": "ugal", **WORST},
        {"topology": "clos:n=4,r=4,m=4", "way": "gaps", **DIED},
    ],
    ids=lambda where: where["way"],
)
def test_as_many_packets_are_sent_again_and_time_out_as_on_linux(where: Mapping[str, str]) -> None:
    """The model without Linux' undo sent 3 times as many again, without PAWS none timed out."""
    experiment = find("flow_labels")
    entries = PublishedSet(FOLDER).selected(experiment, {"engine": "kernel", **where})
    linux = {row["seed"]: row for row, _ in entries}
    assert len(linux) == 10
    simulated = [
        experiment.measure(run).figures
        for run in runs_of("flow_labels").values()
        if run.engine == "packet"
        and run.seed in linux
        and all(str(run.parameters[name]) == value for name, value in where.items())
    ]
    assert len(simulated) == 10
    for column in ("goodput_fraction", "retransmitted_fraction", "timeouts"):
        ratio = mean(float(row[column]) for row in simulated) / mean(
            float(row[column]) for row in linux.values()
        )
        allowed = 0.06 if column == "goodput_fraction" else 0.3
        assert 1 - allowed < ratio < 1 / (1 - allowed), (column, ratio)
