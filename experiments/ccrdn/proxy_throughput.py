"""What does TCP make of a DCell, beta-DCell or FiConn under each scheme, and is it what the flows
on its links predict?

CCRDN, sections 6.5 and 7.3, small and with real TCP: every flow sends as fast as it can, for some
seconds.  Beside the goodput of all flows together, and that of the slowest, stand

    the paper's figures     F flows, rate b, B flows on the fullest link: RAT = F b / B, UAT = F b /
                            (mean flows of a link), from the graph engine's loads for the same pairs
    max-min fair rates      over the paths that packets really took, traced while the flows ran, or
                            right after where full queues lost the probes

all of them payload, in the share that it has of a full packet.  Rates are scaled down from the
paper's 1 Gbit/s; TCP's timers are not.  PR's sources may ask `questions_per_s`, more than usually.
Acknowledgements, which take 2 to 4 % of the other direction, are in no prediction.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.daemons.core import registry
from weft.daemons.dfr import scheme as dfr
from weft.daemons.proxy.routing import SHORTEST, cost_of
from weft.experiments.ccrdn import kernel_columns
from weft.experiments.ccrdn.network_figures import network_label
from weft.experiments.ccrdn.recursive import traffic
from weft.experiments.engines import common_parameters as common
from weft.experiments.engines.flow_placement import Placement
from weft.experiments.engines.fluid import fair_rates
from weft.experiments.engines.graph import METHODS, graph, policy
from weft.experiments.engines.pairs import Pairs, pair
from weft.experiments.engines.predicted_paths import EVERYWHERE, Pair, asking, lengths
from weft.experiments.report import figures, style
from weft.experiments.runner.definition import Experiment, Result, Run, Table, Value
from weft.topologies import build
from weft.topologies.core.grammar import parse
from weft.topologies.core.link import Mbps
from weft.topologies.recursive.ccrdn import common_level

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from weft.testbed.mininet.net import Net

WARM_UP_S = 3.0  # in which TCP finds its rate, and PR asks its paths, loaded, once or twice
MOST_FLOWS = 2000


def measure(run: Run) -> Result:
    """Goodput of all flows and of the slowest, and what is fair on the paths that they took."""
    from weft.testbed.measure.fidelity import Fidelity
    from weft.testbed.mininet.net import Net

    pairs = listed(traffic(run, run.text("traffic")))
    packed = run.integer("processes")
    routing = asking(run.text("routing"), run.integer("questions_per_s"))
    made = Net(build(run.text("topology")), link=common.link(run), routing=routing, packed=packed)
    with made as net, Fidelity(net) as fidelity:
        goodputs, paths = flow(net, run, pairs)
    report = fidelity.report
    return Result(
        figures={
            "flows": len(pairs),
            "goodput_bps": sum(goodputs),
            "slowest_flow_bps": min(goodputs),
            "goodputs_bps": [round(one) for one in goodputs],
            **on_paths(run.text("topology"), paths, payload_bps(run)),
        },
        fidelity=report.verdict,
        circumstances={"fidelity_report": report.as_dict()},
    )


def listed(chosen: Pairs) -> list[Pair]:
    """The pairs one after the other."""
    with np.errstate(over="ignore"):  # of unsigned words
        return [
            (int(src), int(dst))
            for src, dst in (pair(chosen, index) for index in range(chosen.total))
        ]


def payload_bps(run: Run) -> float:
    """What of a link's rate is TCP's payload."""
    from weft.experiments.engines.fabric_run import PAYLOAD_FRACTION

    return run.integer("rate_mbps") * Mbps * PAYLOAD_FRACTION


def flow(net: Net, run: Run, pairs: Sequence[Pair]) -> tuple[list[float], list[tuple[int, ...]]]:
    """The goodput of each pair's endless flow in bit/s, and the path of each, traced meanwhile; no
    paths if one of them could not be traced."""
    from weft.experiments.engines import reachability
    from weft.experiments.engines.workloads import endless
    from weft.testbed.measure.traceroute import trace
    from weft.testbed.traffic import flows

    apart = list(dict.fromkeys(pairs))
    reachability.wait_for_paths(net, apart, lengths(net.topology, net.routing, apart))
    paths: dict[Pair, tuple[int, ...]] = {}

    def look() -> None:
        left = [pair for pair in apart if pair not in paths]
        paths.update({(one.src, one.dst): one.nodes for one in trace(net, left) if not one.reason})

    warm_up_s = min(WARM_UP_S, run.number("seconds"))
    # beside the flows, which go on in the thread that calls
    looking = threading.Thread(target=look)
    table = flows.run(
        net,
        endless(list(pairs)),
        deadline_s=warm_up_s + run.number("seconds"),
        warm_up_s=warm_up_s,
        congestion_control=run.text("congestion_control"),
        at_warm_up=looking.start,
        # Linux repeats a lost handshake after a second, which may be longer than all of this
        open_before=True,
    )
    looking.join()
    look()  # for those whose probes were lost in full queues
    goodputs = [8 * one.received_bytes / table.measured_s for one in table.results]
    return goodputs, [paths[one] for one in pairs] if len(paths) == len(apart) else []


def on_paths(
    topology: str, paths: Sequence[tuple[int, ...]], payload_bps: float
) -> dict[str, Value]:
    """Flows on the fullest link of these paths, their mean hops, and what is fair on them."""
    if not paths:
        return {
            "bottleneck_flows": None,
            "mean_hops": None,
            "fair_bps": None,
            "slowest_fair_bps": None,
        }
    net = graph(topology)
    found = [channels(net.network.t, path) for path in paths]
    routes = np.zeros((len(found), max(map(len, found))), np.int32)
    for row, own in zip(routes, found, strict=True):
        row[: len(own)] = own
    loads = np.bincount(np.concatenate(found), minlength=net.channels)
    rates, each = np.zeros(len(found)), np.array([len(one) for one in found])
    fair_rates(np.arange(len(found)), routes, each, loads, payload_bps, True, rates)
    return {
        "bottleneck_flows": int(loads.max()),
        "mean_hops": float(np.mean([len(path) - 1 for path in paths])),
        "fair_bps": float(rates.sum()),
        "slowest_fair_bps": float(rates.min()),
    }


def channels(t: Sequence[int], path: Sequence[int]) -> list[int]:
    """The channels, as in daemons/routing/path_tables.py, of a path from server to server."""
    ports, found = len(t) + 1, []
    for here, there in pairwise(path):
        level = common_level(t, here, there)
        found.append(here * ports + level)
        if level == 0:
            found.append((there + 1) * ports - 1)
    return found


def on_graph(run: Run) -> dict[str, Value]:
    """RAT and UAT by the graph engine's loads for the same pairs; None for a scheme that it counts
    no flows for."""
    chosen = traffic(run, run.text("traffic"))
    scheme, options = registry.scheme(run.text("routing"))
    net = graph(run.text("topology"))
    if scheme.name == "dr" or scheme.name in METHODS:
        choice = options.get("choice", SHORTEST)
        tries = policy(scheme.name, least_level=options.get("level", 0) or net.k, choice=choice)
        found = net.route(
            tries, chosen, loads=True, balanced=scheme.name != "dr", cost=cost_of(choice)
        )
    elif scheme.name == "dfr":
        found = net.reroute(dfr.settings(net.network, options), chosen, loads=True)
    elif scheme.name == "tar":
        found = net.probe(chosen, placement=Placement(options["relay"]))
    else:
        return {
            "graph_rat_bps": None,
            "graph_uat_bps": None,
            "graph_bottleneck_flows": None,
            "graph_mean_hops": None,
        }
    assert found.loads is not None
    loads = found.loads[net.wired]
    return {
        "graph_rat_bps": chosen.total * payload_bps(run) / int(loads.max()),
        "graph_uat_bps": chosen.total * payload_bps(run) / float(loads.mean()),
        "graph_bottleneck_flows": int(loads.max()),
        "graph_mean_hops": found.mean_hops,
    }


def check(run: Run) -> None:
    """ValueError unless scheme and traffic go with the network, and the flows are not too many for
    one machine."""
    common.server_centric(run)
    common.check_routing(run)
    flows = traffic(run, run.text("traffic")).total
    if flows > MOST_FLOWS:
        raise ValueError(
            f"proxy_throughput: at most {MOST_FLOWS} flows, {run.text('traffic')} is {flows}"
        )
    common.check_tcp(run)
    common.check_delay(run)


def plot(table: Table, figure: Figure) -> None:
    """Aggregate goodput of each scheme, for each network and kind of traffic, beside what is
    predicted."""
    networks = list(dict.fromkeys(str(row["topology"]) for row in table))
    kinds = list(dict.fromkeys(str(row["traffic"]) for row in table))
    looks = style.lines(style.in_order(str(row["routing"]) for row in table))
    figure.set_size_inches(4.0 * len(kinds), 3.2 * len(networks) + 0.8)
    grid = figure.subplots(len(networks), len(kinds), squeeze=False)
    for row_of, network in zip(grid, networks, strict=True):
        for axes, kind in zip(row_of, kinds, strict=True):
            for y, spec in enumerate(looks):
                rows = [
                    r
                    for r in table
                    if (r["topology"], r["traffic"], r["routing"]) == (network, kind, spec)
                ]
                compare(axes, y, rows, looks[spec][0])
            axes.set_yticks(range(len(looks)), [look.label for look, _ in looks.values()])
            axes.invert_yaxis()
            axes.grid(axis="y", visible=False)
            axes.set_title(f"{network_label(network)}, {parse(kind)[0]}")
            axes.set_xlim(0, None)
    for axes in grid[-1]:
        axes.set_xlabel("goodput of all flows (Mbit/s)")
    legend(figure)


def compare(axes: Axes, y: float, rows: Sequence[Any], look: style.SeriesStyle) -> None:
    """A bar for the goodput, and marks for what is predicted; means over the seeds."""
    if not rows:
        return
    hollow = any(figures.failed_fidelity(row) for row in rows)
    width = np.mean([row["goodput_bps"] for row in rows]) / Mbps
    face = "none" if hollow else look.colour
    axes.barh(y, width, height=0.6, color=face, alpha=0.55)
    axes.barh(y, width, height=0.6, color="none", edgecolor=look.colour)
    for key, (marker, _) in MARKS.items():
        known = [row[key] for row in rows if row[key] is not None]
        if known:
            axes.plot(
                np.mean(known) / Mbps,
                y,
                marker,
                color=style.INK,
                markersize=5,
                markerfacecolor="none",
            )


MARKS = {
    "graph_rat_bps": ("<", "RAT, by the graph engine's fullest link"),
    "graph_uat_bps": (">", "UAT, by its mean link"),
    "fair_bps": ("|", "max-min fair on the real paths"),
}


def legend(figure: Figure) -> None:
    """What the marks mean."""
    from matplotlib.lines import Line2D

    marks = [
        Line2D(
            [],
            [],
            marker=marker,
            color=style.INK,
            linestyle="none",
            markerfacecolor="none",
            label=label,
        )
        for marker, label in MARKS.values()
    ]
    figure.legend(handles=marks, ncols=len(marks), loc="outside upper center")


EXPERIMENT = Experiment(
    name="proxy_throughput",
    question="What does TCP make of the network under each scheme, and is it what the flows "
    "on its links predict?",
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
    columns=kernel_columns.PROXY_THROUGHPUT,
    seeds=1,
    version=2,
    takes_s=510,
    measure=measure,
    predict=on_graph,
    plot=plot,
    check=check,
)
