"""Experiments on fabrics: what is worked out, what is refused, and a short run of each on the
kernel."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from weft.experiments.engines import common_parameters, kernel_run
from weft.experiments.lbsp import lbsp_tcp
from weft.experiments.report import figures
from weft.experiments.runner.definition import Experiment, Run, Value
from weft.experiments.runner.rows import row_of
from weft.experiments.ttc import fabric_gain, ttc_kernel
from weft.experiments.ttc.fat_tree_links import LayeredTreeShape
from weft.testbed.data_plane.data_plane import PortCounts
from weft.testbed.measure.ping import ping
from weft.testbed.runs.network_handle import all_pairs
from weft.topologies import build
from weft.topologies.core.link import LinkSpec, Mbps


def runs(experiment: Experiment, **given: str) -> list[Run]:
    """Return the runs with one seed, in real time if links have no delay."""
    clock = "real" if given.get("delay_us") == "0" else "virtual"
    return experiment.plan(given, seeds=1, clock=clock).runs


@pytest.mark.parametrize(
    "ft", [LayeredTreeShape(2, 3), LayeredTreeShape(3, 2), LayeredTreeShape(4, 2)], ids=str
)
def test_the_mean_path_is_that_of_all_pairs(ft: LayeredTreeShape) -> None:
    def distance(a: int, b: int) -> int:
        return next((h for h in range(ft.n) if a // ft.d**h == b // ft.d**h), ft.n)

    pairs = list(permutations(range(ft.hosts), 2))
    assert ttc_kernel.mean_links(ft) == pytest.approx(
        sum(2 * distance(a, b) for a, b in pairs) / len(pairs)
    )


def test_what_a_clos_can_carry_is_bounded_by_its_uplinks() -> None:
    topology = build("clos:n=4,r=2,m=2")
    across = [(host, (host + 4) % 8) for host in range(8)]
    assert fabric_gain.ideal_flows(topology, across) == 4
    assert fabric_gain.ideal_flows(topology, [(0, 1), (1, 0), (2, 4), (4, 2)]) == 4
    assert fabric_gain.ideal_flows(topology, [(0, 4), (1, 5), (2, 6), (3, 2)]) == 3


def test_packets_that_ttc_redirects_are_counted_by_tier() -> None:
    topology = build("fattree:n=3,d=2")
    before = {
        (node, port): PortCounts(100, 0, 10, 0, 0)
        for node in range(topology.servers, topology.nodes)
        for port, *_ in topology.ports(node)
    }
    after = dict(before)
    for level, packets, moved in ((1, 140, 20), (2, 180, 11)):
        for node, port, _, _ in topology.links[topology.level == level].tolist():
            after[node, port] = PortCounts(packets, 0, moved, 0, 0)
    (ttc,) = runs(ttc_kernel.EXPERIMENT, traffic="tcp", scheme="ttc", topology="fattree:k=4")
    (micro,) = runs(ttc_kernel.EXPERIMENT, traffic="tcp", scheme="micro", topology="fattree:k=4")
    found = ttc_kernel.redirected(ttc, topology, before, after)
    assert found == {"up1_redirected_fraction": 10 / 40, "up2_redirected_fraction": 1 / 80}
    assert set(ttc_kernel.redirected(micro, topology, before, after).values()) == {None}
    assert set(ttc_kernel.redirected(ttc, topology, before, before).values()) == {None}


def kernel_row(scheme: str, traffic: str, rate_mbps: int, seed: int) -> dict[str, Value]:
    run = {key: values[0] for key, values in ttc_kernel.EXPERIMENT.sweep.items()}
    run |= {
        "scheme": scheme,
        "traffic": traffic,
        "rate_mbps": rate_mbps,
        "fidelity": "PASS",
        "seed": seed,
    }
    if traffic == "tcp":
        return {**run, "goodput_bps": 5e6}
    load = int(traffic.rpartition("=")[2]) / 100
    return {
        **run, "delay_mean_slots": load, "up1_mean_queue_packets": load,
        "up1_redirected_fraction": load / 2 if scheme == "ttc" else None,
        "model_delay_mean_slots": load + seed, "model_up1_mean_queue_packets": load,
        "model_up1_redirected_fraction": load / 3,
    }  # fmt: skip


def test_each_setting_of_the_packets_experiment_is_drawn_by_itself_with_the_model_s_mean_over_seeds() -> (  # noqa: E501
    None
):
    rows = [
        kernel_row(scheme, traffic, rate_mbps, seed)
        for scheme in ("ttc", "micro")
        for traffic in ("udp:load=80", "udp:load=30", "tcp")
        for rate_mbps in (5, 10)
        for seed in (0, 1)
    ]
    with figures.new() as figure:
        ttc_kernel.EXPERIMENT.plot(rows, figure)
        assert len(figure.axes) == 2 * 3 + 2
        titles = [figure.axes[place].get_title(loc="left") for place in (0, 3)]
        lines = [
            line.get_xydata().tolist()
            for line in figure.axes[0].get_lines()
            if line.get_linestyle() == "--"
        ]
    assert [title.rpartition(", ")[2] for title in titles] == ["rate_mbps=5", "rate_mbps=10"]
    assert [[0.3, 0.8], [0.8, 1.3]] in lines


def test_goodput_of_each_setting_and_scheme_is_drawn_by_itself() -> None:
    def row(scheme: str, queue_packets: int, fraction: float, fidelity: str) -> dict[str, Value]:
        run = {key: values[0] for key, values in fabric_gain.EXPERIMENT.sweep.items()}
        run |= {"scheme": scheme, "queue_packets": queue_packets, "fidelity": fidelity}
        return {**run, "goodput_fraction": fraction, "late_fraction": 0.1}

    rows = [
        row("ttc", 100, 0.5, "WARN"),
        row("ttc", 100, 0.7, "PASS"),
        row("ttc", 100, 0.1, "FAIL"),
    ]
    rows += [row("ecmp", 100, 0.4, "PASS"), row("ttc", 250, 0.3, "FAIL")]
    with figures.new() as figure:
        fabric_gain.EXPERIMENT.plot(rows, figure)
        left = figure.axes[::2]
        widths = [[round(bar.get_width(), 3) for bar in axes.patches] for axes in left]
        titles = [axes.get_title(loc="left") for axes in left]
        assert [[label.get_text() for label in axes.get_yticklabels()] for axes in left] == [
            ["ECMP", "TTC"],
            ["TTC"],
        ]
    assert widths == [[0.4, 0.6], [0.3]]
    assert [title.rpartition(", ")[2] for title in titles] == [
        "queue_packets=100",
        "queue_packets=250",
    ]


@pytest.mark.parametrize(
    ("experiment", "parameters", "said"),
    [
        (fabric_gain.EXPERIMENT, {"scheme": "tcc"}, "did you mean ttc"),
        (fabric_gain.EXPERIMENT, {"topology": "dcell:n=4,k=1"}, "must be a fabric of switches"),
        (fabric_gain.EXPERIMENT, {"topology": "star:n=4"}, "must be a fabric of switches"),
        (fabric_gain.EXPERIMENT, {"traffic": "permutaton"}, "did you mean permutation"),
        (
            fabric_gain.EXPERIMENT,
            {"transport": "sctp"},
            "transport must be tcp or mptcp:subflows=4, got sctp",
        ),
        (lbsp_tcp.EXPERIMENT, {"damage": "lnk"}, "did you mean link"),
        (lbsp_tcp.EXPERIMENT, {"load_fraction": "1.5"}, "load_fraction must lie in 0.01 .. 0.99"),
        (
            fabric_gain.EXPERIMENT,
            {"scheme": "lbsp", "topology": "clos:n=2,r=2,m=2"},
            "fat-tree of three tiers",
        ),
        (ttc_kernel.EXPERIMENT, {"traffic": "udp:load=100"}, "load must be at most 99"),
        (ttc_kernel.EXPERIMENT, {"traffic": "icmp"}, "traffic must be tcp or udp:load=PERCENT"),
        (ttc_kernel.EXPERIMENT, {"topology": "clos:n=2,r=2,m=2"}, "topology must be a fattree"),
    ],
)
def test_what_cannot_be_is_refused(
    experiment: Experiment, parameters: dict[str, str], said: str
) -> None:
    with pytest.raises(ValueError, match=r"^[^\n]*$") as error:
        runs(experiment, **parameters)
    assert said in str(error.value)


SLOW = {"rate_mbps": "5", "delay_us": "0", "rto_min_us": "200000"}  # in real time
SHORT = [
    (
        fabric_gain.EXPERIMENT,
        {"topology": "clos:n=1,r=2,m=2", "scheme": "drill", "seconds": "1", **SLOW},
    ),
    (
        lbsp_tcp.EXPERIMENT,
        {
            "workload": "long",
            "scheme": "lbsp",
            **SLOW,
            "damage": "link,node,degraded",
            "flow_bytes": "20000",
        },
    ),
    (
        ttc_kernel.EXPERIMENT,
        {
            "topology": "fattree:n=2,d=2",
            "scheme": "ttc",
            **SLOW,
            "rate_mbps": "2",
            "seconds": "1",
            "traffic": "udp:load=50,tcp",
        },
    ),
]


def test_the_delays_of_links_are_those_from_the_first_switch_on() -> None:
    parameters = {
        "topology": "fattree:k=4",
        "scheme": "ttc",
        "traffic": "udp:load=80",
        "delay_us": "5",
    }
    (run,) = runs(ttc_kernel.EXPERIMENT, **parameters)
    run, virtual = replace(run, clock="real"), replace(run, clock="virtual")
    topology = build("fattree:k=4")
    sent = np.full((2, 16), -1)
    # the same edge switch: 2 links
    assert ttc_kernel.links_us(run, topology, np.vstack([sent, [1, *[-1] * 15]])) == 5
    sent[0, 0], sent[1, 3] = 2, 15  # the same pod, another one: 4 and 6 links
    assert ttc_kernel.links_us(run, topology, sent) == 5 * (3 + 5) / 2
    link_us = 5 + ttc_kernel.slot_us(run)
    assert ttc_kernel.links_us(virtual, topology, sent) == pytest.approx(4 * link_us)


def test_parameters_of_tcp_reach_the_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[dict[str, object], dict[str, object]]] = []

    def observe(network: object, sysctls: dict[str, object], *_: object, **options: object) -> None:
        calls.append((sysctls, options))

    monkeypatch.setattr(kernel_run, "observe", observe)
    network: Any = None
    settings = {"topology": "clos:n=4,r=2,m=4", "traffic": "cross", "scheme": "ecmp"}
    (run,) = runs(fabric_gain.EXPERIMENT, **settings)
    kernel_run.send_tcp(run, network, [], deadline_s=1.0)
    (run,) = runs(fabric_gain.EXPERIMENT, **settings, rto_min_us="200000")
    kernel_run.send_tcp(run, network, [], deadline_s=1.0, sysctls={"tcp_ecn": 2})
    options = {"congestion_control": "cubic", "transport": "tcp", "deadline_s": 1.0}
    assert calls == [
        ({"tcp_ecn": 1, "tcp_rto_min_us": 10_000}, options),
        ({"tcp_ecn": 2}, options),  # Linux's own timeout is left alone
    ]


def test_a_kernel_with_a_fixed_timeout_is_refused_another(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(common_parameters, "RTO_MIN_SYSCTL", tmp_path / "absent")
    settings = {"scheme": "ecmp", "delay_us": "0"}
    with pytest.raises(ValueError, match="rto_min_us=10000 needs Linux"):
        runs(fabric_gain.EXPERIMENT, **settings)
    assert runs(fabric_gain.EXPERIMENT, **settings, rto_min_us="200000")
    assert runs(fabric_gain.EXPERIMENT, **(settings | {"delay_us": "5"}))


@pytest.mark.kernel
def test_lbsp_goes_around_the_link_that_failed() -> None:
    settings = {"workload": "long", "scheme": "lbsp", "damage": "link", "delay_us": "0"}
    (run,) = runs(lbsp_tcp.EXPERIMENT, **settings)
    link = LinkSpec(rate_bps=100 * Mbps, queue_packets=100)
    damage = partial(lbsp_tcp.prepare, run)
    with kernel_run.fabric(run, link, damage=damage) as on:
        assert not ping(on.network, all_pairs(on.network), count=4, retries=2).lost


@pytest.mark.kernel
@pytest.mark.parametrize(
    ("experiment", "parameters"), SHORT, ids=[experiment.name for experiment, _ in SHORT]
)
def test_a_short_run_gives_rows_that_can_be_drawn(
    experiment: Experiment, parameters: dict[str, str]
) -> None:
    rows = []
    for run in runs(experiment, **parameters):
        result = experiment.carry_out(run)
        assert result.fidelity in ("PASS", "WARN", "FAIL")
        assert result.circumstances["fidelity_report"]
        rows.append(row_of(run, result))
    for row in rows:
        if "goodput_fraction" in row:
            assert row["goodput_fraction"] > 0.2
        if "unfinished" in row:
            assert row["unfinished"] == 0
        if str(row.get("traffic", "")).startswith("udp"):
            assert row["up1_mean_queue_packets"] > 0
            assert row["delay_mean_slots"] > 0
        # what fidelity's own packets fill is not the traffic's
        if "sending_max_queue_packets" in row:
            assert row["sending_max_queue_packets"] < row["queue_packets"]
            assert 0 <= row["up1_redirected_fraction"] < 0.5
    with figures.new() as figure:
        experiment.plot(rows, figure)
        assert figure.axes
