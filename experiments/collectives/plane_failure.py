"""Goodput and completion times when a plane dies, by network and choice of paths.

Each host sends one long flow to another, a permutation, by the NDP-like transport, whose packets
have entropy values; switches hash them.  Networks have switches of the same capacity: on k planes
a link has a k-th of the host's rate.  After some time one plane fails, or on a network of one
plane one spine, and stays down.  An announced failure is known 0.1 ms later: hosts leave the
plane, or switches the spine.  A silent one is known to none.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from statistics import mean
from typing import TYPE_CHECKING

import numpy as np

from weft.daemons.core import registry
from weft.experiments.collectives import fabrics
from weft.experiments.engines import common_parameters as common
from weft.experiments.engines import workloads
from weft.experiments.fatpaths import transports
from weft.experiments.fatpaths.layered_network import KERNEL_FRAME_BYTES
from weft.experiments.report.claims import Sweep
from weft.experiments.report.panels import numbers
from weft.experiments.runner.definition import Experiment, Result, Row, Run, Table
from weft.experiments.runner.parameters import Integer, Word
from weft.experiments.runner.rows import grouped
from weft.testbed.packets.forwarding import check_forwarding
from weft.testbed.packets.simulation import Fault, PacketFlows, SimulatedFlows, Simulation
from weft.testbed.packets.switching import Switching
from weft.topologies.core.link import LinkSpec, Mbps
from weft.topologies.core.topology import Topology
from weft.topologies.tiered import planes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NONE, ANNOUNCED, SILENT = "none", "announced", "silent"
LOOKS_MS = (1, 2, 3, 5, 8)  # ends of the windows of a millisecond after the failure
WINDOW_S = 0.001
KNOWN_AFTER_S = 0.0001  # an announced failure; what is on the wire is lost by then
GOODPUT = ("before_fraction", *(f"after_{ms}ms_fraction" for ms in LOOKS_MS))
HEADER_BYTES = 64
DEADLINE_S = 0.5
MOST_FRAMES = 10**7
CHOICES = {"blind": "spray", "reps": "REPS", "mrc": "MRC-like"}
COLUMNS = {
    "hosts": "hosts of the network",
    "switch_bps": "rate of all ports of switches, for each host",
    **common.UNFINISHED,
    "before_fraction": (
        "payload that arrives in the millisecond before the failure, of what hosts' links carry"
    ),
    **{
        f"after_{ms}ms_fraction": (
            f"payload that arrives in the millisecond that ends {ms} ms after the failure, of that"
        )
        for ms in LOOKS_MS
    },
    "mean_ms": "time of a flow, mean",
    "last_ms": "time of the last flow; the deadline if one does not end",
    "timeouts": "packets about which nothing was heard for a timeout",
    "retransmissions": "packets that were sent again",
}
SWEEPS = (Sweep("plane_failure", {}, 5),)


def flows_of(run: Run, topology: Topology) -> PacketFlows:
    """Return a flow from each host, the same for every choice of paths."""
    pairs = workloads.pairs("permutation", topology.servers, np.random.default_rng([run.seed, 1]))
    return PacketFlows.of((src, dst, run.integer("size_bytes")) for src, dst in pairs)


def link_of(run: Run, topology: Topology) -> LinkSpec:
    """Return a link, which has the host's rate, or on several planes its part of it."""
    return fabrics.link_of(run, topology, run.integer("host_mbps") * Mbps)


def failed_links(topology: Topology) -> Sequence[int]:
    """Return the links of the first plane, or of the last spine of one plane."""
    if topology.planes > 1:
        return planes.links_of(topology, 0).tolist()  # type: ignore[no-any-return]
    return [link for *_, link in topology.ports(topology.nodes - 1)]


def faults_of(run: Run, topology: Topology) -> list[Fault]:
    """Return what fails, and when it is known."""
    if run.text("failure") == NONE:
        return []
    at_s = run.number("fails_ms") / 1000
    fault = Fault(failed_links(topology), at_s)
    if run.text("failure") == ANNOUNCED:
        fault = fault._replace(known_s=at_s + KNOWN_AFTER_S)
    return [fault]


def looks_s(run: Run) -> list[float]:
    """Return the begin and the end of each window, in order of the columns."""
    at_s = run.number("fails_ms") / 1000
    ends = [at_s, *(at_s + ms / 1000 for ms in LOOKS_MS)]
    return [time for end in ends for time in (end - WINDOW_S, end)]


def simulation(run: Run, topology: Topology) -> Simulation:
    """Return the simulation of the flows of `run`."""
    return Simulation(
        topology,
        run.text("scheme"),
        flows_of(run, topology),
        transports.transport_of(run),
        [link_of(run, topology)] * len(topology.links),
        Switching(),
        1 + run.seed,
        daemons=False,
    )


def measure(run: Run) -> Result:
    """Return goodput around the failure, and times of flows."""
    topology = run.topology
    simulated, arrived = simulation(run, topology), dict[float, int]()

    def read(time_s: float) -> None:
        arrived[time_s] = fabrics.arrived_packets(simulated.network, is_tcp=False)

    times = looks_s(run)
    looks = [(time_s, partial(read, time_s)) for time_s in sorted(set(times))]
    done = simulated.run(faults_of(run, topology), DEADLINE_S, (), looks=looks)
    counts = np.array([arrived.get(time, 0) for time in times]).reshape(-1, 2)
    return Result(
        figures={
            "hosts": topology.servers,
            "switch_bps": switch_bps(run, topology),
            "unfinished": done.unfinished,
            **goodput_figures(run, topology, np.diff(counts).ravel().tolist()),
            **flow_figures(done),
        }
    )


