"""dar_settling and dar_table: what daemons are asked for, and what is made of their moves."""

import warnings
from dataclasses import replace

import numpy as np
import pytest

from tests.experiments.dar.test_on_kernel import one
from weft.experiments.dar import clos_run, dar_convergence, dar_settling, dar_table, settings
from weft.testbed.traffic.flows import Flow

SMALL = {
    "topology": "clos:n=3,r=3,m=3",
    "host_gbps": 19.2,
    "key": "flow",
    "scheme": "dar-count",
    "message_kb": 64,
}


def test_the_last_move_of_a_permutation_is_at_the_end_of_its_period():
    # three permutations of four periods of 24 slots
    reroutes = np.array([[0, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 5]])
    moves = dar_settling.by_time(reroutes, 24, np.array([0, 96, 192]), 24)
    assert moves.moved.tolist() == [[3, 71], [0, 0], [5, 287]]
    took, moved, length = moves.finished()
    assert (took.tolist(), moved.tolist(), length.tolist()) == ([72, 0], [3, 0], [96, 96])


def test_moves_after_the_last_message_do_not_count():
    # two permutations of four periods of 24 slots, the last of which is a pause
    reroutes = np.array([[1, 0, 0, 6, 0, 0, 2, 4]])
    moves = dar_settling.by_time(reroutes, 24, np.array([0, 96]), 24, 24)
    assert moves.moved.tolist() == [[1, 23], [2, 167]]
    took, moved, length = moves.finished()
    assert (took.tolist(), moved.tolist(), length.tolist()) == ([24], [1], [72])


def test_moves_belong_to_the_permutation_that_is_under_way():
    # two leaves that were asked every three slots; permutations begin where a message does
    moves = np.array([[0, 2, 1, 0, 0, 3], [1, 0, 0, 0, 0, 0]])
    settling = dar_settling.by_time(moves, 3, np.array([0, 7, 14]), 6)
    assert settling.moved.tolist() == [[3, 5], [1, 8], [3, 17]]
    assert settling.reroutes.tolist() == [[2, 1, 3], [1, 0, 0]]
    took, moved, length = settling.finished()
    assert (took.tolist(), moved.tolist(), length.tolist()) == ([6, 2], [3, 1], [7, 7])


def test_permutations_of_simulated_packets_settle():
    """Each move that daemons have counted is one of the permutations, or of the last beginning."""
    cell = SMALL | {"topology": "clos:n=8,r=8,m=8", "scheme": "dar", "preset": "infiniband"}
    run = one(dar_settling.EXPERIMENT, **cell, engine="packet", time_us=110.0)
    moves = dar_settling.on_packets(run)
    beside = dar_table.simulation(run)
    beside.run((), 110e-6, ())
    leaves = beside.statuses()[:8]
    assert moves.reroutes.sum(axis=1).tolist() == [
        status["moves"] + status["swaps"] for status in leaves
    ]
    assert moves.moved[:, 0].sum() == moves.reroutes.sum() > 0
    assert moves.late_fraction == 0
    assert np.diff(moves.began).tolist() == [66, 67, 67, 66]
    full = one(
        dar_settling.EXPERIMENT, **cell | {"host_gbps": 40.0}, engine="packet", time_us=300.0
    )
    assert dar_settling.on_packets(full).late_fraction > 0.1
    short = one(dar_settling.EXPERIMENT, **cell, engine="packet", time_us=20.0)
    with warnings.catch_warnings(action="error"), pytest.raises(ValueError, match="above 27"):
        dar_settling.measure(short)


def test_the_central_optimum_of_simulated_packets_leaves_links_without_a_queue():
    """No two flows share a link, so a packet takes its own time on each, and the rate is full."""
    cell = SMALL | {"host_gbps": 40.0, "scheme": "central", "traffic": "cross"}
    own = {"preset": "ours", "time_us": 200.0, "skipped_us": 20.0}
    run = one(dar_table.EXPERIMENT, **cell | own, engine="packet")
    figures = dar_table.measure(run).figures
    packet_us, wire_us = 8 * 2048 / 40_000, 4 * 8 * 2048 / 40_000
    assert figures["min_throughput_gbps"] == pytest.approx(40, rel=packet_us / 180 * 2)
    assert wire_us <= figures["max_latency_us"] < wire_us + 2 * packet_us
    assert figures["late_fraction"] == figures["reroutes_per_message"] == 0


