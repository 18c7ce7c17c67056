"""Low-diameter networks beside a fat-tree: the traffic, and small runs."""

import numpy as np
import pytest
from matplotlib.figure import Figure

from weft.experiments.fatpaths import fatpaths_feedback, fatpaths_tcp, fatpaths_vs_fattree
from weft.experiments.fatpaths.flow_times import ended_summary
from weft.experiments.runner.definition import Run
from weft.topologies import build


def small_run(*, engine="packet", **chosen):
    """A run of 24 hosts on six routers, all of which are joined."""
    parameters = {
        **{
            "topology": "complete:n=6,p=4",
            "load_fraction": "0.4",
            "size_fraction": "0.05",
            "rate_mbps": "200",
        },
        **{
            "construction": "random",
            "frame_bytes": "1514",
            "seconds": "0.03",
            "mapping": "linear",
            "routing": "ecmp",
            **chosen,
        },
    }
    (run,) = fatpaths_vs_fattree.EXPERIMENT.runs(parameters, seeds=1, engines=[engine])
    assert isinstance(run, Run)
    return run


@pytest.mark.parametrize(
    "spec", ["slimfly:q=3,p=2", "fattree:k=4,oversubscription=2", "complete:n=5,p=3"]
)
def test_all_hosts_of_a_router_send_to_those_of_one_other(spec):
    topology = build(spec)
    router_of = [topology.ports(host)[0][1] for host in range(topology.servers)]
    pairs = fatpaths_vs_fattree.skewed(topology)
    assert [src for src, _ in pairs] == list(range(topology.servers))
    assert sorted(dst for _, dst in pairs) == list(range(topology.servers))
    towards = {(router_of[src], router_of[dst]) for src, dst in pairs}
    assert len(towards) == len({src for src, _ in towards}) == len(set(router_of))
    assert all(src != dst for src, dst in towards)


def test_a_network_whose_hosts_would_send_to_themselves_is_refused():
    with pytest.raises(ValueError, match="another router, and star:n=4 has one"):
        fatpaths_vs_fattree.check(small_run(topology="star:n=4"))


