"""How long do queues grow at each hop under LBSP, and how far apart are those of its two link
groups?

LBSP, section 5.2, figure 9, as lbsp_model.py reads it; with the states of section 5.1 and without,
which the paper does not show.  A link group's queue is the mean of its ports'.

On the kernel the same packets are sent, slot by slot, through real queues under LBSP's daemons and
data plane, pattern after pattern through queues that have run empty; each is averaged over all the
time that its slots take, exactly.  How far apart two link groups are from moment to moment is not
seen there, only how far apart their averages are.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from statistics import mean
from typing import TYPE_CHECKING

import numpy as np

from weft.daemons.lbsp.routing import LbspShape
from weft.experiments.engines import common_parameters as common
from weft.experiments.lbsp import columns
from weft.experiments.lbsp.lbsp_model import Conditions, paced, simulate, traffic
from weft.experiments.report.panels import Curves
from weft.experiments.runner.definition import Experiment, Result, Row, Run, Table, Value
from weft.experiments.runner.parameters import Integer, Word
from weft.topologies import build
from weft.topologies.core.link import LinkSpec, Mbps
from weft.topologies.core.topology import Topology

if TYPE_CHECKING:
    from weft.testbed.measure.occupancy import Occupancies, Occupancy
    from weft.testbed.network.network import RunningNetwork

MOST_BYTES = 1 << 31  # of the model's queues
KERNEL_RATE_MBPS = 1  # at which one process can send for 128 hosts
KERNEL_PROCESSES, KERNEL_HELLO_MS = 2, 100  # of the daemons: nothing fails here
EMPTY_S = 120.0  # in which what waits is sent
THRESHOLDS = ("edge_packets", "edge_percent", "above_packets", "above_percent")
HOPS = {
    "edge": "first hop (edge)",
    "aggregation": "second hop (aggregation)",
    "core": "third hop (core)",
}


def measure(run: Run) -> Result:
    """Mean queue of each hop, mean distance between link groups' queues, and how often a switch
    changes its state.
    """
    if run.engine == "kernel":
        return on_kernel(run)
    d = shape(run).d
    slots, patterns = run.integer("slots"), run.integer("patterns")
    at_once = int(run.text("arrivals") == "at-once")
    on = Conditions(d, run.integer("states"), at_once, *(run.integer(key) for key in THRESHOLDS))
    rng = np.random.default_rng(run.seed)
    seen = simulate(
        on, float(run.parameters["load_fraction"]), slots=slots, patterns=patterns, rng=rng
    )
    watched = slots * patterns
    ports, switches = 2 * d**3, 2 * d * d
    queues = {
        f"{hop}_queue_packets": float(total / watched / ports)
        for hop, total in zip(HOPS, seen.waiting, strict=True)
    }
    apart = dict(zip(HOPS, seen.apart, strict=False))
    changes = dict(zip(HOPS, seen.changes, strict=False))
    return Result(
        figures={
            **queues,
            **{
                f"{hop}_apart_packets": float(total / watched / switches)
                for hop, total in apart.items()
            },
            **{
                f"{hop}_changes_per_1000_slots": float(1000 * n / watched / switches)
                for hop, n in changes.items()
            },
        }
    )


def on_kernel(run: Run) -> Result:
    """Mean queue of each hop of a network, and how far the link groups' means lie apart."""
    from weft.experiments.ttc.ttc_kernel import worse
    from weft.testbed.data_plane.data_plane import DataPlane
    from weft.testbed.linux.clock import wait_until
    from weft.testbed.measure.fidelity import Fidelity
    from weft.testbed.measure.occupancy import Occupancies
    from weft.testbed.network.degrade import one_at_a_time
    from weft.testbed.network.network import RunningNetwork
    from weft.testbed.traffic import slotted_udp

    topology, d = build(run.text("topology")), shape(run).d
    rate_bps = KERNEL_RATE_MBPS * Mbps
    rng = np.random.default_rng(run.seed)
    link = LinkSpec(rate_bps=rate_bps, queue_packets=1000)
    network = RunningNetwork.create(
        topology, link, scheme=kernel_scheme(run), packed=KERNEL_PROCESSES
    )
    try:
        one_at_a_time(network)
        seen: list[Mapping[tuple[int, int], Occupancy]] = []
        late_slots = slots = 0
        with Fidelity(network) as fidelity:
            for _ in range(run.integer("patterns")):
                to, begins = traffic(d, run.number("load_fraction"), run.integer("slots"), rng)
                sent = paced(d, to, begins)
                with Occupancies(network) as queues:
                    at_end = partial(read_into, seen, queues)
                    told = slotted_udp.run(network, sent.tolist(), rate_bps=rate_bps, at_end=at_end)
                wait_until("queues run empty", partial(is_empty, network), timeout_s=EMPTY_S)
                late_slots, slots = late_slots + told.late_slots, slots + len(sent)
        with DataPlane.open(network) as plane:
            bypassed = plane.bypassed()
    finally:
        network.down()
    late_fraction = late_slots / slots
    every = [by_hop(topology, d, table) for table in seen]
    return Result(
        figures={key: mean(float(str(one[key])) for one in every) for key in every[0]}
        | {"late_slots_fraction": late_fraction},
        fidelity=worse(fidelity.report.verdict, late_fraction),
        circumstances={
            "fidelity_report": fidelity.report.as_dict(),
            "scheme": kernel_scheme(run),
            "rate_bps": rate_bps,
            "bypassed_packets": bypassed,
        },
    )


