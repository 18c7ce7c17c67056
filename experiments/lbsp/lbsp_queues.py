"""Queue lengths by hop under LBSP, and the balance of its link groups.

LBSP, section 5.2, figure 9, as lbsp_model.py reads it; with the states of section 5.1 and without,
which the paper does not show.  A link group's queue is the mean of its ports'.

On the kernel the same packets are sent, slot by slot, through real queues under LBSP's daemons and
data plane, pattern after pattern through empty queues.  Each queue is averaged over the time that
the slots take.  Only averages are known there, so the distance of link groups is that of their
averages.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from statistics import mean

import numpy as np
from numpy.random import Generator

from weft.daemons.lbsp.routing import LbspShape
from weft.experiments.engines import common_parameters as common
from weft.experiments.engines import kernel_run
from weft.experiments.engines.kernel_run import SlottedObservation, running
from weft.experiments.lbsp.lbsp_model import Conditions, paced, simulate, traffic
from weft.experiments.report.panels import Curves
from weft.experiments.runner.definition import Experiment, Result, Row, Run, Table
from weft.experiments.runner.parameters import Integer, Word
from weft.testbed.data_plane.data_plane import DataPlane
from weft.testbed.linux.clock import wait_until
from weft.testbed.measure.fidelity import Fidelity
from weft.testbed.measure.kernel_counters import PortCounterReader
from weft.testbed.measure.queues import Occupancy
from weft.testbed.network.impair import one_at_a_time
from weft.testbed.network.network import RunningNetwork
from weft.topologies.core.link import LinkSpec, Mbps
from weft.topologies.core.topology import Topology

MOST_BYTES = 1 << 31  # of the model's queues
KERNEL_RATE_BPS = 1 * Mbps  # at which one process can send for 128 hosts
KERNEL_PROCESSES, KERNEL_HELLO_MS = 2, 100  # of the daemons: nothing fails here
EMPTY_S = 120.0  # in which what waits is sent
THRESHOLDS = ("edge_packets", "edge_percent", "above_packets", "above_percent")
HOPS = {
    "edge": "first hop (edge)",
    "aggregation": "second hop (aggregation)",
    "core": "third hop (core)",
}


def measure(run: Run) -> Result:
    """Return queues of each hop, and how far those of the link groups are apart."""
    return on_kernel(run) if run.engine == "kernel" else by_model(run)


def by_model(run: Run) -> Result:
    """Run the slotted model."""
    d, slots, patterns = shape(run).d, run.integer("slots"), run.integer("patterns")
    sums = simulate(
        Conditions(
            d,
            run.integer("states"),
            int(run.text("arrivals") == "at-once"),
            *(run.integer(key) for key in THRESHOLDS),
        ),
        run.number("load_fraction"),
        slots=slots,
        patterns=patterns,
        rng=run.generator(),
    )
    watched, ports, switches = slots * patterns, 2 * d**3, 2 * d * d
    figures: Row = {
        f"{hop}_queue_packets": total / watched / ports
        for hop, total in zip(HOPS, sums.waiting, strict=True)
    }
    for hop, apart, changes in zip(HOPS, sums.apart, sums.changes, strict=False):
        figures[f"{hop}_apart_packets"] = float(apart / watched / switches)
        figures[f"{hop}_changes_per_1000_slots"] = float(1000 * changes / watched / switches)
    return Result(figures)


def on_kernel(run: Run) -> Result:
    """Send the model's packets through a network with LBSP's daemons, pattern by pattern."""
    rng = run.generator()
    topology, scheme = run.topology, kernel_scheme(run)
    link = LinkSpec(rate_bps=KERNEL_RATE_BPS, queue_packets=1000)
    with running(topology, link, scheme, packed=KERNEL_PROCESSES) as network:
        one_at_a_time(network)
        with Fidelity(network) as fidelity:
            patterns = [send_pattern(run, network, rng) for _ in range(run.integer("patterns"))]
        with DataPlane.open(network) as plane:
            bypassed = plane.bypassed()
    late_fraction = mean(sent.late_slots for sent in patterns) / run.integer("slots")
    figures = [by_hop(topology, shape(run).d, sent.queues) for sent in patterns]
    return Result(
        {
            **{key: mean(hops[key] for hops in figures) for key in figures[0]},
            "late_slots_fraction": late_fraction,
        },
        fidelity=kernel_run.with_late_slots(fidelity.report.verdict, late_fraction),
        circumstances={
            "fidelity_report": fidelity.report.as_dict(),
            "scheme": scheme,
            "rate_bps": KERNEL_RATE_BPS,
            "bypassed_packets": bypassed,
        },
    )


def send_pattern(run: Run, network: RunningNetwork, rng: Generator) -> SlottedObservation:
    """Send a random pattern, and wait until all queues are empty."""
    d = shape(run).d
    pattern = traffic(d, run.number("load_fraction"), run.integer("slots"), rng)
    sent = kernel_run.send_slots(network, paced(d, *pattern), KERNEL_RATE_BPS)
    wait_until("queues run empty", partial(is_empty, network), timeout_s=EMPTY_S)
    return sent


def is_empty(network: RunningNetwork) -> bool:
    """Return whether all queues are empty."""
    with PortCounterReader(network) as counters:
        return not any(port.waiting_packets for port in counters.snapshot().ports.values())


def kernel_scheme(run: Run) -> str:
    """Return the scheme of the daemons and the data plane."""
    states = [f"{key}={run.integer(key)}" for key in ("states", *THRESHOLDS)]
    return f"lbsp:{','.join(states)},hello_ms={KERNEL_HELLO_MS}"


def by_hop(
    topology: Topology, d: int, table: Mapping[tuple[int, int], Occupancy]
) -> dict[str, float]:
    """Return the mean queues of figure 9's hops, and how far the link groups' are apart.

    The hops are up at edge and aggregation switches, and down at core switches.
    """
    figures: dict[str, float] = {}
    for hop, level in zip(HOPS, (1, 2, 2), strict=True):
        rows = topology.links[topology.level == level].tolist()
        ends = [(row[2], row[3]) if hop == "core" else (row[0], row[1]) for row in rows]
        means = np.array([table[end].mean_packets for end in sorted(ends)])
        figures[f"{hop}_queue_packets"] = float(means.mean())
        if hop != "core":
            groups = means.reshape(-1, d // 2, 2).mean(axis=1)
            figures[f"{hop}_means_apart_packets"] = float(abs(groups[:, 0] - groups[:, 1]).mean())
    return figures


def shape(run: Run) -> LbspShape:
    """Return the fat-tree of `run`; ValueError if LBSP cannot divide its paths."""
    topology = run.topology
    radices = topology.naming.layout.radices
    if topology.family != "fattree" or radices != (2 * radices[-1], radices[-1], radices[-1]):
        raise ValueError(f"lbsp_queues: topology must be a fattree:k=..., not {topology.spec}")
    return LbspShape.of(radices)


def check(run: Run) -> None:
    """Raise ValueError unless LBSP suits the fat-tree of `run`, and the engine its arrivals."""
    d = shape(run).d
    room_bytes = 8 * 4 * d**3 * d * d * run.integer("slots")
    if run.engine == "graph" and room_bytes > MOST_BYTES:
        most = MOST_BYTES * run.integer("slots") // room_bytes
        raise ValueError(
            f"lbsp_queues: slots must be at most {most} in {run.text('topology')}, got "
            f"{run.integer('slots')}"
        )
    if run.engine == "kernel":
        common.network(run)
    if run.engine == "kernel" and run.text("arrivals") != "paced":
        raise ValueError(
            "lbsp_queues: hosts on the kernel send one packet a slot, so arrivals are paced"
        )


def packets(tier: str) -> Integer:
    """Return the first threshold of the switches of `tier`."""
    meaning = f"mean queue above which a link group of an {tier} switch is crowded"
    return Integer(meaning, unit="packets", least=0, most=1_000_000)


def percent(tier: str) -> Integer:
    """Return their second threshold."""
    meaning = f"what it must exceed, too, in an {tier} switch, of the other group's mean queue"
    return Integer(meaning, unit="%", least=100, most=1_000_000)


SETTING = ("arrivals", "topology", *THRESHOLDS, "slots", "patterns")


def by_hop_and_states(table: Table) -> Table:
    """Return a row for each hop of each run, with what distinguishes the lines of a hop."""
    rows = []
    for row in table:
        states = "with states" if row["states"] else "without states"
        engine = ", Linux" if row["engine"] == "kernel" else ""
        for hop, label in HOPS.items():
            figures = {key: row.get(f"{hop}_{key}") for key in ("queue_packets", "apart_packets")}
            rows.append({**row, **figures, "hop": label, "variant": states + engine})
    return rows


EXPERIMENT = Experiment(
    name="lbsp_queues",
    question="How long do LBSP's queues grow, and how far apart are its link groups, with and "
    "without their states?",
    source="LBSP, section 5.2, figure 9",
    engines=("graph", "kernel"),
    axes={
        "topology": common.TOPOLOGY.over("fattree:k=8"),
        "load_fraction": common.LOAD_FRACTION.over(0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9),
        "states": Integer(
            "1: crowded link groups give packets away (section 5.1)", least=0, most=1
        ).over(1, 0),
        "arrivals": Word(
            "packets of a burst arrive one a slot, or all at once",
            words=("paced", "at-once"),
        ).over("paced", "at-once"),
        "edge_packets": packets("edge").over(5),
        "edge_percent": percent("edge").over(150),
        "above_packets": packets("aggregation").over(20),
        "above_percent": percent("aggregation").over(200),
        "slots": Integer("slots of a pattern", unit="slots", least=1, most=1_000_000).over(1000),
        "patterns": Integer(
            "random permutations, one after the other",
            unit="patterns",
            least=1,
            most=100_000,
        ).over(100),
    },
    columns={
        "*_queue_packets": (
            "mean queue of a port of that hop: up from edge, up from aggregation, down from core "
            "switches"
        ),
        "*_means_apart_packets": (
            "distance between the mean queues of a switch's two link groups, mean over switches"
        ),
        "*_apart_packets": (
            "distance between the queues of a switch's two link groups, mean over switches and "
            "slots"
        ),
        "*_changes_per_1000_slots": "how often such a switch changes its state",
        "late_slots_fraction": "slots that the senders began too late",
    },
    seeds=1,
    version=3,
    takes_s=43,
    measure=measure,
    plot=Curves(
        columns={
            "queue_packets": "mean queue (packets)",
            "apart_packets": "link groups apart (packets)",
        },
        x="load_fraction",
        series="hop",
        dash="variant",
        facet=SETTING,
        log=("queue_packets", "apart_packets"),
        rows=by_hop_and_states,
    ),
    check=check,
)
