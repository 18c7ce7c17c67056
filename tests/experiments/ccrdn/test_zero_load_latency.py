"""The latency of an idle network, by the engine's search for a route and by a daemon's."""

from __future__ import annotations

import pytest

from weft.experiments.runner.definition import find


@pytest.mark.parametrize("routing", ["dr", "pr-gpe"])
def test_a_network_of_one_switch_has_a_latency(routing):
    experiment = find("zero_load_latency")
    where = {"topology": "dcell:n=3,k=0", "routing": routing, "code": "python", "costs": "paper"}
    (run,) = experiment.plan(where, engines=["graph"]).runs
    figures = experiment.carry_out(run).figures
    assert figures["mean_hops"] == 1
    assert figures["latency_ms"] == pytest.approx((70 + figures["routing_us"]) / 1000)
