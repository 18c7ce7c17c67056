from itertools import combinations, pairwise

import numpy as np
import pytest

from weft.daemons.core.compiled import compiled
from weft.daemons.fatpaths import construction
from weft.daemons.fatpaths.layers import LayerOptions, RouterArrays, distances, everything, path
from weft.experiments.fatpaths import layered_throughput, topology_cost
from weft.experiments.fatpaths.router_graph import RouterGraph
from weft.experiments.fatpaths.table_iv import TABLE_IV, TABLE_V_SAMPLES, table_v
from weft.experiments.report import figures
from weft.experiments.runner.definition import find
from weft.topologies import build, canonical

QUICK = {
    "lowdiameter_sizes": {"topology": "slimfly:q=19,p=14,complete:n=101,p=100,hyperx:l=2,s=3"},
    "diversity": {
        "topology": "slimfly:q=5,dragonfly:p=2,complete:n=101,p=100",
        "pairs": "200",
        "fours": "60",
    },
    "collisions": {
        "topology": "slimfly:q=5,complete:n=20,p=19",
        "pattern": "permutation,stencil:offset=42",
    },
    "topology_cost": {"family": "slimfly,hyperx3,fattree2", "hosts": "200,1000"},
    "layered_throughput": {
        "topology": "slimfly:q=4,p=3,hyperx:l=2,s=3,p=2",
        "layers": "1,4",
        "rho": "0.6",  # the tuned value leaves so small a network in pieces
    },
}


def rows_of(name, **given):
    experiment = find(name)
    runs = experiment.runs({**QUICK[name], **given}, seeds=1)
    return [
        {
            **run.parameters,
            "seed": run.seed,
            "engine": run.engine,
            **experiment.measure(run).figures,
        }
        for run in runs
    ]


