"""Latency of a packet in an idle network: CCRDN, sections 6.6 and 7.4, table 2.

Each hop costs the protocol stack, propagation, the transmission of a full frame, and its share of
the search for the route; the latency is mean hops times that.  The search is measured here: CPU
time of a core per flow, divided by its hops.  The rest is `costs`:

    paper    the paper's, measured by ping between two of its servers
    kernel   a straight line through the times of a full frame between namespaces of one Linux,
             whose links have no rate (the experiment proxy_latency fits yours)
    us:once=0,hop=70   numbers; `once` is spent at the ends of the route

code=compiled times the graph engine's machine code, which records every link of the route;
code=python what a daemon runs when it chooses, and forwarding by DR at each hop.

proxy_latency measures the parts by ping on this kernel, as the paper does: the protocol stack L_s,
propagation L_p, the transmission of a full frame L_d and the share of the search L_r.  L_s is the
round trip to oneself.  L_p is half the round trip to another server of the same switch less L_s;
both are empty packets.  L_d is the extra time of a full frame.  L_r is the CPU time of a daemon's
functions for the path of a flow, divided by its hops.

Ours: links have no rate by default, so this is the kernel's own time.  Under the virtual clock the
kernel takes no time and links need a rate; the model alone is then checked.  An empty packet has
32 bytes, four of them payload.  Forwarding a packet is less work than a whole stack, and a
daemon's search delays no packet: so the pings are also fitted by a base and a slope.  One pair
pings at a time.  PR's sources may probe `questions_per_s` paths, more than by default, to find
paths first.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from weft.daemons.core import registry
from weft.daemons.proxy.routing import parting, route, search, shortest_first
from weft.daemons.routing import dr, shortest
from weft.daemons.routing.path_tables import tabulate
from weft.experiments.ccrdn.recursive import ROUTES, TOPOLOGY, check, policy_of, routed, uniform
from weft.experiments.engines import common_parameters as common
from weft.experiments.engines import reachability
from weft.experiments.engines.graph import METHODS, Graph, graph_of, policy
from weft.experiments.engines.kernel_run import measured
from weft.experiments.engines.pairs import Pairs, pair
from weft.experiments.engines.routes import EVERYWHERE, Pair, asking, lengths, some_pairs
from weft.experiments.report.claims import Sweep
from weft.experiments.report.panels import Bars, Curves, Stack, exploded
from weft.experiments.runner.definition import Experiment, Result, Row, Run
from weft.experiments.runner.parameters import Integer, Spec, Word
from weft.testbed.linux import clock
from weft.testbed.measure import ping
from weft.testbed.network.network import RunningNetwork
from weft.topologies.core.grammar import parse
from weft.topologies.core.link import LinkSpec, Mbps
from weft.topologies.core.topology import Topology

CODES = {"compiled": 500_000, "python": 2_000}  # timed flows; the paper times half a million
EXAMPLE = "us:once=0,hop=70"
ROUNDS = 3  # the fastest one counts

COSTS_US = {
    "paper": {"once": 0.0, "hop": 10.0 + 22.0 + 38.0},  # stack, propagation, transmission: 7.4
    # proxy_latency on dcell:n=4,k=1, Linux 6.18 on two shared cores
    "kernel": {"once": 6.8, "hop": 1.2},
}


def costs_of(costs: str) -> dict[str, float]:
    """Return the costs of a route but for the search, in microseconds: `once` and for each `hop`.

    Raises:
        ValueError: `costs` has neither form.
    """
    if costs in COSTS_US:
        return COSTS_US[costs]
    name, parts = parse(costs)
    if name != "us" or parts.keys() != {"once", "hop"}:
        raise ValueError(
            f"zero_load_latency: costs must be paper, kernel or {EXAMPLE}, got {costs}"
        )
    return {part: cost_us(part, text) for part, text in parts.items()}


def cost_us(part: str, text: str) -> float:
    """Return the number of microseconds `text`; raise ValueError if it is none."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise ValueError(f"zero_load_latency: {part} must be a number of microseconds, got {text}")
    return value


def measure_model(run: Run) -> Result:
    """Measure the latency of a hop and of a mean route, and the share of the search."""
    flows = CODES[run.text("code")]
    mean_hops = routed(run, uniform(run, 500_000)).mean_hops
    assert mean_hops is not None  # nothing is dead
    search_s = seconds_compiled if run.text("code") == "compiled" else seconds_python
    routing_us = 1e6 * search_s(run, uniform(run, flows)) / flows / mean_hops
    costs = costs_of(run.text("costs"))
    hop_us = routing_us + costs["hop"]
    return Result(
        {
            "mean_hops": mean_hops,
            "routing_us": routing_us,
            "hop_us": hop_us,
            "latency_ms": (costs["once"] + mean_hops * hop_us) / 1000,
        }
    )


