"""TTC's packet experiment on the kernel: queues and delays of real packets, beside those of the
slotted model.

As in section 4.2 a slot is the time that a full packet takes on a link; in every slot a random
permutation of the hosts is drawn and each host sends with probability load (traffic=udp:load=0.8,
in hundredths: load=80).  Switches are Linux's queues under the data plane; their lengths are
averaged over all the time, by layer of links.  The model is run with the same scheme and load.
Delays leave out what an empty network takes: in the model a slot for each link, on the kernel the
links' own delays and next to nothing else, for a packet that finds a link idle is on its way at
once. traffic=tcp is what the paper never did: every host sends one endless TCP flow, to a
permutation, and receives one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from weft.daemons.core import registry
from weft.daemons.load_balancing.scheme import ChoiceRule
from weft.daemons.routing.shortest import distances
from weft.experiments.engines import common_parameters as common
from weft.experiments.report.panels import Bars, Curves, Stack
from weft.experiments.runner.definition import Experiment, Result, Row, Run, Table, Value
from weft.experiments.runner.parameters import Spec
from weft.experiments.ttc import columns
from weft.experiments.ttc.fat_tree_links import LayeredTreeShape, fat_tree, rules
from weft.experiments.ttc.packet_model import simulate
from weft.topologies.core.grammar import integer, parse
from weft.topologies.core.link import Mbps
from weft.topologies.core.topology import Topology

if TYPE_CHECKING:
    from weft.testbed.data_plane.data_plane import PortCounts
    from weft.testbed.measure.occupancy import Occupancy

    Counters = Mapping[tuple[int, int], PortCounts]

MOST_TCP_WARM_UP_S, MOST_TCP_S = 1.0, 4.0
MODEL_SLOTS, MODEL_WATCHED = 3000, 1500
LENGTHS = 64


def load_of(run: Run) -> float | None:
    """The offered load; None for TCP."""
    return load_in(run.text("traffic"))


def load_in(text: str) -> float | None:
    """The load that `text` offers; None for TCP.  ValueError for anything else."""
    name, given = parse(text)
    if name == "tcp" and not given:
        return None
    if name != "udp" or set(given) != {"load"}:
        raise ValueError(f"ttc_kernel: traffic must be tcp or udp:load=PERCENT, got {text!r}")
    return integer("udp", "load", given["load"], least=1, most=99) / 100


def measure(run: Run) -> Result:
    """Queue lengths of each layer, packets' delays and order; for TCP its goodput."""
    from weft.experiments.engines import fabric_run
    from weft.testbed.network.degrade import one_at_a_time

    rate_bps = run.integer("rate_mbps") * Mbps
    load = load_of(run)
    with fabric_run.fabric(run, common.link(run)) as on:
        if load is None:
            return tcp(run, on)
        one_at_a_time(on.network)
        return udp(run, on, rate_bps, load)


def udp(run: Run, on: Any, rate_bps: int, load: float) -> Result:
    """Slots of packets."""
    from weft.experiments.engines.workloads import derangements
    from weft.testbed.measure.fidelity import Fidelity
    from weft.testbed.measure.occupancy import Occupancies
    from weft.testbed.measure.reordering import Reordering
    from weft.testbed.traffic import slotted_udp

    slot_us = 1e6 * slotted_udp.slot_s(rate_bps)
    rng = np.random.default_rng(run.seed)
    count = round(run.number("seconds") * 1e6 / slot_us)
    destinations = derangements(rng, on.topology.servers, count)
    destinations[rng.random(destinations.shape) >= load] = -1
    before = on.plane.counters()
    with (
        Reordering(on.network) as order,
        Occupancies(on.network) as queues,
        Fidelity(on.network) as fidelity,
    ):
        seen: list[Mapping[tuple[int, int], Occupancy]] = []
        sent = slotted_udp.run(
            on.network,
            destinations.tolist(),
            rate_bps=rate_bps,
            at_begin=queues.begin,  # what Fidelity has sent before does not count
            at_end=lambda: seen.append(queues.read()),
        )
    late_fraction = sent.late_slots / count
    return Result(
        figures={
            **layers(on.topology, seen[0]),
            "delay_mean_slots": (
                order.table.mean_delay_us - links_us(run, on.topology, destinations)
            )
            / slot_us,
            "delay_p99_slots": order.table.delay_us(99) / slot_us,
            "late_fraction": order.table.late_fraction,
            "lost_packets": order.table.lost,
            **redirected(run, on.topology, before, on.plane.counters()),
        },
        fidelity=worse(fidelity.verdict, late_fraction),
        circumstances={
            "fidelity_report": fidelity.report.as_dict(),
            "late_slots_fraction": late_fraction,
            "bypassed_packets": on.plane.bypassed(),
        },
    )