@pytest.mark.parametrize("name", QUICK)
@pytest.mark.slow
def test_every_experiment_measures_and_draws(name, tmp_path):
    rows = rows_of(name)
    with figures.new() as figure:
        find(name).plot(rows, figure)
        figures.save(figure, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 5000


def test_the_names_of_table_iv_are_canonical():
    names = [
        *TABLE_IV,
        *TABLE_V_SAMPLES,
        *find("collisions").sweep["topology"],
        *find("layered_throughput").sweep["topology"],
    ]
    assert [canonical(name) for name in names] == names


def test_sizes_are_compared_with_the_printed_ones():
    rows = {row["topology"]: row for row in rows_of("lowdiameter_sizes")}
    assert rows["slimfly:q=19,p=14"]["as_in_paper"] is True
    assert "as_in_paper" not in rows["hyperx:l=2,s=3,p=2"]
    assert all(row["as_table_v"] for row in rows.values())
    assert rows["slimfly:q=19,p=14"]["printed_hosts_of_router"] == 15  # which contradicts table IV
    (other,) = rows_of("lowdiameter_sizes", topology="slimfly:q=5")
    assert (other["diameter"], other["radix"], other["routers"], other["hosts"]) == (2, 7, 50, 200)


def test_the_forms_of_table_v_are_those_of_their_variants_only():
    assert table_v("dragonfly", {"p": 8, "palm": 0}) == (2064, 23, 8, 3)
    assert table_v("hyperx", {"l": 4, "s": 3, "p": 2}) is None
    assert table_v("xpander", {"r": 16, "l": 2, "p": 8, "seed": 1}) is None
    assert table_v("jellyfish", {"n": 50, "r": 7, "p": 4, "seed": 1}) is None


@pytest.mark.parametrize("layers", [1, 2, 5])
def test_disjoint_paths_of_layers_are_the_most_of_all_sets(layers):
    topology = build("dragonfly:p=2")
    graph = RouterGraph.of(topology)
    tables = construction.layers_of(
        "random", RouterArrays.of(topology), LayerOptions(layers, 0.7), np.random.default_rng(0)
    )
    disjoint, mean_hops = layered_throughput.disjoint_paths(graph, tables)
    expected, hops = [], 0
    for src in range(36):
        for dst in range(36):
            if src == dst:
                continue
            ways = [list(map(frozenset, pairwise(path(table, src, dst)))) for table in tables]
            hops += sum(map(len, ways))
            apart = [
                size
                for size in (1, 2, 3)
                for chosen in combinations(ways, size)
                if len(set().union(*chosen)) == sum(map(len, chosen))
            ]
            expected.append(max(apart))
    assert disjoint.tolist() == expected
    assert mean_hops == pytest.approx(hops / (36 * 35 * layers))


def test_nine_sparse_layers_give_nearly_all_pairs_three_disjoint_paths_and_full_ones_none():
    rows = {
        (row["layers"], row["rho"]): row
        for row in rows_of(
            "layered_throughput",
            topology="slimfly:q=5,p=4",
            scheme="random",
            layers="2,9",
            rho="0.6,1",
            intensity="1",
            bound="none",
        )
    }
    assert rows[9, 0.6]["three_disjoint_fraction"] > 0.9
    # the graph has one shortest path for each pair
    assert rows[9, 1.0]["three_disjoint_fraction"] == 0
    assert rows[9, 0.6]["mean_hops"] > rows[2, 0.6]["mean_hops"] > rows[9, 1.0]["mean_hops"]
    assert rows[9, 0.6]["throughput"] > rows[9, 1.0]["throughput"]


def test_distributions_are_of_the_lengths_that_were_asked_for():
    rows = {
        (row["topology"], row["hops"]): row
        for row in rows_of(
            "diversity", topology="slimfly:q=5,jellyfish:n=50,r=7,p=4,seed=1", hops="2,3"
        )
    }
    moore = rows["slimfly:q=5,p=4", 2]
    assert moore["cdp_shares"] == [0, 1]  # one path of two links at most, for every pair
    assert rows["slimfly:q=5,p=4", 3]["cdp_mean_fraction"] > 0.8
    assert rows["jellyfish:n=50,r=7,p=4,seed=1", 2]["cdp_shares"][0] > 0
    with figures.new() as figure:
        find("diversity").plot(list(rows.values()), figure)
        assert len(figure.axes) >= 8  # figures 7 and 8, a line for each family


def test_a_clique_and_a_moore_graph_have_the_diversity_that_they_must():
    rows = {row["topology"]: row for row in rows_of("diversity")}
    clique, moore = rows["complete:n=101,p=100"], rows["slimfly:q=5,p=4"]
    assert clique["used_hops"] == 2
    assert (clique["cdp_mean_fraction"], clique["cdp_tail_fraction"]) == (1, 1)
    assert moore["used_hops"] == 3
    assert moore["one_shortest_fraction"] == 1
    assert moore["shortest_length_shares"] == pytest.approx([0, 1 / 7, 6 / 7])
    assert moore["cdp_shares"][1] == pytest.approx(1 / 7, abs=0.08)
    assert sum(moore["cdp_shares"]) == pytest.approx(1)
    assert moore["cdp_mean_fraction"] == pytest.approx((1 / 7 + 6) / 7, abs=0.08)


def test_collisions_are_fewer_with_more_routers():
    rows = {(row["topology"], row["pattern"]): row for row in rows_of("collisions")}
    for pattern in ("permutation", "stencil:offset=42"):
        sparse, dense = (rows[name, pattern] for name in ("slimfly:q=5,p=4", "complete:n=20,p=19"))
        assert sum(sparse["flow_shares"]) == pytest.approx(1)
        assert sparse["over_three_fraction"] <= dense["over_three_fraction"]
    assert rows["complete:n=20,p=19", "stencil:offset=42"]["most_flows"] >= 4  # four flows a host


@pytest.mark.slow
def test_layers_lie_between_the_minimal_paths_and_the_bound():
    rows = {
        (row["topology"], row["scheme"], row["layers"]): row
        for row in rows_of("layered_throughput")
    }
    for (topology, scheme, layers), row in rows.items():
        assert row["throughput"] > 0
        if scheme == "intree" and layers == 4 and topology.startswith("slimfly"):
            assert row["throughput"] > rows[topology, "minimal", 4]["throughput"]
            assert row["fewest_paths"] >= 2
        if layers == 1 and scheme not in ("minimal", "valiant"):
            assert row["throughput"] <= rows[topology, "minimal", 1]["throughput"] + 1e-9
            assert row["mean_paths"] == 1
        if scheme == "minimal":
            assert row["throughput"] <= row["bound_throughput"] + 1e-9


@pytest.mark.parametrize(
    ("name", "parameters", "line"),
    [
        (
            "diversity",
            {"topology": "dcell:n=3,k=1"},
            "dcell:n=3,k=1: the servers of this network forward; a network of switches is needed",
        ),
        (
            "layered_throughput",
            {"scheme": "stp"},
            "layered_throughput: no scheme 'stp' (there are: intree, ",
        ),
        ("collisions", {"pattern": "star"}, "no traffic pattern 'star'"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(name, parameters, line):
    with pytest.raises(ValueError) as raised:  # noqa: PT011, the line is compared
        find(name).runs(parameters)
    assert str(raised.value).startswith(line)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("family", topology_cost.FAMILIES)
def test_the_sizes_of_instances_are_those_of_the_networks(family):
    instances = map(topology_cost.instance, topology_cost.FAMILIES[family])
    for instance in [size for size in instances if size.hosts < 3000 and size.radix <= 64]:
        topology = build(instance.spec)
        ports = np.bincount(topology.links[:, [0, 2]].ravel())[topology.servers :]
        assert (topology.servers, ports.max()) == (instance.hosts, instance.radix), instance


def test_costs_are_linear_in_their_parts():
    """slimfly:q=5: 50 routers of 11 ports, 200 host and 75 local cables, 100 global ones, 200
    hosts."""
    experiment = find("topology_cost")
    prices = {"router_usd": "1000", "port_usd": "10", "copper_usd": "4", "fibre_usd": "20"}
    (run,) = experiment.runs({"family": "slimfly", "hosts": "200", **prices})
    figures = experiment.measure(run).figures
    assert (figures["network"], figures["network_hosts"], figures["radix"]) == (
        "slimfly:q=5",
        200,
        11,
    )
    assert figures["edge_density"] == 375 / 200
    assert figures["router_cost_usd"] == (50 * 1000 + 550 * 10) / 200
    assert figures["copper_cost_usd"] == 275 * 4 / 200
    assert figures["fibre_cost_usd"] == 100 * 20 / 200
    assert figures["host_cost_usd"] == pytest.approx((50 * 1000 + 550 * 10 + 275 * 4 + 2000) / 200)


@pytest.mark.parametrize("spec", ["slimfly:q=5,p=4", "slimfly:q=7,p=6"])
def test_in_trees_give_pairs_of_every_distance_three_disjoint_paths(spec):
    """All pairs two links apart; of adjacent ones one in 350 has only two at q = 5."""
    topology = build(spec)
    routers, graph = RouterArrays.of(topology), RouterGraph.of(topology)
    tables = construction.layers_of(
        "intree", routers, LayerOptions(9), np.random.default_rng([0, 1]), compiled
    )
    apart = ~np.eye(routers.routers, dtype=bool)
    hops = distances(routers, everything(routers))[apart]
    disjoint, _ = layered_throughput.disjoint_paths(graph, tables)
    assert (disjoint[hops == 2] >= 3).all()
    assert (disjoint[hops == 1] >= 3).mean() > 0.99
