"""one_failure on the engine packet: figures from the graph, the hellos, or a pencil."""

from __future__ import annotations

import numpy as np
import pytest

from weft.experiments.demo import one_failure
from weft.experiments.demo.one_failure import EXPERIMENT
from weft.experiments.runner.definition import Row
from weft.experiments.runner.rows import unexplained
from weft.testbed.packets.simulation import FlowProgress

HELLO_S, DEAD = 0.03, 3
SMALL = {"topology": "dcell:n=3,k=1", "pairs": "5", "congestion_control": "reno"}


def figures(**given: str) -> Row:
    (run,) = EXPERIMENT.runs({**SMALL, **given}, engines=["packet"])
    return EXPERIMENT.carry_out(run).figures


@pytest.mark.parametrize("failure", ["link", "silent-link"])
def test_pairs_are_cut_off_until_another_path_is_found(failure: str) -> None:
    """DR has no other path; the shortest ones change as soon as hellos are missing."""
    by_scheme = {scheme: figures(routing=scheme, failure=failure) for scheme in ("dr", "bfs")}
    assert len({row["failed"] for row in by_scheme.values()}) == 1
    for row in by_scheme.values():
        assert row["connected_fraction"] == 1
        assert row["as_predicted"]
        assert not unexplained(row, EXPERIMENT.columns, EXPERIMENT.sweep)
        # 20 Mbit/s without the headers of full frames
        assert row["tcp_before_bps"] == pytest.approx(20e6 * 1448 / 1514, rel=0.01)
    cut_off, saved = by_scheme["dr"], by_scheme["bfs"]
    assert cut_off["recovered_fraction"] == 0
    assert min(cut_off["outages_ms"]) >= 1500
    assert cut_off["tcp_through_bps"] < 0.05 * cut_off["tcp_before_bps"]
    assert saved["recovered_fraction"] == 1
    assert saved["after_hops"] == saved["shortest_hops"]
    if failure == "link":
        assert saved["outage_p99_ms"] <= 10
        assert saved["tcp_through_bps"] > 0.9 * saved["tcp_before_bps"]
    else:
        assert 1000 * HELLO_S * (DEAD - 1) <= saved["outage_ms"] <= 1000 * HELLO_S * (DEAD + 2)


def test_a_run_is_the_same_twice() -> None:
    runs = [figures(routing="pr-gpi", failure="silent-link") for _ in range(2)]
    assert runs[0] == runs[1]


def test_goodput_and_stall_are_those_of_the_samples() -> None:
    """Let 100 bytes arrive each second, but none between 3 s and 6 s."""
    times_s = np.arange(1.0, 11.0)
    steps = [100, 100, 100, 0, 0, 0, 100, 100, 100, 100]
    arrived_bytes = np.cumsum(steps).reshape(-1, 1)
    progress = FlowProgress(times_s, arrived_bytes, arrived_bytes)
    assert one_failure.goodput_bps(progress, 1, 3) == 800
    assert one_failure.goodput_bps(progress, 3, 6) == 0
    assert one_failure.stall_s(progress, 1, 10) == 4
    assert one_failure.stall_s(progress, 3.5, 5.5) == 2


@pytest.mark.parametrize(
    ("parameters", "reason"),
    [
        ({"failure": "flap"}, "no simulated failure 'flap'"),
        ({"congestion_control": "bbr"}, "no simulated congestion_control 'bbr'"),
        ({"routing": "static"}, "scheme static has no daemons"),
    ],
)
def test_what_is_not_simulated_is_refused(parameters: dict[str, str], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        EXPERIMENT.runs(
            {**SMALL, "failure": "link", "routing": "dr", **parameters}, engines=["packet"]
        )
