"""Flows that come and go under DAR: links of the central controller, and the lives of flows."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.figure import Figure

from weft.daemons.dar.iteration import COUNTERS, MOVES, NOWHERE, ClosFlows, place
from weft.experiments.dar import dar_churn
from weft.experiments.dar.dar_churn import (
    CENTRAL,
    EXPERIMENT,
    RULES,
    Occupants,
    PeriodLoads,
    begin_all,
    churn,
)
from weft.experiments.dar.simulation import WORST, network, permute


def churned(rule: str, size: tuple[int, int, int], *, lifetime: int, periods: int, seed: int = 1):
    """The network, who occupies links, loads, counts and ended flows, without machine code."""
    kind, rules = RULES[rule]
    net, state = network(*size), np.random.default_rng(seed).integers(1, 1 << 32, 4)
    links = size[1] * size[2]
    occupants = Occupants(np.full(links, NOWHERE), np.full(links, NOWHERE))
    loads, counts = PeriodLoads(np.zeros(periods, int), np.zeros(periods)), np.zeros(COUNTERS, int)
    permute(net, WORST, state)
    place(net, rules, state)
    if kind == CENTRAL:
        begin_all(net, kind, occupants, state)
    ended = churn(net, rules, kind, lifetime, 0, occupants, loads, counts, state)
    return net, occupants, loads, counts, ended


def links(net: ClosFlows) -> tuple[list[list[int]], list[list[int]]]:
    """The flows on each link, counted from those of each flow."""
    up, down = ([[] for _ in range(net.r * net.m)] for _ in range(2))
    for flow, (receiver, spine) in enumerate(zip(net.destination, net.spine, strict=True)):
        up[flow // net.n * net.m + spine].append(flow)
        down[receiver // net.n * net.m + spine].append(flow)
    return up, down


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("size", [(4, 6, 4), (3, 5, 5)])
def test_every_host_always_sends_and_receives_one_flow(rule, size):
    net, _, loads, _, ended = churned(rule, size, lifetime=5, periods=60)
    assert sorted(net.destination) == list(range(size[0] * size[1]))
    assert [net.source[receiver] for receiver in net.destination] == list(range(len(net.source)))
    up, down = links(net)
    assert [len(flows) for flows in up] == list(net.up)
    assert [len(flows) for flows in down] == list(net.down)
    assert ended > 0
    assert all(0 <= bad <= len(net.source) for bad in loads.bad)


@pytest.mark.parametrize("size", [(4, 6, 4), (6, 4, 6), (3, 5, 5), (2, 2, 2)])
def test_a_controller_leaves_no_link_with_two_flows(size):
    net, occupants, loads, counts, ended = churned("central", size, lifetime=3, periods=200)
    assert not loads.bad.any()
    assert (loads.share == len(net.source)).all()
    for flows, occupant in zip(links(net), occupants, strict=True):
        assert [[flow] if flow >= 0 else [] for flow in occupant] == flows
    n, r, m = size
    # an alternating path has two flows of a leaf at most; Clos needs none from m = 2n - 1 on
    assert counts[MOVES] / ended < 2 * r
    assert (counts[MOVES] == 0) == (m >= 2 * n - 1)


def test_a_flow_lives_as_long_as_it_should_and_ecmp_shares_links_by_chance():
    *_, loads, counts, ended = churned("ecmp", (12, 12, 12), lifetime=20, periods=2000)
    assert ended / (144 * 2000) == pytest.approx(1 / 20, rel=0.05)
    alone = (11 / 12) ** 22  # of a flow on both of its links
    assert 1 - loads.bad.mean() / 144 == pytest.approx(alone, abs=0.02)
    assert counts[MOVES] == 0


def test_flows_on_bad_links_become_few_if_flows_live_long():
    shares = {}
    for rule in ("informed", "persistent"):
        for lifetime in (20, 2000):
            *_, loads, _, _ = churned(rule, (6, 7, 6), lifetime=lifetime, periods=800)
            shares[rule, lifetime] = loads.bad[400:].mean() / 42
        assert shares[rule, 2000] < shares[rule, 20] / 3


def test_machine_code_does_the_same_and_a_row_can_be_drawn():
    rows = []
    for run in EXPERIMENT.runs({"topology": "clos:n=4,r=6,m=4", "lifetime_periods": "10"}, seeds=1):
        figures = dar_churn.measure(run).figures
        rows.append({**run.parameters, **figures, "seed": 0, "engine": "graph", "clock": None})
    central = next(row for row in rows if row["rule"] == "central")
    ecmp = next(row for row in rows if row["rule"] == "ecmp")
    assert central["bad_flows_fraction"] == 0 < ecmp["bad_flows_fraction"]
    assert central["equal_share_fraction"] == pytest.approx(1)
    assert ecmp["moves_per_flow"] == ecmp["requests_per_flow"] == 0
    EXPERIMENT.plot(rows, Figure())


def test_a_network_in_which_flows_do_not_fit_is_refused():
    with pytest.raises(ValueError, match="n <= m <= 2n"):
        EXPERIMENT.runs({"topology": "clos:n=4,r=4,m=3"}, seeds=1)
