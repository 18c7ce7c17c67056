from itertools import pairwise

import numpy as np
import pytest

from weft.experiments.ccrdn.latency import KERNEL as EXPERIMENT
from weft.experiments.ccrdn.latency import RoundTrips, by_hops, components, finder, line, routing_us
from weft.experiments.report import figures
from weft.testbed.linux import clock
from weft.topologies import build


def test_a_line_goes_through_the_medians():
    points = [(x, 3.0 + 2.0 * x + noise) for x in range(1, 6) for noise in (-0.5, 0.0, 80.0)]
    base, slope, fitted = line([(x, y) for x, y in points if y < 80] + [(1, 5.0)])
    assert slope == pytest.approx(2.0, abs=0.1)
    assert base == pytest.approx(3.0, abs=0.4)
    assert fitted > 0.99
    assert line([(2, 10.0), (2, 10.0)]) == (0.0, 5.0, 1.0)
    assert line([(1, 4.0), (2, 4.0)])[1:] == (pytest.approx(0.0), 1.0)


def test_the_parts_are_those_of_section_7_4():
    seen = RoundTrips({}, itself=[9.0, 10.0, 99.0], near_empty=[64.0], near_full=[140.0])
    parts = components(seen, 1.5)
    assert parts == {"stack_us": 10.0, "propagation_us": 22.0, "data_us": 38.0, "routing_us": 1.5}


def test_so_many_pairs_of_each_length():
    hops = {(0, 1): 1, (0, 2): 1, (0, 3): 2, (1, 2): 1}
    assert by_hops(hops, 2) == {1: [(0, 1), (0, 2)], 2: [(0, 3)]}


@pytest.mark.parametrize("routing", ["dr", "pr-gpi", "pr-gpe", "bfs"])
def test_what_is_timed_finds_paths(routing):
    topology = build("dcell:n=3,k=2")
    path = finder(topology, routing)(0, 155)
    assert path[0] == 0
    assert path[-1] == 155
    assert all(b in topology.adjacency[a] for a, b in pairwise(path))
    assert routing_us(topology, routing, [(0, 155), (3, 20)]) > 0


@pytest.mark.parametrize(
    ("parameters", "says"),
    [
        ({"pings": "1"}, "proxy_latency: pings must be at least 2, got 1"),
        ({"topology": "fattree:k=4", "routing": "bfs"}, "proxy_latency: topology must be dcell"),
        (
            {"delay_us": "5"},
            "proxy_latency: rate_mbps must be at least 1 (--clock real), since a delay is a link's",
        ),
    ],
)
def test_what_cannot_be_is_refused(parameters, says):
    with pytest.raises(ValueError, match="proxy_latency") as error:
        EXPERIMENT.runs(parameters)
    assert str(error.value).startswith(says)


def test_hops_without_a_rate_take_time_by_the_real_clock_only():
    assert EXPERIMENT.plan({}, clock="real").runs
    assert EXPERIMENT.plan({"rate_mbps": "1000", "delay_us": "5"}, clock="virtual").runs
    with pytest.raises(ValueError, match=r"--clock virtual\), since a hop takes no time there"):
        EXPERIMENT.plan({}, clock="virtual")


def test_it_is_drawn(tmp_path):
    parts = {
        "stack_us": 9.0,
        "propagation_us": -1.0,
        "data_us": 1.0,
        "routing_us": 20.0,
        "hop_us": 29.0,
    }
    known = {
        "topology": "dcell:n=4,k=1",
        "hops": [1, 1, 2, 2],
        "rtts_us": [20.0, 22.0, 30.0, 31.0],
        "engine": "kernel",
        "seed": 0,
    }
    fit = {"fitted_base_us": 5.0, "fitted_hop_us": 5.0, "fidelity": "PASS"}
    rows = [{"routing": routing, **known, **parts, **fit} for routing in ("dr", "pr-gpi")]
    figures.plot(
        EXPERIMENT, [(row, {"commit": None, "dirty": False}) for row in rows], tmp_path / "a.svg"
    )
    assert "slope of the pings" in (tmp_path / "a.svg").read_text()


@pytest.mark.kernel
def test_more_hops_take_longer():
    parameters = {"topology": "dcell:n=3,k=1", "routing": "pr-gpi", "pairs": "4", "pings": "8"}
    virtual = clock.is_virtual()  # where a hop takes no time but what is asked for
    links = {"rate_mbps": "1000", "delay_us": "40"} if virtual else {}
    (run,) = EXPERIMENT.runs(parameters | links, seeds=1)
    result = EXPERIMENT.measure(run)
    figures = result.figures
    assert result.fidelity in ("PASS", "WARN", "FAIL")
    assert set(figures["hops"]) == {1, 2, 3}
    assert len(figures["hops"]) == len(figures["rtts_us"]) == 3 * 4 * 8
    assert np.mean(figures["hops"]) > 1 < figures["mean_hops"] < 3
    assert figures["settled"]
    assert figures["latency_us"] > 0
    assert figures["stack_us"] > 0 or virtual
    parts = [figures[f"{part}_us"] for part in ("stack", "propagation", "data", "routing")]
    assert figures["hop_us"] == pytest.approx(sum(parts))
    assert figures["model_latency_us"] == pytest.approx(figures["mean_hops"] * figures["hop_us"])
    if virtual:
        assert figures["stack_us"] == 0
        assert figures["fitted_r2"] > 0.99
