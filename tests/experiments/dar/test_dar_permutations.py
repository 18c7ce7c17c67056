"""Permutations with barriers: times that can be reckoned, and bounds that no routing passes."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from matplotlib.figure import Figure

from tests.experiments.dar.test_on_kernel import one
from weft.experiments.dar import dar_permutations, dar_table, settings
from weft.experiments.dar.dar_permutations import EXPERIMENT, measure, simulate
from weft.testbed.packets.simulation import Simulation

SMALL = "clos:n=4,r=5,m=4"
FRAME_NS = 409  # 2048 bytes at 40 Gbit/s, whole ns
HEADER_NS = 12  # 64 bytes


def run_of(scheme: str, **instead: object):
    cell = {"topology": SMALL, "message_kb": 64, "permutations": 2, "scheme": scheme}
    return one(dar_permutations.EXPERIMENT, engine="packet", **cell | instead)


def figures_of(scheme: str, **instead: object):
    run = run_of(scheme, **instead)
    EXPERIMENT.check(run)
    return measure(run).figures


@pytest.mark.parametrize(
    ("instead", "expected_ns"),
    [
        # 32 packets; three switches begin with the header, and four ends of links take 100 ns
        ({}, 32 * FRAME_NS + 3 * HEADER_NS + 4 * 100),
        # all of a packet at each of four links
        ({"preset": "ours"}, 31 * FRAME_NS + 4 * FRAME_NS),
        # a host sends every 853 ns: 2048 bytes at 19.2 Gbit/s
        ({"host_gbps": 19.2}, 31 * 853 + FRAME_NS + 3 * HEADER_NS + 4 * 100),
        ({"early": "dropped"}, 32 * FRAME_NS + 3 * HEADER_NS + 4 * 100),
        ({"message_kb": 2}, FRAME_NS + 3 * HEADER_NS + 4 * 100),
    ],
)
def test_a_central_controller_takes_the_time_of_an_ideal_crossbar(instead, expected_ns):
    figures = figures_of("central", permutations=5, **instead)
    for column in ("ideal_us", "completion_us", "host_mean_us"):
        assert figures[column] == pytest.approx(expected_ns / 1000, abs=0.001)  # starts are rounded
    assert figures["completion_ratio"] == pytest.approx(1, rel=0.001)
    assert figures["sent_again_fraction"] == 0


def test_a_controller_with_two_flows_on_a_link_is_found(monkeypatch):
    def worse(n, m, destination):
        spines = optimum(n, m, destination)
        spines[:, 0] = spines[:, 1]  # of one leaf
        return spines

    optimum = dar_table.optimum
    monkeypatch.setattr(dar_table, "optimum", worse)
    assert figures_of("central")["completion_ratio"] > 1.5


@pytest.mark.parametrize("scheme", ["ecmp", "drill", "rps", "dar-persistent", "ndp", "reps"])
def test_no_scheme_is_faster_than_its_busiest_link_and_ecmp_by_the_flows_on_it(scheme):
    run = run_of(scheme, message_kb=256, permutations=1)
    done = simulate(run)
    figures = measure(run).figures
    busiest_us = done.ports["frames"].max() * FRAME_NS / 1000
    if scheme not in ("ndp", "reps"):  # whose headers are frames, too
        assert figures["completion_us"] >= busiest_us
    assert figures["completion_ratio"] >= 1
    assert 0 < figures["goodput_fraction"] <= 1
    if scheme == "ecmp":
        flows = done.ports["frames"].max() // settings.message_packets(run)
        assert flows >= 2
        assert figures["completion_ratio"] > 0.95 * flows


def test_a_permutation_begins_when_the_slowest_message_of_the_one_before_has_arrived():
    run = run_of("ecmp", permutations=3)
    done = simulate(run)
    hosts = 20
    start_s, end_s = (values.reshape(3, hosts) for values in (done.flows.start_s, done.delivered_s))
    skew_s = start_s[0]
    assert (skew_s < settings.slot_us(run) / 1e6).all()
    for number in (1, 2):
        assert start_s[number] == pytest.approx(end_s[number - 1].max() + skew_s, abs=1e-12)
    longest_us = 1e6 * (end_s - start_s).max(axis=1)
    assert measure(run).figures["completion_us"] == pytest.approx(longest_us.mean())


def test_hosts_send_permutations_without_a_flow_inside_a_leaf():
    flows = dar_table.messages(run_of("drill", permutations=7), 7)
    for src, dst in zip(flows.src.reshape(7, -1), flows.dst.reshape(7, -1), strict=True):
        assert sorted(dst) == sorted(src) == list(range(20))
        assert (src // 4 != dst // 4).all()
    assert len(np.unique(flows.dst.reshape(7, -1), axis=0)) == 7


def test_informed_dar_ends_near_the_ideal_where_messages_are_long():
    short, long = (figures_of("dar-persistent", message_kb=kb) for kb in (64, 4096))
    assert 1 < long["completion_ratio"] < 1.1 < short["completion_ratio"]
    assert long["moves_per_flow"] > 0
    assert figures_of("ecmp", message_kb=1024)["completion_ratio"] > 1.9


def test_go_back_n_loses_nothing_on_one_path_and_most_of_the_rate_under_spraying():
    for scheme in ("ecmp", "dmodk"):
        run = run_of(scheme)
        flows = dar_table.messages(run, 2)
        kept, dropped = (
            dar_table.simulated(run, flows, {"go_back_ns": go_back_ns}, rounds=2).run((), 1.0, ())
            for go_back_ns in (0, 448)
        )
        assert (kept.delivered_s == dropped.delivered_s).all()
        assert not dropped.counters["refused"].any()
    done = simulate(run_of("drill", early="dropped"))
    packets = settings.message_packets(run_of("drill"))
    assert (done.counters["in_order"] == packets).all()
    assert not done.counters["late"].any()
    figures = figures_of("drill", early="dropped", message_kb=256)
    assert figures["goodput_fraction"] < 0.5
    assert figures["sent_again_fraction"] > 1


def test_ndp_alone_costs_its_headers(monkeypatch):
    """Along the paths of the controller nothing waits for another message."""
    central = settings.SCHEMES["central"]._replace(transport="ndp:window=23")
    monkeypatch.setitem(settings.SCHEMES, "central", central)
    figures = figures_of("central", message_kb=1024)
    # frames carry 1984 bytes for 2006; each is acknowledged and asked for, by 64 bytes of the link
    assert figures["completion_ratio"] == pytest.approx(2006 / 1984 * (1 + 128 / 2048), rel=0.01)
    assert figures["sent_again_fraction"] == 0


def test_a_message_that_does_not_arrive_is_an_error(monkeypatch):
    monkeypatch.setattr(dar_permutations, "PATIENCE", 0)
    monkeypatch.setattr(dar_permutations, "GRACE_US", 13)  # a message alone takes 13.5 us
    with pytest.raises(ValueError, match="messages did not arrive within"):
        figures_of("drill")


@pytest.mark.parametrize(
    ("instead", "reason"),
    [
        ({"topology": "clos:n=4,r=4,m=3"}, "take m >= 4"),
        ({"topology": "slimfly:q=5"}, "clos:n="),
        ({"topology": "clos:n=2,r=1,m=2"}, "r must be at least 2"),
        ({"host_gbps": "50"}, "a host's link"),
        ({"scheme": "ndp", "host_gbps": "19.2"}, "ndp sends at the rate of the links, 40"),
        ({"scheme": "reps", "early": "dropped"}, "reps has no go-back-N"),
        ({"packet_bytes": "1000"}, "1514 bytes or more"),
        ({"message_kb": "65536", "permutations": "9999"}, "take too long"),
        ({"scheme": "dar", "start": "spread"}, "there are: modulo, random"),
        ({"early": "late"}, "early"),
    ],
)
def test_what_cannot_be_measured_is_refused(instead, reason):
    cell = {"scheme": "drill", "topology": SMALL, "message_kb": "64", **instead}
    with pytest.raises(ValueError, match=reason):
        EXPERIMENT.runs(cell, seeds=1)


def test_rows_can_be_drawn():
    cells = {"topology": SMALL, "message_kb": "64,256", "scheme": "central,drill"}
    rows = [
        {**run.parameters, **measure(run).figures, "seed": 0, "engine": "packet"}
        for run in EXPERIMENT.runs(cells, seeds=1)
    ]
    assert Counter(row["scheme"] for row in rows) == {"central": 2, "drill": 2}
    EXPERIMENT.plot(rows, Figure())


def test_a_simulation_leaves_the_starts_of_its_flows_alone():
    run = run_of("ecmp")
    flows = dar_table.messages(run, 2)
    before = flows.start_s.copy()
    beside: Simulation = dar_table.simulated(run, flows, {}, rounds=2)
    beside.run((), 1.0, ())
    assert (flows.start_s == before).all()