def links_us(run: Run, topology: Topology, destinations: NDArray[np.int64]) -> float:
    """What the delays of links add up to on a packet's way from its first switch on, on average
    over all that are sent: destinations[slot, host] is a host, or -1 for no packet.
    """
    if not run.integer("delay_us"):
        return 0.0
    hosts = range(topology.servers)
    hops = np.array(
        [
            [hops_to[dst] for dst in hosts]
            for hops_to in (distances(topology.adjacency, src) for src in hosts)
        ]
    )
    sent = destinations >= 0
    return run.integer("delay_us") * float(hops[np.nonzero(sent)[1], destinations[sent]].mean() - 1)


def worse(verdict: str, late_fraction: float) -> str:
    """The verdict, seeing that so many slots were sent too late."""
    if late_fraction > 0.05:
        return "FAIL"
    return "WARN" if late_fraction > 0.01 and verdict == "PASS" else verdict


def tcp(run: Run, on: Any) -> Result:
    """Endless flows."""
    from weft.experiments.engines import fabric_run
    from weft.experiments.engines.workloads import endless, permutation
    from weft.testbed.measure.occupancy import Occupancies

    warm_up_s = min(MOST_TCP_WARM_UP_S, run.number("seconds"))
    seconds = min(MOST_TCP_S, 4 * run.number("seconds"))
    chosen = permutation(np.random.default_rng(run.seed), on.topology.servers)
    before = on.plane.counters()
    with Occupancies(on.network) as queues:
        seen = fabric_run.tcp(
            run,
            on.network,
            endless(chosen),
            deadline_s=warm_up_s + seconds,
            warm_up_s=warm_up_s,
            congestion_control="cubic",
            at_warm_up=queues.begin,
        )
    return Result(
        figures={
            **layers(on.topology, queues.table),
            "goodput_bps": seen.flows.goodput_bps,
            **redirected(run, on.topology, before, on.plane.counters()),
            **fabric_run.order_figures(seen),
        },
        fidelity=seen.report.verdict,
        circumstances=fabric_run.circumstances(on, seen),
    )


def layers(topology: Topology, table: Mapping[tuple[int, int], Occupancy]) -> dict[str, Value]:
    """Mean and maximum queue of each layer of links: up and down between tiers l and l+1, and down
    to the hosts.
    """
    from weft.testbed.measure.occupancy import merge_queues

    found: dict[str, Value] = {}
    for level in range(int(topology.level.max()) + 1):
        rows = topology.links[topology.level == level].tolist()
        for name, ends in (
            (f"up{level}", [row[:2] for row in rows]),
            (f"down{level}", [row[2:] for row in rows]),
        ):
            queue = merge_queues(table[node, port] for node, port in ends)
            label = {"up0": "sending", "down0": "hosts"}.get(name, name)
            found[f"{label}_mean_queue_packets"] = queue.mean_packets
            found[f"{label}_max_queue_packets"] = queue.longest
    return found


def redirected(run: Run, topology: Topology, before: Counters, after: Counters) -> dict[str, Value]:
    """Of the packets that switches of each tier sent up the fraction that TTC moved away from
    D-mod-k's port; None under other schemes, for which the data plane does not count this, and
    where nothing went up.
    """
    of_ttc = registry.rule(run.text("scheme")).rule == ChoiceRule.TTC
    found: dict[str, Value] = {}
    for level in range(1, int(topology.level.max()) + 1):
        ends = [
            (node, port) for node, port, _, _ in topology.links[topology.level == level].tolist()
        ]
        packets = sum(after[end].packets - before[end].packets for end in ends)
        moved = sum(after[end].moved - before[end].moved for end in ends)
        found[f"up{level}_redirected_fraction"] = moved / packets if of_ttc and packets else None
    return found


