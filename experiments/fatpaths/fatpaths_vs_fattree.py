"""Completion times on low-diameter networks with FatPaths, beside a fat-tree with NDP.

FatPaths' figures 2, 11 and 13.  All networks have the purified transport, whose switches trim, and
about 200 hosts; the published rows reach 76,664.  The fat-tree is oversubscribed two to one, so
that a host costs what it does in the others.  `routing` says how packets go:

layers    each flow in one layer, and in another when its receiver asks for it: FatPaths
flowlets  the same over layers of shortest paths alone (rho = 1): the paper's fat-tree, NDP with
flowlets; a flow of TCP changes after a gap (LetFlow)
spray     each packet by any shortest path: the fat-tree's, as NDP has it
ecmp      each flow by one shortest path: minimal routing

Hosts of a router all send to those of one other, half of all routers farther on (skewed); with
random mapping hosts have changed places.  Flows begin at random (Poisson), with the web-search
sizes in 20 steps; those that begin in the first half of the time are not counted.  Frames have the
paper's 9 kB, on the kernel as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import compress

import numpy as np
from numpy.typing import NDArray

from weft.daemons.core import registry
from weft.daemons.fatpaths import scheme
from weft.experiments.engines import common_parameters as common
from weft.experiments.engines.arrays import Floats
from weft.experiments.engines.workloads import mapped
from weft.experiments.fatpaths import flow_times, layered_network, table_iv, transports
from weft.experiments.fatpaths.achievable_throughput import worst_case
from weft.experiments.fatpaths.flow_times import TIME_COLUMNS
from weft.experiments.fatpaths.router_graph import RouterGraph
from weft.experiments.fatpaths.table_iv import looks
from weft.experiments.fatpaths.topology_cost import PRICES, of_a_host
from weft.experiments.fatpaths.transports import TRANSPORT_COLUMNS, Carriage, Load
from weft.experiments.report.panels import Bars, Curves, Stack, exploded, select, varied
from weft.experiments.runner.definition import Experiment, Result, Row, Run, Table, Value
from weft.experiments.runner.parameters import Integer, Number, Word
from weft.testbed.packets import network as packets
from weft.testbed.packets.network import NextHops
from weft.topologies.core.link import Mbps
from weft.topologies.core.topology import Topology

FLOWLETS = "flowlets"
LAYERED = ("layers", FLOWLETS)
ROUTINGS = (*LAYERED, "spray", "ecmp")
KERNEL_SCHEMES = {"spray": "rps", "ecmp": "vlb"}
GAP_US = 50  # silence that ends a flowlet of TCP, as in the paper
GRACE = 20  # times the window in which flows begin, for them to end
LEAST_GRACE_S = 0.05
MOST_CHECKED = 60  # switches up to which layers are made before a run begins


def layered_scheme(run: Run) -> str:
    """Return the scheme with the layers of `run`; the purified transport chooses them itself."""
    rho = 1 if run.text("routing") == FLOWLETS else run.number("rho")
    kind = "random" if run.text("routing") == FLOWLETS else run.text("construction")
    parsed, trigger = transports.transport_of(run), "none"
    if parsed.name == "tcp":
        gap = f"gap,gap_us={GAP_US}"
        # as the paper's, whose senders alone leave layers
        trigger = f"{gap if run.text('routing') == FLOWLETS else 'data-cut'},start={parsed.start}"
    if parsed.name == "tcp" or parsed.choice != "flow":
        trigger += f",ecn={transports.mark_packets(run)}"
    return (
        f"fatpaths:layers={run.integer('layers')},construction={kind},rho={rho:g},"
        f"seed={1 + run.seed},trigger={trigger}"
    )


def hosts_of_routers(topology: Topology) -> dict[int, list[int]]:
    """Return the hosts of each router; ValueError if one router has all."""
    hosts: dict[int, list[int]] = {}
    for host in range(topology.servers):
        hosts.setdefault(topology.edge(host), []).append(host)
    if len(hosts) == 1:
        raise ValueError(f"hosts send to those of another router, and {topology.spec} has one")
    return hosts


def paired(
    groups: Sequence[Sequence[int]], peers: Sequence[Sequence[int]]
) -> list[tuple[int, int]]:
    """Return pairs such that the hosts of each group send to those of its peer."""
    return [
        (src, peer[number % len(peer)])
        for group, peer in zip(groups, peers, strict=True)
        for number, src in enumerate(group)
    ]


def skewed(topology: Topology) -> list[tuple[int, int]]:
    """Return pairs such that all hosts of a router send to those of one other.

    That is half of all routers with hosts farther on.
    """
    groups = list(hosts_of_routers(topology).values())
    half = len(groups) // 2
    return paired(groups, groups[half:] + groups[:half])


def worst(topology: Topology, rng: np.random.Generator) -> list[tuple[int, int]]:
    """Return pairs such that all hosts of a router send to those of another, drawn with `rng`.

    They are so matched that distances sum to the most (achievable_throughput.worst_case).
    """
    hosts, graph = hosts_of_routers(topology), RouterGraph.of(topology)
    to = worst_case(graph, rng) + topology.servers
    groups = [hosts[router] for router in (graph.endpoints + topology.servers).tolist()]
    return paired(groups, [hosts[router] for router in to.tolist()])


def loads(run: Run, topology: Topology) -> list[Load]:
    """Return the flows of `run`, the same for every routing."""
    rng = run.generator(2)
    pairs = skewed(topology)
    if run.text("mapping") == "random":
        pairs = mapped(rng, topology.servers, pairs)
    payload_fraction = 1 - transports.HEADER_BYTES / run.integer("frame_bytes")
    flows = flow_times.arrivals(
        rng,
        pairs,
        flow_times.steps(run.number("size_fraction")),
        load_fraction=run.number("load_fraction"),
        rate_bps=run.integer("rate_mbps") * Mbps * payload_fraction,
        duration_s=run.number("seconds"),
    )
    return [Load(flow.at_s, flow.src, flow.dst, flow.size_bytes or 1) for flow in flows]


def no_columns(long_ms: Floats) -> Row:
    """Return no column."""
    return {}


def measure(run: Run, further: Callable[[Floats], Row] = no_columns) -> Result:
    """Return throughput and times of flows, and what a host costs.

    Args:
        run: the run.
        further: more columns, from the times of long flows in ms.
    """
    topology = run.topology
    how, flows = carriage(run, topology), loads(run, topology)
    carried = transports.carry(run, topology, flows, how)
    warm = is_warm(run, flows)
    sizes = np.array([load.size_bytes for load in flows])[warm]
    ms = 1000 * carried.until(flows, how.deadline_s)[warm]
    cost = of_a_host(topology, PRICES)
    return carried.result(
        {
            "hosts": topology.servers,
            **{name: cost[name] for name in ("edge_density", "host_cost_usd")},
            "flows": len(ms),
            "unfinished": list(compress(carried.seconds, warm)).count(None),
            **throughput(8000 * sizes / ms / how.rate_bps),
            **flow_times.long_and_short(sizes, ms, run.number("size_fraction")),
            **flow_times.distributions(sizes, ms, run.number("size_fraction"), how.rate_bps),
            **further(ms[sizes >= flow_times.LONG_BYTES * run.number("size_fraction")]),
        }
    )


def is_warm(run: Run, flows: Sequence[Load]) -> NDArray[np.bool_]:
    """Return which flows are counted: those that begin in the second half of the time."""
    return np.array([load.at_s > run.number("seconds") / 2 for load in flows], dtype=bool)


def throughput(fractions: Floats) -> dict[str, Value]:
    """Return mean and 1st percentile; None without flows."""
    flows = len(fractions)
    return {
        "throughput_mean_fraction": fractions.mean() if flows else None,
        "throughput_p1_fraction": np.percentile(fractions, 1) if flows else None,
    }


def carriage(run: Run, topology: Topology) -> Carriage:
    """Return how the engine and routing of `run` carry flows."""
    routing, seconds = run.text("routing"), run.number("seconds")
    how = Carriage(
        run.integer("rate_mbps") * Mbps,
        seconds + max(GRACE * seconds, LEAST_GRACE_S),
        run.integer("frame_bytes"),
        is_open=True,
        failed=layered_network.failed(run, topology),
    )
    if routing in LAYERED:
        gap_us = GAP_US if routing == FLOWLETS else 0
        how = how._replace(layers=run.integer("layers"), scheme=layered_scheme(run), gap_us=gap_us)
    else:
        is_tcp = transports.transport_of(run).name == "tcp"
        marks = f":ecn={transports.ECN_PACKETS}" if is_tcp else ""
        how = how._replace(scheme=KERNEL_SCHEMES[routing] + marks)
    if run.engine == "kernel":
        return how
    return how._replace(next_hops=next_hops(run, topology))


def next_hops(run: Run, topology: Topology) -> NextHops:
    """Return the routes of simulated switches that know the failed links of `topology`."""
    routing = run.text("routing")
    if routing in LAYERED:
        tables = scheme.live_tables(topology, registry.scheme(layered_scheme(run))[1])
        return packets.layered(topology, tables)
    choice = packets.HASH if routing == "ecmp" else packets.SPRAY
    return packets.shortest(topology, choice)


def check(run: Run) -> None:
    """Raise ValueError unless the network has such layers, and the engine frames of that size."""
    transports.check(run)
    topology = run.topology
    hosts_of_routers(topology)
    if run.text("routing") in LAYERED and topology.switches <= MOST_CHECKED:
        registry.checked(topology, layered_scheme(run))
    if run.engine == "kernel":
        layered_network.KERNEL_FRAME_BYTES.read(
            run.experiment, "frame_bytes", str(run.integer("frame_bytes"))
        )


FACET = (
    "mapping",
    *("load_fraction", "size_fraction", "rate_mbps", "frame_bytes", "seconds", "transport"),
    *("layers", "rho", "header_packets", "engine", "clock"),
)
MOST_PAPER_HOSTS = 20_000  # of a network of figures 2 and 11
PANELS = {"random": "figure 2, random mapping", "linear": "figure 11, skewed"}
WAYS = {"ecmp": "minimal paths", FLOWLETS: "flowlets", "spray": "sprayed packets"}


def has_construction(run: Run) -> bool:
    """Return True for one construction of routings that have none."""
    return run.text("routing") == "layers" or run.text("construction") == "random"


def family(row: Row) -> str:
    """Return the family of the row's network."""
    return str(row["topology"]).partition(":")[0]