def seconds_compiled(run: Run, pairs: Pairs) -> float:
    """Return the CPU time (s) that the graph engine takes for `pairs`."""
    net = Graph(graph_of(run).network, threads=1)
    tries = policy_of(run)
    net.route(tries, pairs._replace(total=100), loads=True)  # fills tables and compiles
    rounds = []
    for _ in range(ROUNDS):
        begin_s = clock.cpu_s()
        net.route(tries, pairs, loads=True)
        rounds.append(clock.cpu_s() - begin_s)
    return min(rounds)


def seconds_python(run: Run, pairs: Pairs) -> float:
    """Return the CPU time (s) that the daemons' Python functions take for `pairs`."""
    network = graph_of(run).network
    tries = policy_of(run)
    table = tabulate(network.rule, network.t, min(1, len(network.t) - 1))
    with np.errstate(over="ignore"):  # of unsigned words
        ends = [tuple(map(int, pair(pairs, index))) for index in range(pairs.total)]
    begin_s = clock.cpu_s()
    for src, dst in ends:
        proxy = -1
        if run.text("routing") != "dr":
            _, proxy = search(table, tries, shortest_first, parting(network.t, src, dst), (), 1, [])
        route(network.rule, network.t, src, dst, proxy)
    return clock.cpu_s() - begin_s


MODEL = Experiment(
    name="zero_load_latency",
    question="How long does a packet take through an idle network?",
    source="CCRDN, sections 6.6 and 7.4, table 2",
    engines=("graph",),
    axes={
        "topology": TOPOLOGY.over("ficonn:n=10,k=3", "dcell:n=4,k=3", "beta-dcell:n=4,k=3"),
        "routing": ROUTES.over("dr", "pr-gp0", "pr-gpi", "pr-gpe"),
        "code": Word(
            "whose search for a route is timed: the graph engine's, or a daemon's",
            words=[*CODES],
        ).over("compiled"),
        "costs": Spec(
            "what stack, propagation and transmission cost",
            form=f"paper, kernel or {EXAMPLE}",
            check=costs_of,
        ).over(*COSTS_US),
        "apply": common.APPLY.over("algorithm"),
    },
    columns={
        "mean_hops": "mean length of a route",
        "routing_us": "processor time of the search for a route, divided by its hops",
        "hop_us": "latency of one hop: routing_us and the costs",
        "latency_ms": "latency of a mean route without load",
    },
    timed_columns=("routing_us", "hop_us", "latency_ms"),
    seeds=1,
    version=2,
    takes_s=13,
    measure=measure_model,
    plot=Bars(
        columns={"latency_ms": "latency of a mean route through an idle network (ms)"},
        by=("routing", "code"),
        facet=("topology", "costs", "apply"),
        always=2,
    ),
    check=check,
)


EMPTY_BYTES, FULL_BYTES = 4, 1472  # of ICMP payload
MOST_TRACED = 500  # unordered pairs
INTERVAL_MS = 1.0
QUEUE_PACKETS = 250
TIMED = 300  # flows whose search is timed
PARTS = ("stack_us", "propagation_us", "data_us", "routing_us")


def measure_kernel(run: Run) -> Result:
    """Measure round-trip times by hops, the parts of the model, and a line through them."""
    routing = asking(run.text("routing"), run.integer("questions_per_s"))
    return measured(run, lambda net: pings(net, run, routing), routing=routing, link=link(run))


def link(run: Run) -> LinkSpec | None:
    """Return the links of `run`; None if they have neither rate nor delay."""
    if not run.integer("rate_mbps"):
        return None
    return LinkSpec(
        rate_bps=run.integer("rate_mbps") * Mbps,
        queue_packets=QUEUE_PACKETS,
        delay_us=run.integer("delay_us"),
    )


def pings(net: RunningNetwork, run: Run, routing: str) -> Row:
    """Return all figures of the run."""
    topology = net.topology
    pairs = some_pairs(topology.servers, MOST_TRACED, run.generator())
    settled = reachability.wait_for_paths(net, pairs, lengths(topology, routing, pairs))
    hops = {pair: len(path) - 1 for pair, path in reachability.traced(net, pairs).items()}
    times = round_trips(net, by_hops(hops, run.integer("pairs")), run.integer("pings"))
    counts = Counter(hops.values())
    mean_hops = sum(length * count for length, count in counts.items()) / len(hops)
    parts = components(times, routing_us(topology, routing, pairs) / mean_hops)
    hop_us = sum(parts.values())
    return {
        "settled": settled,
        "mean_hops": mean_hops,
        **parts,
        "hop_us": hop_us,
        "model_latency_us": mean_hops * hop_us,
        **latencies(times.full, counts),
    }


