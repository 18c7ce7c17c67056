"""Goodput of TCP on DCell, beta-DCell and FiConn, beside what the link loads predict.

CCRDN, sections 6.5 and 7.3, small and with real TCP: every flow sends as fast as it can, for some
seconds.  Beside the goodput of all flows, and that of the slowest, stand

    the paper's figures     F flows, rate b, B flows on the fullest link: RAT = F b / B, UAT = F b /
                            (mean flows of a link), from the graph engine's loads for the same pairs
    max-min fair rates      over the paths that packets took, traced while the flows ran, or right
                            after them if full queues lost the probes

All of them count payload, in its share of a full packet.  Rates are scaled down from the paper's
1 Gbit/s; TCP's timers are not.  PR's sources may probe `questions_per_s` paths, more than by
default.  No prediction includes acknowledgements, which take 2 to 4 % of the other direction.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np

from weft.daemons.core import registry
from weft.daemons.dfr import scheme as dfr
from weft.daemons.proxy.routing import SHORTEST, cost_of
from weft.experiments.ccrdn.recursive import traffic
from weft.experiments.engines import common_parameters as common
from weft.experiments.engines import reachability
from weft.experiments.engines.flow_placement import Placement
from weft.experiments.engines.fluid import fair_rates
from weft.experiments.engines.graph import METHODS, graph, graph_of, policy
from weft.experiments.engines.kernel_run import PAYLOAD_FRACTION, measured
from weft.experiments.engines.loops import Tally
from weft.experiments.engines.pairs import Pairs, pair
from weft.experiments.engines.routes import EVERYWHERE, Pair, asking, lengths
from weft.experiments.engines.workloads import endless
from weft.experiments.report.claims import Sweep
from weft.experiments.report.panels import Bars
from weft.experiments.runner.definition import Experiment, Result, Row, Run
from weft.testbed.measure.traceroute import trace
from weft.testbed.network.network import RunningNetwork
from weft.testbed.traffic import flows
from weft.topologies.core.link import Mbps
from weft.topologies.recursive.ccrdn import common_level

WARM_UP_S = 3.0  # TCP finds its rate, and PR probes its loaded paths once or twice
MOST_FLOWS = 2000


def measure(run: Run) -> Result:
    """Measure the goodput of all flows and of the slowest, and the fair rates on their paths."""
    routing = asking(run.text("routing"), run.integer("questions_per_s"))
    return measured(
        run, lambda net: goodputs(net, run, routing), routing=routing, link=common.link(run)
    )


def goodputs(net: RunningNetwork, run: Run, routing: str) -> Row:
    """Run the flows of `run` and return their goodput, beside the fair rates on their paths."""
    pairs = listed(traffic(run, run.text("traffic")))
    distinct = list(dict.fromkeys(pairs))
    reachability.wait_for_paths(net, distinct, lengths(net.topology, routing, distinct))
    paths: dict[Pair, tuple[int, ...]] = {}
    # paths are traced while this thread runs the flows
    tracing = threading.Thread(target=trace_missing, args=(net, distinct, paths))
    goodputs_bps = send(net, run, pairs, at_warm_up=tracing.start)
    tracing.join()
    trace_missing(net, distinct, paths)  # full queues may have lost probes
    every_path = [paths[ends] for ends in pairs] if len(paths) == len(distinct) else []
    return {
        "flows": len(pairs),
        "goodput_bps": sum(goodputs_bps),
        "slowest_flow_bps": min(goodputs_bps),
        "goodputs_bps": [round(goodput_bps) for goodput_bps in goodputs_bps],
        **on_paths(run.text("topology"), every_path, payload_bps(run)),
    }


def listed(pairs: Pairs) -> list[Pair]:
    ends = []
    with np.errstate(over="ignore"):  # of unsigned words
        for index in range(pairs.total):
            src, dst = pair(pairs, index)
            ends.append((int(src), int(dst)))
    return ends


def payload_bps(run: Run) -> float:
    """Return the rate of TCP's payload on a full link."""
    return run.integer("rate_mbps") * Mbps * PAYLOAD_FRACTION


def send(
    net: RunningNetwork, run: Run, pairs: Sequence[Pair], *, at_warm_up: Callable[[], None]
) -> list[float]:
    """Run an endless flow for each pair and return the goodputs (bit/s)."""
    warm_up_s = min(WARM_UP_S, run.number("seconds"))
    table = flows.run(
        net,
        endless(list(pairs)),
        flows.FlowOptions(
            deadline_s=warm_up_s + run.number("seconds"),
            warm_up_s=warm_up_s,
            congestion_control=run.text("congestion_control"),
            at_warm_up=at_warm_up,
            # Linux repeats a lost handshake after a second, which may exceed the whole run
            open_before=True,
        ),
    )
    return [8 * result.received_bytes / table.measured_s for result in table.results]


def trace_missing(
    net: RunningNetwork, pairs: Sequence[Pair], paths: dict[Pair, tuple[int, ...]]
) -> None:
    """Trace those of `pairs` that `paths` lacks, and add their paths."""
    for path in trace(net, [ends for ends in pairs if ends not in paths]):
        if not path.reason:
            paths[path.src, path.dst] = path.nodes


def on_paths(topology: str, paths: Sequence[tuple[int, ...]], payload_bps: float) -> Row:
    """Return the flows on the fullest link of `paths`, their mean hops, and their fair rates."""
    if not paths:
        return dict.fromkeys(("bottleneck_flows", "mean_hops", "fair_bps", "slowest_fair_bps"))
    net = graph(topology)
    count = len(paths)
    crossed = [channels(net.network.t, path) for path in paths]
    links = np.array([len(row) for row in crossed])
    routes = np.zeros((count, links.max()), np.int32)
    for row, path in zip(routes, crossed, strict=True):
        row[: len(path)] = path
    loads = np.bincount(np.concatenate(crossed), minlength=net.channels)
    rates = np.zeros(count)
    fair_rates(np.arange(count), routes, links, None, loads, payload_bps, rates)
    return {
        "bottleneck_flows": loads.max(),
        "mean_hops": np.mean([len(path) - 1 for path in paths]),
        "fair_bps": rates.sum(),
        "slowest_fair_bps": rates.min(),
    }