def way(row: Row) -> str:
    """Return how packets find their way, in words."""
    layers = "in-trees" if row["construction"] == "intree" else f"{row['construction']} layers"
    return WAYS.get(row["routing"], layers)


def marked(table: Table) -> list[Row]:
    """Return the rows with the panel, and the way of packets, that a figure shows."""
    return [
        {
            **row,
            "panel": PANELS[row["mapping"]],
            "way": way(row),
            "network": f"{table_iv.SHORT.get(family(row), family(row))}, {way(row)}",
        }
        for row in table
    ]


def paper_size(table: Table) -> list[Row]:
    """Return the rows of networks of about the paper's size, or else of the largest."""
    hosts = [row["hosts"] for row in table]
    most = max((number for number in hosts if number <= MOST_PAPER_HOSTS), default=0)
    return [
        row
        for row, number in zip(marked(table), hosts, strict=True)
        if most / 2 < number <= MOST_PAPER_HOSTS
    ]


def figures_2_and_11(table: Table) -> list[Row]:
    """Return the throughput of flows by size, in MB."""
    rows = exploded(paper_size(table), (*STEPS, "step_bytes"), "step")
    return [{**row, "flow_megabytes": row["step_bytes"] / 1e6} for row in rows]


def sizes(table: Table) -> list[Row]:
    """Return the rows of families that the table has with several sizes."""
    rows = [row | {"family": family(row)} for row in select(marked(table), transport="ndp")]
    return varied(rows, ("family",), "hosts")


