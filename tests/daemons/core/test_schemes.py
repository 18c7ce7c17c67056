import json
import pickle
import subprocess
import sys
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path

import pytest

from daemons.core.schemes import SCHEMES, protocol, routers, scheme, views
from daemons.routing.candidates import candidates
from topologies import build

ROOT = Path(__file__).parents[3]
NETWORKS = ["dcell:n=4,k=1", "beta-dcell:n=3,k=1", "ficonn:n=4,k=1", "fattree:k=4", "star:n=4"]


def runs_on(name, topology):
    needs = {"lbsp": "fattree", "tar": "ficonn"}
    return SCHEMES[name].server_centric in (None, topology.server_centric) and (
        topology.family == needs.get(name, topology.family)
    )


def refusal(topology, spec):
    try:
        views(topology, spec)
    except ValueError as error:
        return str(error)
    return None


def test_a_scheme_is_named_with_its_options():
    chosen, options = scheme("dr:dead=5")
    assert (chosen.name, options) == ("dr", {"hello_ms": 30, "dead": 5})
    assert scheme("bfs")[1] == {"hello_ms": 30, "dead": 3, "hold_ms": 2, "lifetime_s": 300}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("drr", "no scheme 'drr', did you mean dr? (there are: bfs, dfr, dr, ecmp, lbsp, pr-gp0, pr-gpe, pr-gpi, tar)"),
        ("dr:helo_ms=3", "scheme dr: no parameter 'helo_ms', did you mean hello_ms? (there are: dead, hello_ms)"),
        ("dr:hello_ms=0", "scheme dr: hello_ms must be at least 1, got 0"),
        ("dr:dead=x", "scheme dr: dead must be an integer, got 'x'"),
        ("dr:hello_ms=100000", "scheme dr: hello_ms must be at most 10000, got 100000"),
        ("", "'': expected name:key=value,... such as dcell:n=4,k=1"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(spec, message):
    assert refusal(build("dcell:n=4,k=1"), spec) == message


@pytest.mark.parametrize(
    ("spec", "name", "message"),
    [
        ("fattree:k=4", "dr", "scheme dr runs on server-centric networks; fattree:k=4 is a switch fabric, take ecmp"),
        ("star:n=4", "dr", "scheme dr runs on server-centric networks; star:n=4 is a switch fabric, take ecmp"),
        (
            "dcell:n=4,k=1",
            "ecmp",
            "scheme ecmp runs on switch fabrics; dcell:n=4,k=1 is a server-centric network, take dr",
        ),
    ],
)
def test_a_scheme_is_refused_where_it_does_not_run(spec, name, message):
    assert refusal(build(spec), name) == message


@pytest.mark.parametrize("spec", NETWORKS)
@pytest.mark.parametrize("name", SCHEMES)
def test_every_router_has_a_view_of_plain_numbers_and_a_protocol(spec, name):
    topology = build(spec)
    if not runs_on(name, topology):
        return
    found = views(topology, name)
    assert list(found) == list(routers(topology))
    for node, view in found.items():
        assert view.node == node
        assert 0 < view.phase_fraction <= 1
        json.dumps(asdict(view))  # a number of an array library is not plain
        assert pickle.loads(pickle.dumps(view)) == view
        made = protocol(view, 1)
        assert made.start(0.0) != []
        assert made.deadline <= 0.030
        assert {"neighbours", "routes", "routes_lost", "hellos_sent"} <= set(json.loads(json.dumps(made.status())))


@pytest.mark.parametrize("spec", NETWORKS)
def test_hellos_are_promised_by_both_sides_and_by_no_host(spec):
    topology = build(spec)
    found = views(topology, "bfs")
    pairs = [(node, other) for node, view in found.items() for _, nodes in view.ports for other in nodes]
    assert sorted(pairs) == sorted((other, node) for node, other in pairs)
    wired = {
        (node, other)
        for node in routers(topology)
        for nodes in topology.neighbours(node).values()
        for other in nodes
        if other in routers(topology)
    }
    assert set(pairs) == wired


def test_ticks_are_spread_over_the_interval():
    phases = sorted(view.phase_fraction for view in views(build("dcell:n=4,k=1"), "dr").values())
    assert max(b - a for a, b in pairwise([0.0, *phases, 1.0])) < 2 / len(phases)


@pytest.mark.parametrize("spec", NETWORKS)
def test_every_candidate_hop_is_a_neighbour(spec):
    topology = build(spec)
    for node in routers(topology):
        near = topology.neighbours(node)
        assert candidates(topology, node)
        assert all(hop.node in near[hop.port] for _, hops in candidates(topology, node) for hop in hops)


def test_a_daemon_needs_no_array_library_and_no_graph():
    topology = build("dcell:n=3,k=1")
    made = [pickle.dumps(views(topology, name)[0]) for name in ("dr", "bfs")]
    program = (
        "import pickle, sys\n"
        "from daemons.core.schemes import protocol\n"
        f"for made in {made!r}:\n"
        "    protocol(pickle.loads(made), 1).start(0.0)\n"
        "sys.exit(bool({'numpy', 'networkx', 'topologies.core.topology'} & set(sys.modules)))\n"
    )
    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT, timeout=30).returncode == 0
