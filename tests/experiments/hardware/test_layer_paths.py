"""Paths of layers, against counts by hand and walks in plain Python."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

from weft.daemons.core import registry
from weft.daemons.fatpaths import scheme
from weft.daemons.fatpaths.layers import path
from weft.experiments.fatpaths import achievable_throughput
from weft.experiments.fatpaths.router_graph import RouterGraph
from weft.experiments.hardware import layer_paths
from weft.experiments.runner.definition import find
from weft.topologies import build


def row_of(**settings):
    (run,) = find("layer_paths").plan(settings, seeds=1).runs
    return layer_paths.measure(run).figures


def test_walked_paths_are_those_of_the_tables():
    topology = build("dragonfly:p=2")
    graph = RouterGraph.of(topology)
    options = registry.scheme("fatpaths:construction=overlap,layers=3,seed=1")[1]
    tables = scheme.tables(topology, options)
    ways = [path(table, s, t) for table in tables for s in range(36) for t in range(36) if s != t]
    walked = layer_paths.walk(graph, tables)
    lengths = Counter(len(way) - 1 for way in ways)
    assert walked.by_hops.tolist() == [lengths[hops] for hops in range(max(lengths) + 1)]
    crossed = Counter(arc for way in ways for arc in pairwise(way))
    arc_of = achievable_throughput.arcs(graph)
    assert {arc: int(walked.crossing[arc_of[arc]]) for arc in crossed} == crossed
    assert walked.crossing.sum() == sum(crossed.values())


def test_routers_without_hosts_are_left_out():
    topology = build("fattree:k=4")
    graph = RouterGraph.of(topology)
    options = registry.scheme("fatpaths:construction=past,layers=2,seed=1")[1]
    walked = layer_paths.walk(graph, scheme.tables(topology, options))
    # eight edge switches: each has one in its pod, two links away, and six four links away
    assert walked.by_hops.tolist() == [0, 0, 2 * 8, 0, 2 * 48]


def test_one_layer_of_the_installation_has_its_only_shortest_paths():
    """50 routers, 7 links each: 350 paths of a link and 2,100 of two on 350 directions of links."""
    row = row_of(construction="intree", layers="1")
    assert row["hops_shares"] == pytest.approx([0, 350 / 2450, 2100 / 2450])
    assert row["mean_hops"] == pytest.approx((350 + 2 * 2100) / 2450)
    assert row["single_path_fraction"] == row["mean_distinct_paths"] == 1
    assert row["two_disjoint_fraction"] == row["three_disjoint_fraction"] == 0
    # each is that of its ends, and the half of 6 + 6 paths of two links each way
    assert [row[f"{name}_crossing_paths"] for name in ("least", "mean", "most")] == [13, 13, 13]
    # four hosts of a router send to those of another over the one path of two links, and the worst
    # matching has two such flows on some link
    assert row["worst_case_throughput"] == pytest.approx(1 / 8)


def test_longer_paths_make_pairs_disjoint_but_for_adjacent_ones():
    row = row_of(construction="lnmp-longer", layers="16")
    assert row["single_path_fraction"] == pytest.approx(350 / 2450)
    assert row["two_disjoint_fraction"] == pytest.approx(2100 / 2450)
    assert 0.85 < row["three_disjoint_fraction"] <= 2100 / 2450
    assert row["most_crossing_paths"] < 1.1 * row["mean_crossing_paths"]
    by_default = row_of(construction="lnmp", layers="16")
    assert by_default["single_path_fraction"] > 0.9
    trees = row_of(construction="intree", layers="16")
    assert trees["three_disjoint_fraction"] > 0.99
    assert len(trees["hops_shares"]) > len(row["hops_shares"]) == 4
    hops = np.arange(4) @ np.array(row["hops_shares"])
    assert row["mean_hops"] == pytest.approx(hops)
