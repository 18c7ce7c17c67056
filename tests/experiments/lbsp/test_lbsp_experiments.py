"""LBSP's experiments: who sends to whom, what is refused, and a small run of each kind."""

import io
import json
import os
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from tests.optional_parts import with_and_without
from weft.daemons.core import registry
from weft.daemons.lbsp import routing as lbsp
from weft.daemons.lbsp.routing import shape_of
from weft.experiments.lbsp import lbsp_queues, lbsp_recovery, lbsp_tcp
from weft.experiments.lbsp.lbsp_model import paced
from weft.experiments.runner.definition import Run
from weft.testbed.linux.clock import wait_until
from weft.testbed.measure.outage import Gap, Outage
from weft.testbed.network import clean
from weft.testbed.plan.plane_selection import planes
from weft.testbed.runs import run
from weft.topologies import build
from weft.topologies.core.failures import fail_links
from weft.topologies.core.link import LinkSpec

EIGHT = build("fattree:k=8")
ROOT = Path(__file__).parents[3]
FRR_MARKS = (
    pytest.mark.frr,
    pytest.mark.real_clock("FRR polls, and with a failure beside it has not been seen to end"),
)


def first_run(experiment, **instead):
    """A run of `experiment` with the first value of everything else."""
    first = {key: values[0] for key, values in experiment.EXPERIMENT.sweep.items()}
    name, engine = experiment.EXPERIMENT.name, experiment.EXPERIMENT.engines[0]
    return Run(
        experiment=name,
        version=experiment.EXPERIMENT.version,
        parameters={**first, **instead},
        seed=0,
        engine=engine,
    )


def uplinks(edge, dst, dead):
    """The ports by which an edge switch sends what is for a host."""
    shape = shape_of(EIGHT)
    table = lbsp.table(shape, edge, dead)
    address = EIGHT.naming.address(dst)
    prefix = max((prefix for prefix in table if prefix.holds(address)), key=lambda one: one.length)
    return table[prefix].columns[shape.link_group(lbsp.EDGE, dst)]


