"""The common part of FatPaths' experiments on the kernel, and small runs of them."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from matplotlib.figure import Figure

from weft.experiments.fatpaths import (
    fatpaths_fct,
    flow_times,
    flowlet_gaps,
    layered_network,
)
from weft.experiments.runner.definition import Run
from weft.testbed.traffic.flow_results import TcpInfo
from weft.testbed.traffic.flows import Flow, FlowResult, FlowResults
from weft.topologies.core.link import Mbps

EXPERIMENTS = (fatpaths_fct.EXPERIMENT, fatpaths_fct.STENCIL, flowlet_gaps.EXPERIMENT)


def first_run(experiment, **instead):
    """A run of `experiment` in real time with the first value of everything else."""
    first = {key: values[0] for key, values in experiment.sweep.items()}
    name, engine = experiment.name, experiment.engines[0]
    return Run(
        experiment=name,
        version=experiment.version,
        parameters={**first, "delay_us": 0, **instead},
        seed=0,
        engine=engine,
    )


@pytest.mark.parametrize(("failure", "silent"), [("link", False), ("silent-link", True)])
def test_links_fail_at_half_of_the_time(failure, silent):
    run = first_run(
        fatpaths_fct.FAILOVER, topology="slimfly:q=3,p=1", failure=failure, failed_fraction=0.1
    )
    failed = []
    network = SimpleNamespace(
        topology=run.topology, fail=lambda name, *, silent: failed.append((name, silent))
    )
    options = layered_network.failing(run, network)
    assert options["warm_up_s"] == run.number("seconds") / 2
    assert not failed
    options["at_warm_up"]()
    assert all("h" not in name for name, _ in failed)
    assert {kind for _, kind in failed} == {silent}
    assert len(failed) == round(0.1 * int((run.topology.level > 0).sum()))
    assert not layered_network.failing(first_run(fatpaths_fct.FAILOVER), network)
    assert not layered_network.failing(first_run(fatpaths_fct.EXPERIMENT), network)


def test_flow_sizes_are_twenty_steps_of_the_web_search_distribution():
    sizes = flow_times.steps(1.0)
    assert len(sizes) == 20
    assert (sizes.min(), sizes.max()) == (32 << 10, 2 << 20)
    assert (np.diff(sizes) >= 0).all()
    assert sizes.mean() == pytest.approx(1e6, rel=0.01)
    assert flow_times.steps(0.25) == pytest.approx(sizes / 4, abs=1)


def test_times_of_flows_are_told_by_size_and_those_of_long_ones_by_percentile():
    """Two flows of 512 KiB take 5 and 3 ms, and one of 1000 bytes 1 ms, at 1 Gbit/s."""
    sizes, ms = np.array([1 << 19, 1000, 1 << 19]), np.array([5.0, 1.0, 3.0])
    columns = flow_times.distributions(sizes, ms, 0.5, 1e9)
    assert columns["step_bytes"] == [1000, 1 << 19]
    assert columns["step_mean_ms"] == [1.0, 4.0]
    assert columns["step_throughput_fraction"] == [0.008, round(4.194304 * (1 / 5 + 1 / 3) / 2, 5)]
    assert columns["long_percentiles_ms"] == [
        round(3 + 0.02 * percent, 5) for percent in range(101)
    ]
    assert flow_times.distributions(sizes, ms, 1.0, 1e9)["long_percentiles_ms"] == []


def test_pairs_send_what_the_load_asks():
    chosen = [(0, 3), (1, 4), (2, 5)]
    sizes = flow_times.steps(0.1)
    flows = list(
        flow_times.arrivals(
            np.random.default_rng(1),
            chosen,
            sizes,
            load_fraction=0.3,
            rate_bps=10 * Mbps,
            duration_s=400.0,
        )
    )
    assert {(flow.src, flow.dst) for flow in flows} == set(chosen)
    assert sum(flow.size_bytes for flow in flows) * 8 / 400 == pytest.approx(
        3 * 0.3 * 10 * Mbps, rel=0.1
    )
    assert [flow.at_s for flow in flows] == sorted(flow.at_s for flow in flows)
    assert {flow.size_bytes for flow in flows} == set(sizes.tolist())


def test_a_run_decides_the_layers_and_the_marks():
    cases = {
        ("fatpaths:layers=4", 33): "fatpaths:ecn=33,seed=3,layers=4",
        ("fatpaths:seed=9,ecn=5", 33): "fatpaths:ecn=5,seed=9",
        ("ecmp", 0): "ecmp",
    }
    for (scheme, ecn), spec in cases.items():
        run = replace(first_run(fatpaths_fct.EXPERIMENT, scheme=scheme, ecn_packets=ecn), seed=2)
        assert layered_network.scheme_of(run) == spec


def test_times_and_rates_go_by_the_longest_frame():
    run = first_run(fatpaths_fct.EXPERIMENT, frame_bytes=9000, rate_mbps=10_000)
    assert layered_network.packet_time_us(run.parameters) == 7.2
    assert layered_network.payload_bps(run) == pytest.approx(1e10 * 8934 / 9000)
    old = {**first_run(fatpaths_fct.EXPERIMENT).parameters}
    del old["frame_bytes"]
    assert layered_network.packet_time_us(old) == 12.112


def test_the_mapping_places_hosts_alike_for_every_scheme():
    linear = layered_network.pairs_of(first_run(fatpaths_fct.EXPERIMENT), 200)
    assert linear == [(host, (host + 100) % 200) for host in range(200)]
    placed = layered_network.pairs_of(first_run(fatpaths_fct.EXPERIMENT, mapping="random"), 200)
    assert placed == layered_network.pairs_of(
        first_run(fatpaths_fct.EXPERIMENT, mapping="random", scheme="letflow"), 200
    )
    assert sorted(src for src, _ in placed) == sorted(dst for _, dst in placed) == list(range(200))
    back = dict(placed)
    assert all(back[back[host]] == host for host in range(200))


@pytest.mark.parametrize(("wrong", "said"), [
    ({"scheme": "bfs"}, "this experiment compares rules of a switch's data plane: it takes dar, "),
    ({"scheme": "fatpath"}, "no scheme 'fatpath'"),
    ({"scheme": "fatpaths:forwarding=kernel"}, "does not mark packets"),
    ({"pattern": "off-diagonal:c=500"}, "c must be at most 199"),
    ({"topology": "dcell:n=3,k=1"}, "runs on switch fabrics"),
    ({"delay_us": 1}, "delay_us=1 needs --clock virtual"),
    ({"frame_bytes": 1513}, "frame_bytes must be at least 1514"),
])  # fmt: skip
def test_what_cannot_be_run_is_refused_in_one_line(wrong, said):
    with pytest.raises(ValueError, match=said) as raised:  # noqa: PT012
        for key, value in wrong.items():
            fatpaths_fct.EXPERIMENT.axes[key].parameter.read("fatpaths_fct", key, str(value))
        layered_network.check(first_run(fatpaths_fct.EXPERIMENT, **wrong))
    assert "\n" not in str(raised.value)


def test_the_papers_links_are_ten_times_slower():
    first = {key: values[0] for key, values in fatpaths_fct.EXPERIMENT.sweep.items()}
    packet_us = layered_network.packet_time_us(first)
    assert first["rto_min_us"] / packet_us == pytest.approx(200 / 7.2)
    assert first["delay_us"] / packet_us == pytest.approx(1 / 7.2)


@pytest.mark.slow
def test_every_scheme_of_the_sweep_can_be_run():
    for experiment in EXPERIMENTS:
        for scheme in experiment.sweep["scheme"]:
            experiment.axes["scheme"].parameter.read("it", "scheme", str(scheme))
            layered_network.check(first_run(experiment, scheme=scheme))


def test_long_flows_that_begin_in_the_second_half_are_told_apart_and_what_tcp_knew_of_each():
    def flow(at_s, kib, seconds, **told):
        info = TcpInfo(**{**dict.fromkeys(TcpInfo._fields, 0), **told})
        return FlowResult(Flow(at_s, 0, 1, kib << 10), at_s, at_s + seconds, kib << 10, info, None)

    each = (
        flow(0.1, 256, 9.0, timeouts=2),
        flow(4.9, 256, 5.0),
        flow(5.0, 300, 1.0, retransmissions=4),
        flow(7, 4, 0.5),
    )
    times_ms = fatpaths_fct.times(FlowResults(each, 10.0, 0.0, "reno", {}), 0.25, 10.0)
    assert times_ms["long_mean_ms"] == pytest.approx(5000)
    assert times_ms["warm_long_mean_ms"] == times_ms["warm_long_p99_ms"] == pytest.approx(1000)
    assert times_ms["short_mean_ms"] == pytest.approx(500)
    assert times_ms["timeouts"] == [2, 0, 0, 0]
    assert times_ms["repeated"] == [0, 0, 4, 0]


def small(experiment, **instead):
    """A run that takes some seconds."""
    return first_run(
        experiment,
        **{
            "topology": "slimfly:q=3,p=1",
            "pattern": "off-diagonal:c=9",
            "rate_mbps": 10,
            "frame_bytes": 1514,
            "seconds": 1,
            "rto_min_us": 200_000,
            **instead,
        },
    )


@pytest.mark.kernel
def test_small_runs_measure_and_are_drawn():
    rows = []
    for scheme in ("ecmp", "fatpaths:layers=3,trigger=cut,start=random,rho=0.7"):
        run = small(fatpaths_fct.EXPERIMENT, scheme=scheme, size_fraction=0.02, ecn_packets=5)
        result = fatpaths_fct.measure(run)
        figures = result.figures
        assert figures["flows"] == len(figures["times_ms"]) > 5
        assert figures["unfinished"] == 0
        assert (figures["layer_flows"] is None) == (scheme == "ecmp")
        assert (figures["first_layer_fraction"] or 0) < 1
        rows.append({**run.parameters, **figures, "fidelity": result.fidelity, "seed": 0})
    fatpaths_fct.EXPERIMENT.plot(rows, Figure())
    run = small(flowlet_gaps.EXPERIMENT, frame_bytes=9000, rate_mbps=60)
    result = flowlet_gaps.measure(run)
    assert sum(result.figures["gaps"]) == result.figures["packets"] > 500
    assert 0 <= result.figures["beyond_30_fraction"] <= result.figures["beyond_2_fraction"] < 1
    assert 0.3 < result.figures["median_packet_times"] < 30
    flowlet_gaps.EXPERIMENT.plot(
        [{**run.parameters, **result.figures, "fidelity": result.fidelity, "seed": 0}], Figure()
    )
    run = first_run(
        fatpaths_fct.STENCIL,
        **{
            "topology": "slimfly:q=3,p=1",
            "pattern": "stencil:offset=4",
            "rate_mbps": 20,
            "frame_bytes": 1514,
            "flow_bytes": 3000,
            "rto_min_us": 200_000,
        },
        rounds=2,
    )
    result = fatpaths_fct.measure_rounds(run)
    assert len(result.figures["rounds_s"]) == 2
    assert result.figures["unfinished"] == 0
    assert (
        0
        < result.figures["flow_mean_s"]
        <= result.figures["completion_s"]
        == sum(result.figures["rounds_s"])
    )
    fatpaths_fct.STENCIL.plot(
        [{**run.parameters, **result.figures, "fidelity": result.fidelity, "seed": 0}], Figure()
    )


def test_percentiles_are_means_of_valid_runs_with_long_flows():
    runs = (([1, 4], "PASS"), ([3, 6], "PASS"), ([], "PASS"), ([90, 90], "FAIL"))
    table = [
        {"way": "ecmp", "long_percentiles_ms": times_ms, "fidelity": fidelity}
        for times_ms, fidelity in runs
    ]
    rows = flow_times.percentiles(table, ("way",))
    assert [(row["percent"], row["long_times_ms"]) for row in rows] == [(0, 2), (1, 5)]
    assert flow_times.percentiles(table[2:3], ("way",)) == []
