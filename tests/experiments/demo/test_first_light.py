import math
import sys
from argparse import Namespace
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

from weft.experiments.demo import first_light, link_loss
from weft.experiments.demo.first_light import EXPERIMENT, Story, links_to_kill
from weft.experiments.engines.reachability import around
from weft.experiments.report import figures, style
from weft.testbed.measure.fidelity import Component, FidelityReport
from weft.topologies import build
from weft.topologies.core.link import Mbps


def test_both_kinds_of_link_die_and_the_seed_chooses():
    topology = build("dcell:n=4,k=2")
    drawn = {links_to_kill(topology, np.random.default_rng(seed)) for seed in range(20)}
    assert {(int(topology.level[high]), int(topology.level[low])) for high, low in drawn} == {
        (2, 0)
    }
    assert len(drawn) > 15
    assert links_to_kill(topology, np.random.default_rng(3)) == links_to_kill(
        topology, np.random.default_rng(3)
    )


def test_who_loses_a_neighbour_when_a_link_dies():
    topology = build("dcell:n=4,k=1")
    assert around(topology, topology.link("h0-h4")) == [0, 4]
    assert set(around(topology, topology.link("h5-w1"))) == {4, 5, 6, 7}


@pytest.mark.parametrize(
    ("parameters", "says"),
    [
        (
            {"routing": "bfs"},
            (
                "first_light shows what DR loses and others save: it takes dr, not bfs; `weft "
                "run one_failure`"
            ),
        ),
        ({"routing": "dr:hello=3"}, "scheme dr: no parameter 'hello'"),
        (
            {"topology": "fattree:k=4"},
            "scheme dr runs on server-centric networks; fattree:k=4 is a switch fabric",
        ),
        ({"rate_bps": "1"}, "first_light: rate_bps must be at least 8000, got 1"),
        ({"queue_packets": "0"}, "first_light: queue_packets must be at least 1, got 0"),
        ({"iperf_s": "0"}, "first_light: iperf_s must be at least 1, got 0"),
    ],
)
def test_what_cannot_be_shown_is_refused_before_anything_comes_up(parameters, says):
    with pytest.raises(ValueError, match=r"first_light|scheme|link") as error:
        EXPERIMENT.runs(parameters)
    assert str(error.value).startswith(says)


def fidelity_report(clock, value, warn_limit):
    verdict = "FAIL" if value > warn_limit else "PASS"
    stolen = Component("processor stolen", value, "%", 2.0, warn_limit, verdict)
    return FidelityReport(10.0, (stolen,), {}, decisive=True, clock=clock)


def test_a_failed_fidelity_says_which_measure_failed_and_what_to_run_instead(capsys):
    first_light.tell_fidelity(fidelity_report("real", 9.25, 5.0), passed=True)
    verdict, why, command = capsys.readouterr().err.splitlines()
    assert verdict.startswith("FAIL")
    assert why == (
        "Every step passed, but do not trust their times: "
        "this machine did not keep up (processor stolen 9.25 %, and at most 5 % is allowed)."
    )
    assert command.endswith(": weft run first_light --clock virtual")


def test_a_failed_fidelity_does_not_say_that_failed_steps_passed():
    assert first_light.distrust(fidelity_report("real", 9.0, 5.0), passed=False).startswith(
        "The steps marked FAIL did not pass"
    )
    assert "--clock" not in first_light.distrust(fidelity_report("virtual", 9.0, 5.0), passed=True)


class SlowMachine:
    """Of Story and network, what a measurement of TCP needs, and what iperf3 and fidelity say."""

    def __init__(self, monkeypatch, share, report):
        goodput_bps = share * 20 * Mbps * first_light.PAYLOAD_FRACTION
        monkeypatch.setattr(first_light, "iperf", lambda *_: Namespace(goodput_bps=goodput_bps))
        monkeypatch.setattr(first_light, "judged", self.judged)
        self.topology = build("dcell:n=4,k=1")
        self.report = report

    @contextmanager
    def judged(self, net, tell):
        yield
        tell(self.report)


WAIT = Component("wait for a processor", 5.0, "ms", 2.0, None, "WARN", "this process")
FAST = fidelity_report("real", 9.0, 5.0)


@pytest.mark.parametrize(
    ("share", "report", "passed", "mark"),
    [
        (0.95, replace(FAST, overload=WAIT), True, "PASS"),
        (0.59, replace(FAST, overload=WAIT), True, "WARN"),
        (0.59, FAST, False, "FAIL"),
        (0.59, replace(fidelity_report("real", 1.0, 5.0), overload=WAIT), False, "FAIL"),
    ],
)
def test_a_rate_fails_unless_this_machine_is_too_slow_for_it(
    share, report, passed, mark, monkeypatch, capsys
):
    story = Story(SlowMachine(monkeypatch, share, report))
    story.tcp_gets_its_rate(20 * Mbps, 1)
    assert story.passed is passed
    printed = capsys.readouterr().err
    assert printed.startswith(mark)
    assert ("this machine is too slow for 20 Mbit/s: 11.2" in printed) is (mark == "WARN")
    assert ("this process wait for a processor 5 ms); try --set rate_bps=2000000" in printed) is (
        mark == "WARN"
    )


@pytest.mark.parametrize(
    ("pings_per_s", "pairs", "interval_ms"),
    [(math.inf, 20, 10), (27_000, 20, 10), (6_000, 20, 10), (630, 2, 10), (53, 1, 56.6)],
)
def test_no_more_pairs_are_watched_than_the_machine_can_carry(pings_per_s, pairs, interval_ms):
    assert first_light.watch_plan(pings_per_s) == (pairs, pytest.approx(interval_ms, rel=0.01))
    assert 1000 * pairs / interval_ms <= pings_per_s / 2


