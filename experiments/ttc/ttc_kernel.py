"""Queues and delays of real packets beside those of TTC's slotted model (section 4.2).

A slot is the time that a full packet takes on a link.  In every slot a random permutation of the
hosts is drawn, and each host sends with a probability that is the load (udp:load=80 is 0.8).
Switches are Linux's queues under the data plane; their lengths are averaged over time, by layer of
links.  The model runs with the same scheme and load.

Delays are queueing alone: they leave out the time in an empty network, which is a slot for each
link in the model, the links' own delays on the kernel, and both under the virtual clock.

traffic=tcp is beyond the paper: every host sends one endless TCP flow to a permutation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from weft.daemons.core import registry
from weft.daemons.load_balancing.scheme import ChoiceRule
from weft.daemons.routing.shortest import distances
from weft.experiments.engines import common_parameters as common
from weft.experiments.engines import kernel_run
from weft.experiments.engines.arrays import Ints
from weft.experiments.engines.common_parameters import ORDER
from weft.experiments.engines.kernel_run import FabricRun
from weft.experiments.engines.workloads import endless, permutation
from weft.experiments.report.panels import Bars, Curves, Stack
from weft.experiments.runner.definition import Experiment, Result, Row, Run, Table
from weft.experiments.runner.parameters import Spec
from weft.experiments.ttc.fat_tree_links import CHOICE_COLUMNS, LayeredTreeShape, fat_tree, rules
from weft.experiments.ttc.packet_model import QUEUE_COLUMNS, packets, simulate
from weft.testbed.data_plane.data_plane import PortCounts
from weft.testbed.measure.fidelity import Fidelity
from weft.testbed.measure.queues import Occupancies, Occupancy, merge_queues
from weft.testbed.measure.reordering import OrderTable, Reordering
from weft.testbed.network.impair import one_at_a_time
from weft.testbed.traffic import slotted_udp
from weft.topologies.core.grammar import integer, parse
from weft.topologies.core.link import Mbps
from weft.topologies.core.topology import Topology

if TYPE_CHECKING:
    Counters = Mapping[tuple[int, int], PortCounts]

MOST_TCP_WARM_UP_S, MOST_TCP_S = 1.0, 4.0
MODEL_SLOTS, MODEL_WATCHED = 3000, 1500
LENGTHS = 64


def load_in(text: str) -> float | None:
    """Return the load that `text` offers; None for TCP, ValueError for anything else."""
    name, options = parse(text)
    if name == "tcp" and not options:
        return None
    if name != "udp" or set(options) != {"load"}:
        raise ValueError(f"ttc_kernel: traffic must be tcp or udp:load=PERCENT, got {text!r}")
    return integer("udp", "load", options["load"], least=1, most=99) / 100


def measure(run: Run) -> Result:
    """Return queue lengths of each layer, delays and order of packets, and the goodput of TCP."""
    load = load_in(run.text("traffic"))
    with kernel_run.fabric(run, common.link(run)) as fabric:
        if load is None:
            return tcp(run, fabric)
        one_at_a_time(fabric.network)
        return udp(run, fabric, load)


def udp(run: Run, fabric: FabricRun, load: float) -> Result:
    """Measure slots of packets."""
    network, topology, rate_bps = fabric.network, fabric.topology, run.integer("rate_mbps") * Mbps
    slots = round(run.number("seconds") * 1e6 / slot_us(run))
    destinations = packets(run.generator(), topology.servers, slots, load)
    before = fabric.plane.counters()
    with Reordering(network) as order, Fidelity(network) as fidelity:
        sent = kernel_run.send_slots(network, destinations, rate_bps)
    late_fraction = sent.late_slots / len(destinations)
    return Result(
        {
            **layers(topology, sent.queues),
            **delays(order.table, slot_us(run), links_us(run, topology, destinations)),
            **redirected(run, topology, before, fabric.plane.counters()),
        },
        fidelity=kernel_run.with_late_slots(fidelity.verdict, late_fraction),
        circumstances={
            "fidelity_report": fidelity.report.as_dict(),
            "late_slots_fraction": late_fraction,
            "bypassed_packets": fabric.plane.bypassed(),
        },
    )


def delays(table: OrderTable, slot_us: float, empty_us: float) -> Row:
    """Return the columns about delays, order and loss.

    empty_us: mean delay in an empty network.
    """
    return {
        "delay_mean_slots": (table.mean_delay_us - empty_us) / slot_us,
        "delay_p99_slots": table.delay_us(99) / slot_us,
        "late_fraction": table.late_fraction,
        "lost_packets": table.lost,
    }


def slot_us(run: Run) -> float:
    """Return the time of a full packet on a link."""
    return 1e6 * slotted_udp.slot_s(run.integer("rate_mbps") * Mbps)


def links_us(run: Run, topology: Topology, destinations: Ints) -> float:
    """Return the mean time on a packet's links in an empty network, from its first switch on.

    Under the virtual clock a packet arrives when its last bit has left; on the real clock HTB sends
    it at once.

    destinations: of packets(), shape (slots, hosts).
    """
    link_us = run.integer("delay_us") + (slot_us(run) if run.clock == "virtual" else 0.0)
    if not link_us:
        return 0.0
    hosts = range(topology.servers)
    to = [distances(topology.adjacency, src) for src in hosts]
    hops = np.array([[to[src][dst] for dst in hosts] for src in hosts])
    sent = destinations >= 0
    return link_us * float(hops[np.nonzero(sent)[1], destinations[sent]].mean() - 1)


def tcp(run: Run, fabric: FabricRun) -> Result:
    """Measure endless TCP flows."""
    warm_up_s = min(MOST_TCP_WARM_UP_S, run.number("seconds"))
    ends = permutation(run.generator(), fabric.topology.servers)
    before = fabric.plane.counters()
    with Occupancies(fabric.network) as queues:
        observation = kernel_run.send_tcp(
            run,
            fabric.network,
            endless(ends),
            deadline_s=warm_up_s + min(MOST_TCP_S, 4 * run.number("seconds")),
            warm_up_s=warm_up_s,
            congestion_control="cubic",
            at_warm_up=queues.begin,
        )
    return observation.result(
        {
            **layers(fabric.topology, queues.table),
            "goodput_bps": observation.flows.goodput_bps,
            **redirected(run, fabric.topology, before, fabric.plane.counters()),
        },
        fabric.facts(),
    )


def layers(topology: Topology, table: Mapping[tuple[int, int], Occupancy]) -> Row:
    """Return mean and longest queue of each layer of links, up and down."""
    figures: Row = {}
    for level in range(int(topology.level.max()) + 1):
        rows = topology.links[topology.level == level].tolist()
        ways = {f"up{level}": [row[:2] for row in rows], f"down{level}": [row[2:] for row in rows]}
        for name, ends in ways.items():
            queue = merge_queues(table[node, port] for node, port in ends)
            label = {"up0": "sending", "down0": "hosts"}.get(name, name)
            figures[f"{label}_mean_queue_packets"] = queue.mean_packets
            figures[f"{label}_max_queue_packets"] = queue.longest
    return figures


def redirected(run: Run, topology: Topology, before: Counters, after: Counters) -> Row:
    """Return the fraction of packets that TTC moved away from D-mod-k's port, for each tier.

    None under other schemes, for which the data plane does not count this, and without packets.
    """
    is_ttc = registry.rule(run.text("scheme")).rule == ChoiceRule.TTC
    figures: Row = {}
    for level in range(1, int(topology.level.max()) + 1):
        ends = [
            (node, port) for node, port, _, _ in topology.links[topology.level == level].tolist()
        ]
        sent = sum(after[end].packets - before[end].packets for end in ends)
        moved = sum(after[end].moved - before[end].moved for end in ends)
        figures[f"up{level}_redirected_fraction"] = moved / sent if is_ttc and sent else None
    return figures


def model(run: Run) -> Row:
    """Return the figures of the slotted model; none of TCP and of schemes that it lacks."""
    load = load_in(run.text("traffic"))
    if load is None:
        return {}
    ft = fat_tree(run)
    try:
        scheme_rules = rules(run.text("scheme"))
    except ValueError:
        return {}
    watched, latencies = simulate(
        ft,
        scheme_rules,
        load,
        slots=MODEL_SLOTS,
        watched=MODEL_WATCHED,
        lengths=LENGTHS,
        rng=run.generator(),
    )
    in_service = watched.histogram[:, 1:].sum(axis=1)
    means = (watched.total - in_service) / (ft.hosts * MODEL_WATCHED)
    return {
        "model_delay_mean_slots": float(latencies.mean.mean()) - mean_links(ft),
        **{f"model_{key}": value for key, value in watched.choices.figures().items()},
        **{
            f"model_{name}_mean_queue_packets": value
            for name, value in zip(ft.layers, means, strict=True)
        },
    }


def mean_links(ft: LayeredTreeShape) -> float:
    """Return the mean number of links between two random hosts: 2h for a distance of h."""
    others, total, nearer = ft.hosts - 1, 0, 0
    for h in range(1, ft.n + 1):
        within = (ft.d**h if h < ft.n else ft.hosts) - 1
        total += 2 * h * (within - nearer)
        nearer = within
    return total / others


def check(run: Run) -> None:
    """Raise ValueError unless `run` has a fat-tree that its scheme suits."""
    kernel_run.check_scheme(run)
    common.check_delay(run)
    common.check_tcp(run)
    fat_tree(run)


SHOWN = {
    "delay_mean_slots": "mean queueing delay (slots)",
    "up1_mean_queue_packets": "mean queue up, layer 1 (packets)",
    "up1_redirected_fraction": "packets that TTC redirects at layer 1 (fraction)",
}
SETTING = ("topology", "rate_mbps", "queue_packets", "delay_us", "rto_min_us", "seconds")


def beside_model(table: Table) -> Table:
    """Return a row for the kernel and one for the model of each run with UDP, with its load."""
    rows = []
    for row in table:
        load = load_in(row["traffic"])
        if load is not None:
            modelled = {key: row.get(f"model_{key}") for key in SHOWN}
            rows.append(row | {"load_fraction": load, "source": "Linux"})
            rows.append({**row, "load_fraction": load, "source": "model", **modelled})
    return rows


EXPERIMENT = Experiment(
    name="ttc_kernel",
    question=(
        "Do queues and delays of real packets match TTC's slotted model, and which goodput does "
        "TCP reach?"
    ),
    source="TTC, section 4.2, figures 5 and 6, on the kernel",
    engines=("kernel",),
    axes={
        "topology": common.TOPOLOGY.over("fattree:k=4", "fattree:n=2,d=4"),
        "scheme": common.SCHEME.over(
            "dmodk", "vlb:per=packet", "micro", "ttc:delta=0", "ttc", "jsq"
        ),
        "traffic": Spec(
            "TCP, or UDP at a load", form="tcp or udp:load=1..99 (%)", check=load_in
        ).over(*(f"udp:load={load}" for load in (10, 30, 50, 70, 80, 90, 95)), "tcp"),
        "rate_mbps": common.RATE_MBPS.over(1000),
        "queue_packets": common.QUEUE_PACKETS.over(250),
        "delay_us": common.DELAY_US.over(0),
        "rto_min_us": common.RTO_MIN_US,
        "seconds": common.PART_OF_SECONDS.over(0.025),
    },
    columns={
        **QUEUE_COLUMNS,
        "delay_mean_slots": (
            "mean time of a packet from the first switch to the receiver, in packet times; "
            "queueing alone"
        ),
        "delay_p99_slots": (
            "99th percentile of that time, with the delays that links themselves have"
        ),
        "lost_packets": "packets that did not arrive",
        **CHOICE_COLUMNS,
        "model_delay_mean_slots": "prediction of the slotted model for delay_mean_slots",
        "model_*": "prediction of the slotted model for the column named after model_",
        "goodput_bps": "payload of all TCP flows that arrives in a second",
        **ORDER,
    },
    seeds=3,
    takes_s=1100,
    measure=measure,
    predict=model,
    version=4,  # the clock is the same from any checkout
    plot=Stack(
        Curves(
            columns=SHOWN,
            x="load_fraction",
            dash="source",
            facet=SETTING,
            log=("delay_mean_slots", "up1_mean_queue_packets"),
            rows=beside_model,
        ),
        Bars(columns={"goodput_bps": "TCP goodput (bit/s)"}, facet=SETTING),
    ),
    check=check,
)