def latencies(times: dict[int, list[float]], pairs_by_hops: Counter[int]) -> Row:
    """Return the mean latency over pairs of full frames, the line through all, and the times.

    `times` are round-trip times (us) by hops.
    """
    one_way_us = {length: median(rtts_us) / 2 for length, rtts_us in times.items()}
    total_us = sum(one_way_us[length] * count for length, count in pairs_by_hops.items())
    base_us, slope_us, fit = line(
        [(length, rtt_us / 2) for length, rtts_us in times.items() for rtt_us in rtts_us]
    )
    return {
        "latency_us": total_us / pairs_by_hops.total(),
        "fitted_base_us": base_us,
        "fitted_hop_us": slope_us,
        "fitted_r2": fit,
        "hops": [length for length, rtts_us in times.items() for _ in rtts_us],
        "rtts_us": [round(rtt_us, 1) for rtts_us in times.values() for rtt_us in rtts_us],
    }


def by_hops(hops: dict[Pair, int], most: int) -> dict[int, list[Pair]]:
    """Return at most `most` of the pairs for each number of hops."""
    return {
        length: [pair for pair, count in hops.items() if count == length][:most]
        for length in sorted(set(hops.values()))
    }


class RoundTrips(NamedTuple):
    """Round-trip times in us.

    full: of full frames, by hops.
    itself: of empty packets to oneself.
    near_empty, near_full: to another server of the same switch.
    """

    full: dict[int, list[float]]
    itself: list[float]
    near_empty: list[float]
    near_full: list[float]


def rtts_us(
    net: RunningNetwork, pair: Pair, size_bytes: int, spec: dict[str, Any]
) -> Sequence[float]:
    """Return the round-trip times of one pair without the first."""
    return ping.ping(net, [pair], size_bytes=size_bytes, **spec).pings[0].rtts_us[1:]


def round_trips(
    net: RunningNetwork, pairs_by_hops: dict[int, list[Pair]], count: int
) -> RoundTrips:
    """Ping `count` times each; in rounds, so that a disturbance of the machine affects all kinds.

    The first packet of each ping is left out: no cache knows its path.
    """
    spec: dict[str, Any] = {"count": count + 1, "interval_ms": INTERVAL_MS}
    times = RoundTrips({length: [] for length in pairs_by_hops}, [], [], [])
    for number in range(max(map(len, pairs_by_hops.values()))):
        src = number % net.topology.servers
        mate = net.topology.neighbours(src)[0][0]  # port 0 leads to the switch
        times.near_empty.extend(rtts_us(net, (src, mate), EMPTY_BYTES, spec))
        times.near_full.extend(rtts_us(net, (src, mate), FULL_BYTES, spec))
        times.itself.extend(rtts_us(net, (src, src), EMPTY_BYTES, spec))
        for length, pairs in pairs_by_hops.items():
            pair = pairs[number % len(pairs)]
            times.full[length].extend(rtts_us(net, pair, FULL_BYTES, spec))
    return times


def components(times: RoundTrips, routing_us: float) -> dict[str, float]:
    """Return the parts of a hop's latency, as CCRDN 7.4 derives them from medians of pings."""
    stack_us, empty_us, full_us = map(median, (times.itself, times.near_empty, times.near_full))
    propagation_us = empty_us / 2 - stack_us
    return {
        "stack_us": stack_us,
        "propagation_us": propagation_us,
        "data_us": full_us / 2 - stack_us - propagation_us,
        "routing_us": routing_us,
    }


def routing_us(topology: Topology, routing: str, pairs: Sequence[Pair]) -> float:
    """Return the CPU time of a daemon's search for the path of a flow; 0 for a scheme without."""
    find = finder(topology, routing)
    if find is None:
        return 0.0
    timed = pairs[:TIMED]
    find(*timed[0])
    begin_s = clock.cpu_s()
    for src, dst in timed:
        find(src, dst)
    return 1e6 * (clock.cpu_s() - begin_s) / len(timed)


def finder(topology: Topology, routing: str) -> Callable[[int, int], object] | None:
    """Return the function that finds the path from source to destination under `routing`."""
    scheme, options = registry.scheme(routing)
    if scheme.name == "bfs":
        return partial(shortest.route, topology.adjacency)
    network: Any = getattr(topology.naming, "network", None)
    if scheme.name == "dr":
        return partial(dr.route, network.rule, network.t)
    if scheme.name not in METHODS:
        return None
    level = options["level"] or network.k
    tries = policy(scheme.name, least_level=level, condition1=bool(options["condition1"]))
    table = tabulate(network.rule, network.t, 1)

    def find(src: int, dst: int) -> list[int]:
        _, proxy = search(table, tries, shortest_first, parting(network.t, src, dst), (), 1, [])
        return route(network.rule, network.t, src, dst, proxy)

    return find


