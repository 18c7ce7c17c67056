"""Verdicts on measurements, without a network."""

import pytest

from weft.testbed.labs import judgement
from weft.testbed.measure.outage import Gap, Outage, OutageTable
from weft.testbed.measure.ping import Ping
from weft.testbed.measure.traceroute import Trace


def name(node):
    return f"h{node}"


def table(*gaps, sent=100, received=90, begin_s=9.0):
    outage = Outage(0, 1, sent, received, gaps)
    return OutageTable((outage,), begin_s, 11.0, 0.01, 0.0, True)


@pytest.mark.parametrize(
    ("gaps", "passed", "measured"),
    [
        ((), True, "no outage"),
        ((Gap(9.99, 10.2, 20),), True, "h0 -> h1: 200 ms"),
        ((Gap(9.99, 10.31, 30),), False, "h0 -> h1: 310 ms"),
        ((Gap(9.2, 9.9, 70),), True, "no outage"),
        ((Gap(9.99, 10.1, 10), Gap(10.25, 10.35, 10)), False, "h0 -> h1: 350 ms"),
        ((Gap(9.99, 10.1, 10), Gap(10.29, None, 70)), False, "h0 -> h1: still out"),
    ],
)
def test_recovery_counts_from_the_event_to_the_end_of_the_last_gap(gaps, passed, measured):
    assert judgement.of_recovery(table(*gaps), 10.0, 0.3, name) == (passed, measured)


def test_a_probe_that_began_after_the_event_proves_nothing():
    assert not judgement.of_recovery(table(begin_s=10.1), 10.0, 0.3, name).passed


def test_loss_is_below_its_bound_and_not_at_it():
    assert judgement.of_loss(table(), 10.1) == (True, "10 % of 100")
    assert not judgement.of_loss(table(), 10.0).passed
    assert not judgement.of_loss(table(sent=0, received=0), 100.0).passed


def test_pings_judge_every_pair():
    here, gone = Ping(0, 1, 1, rtts_us=[9.0]), Ping(0, 2, 1, reasons=["no route, says h0"])
    assert judgement.of_pings([here], name, reachable=True).passed
    assert judgement.of_pings([gone], name, reachable=False).passed
    mixed = judgement.of_pings([here, gone], name, reachable=True)
    assert mixed == (False, "1 of 2 pairs differ, h0 -> h2: no route, says h0")
    assert not judgement.of_pings([here, gone], name, reachable=False).passed


def test_a_path_is_exact():
    assert judgement.of_path(Trace(0, 2, (0, 1, 2), None), (0, 1, 2), name).passed
    assert not judgement.of_path(Trace(0, 2, (0, 1, 2), None), (0, 2), name).passed
    lost = judgement.of_path(Trace(0, 2, (0, 1), "no answer"), (0, 1), name)
    assert lost == (False, "h0 h1 (no answer)")


def test_routes_goodput_and_output():
    assert judgement.of_route((1, 2), None, name) == (True, "h1 h2")
    assert judgement.of_route((1, 2), (2, 1), name) == (True, "h1 h2")
    assert judgement.of_route((2, 3, 4), (2,), name) == (False, "h2 h3 h4")
    assert not judgement.of_route((1,), (1, 2), name).passed
    assert judgement.of_route((), None, name) == (False, "no route")
    assert judgement.of_goodput(5.1e6, 5_000_000) == (True, "5.1 Mbit/s")
    assert not judgement.of_goodput(5e6, 5_000_000).passed
    assert judgement.of_output("a\n1 received\n", "^1 rec").passed
    assert not judgement.of_output("11 received", "^1 rec").passed
    assert judgement.of_output("a\x1b[31m", "a") == (True, r"a\x1b[31m")
