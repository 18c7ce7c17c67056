import random
import subprocess
import sys
from itertools import pairwise, permutations

import numpy as np
import pytest

from weft.daemons.dfr.routing import Dfr
from weft.daemons.proxy import routing as proxy
from weft.daemons.routing.path_tables import tabulate
from weft.daemons.routing.shortest import dead_channels
from weft.daemons.simulator.simulator import Simulator
from weft.experiments.engines.graph import graph
from weft.experiments.engines.loops import Faults
from weft.experiments.engines.pairs import pairs
from weft.experiments.engines.routes import asking, both_ways, connects, lengths, lost_pairs
from weft.experiments.engines.wiring import NO_FAULTS
from weft.topologies import build
from weft.topologies.core.failures import fail_links, fail_nodes, random_links
from weft.topologies.core.grammar import parse


def damage(spec, seed, fraction=0.15):
    topology = build(spec)
    return fail_links(
        topology, random_links(topology, fraction=fraction, generator=np.random.default_rng(seed))
    )


def all_pairs(topology):
    return list(permutations(range(topology.servers), 2))


@pytest.mark.parametrize("routing", ["dr", "bfs"])
def test_the_pairs_that_are_not_connected_are_the_lost_ones(routing):
    topology = damage("dcell:n=4,k=1", 1)
    hops = lengths(topology, routing, all_pairs(topology))
    assert set(all_pairs(topology)) - set(hops) == lost_pairs(routing, topology)


@pytest.mark.parametrize("spec", ["dcell:n=4,k=1", "beta-dcell:n=3,k=1", "ficonn:n=4,k=1"])
@pytest.mark.parametrize(("routing", "method"), [("pr-gpe", proxy.GP_E), ("pr-gpi", proxy.GP_I)])
def test_proxies_connect_whom_any_live_route_connects_and_the_shortest_counts(
    spec, routing, method
):
    topology = damage(spec, 2)
    network = topology.naming.network
    table, policy = tabulate(network.rule, network.t, 0), proxy.Policy(method, 1, False)

    def live(path):
        return all(b in topology.adjacency[a] for a, b in pairwise(path))

    expected = {}
    for src, dst in all_pairs(topology):
        for hops, c in proxy.alternatives(table, policy, src, dst):
            if live(proxy.route(network.rule, network.t, src, dst, c)):
                expected[src, dst] = hops
                break
    assert lengths(topology, routing, all_pairs(topology)) == expected
    assert (
        len(all_pairs(topology))
        > len(expected)
        >= len(all_pairs(topology)) - len(lost_pairs("dr", topology))
    )


def test_dfr_connects_as_many_as_the_compiled_engine_says():
    topology = damage("dcell:n=4,k=1", 3, fraction=0.4)
    hops = lengths(topology, "dfr:b=1,retry=2", all_pairs(topology))
    net = graph(topology.spec)
    every = pairs("all-to-all", net.servers, np.random.default_rng(0))
    down = np.frombuffer(dead_channels(topology, net.network), np.uint8)
    tally = net.reroute(Dfr(b=1, retry=2), every, Faults(down, NO_FAULTS.servers))
    assert len(hops) == tally.connected < len(all_pairs(topology))
    assert sum(hops.values()) / len(hops) == pytest.approx(tally.mean_hops)


def test_nothing_is_compiled_for_the_pairs_of_a_small_network():
    program = """
import sys
from weft.experiments.engines.routes import lengths
from weft.topologies import build
from weft.topologies.core.failures import fail_links
broken = fail_links(build("dcell:n=4,k=1"), [28])  # h11-h18
print(*(len(lengths(broken, routing, [(11, 18)])) for routing in ("dr", "pr-gpi", "dfr")), "numba" in sys.modules)
"""  # noqa: E501
    told = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    ).stdout
    assert told.split() == ["0", "1", "1", "False"]


def test_paths_that_depend_on_load_have_no_predicted_length():
    assert lengths(build("ficonn:n=4,k=1"), "tar", [(0, 1)]) is None


@pytest.mark.slow
def test_tar_connects_what_its_daemons_do():
    topology = build("ficonn:n=4,k=2")
    # With these links dead some first attempts fail, and later ones do not.
    topology = fail_links(topology, random.Random(10).sample(range(len(topology.links)), 6))
    simulator = Simulator(topology, "tar:idle_s=100,probes_per_s=1000")
    every = [(src, dst) for src, dst in all_pairs(topology) if (src * 7 + dst) % 5 == 0]
    simulator.run_until(0.3)
    for _ in range(60):
        for pair in every:
            simulator.send(*pair)
        simulator.run_for(0.1)
    reached = {pair for pair in every if not simulator.walk(*pair).lost}
    assert connects(topology, "tar", every) == reached
    assert (
        both_ways(lengths(topology, "dr", every))
        < both_ways(reached)
        < both_ways(lengths(topology, "bfs", every))
    )


def test_where_only_live_links_count_what_has_a_length_is_connected():
    topology = damage("dcell:n=4,k=1", 1)
    assert (
        connects(topology, "dfr", all_pairs(topology))
        == lengths(topology, "dfr", all_pairs(topology)).keys()
    )


def test_parameters_of_the_daemons_scheme_count():
    topology = damage("dcell:n=4,k=1", 1)
    every = all_pairs(topology)
    assert lengths(topology, "pr-gpe:level=2", every) == lengths(topology, "dr", every)
    assert len(lengths(topology, "pr-gpe", every)) > len(lengths(topology, "dr", every))


def test_only_schemes_that_ask_get_a_budget_and_what_is_given_stays():
    assert asking("dr", 50) == "dr"
    assert asking("pr-gpi:hold_ms=700", 0) == "pr-gpi:hold_ms=700"
    name, parameters = parse(asking("pr-gpi:urgent_per_s=7", 50))
    assert (name, parameters["urgent_per_s"], parameters["probes_per_s"]) == ("pr-gpi", "7", "50")


def test_the_pairs_of_a_dead_server_are_lost():
    topology = fail_nodes(build("dcell:n=4,k=1"), [7])
    hops = lengths(topology, "pr-gpi", all_pairs(topology))
    assert not [pair for pair in hops if 7 in pair]
    assert len(hops) == 19 * 18


def test_both_ways_needs_both():
    assert both_ways({(0, 1), (1, 0), (2, 3)}) == {(0, 1), (1, 0)}