def read_into(seen: list[Mapping[tuple[int, int], Occupancy]], queues: Occupancies) -> None:
    """Note what the queues of a pattern were like."""
    seen.append(queues.read())


def is_empty(network: RunningNetwork) -> bool:
    """Whether nothing waits anywhere."""
    from weft.testbed.measure.port_counters import PortCounterReader

    with PortCounterReader(network) as counters:
        return not any(port.waiting_packets for port in counters.snapshot().ports.values())


def kernel_scheme(run: Run) -> str:
    """The scheme that the daemons and the data plane of `run` are given."""
    states = [f"{key}={run.integer(key)}" for key in ("states", *THRESHOLDS)]
    return f"lbsp:{','.join(states)},hello_ms={KERNEL_HELLO_MS}"


def by_hop(
    topology: Topology, d: int, table: Mapping[tuple[int, int], Occupancy]
) -> dict[str, Value]:
    """The mean queues of figure 9's hops: up at edge and aggregation switches, down at core
    switches.
    """
    found: dict[str, Value] = {}
    for level, (hop, of_apart) in enumerate(
        (("edge", True), ("aggregation", True), ("core", False)), 1
    ):
        rows = topology.links[topology.level == min(level, 2)].tolist()
        ends = [(row[2], row[3]) if hop == "core" else (row[0], row[1]) for row in rows]
        means = np.array([table[end].mean_packets for end in sorted(ends)])
        found[f"{hop}_queue_packets"] = float(means.mean())
        if of_apart:
            groups = means.reshape(-1, d // 2, 2).mean(axis=1)
            found[f"{hop}_means_apart_packets"] = float(abs(groups[:, 0] - groups[:, 1]).mean())
    return found


def shape(run: Run) -> LbspShape:
    """The fat-tree of `run`; ValueError if LBSP cannot part its paths."""
    topology = build(run.text("topology"))
    radices = topology.naming.layout.radices
    if topology.family != "fattree" or radices != (2 * radices[-1], radices[-1], radices[-1]):
        raise ValueError(f"lbsp_queues: topology must be a fattree:k=..., not {topology.spec}")
    return LbspShape.of(radices)


def check(run: Run) -> None:
    """ValueError unless LBSP is for the fat-tree of `run`, memory has room, and the engine has its
    arrivals.
    """
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
    """The first threshold of the switches of `tier`."""
    meaning = f"mean queue above which a link group of an {tier} switch is crowded"
    return Integer(meaning=meaning, unit="packets", least=0, most=1_000_000)


def percent(tier: str) -> Integer:
    """The second."""
    meaning = f"what it must exceed, too, in an {tier} switch, of the other group's mean queue"
    return Integer(meaning=meaning, unit="%", least=100, most=1_000_000)


SETTING = ("arrivals", "topology", *THRESHOLDS, "slots", "patterns")


def by_hop_and_states(table: Table) -> list[Row]:
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
            meaning="1: crowded link groups give packets away (section 5.1)", least=0, most=1
        ).over(1, 0),
        "arrivals": Word(
            meaning="packets of a burst arrive one a slot, or all at once",
            words=("paced", "at-once"),
        ).over("paced", "at-once"),
        "edge_packets": packets("edge").over(5),
        "edge_percent": percent("edge").over(150),
        "above_packets": packets("aggregation").over(20),
        "above_percent": percent("aggregation").over(200),
        "slots": Integer(meaning="slots of a pattern", unit="slots", least=1, most=1_000_000).over(
            1000
        ),
        "patterns": Integer(
            meaning="random permutations, one after the other",
            unit="patterns",
            least=1,
            most=100_000,
        ).over(100),
    },
    columns=columns.QUEUES,
    seeds=1,
    version=2,
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