def test_the_long_flows_are_those_of_figure_3():
    """S1's and S2's flows take different link groups, and the same one when the link has failed."""
    flows = lbsp_tcp.long_ends(EIGHT)
    assert flows[0] == flows[1]
    (s1, d1), _, (s2, d2), (s3, d3) = flows
    assert len({s1, s2, s3, d1, d2, d3}) == 6
    assert s1 // 4 == s2 // 4 == EIGHT.naming.layout.number_of((2, 3, 0)) // 4
    assert d1 // 4 == d2 // 4 == d3 // 4
    assert len({host // 16 for host in (s1, s3, d1)}) == 3
    edge = lbsp.SwitchPosition(lbsp.EDGE, 2, 3)
    assert uplinks(edge, d1, []) != uplinks(edge, d2, [])
    a, _, b, _ = EIGHT.links[lbsp_tcp.damaged(EIGHT)].tolist()
    dead = shape_of(EIGHT).link(a, b)
    assert dead == lbsp.Uplink(edge, 3)
    assert uplinks(edge, d1, [dead]) == uplinks(edge, d2, [dead])


@pytest.mark.parametrize(
    ("scheme", "ports"),
    [("lbsp", (4, 4, 6, 6)), ("lbsp:groups=4", (4, 5, 6, 4)), ("lbsp:hash=1", (4, 4, 6, 6))],
)
def test_tables_are_those_of_as_many_link_groups_as_the_scheme_has(scheme, ports):
    """An edge switch whose last uplink is dead: group 3 of four takes the ports of the next whole
    group, 0."""
    selection, options = registry.data_plane(scheme)
    broken = fail_links(EIGHT, [EIGHT.link("e2.3-a2.3")])
    edge = selection.routes(broken, options, EIGHT.naming.node("e2.3"), ())
    assert tuple(edge[EIGHT.naming.layout.prefix(())]) == ports
    assert edge[EIGHT.naming.layout.prefix((2, 3, 1))] == [1]


def test_thresholds_and_patterns_reach_the_kernel():
    some = first_run(
        lbsp_queues, edge_packets=7, edge_percent=160, above_packets=30, above_percent=300, states=1
    )
    selection = planes(
        EIGHT, lbsp_queues.kernel_scheme(some), LinkSpec(rate_bps=1_000_000, queue_packets=9)
    ).balancing
    assert (
        registry.rule(selection).parameters.items()
        >= {
            "states": 1,
            "edge_packets": 7,
            "edge_percent": 160,
            "above_packets": 30,
            "above_percent": 300,
        }.items()
    )


@pytest.mark.kernel
def test_every_pattern_is_sent_on_the_kernel(monkeypatch):
    sent = []
    monkeypatch.setattr(lbsp_queues, "paced", lambda *given: sent.append(paced(*given)) or sent[-1])
    result = lbsp_queues.measure(
        replace(
            first_run(lbsp_queues, topology="fattree:k=4", slots=30, patterns=3, arrivals="paced"),
            engine="kernel",
        )
    )
    assert len(sent) == 3
    assert (sent[0] != sent[1]).any()
    assert result.circumstances["bypassed_packets"] == 0
    assert result.figures["edge_queue_packets"] >= 0


def test_flows_to_a_pod_are_four_from_the_damaged_pod_and_one_from_another():
    pairs = lbsp_tcp.pod_ends(EIGHT)
    assert [src // 16 for src, _ in pairs] == [2, 2, 2, 2, 4]
    assert {dst // 16 for _, dst in pairs} == {1}
    assert len({dst for _, dst in pairs}) == 5


def test_short_flows_load_every_host_as_asked():
    some = first_run(lbsp_tcp, rounds=3, topology="fattree:k=8")
    flows = lbsp_tcp.flows(some)
    assert len(flows) == 3 * 128
    length_s = 3 * lbsp_tcp.round_s(some)
    assert max(flow.at_s for flow in flows) < length_s
    sent = sum(8 * flow.size_bytes for flow in flows if flow.src == 5)
    assert sent / length_s == pytest.approx(0.8 * 1_000_000_000)


def test_each_workload_has_its_size_unless_both_are_named():
    cells = {
        (run.parameters["workload"], run.parameters["flow_bytes"])
        for run in lbsp_tcp.EXPERIMENT.plan(clock="virtual").runs
    }
    assert cells == {("short", 32_768), ("long", 10_000_000)}
    both = {"workload": "short,long", "flow_bytes": "1000"}
    runs = lbsp_tcp.EXPERIMENT.plan(both, clock="virtual").runs
    assert {run.parameters["workload"] for run in runs} == {"short", "long"}


@pytest.mark.parametrize(
    ("instead", "message"),
    [
        ({"damage": "sabotage"}, "no damage 'sabotage'"),
        ({"tcp": "tahoe"}, "no tcp 'tahoe'"),
        ({"scheme": "lbps"}, "no scheme 'lbps', did you mean lbsp"),
        ({"topology": "clos:n=2,r=2,m=4"}, "fat-tree of three tiers"),
        ({"topology": "fattree:k=6"}, "power of two"),
        ({"scheme": "lbsp:groups=8"}, "groups must be a power of two from 2 to k/2 = 4, got 8"),
        ({"rounds": "0"}, "rounds must be at least 1"),
        ({"workload": "short", "flow_bytes": "0"}, "flow_bytes must be at least 1"),
        ({"oversubscription": "-4"}, "oversubscription must be at least 1"),
        ({"oversubscription": "1000", "rate_mbps": "1"}, "rate_bps must be at least 8000, got 100"),
    ],
)
def test_what_there_is_not_is_refused(instead, message):
    with pytest.raises(ValueError, match=message):
        lbsp_tcp.EXPERIMENT.plan({"topology": "fattree:k=8", **instead}, clock="virtual")


def test_five_flows_to_a_pod_take_five_hosts():
    with pytest.raises(ValueError, match=r"^lbsp_tcp: a pod must have 5 hosts, not 4$"):
        lbsp_tcp.EXPERIMENT.plan({"workload": "pod"}, clock="virtual")


def test_an_outage_lasts_until_its_last_loss_is_over():
    two = Outage(0, 1, 100, 97, (Gap(1.0, 1.02, 1), Gap(1.05, 1.09, 1), Gap(2.6, 2.7, 1)))
    assert lbsp_recovery.rerouted_s(two, 1.01, 2.5) == pytest.approx(0.08)
    assert lbsp_recovery.rerouted_s(Outage(0, 1, 9, 9, ()), 1.0, 2.5) == 0.0
    assert not lbsp_recovery.cut_off(two, 2.5)
    never = Outage(0, 1, 100, 20, (Gap(1.0, None, 80),))
    assert lbsp_recovery.rerouted_s(never, 1.0, 2.5) == pytest.approx(1.5)
    assert lbsp_recovery.cut_off(never, 2.5)


@pytest.mark.kernel
@pytest.mark.parametrize("damage", ["link", "degraded"])
def test_flows_end_in_a_damaged_fabric(damage):
    slow = {"rate_mbps": 20, "delay_us": 0, "rto_min_us": 1_000_000}
    some = first_run(
        lbsp_tcp, workload="long", damage=damage, scheme="lbsp", flow_bytes=100_000, tcp="rack"
    )
    some = replace(some, parameters={**some.parameters, **slow})
    row = lbsp_tcp.measure(some).figures
    assert (row["flows"], row["unfinished"]) == (4, 0)
    assert row["late_fraction"] < 0.01  # link groups of k = 4 are single ports
    assert row["p999_ms"] >= row["p50_ms"] > 40


@pytest.mark.parametrize(
    ("instead", "message"),
    [
        ({"scheme": "frr-bgp:hello=30"}, "no parameter of frr-bgp 'hello'"),
        ({"scheme": "frr-bgp:dead=0"}, "dead must be at least 1"),
        ({"scheme": "frr-bgp", "failure": "degraded"}, "does not find degraded links"),
        ({"scheme": "frr-bgp", "processes": "2"}, "cannot be shared"),
        ({"load_fraction": "1.5"}, "must lie in 0 .. 1"),
    ],
)
def test_a_recovery_that_there_is_not_is_refused(instead, message):
    with pytest.raises(ValueError, match=message):
        lbsp_recovery.EXPERIMENT.runs({"failure": "link", **instead})


@with_and_without("frr")
def test_where_frr_is_missing_one_line_says_how_to_get_it(part):
    missing = pytest.raises(
        ValueError, match=r"^scheme frr-bgp needs frr, which is missing .*: apt-get install frr$"
    )
    with nullcontext() if part else missing:
        lbsp_recovery.check(first_run(lbsp_recovery, scheme="frr-bgp", failure="link"))


def test_a_failure_lasts_longer_where_hellos_are_rare():
    assert (
        lbsp_recovery.failure_s("lbsp")
        == lbsp_recovery.failure_s("frr-bgp:hello_ms=30")
        == pytest.approx(1.62)
    )
    assert lbsp_recovery.failure_s("spray:hello_ms=300,dead=3") == pytest.approx(2.7)


@pytest.mark.kernel
@pytest.mark.parametrize(
    "scheme", ["lbsp", pytest.param("frr-bgp:hello_ms=300", marks=[*FRR_MARKS, pytest.mark.slow])]
)
def test_pairs_are_rerouted_after_a_silent_failure(scheme):
    some = first_run(
        lbsp_recovery, topology="fattree:k=4", scheme=scheme, failure="silent-link", rate_mbps=50
    )
    row = lbsp_recovery.measure(some).figures
    assert row["unreachable_pairs"] == 0
    assert row["pairs_hit"] > 0
    assert 60 < row["outage_ms"] < 1000 * lbsp_recovery.failure_s(scheme)
    assert row["neighbours_lost"] >= 2
    assert row["lost_packets"] < row["sent_packets"] / 2
    # the few flows may all be hashed past the link
    assert scheme != "lbsp" or row["lost_packets"] > 0
    assert row["pss_max_kib"] > 1000
    assert scheme != "lbsp" or row["pss_max_kib"] < 8192


@pytest.mark.kernel
def test_a_link_is_degraded_from_the_command_line():
    name = f"t-{os.urandom(3).hex()}"

    def weft(*argv, status=0):
        command = [sys.executable, "-m", "weft.experiments.cli.cli", *argv]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == status, done.stderr
        return done

    def failures(node):
        return json.loads(weft("status", "--run", name, node, "--json").stdout)["protocol"][
            "failures"
        ]

    weft("up", "fattree:k=4", "--routing", "lbsp", "--rate", "20mbit", "--detach", name)
    try:
        weft("degrade", "--run", name, "--tell", "e0.0-a0.1", "2mbit")
        wait_until(
            "e3.0 knows",
            lambda: failures("e3.0") == [{"link": "e0.0-a0.1", "type": 1, "degraded": True}],
        )
        weft("degrade", "--run", name, "--tell", "e0.0-a0.1", "20mbit")
        wait_until("e3.0 knows better", lambda: failures("e3.0") == [])
        assert (
            "leads to a host"
            in weft("degrade", "--run", name, "--tell", "h0-e0.0", "2mbit", status=2).stderr
        )
    finally:
        for record in run.runs():
            if record.id == name:
                clean.remove(record)


def table(experiment, figures, **instead):
    """A row with `figures` for every cell of a sweep."""
    sweep = {**experiment.EXPERIMENT.sweep, **instead}
    cells = [dict(zip(sweep, values, strict=True)) for values in product(*sweep.values())]
    return [{**cell, **figures, "seed": 0, "engine": "graph", "fidelity": "PASS"} for cell in cells]


def panel_titles(experiment, rows):
    """The titles of the panels of an experiment's figure."""
    figure = Figure(layout="constrained")
    experiment.EXPERIMENT.plot(rows, figure)
    figure.savefig(io.BytesIO(), dpi=30)
    return [axes.get_title(loc="left") or axes.get_title() for axes in figure.axes]


TIMES = {"p999_ms": 700.0, "mean_ms": 600.0}


@pytest.mark.parametrize(
    ("experiment", "figures", "instead", "panels"),
    [
        (lbsp_tcp, TIMES, {"workload": ["long"], "flow_bytes": [10_000_000]}, 8),
        (lbsp_tcp, TIMES, {"workload": ["long"], "flow_bytes": [9], "damage": ["link"]}, 2),
        (lbsp_recovery, {"outage_ms": 90.0}, {"pairs": [10, 20], "topology": ["fattree:k=4"]}, 8),
        (
            lbsp_queues,
            {"edge_queue_packets": 1.0},
            {"edge_packets": [5, 20], "arrivals": ["paced"]},
            2,
        ),
    ],
)
@pytest.mark.slow
def test_runs_with_different_parameters_are_drawn_apart(experiment, figures, instead, panels):
    titles = panel_titles(experiment, table(experiment, figures, **instead))
    assert len(titles) == panels


def on_packets(**parameters):
    """The figures of a small run on simulated packets, of those that are not null."""
    small = {"topology": "fattree:k=8", "workload": "long", "flow_bytes": 1_000_000}
    cell = replace(first_run(lbsp_tcp, **small | parameters), engine="packet")
    lbsp_tcp.check(cell)
    figures = lbsp_tcp.measure(cell).figures
    assert figures.keys() == lbsp_tcp.EXPERIMENT.columns.keys()
    return {key: value for key, value in figures.items() if value is not None}


def test_lbsp_leaves_a_degraded_link_as_it_leaves_a_failed_one():
    failed, degraded, healthy = (
        on_packets(scheme="lbsp", damage=damage) for damage in ("link", "degraded", "none")
    )
    assert degraded == failed
    scattered = {name: on_packets(scheme="spray", damage=name) for name in ("none", "degraded")}
    slowest = [scattered[name]["p999_ms"] for name in ("none", "degraded")]
    assert slowest[1] > 2 * slowest[0]
    assert scattered["degraded"]["late_fraction"] > 0.01 > healthy["late_fraction"]
    # two flows of a megabyte and their headers share the first host's link
    assert 2 * 8 * 1.05 < max(healthy["times_ms"]) < 2 * 8 * 1.3


def test_packets_that_are_sent_again_are_among_those_sent(monkeypatch):
    """Shares are of all that were sent: 8 MB in full segments, and those again."""
    counted = []
    simulated = lbsp_tcp.simulated
    monkeypatch.setattr(
        lbsp_tcp, "simulated", lambda cell: counted.append(simulated(cell)) or counted[-1]
    )
    figures = on_packets(scheme="spray", damage="degraded", flow_bytes=2_000_000)
    again = counted[0].counters["retransmissions"].sum()
    first = 4 * -(-2_000_000 // 1448)
    assert again > 0
    assert figures["retransmitted_fraction"] == pytest.approx(again / (first + again))


def test_core_links_of_an_oversubscribed_fat_tree_are_slower_and_dropped_packets_count():
    cell = first_run(lbsp_tcp, topology="fattree:k=8", oversubscription=8, damage="degraded")
    rates = [link.rate_bps for link in lbsp_tcp.links(cell)]
    assert rates.pop(lbsp_tcp.damaged(EIGHT)) == 100_000_000
    levels = EIGHT.level.tolist()
    levels.pop(lbsp_tcp.damaged(EIGHT))
    by_level = set(zip(levels, rates, strict=True))
    assert by_level == {(0, 1_000_000_000), (1, 1_000_000_000), (2, 125_000_000)}
    alone, shared = (
        on_packets(workload="pod", scheme="spray", oversubscription=ratio, damage="none")
        for ratio in (1, 8)
    )
    assert shared["mean_ms"] > 1.5 * alone["mean_ms"]
    assert alone["dropped_packets"] == 0
    full = on_packets(
        workload="drawn", scheme="lbsp", oversubscription=40, damage="link", queue_packets=5
    )
    assert full["dropped_packets"] > 0


def test_drawn_flows_to_a_pod_come_from_behind_the_damaged_link():
    cells = [
        replace(first_run(lbsp_tcp, topology="fattree:k=8", workload="drawn"), seed=seed)
        for seed in range(20)
    ]
    ends = [[(flow.src, flow.dst) for flow in lbsp_tcp.flows(cell)] for cell in cells]
    assert len({str(pairs) for pairs in ends}) == 20
    for pairs in ends:
        sources, sinks = zip(*pairs, strict=True)
        assert {source // 4 for source in sources[:4]} == {2 * 4 + 3}
        assert sources[4] // 16 == 4
        assert {sink // 16 for sink in sinks} == {1}
        assert len(set(sources)) == len(set(sinks)) == 5
