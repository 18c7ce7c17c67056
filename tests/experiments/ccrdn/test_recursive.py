"""The experiments on DCell, beta-DCell and FiConn: small runs of each, and what they refuse."""

from itertools import pairwise

import networkx as nx
import numpy as np
import pytest
from matplotlib.figure import Figure

from weft.daemons.dfr import scheme as dfr
from weft.daemons.dfr.routing import Dfr
from weft.daemons.routing import dr
from weft.experiments.ccrdn import connectivity, recursive
from weft.experiments.ccrdn.throughput import by_flows
from weft.experiments.engines.flow_placement import Placement
from weft.experiments.engines.graph import graph
from weft.experiments.engines.pairs import pair
from weft.experiments.report import figures
from weft.experiments.runner.definition import find
from weft.topologies.recursive.ccrdn import common_level

SMALL = ["dcell:n=3,k=2", "ficonn:n=4,k=2"]
QUICK = {
    "hop_length": {"topology": "dcell:n=3,k=2,ficonn:n=4,k=2", "pairs": "500"},
    "connectivity": {"topology": "dcell:n=3,k=2,ficonn:n=4,k=2", "flows": "500"},
    "hop_histogram": {"topology": "dcell:n=3,k=2,ficonn:n=4,k=2", "flows": "500"},
    "flow_histogram": {"topology": "dcell:n=3,k=2,ficonn:n=4,k=2", "flows": "5000"},
    "throughput": {
        "topology": "dcell:n=3,k=2,ficonn:n=4,k=2",
        "traffic": "uniform:flows=500,one-to-all,many-all-to-all:group=5,permutation",
    },
    "zero_load_latency": {"topology": "ficonn:n=10,k=3", "routing": "dr,pr-gp0"},
    "completion_time": {"topology": "dcell:n=3,k=2,ficonn:n=4,k=2"},
    "ccrdn_properties": {"topology": "dcell:n=3,k=3,dcell:n=3,k=2"},
}


def rows_of(name, seeds=1, **given):
    experiment = find(name)
    rows = []
    for run in experiment.runs({**QUICK[name], **given}, seeds=seeds):
        result = experiment.measure(run)
        rows.append({**run.parameters, "seed": run.seed, "engine": run.engine, **result.figures})
    return rows


def rows_by(rows, *columns):
    return {tuple(row[column] for column in columns): row for row in rows}