def test_what_follows_a_message_is_the_hosts_next_one():
    following = clos_run.in_turn(np.array([[1, 2, 0], [2, 0, 1], [1, 2, 0]]))
    first = clos_run.messages(np.array([[1, 2, 0]]), 77, 0.5)
    assert first == [Flow(0.0, 0, 1, 77), Flow(0.0, 1, 2, 77), Flow(0.0, 2, 0, 77)]
    assert following(first[1]) == Flow(0.0, 1, 0, 77)
    assert following(first[0]) == Flow(0.0, 0, 2, 77)
    assert following(first[1]) == Flow(0.0, 1, 2, 77)
    assert following(first[1]) is None


def test_daemons_on_the_kernel_count_every_flow_and_look_as_often_as_was_asked():
    run = one(dar_settling.EXPERIMENT, **SMALL, kernel_mbps=40, period_slots=10, rest_slots=25)
    spec = settings.spec_on_kernel(run)
    assert spec.startswith("dar:p=2,detect=count,informed=0,period_us=3028,cool=3,")
    assert "elephant_kb=0" in spec
    assert "active_us=6056" in spec
    by_queue = settings.spec_on_kernel(
        one(dar_settling.EXPERIMENT, **{**SMALL, "scheme": "dar", "host_gbps": 20.8})
    )
    assert by_queue.startswith("dar:p=2,detect=queue")
    assert (
        settings.spec_on_kernel(one(dar_table.EXPERIMENT, **{**SMALL, "scheme": "ecmp"})) == "ecmp"
    )


@pytest.mark.parametrize(
    ("instead", "says"),
    [
        ({"topology": "clos:n=24,r=48,m=24"}, "at most 256 hosts on kernel"),
    ],
)
@pytest.mark.parametrize("experiment", [dar_settling, dar_table])
def test_what_the_kernel_cannot_do_is_refused(experiment, instead, says):
    with pytest.raises(ValueError, match=says):
        experiment.EXPERIMENT.check(one(experiment.EXPERIMENT, **{**SMALL, **instead}))
    experiment.EXPERIMENT.check(one(experiment.EXPERIMENT, **SMALL))


@pytest.mark.parametrize(
    ("named", "cells"),
    [
        ({}, [(48, 40.0), (24, 20.8), (24, 19.2)]),
        ({"host_gbps": "40"}, [(48, 40.0)]),
        ({"topology": "clos:n=24,r=48,m=24", "host_gbps": "40"}, [(24, 40.0)]),
        ({"topology": "clos:n=4,r=4,m=4"}, [(4, 40.0), (4, 20.8), (4, 19.2)]),
    ],
)
def test_networks_that_the_paper_lacks_are_measured_at_every_rate(named, cells):
    runs = dar_settling.EXPERIMENT.runs({**named, "scheme": "dar"}, seeds=1)
    sizes = [(settings.size(run.text("topology"))[2], run.number("host_gbps")) for run in runs]
    assert sizes == cells


def test_a_sweep_without_cells_is_an_error():
    experiment = replace(dar_settling.EXPERIMENT, goes_together=lambda run: False)
    with pytest.raises(
        ValueError, match="dar_settling: no cell is left: name topology and host_gbps"
    ):
        experiment.plan({"host_gbps": "40"})


def test_an_error_names_the_parameter_that_mends_it():
    cell = {"topology": "clos:n=2,r=2,m=2", "new_spine": "other", "p": "1", "rule": "paper"}
    with pytest.raises(ValueError, match="take new_spine=any"):
        dar_convergence.EXPERIMENT.runs(cell)


@pytest.mark.kernel
def test_permutations_on_the_kernel_settle():
    """Three permutations of nine hosts; two thirds of their time are looked at."""
    result = dar_settling.measure(
        one(dar_settling.EXPERIMENT, **SMALL, kernel_mbps=10, time_us=120.0)
    )
    assert result.figures["permutations"] == 2
    assert result.figures["period_us"] == pytest.approx(9.83, abs=0.01)
    assert 0 <= result.figures["moves_per_flow"] < 3
    assert result.fidelity


@pytest.mark.kernel
def test_messages_on_the_kernel_have_the_tables_lines():
    result = dar_table.measure(
        one(dar_table.EXPERIMENT, **SMALL, kernel_mbps=10, time_us=300.0, skipped_us=60.0)
    )
    figures = result.figures
    assert figures.keys() == dar_table.EXPERIMENT.columns.keys() - {"paper_*"}
    assert 0 < figures["min_throughput_gbps"] <= figures["mean_throughput_gbps"] < 21
    assert 0 < figures["mean_latency_us"] <= figures["max_latency_us"]
    assert 0 <= figures["late_fraction"] < 1
    assert figures["mean_jump_ratio"] is None