def test_flows_are_the_same_for_every_routing_and_others_where_hosts_have_changed_places():
    topology = build("complete:n=6,p=4")
    by = {
        routing: fatpaths_vs_fattree.loads(small_run(routing=routing), topology)
        for routing in ("layers", "ecmp", "spray")
    }
    assert by["layers"] == by["ecmp"] == by["spray"]
    sent = 8 * sum(load.size_bytes for load in by["ecmp"]) / (24 * 0.03 * 2e8)
    assert 0.2 < sent < 0.6
    moved = fatpaths_vs_fattree.loads(small_run(mapping="random"), topology)
    routers = {(load.src // 4, load.dst // 4) for load in moved}
    assert len(routers) > 6


def test_further_columns_are_those_of_long_flows_alone():
    seen = []
    result = fatpaths_vs_fattree.measure(small_run(), lambda ms: seen.append(ms) or {"more": 1})
    (long_ms,) = seen
    assert 0 < len(long_ms) == result.figures["long_flows"] < result.figures["flows"]
    assert long_ms.mean() == result.figures["long_mean_ms"]
    assert result.figures["more"] == 1


def test_the_tail_is_the_time_that_one_flow_of_a_thousand_exceeds():
    times = np.arange(1.0, 4001.0)
    (value,) = fatpaths_tcp.extreme(times).values()
    assert (times > value).sum() == 4
    assert fatpaths_tcp.extreme(times[:0]) == {"long_p999_ms": None}


def test_ecmp_has_no_cell_for_layers():
    runs = fatpaths_tcp.TAIL.runs(seeds=1)
    assert [run.parameters["routing"] for run in runs].count("ecmp") == 1
    assert len(runs) == 1 + 2 * 4 + 4


def test_layers_carry_what_collides_on_one_link():
    """Four hosts of each router send to four of one other: 1.6 times what their link carries."""
    rows = []
    for routing, construction in (("ecmp", "random"), ("layers", "intree")):
        run = small_run(routing=routing, construction=construction)
        fatpaths_vs_fattree.check(run)
        result = fatpaths_vs_fattree.measure(run)
        rows.append(
            {**run.parameters, **result.figures, "seed": 0, "engine": "packet", "clock": None}
        )
    minimal, layered = rows
    assert layered["unfinished"] == layered["timeouts"] == 0
    assert minimal["flows"] == layered["flows"] > 50
    assert layered["throughput_mean_fraction"] > 1.3 * minimal["throughput_mean_fraction"]
    assert layered["long_mean_ms"] < 0.8 * minimal["long_mean_ms"]
    assert layered["edge_density"] == pytest.approx((15 + 24) / 24)
    fatpaths_vs_fattree.EXPERIMENT.plot(rows, Figure())


def feedback(**chosen):
    """The figures of a run of 45 hosts with 2 % of links dead, which no switch notices."""
    parameters = {
        "topology": "slimfly:q=3,p=3",
        "mapping": "linear",
        "failed_fraction": "0.02",
        **{"transport": "ndp", **chosen},
    }
    (run,) = fatpaths_feedback.EXPERIMENT.runs(parameters, seeds=1)
    fatpaths_vs_fattree.check(run)
    return fatpaths_feedback.measure(run).figures


def test_packets_that_recycle_layers_leave_links_that_have_failed():
    """A flow waits for a timeout before it leaves a layer, and may take another that is dead."""
    flow, reps = feedback(), feedback(transport="ndp:choice=reps")
    assert reps["unfinished"] == reps["given_up"] == 0
    assert reps["timeouts"] > 50
    assert reps["long_ended_p99_ms"] < 0.6 * flow["long_ended_p99_ms"]


def test_flows_that_do_not_end_have_no_time_and_a_share():
    """With one timeout in a row alone they are given up; their end does not depend on the run's."""
    given_up, ended = feedback(attempts="1"), feedback()
    assert ended["unfinished"] == 0 < given_up["unfinished"] <= given_up["given_up"]
    assert given_up["unfinished_fraction"] == given_up["unfinished"] / given_up["flows"]
    lengths = ("long", "short")
    for kind in ("ended_flows", "flows"):
        all_flows = sum(given_up[f"{length}_{kind}"] for length in lengths)
        assert all_flows == given_up["flows"] - (kind != "flows") * given_up["unfinished"]
    assert given_up["long_ended_p99_ms"] < ended["long_ended_p99_ms"]


def test_a_median_is_of_all_flows_and_a_mean_of_those_that_ended():
    figures = ended_summary("x", np.array([1.0, 2.0, 4.0, np.inf, np.inf]))
    assert (figures["x_median_ms"], figures["x_ended_mean_ms"]) == (4.0, pytest.approx(7 / 3))
    assert (figures["x_flows"], figures["x_ended_flows"]) == (5, 3)
    assert figures["x_unfinished_fraction"] == pytest.approx(0.4)
    assert ended_summary("x", np.array([1.0, np.inf]))["x_median_ms"] is None


def test_a_window_that_is_lost_may_count_as_many_timeouts():
    """Then a sender backs off at each of its packets, and gives up where it need not."""
    by_window, by_packet = (feedback(backoff=unit, attempts="5") for unit in ("window", "packet"))
    assert by_window["unfinished"] < by_packet["unfinished"]


def test_flows_pass_failed_links_sooner_if_switches_route_around_them():
    """Flows of minimal paths end by detours alone."""
    rows = []
    cases = (("0", "0"), *(("0.1", known_us) for known_us in ("0", "100", "1000", "10000000")))
    for failed_fraction, known_us in cases:
        (run,) = fatpaths_feedback.FAILOVER.runs(
            {
                "topology": "slimfly:q=3,p=3",
                "routing": "ecmp",
                "transport": "ndp",
                "failed_fraction": failed_fraction,
                "known_us": known_us,
            },
            seeds=1,
        )
        figures = fatpaths_feedback.measure_failing(run).figures
        rows.append({**run.parameters, **figures, "seed": 0, "engine": "packet", "clock": None})
    none, silent, soon, late, after_end = rows
    assert after_end == {**silent, "known_us": 10_000_000}
    assert none["timeouts"] == none["unfinished"] == soon["unfinished"] == late["unfinished"] == 0
    assert silent["unfinished"] > 0
    assert 0 < soon["timeouts"] <= late["timeouts"] < silent["timeouts"]
    assert none["long_ended_mean_ms"] < soon["long_ended_mean_ms"] < late["long_ended_mean_ms"]
    fatpaths_feedback.FAILOVER.plot(rows, Figure())


@pytest.mark.slow
def test_flowlets_leave_full_links_by_other_shortest_paths_and_by_no_longer_ones():
    """Where one path is shortest they stay on it, as under ECMP; in a fat-tree they have others,
    ECMP not."""
    figures = {
        (topology, routing): fatpaths_vs_fattree.measure(
            small_run(topology=topology, routing=routing)
        ).figures
        for topology in ("complete:n=6,p=4", "fattree:k=4,oversubscription=2")
        for routing in ("flowlets", "ecmp")
    }
    assert (
        figures["complete:n=6,p=4", "flowlets"]["step_mean_ms"]
        == figures["complete:n=6,p=4", "ecmp"]["step_mean_ms"]
    )
    tree = {
        routing: figures["fattree:k=4,oversubscription=2", routing]
        for routing in ("flowlets", "ecmp")
    }
    assert tree["flowlets"]["unfinished"] == 0
    assert tree["flowlets"]["long_mean_ms"] < 0.95 * tree["ecmp"]["long_mean_ms"]


def test_what_cannot_be_is_refused():
    for wrong, why in (
        (
            {"engine": "kernel", "frame_bytes": "1513"},
            "frame_bytes must be at least 1514, got 1513",
        ),
        ({"transport": "tcp:control=bbr"}, "simulated congestion control"),
        (
            {"transport": "ndp:retransmissions=first", "engine": "kernel"},
            "retransmissions=first needs --engine packet",
        ),
        (
            {"transport": "tcp:recovery=reno", "engine": "kernel"},
            "recovery=reno needs --engine packet",
        ),
        ({"transport": "tcp:recovery=tahoe"}, "tcp: recovery must be rack or reno, got 'tahoe'"),
        ({"topology": "dcell:n=4,k=1"}, "fabric of switches"),
    ):
        with pytest.raises(ValueError, match=why):
            fatpaths_vs_fattree.check(small_run(**wrong))


@pytest.mark.kernel
@pytest.mark.parametrize(("routing", "frame_bytes"), [("layers", 1514), ("spray", 9000)])
def test_it_runs_on_the_kernel(routing, frame_bytes):
    run = small_run(
        engine="kernel",
        topology="complete:n=4,p=2",
        routing=routing,
        construction="intree",
        layers="2",
        rate_mbps="20",
        seconds="1",
        size_fraction="0.02",
        frame_bytes=str(frame_bytes),
    )
    fatpaths_vs_fattree.check(run)
    figures = fatpaths_vs_fattree.measure(run).figures
    assert figures["flows"] > 5
    assert figures["unfinished"] == figures["queue_drops"] == figures["given_up"] == 0
