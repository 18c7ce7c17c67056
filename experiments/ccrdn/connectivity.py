"""Pairs that stay connected when links die, and the lengths of their routes.

CCRDN, sections 6.4 and 7.2, figures 5 and 6: 10 % of the links have failed, drawn uniformly.  A
scheme connects a pair if one of the routes that it tries is alive; PR takes the shortest of these.
Shortest paths show which pairs are physically connected.  A fault set is one sample: the error of
a figure is that over the seeds.

traffic: uniform, many-all-to-all:group=50 or one-to-all; at most `flows` of its pairs are routed.
Shortest paths run from random sources, or the one source, to all servers; random groups have the
same mean.

Differences from the paper.  Its hop-lengths for DCell_{3,4} under faults, 10.7 for GP_I against
10.2 for DR without, are those of DCell_{3,3}.  Its simulator draws faults by node and port, and
stops at a link that is dead in one direction only.  DFR's 95 % and 14 hops are interpolated from
DFR's own paper, as the authors say.

connectivity_kernel asks the same with real packets: a tenth of the links, servers or racks has
failed, drawn uniformly.  Beside the pings stand the graph engine's result for the same faults and
scheme, and the pairs that any path connects.  Pairs are ordered pairs of live servers; a ping
needs both directions.

PR's sources may probe `questions_per_s` paths, more than by default: this experiment asks which
paths exist, not how soon hundreds of pairs at once find theirs.  The networks are far smaller than
the paper's; its networks of 15 thousand servers and more are in the experiment `connectivity`.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from weft.experiments.ccrdn.recursive import (
    MEAN_HOPS_COLUMNS,
    ROUTING,
    TOPOLOGY,
    check,
    faults,
    networks,
    over_networks,
    routed,
    shortest,
    traffic,
    uniform,
)
from weft.experiments.engines import common_parameters as common
from weft.experiments.engines import reachability
from weft.experiments.engines.graph import graph_of
from weft.experiments.engines.kernel_run import measured
from weft.experiments.engines.loops import Faults, Tally
from weft.experiments.engines.pairs import ONE_TO_ALL, Pairs
from weft.experiments.engines.routes import (
    EVERYWHERE,
    Pair,
    asking,
    both_ways,
    connects,
    lengths,
)
from weft.experiments.report.panels import Bars
from weft.experiments.report.statistics import mean_and_error
from weft.experiments.runner.definition import Experiment, Result, Row, Run
from weft.experiments.runner.parameters import Spec
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
from weft.topologies.core.grammar import parse
from weft.topologies.core.topology import Topology

DCELL_SIZES = ((11, 2), (18, 2), (43, 2), (3, 3), (4, 3), (6, 3))
FICONN_SIZES = ((22, 2), (36, 2), (48, 2), (8, 3), (10, 3), (16, 3))


def measure(run: Run) -> Result:
    """Measure the fraction of live pairs that are connected, and their mean hops."""
    dead = faults(run)
    name = run.text("routing")
    pairs = pairs_of(run)
    # pairs of these patterns are drawn independently, so their number gives the error
    independent = run.text("traffic") in ("uniform", "permutation")
    if name != "bfs":
        figures = figures_of_pairs(routed(run, pairs, dead), independent)
    elif pairs.pattern == ONE_TO_ALL:
        source = int(pairs.order[0])
        sources = [source] if alive(source, dead) else []
        net = graph_of(run)
        figures = figures_of_sources(net.shortest(sources, dead) if sources else [])
    else:
        figures = figures_of_sources(shortest(run, pairs.total, dead))
    return Result(figures)


def pairs_of(run: Run) -> Pairs:
    """Return the first `flows` pairs of the traffic, whose servers and groups are shuffled."""
    flows = run.integer("flows")
    spec = run.text("traffic")
    pairs = uniform(run, flows) if spec == "uniform" else traffic(run, spec)
    return pairs._replace(total=min(flows, pairs.total))


def alive(server: int, dead: Faults) -> bool:
    """Return whether `server` itself is alive."""
    return not len(dead.servers) or not dead.servers[server]


def figures_of_pairs(tally: Tally, independent: bool = True) -> Row:
    """Return the figures of random pairs; errors follow from their number.

    The errors are None unless the pairs are `independent`.
    """
    fraction = tally.connected_fraction
    deviation = tally.sd_hops
    total = tally.connected + tally.lost
    fraction_error = None
    if independent and fraction is not None:
        fraction_error = math.sqrt(fraction * (1 - fraction) / total)
    hops_error = None
    if independent and deviation is not None:
        hops_error = deviation / math.sqrt(tally.connected)
    return {
        "connected_fraction": fraction,
        "se_connected_fraction": fraction_error,
        "mean_hops": tally.mean_hops,
        "se_hops": hops_error,
        "measured_pairs": total,
    }


def figures_of_sources(searches: list[Tally]) -> Row:
    """Return the figures of random sources, each with all its destinations.

    If most servers lie in one component, its size gives nearly all connected pairs exactly, and
    only the sources outside it are a sample.  Otherwise the mean over the sources estimates the
    fraction.
    """
    alive = searches[0].connected + searches[0].lost + 1 if searches else 0
    if alive < 2:
        return figures_of_pairs(Tally(np.zeros(0, np.int64), 0, 0))
    reached = [search.connected for search in searches]
    largest = max(reached) + 1
    outside = [count for count in reached if count + 1 < largest]
    if 2 * largest > alive:
        share, rest = largest / alive, (alive - largest) / alive
        mean, error = mean_and_error(outside, alive - largest) if outside else (0.0, 0.0)
        fraction = (share * (largest - 1) + rest * mean) / (alive - 1)
        error *= rest
    else:
        mean, error = mean_and_error(reached, alive)
        fraction = mean / (alive - 1)
    return {
        "connected_fraction": fraction,
        "se_connected_fraction": error / (alive - 1),
        **hops_from_sources(searches, alive),
        "measured_pairs": sum(search.connected + search.lost for search in searches),
    }


def hops_from_sources(searches: list[Tally], alive: int) -> Row:
    """Return mean hops over the connected pairs of `searches`, a sample of `alive` sources.

    The standard error is that of a ratio of two sums over the sources.
    """
    connected = np.array([search.connected for search in searches])
    if not connected.sum():
        return {"mean_hops": None, "se_hops": None}
    hops = np.array([search.connected * (search.mean_hops or 0.0) for search in searches])
    mean = hops.sum() / connected.sum()
    _, error = mean_and_error((hops - mean * connected).tolist(), alive)
    return {"mean_hops": float(mean), "se_hops": error / float(connected.mean())}


def traffic_of(text: str) -> None:
    """Raise ValueError unless `text` is a traffic whose pairs are in random order."""
    name, parameters = parse(text)
    if name == "all-to-all":
        raise ValueError("all-to-all: its pairs are those that uniform draws from")
    if name != "uniform":
        common.traffic(text)
    elif parameters:
        raise ValueError(f"uniform: its number of pairs is flows=..., got {text}")


TRAFFIC = Spec(
    "who sends to whom",
    form="uniform, many-all-to-all:group=N, one-to-all or permutation",
    check=traffic_of,
)


GRAPH = Experiment(
    name="connectivity",
    question="When links die, which pairs stay connected, and how much longer are their routes?",
    source="CCRDN, sections 6.4 and 7.2, figures 5 and 6",
    engines=("graph",),
    axes={
        "topology": TOPOLOGY.over(
            *networks("dcell", *DCELL_SIZES),
            *networks("beta-dcell", *DCELL_SIZES),
            *networks("ficonn", *FICONN_SIZES),
        ),
        "routing": ROUTING.over("dr", "pr-gp0", "pr-gpi", "pr-gpe", "dfr", "bfs"),
        "failed": common.FAILED.over("links"),
        "failed_fraction": common.FAILED_FRACTION.over(0.1),
        "flows": common.FLOWS.over(20000),
        "traffic": TRAFFIC.over("uniform"),
        "apply": common.APPLY.over("algorithm"),
    },
    columns={
        "connected_fraction": "pairs with a route, of those whose ends are alive",
        "se_connected_fraction": (
            "standard error of connected_fraction; null where pairs are not drawn alone"
        ),
        **MEAN_HOPS_COLUMNS,
    },
    seeds=5,
    version=3,
    takes_s=280,
    measure=measure,
    plot=over_networks(
        {
            "connected_fraction": "connected pairs (fraction; figure 5)",
            "mean_hops": "mean hop-length of connected pairs (figure 6)",
        },
        "failed",
        "failed_fraction",
        "traffic",
        "apply",
        "flows",
    ),
    check=check,
)


PATIENCE_S = 15.0  # by then daemons have reacted


def kernel_faults(run: Run) -> Topology:
    """Return the network of `run` less its faults, which are those of `connectivity`."""
    topology = run.topology
    fraction = float(run.parameters["failed_fraction"])
    generator = run.generator(1)
    failed = run.text("failed")
    if failed == "links":
        return fail_links(topology, random_links(topology, fraction=fraction, generator=generator))
    if failed == "nodes":
        servers = np.arange(topology.servers)
        return fail_nodes(topology, draw(servers, fraction=fraction, generator=generator))
    return fail_racks(topology, draw(racks(topology), fraction=fraction, generator=generator))


def measure_pings(run: Run) -> Result:
    """Measure the fraction of pairs that ping, beside those that the graph engine connects."""
    broken = kernel_faults(run)
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
        "failed_links": broken.failed.sum(),
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


def check_kernel(run: Run) -> None:
    """Raise ValueError unless the scheme of `run` suits its network, and some of it survives."""
    common.server_centric(run)
    common.check_routing(run)
    if run.number("failed_fraction") == 1:
        raise ValueError("connectivity_kernel: failed_fraction must lie in [0, 1), got 1")


KERNEL = Experiment(
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
    columns={
        "failed_links": "links that are dead, with those of dead servers and racks",
        "pairs": "ordered pairs of servers that are alive",
        "pinged_fraction": "pairs that ping",
        "graph_fraction": (
            "pairs that the graph engine connects in both directions; null where it has no "
            "such scheme"
        ),
        "connected_fraction": "pairs that it connects in the direction from source to destination",
        "physical_fraction": "pairs that any path connects",
        "equal": "whether exactly the pairs ping that the graph engine predicts",
        "lost_though_connected": "pairs that the graph engine connects and that did not ping",
        "pinged_though_lost": "pairs that ping though the graph engine does not connect them",
        "settled_s": (
            "from the failures to the time when the pings were as expected, or patience ended"
        ),
    },
    seeds=3,
    takes_s=200,
    measure=measure_pings,
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
    check=check_kernel,
)