def line(points: Sequence[tuple[int, float]]) -> tuple[float, float, float]:
    """Return base, slope and R^2 of the least-squares line through the median at each x."""
    values: dict[int, list[float]] = {x: [] for x in sorted({x for x, _ in points})}
    for x_value, y_value in points:
        values[x_value].append(y_value)
    x = np.array(list(values), float)
    y = np.array([median(group) for group in values.values()])
    if len(x) < 2:
        return 0.0, float(y[0] / x[0]), 1.0
    slope, base = np.polyfit(x, y, 1)
    variation = float(((y - y.mean()) ** 2).sum())
    residual = float(((y - base - slope * x) ** 2).sum())
    return float(base), float(slope), 1 - residual / variation if variation else 1.0


def check_kernel(run: Run) -> None:
    """Raise ValueError unless the scheme of `run` suits its network, and hops take time."""
    common.server_centric(run)
    common.check_routing(run)
    if not run.integer("rate_mbps") and (run.clock == "virtual" or run.integer("delay_us")):
        why = "a hop takes no time there" if run.clock == "virtual" else "a delay is a link's"
        raise ValueError(
            f"proxy_latency: rate_mbps must be at least 1 (--clock {run.clock}), since {why}"
        )


SWEEPS = (Sweep("proxy_latency", {"clock": "virtual", "rate_mbps": 100}),)
KERNEL = Experiment(
    name="proxy_latency",
    question=(
        "How long does a packet take through an idle network, hop by hop, and does CCRDN's model "
        "predict it?"
    ),
    source="CCRDN, sections 6.6 and 7.4, table 2, on the kernel",
    engines=("kernel",),
    clock="real",
    axes={
        "topology": common.TOPOLOGY.over("dcell:n=4,k=1", "ficonn:n=4,k=2"),
        "routing": common.ROUTING.over(*EVERYWHERE),
        "pairs": Integer(
            "pairs of servers of each length of path", unit="pairs", least=1, most=10_000
        ).over(30),
        "pings": Integer("pings of each pair", unit="pings", least=2, most=10_000).over(20),
        "rate_mbps": Integer(
            "rate of every link; 0: none", unit="Mbit/s", least=0, most=100_000
        ).over(0),
        "delay_us": Integer(
            "delay of every link, one way", unit="us", least=0, most=1_000_000
        ).over(0),
        "questions_per_s": common.QUESTIONS_PER_S.over(20),
        "processes": common.PROCESSES.over(2),
    },
    columns={
        "settled": "whether all paths were those of the graph before the measurement",
        "mean_hops": "mean path, by traceroute",
        "stack_us": "part of a hop: a ping to oneself",
        "propagation_us": (
            "part of a hop: half an empty ping to a server of the same switch, without stack_us"
        ),
        "data_us": "part of a hop: the extra time of a full frame",
        "routing_us": "part of a hop: processor time of the search for a path, divided by its hops",
        "hop_us": "sum of the parts of a hop",
        "model_latency_us": "mean_hops times hop_us, the model of section 7.4",
        "latency_us": "half a round trip of a full frame, measured, mean over pairs",
        "fitted_base_us": (
            "where the straight line through the measured latencies begins, at no hops"
        ),
        "fitted_hop_us": "slope of the fit: the time of a hop",
        "fitted_r2": "how well it fits (R^2)",
        "hops": "list: hops of each ping",
        "rtts_us": "list: round-trip time of each ping",
    },
    seeds=1,
    takes_s=130,
    measure=measure_kernel,
    plot=Stack(
        Curves(
            columns={"rtts_us": "round trip of a full frame (µs)"},
            x="hops",
            series="routing",
            facet=("topology",),
            rows=partial(exploded, columns=("hops", "rtts_us"), index="ping"),
        ),
        Bars(
            columns={
                "latency_us": "latency of a mean path (µs)",
                "hop_us": "latency of a hop by the model (µs)",
                **{key: f"{key.removesuffix('_us')} part of a hop (µs)" for key in PARTS},
            },
            by=("routing",),
            facet=("topology",),
            strokes={
                "latency_us": {"model_latency_us": "the model"},
                "hop_us": {"fitted_hop_us": "slope of the pings"},
            },
        ),
    ),
    check=check_kernel,
)
