"""The sweep of flow_labels, its simulated runs, its map, and runs under the virtual clock."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from weft.experiments.flow_labels import maps
from weft.experiments.flow_labels.flow_labels import (
    EXPERIMENT,
    failed,
    faults,
    longest_run,
    pairs_of,
    simulated_figures,
    simulated_scheme,
    simulation,
)
from weft.experiments.report import figures
from weft.experiments.runner import virtual_runs
from weft.experiments.runner.definition import Result
from weft.experiments.runner.rows import row_of
from weft.topologies import build

HEARD = "fatpaths:trigger=cut,start=random"
SMALL = {"topology": "clos:n=4,r=2,m=2", "after_s": "0.2", "rate_mbps": "50"}


def test_plb_alone_has_several_numbers_of_rounds():
    rounds = {
        way: {
            run.integer("plb_rounds") for run in EXPERIMENT.default_runs() if run.text("way") == way
        }
        for way in EXPERIMENT.sweep["way"]
    }
    assert rounds.pop("plb") == {12, 3}
    assert set(map(frozenset, rounds.values())) == {frozenset({12})}


def test_every_way_loses_the_same_links():
    topology = build("clos:n=4,r=4,m=4")
    runs = [run for run in EXPERIMENT.default_runs() if run.integer("failed_links") == 2]
    links = {(run.seed, tuple(failed(run, topology))) for run in runs}
    assert len(links) == EXPERIMENT.seeds
    for _, (first, second) in links:
        assert first != second
        assert topology.level[first] == topology.level[second] == 1


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        ({"topology": "dcell:n=3,k=1"}, "must have linked switches, not dcell:n=3,k=1"),
        ({"topology": "star:n=4"}, "must have linked switches, not star:n=4"),
        ({"topology": "clos:n=2,r=2,m=1", "failed_links": "3"}, "has 2 links between switches"),
        ({"way": "nonsense"}, "no way 'nonsense' .*flowcut.*letflow"),
        ({"way": "static"}, "data plane"),
        ({"way": "layers:layers=4"}, "no way 'layers'"),
        ({"way": "ugal", "topology": "clos:n=4,r=4,m=4"}, "shortest paths go up"),
        ({"pattern": "worst", "topology": "clos:n=2,r=2,m=1,x=1"}, "no parameter"),
    ],
)
def test_wrong_parameters_are_one_line(texts, words):
    with pytest.raises(ValueError, match=words) as error:
        EXPERIMENT.plan(texts, clock="virtual")
    assert "\n" not in str(error.value)


def simulated_run(**texts: str):
    (run,) = EXPERIMENT.runs({**SMALL, "plb_rounds": "12", **texts}, seeds=1, engines=["packet"])
    return run


def simulated_row(**texts: str):
    run = simulated_run(**texts)
    return row_of(run, EXPERIMENT.carry_out(run))


def test_the_worst_pairs_join_routers_and_are_the_same_for_every_way():
    topology = build("slimfly:q=3,p=2")
    runs = [
        simulated_run(topology=topology.spec, pattern="worst", failed_links="0", way=way)
        for way in ("ports", "layers", HEARD)
    ]
    ports, *others = [pairs_of(run, topology) for run in runs]
    assert others == [ports, ports]
    router = {host: topology.ports(host)[0][1] for host in range(topology.servers)}
    to = {(router[src], router[dst]) for src, dst in ports}
    assert len(ports) == topology.servers
    assert len(to) == topology.switches  # both hosts of a router send to the same one
    assert all(src != dst for src, dst in to)


def test_layers_are_those_of_the_seed_and_marks_those_of_the_run():
    texts = {"failed_links": "0", "way": "layers", "ecn_packets": "7"}
    schemes = {
        simulated_scheme(run)
        for run in EXPERIMENT.runs(
            {**SMALL, **texts, "plb_rounds": "12"}, seeds=2, engines=["packet"]
        )
    }
    assert len(schemes) == 2
    for scheme in schemes:
        assert "ecn=7" in scheme
        assert "dead=100" in scheme
    assert "seed=9" in simulated_scheme(simulated_run(failed_links="0", way=f"{HEARD},seed=9"))


def test_only_daemons_of_a_named_scheme_find_a_failure_in_time():
    runs = {
        way: simulated_run(failed_links="1", way=way)
        for way in ("ports", "letflow", "layers", HEARD, "ecmp:hello_ms=10,dead=4")
    }
    known_s = {way: fault.known_s for way, run in runs.items() for fault in faults(run)}
    end_s = 0.1 + 0.2
    assert min(known_s[way] for way in ("ports", "letflow", "layers")) > end_s
    assert known_s[HEARD] == pytest.approx(0.1 + 2.5 * 0.03)
    assert known_s["ecmp:hello_ms=10,dead=4"] == pytest.approx(0.135)
    assert len({tuple(fault.links) for run in runs.values() for fault in faults(run)}) == 1
    assert faults(simulated_run(failed_links="0", way="ports")) == []


def test_simulated_flows_stop_where_no_daemon_finds_the_failure():
    texts = {"topology": "jellyfish:n=8,r=3,p=2,seed=1", "failed_links": "2", "after_s": "0.4"}
    rows = {way: simulated_row(**texts, way=way) for way in ("ports", "ecmp", "layers", HEARD)}
    for deaf, heard in (("ports", "ecmp"), ("layers", HEARD)):
        assert rows[heard]["stopped_flows"] < rows[deaf]["stopped_flows"]
        assert rows[deaf]["slowest_fraction"] < 0.01 < rows[heard]["goodput_fraction"]
        assert rows[deaf]["longest_still_ms"] > 300
    assert rows["ports"]["flows"] == len(rows["ports"]["goodputs_fraction"]) == 16
    assert rows["ports"] == simulated_row(**texts, way="ports")


def test_a_simulated_flow_that_fills_gaps_alone_has_stopped_as_on_linux():
    times_s = [0.001 * number for number in range(100)]
    done = simulation(simulated_run(failed_links="0", way="ports"), 10**7).run([], 0.1, times_s)
    assert simulated_figures(done, 5e7)["stopped_flows"] == 0
    progress = done.progress._replace(latest_bytes=done.progress.latest_bytes * 0)
    figures_of_gaps = simulated_figures(replace(done, progress=progress), 5e7)
    assert figures_of_gaps["stopped_flows"] == figures_of_gaps["flows"]
    assert figures_of_gaps["slowest_fraction"] > 0


def test_one_simulated_flow_at_a_host_has_its_whole_link():
    alone = simulated_row(topology="clos:n=1,r=2,m=1", failed_links="0", way="ports")
    assert alone["goodput_fraction"] == pytest.approx(1, abs=0.03)
    assert (alone["stopped_flows"], alone["timeouts"]) == (0, 0)
    assert alone["longest_still_ms"] <= 1
    labelled = simulated_row(topology="clos:n=1,r=2,m=1", failed_links="0", way="label")
    payload = labelled["goodput_fraction"] / alone["goodput_fraction"]
    assert 0.97 < payload < 1428.5 / 1448  # an IPv6 header has 20 bytes more


@pytest.mark.parametrize(
    ("text", "length"), [("", 0), ("000", 0), ("111", 3), ("0110111", 3), ("10001", 1)]
)
def test_the_longest_run_is_found_anywhere(text: str, length: int):
    assert longest_run(np.array([letter == "1" for letter in text], dtype=bool)) == length


def test_simulated_prr_alone_leaves_dead_links():
    texts = {"failed_links": "1", "after_s": "0.5"}
    rows = {way: simulated_row(**texts, way=way) for way in ("ports", "label", "prr", "plb")}
    for way in ("prr", "plb"):
        assert rows[way]["stopped_flows"] < rows["label"]["stopped_flows"]
    assert rows["prr"]["timeout_rehashes"] == rows["prr"]["timeouts"] > 0
    assert 0 < rows["prr"]["new_labels"] <= rows["prr"]["timeout_rehashes"]
    assert rows["label"]["timeouts"] > 0 == rows["label"]["timeout_rehashes"]
    assert rows["label"]["new_labels"] == rows["label"]["duplicate_rehashes"] == 0
    assert not {"new_labels", "timeout_rehashes"} & rows["ports"].keys()


def test_simulated_plb_draws_labels_after_the_rounds_of_the_run():
    texts = {"failed_links": "0", "after_s": "0.5", "way": "plb"}
    rows = [simulated_row(**texts, plb_rounds=rounds) for rounds in ("1", "3", "31")]
    draws = [row["plb_rehashes"] for row in rows]
    assert draws[0] > draws[1] > draws[2]
    assert rows[0]["timeouts"] == 0 < rows[0]["new_labels"] <= draws[0]
    assert simulated_row(**texts, plb_rounds="1") == rows[0]


def rows_of_map(networks: int, **more: object):
    common = {"engine": "kernel", "rto_min_us": 10000, "slowest_fraction": 0.1, "seed": 0}
    common |= {"plb_rounds": 12, "goodput_fraction": 0.5, "pattern": "permutation"}
    common |= {"way": "ports", "failed_links": 2, "flows": 20, "stopped_flows": 5}
    specs = ("clos:n=4,r=4,m=4", "slimfly:q=3,p=2", "hyperx:l=2,s=3,p=2")[:networks]
    return [{**common, "topology": spec, **more} for spec in specs]


def test_the_map_has_a_cell_for_each_way_and_network():
    rows = [
        *rows_of_map(3),
        *rows_of_map(3, way=HEARD, stopped_flows=1),
        *rows_of_map(3, way="label"),
        *rows_of_map(3, way="plb"),  # after 12 rounds
        *rows_of_map(3, rto_min_us=200_000, goodput_fraction=0.9),
        *rows_of_map(3, pattern="worst", failed_links=0, engine="packet", goodput_fraction=0.4),
        *rows_of_map(2, pattern="worst", failed_links=0),
    ]
    with figures.new() as figure:
        maps.draw(rows, figure)
        died, between = figure.axes
        assert [text.get_text() for text in died.texts] == ["50 (25)"] * 3 + ["50 (5)"] * 3
        assert [text.get_text() for text in between.texts] == ["40 (10)"] * 3
        assert [label.get_text() for label in died.get_yticklabels()] == ["ECMP", "layers, heard"]
        names = [label.get_text() for label in died.get_xticklabels()]
        assert names == ["Clos", "HyperX", "Slim Fly"]
        assert died.get_title(loc="left").startswith("Linux, two links died")
        assert between.get_title(loc="left").startswith("simulated, worst pairs")


def test_bars_are_drawn_of_few_networks():
    for networks, words in ((2, "ports"), (3, "ECMP")):
        with figures.new() as figure:
            maps.draw(rows_of_map(networks), figure)
            labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
        assert labels == [words]


def row(**texts: str):
    """Return the row of a run under the virtual clock."""
    run, *_ = EXPERIMENT.plan({**SMALL, **texts}, seeds=1, clock="virtual").runs
    outcome = virtual_runs.measure(run).outcome
    assert isinstance(outcome, Result), outcome
    return row_of(run, outcome)


@pytest.mark.virtual
def test_plb_draws_labels_where_flows_collide():
    marked = {"way": "plb", "failed_links": "0", "plb_rounds": "1"}
    first = row(**marked)
    assert first["plb_rehashes"] > 0
    assert 0 < first["new_labels"] <= first["plb_rehashes"] + first["timeout_rehashes"]
    assert row(**marked) == first
    without = row(way="prr", failed_links="0", plb_rounds="12")
    assert (without["plb_rehashes"], without["new_labels"]) == (0, without["timeout_rehashes"])


@pytest.mark.virtual
def test_prr_alone_leaves_dead_links():
    rows = {
        way: row(way=way, failed_links="1", plb_rounds="12", after_s="0.5")
        for way in ("ports", "label", "prr")
    }
    assert rows["ports"]["stopped_flows"] > 0 < rows["label"]["stopped_flows"]
    assert rows["prr"]["stopped_flows"] == 0 < rows["prr"]["new_labels"]
    assert rows["label"]["timeout_rehashes"] == rows["label"]["new_labels"] == 0
    assert rows["ports"]["timeout_rehashes"] > 0 == rows["ports"]["new_labels"]
    # over IPv4 a timeout moves no flow: one that waits for it is still until the end
    assert all(ms < 10 or ms > 480 for ms in rows["ports"]["still_ms"])


@pytest.mark.virtual
def test_programs_of_hosts_and_switches_are_counted():
    texts = {"topology": "jellyfish:n=6,r=3,p=1,seed=1", "failed_links": "0", "plb_rounds": "12"}
    layers, ugal, ports = (row(**texts, way=way) for way in ("layers", "ugal", "ports"))
    assert layers["layer_draws"] > 0 == layers["detoured_packets"] == layers["new_labels"]
    assert ugal["detoured_packets"] > 0
    assert ugal["layer_draws"] is None
    assert (ports["layer_draws"], ports["detoured_packets"]) == (None, 0)
    assert layers["marked_fraction"] > 0  # beside the program that chooses ports
    assert row(**texts, way="layers") == layers


@pytest.mark.virtual
def test_linux_and_simulated_tcp_agree_on_who_stops():
    texts = {"failed_links": "1", "plb_rounds": "12", "after_s": "0.5"}
    for way in ("ports", "ecmp", "label"):
        linux, simulated = row(**texts, way=way), simulated_row(**texts, way=way)
        assert (
            (linux["stopped_flows"] > 0)
            == (simulated["stopped_flows"] > 0)
            == (way in ("ports", "label"))
        )
        assert linux["flows"] == simulated["flows"]
