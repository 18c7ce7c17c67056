"""Pairs that still ping when links die, beside those that the graph engine connects.

CCRDN, sections 6.4 and 7.2, with real packets: a tenth of the links, servers or racks has failed,
drawn uniformly.  Beside the pings stand the graph engine's result for the same faults and scheme,
and the pairs that any path connects.  Pairs are ordered pairs of live servers; a ping needs both
directions.

PR's sources may probe `questions_per_s` paths, more than by default: this experiment asks which
paths exist, not how soon hundreds of pairs at once find theirs.  The networks are far smaller than
the paper's; its networks of 15 thousand servers and more are in the experiment `connectivity`.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from weft.experiments.ccrdn import columns
from weft.experiments.engines import common_parameters as common
from weft.experiments.engines import reachability
from weft.experiments.engines.kernel_run import measured
from weft.experiments.engines.routes import (
    EVERYWHERE,
    Pair,
    asking,
    both_ways,
    connects,
    lengths,
)
from weft.experiments.report.panels import Bars
from weft.experiments.runner.definition import Experiment, Result, Row, Run
from weft.testbed.linux import clock
from weft.testbed.network.network import RunningNetwork
from weft.topologies.core.failures import (
    draw,
    fail_links,
    fail_nodes,
    fail_racks,
    racks,
    random_links,
)
from weft.topologies.core.topology import Topology

PATIENCE_S = 15.0  # by then daemons have reacted


def faults(run: Run) -> Topology:
    """Return the network of `run` less its faults, which are those of `connectivity`."""
    topology = run.topology
    fraction = float(run.parameters["failed_fraction"])
    generator = np.random.default_rng([run.seed, 1])
    failed = run.text("failed")
    if failed == "links":
        return fail_links(topology, random_links(topology, fraction=fraction, generator=generator))
    if failed == "nodes":
        servers = np.arange(topology.servers)
        return fail_nodes(topology, draw(servers, fraction=fraction, generator=generator))
    return fail_racks(topology, draw(racks(topology), fraction=fraction, generator=generator))


def measure(run: Run) -> Result:
    """Measure the fraction of pairs that ping, beside those that the graph engine connects."""
    broken = faults(run)
    links_only = run.text("failed") == "links"
    alive = [node for node in range(broken.servers) if links_only or broken.live_ports(node)]
    pairs = [(src, dst) for src in alive for dst in alive if src != dst]
    routing = asking(run.text("routing"), run.integer("questions_per_s"))
    connected = connects(broken, routing, pairs)
    physical = both_ways(lengths(broken, "bfs", pairs) or {})
    result = measured(
        run, lambda net: pings(net, broken, pairs, both_ways(connected)), routing=routing
    )
    fractions = {
        "connected_fraction": len(connected) / len(pairs),
        "physical_fraction": len(physical) / len(pairs),
    }
    return replace(result, figures={**result.figures, **fractions})


def pings(net: RunningNetwork, broken: Topology, pairs: list[Pair], expected: set[Pair]) -> Row:
    """Let the faults of `broken` happen, and return the pairs that ping beside `expected` ones."""
    fail(net, broken)
    failed_s = clock.monotonic()
    reached = reachability.wait_for_pings(net, pairs, expected, timeout_s=PATIENCE_S)
    return {
        "failed_links": int(broken.failed.sum()),
        "pairs": len(pairs),
        "pinged_fraction": len(reached) / len(pairs),
        "graph_fraction": len(expected) / len(pairs),
        "equal": reached == expected,
        "lost_though_connected": len(expected - reached),
        "pinged_though_lost": len(reached - expected),
        "settled_s": clock.monotonic() - failed_s,
    }


def fail(net: RunningNetwork, broken: Topology) -> None:
    """Fail the links in the network that are dead in `broken`; they lose their carrier."""
    for link in np.flatnonzero(broken.failed).tolist():
        net.fail(broken.link_name(link))


def check(run: Run) -> None:
    """Raise ValueError unless the scheme of `run` suits its network, and some of it survives."""
    common.server_centric(run)
    common.check_routing(run)
    if run.number("failed_fraction") == 1:
        raise ValueError("connectivity_kernel: failed_fraction must lie in [0, 1), got 1")


EXPERIMENT = Experiment(
    name="connectivity_kernel",
    question=(
        "When links fail, which pairs still ping under each scheme, and does the graph engine "
        "predict them?"
    ),
    source="CCRDN, sections 6.4 and 7.2, on the kernel",
    engines=("kernel",),
    axes={
        "topology": common.TOPOLOGY.over("dcell:n=4,k=1", "beta-dcell:n=5,k=1", "ficonn:n=4,k=2"),
        "routing": common.ROUTING.over(*EVERYWHERE),
        "failed": common.FAILED.over("links"),
        "failed_fraction": common.FAILED_FRACTION.over(0.1),
        "questions_per_s": common.QUESTIONS_PER_S.over(50),
        "processes": common.PROCESSES.over(0),
    },
    version=3,
    columns=columns.CONNECTIVITY_KERNEL,
    seeds=3,
    takes_s=200,
    measure=measure,
    plot=Bars(
        columns={"pinged_fraction": "pairs that ping (fraction)"},
        by=("routing",),
        facet=("topology", "failed", "failed_fraction"),
        always=3,
        strokes={
            "pinged_fraction": {
                "graph_fraction": "graph engine",
                "physical_fraction": "connected by any path",
            }
        },
    ),
    check=check,
)
