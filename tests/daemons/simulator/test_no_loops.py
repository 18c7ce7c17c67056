"""No address goes round, whether some node has it or none, under any scheme: every address of every
prefix.

Addresses between two neighbouring bounds of any prefixes of any tables are treated alike
everywhere, so that one of them stands for all.

pr, dfr and tar have servers rewrite what is for a server into addresses of their own, which no
table alone decides about; that those do not go round is tested with them, and what has no server is
tested here on the kernel.
"""

import random
from itertools import pairwise

import numpy as np
import pytest

from weft.daemons.routing import updown
from weft.daemons.routing.candidates import candidates
from weft.daemons.simulator.simulator import Simulator
from weft.topologies import build
from weft.topologies.core.failures import fail_links, fail_nodes, random_links

FABRICS = [
    "fattree:k=2",
    "fattree:k=4",
    "fattree:k=6",
    "fattree:k=8",
    "fattree:k=8,pods=3",
    "fattree:n=2,d=3",
    "fattree:n=4,d=2",
    "fattree:n=5,d=2",
    "fattree:k=4,oversubscription=3",
    "clos:n=4,r=3,m=2",
    "clos:n=1,r=2,m=1",
    "clos:n=300,r=2,m=2",
    "hyperx:l=2,s=3",
    "dragonfly:p=2",
    "star:n=5",
    "complete:n=5,p=3",
]
SERVER_CENTRIC = [
    "dcell:n=3,k=1",
    "beta-dcell:n=3,k=1",
    "ficonn:n=4,k=1",
    "dcell:n=3,k=2",
    "ficonn:n=4,k=2",
]


def cycle(tables, address, owner=None):
    """Nodes round which a packet for `address` may go, if there are any: `tables` are {prefix:
    hops} of each node that forwards, and `owner` keeps what is for it."""
    onward = {}
    for node, table in tables.items():
        prefixes = [prefix for prefix in table if node != owner and prefix.holds(address)]
        hops = table[max(prefixes, key=lambda prefix: prefix.length)] if prefixes else ()
        onward[node] = {hop.node for hop in hops} & tables.keys()
    while ends := {node for node, nodes in onward.items() if not nodes}:
        onward = {node: nodes - ends for node, nodes in onward.items() if node not in ends}
    return sorted(onward)


def every_address(tables):
    """One address for each of the spans that no bound of a prefix parts."""
    bounds = {0, 1 << 32}
    for table in tables.values():
        for network, length in table:
            bounds |= {network, network + (1 << (32 - length))}
    return [low for low, _ in pairwise(sorted(bounds))]


def check(tables, topology):
    owners = {topology.naming.address(node): node for node in range(topology.servers)}
    for address in every_address(tables):
        assert not cycle(tables, address, owners.get(address)), (
            f"{address >> 24}.{address >> 16 & 255}.{address >> 8 & 255}.{address & 255}"
        )


def shortest(topology):
    """The tables of all switches; hosts do not forward."""
    return {
        node: dict(updown.prefix_routes(topology, node))
        for node in range(topology.servers, topology.nodes)
    }


@pytest.mark.parametrize("spec", FABRICS)
def test_no_address_goes_round_by_the_routes_of_a_fabrics_topology(spec):
    topology = build(spec)
    check(shortest(topology), topology)


@pytest.mark.parametrize("spec", FABRICS)
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.slow
def test_nor_when_links_have_failed(spec, seed):
    topology = build(spec)
    fraction = random.Random(seed).choice([0.02, 0.1, 0.3, 0.6])
    failed = random_links(topology, fraction=fraction, generator=np.random.default_rng(seed))
    check(shortest(fail_links(topology, failed)), topology)


def test_nor_when_a_switch_has_failed():
    topology = build("fattree:k=4")
    for switch in range(topology.servers, topology.nodes):
        check(shortest(fail_nodes(topology, [switch])), topology)


@pytest.mark.parametrize("spec", SERVER_CENTRIC)
def test_nor_by_dimensional_routing(spec):
    topology = build(spec)
    check({node: dict(candidates(topology, node)) for node in range(topology.servers)}, topology)


@pytest.mark.parametrize(
    ("spec", "scheme"),
    [
        ("fattree:k=4", "ecmp"),
        ("fattree:k=4", "bfs"),
        ("fattree:k=4", "lbsp"),
        ("fattree:k=8", "lbsp:groups=4"),
        ("clos:n=2,r=3,m=2", "ecmp"),
        ("clos:n=2,r=3,m=2", "dar"),
        ("star:n=3", "bfs"),
        ("dcell:n=3,k=1", "dr"),
        ("dcell:n=3,k=1", "bfs"),
        ("ficonn:n=4,k=1", "dr"),
    ],
)
@pytest.mark.parametrize("failed", [None, "random"])
def test_nor_by_what_daemons_have_set(spec, scheme, failed):
    topology = build(spec)
    simulator = Simulator(topology, scheme, random=random.Random(1))
    simulator.run_until_converged()
    if failed:
        for link in random.Random(2).sample(range(len(topology.links)), 3):
            simulator.fail(link)
        simulator.run_until_quiet()
    routers = (
        range(topology.servers)
        if topology.server_centric
        else range(topology.servers, topology.nodes)
    )
    check({node: dict(simulator.routes(node)) for node in routers}, topology)
