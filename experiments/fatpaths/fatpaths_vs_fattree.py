"""How do flows fare on low-diameter networks with FatPaths, beside a fat-tree of about the same
cost with NDP?

FatPaths' figures 2 and 11.  All networks have the purified transport, whose switches trim, and
about 200 hosts; the fat-tree is oversubscribed two to one, so that a host costs what it does in the
others.  `routing` says how packets go:

layers    each flow in one layer, and in another when its receiver asks for it: FatPaths
flowlets  the same over layers of shortest paths alone (rho = 1): the paper's fat-tree, NDP with
flowlets
spray     each packet by any shortest path: the fat-tree's, as NDP has it
ecmp      each flow by one shortest path: minimal routing

Hosts of a router all send to those of one other, half of all routers farther on (skewed); with
random mapping hosts have changed places.  Flows begin at random (Poisson), with the web-search
sizes in 20 steps; those that begin in the first half of the time are not counted.  Frames have the
paper's 9 kB, on the kernel as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.daemons.core import registry
from weft.daemons.fatpaths import scheme
from weft.experiments.engines import common_parameters as common
from weft.experiments.engines.arrays import Floats
from weft.experiments.fatpaths import columns, layered_network, topology_cost, transports
from weft.experiments.fatpaths.transports import Load
from weft.experiments.report import figures, panels, style
from weft.experiments.runner.definition import Experiment, Result, Row, Run, Table, Value
from weft.experiments.runner.parameters import Integer, Number, Word
from weft.topologies import build
from weft.topologies.core.link import Mbps

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from weft.testbed.traffic.packet_network import NextHops
    from weft.topologies.core.topology import Topology

FLOWLETS = "flowlets"
LAYERED = ("layers", FLOWLETS)
KERNEL_SCHEMES = {"spray": "rps", "ecmp": "vlb"}
GRACE = 20  # times the window in which flows begin, for them to end
LEAST_GRACE_S = 0.05
COLOURS = (style.BLUE, style.ORANGE, style.GREEN, style.PURPLE, style.SKY, style.VERMILION)


def layered_scheme(run: Run) -> str:
    """The scheme whose layers are those of `run`; hosts choose none, the transport does."""
    kind = (
        "rho=1" if run.text("routing") == FLOWLETS else f"construction={run.text('construction')}"
    )
    hosts = "trigger=none"  # the purified transport asks for layers
    if transports.transport(run.text("transport")).name == "tcp":
        hosts = f"trigger=cut,start=random,ecn={transports.ECN_PACKETS}"
    return f"fatpaths:layers={run.integer('layers')},{kind},seed={1 + run.seed},{hosts}"


def skewed(topology: Topology) -> list[tuple[int, int]]:
    """All hosts of a router send to those of the router half of all routers with hosts farther
    on.
    """
    router_of = [topology.ports(host)[0][1] for host in range(topology.servers)]
    below = {
        router: [host for host in range(topology.servers) if router_of[host] == router]
        for router in router_of
    }
    groups = list(below.values())
    return [
        (src, peers[at % len(peers)])
        for number, group in enumerate(groups)
        for peers in (groups[(number + len(groups) // 2) % len(groups)],)
        for at, src in enumerate(group)
    ]


def loads(run: Run, topology: Topology) -> list[Load]:
    """The flows of `run`, the same for every routing."""
    from weft.experiments.engines.workloads import mapped

    rng = np.random.default_rng([run.seed, 2])
    chosen = skewed(topology)
    if run.text("mapping") == "random":
        chosen = mapped(rng, topology.servers, chosen)
    flows = layered_network.arrivals(
        *(rng, chosen, layered_network.steps(float(run.parameters["size_fraction"]))),
        load_fraction=float(run.parameters["load_fraction"]),
        rate_bps=run.integer("rate_mbps")
        * Mbps
        * (1 - transports.HEADER_BYTES / run.integer("frame_bytes")),
        duration_s=float(run.parameters["seconds"]),
    )
    return [Load(flow.at_s, flow.src, flow.dst, flow.size_bytes or 1) for flow in flows]


def measure(run: Run) -> Result:
    """Throughput and times of flows, and what a host costs."""
    topology, rate_bps = build(run.text("topology")), run.integer("rate_mbps") * Mbps
    wanted = loads(run, topology)
    seconds = float(run.parameters["seconds"])
    until_s = seconds + max(GRACE * seconds, LEAST_GRACE_S)
    found = carry(run, topology, wanted, rate_bps=rate_bps, deadline_s=until_s)
    counted = [
        (load, took)
        for load, took in zip(wanted, found.seconds, strict=True)
        if load.at_s > seconds / 2
    ]
    sizes = np.array([load.size_bytes for load, _ in counted])
    ms = 1000 * np.array([until_s - load.at_s if took is None else took for load, took in counted])
    throughput = 8 * sizes / (ms / 1000) / rate_bps
    long = sizes >= layered_network.LONG_BYTES * float(run.parameters["size_fraction"])
    cost = topology_cost.of_a_host(topology, topology_cost.PRICES)
    return Result(
        figures={
            "hosts": topology.servers,
            **{name: cost[name] for name in ("edge_density", "host_cost_usd")},
            "flows": len(counted),
            "unfinished": sum(took is None for _, took in counted),
            "throughput_mean_fraction": float(throughput.mean()) if len(counted) else None,
            "throughput_p1_fraction": float(np.percentile(throughput, 1)) if len(counted) else None,
            **times("long", ms[long]),
            **times("short", ms[~long]),
            "long_flows": int(long.sum()),
            "sizes_bytes": sizes.tolist(),
            "times_ms": ms.round(4).tolist(),
            **found.figures,
        },
        fidelity=found.fidelity,
        circumstances=found.circumstances,
    )


def times(name: str, ms: Floats) -> dict[str, Value]:
    """Mean and 99th percentile; None if there is no such flow."""
    return {
        f"{name}_mean_ms": float(ms.mean()) if len(ms) else None,
        f"{name}_p99_ms": float(np.percentile(ms, 99)) if len(ms) else None,
    }


def kernel_scheme(run: Run) -> str:
    """Return the scheme of the switches on the kernel."""
    routing = run.text("routing")
    if routing in LAYERED:
        return layered_scheme(run)
    is_tcp = transports.transport(run.text("transport")).name == "tcp"
    marks = f":ecn={transports.ECN_PACKETS}" if is_tcp else ""
    return KERNEL_SCHEMES[routing] + marks


def next_hops(run: Run, topology: Topology) -> NextHops:
    """Return the next hops of packets on a simulated network."""
    from weft.testbed.traffic import packet_network

    if run.text("routing") in LAYERED:
        tables = scheme.tables(topology, registry.scheme(layered_scheme(run))[1])
        return packet_network.layered(topology, tables)
    is_ecmp = run.text("routing") == "ecmp"
    choice = packet_network.HASH if is_ecmp else packet_network.SPRAY
    return packet_network.shortest(topology, choice)


def carry(
    run: Run, topology: Topology, wanted: Sequence[Load], *, rate_bps: int, deadline_s: float
) -> transports.TransferTimes:
    """Carry `wanted` by the routing and on the engine of `run`."""
    layers = run.integer("layers") if run.text("routing") in LAYERED else 1
    setting: dict[str, Any] = {
        "rate_bps": rate_bps,
        "deadline_s": deadline_s,
        "layers": layers,
        "frame_bytes": run.integer("frame_bytes"),
    }
    if run.engine == "kernel":
        return transports.on_kernel(run, topology, wanted, scheme=kernel_scheme(run), **setting)
    hops = next_hops(run, topology)
    return transports.on_wires(run, topology, wanted, next_hops=hops, **setting)


def check(run: Run) -> None:
    """ValueError unless the network of `run` has such layers, and its engine frames of that
    size.
    """
    transports.check(run)
    if run.text("routing") in LAYERED:
        registry.checked(build(run.text("topology")), layered_scheme(run))
    if run.engine == "kernel":
        layered_network.KERNEL_FRAME_BYTES.read(
            run.experiment, "frame_bytes", str(run.integer("frame_bytes"))
        )


SETTING = (
    *(
        "mapping",
        "load_fraction",
        "size_fraction",
        "rate_mbps",
        "frame_bytes",
        "seconds",
        "transport",
    ),
    *("header_packets", "engine", "clock"),
)
NAMES = {"layers": "FatPaths", FLOWLETS: "flowlets", "spray": "NDP", "ecmp": "ECMP"}
BEST = {"fattree": "spray"}  # of other families FatPaths


def plot(table: Table, figure: Figure) -> None:
    """Draw figures 2 and 11, and the times of long flows under every routing, for each setting.

    Figures 2 and 11: mean throughput of a flow by size, each network with its best routing.
    """
    groups = figures.by_setting(table, SETTING, always=4)
    networks = list(dict.fromkeys(str(row["topology"]) for row in table))
    colours = dict(zip(networks, COLOURS * len(networks), strict=False))
    heights = [
        0.17 * len({(row["topology"], row["routing"]) for row in rows}) + 1.6
        for rows in groups.values()
    ]
    lines = panels.lines_of_panels(
        figure, groups, 2, width=11.0, heights=heights, width_ratios=[1.0, 1.15]
    )
    for (by_size, bars), rows in lines:
        for network, colour in colours.items():
            best = BEST.get(network.partition(":")[0], "layers")
            runs = panels.select(rows, topology=network, routing=best)
            draw_sizes(by_size, runs, colour, f"{network}, {NAMES[best]}")
        by_size.set(xscale="log", ylim=(0, 1.0))
        by_size.set_xlabel("flow size (bytes)", fontsize=8)
        by_size.set_ylabel("throughput of a flow\n(fraction of a link, mean)", fontsize=8)
        by_size.legend(fontsize=6)
        draw_bars(bars, rows, colours)


def draw_sizes(axes: Axes, rows: Sequence[Row], colour: str, label: str) -> None:
    """Mean throughput over the size of flows, all runs together."""
    if not rows:
        return
    sizes = np.concatenate([np.array(row["sizes_bytes"], dtype=float) for row in rows])
    ms = np.concatenate([np.array(row["times_ms"], dtype=float) for row in rows])
    of = 8 * sizes / (ms / 1000) / (float(str(rows[0]["rate_mbps"])) * Mbps)
    each = np.unique(sizes)
    axes.plot(
        each,
        [of[sizes == size].mean() for size in each],
        "o-",
        color=colour,
        markersize=3,
        label=label,
    )


def draw_bars(axes: Axes, rows: Sequence[Row], colours: dict[str, str]) -> None:
    """Draw times of long flows under every routing, hollow where fidelity failed."""
    runs = [row for row in rows if row["long_mean_ms"] is not None]
    for place, row in enumerate(runs):
        look = style.SeriesStyle("", colours[str(row["topology"])], "o")
        hollow = figures.failed_fidelity(row)
        panels.bar(axes, place, panels.numbers([row], "long_mean_ms"), look, hollow=hollow)
        panels.stroke(axes, float(str(row["long_p99_ms"])), place, size=7)
    labels = [f"{row['topology']}, {NAMES[str(row['routing'])]}" for row in runs]
    panels.name_rows(axes, labels, fontsize=6)
    axes.set_xlabel("time of long flows (ms; bar: mean, stroke: 99th percentile)", fontsize=8)


EXPERIMENT = Experiment(
    name="fatpaths_vs_fattree",
    question="How do flows fare on low-diameter networks with FatPaths, beside a fat-tree of "
    "equal cost with NDP?",
    source="FatPaths, figures 2 and 11",
    engines=("fabric", "kernel"),
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
        "routing": Word(meaning="how packets find their way", words=tuple(NAMES)).over(
            "layers", FLOWLETS, "spray", "ecmp"
        ),
        "construction": Word(meaning="how layers are made", words=scheme.WORDS).over("random"),
        "layers": Integer(meaning="n, layer 0 counted", least=1, most=63).over(9),
        "transport": transports.TRANSPORT.over("ndp"),
        "mapping": layered_network.MAPPING.over("linear", "random"),
        "load_fraction": common.LOAD_FRACTION.over(0.24),
        "size_fraction": layered_network.SIZE_FRACTION.over(1.0),
        "rate_mbps": common.RATE_MBPS.over(10_000),
        "frame_bytes": Integer(
            meaning="a full packet on a link", unit="bytes", least=200, most=65_535
        ).over(9000),
        "header_packets": transports.HEADER_PACKETS.over(1125),
        "rto_min_ms": transports.RTO_MIN_MS.over(200),
        "seconds": Number(
            meaning="time during which flows begin", unit="s", least=1e-4, most=3600
        ).over(0.01),
    },
    columns=columns.VS_FATTREE,
    version=3,  # switches draw from SplitMix64
    seeds=1,
    takes_s=600,
    measure=measure,
    plot=plot,
    check=check,
)
