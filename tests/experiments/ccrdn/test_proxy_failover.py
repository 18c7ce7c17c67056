import numpy as np
import pytest

from weft.experiments.ccrdn.failure import failures
from weft.experiments.ccrdn.proxy_failover import (
    COLUMNS,
    EXPERIMENT,
    Hit,
    cut_off_at,
    outage_s,
    stretch,
)
from weft.experiments.report import figures
from weft.testbed.measure.outage import Gap, Outage
from weft.topologies import build

GAPS = (Gap(0.5, 0.6, 1), Gap(0.9, 1.2, 3), Gap(1.5, None, 9))


def test_an_outage_is_what_lies_between_failure_and_mending():
    assert outage_s(Outage(0, 1, 9, 9, ()), 1.0, 2.0) == 0
    assert outage_s(Outage(0, 1, 9, 5, GAPS), 1.0, 2.0) == pytest.approx(0.2 + 0.5)
    assert outage_s(Outage(0, 1, 9, 5, GAPS), 1.0, 1.4) == pytest.approx(0.2)
    assert outage_s(Outage(0, 1, 9, 5, (Gap(0.9, 2.5, 3),)), 1.0, 2.0) == pytest.approx(1.0)


def test_who_is_cut_off_at_a_time():
    outage = Outage(0, 1, 9, 5, GAPS)
    assert [cut_off_at(outage, at_s) for at_s in (0.55, 0.7, 1.1, 1.2, 1.4, 1.6, 99.0)] == [
        *(True, False, True, False, False, True, True)
    ]


def test_stretch_counts_only_those_who_recovered():
    topology = build("dcell:n=4,k=1")
    failure = next(iter(failures("link", topology, np.random.default_rng(0))))
    a, b = (topology.naming.node(name) for name in failure.name.split("-"))
    mate = next(server for server in topology.neighbours(a)[0] if server != b)
    hit = Hit(failure, [(a, b), (mate, b)], 2, [1, 2])
    ratio = stretch(hit, {(a, b)}, {(a, b): 5, (mate, b): 9})
    assert (ratio["before_hops"], ratio["after_hops"], ratio["path_stretch"]) == (1, 5, 5)
    assert 3 <= ratio["shortest_hops"] <= 5
    assert stretch(hit, set(), {})["path_stretch"] is None


@pytest.mark.parametrize(
    ("parameters", "says"),
    [
        ({"failure": "fire"}, "proxy_failover: no failure 'fire'"),
        ({"routing": "ecmp"}, "scheme ecmp runs on switch fabrics"),
        ({"topology": "fattree:k=4", "routing": "bfs"}, "proxy_failover: topology must be dcell"),
        ({"congestion_control": "foo"}, "proxy_failover: no congestion_control 'foo'"),
        ({"pairs": "0"}, "proxy_failover: pairs must be at least 1, got 0"),
        ({"failure_s": "0.1"}, "proxy_failover: failure_s must lie in 0.5 .. 600, got '0.1'"),
        ({"rate_mbps": "0"}, "proxy_failover: rate_mbps must be at least 1, got 0"),
    ],
)
def test_what_cannot_be_is_refused(parameters, says):
    with pytest.raises(ValueError, match=r"proxy_failover|scheme|link") as error:
        EXPERIMENT.runs(parameters)
    assert str(error.value).startswith(says)


def row(routing, failure, fidelity="PASS", **others):
    """Return the columns of a run that a figure needs."""
    known = {
        "outages_ms": [0.0, 80.0, 1500.0],
        "recovered": [True, True, False],
        "tcp_before_bps": 2e7,
    }
    known |= {
        "tcp_through_bps": 1e7,
        "path_stretch": 1.3,
        "engine": "kernel",
        "seed": 0,
        "affected_pairs": 3,
        "topology": "dcell:n=4,k=1",
    }
    return {"routing": routing, "failure": failure, "fidelity": fidelity, **known, **others}


def test_failures_are_drawn_also_where_nobody_recovered(tmp_path):
    rows = [
        row("dr", "link", path_stretch=None, tcp_through_bps=None),
        row("pr-gpi", "link"),
        row("pr-gpi", "link", topology="ficonn:n=4,k=2"),
        row("pr-gpi", "rack", "FAIL"),
        row("dr", "rack", **dict.fromkeys(COLUMNS), affected_pairs=0),
    ]
    about = {"commit": None, "dirty": False}
    figures.plot(EXPERIMENT, [(one, about) for one in rows], tmp_path / "a.svg")
    text = (tmp_path / "a.svg").read_text()
    assert "1 failed fidelity (hollow)" in text
    assert "rack" in text


@pytest.mark.kernel
@pytest.mark.parametrize(("routing", "recovers"), [("dr", False), ("pr-gpi", True)])
def test_proxies_outlive_what_ends_dr(routing, recovers):
    parameters = {
        "topology": "dcell:n=3,k=1",
        "routing": routing,
        "failure": "silent-link",
        "pairs": "6",
    }
    (run,) = EXPERIMENT.runs(parameters | {"failure_s": "2.0"}, seeds=1)
    result = EXPERIMENT.measure(run)
    figures = result.figures
    assert result.fidelity in ("PASS", "WARN", "FAIL")
    assert figures["watched_pairs"] == len(figures["outages_ms"]) == len(figures["recovered"]) == 6
    assert figures["recovered_fraction"] == float(recovers)
    assert figures["as_predicted"]
    assert figures["tcp_before_bps"] > 0
    assert figures["tcp_concerned"]
    assert figures["tcp_error"] is None
    if recovers:
        assert figures["outage_ms"] < 900
        assert figures["path_stretch"] >= 1
        assert figures["after_hops"] >= figures["shortest_hops"]
        assert figures["tcp_through_bps"] > 0
    else:
        assert figures["outage_ms"] >= 1000
        assert figures["path_stretch"] is None


@pytest.mark.kernel
def test_who_is_in_a_dead_rack_is_not_watched_and_the_others_recover():
    parameters = {
        "topology": "dcell:n=3,k=1",
        "routing": "bfs",
        "failure": "rack",
        "pairs": "6",
        "failure_s": "1.0",
    }
    (run,) = EXPERIMENT.runs(parameters, seeds=1)
    figures = EXPERIMENT.measure(run).figures
    assert figures["failed"].startswith("w")
    assert figures["recovered_fraction"] == 1
    assert figures["as_predicted"]


@pytest.mark.kernel
def test_a_failure_that_concerns_nobody_is_told_as_such():
    parameters = {"topology": "dcell:n=3,k=1", "routing": "dr", "failure": "rack"}
    (run,) = EXPERIMENT.runs(parameters, seeds=1)
    result = EXPERIMENT.measure(run)
    assert result.figures == {"failed": None, "affected_pairs": 0, **dict.fromkeys(COLUMNS)}
    assert result.fidelity in ("PASS", "WARN", "FAIL")
