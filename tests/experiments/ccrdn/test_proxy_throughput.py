from collections import Counter

import numpy as np
import pytest

from weft.daemons.routing import dr
from weft.experiments.ccrdn.proxy_throughput import (
    EXPERIMENT,
    channels,
    listed,
    on_graph,
    on_paths,
    payload_bps,
)
from weft.experiments.ccrdn.recursive import traffic
from weft.experiments.report import figures
from weft.topologies import build


def paths_by_dr(spec, pairs):
    network = build(spec).naming.network
    return [tuple(dr.route(network.rule, network.t, src, dst)) for src, dst in pairs]


@pytest.mark.parametrize("spec", ["dcell:n=4,k=1", "ficonn:n=4,k=2"])
@pytest.mark.parametrize("kind", ["uniform:flows=60", "one-to-all"])
def test_flows_on_dr_paths_are_those_that_the_graph_engine_counts(spec, kind):
    (run,) = EXPERIMENT.runs({"topology": spec, "routing": "dr", "traffic": kind}, seeds=1)
    payload = payload_bps(run)
    paths = paths_by_dr(spec, listed(traffic(run, kind)))
    real, told = on_paths(spec, paths, payload), on_graph(run)
    assert real["bottleneck_flows"] == told["graph_bottleneck_flows"]
    assert real["mean_hops"] == pytest.approx(told["graph_mean_hops"])
    assert told["graph_rat_bps"] == pytest.approx(len(paths) * payload / real["bottleneck_flows"])
    assert told["graph_rat_bps"] <= real["fair_bps"] * (1 + 1e-9)
    assert real["slowest_fair_bps"] == pytest.approx(payload / real["bottleneck_flows"])


def test_each_direction_of_a_link_is_a_channel_of_its_own():
    network = build("dcell:n=4,k=1").naming.network
    there, back = channels(network.t, (1, 0, 4, 5)), channels(network.t, (5, 4, 0, 1))
    assert len(there) == 5  # 1 to its switch, switch to 0, 0 to 4, 4 to its switch, switch to 5
    assert not set(there) & set(back)
    counts = Counter(channels(network.t, (1, 0)) + channels(network.t, (2, 0)))
    assert max(counts.values()) == 2  # they meet on the way to 0


def test_two_flows_share_what_they_have_in_common():
    rates = on_paths("dcell:n=4,k=1", [(1, 0), (2, 0), (5, 6)], 1e6)
    assert rates["bottleneck_flows"] == 2
    assert rates["fair_bps"] == pytest.approx(2e6)
    assert rates["slowest_fair_bps"] == pytest.approx(5e5)


@pytest.mark.parametrize(
    ("parameters", "says"),
    [
        (
            {"traffic": "uniform:flows=5000"},
            "proxy_throughput: at most 2000 flows, uniform:flows=5000 is 5000",
        ),
        ({"traffic": "gossip"}, "no traffic 'gossip'"),
        ({"delay_us": "5"}, "proxy_throughput: delay_us=5 needs --clock virtual"),
        ({"seconds": "0"}, "proxy_throughput: seconds must lie in 0.001 .. 3600, got '0'"),
        ({"topology": "fattree:k=4", "routing": "bfs"}, "proxy_throughput: topology must be dcell"),
    ],
)
def test_what_cannot_be_is_refused(parameters, says):
    with pytest.raises(ValueError, match=r"proxy_throughput|traffic") as error:
        EXPERIMENT.runs(parameters)
    assert str(error.value).startswith(says)


def test_it_is_drawn_also_without_predictions(tmp_path):
    known = {
        "topology": "dcell:n=4,k=1",
        "traffic": "one-to-all",
        "goodput_bps": 4e6,
        "fair_bps": 4.5e6,
    }
    told = {"graph_rat_bps": 4e6, "graph_uat_bps": 2e7}
    rows = [
        {
            "routing": routing,
            **known,
            **prediction,
            "fidelity": "PASS",
            "engine": "kernel",
            "seed": 0,
        }
        for routing, prediction in (("dr", told), ("bfs", dict.fromkeys(told)))
    ]
    figures.plot(
        EXPERIMENT, [(row, {"commit": None, "dirty": False}) for row in rows], tmp_path / "a.svg"
    )
    assert "one-to-all" in (tmp_path / "a.svg").read_text()


@pytest.mark.kernel
def test_tcp_gets_what_its_paths_can_carry():
    parameters = {
        "topology": "dcell:n=3,k=1",
        "routing": "pr-gpi",
        "traffic": "one-to-all",
        "seconds": "2",
    }
    (run,) = EXPERIMENT.runs(parameters, seeds=1)
    result = EXPERIMENT.measure(run)
    figures = result.figures
    assert result.fidelity in ("PASS", "WARN", "FAIL")
    assert figures["flows"] == len(figures["goodputs_bps"]) == 11
    assert 1 < figures["mean_hops"] <= 3
    assert 0 < figures["goodput_bps"] < 1.25 * figures["fair_bps"]
    assert figures["goodput_bps"] == pytest.approx(np.sum(figures["goodputs_bps"]), rel=1e-3)
    assert figures["slowest_flow_bps"] == pytest.approx(min(figures["goodputs_bps"]), rel=0.01)
