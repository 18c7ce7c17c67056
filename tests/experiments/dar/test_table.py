"""dar_table and dar_settling on simulated packets: what must hold, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.figure import Figure

from weft.experiments.dar import dar_settling, dar_table, settings
from weft.experiments.dar.dar_settling import SettlingMoves


def test_a_permutation_settles_with_its_last_move() -> None:
    moved = np.array([[5, 30], [0, 0], [2, 199], [7, 260]])
    moves = SettlingMoves(np.array([0, 100, 190, 250]), moved, np.zeros((1, 1)), 300)
    took, flows, length = moves.finished()
    assert took.tolist() == [31, 0, 10]  # the last one that began is not over
    assert flows.tolist() == [5, 0, 2]
    assert length.tolist() == [100, 90, 60]


def test_the_two_halves_of_the_window_make_the_mean() -> None:
    (one,) = dar_table.EXPERIMENT.runs({**TINY, "scheme": "drill", "host_gbps": "40"}, seeds=1)
    figures = dar_table.EXPERIMENT.measure(one).figures
    us = one.number("skipped_us"), one.number("time_us")
    begins = np.array([us[0], sum(us) / 2]) / settings.slot_us(one)
    done = dar_table.simulation(one).run((), us[1] / 1e6, (us[0] / 1e6, sum(us) / 2e6, us[1] / 1e6))
    halves = dar_table.received_packets(one, done, begins).packets.sum(axis=1)
    assert figures["throughput_change_fraction"] == pytest.approx(
        halves[1] / halves[0] - 1, abs=0.02
    )


def test_the_columns_about_order_are_those_of_the_packets() -> None:
    """Receiver 0 gets 1 2 5 6 4 and 1 2 3, receiver 1 gets 1 4 2 and 1 2, receiver 2
    gets 1 2.

    A sender that goes back has sent the jump, and what leaves in two latencies of 6 slots.
    """
    received = dar_table.Received(
        begins=np.array([0.0, 10.0]),
        packets=np.array([[5, 3, 1], [3, 2, 1]]),
        latency=np.array([48.0, 30.0, 12.0]),
        worst_latency=np.array([9.0, 8.0, 6.0]),
        in_order=np.array([6, 3, 2]),
        jumps=np.array([1, 1, 0]),
        jumped=np.array([3, 3, 0]),
        late=np.array([1, 1, 0]),
        extent=np.array([2, 2, 0]),
    )
    assert dar_table.order_figures(received) == pytest.approx(
        {
            "mean_jump_ratio": (3 / 6 + 3 / 3) / 3,
            "max_jump_ratio": 1.0,
            "mean_jump_packets": 3.0,
            "max_jump_packets": 3.0,
            "go_back_fraction": (6 + 2 * 2 * 6) / 15,
            "late_fraction": 2 / 15,
            "mean_extent_packets": 2.0,
        }
    )
    in_order = received._replace(
        **dict.fromkeys(("jumps", "jumped", "late", "extent"), np.zeros(3, int))
    )
    assert set(dar_table.order_figures(in_order).values()) == {0.0}


def test_no_destination_gets_more_flows_than_its_permutation_has() -> None:
    """The optimum puts at most n flows over m spines on a link, by the word of the definition."""
    n, r, m = 4, 5, 4
    rows = settings.destinations(n, r, "cross", 20, np.random.default_rng(3))
    for row, spines in zip(rows, settings.optimum(n, m, rows), strict=True):
        up = {(src // n, spine) for src, spine in enumerate(spines.tolist())}
        down = {(dst // n, spine) for dst, spine in zip(row.tolist(), spines.tolist(), strict=True)}
        assert len(up) == len(down) == n * r
    inside = settings.destinations(n, r, "random", 20, np.random.default_rng(3))
    same = inside // n == np.arange(n * r) // n
    assert same.any()
    assert ((settings.optimum(n, m, inside) < 0) == same).all()


def test_the_paper_is_beside_its_three_cells() -> None:
    predicted = [dar_table.predict(one) for one in dar_table.EXPERIMENT.runs(seeds=1)]
    cells = [figures for figures in predicted if figures]
    assert len(cells) == 3
    assert all(len(figures) == 8 for figures in cells)


TINY = {"topology": "clos:n=4,r=4,m=4", "time_us": "300", "message_kb": "64"}


@pytest.mark.slow
def test_the_table_measures_and_draws() -> None:
    runs = dar_table.EXPERIMENT.runs({**TINY, "skipped_us": "50"}, seeds=1)
    rows = [{**one.parameters, **dar_table.EXPERIMENT.measure(one).figures} for one in runs]
    of = {(row["scheme"], row["host_gbps"]): row for row in rows}
    assert len(of) == 20
    for row in rows:
        assert (
            0
            < float(row["min_throughput_gbps"])
            <= float(row["mean_throughput_gbps"])
            <= float(row["host_gbps"]) * 1.01
        )
        assert float(row["mean_jump_ratio"]) <= float(row["max_jump_ratio"])
    assert float(of["dar", 19.2]["mean_throughput_gbps"]) > 19
    assert of["dar", 40.0]["reroutes_per_message"]  # at half rate it may have settled before
    assert float(of["ecmp", 40.0]["mean_throughput_gbps"]) < 35
    assert of["central", 40.0]["mean_throughput_gbps"] == pytest.approx(40, rel=0.01)
    figure = Figure()
    dar_table.EXPERIMENT.plot(rows, figure)
    assert len([axes for part in figure.subfigs for axes in part.axes]) == 10


@pytest.mark.slow
def test_settling_measures_and_draws() -> None:
    cell = {**TINY, "host_gbps": "19.2,20.8", "scheme": "dar", "time_us": "600"}
    runs = dar_settling.EXPERIMENT.runs({**cell, "topology": "clos:n=8,r=8,m=8"}, seeds=1)
    half, more = rows = [
        {**one.parameters, **dar_settling.EXPERIMENT.measure(one).figures} for one in runs
    ]
    assert (half["host_gbps"], more["host_gbps"]) == (19.2, 20.8)
    assert half["in_step"]
    assert float(half["median_settling_us"]) < 20
    assert more["moving_in_last_quarter_fraction"] > half["moving_in_last_quarter_fraction"]
    figure = Figure()
    dar_settling.EXPERIMENT.plot(rows, figure)
    assert [len(axes.lines) for part in figure.subfigs for axes in part.axes] == [2, 2]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"host_gbps": "50"}, "host_gbps=50"),
        ({"topology": "clos:n=8,r=8,m=3", "host_gbps": "19.2"}, "take m >= 4"),
        ({"topology": "fattree:k=4"}, "must be clos:n=..,r=..,m=.."),
        ({"skipped_us": "1300"}, "skipped_us must be less than time_us"),
        ({"time_us": "1000000"}, "take too long"),
        ({"start": "limited"}, "there are: modulo, random"),
    ],
)
def test_what_cannot_be_measured_is_refused(given: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        dar_table.EXPERIMENT.runs(given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"key": "flow", "topology": "clos:n=24,r=48,m=24"}, "at most 256 hosts on fabric"),
    ],
)
def test_what_daemons_lack_is_refused(given: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        dar_settling.EXPERIMENT.runs({**TINY, "host_gbps": "19.2", **given}, engines=["fabric"])
