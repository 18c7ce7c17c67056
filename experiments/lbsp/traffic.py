"""Flows of LBSP's evaluation (section 4), the same for every scheme and damage.

short: rounds of random permutations, a flow from each host in each round.  Ours: flows of a round
    begin at random times within it.
long: four flows to hosts behind one edge switch (figure 3): two from S1 to D1, one from S2 to D2,
    one from S3 in another pod to D3.  S1 and S2 are behind the edge switch whose link is damaged.
    The least bits of D1 and D2 are such that their flows share a path group if that link fails: the
    scenario does not favour LBSP.
pod: four flows from the pod with the damaged link and one from another, all to one pod (figure 7a).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from weft.daemons.lbsp.routing import shape_of
from weft.experiments.engines.workloads import permutation
from weft.experiments.runner.definition import Run
from weft.testbed.traffic.flows import Flow
from weft.topologies.core.link import Mbps
from weft.topologies.core.topology import Topology

FLOWS_TO_A_POD = 5


def flows(run: Run) -> list[Flow]:
    """Return the flows of `run`."""
    topology, size_bytes = run.topology, run.integer("flow_bytes")
    if run.text("workload") == "short":
        return list(short_flows(run, topology.servers))
    pairs = long_ends(topology) if run.text("workload") == "long" else pod_ends(topology)
    return [Flow(0.0, src, dst, size_bytes) for src, dst in pairs]


def round_s(run: Run) -> float:
    """Return how long a flow from each host keeps its link busy at the load of `run`."""
    bits = 8 * run.integer("flow_bytes")
    return bits / (run.integer("rate_mbps") * Mbps * run.number("load_fraction"))


def short_flows(run: Run, hosts: int) -> Iterator[Flow]:
    """Yield the flows of `rounds` random permutations."""
    rng = np.random.default_rng(run.seed)
    for number in range(run.integer("rounds")):
        for src, dst in permutation(rng, hosts):
            yield Flow((number + rng.random()) * round_s(run), src, dst, run.integer("flow_bytes"))


def long_ends(topology: Topology) -> Sequence[tuple[int, int]]:
    """Return source and destination of each of the four long flows."""
    shape = shape_of(topology)

    def host(pod: int, edge: int, number: int) -> int:
        return topology.naming.layout.number_of((pod, edge, number))

    s1, s2 = (host(2, shape.d - 1, number) for number in (0, 1))
    d1, d2, d3 = (host(1, 1 % shape.d, number % shape.hosts) for number in (0, 1, 3))
    return [(s1, d1), (s1, d1), (s2, d2), (host(4 % shape.pods, 0, 0), d3)]


def pod_ends(topology: Topology) -> Sequence[tuple[int, int]]:
    """Return source and destination of each of the five flows to a pod."""
    shape, number = shape_of(topology), topology.naming.layout.number_of
    d = shape.d
    sources = [(2, (d - 1 - place // 2) % d, place % 2) for place in range(4)]
    sources.append((4 % shape.pods, 0, 0))
    sinks = [(1, place % d, place % 2 + place // d) for place in range(FLOWS_TO_A_POD)]
    return [(number(src), number(dst)) for src, dst in zip(sources, sinks, strict=True)]


def check_pod(run: Run) -> None:
    """Raise ValueError if a pod of `run` has no host for each of the five flows to it."""
    shape = shape_of(run.topology)
    hosts = shape.d * shape.hosts
    if run.text("workload") == "pod" and hosts < FLOWS_TO_A_POD:
        raise ValueError(f"{run.experiment}: a pod must have {FLOWS_TO_A_POD} hosts, not {hosts}")