def channels(t: Sequence[int], path: Sequence[int]) -> list[int]:
    """Return the channels (daemons/routing/path_tables.py) of a path from server to server."""
    ports = len(t) + 1
    crossed = []
    for server, peer in pairwise(path):
        level = common_level(t, server, peer)
        crossed.append(server * ports + level)
        if level == 0:
            crossed.append((peer + 1) * ports - 1)
    return crossed


def on_graph(run: Run) -> Row:
    """Predict RAT and UAT from the graph engine's loads for the same pairs.

    None each for a scheme whose flows the graph engine cannot place.
    """
    tally = placed(run)
    if tally is None:
        columns = ("rat_bps", "uat_bps", "bottleneck_flows", "mean_hops")
        return {f"graph_{column}": None for column in columns}
    assert tally.loads is not None
    loads = tally.loads[graph_of(run).wired]
    offered_bps = traffic(run, run.text("traffic")).total * payload_bps(run)
    return {
        "graph_rat_bps": offered_bps / int(loads.max()),
        "graph_uat_bps": offered_bps / float(loads.mean()),
        "graph_bottleneck_flows": loads.max(),
        "graph_mean_hops": tally.mean_hops,
    }


def placed(run: Run) -> Tally | None:
    """Return the graph engine's tally of the flows of `run`; None if it lacks the scheme."""
    pairs = traffic(run, run.text("traffic"))
    scheme, options = registry.scheme(run.text("routing"))
    net = graph_of(run)
    if scheme.name == "dfr":
        return net.reroute(dfr.settings(net.network, options), pairs, loads=True)
    if scheme.name == "tar":
        return net.probe(pairs, placement=Placement(options["relay"]))
    if scheme.name != "dr" and scheme.name not in METHODS:
        return None
    choice = options.get("choice", SHORTEST)
    tries = policy(scheme.name, least_level=options.get("level", 0) or net.k, choice=choice)
    balanced = scheme.name != "dr"
    return net.route(tries, pairs, loads=True, balanced=balanced, cost=cost_of(choice))


def check(run: Run) -> None:
    """Raise ValueError unless scheme and traffic suit the network, and one machine can run it."""
    common.server_centric(run)
    common.check_routing(run)
    flows = traffic(run, run.text("traffic")).total
    if flows > MOST_FLOWS:
        raise ValueError(
            f"proxy_throughput: at most {MOST_FLOWS} flows, {run.text('traffic')} is {flows}"
        )
    common.check_tcp(run)
    common.check_delay(run)


SWEEPS = (Sweep("proxy_throughput", {"clock": "virtual", "topology": "ficonn:n=4,k=2"}),)
EXPERIMENT = Experiment(
    name="proxy_throughput",
    question=(
        "Which throughput does TCP reach under each scheme, and do the flows on its links "
        "predict it?"
    ),
    source="CCRDN, sections 6.5 and 7.3, figure 13, on the kernel",
    engines=("kernel",),
    axes={
        "topology": common.TOPOLOGY.over("dcell:n=4,k=1", "ficonn:n=4,k=2"),
        "routing": common.ROUTING.over(*EVERYWHERE),
        "traffic": common.TRAFFIC.over("uniform:flows=60", "many-all-to-all:group=5", "one-to-all"),
        "rate_mbps": common.RATE_MBPS.over(5),
        "queue_packets": common.QUEUE_PACKETS.over(50),
        "delay_us": common.DELAY_US.over(0),
        "congestion_control": common.CONGESTION_CONTROL.over("cubic"),
        "seconds": common.PART_OF_SECONDS.over(5.0),
        "questions_per_s": common.QUESTIONS_PER_S.over(20),
        "processes": common.PROCESSES.over(2),
    },
    columns={
        "flows": "TCP flows",
        "goodput_bps": "payload of all flows that arrives in a second",
        "slowest_flow_bps": "goodput of the slowest flow",
        "goodputs_bps": "list: goodput of each flow",
        "bottleneck_flows": (
            "flows on the fullest directed link, by the paths traced; null if a "
            "path could not be traced"
        ),
        "mean_hops": "mean path, by traceroute",
        "fair_bps": "payload of all flows if they shared their paths' links max-min fairly",
        "slowest_fair_bps": "that of the slowest",
        "graph_rat_bps": (
            "prediction of the graph engine, RAT: all flows get the fullest link's share"
        ),
        "graph_uat_bps": "prediction of the graph engine, UAT: all links are loaded alike",
        "graph_bottleneck_flows": "flows on the fullest directed link by the graph engine",
        "graph_mean_hops": "mean path by the graph engine",
    },
    seeds=1,
    version=2,
    takes_s=510,
    measure=measure,
    predict=on_graph,
    plot=Bars(
        columns={"goodput_bps": "goodput of all flows", "slowest_flow_bps": "of the slowest flow"},
        by=("routing",),
        facet=("topology", "traffic"),
        always=2,
        strokes={
            "goodput_bps": {
                "fair_bps": "max-min fair on the real paths",
                "graph_rat_bps": "RAT, by the graph engine's fullest link",
                "graph_uat_bps": "UAT, by its mean link",
            },
            "slowest_flow_bps": {"slowest_fair_bps": "max-min fair on the real paths"},
        },
    ),
    check=check,
)