def test_a_fidelity_that_passes_is_one_line(capsys):
    first_light.tell_fidelity(fidelity_report("real", 1.0, 5.0), passed=True)
    (verdict,) = capsys.readouterr().err.splitlines()
    assert verdict.endswith(
        "fidelity, whether the machine kept up: yes; worst is processor stolen 1 %"
    )


def test_first_light_is_drawn_also_where_something_was_not_noticed(tmp_path):
    times = {"up_s": 0.2, "announced_noticed_ms": 3.5, "silent_noticed_ms": 80.0}
    times |= {"announced_restored_ms": 40.0, "silent_restored_ms": None}
    times |= {"pr_gpi_announced_tcp_stall_ms": 7.0, "pr_gpi_silent_tcp_stall_ms": None}
    row = {"topology": "dcell:n=4,k=1", **times, "engine": "kernel", "seed": 0}
    about = {"commit": None, "dirty": False}
    rows = [row | {"fidelity": "PASS"}, row | {"fidelity": "FAIL", "up_s": 0.5}]
    figures.plot(EXPERIMENT, [(row, about) for row in rows], tmp_path / "a.svg")
    text = (tmp_path / "a.svg").read_text()
    assert "1 failed fidelity (hollow)" in text
    assert "silent failure noticed" in text
    assert "TCP stalls, announced failure, pr-gpi" in text


def test_runs_of_different_networks_have_panels_of_their_own():
    times = {"up_s": 0.2, "announced_noticed_ms": 3.5, "silent_noticed_ms": 80.0}
    times |= {"announced_restored_ms": 40.0, "silent_restored_ms": 50.0}
    rows = [
        {"topology": spec, "fidelity": "PASS", **times}
        for spec in ("dcell:n=4,k=1", "ficonn:n=4,k=1")
    ]
    with figures.new() as figure:
        EXPERIMENT.plot([*rows, rows[0]], figure)
        assert [axes.get_title(loc="left") for axes in figure.axes] == [
            row["topology"] for row in rows
        ]


def test_lost_pairs_of_each_scheme_have_a_panel_and_of_each_network_a_line():
    rows = [
        {
            "topology": topology,
            "routing": routing,
            "failed_links_fraction": count / 10,
            "seed": 0,
            "lost_graph_fraction": count / 20,
            "fidelity": "PASS",
        }
        for topology in ("dcell:n=4,k=1", "ficonn:n=4,k=1")
        for routing in ("dr", "pr-gpi", "dfr", "dr:hello_ms=5")
        for count in (2, 0)
    ]
    with figures.new() as figure:
        link_loss.EXPERIMENT.plot(rows, figure)
        titles = [axes.get_title(loc="left") for axes in figure.axes]
        assert titles == ["dr", "pr-gpi", "dfr", "dr:hello_ms=5"]
        lines = [line for line in figure.axes[1].get_lines() if line.get_linestyle() == "-"]
    assert [line.get_xydata().tolist() for line in lines] == [[[0, 0], [0.2, 0.1]]] * 2
    assert len({line.get_color() for line in lines}) == 2


def test_every_scheme_looks_different_and_daemons_schemes_have_a_look():
    from weft.daemons.core.registry import schemes

    looks = [style.scheme(name) for name in schemes() if name in ("dr", "bfs", "ecmp")]
    assert (
        len({look.colour for look in looks}) == len({look.marker for look in looks}) == len(looks)
    )
    assert style.scheme("dr:hello_ms=10") == style.SCHEMES["dr"]


@pytest.mark.parametrize(
    ("key", "label"),
    [
        ("goodput_bps", "goodput (bit/s)"),
        ("noticed_ms", "noticed (ms)"),
        ("up_s", "up (s)"),
        ("rtt_median_us", "rtt median (µs)"),
        ("lost_fraction", "lost (fraction)"),
        ("queue_packets", "queue (packets)"),
        ("path_hops", "path (hops)"),
        ("failed_links", "failed links"),
    ],
)
def test_the_unit_of_an_axis_is_the_end_of_the_key(key, label):
    assert style.axis(key) == label


def test_the_story_is_told_in_plain_lines_where_there_is_no_terminal(capsys):
    from weft.experiments.runner.console import step

    with step("it comes up") as told:
        told.says("20 servers")
    with step("it holds") as told:
        told.says("no", passed=False)
    with pytest.raises(RuntimeError), step("it breaks"):
        raise RuntimeError("the\nreason")
    out, err = capsys.readouterr()
    lines = [line.split(maxsplit=3) for line in err.splitlines()]
    assert out == ""
    assert [(mark, what) for mark, _, _, what in lines] == [
        ("PASS", "it comes up: 20 servers"),
        ("FAIL", "it holds: no"),
        ("FAIL", "it breaks: RuntimeError the reason"),
    ]


@pytest.mark.kernel
def test_the_demo_needs_no_mininet(monkeypatch):
    for name in [
        name
        for name in sys.modules
        if name.partition(".")[0] == "mininet" or "weft.testbed.mininet" in name
    ]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "mininet", None)
    (run,) = EXPERIMENT.runs({"topology": "dcell:n=3,k=1", "iperf_s": "1"})
    figures_of_run = EXPERIMENT.measure(run).figures
    assert figures_of_run["pairs_reached"] == figures_of_run["paths_equal"] == 12 * 11
    assert "dfr_silent_saved_pairs" in figures_of_run