def figure_13(table: Table) -> list[Row]:
    """Return the times of long flows over random layers under random mapping."""
    rows = select(marked(table), mapping="random", way="random layers")
    return flow_times.percentiles(rows, ("topology",))


STEPS = {
    "step_throughput_fraction": "(a) throughput of a flow (of a link's), mean",
    "step_throughput_p1_fraction": "(b) 1st percentile",
}

EXPERIMENT = Experiment(
    name="fatpaths_vs_fattree",
    question="How do flows fare on low-diameter networks with FatPaths, beside a fat-tree of "
    "equal cost with NDP?",
    source="FatPaths, figures 2, 11 and 13",
    engines=("packet", "kernel"),
    axes={
        "topology": common.TOPOLOGY.over(
            *(
                "slimfly:q=5,p=4",
                "dragonfly:p=3,a=6,h=2,palm=0",
                "hyperx:l=2,s=6,p=5",
                "xpander:r=7,l=6,p=4,seed=1",
            ),
            *("jellyfish:n=50,r=7,p=4,seed=1", "fattree:k=8,oversubscription=2"),
        ),
        "routing": Word(meaning="how packets find their way", words=ROUTINGS).over(*ROUTINGS),
        "construction": Word(meaning="how layers are made", words=scheme.WORDS).over(
            "random", "intree"
        ),
        "layers": Integer(meaning="n, layer 0 counted", least=1, most=63).over(9),
        "rho": Number(
            meaning="links of a random layer; 0: the best measured",
            unit="fraction",
            least=0,
            most=1,
        ).over(0.0),
        "transport": transports.TRANSPORT.over("ndp"),
        "mapping": flow_times.MAPPING.over("linear", "random"),
        "load_fraction": common.LOAD_FRACTION.over(0.24),
        "size_fraction": flow_times.SIZE_FRACTION.over(1.0),
        "rate_mbps": common.RATE_MBPS.over(10_000),
        "frame_bytes": Integer(
            meaning="a full packet on a link", unit="bytes", least=200, most=65_535
        ).over(9000),
        "header_packets": transports.HEADER_PACKETS.over(1125),
        "rto_min_us": common.RTO_MIN_US,
        "seconds": Number(
            meaning="time during which flows begin", unit="s", least=1e-4, most=3600
        ).over(0.01),
    },
    columns={
        "hosts": "hosts of the network",
        "edge_density": "cables for each host",
        "host_cost_usd": "cost of a host by the model of topology_cost, at its prices",
        "flows": "flows that were counted: those that began in the second half",
        "unfinished": "flows that did not end; they count with the time that they had",
        "throughput_mean_fraction": "throughput of a flow, size over time, of a link's rate, mean",
        "throughput_p1_fraction": "1st percentile of that",
        **{
            name: TIME_COLUMNS[name]
            for name in (
                "long_mean_ms",
                "long_p99_ms",
                "short_mean_ms",
                "short_p99_ms",
                "long_flows",
            )
        },
        "step_bytes": "list: sizes of flows",
        "step_throughput_fraction": "list: throughput of a flow of each size, mean",
        "step_throughput_p1_fraction": "list: 1st percentile of that",
        "step_mean_ms": "list: time of a flow of each size, mean",
        "step_p99_ms": "list: 99th percentile of that",
        "long_percentiles_ms": "list: percentiles 0 to 100 of the times of long flows",
        **TRANSPORT_COLUMNS,
    },
    goes_together=has_construction,
    compared=("routing", "construction"),
    version=7,  # draws of layers follow the seed; lists by size of flows
    revised=transports.revisions,
    seeds=5,
    takes_s=600,
    measure=measure,
    plot=Stack(
        Curves(
            columns=STEPS,
            x="flow_megabytes",
            series="topology",
            dash="way",
            facet=("panel", *FACET[1:]),
            log=("flow_megabytes",),
            rows=figures_2_and_11,
            looks=looks,
        ),
        Bars(
            columns={
                "throughput_mean_fraction": "throughput of a flow (of a link's)",
                "long_mean_ms": "long flows (ms)",
                "short_mean_ms": "short flows (ms)",
            },
            strokes={"long_mean_ms": {"long_p99_ms": "99th percentile"}},
            by=("topology", "way"),
            facet=("panel", *FACET[1:]),
            rows=paper_size,
            looks=looks,
        ),
        Curves(
            columns={
                "throughput_mean_fraction": "throughput of a flow (of a link's)",
                "long_mean_ms": "long flows (ms)",
            },
            x="hosts",
            series="network",
            facet=("panel",),
            log=("hosts", "long_mean_ms"),
            rows=sizes,
        ),
        Curves(
            columns={"percent": "% of long flows (figure 13)"},
            x="long_times_ms",
            series="topology",
            log=("long_times_ms",),
            rows=figure_13,
            looks=looks,
        ),
    ),
    check=check,
)