def model(run: Run) -> dict[str, Value]:
    """What the slotted model says; nothing of TCP, nor for a scheme that it does not have."""
    load = load_of(run)
    if load is None:
        return {}
    ft = fat_tree(run.experiment, run.text("topology"))
    try:
        of = rules(run.text("scheme"))
    except ValueError:
        return {}
    seen, latencies = simulate(
        ft,
        of,
        load,
        slots=MODEL_SLOTS,
        watched=MODEL_WATCHED,
        lengths=LENGTHS,
        rng=np.random.default_rng(run.seed),
    )
    in_service = seen.histogram[:, 1:].sum(axis=1)
    means = (seen.total - in_service) / (ft.hosts * MODEL_WATCHED)
    return {
        "model_delay_mean_slots": float(latencies.mean.mean()) - mean_links(ft),
        **{f"model_{key}": value for key, value in seen.choices.figures().items()},
        **{
            f"model_{name}_mean_queue_packets": float(value)
            for name, value in zip(ft.layers, means, strict=True)
        },
    }


def mean_links(ft: LayeredTreeShape) -> float:
    """Links between two random different hosts of FT(n,d): 2h for a distance of h."""
    others, total, nearer = ft.hosts - 1, 0, 0
    for h in range(1, ft.n + 1):
        within = (ft.d**h if h < ft.n else ft.hosts) - 1
        total += 2 * h * (within - nearer)
        nearer = within
    return total / others


def check(run: Run) -> None:
    """ValueError unless `run` names a fat-tree that its scheme suits."""
    from weft.experiments.engines import fabric_run

    fabric_run.check_scheme(run)
    common.check_delay(run)
    common.check_tcp(run)
    fat_tree(run.experiment, run.text("topology"))


SHOWN = {
    "delay_mean_slots": "mean queueing delay (slots)",
    "up1_mean_queue_packets": "mean queue up, layer 1 (packets)",
    "up1_redirected_fraction": "packets that TTC redirects at layer 1 (fraction)",
}
SETTING = ("topology", "rate_mbps", "queue_packets", "delay_us", "rto_min_us", "seconds")


def beside_model(table: Table) -> list[Row]:
    """Return a row for the kernel and one for the model of each run with UDP, with its load."""
    rows = []
    for row in table:
        load = load_in(str(row["traffic"]))
        if load is not None:
            modelled = {key: row.get(f"model_{key}") for key in SHOWN}
            rows.append(row | {"load_fraction": load, "source": "Linux"})
            rows.append({**row, "load_fraction": load, "source": "model", **modelled})
    return rows


EXPERIMENT = Experiment(
    name="ttc_kernel",
    question="Are queues and delays of real packets what TTC's slotted model says, and what does "
    "TCP make of it?",
    source="TTC, section 4.2, figures 5 and 6, on the kernel",
    engines=("kernel",),
    axes={
        "topology": common.TOPOLOGY.over("fattree:k=4", "fattree:n=2,d=4"),
        "scheme": common.SCHEME.over(
            "dmodk", "vlb:per=packet", "micro", "ttc:delta=0", "ttc", "jsq"
        ),
        "traffic": Spec(
            meaning="TCP, or UDP at a load", form="tcp or udp:load=1..99 (%)", check=load_in
        ).over(*(f"udp:load={load}" for load in (10, 30, 50, 70, 80, 90, 95)), "tcp"),
        "rate_mbps": common.RATE_MBPS.over(1000),
        "queue_packets": common.QUEUE_PACKETS.over(250),
        "delay_us": common.DELAY_US.over(0),
        "rto_min_us": common.RTO_MIN_US,
        "seconds": common.PART_OF_SECONDS.over(0.025),
    },
    columns=columns.TTC_KERNEL,
    seeds=3,
    measure=measure,
    predict=model,
    version=3,
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