@pytest.mark.parametrize("name", QUICK)
@pytest.mark.slow
def test_every_experiment_measures_and_draws(name, tmp_path):
    rows = rows_of(name)
    assert rows
    with figures.new() as figure:
        find(name).plot(rows, figure)
        figures.save(figure, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 5000


@pytest.mark.slow
def test_proxy_routes_lie_between_shortest_paths_and_dimensional_routes():
    rows = rows_by(rows_of("hop_length", pairs="all", condition1="0"), "topology", "routing")
    for network in SMALL:
        hops = [
            rows[network, routing]["mean_hops"]
            for routing in ("bfs", "pr-gpe", "pr-gpi", "pr-gp0", "dr")
        ]
        assert hops == sorted(hops)
        assert all(rows[network, routing]["se_hops"] == 0 for routing in ("bfs", "dr"))
        assert rows[network, "bfs"]["measured_pairs"] == rows[network, "dr"]["measured_pairs"]
        exhaustive, guided = rows[network, "pr-gpe"], rows[network, "pr-gpi"]
        assert exhaustive["candidates_per_pair"] >= guided["candidates_per_pair"] > 0
        assert exhaustive["no_longer_routes_per_pair"] >= guided["no_longer_routes_per_pair"]


@pytest.mark.slow
def test_a_sample_is_within_its_error_of_all_pairs():
    exact = rows_by(rows_of("hop_length", pairs="all"), "topology", "routing")
    sampled = rows_by(rows_of("hop_length", pairs="20000"), "topology", "routing")
    for cell, row in sampled.items():
        if cell[1] == "tar":  # whose paths depend on how many flows there are
            assert row["mean_hops"] > exact[cell[0], "dr"]["mean_hops"]
            continue
        assert abs(row["mean_hops"] - exact[cell]["mean_hops"]) <= 5 * row["se_hops"] + 1e-9


def test_proxies_at_the_top_only_find_less_than_where_pairs_part():
    parameters = {
        "topology": "dcell:n=3,k=3",
        "routing": "pr-gpi",
        "apply": "top,algorithm",
        "pairs": "20000",
    }
    rows = rows_by(rows_of("hop_length", **parameters), "apply")
    assert rows[("top",)]["mean_hops"] >= rows[("algorithm",)]["mean_hops"]
    assert rows[("top",)]["candidates_per_pair"] < rows[("algorithm",)]["candidates_per_pair"]


def test_more_ways_connect_more_pairs_and_none_more_than_there_are():
    rows = rows_by(rows_of("connectivity", flows="5000"), "topology", "routing")
    for network in SMALL:
        connected = [
            rows[network, routing]["connected_fraction"]
            for routing in ("dr", "pr-gp0", "pr-gpi", "pr-gpe")
        ]
        assert connected == sorted(connected)
        assert connected[0] < rows[network, "dfr"]["connected_fraction"] <= 1
        assert connected[-1] <= rows[network, "bfs"]["connected_fraction"] + 0.03


@pytest.mark.parametrize("failed", ["links", "nodes", "racks"])
def test_faults_are_the_same_for_every_scheme_and_follow_the_seed(failed):
    runs = find("connectivity").runs({"topology": "dcell:n=3,k=2", "failed": failed}, seeds=2)
    faults = {(run.text("routing"), run.seed): recursive.faults(run).down.tolist() for run in runs}
    assert len({str(down) for (_, seed), down in faults.items() if seed == 0}) == 1
    assert faults["dr", 0] != faults["dr", 1]


@pytest.mark.parametrize(
    ("failed", "fraction"),
    [("links", "0.99"), ("links", "1"), ("nodes", "1"), ("racks", "0.98"), ("racks", "1")],
)
@pytest.mark.slow
def test_where_nothing_is_connected_the_answer_is_zero_or_none(failed, fraction, tmp_path):
    parameters = {
        "topology": "dcell:n=3,k=2",
        "failed": failed,
        "failed_fraction": fraction,
        "flows": "200",
    }
    for name in ("connectivity", "hop_histogram"):
        rows = rows_of(name, **parameters)
        for row in rows:
            if fraction == "1":
                assert row["connected_fraction"] == (0.0 if failed == "links" else None)
            if not row["connected_fraction"]:
                assert row["mean_hops"] is None
        with figures.new() as figure:
            find(name).plot(rows, figure)
            figures.save(figure, tmp_path / "figure.png")


@pytest.mark.parametrize("fraction", ["0.3", "0.9"])
def test_breadth_first_search_tells_the_connected_fraction_also_in_pieces(fraction):
    """Of all pairs of a network whose links have failed, with most servers in one component and
    without."""
    parameters = {
        "topology": "dcell:n=3,k=2",
        "routing": "bfs",
        "failed_fraction": fraction,
        "flows": "100000",
    }
    (row,) = rows_of("connectivity", **parameters)
    (run,) = find("connectivity").runs({**QUICK["connectivity"], **parameters}, seeds=1)
    net = graph("dcell:n=3,k=2")
    dead = recursive.faults(run).down.reshape(-1, net.ports)
    joined = nx.Graph()
    joined.add_nodes_from(range(net.servers))
    for server, other, level in zip(*(ends.tolist() for ends in net.links), strict=True):
        if not dead[server, level]:
            joined.add_edge(server, other if level else f"w{server // 3}")
    apart = [
        sum(isinstance(node, int) for node in part) for part in nx.connected_components(joined)
    ]
    expected = sum(size * (size - 1) for size in apart) / (net.servers * (net.servers - 1))
    assert row["connected_fraction"] == pytest.approx(expected)
    assert row["se_connected_fraction"] == row["se_hops"] == 0


def test_proxies_are_tried_down_to_the_level_that_is_asked_for():
    parameters = {
        "flows": "20000",
        "failed_fraction": "0.2",
        "routing": "pr-gpi",
        "apply": "algorithm,top,all",
    }
    one_level = rows_by(rows_of("connectivity", topology="dcell:n=4,k=1", **parameters), "apply")
    figures_of = [{**one_level[(apply,)], "apply": None} for apply in ("algorithm", "top", "all")]
    assert figures_of[0] == figures_of[1] == figures_of[2]
    three_levels = rows_by(rows_of("connectivity", topology="dcell:n=3,k=3", **parameters), "apply")
    assert (
        three_levels[("top",)]["connected_fraction"]
        < three_levels[("algorithm",)]["connected_fraction"]
    )
    two_levels = rows_by(rows_of("connectivity", topology="dcell:n=3,k=2", **parameters), "apply")
    assert (
        two_levels[("algorithm",)]["connected_fraction"]
        < two_levels[("all",)]["connected_fraction"]
    )


@pytest.mark.slow
def test_connectivity_under_other_traffic_is_that_of_its_pairs():
    parameters = {
        "topology": "dcell:n=3,k=2",
        "routing": "dr",
        "flows": "100",
        "failed_fraction": "0.2",
    }
    traffics = {
        "one-to-all": 100,
        "many-all-to-all:group=5": 100,
        "permutation": 100,
        "uniform": 100,
    }
    (bfs,) = rows_of("connectivity", **{**parameters, "routing": "bfs", "traffic": "one-to-all"})
    assert bfs["measured_pairs"] == 155
    for traffic, total in traffics.items():
        (run,) = find("connectivity").runs({**parameters, "traffic": traffic}, seeds=1)
        (row,) = rows_of("connectivity", **parameters, traffic=traffic)
        assert row["measured_pairs"] == total
        assert (row["se_connected_fraction"] is None) == (
            traffic.split(":")[0] in ("one-to-all", "many-all-to-all")
        )
        traffic_pairs, t = connectivity.pairs_of(run), graph("dcell:n=3,k=2").network.t
        with np.errstate(over="ignore"):
            ends = [
                tuple(int(server) for server in pair(traffic_pairs, index))
                for index in range(total)
            ]
        if traffic == "one-to-all":
            assert len({src for src, _ in ends}) == 1
        dead = recursive.faults(run).down.reshape(-1, 4)
        alive = 0
        for src, dst in ends:
            hops = list(pairwise(dr.route(0, t, src, dst)))
            levels = [common_level(t, a, b) for a, b in hops]
            alive += not any(
                dead[a, level] or (level == 0 and dead[b, 3])
                for (a, b), level in zip(hops, levels, strict=True)
            )
        assert row["connected_fraction"] == alive / total


def test_only_flows_that_arrive_are_throughput():
    parameters = {
        "topology": "dcell:n=3,k=2",
        "traffic": "uniform:flows=5000",
        "routing": "dr,dfr:ttl=3",
    }
    rows = rows_by(rows_of("throughput", **parameters), "routing")
    short = rows[("dfr:ttl=3",)]
    assert (
        0
        < short["delivered_flows"]
        < short["routed_flows"]
        == rows[("dr",)]["delivered_flows"]
        == 5000
    )
    assert short["uat_bps"] * short["mean_flows"] == pytest.approx(short["delivered_flows"] * 1e9)
    assert short["rat_bps"] * short["bottleneck_flows"] == pytest.approx(
        short["delivered_flows"] * 1e9
    )


def test_histograms_add_up():
    for row in rows_of("hop_histogram"):
        assert sum(row["pairs_by_hops_fraction"]) == pytest.approx(row["connected_fraction"])
        assert len(row["pairs_by_hops_fraction"]) == row["longest_hops"] + 1
    for row in rows_of("flow_histogram"):
        net = graph(row["topology"])
        assert sum(row["links_by_flows"]) == net.wired.sum()
        assert (len(row["links_by_flows"]) - 1) * row["bin_flows"] <= row["bottleneck_flows"]


@pytest.mark.slow
def test_throughput_is_bandwidth_over_load():
    for row in rows_of("throughput"):
        assert row["uat_bps"] * row["mean_flows"] == pytest.approx(row["routed_flows"] * 1e9)
        assert row["rat_bps"] * row["bottleneck_flows"] == pytest.approx(row["routed_flows"] * 1e9)
        assert row["rat_bps"] <= row["uat_bps"]


@pytest.mark.slow
def test_latency_is_hops_times_the_cost_of_a_hop_and_what_the_ends_cost():
    for row in rows_of("zero_load_latency", code="compiled", costs="us:once=3,hop=7"):
        assert row["hop_us"] == pytest.approx(7 + row["routing_us"])
        assert row["latency_ms"] == pytest.approx((3 + row["mean_hops"] * row["hop_us"]) / 1000)
        assert 0 < row["routing_us"] < 1000
    rows = rows_by(rows_of("zero_load_latency", code="python"), "routing", "costs")
    for routing in ("dr", "pr-gp0"):
        assert rows[routing, "kernel"]["latency_ms"] < rows[routing, "paper"]["latency_ms"]


@pytest.mark.parametrize(
    ("parameters", "networks"),
    [
        ({"routing": "tar"}, {"ficonn"}),
        ({"routing": "dfr:b=2"}, {"dcell"}),
        ({"routing": "bfs"}, {"dcell", "beta-dcell", "ficonn"}),
    ],
)
def test_schemes_are_swept_over_the_networks_that_they_are_for(parameters, networks):
    hop_length = find("hop_length")
    assert {run.text("topology").split(":")[0] for run in hop_length.runs(parameters)} == networks
    schemes = {run.text("routing") for run in hop_length.runs({"topology": "ficonn:n=4,k=2"})}
    assert "tar" in schemes
    assert "dfr" not in schemes
    assert len(hop_length.runs({"topology": "ficonn:n=4,k=2", "routing": "dfr"})) == 1


def test_table_1_is_the_papers():
    rows = rows_by(rows_of("ccrdn_properties"), "topology")
    assert rows[("dcell:n=3,k=3",)]["as_in_paper"] is True
    assert (
        rows[("dcell:n=3,k=3",)]["longest_seen_hops"]
        <= rows[("dcell:n=3,k=3",)]["dr_bound_hops"]
        == 15
    )
    assert "as_in_paper" not in rows[("dcell:n=3,k=2",)]


def test_a_figure_over_networks_has_a_panel_for_each_family():
    networks = ("dcell:n=3,k=2", "dcell:n=4,k=2", "ficonn:n=4,k=2")
    rows = [{"topology": spec, "routing": "dr", "mean_hops": 3.0} for spec in networks]
    with figures.new() as figure:
        recursive.over_networks({"mean_hops": "hops"})(rows, figure)
        titles = [axes.get_title(loc="left") for axes in figure.axes]
        servers = [axes.get_lines()[0].get_xdata().tolist() for axes in figure.axes]
    assert titles == ["dcell, k = 2", "ficonn, k = 2"]
    assert servers == [[156, 420], [48]]


def test_a_bin_of_the_flow_histogram_is_a_point():
    row = {"links_by_flows": [1, 0, 3], "bin_flows": 5}
    points = [(row["flows_on_link"], row["links_fraction"]) for row in by_flows([row])]
    assert points == [(0, 0.25), (5, 0), (10, 0.75)]


@pytest.mark.slow
def test_the_choice_rules_make_a_difference_where_they_can():
    parameters = {"topology": "dcell:n=3,k=2", "traffic": "uniform:flows=20000"}
    rows = {}
    uat = {}
    for routing in ("pr-gpe", "pr-gpe:choice=1", "pr-gpe:choice=2", "pr-gpe:choice=3"):
        (row,) = rows_of("throughput", **parameters, routing=routing)
        rows[routing], uat[routing] = row["mean_hops"], row["uat_bps"]
    assert rows["pr-gpe:choice=3"] == rows["pr-gpe"]
    assert uat["pr-gpe:choice=3"] < uat["pr-gpe"]  # DR's routes cross more switches
    assert rows["pr-gpe:choice=1"] > rows["pr-gpe:choice=2"] >= rows["pr-gpe"]
    row = rows_of("hop_length", topology="dcell:n=3,k=2", routing="pr-gpe:choice=2", pairs="1000")[
        0
    ]
    assert row["candidates_per_pair"] > 0


def draw(name, rows):
    figure = Figure()
    find(name).plot(rows, figure)
    return figure


@pytest.mark.slow
def test_each_line_of_panels_names_its_routings_once():
    parameters = {
        "traffic": "one-to-all,uniform:flows=500",
        "routing": "dr,pr-gpi,pr-gpe",
        "apply": "algorithm,all",
    }
    figure = draw("throughput", rows_of("throughput", topology="dcell:n=3,k=2", **parameters))
    names = [label.get_text() for axes in figure.axes for label in axes.get_yticklabels()]
    columns = find("throughput").plot.columns
    assert [name for name in names if name] == ["DR", "GP_I", "GP_E"] * 2 * len(columns)
    assert not [place for place in (figure, *figure.subfigs) if place.legends]


def test_schemes_take_their_constants_from_the_grammar():
    network = graph("dcell:n=3,k=2").network
    assert dfr.settings(network, recursive.options("dfr")) == Dfr()
    options = recursive.options("dfr:b=2,retry=5,ttl=32,nearest=0")
    assert dfr.settings(network, options) == Dfr(2, 5, 32, False)
    assert recursive.options("tar") == Placement()._asdict()
    options = {"relay": 1, "virtual": 0, "shuffled": 0}
    assert recursive.options("tar:relay=1,virtual=0,shuffled=0") == options


@pytest.mark.parametrize(
    ("name", "parameters", "what"),
    [
        ("hop_length", {"routing": "drr"}, "no routing 'drr', did you mean"),
        ("hop_length", {"topology": "fattree:k=4"}, "no recursively-defined network 'fattree'"),
        ("hop_length", {"routing": "tar", "topology": "dcell:n=3,k=2"}, "tar is for ficonn"),
        (
            "throughput",
            {"routing": "tar:relay=3", "topology": "ficonn:n=4,k=2"},
            "relay must be at most 2, got 3",
        ),
        (
            "throughput",
            {"routing": "tar:virtuel=0", "topology": "ficonn:n=4,k=2"},
            "no parameter 'virtuel'",
        ),
        (
            "throughput",
            {"routing": "dfr:ttl=0", "topology": "dcell:n=3,k=2"},
            "dfr: ttl must be at least 1, got 0",
        ),
        ("hop_length", {"routing": "pr-gpi:b=2"}, "no parameter 'b' .there are: choice"),
        ("throughput", {"routing": "pr-gpi:choice=4"}, "choice must be at most 3, got 4"),
        (
            "hop_length",
            {"routing": "pr-gpi:choice=1"},
            "weighs the flows on links, which this experiment does not",
        ),
        ("hop_length", {"routing": "dfr:c=2"}, "no parameter 'c'"),
        ("hop_length", {"routing": "dfr:b=3"}, "b must be at most 2"),
        ("hop_length", {"apply": "everywhere"}, "no apply 'everywhere'"),
        (
            "hop_length",
            {"pairs": "some"},
            "pairs must be all or a number, 1 .. 10000000000, got some",
        ),
        ("hop_length", {"pairs": "all", "topology": "dcell:n=4,k=3"}, "pairs=all takes 1e9"),
        ("hop_length", {"condition1": "2"}, "condition1 must be at most 1, got 2"),
        ("connectivity", {"failed": "switches"}, "no failed 'switches'"),
        ("connectivity", {"failed_fraction": "1.01"}, "failed_fraction must lie"),
        (
            "hop_length",
            {"topology": "dcell:n=100000,k=1", "pairs": "100"},
            "the graph engine takes n up to 5792",
        ),
        (
            "hop_length",
            {"topology": "dcell:n=40000,k=1", "pairs": "100"},
            "the graph engine takes n up to 5792",
        ),
        (
            "hop_length",
            {"topology": "dcell:n=5792,k=2", "routing": "bfs"},
            "breadth-first search for 1,125,8",
        ),
        (
            "hop_length",
            {"topology": "dcell:n=5000,k=2", "routing": "pr-gpe", "pairs": "100000"},
            "weighs up to 25,005,",
        ),
        (
            "connectivity",
            {"topology": "dcell:n=900,k=2", "routing": "dr"},
            "failing links for 657,559,620,900 servers",
        ),
        (
            "throughput",
            {"topology": "dcell:n=900,k=2", "routing": "dr"},
            "counting flows on links for 657,559,",
        ),
        ("connectivity", {"traffic": "all-to-all"}, "its pairs are those that uniform draws from"),
        ("connectivity", {"traffic": "uniform:flows=5"}, "its number of pairs is flows="),
        ("connectivity", {"flows": "0"}, "flows must be at least 1"),
        ("flow_histogram", {"routing": "bfs"}, "bfs finds lengths"),
        ("throughput", {"traffic": "uniform"}, "flows is missing"),
        (
            "zero_load_latency",
            {"routing": "dfr"},
            "this experiment routes millions of pairs by compiled schemes: it takes dr, pr-gp0",
        ),
        ("zero_load_latency", {"code": "rust"}, "no code 'rust'"),
        (
            "zero_load_latency",
            {"costs": "us:once=0,hop=-1"},
            "hop must be a number of microseconds, got -1",
        ),
        (
            "zero_load_latency",
            {"costs": "us:hop=1"},
            "costs must be paper, kernel or us:once=0,hop=70, got us:hop=1",
        ),
    ],
)
def test_what_there_is_not_is_refused_before_anything_is_measured(name, parameters, what):
    with pytest.raises(ValueError, match=what):
        find(name).runs({**QUICK[name], **parameters})
