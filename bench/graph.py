"""Speed of the graph engine, beside the simulator of CCRDN's authors and the goals.

Speeds are per second of processor time of one core, which a busy machine distorts less.
"""

from __future__ import annotations

import os
import random
import resource
import subprocess
import sys
import tempfile
import time

import numpy as np

from bench.report import Line, show
from weft.daemons.proxy.routing import parting, search, shortest_first
from weft.daemons.routing.path_tables import tabulate
from weft.experiments.engines.graph import Graph, graph, policy
from weft.experiments.engines.pairs import Pairs, pairs
from weft.topologies.recursive.ccrdn import DCELL, Ccrdn

# Flows a second per core of INRFlow, which counts link loads too, as measured for this comparison;
# what is asked for.
INRFLOW = {
    "dcell:n=3,k=3": {"dr": 206e3, "pr-gp0": 57e3, "pr-gpi": 22e3, "pr-gpe": 4.4e3},
    "dcell:n=4,k=3": {"dr": 110e3, "pr-gp0": 20e3, "pr-gpi": 7.4e3, "pr-gpe": 0.7e3},
}
ASKED = {"dr": 20e6, "pr-gp0": 4e6, "pr-gpi": 2e6, "pr-gpe": 0.3e6}
FLOWS = {"dr": 8_000_000, "pr-gp0": 2_000_000, "pr-gpi": 1_000_000, "pr-gpe": 100_000}
LARGEST = "dcell:n=6,k=3"

FIRST_CALL = """
import time
import numpy as np
from weft.experiments.engines.graph import graph, policy
from weft.experiments.engines.pairs import pairs
net = graph("dcell:n=3,k=2")
flows = pairs("uniform:flows=1000", net.servers, np.random.default_rng(0))
net.tables
begin = time.perf_counter()
net.route(policy("pr-gpi"), flows, loads=True)
print(time.perf_counter() - begin)
"""
LARGE = f"""
import numpy as np
from weft.experiments.engines.graph import graph, policy
from weft.experiments.engines.pairs import pairs
net = graph("{LARGEST}")
flows = pairs("uniform:flows=500000", net.servers, np.random.default_rng(0))
net.route(policy("pr-gpi"), flows, net.link_faults(np.random.default_rng(0), fraction=0.1), loads=True)
"""  # noqa: E501


def uniform(net: Graph, flows: int) -> Pairs:
    return pairs(f"uniform:flows={flows}", net.servers, np.random.default_rng(0))


def per_core(net: Graph, routing: str, *, loads: bool, balanced: bool) -> float:
    """Return the flows routed in a second of CPU time, the best of three tries."""
    flows = uniform(net, FLOWS[routing])
    rounds = []
    net.route(policy(routing), uniform(net, 100), loads=loads, balanced=balanced)
    for _ in range(3):
        begin = time.process_time()
        net.route(policy(routing), flows, loads=loads, balanced=balanced)
        rounds.append(time.process_time() - begin)
    return flows.total / min(rounds)


def speeds(spec: str) -> list[Line]:
    net = Graph(graph(spec).network, threads=1)
    lines = []
    for routing, theirs in INRFLOW[spec].items():
        goal = ASKED[routing] / 1e6 if spec == "dcell:n=3,k=3" else None
        bare, loads = (
            per_core(net, routing, loads=loads, balanced=False) for loads in (False, True)
        )
        lines += [
            Line(f"{routing} on {spec}, lengths only", bare / 1e6, "M/s", at_least=goal),
            Line("  with link loads", loads / 1e6, "M/s", at_least=goal),
        ]
        if routing != "dr":
            loads = per_core(net, routing, loads=True, balanced=True)
            lines.append(Line("  and choice by load (5.4)", loads / 1e6, "M/s"))
        lines.append(Line("  that, beside the authors' simulator", loads / theirs, "x"))
    return lines


def connection_rules() -> list[Line]:
    """Return DCell's flows a second over beta-DCell's, with as many candidates each."""
    lines = []
    for n in (3, 4):
        dcell, beta = (
            Graph(graph(f"{family}:n={n},k=3").network, threads=1)
            for family in ("dcell", "beta-dcell")
        )
        for routing in FLOWS:
            for loads in (False, True):
                ratio = per_core(dcell, routing, loads=loads, balanced=False)
                ratio /= per_core(beta, routing, loads=loads, balanced=False)
                name = f"{routing}, n={n}" + (", with link loads" if loads else "")
                lines.append(Line(f"{name}: DCell over beta-DCell", ratio, "x", at_most=1.1))
    return lines


def hundred_million(flows: int = 100_000_000) -> list[Line]:
    """Return the time of DR and GP_I with link loads on all cores."""
    net = graph("dcell:n=4,k=3")
    seconds = []
    for routing in ("dr", "pr-gpi"):
        net.route(policy(routing), uniform(net, 100), loads=True)
        begin = time.perf_counter()
        net.route(policy(routing), uniform(net, flows), loads=True)
        seconds.append(time.perf_counter() - begin)
    cores = f"{flows // 1_000_000} M flows with loads on {net.threads} cores"
    return [
        Line(f"dr, {cores}", seconds[0], "s"),
        Line(f"pr-gpi, {cores}", seconds[1], "s"),
        Line("  both", sum(seconds), "s", at_most=180 * flows / 100e6),
    ]


def choice() -> list[Line]:
    """Return the time of a path choice with GP_I among 3.3 million servers."""
    network, draw = Ccrdn(DCELL, 6, 3), random.Random(0)
    table, gpi, idle, room = tabulate(network.rule, network.t, 1), policy("pr-gpi"), (), []
    drawn = [draw.sample(range(network.t[-1]), 2) for _ in range(300)]
    rounds = []
    for _ in range(5):
        begin = time.process_time()
        for src, dst in drawn:
            search(table, gpi, shortest_first, parting(network.t, src, dst), idle, 1, room)
        rounds.append((time.process_time() - begin) / len(drawn))
    compiled = 1 / per_core(Graph(network, threads=1), "pr-gpi", loads=False, balanced=False)
    return [
        Line(
            f"a choice with GP_I on {LARGEST}, plain Python", 1e6 * min(rounds), "us", at_most=200
        ),
        Line("  compiled", 1e6 * compiled, "us", at_most=5),
    ]


def first_call() -> list[Line]:
    """Return the time of a process's first call of a compiled function, cold and cached."""
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "NUMBA_CACHE_DIR": cache}
        command = [sys.executable, "-c", FIRST_CALL]
        seconds = [
            float(
                subprocess.run(
                    command, env=environment, capture_output=True, text=True, check=True
                ).stdout
            )
            for _ in range(2)
        ]
    return [
        Line("first call, cold", seconds[0], "s", at_most=10),
        Line("first call, from the cache", seconds[1], "s", at_most=1),
    ]


def memory() -> list[Line]:
    """Return memory and time of a process that routes on the largest network.

    A tenth of the links is dead, and loads are counted.
    """
    subprocess.run([sys.executable, "-c", LARGE], check=True)
    most_bytes = 1024 * resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return [
        Line(
            f"memory, pr-gpi on {LARGEST} with faults and loads", most_bytes / 1e9, "GB", at_most=1
        )
    ]


def main() -> None:
    """Print all of it; some three minutes where nothing else runs."""
    show("The graph engine, on one core", [line for spec in INRFLOW for line in speeds(spec)])
    show("Connection rules", connection_rules())
    show("One choice, first calls, memory", [*choice(), *first_call(), *memory()])
    show("A hundred million flows", hundred_million())


if __name__ == "__main__":
    main()