def flow_figures(done: SimulatedFlows) -> Row:
    """Return the columns on flows and their packets."""
    taken_ms = 1000 * np.where(np.isnan(done.delivered_s), DEADLINE_S, done.delivered_s)
    return {
        "flows": len(taken_ms),
        "mean_ms": float(taken_ms.mean()),
        "last_ms": float(taken_ms.max()),
        **{name: int(done.counters[name].sum()) for name in ("timeouts", "retransmissions")},
    }


def switch_bps(run: Run, topology: Topology) -> float:
    """Return the rate of all ports of switches, for each host."""
    ports = 2 * len(topology.links) - topology.servers * topology.planes
    return ports * link_of(run, topology).rate_bps / topology.servers


def goodput_figures(run: Run, topology: Topology, packets: Sequence[int]) -> Row:
    """Return the columns on goodput, from the packets that arrive in each window."""
    full_bps = run.integer("host_mbps") * Mbps * (run.integer("frame_bytes") - HEADER_BYTES)
    most = topology.servers * full_bps / run.integer("frame_bytes") * WINDOW_S / 8
    fractions = [count * (run.integer("frame_bytes") - HEADER_BYTES) / most for count in packets]
    return dict(zip(GOODPUT, fractions, strict=True))


def check(run: Run) -> None:
    """Raise ValueError unless the network, the transport and the times go together."""
    topology, parsed = run.topology, transports.transport_of(run)
    if topology.server_centric or (topology.planes == 1 and topology.switches < 2):
        raise ValueError(
            f"{run.experiment}: {topology.spec} has neither planes nor a spine to lose"
        )
    if parsed.name != "ndp":
        raise ValueError(f"{run.experiment}: transport must be ndp, got {parsed.name}")
    check_forwarding(topology, run.text("scheme"), parsed)
    scheme, options = registry.checked(topology, run.text("scheme"))
    rule = scheme.rule(options)
    if not rule or rule.hosts:
        raise ValueError(f"{run.experiment}: scheme must be one of switches without layers")
    parsed.ndp(link_of(run, topology).rate_bps, run.integer("frame_bytes"), planes=topology.planes)
    if run.number("fails_ms") / 1000 < WINDOW_S:
        raise ValueError(f"{run.experiment}: fails_ms must be at least {1000 * WINDOW_S:g}")
    frames = topology.servers * run.integer("size_bytes") / run.integer("frame_bytes")
    if frames > MOST_FRAMES:
        raise ValueError(
            f"{run.experiment}: {frames:.2g} frames take too long, at most {MOST_FRAMES:.0e}"
        )


def draw(table: Table, figure: Figure) -> None:
    """Draw goodput over the time since the failure, a panel for each network and failure."""
    parts = grouped([row for row in table if row["failure"] != NONE], ("topology", "failure"))
    columns = max(2, -(-len(parts) // 2))
    figure.set_size_inches(3.6 * columns, 5.2)
    places = figure.subplots(2, columns, sharey=True, squeeze=False)
    for axes, key in zip(places.flat, sorted(parts, key=str), strict=False):
        draw_curves(axes, parts[key])
        axes.set_title(", ".join(map(str, key)), fontsize=8)
    places[0, 0].legend(fontsize=8)


def draw_curves(axes: Axes, rows: Sequence[Row]) -> None:
    """Draw the goodput of each choice of paths."""
    for choice, label in CHOICES.items():
        own = [row for row in rows if f"choice={choice}" in row["transport"]]
        if own:
            curve = [mean(numbers(own, name)) for name in GOODPUT]
            axes.plot([0, *LOOKS_MS], curve, marker="o", markersize=3, label=label)
    axes.set_ylim(0, 1.05)
    axes.set_xlabel("ms after the failure, 0: before it")
    axes.set_ylabel("goodput (of hosts' rate)")


EXPERIMENT = Experiment(
    name="plane_failure",
    question="What does the failure of one of eight planes cost, by the choice of paths?",
    source="MRC, arXiv 2605.04333; REPS, EuroSys 2026",
    engines=("packet",),
    axes={
        "topology": common.TOPOLOGY.over("planes:k=8,of=clos:n=8,r=4,m=8", "clos:n=8,r=4,m=8"),
        "scheme": common.ROUTING.over("ecmp:ecn=4"),
        "transport": transports.TRANSPORT.over(
            *(f"ndp:choice={choice},window=64,entropies=128" for choice in CHOICES)
        ),
        "failure": Word(
            "whether hosts and switches know of it", words=(NONE, ANNOUNCED, SILENT)
        ).over(NONE, ANNOUNCED, SILENT),
        "fails_ms": Integer("time of the failure", unit="ms", least=1, most=1000).over(2),
        "size_bytes": Integer("payload of a flow", unit="bytes", least=1, most=10**9).over(10**8),
        "host_mbps": Integer("rate of a host", unit="Mbit/s", least=1, most=10**6).over(80_000),
        "frame_bytes": KERNEL_FRAME_BYTES.over(9000),
        "delay_us": common.DELAY_US.over(1),
        "queue_packets": common.QUEUE_PACKETS.over(transports.QUEUE_PACKETS),
        "header_packets": transports.HEADER_PACKETS.over(1125),
    },
    columns=COLUMNS,
    compared=("topology", "transport"),
    seeds=5,
    measure=measure,
    plot=draw,
    check=check,
)
