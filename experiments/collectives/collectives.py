"""Completion times of collective operations, and of traces, by network and scheme.

The default sweep asks which network and which routing finishes an all-reduce first: networks that
cost about the same in total, and 128 ranks on each.  equal_cost.py varies all that decides it.

A rank has a host of its own.  The first iteration warms connections up, and is not counted.  With
`trace` the schedule is that of a GOAL file, whose computations pass as time; the trace
`training-step` is in this folder.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING

import numpy as np

from weft.experiments.collectives import equal_cost, message_cost, replays
from weft.experiments.engines import common_parameters as common
from weft.experiments.fatpaths import table_iv, transports
from weft.experiments.fatpaths.layered_network import ECN_PACKETS
from weft.experiments.fatpaths.topology_cost import PRICES, of_a_host
from weft.experiments.report import style
from weft.experiments.report.panels import Bars, Curves, Stack, number_of, select
from weft.experiments.runner.definition import Experiment, Result, Row, Run, Table
from weft.experiments.runner.parameters import Integer, Spec, Word
from weft.experiments.runner.rows import grouped
from weft.testbed.schedules import collectives, goal
from weft.testbed.schedules.goal import Schedule
from weft.testbed.schedules.tasks import TaskGraph
from weft.topologies.core.placement import PLACEMENTS, RANDOM, place_ranks
from weft.topologies.core.topology import Topology, require_one_plane

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLLECTIVES = {
    "hosts": "hosts of the network",
    "host_cost_usd": "cost of a host by the model of topology_cost, at its prices",
    "completion_ms": (
        "time of an iteration up to its last rank, mean; null if a message did not arrive"
    ),
    "rank_mean_ms": "time of a rank in an iteration, mean",
    "rank_p99_ms": "99th percentile of that over iterations and ranks",
    "bus_bps": (
        "bus bandwidth as nccl-tests define it, from completion_ms; null for operations "
        "without one, and for traces"
    ),
    "unfinished": "messages that did not arrive in time",
    "late_packets": (
        "packets that arrived behind a later one of their flow; null for the transport ndp, which "
        "has no order, and on the graph"
    ),
    "repeated_packets": "packets that were sent again; null on the graph",
    "fullest_link_fraction": (
        "bits on the most loaded link in one direction, of what it can carry in that time"
    ),
    "alpha_beta_ms": (
        "least time of the schedule with each message alone, or of the busiest host's links"
    ),
    "cut_ms": "least time that the messages across the worst examined cut of the network take",
}


NO_TRACE = "none"
TRACES = {"training-step": Path(__file__).with_name("training_step.goal")}
MOST_BYTES = {"graph": 10**9, "packet": 1 << 26, "kernel": 1 << 26}
GRACE_S, PATIENCE = 1.0, 100  # a run ends after so many seconds and times the bound
SETTING = ("transport", "ranks", "placement", "rate_mbps", "frame_bytes", "trace", "engine")
TIME = {"completion_ms": "up to the last rank (ms)"}


def schedule_of(run: Run) -> Schedule:
    """Return the schedule of the trace or of the operation of `run`."""
    if run.text("trace") != NO_TRACE:
        return trace(run.text("trace"))
    return collectives.collective(
        run.text("operation"),
        run.text("algorithm"),
        run.integer("ranks"),
        run.integer("size_bytes"),
    )


def hosts_of(run: Run, topology: Topology) -> list[int]:
    """Return the host of each rank."""
    return place_ranks(
        topology, run.integer("ranks"), placement=run.text("placement"), seed=run.seed
    )


def measure(run: Run) -> Result:
    """Return times of iterations and ranks, and their lower bounds."""
    topology = run.topology
    schedule, hosts = schedule_of(run), hosts_of(run, topology)
    cost, once = replays.frame_cost(run), TaskGraph(schedule, hosts)
    alpha_beta_ns = message_cost.alpha_beta_ns(topology, once, cost)
    cut_ns = message_cost.cut_ns(topology, once, cost)
    iterations = 1 + run.integer("iterations")
    bound_s = iterations * max(alpha_beta_ns, cut_ns) / 1e9
    graph = TaskGraph(schedule, hosts, iterations)
    replayed = replays.replay(run, topology, graph, GRACE_S + PATIENCE * bound_s)
    return Result(
        figures={
            "hosts": topology.servers,
            "host_cost_usd": of_a_host(topology, PRICES)["host_cost_usd"],
            **time_figures(run, replayed.progress.times_ns()[1:]),
            "unfinished": replayed.progress.unarrived,
            **replayed.figures,
            "alpha_beta_ms": alpha_beta_ns / 1e6,
            "cut_ms": cut_ns / 1e6,
        },
        fidelity=replayed.fidelity,
        circumstances=replayed.circumstances,
    )


def time_figures(run: Run, times_ns: Sequence[Sequence[int | None]]) -> Row:
    """Return the columns on times of iterations and ranks; None if a message did not arrive."""
    ms = [[time / 1e6 for time in ranks if time is not None] for ranks in times_ns]
    names = ("completion_ms", "rank_mean_ms", "rank_p99_ms", "bus_bps")
    if list(map(len, ms)) != list(map(len, times_ns)):
        return dict.fromkeys(names)
    completion_ms = mean(map(max, ms))
    factor = None
    if run.text("trace") == NO_TRACE:
        factor = collectives.bus_factor(run.text("operation"), run.integer("ranks"))
    bus_bps = factor and factor * 8000 * run.integer("size_bytes") / completion_ms
    values = (completion_ms, float(np.mean(ms)), float(np.percentile(ms, 99)), bus_bps)
    return dict(zip(names, values, strict=True))


def check(run: Run) -> None:
    """Raise ValueError unless the network has hosts for the ranks, and the engine all the rest."""
    topology = run.topology
    hosts_of(run, topology)
    if run.text("trace") != NO_TRACE:
        ranks = len(trace(run.text("trace")))
        if ranks != run.integer("ranks"):
            raise ValueError(
                f"{run.experiment}: {run.text('trace')} has {ranks} ranks; set ranks={ranks}"
            )
    else:
        operation = run.text("operation"), run.text("algorithm"), run.integer("ranks")
        collectives.check_ranks(*operation)
        collectives.check_size(*operation, run.integer("size_bytes"))
    if run.integer("size_bytes") > (most := MOST_BYTES[run.engine]):
        raise ValueError(
            f"{run.experiment}: the engine {run.engine} takes at most {most} bytes, got "
            f"{run.integer('size_bytes')}; take --engine graph"
        )
    require_one_plane(run.experiment, topology)
    replays.check(run, topology)


def check_trace(text: str) -> None:
    """Raise ValueError unless `text` is none, or names a trace."""
    if text != NO_TRACE:
        trace(text)


def trace(name: str) -> Schedule:
    """Return one of TRACES, or the schedule in a file; ValueError without one."""
    return goal.read(TRACES.get(name, name))


def named(table: Table) -> Table:
    """Return the rows with the family of the network, and the cost of its hosts."""
    return [
        row
        | {
            "network": f"{table_iv.label(row['topology'])}, {row['hosts']} hosts, "
            f"{number_of(row, 'host_cost_usd'):,.0f} USD",
            "way": style.scheme(row["scheme"]).label,
        }
        for row in table
    ]


def of_several_sizes(table: Table) -> Table:
    """Return the rows if they have several sizes of buffers."""
    return named(table) if len({row["size_bytes"] for row in table}) > 1 else []


BARS_AND_CURVES = Stack(
    Bars(
        columns=TIME | {"fullest_link_fraction": "fullest link (of its rate)"},
        strokes={"completion_ms": {"alpha_beta_ms": "alpha-beta", "cut_ms": "cut"}},
        by=("topology", "way"),
        rows=named,
        facet=("operation", "size_bytes", "algorithm", *SETTING),
        looks=table_iv.looks,
    ),
    Curves(
        columns=TIME | {"bus_bps": "bus bandwidth"},
        x="size_bytes",
        series="network",
        dash="way",
        facet=("operation", "algorithm", *SETTING),
        log=("size_bytes", "completion_ms"),
        rows=of_several_sizes,
    ),
)
LEAST_CASES = 6  # of a map


def draw(table: Table, figure: Figure) -> None:
    """Draw the map of equal_cost.py if there are rows of enough of its cases, else bars."""
    usual = {key: only for key, (only, *more) in EXPERIMENT.sweep.items() if not more}
    settings = {key: usual[key] for key in usual.keys() - set(equal_cost.VARIED)}
    study = select(table, engine="packet", **settings)
    is_map = len(grouped(equal_cost.beside_fastest(study), equal_cost.CASE)) >= LEAST_CASES
    (equal_cost.draw if is_map else BARS_AND_CURVES)(study if is_map else table, figure)


ALGORITHMS = tuple(dict.fromkeys(chain(*collectives.ALGORITHMS.values())))

EXPERIMENT = Experiment(
    name="collectives",
    question="Which network and which routing finishes an all-reduce first, at equal cost and "
    "with as many ranks?",
    source="nccl-tests; Thakur, Rabenseifner and Gropp, 2005; FatPaths, section VII",
    engines=("packet", "graph", "kernel"),
    axes={
        "topology": common.TOPOLOGY.over(*equal_cost.one_of_each(128)),
        "scheme": common.ROUTING.over("ecmp", "rps", "fatpaths:trigger=cut,start=random"),
        "operation": Word("collective operation", words=tuple(collectives.ALGORITHMS)).over(
            "all-reduce"
        ),
        "algorithm": Word("algorithm of the operation", words=ALGORITHMS).over("rabenseifner"),
        "size_bytes": Integer(
            "size of the buffer, as in nccl-tests; of halo: of a message",
            unit="bytes",
            least=1,
            most=10**9,
        ).over(1 << 20),
        "trace": Spec(
            "GOAL file with a schedule in place of the operation",
            form=f"a path, {', '.join(TRACES)}, or none",
            check=check_trace,
        ).over(NO_TRACE),
        "ranks": Integer(
            "ranks, each on a host of its own", unit="ranks", least=2, most=100_000
        ).over(128),
        "placement": Word("order of hosts", words=PLACEMENTS).over(RANDOM),
        "iterations": Integer(
            "iterations that are counted", unit="iterations", least=1, most=1000
        ).over(1),
        "transport": transports.TRANSPORT.over("ndp"),
        "rate_mbps": common.RATE_MBPS.over(10_000),
        "frame_bytes": Integer(
            "a full packet on a link", unit="bytes", least=200, most=65_535
        ).over(9000),
        "delay_us": common.DELAY_US.over(1),
        "queue_packets": common.QUEUE_PACKETS.over(transports.QUEUE_PACKETS),
        "ecn_packets": ECN_PACKETS.over(transports.ECN_PACKETS),
        "header_packets": transports.HEADER_PACKETS.over(1125),
        "rto_min_us": common.RTO_MIN_US,
    },
    columns=COLLECTIVES,
    compared=("topology", "scheme"),
    seeds=10,
    revised=transports.revisions,
    takes_s=120,
    measure=measure,
    plot=draw,
    check=check,
)
