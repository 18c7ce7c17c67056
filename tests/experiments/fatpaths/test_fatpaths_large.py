"""Flows as fluids over layers, against times that can be worked out by hand."""

import numpy as np
import pytest
from matplotlib.figure import Figure

from weft.experiments.fatpaths import fatpaths_large
from weft.experiments.fatpaths.fatpaths_large import (
    NONE,
    STEP,
    LayerMoves,
    arrivals,
    channels,
    simulate,
)
from weft.experiments.runner.definition import Run
from weft.topologies import build

TOPOLOGY = build("slimfly:q=3,p=2")


def one(**instead):
    first = {key: values[0] for key, values in fatpaths_large.EXPERIMENT.sweep.items()}
    chosen = {
        **first,
        "topology": "slimfly:q=3,p=2",
        "pattern": "off-diagonal:c=18",
        "times": 10,
        **instead,
    }
    return Run(experiment="fatpaths_large", version=1, parameters=chosen, seed=0, engine="graph")


def test_flows_that_share_a_channel_share_its_rate_and_go_on_faster_when_one_has_ended():
    routes = np.array([[[0, 5]], [[1, 5]], [[2, 6]]])
    took = simulate(np.array([0.0, 0.5, 0.5]), routes)
    # two share from 0.5 to 1.5, then 0.5 is left alone
    assert took == pytest.approx([1.5, 1.5, 1.0], abs=3 * STEP)


def test_a_flow_in_several_layers_adds_their_rates_and_leaves_by_one_link():
    routes = np.array(
        [[[0, 10], [0, 11]], [[1, 10], [1, 12]], [[2, 10], [2, 13]], [[3, 10], [3, 14]]]
    )
    together = simulate(np.zeros(4), routes)
    assert together == pytest.approx(np.ones(4), abs=2 * STEP)
    apart = simulate(np.zeros(4), routes[:, :1])
    assert apart == pytest.approx(np.full(4, 4.0), abs=2 * STEP)


def test_channels_follow_the_tables():
    run = one(construction="random")
    tables = fatpaths_large.layer_tables(TOPOLOGY, run)
    who = np.array([[0, 20], [3, 2], [20, 0]])
    each = channels(TOPOLOGY, tables, who, None)
    assert each.shape[:2] == (3, 9)
    lengths = (each != NONE).sum(axis=2)
    assert (lengths[1] == 2).all()  # of one router: from the host and to the host
    assert lengths[0].min() >= 3
    assert len(set(each[0, :, 0].tolist())) == 1
    chosen = channels(TOPOLOGY, tables, who, np.array([2, 0, 5]))
    assert chosen.shape[1] == 1
    assert ((chosen[:, 0] != NONE).sum(axis=1) == [lengths[0, 2], 2, lengths[2, 5]]).all()


def test_flows_come_as_often_as_the_load_asks():
    begin = arrivals(np.random.default_rng(1), 100, 0.3, 200.0)
    assert len(begin) == pytest.approx(6000, rel=0.05)
    assert (np.diff(begin) >= 0).all()


def test_layers_end_collisions_and_are_drawn():
    rows = []
    for construction, balance in (
        ("minimal", "one"),
        ("random", "one"),
        ("random", "all"),
        ("random", "again"),
    ):
        run = one(construction=construction, balance=balance, load_fraction=0.4)
        fatpaths_large.check(run)
        figures = fatpaths_large.measure(run).figures
        assert figures["flows"] == sum(figures["histogram"])
        assert figures["mean_times"] >= 1 - STEP
        rows.append({**run.parameters, **figures, "seed": 0})
    assert rows[2]["mean_times"] < rows[3]["mean_times"] < rows[0]["mean_times"]
    fatpaths_large.EXPERIMENT.plot(rows, Figure())


@pytest.mark.parametrize(("wrong", "said"), [
    ({"balance": "all"}, "construction=minimal is one layer"),
    ({"balance": "again"}, "construction=minimal is one layer"),
    ({"pattern": "off-diagonal:c=100"}, "c must be at most 35"),
    ({"topology": "dcell:n=3,k=1", "pattern": "permutation"}, "runs on switch fabrics"),
])  # fmt: skip
def test_what_cannot_be_is_refused(wrong, said):
    with pytest.raises(ValueError, match=said):
        fatpaths_large.check(one(**wrong))


# All have channel 10, and each one of its own.
SHARE_ONE = np.array([[[flow, 10], [flow, 11 + flow]] for flow in range(4)])


def moves(informed, draws=100.0):
    """Flows that begin on the channel that they share."""
    return LayerMoves(np.random.default_rng(5), np.zeros(4, dtype=np.int64), draws, informed)


def test_flows_that_move_leave_the_channel_that_they_share():
    """All but one find their own at once if they are told; by chance half of their draws are in
    vain."""
    stay = simulate(np.zeros(4), SHARE_ONE, moves(False, draws=0.0))
    assert stay == pytest.approx(np.full(4, 4.0), abs=2 * STEP)
    told = simulate(np.zeros(4), SHARE_ONE, moves(True))
    assert told == pytest.approx(np.ones(4), abs=4 * STEP)
    found = simulate(np.zeros(4), SHARE_ONE, moves(False))
    assert found.min() >= 1 - STEP
    assert told.mean() < found.mean() < 1.5


def test_a_flow_that_shares_nothing_stays_where_it_is():
    alone = moves(False)
    assert simulate(np.array([0.0]), SHARE_ONE[:1], alone) == pytest.approx([1.0], abs=STEP)
    assert alone.layer.tolist() == [0, 0, 0, 0]


def test_flows_are_counted_where_they_are():
    at, used = moves(False), np.bincount([0, 1, 2, 3, 10, 10, 10, 10], minlength=15)
    at.move(np.arange(4), SHARE_ONE, used)
    expected = np.bincount(SHARE_ONE[np.arange(4), at.layer].ravel(), minlength=15)
    assert (used == expected).all()
    assert used[10] < 4


def test_flows_that_have_ended_fill_no_channel():
    """Two share channel 0 and three channel 1, so that all who are under way may draw, and have one
    channel each."""
    seen = []

    class Watched(LayerMoves):
        def move(self, slow, routes, used):
            seen.append((len(slow), int(used.sum())))

    routes = np.array([[[0]], [[0]], [[1]], [[1]], [[1]]])
    simulate(
        np.zeros(5),
        routes,
        Watched(np.random.default_rng(0), np.zeros(5, dtype=np.int64), 1.0, True),
    )
    assert {slow for slow, _ in seen} == {5, 3, 0}
    assert all(slow == used for slow, used in seen)
