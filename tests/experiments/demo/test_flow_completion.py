"""Completion times on simulated packets, and on this kernel."""

from __future__ import annotations

import pytest

from weft.experiments.demo.flow_completion import EXPERIMENT
from weft.experiments.report.published import FOLDER, PublishedSet

SMALL = {
    "topology": "dcell:n=3,k=1",
    "scheme": "dr",
    "size_bytes": "30000",
    "rate_mbps": "20",
    "delay_us": "0",
}


def figures_of(engine: str, clock: str = "real", **values: str) -> dict:
    (run,) = EXPERIMENT.plan({**SMALL, **values}, seeds=1, engines=[engine], clock=clock).runs
    return dict(EXPERIMENT.measure(run).figures)


def test_times_of_simulated_flows_are_in_order() -> None:
    figures = figures_of("packet")
    assert (figures["flows"], figures["unfinished"]) == (12, 0)
    ideal_ms = 1000 * 8 * 30_000 / 20e6
    times = figures["times_ms"]
    assert len(times) == 100
    assert ideal_ms < times[0] <= figures["median_ms"] <= figures["p99_ms"] <= figures["last_ms"]


def test_flows_that_do_not_end_are_counted_and_have_no_time() -> None:
    figures = figures_of("packet", size_bytes="1000000000", topology="dcell:n=3,k=1")
    assert figures["unfinished"] == figures["flows"] == 12
    assert figures["mean_ms"] is None


@pytest.mark.kernel
def test_linux_carries_the_same_flows() -> None:
    figures = figures_of("kernel")
    assert (figures["flows"], figures["unfinished"]) == (12, 0)
    # less what the shaper lets through at once
    assert figures["times_ms"][0] > 0.8 * 1000 * 8 * 30_000 / 20e6


def test_simulated_means_are_within_three_percent_of_linux() -> None:
    entries = PublishedSet(FOLDER).selected(EXPERIMENT, {})
    rows = [row for row, _ in entries if row["rate_mbps"] == 100]
    means: dict[tuple[str, str], dict[str, list[float]]] = {}
    for row in rows:
        by_engine = means.setdefault((row["topology"], row["transport"]), {})
        by_engine.setdefault(row["engine"], []).append(row["mean_ms"])
    beside = [by_engine for by_engine in means.values() if "kernel" in by_engine]
    assert len(beside) == 6
    for by_engine in beside:
        assert len(by_engine["packet"]) == len(by_engine["kernel"]) == 5
        assert sum(by_engine["packet"]) == pytest.approx(sum(by_engine["kernel"]), rel=0.03)


@pytest.mark.parametrize(
    ("engine", "values", "reason"),
    [
        ("packet", {"scheme": "ecmp"}, "ecmp runs on switch fabrics"),
        (
            "packet",
            {"topology": "fattree:k=4", "scheme": "lbsp:states=1"},
            "reads what daemons write",
        ),
        ("packet", {"traffic": "incast:senders=12"}, "senders must be at most 11"),
        ("packet", {"transport": "tcp:control=bbr"}, "no simulated congestion control"),
        ("kernel", {"transport": "ndp"}, "transport ndp needs --engine packet"),
        ("kernel", {"transport": "tcp:label=prr"}, "label=prr needs --engine packet"),
        (
            "packet",
            {"topology": "slimfly:q=3,p=2", "scheme": "fatpaths", "transport": "tcp:label=prr"},
            "label=prr is for switches without layers",
        ),
    ],
)
def test_what_an_engine_lacks_is_refused(engine: str, values: dict[str, str], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        EXPERIMENT.plan({**SMALL, **values}, seeds=1, engines=[engine])
