"""Throughput and latency of shortest paths, Valiant and UGAL-L by load, at low diameter.

Hosts send packets to hosts at random times, whatever becomes of them: an open loop, as in
simulations of interconnection networks (Kim et al., ISCA 2008, figure 8; Besta and Hoefler, SC
2014, figure 6).  Queues hold all that waits, and no switch is held back by a full queue of the
next, which is so on Ethernet and not in those sources.

Under `shift` all hosts of a group of a Dragonfly, or of a switch of another network, send to
random hosts of the next one: the worst traffic for shortest paths, if few lead there.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from weft.daemons.core import registry
from weft.daemons.transport.endpoint import Parameters
from weft.experiments.engines import common_parameters as common
from weft.experiments.engines.arrays import Ints
from weft.experiments.report.panels import Curves
from weft.experiments.runner.definition import Experiment, Result, Run
from weft.experiments.runner.parameters import Integer, Number, Word
from weft.testbed.packets.forwarding import check_forwarding, forwarding
from weft.testbed.packets.network import PacketLink, PacketNetwork
from weft.topologies.core.link import Gbps
from weft.topologies.core.topology import Topology

RATE_BPS, FRAME_BYTES, HEADER_BYTES = 100 * Gbps, 9_000, 64
SLOT_NS = 8 * FRAME_BYTES * 10**9 // RATE_BPS  # a packet's time on a link
DELAY_NS = 10
ENDLESS_BYTES, NEVER_NS = (1 << 32) - 1, 1 << 49  # of a queue; of a retransmission timer


class Injection(NamedTuple):
    """Packets in order of time: slot, source and destination of each."""

    slot: Ints
    src: Ints
    dst: Ints


def injection(run: Run) -> Injection:
    """Return the packets of `run`, the same for every scheme."""
    topology = run.topology
    generator = run.generator()
    shape = 2 * run.integer("slots"), topology.servers
    slot, src = np.nonzero(generator.random(shape) < run.number("load_fraction"))
    if run.text("traffic") == "uniform":
        dst = generator.integers(0, topology.servers - 1, len(src))
        return Injection(slot, src, dst + (dst >= src))
    size = group_size(topology)
    first = (src // size + 1) * size % topology.servers
    return Injection(slot, src, first + generator.integers(0, size, len(src)))


def group_size(topology: Topology) -> int:
    """Return the hosts of a group of a Dragonfly, or of a switch."""
    hosts = topology.servers // topology.switches
    if topology.family != "dragonfly":
        return hosts
    return hosts * topology.parameters.get("a", 2 * topology.parameters["p"])


class PacketArrivals(NamedTuple):
    """Packets that arrived, in order of time: number, time, and time since they were sent."""

    number: Ints
    at_ns: Ints
    latency_ns: Ints


def network_of(run: Run) -> PacketNetwork:
    """Return the network of `run`, whose queues lose nothing and whose hosts repeat nothing."""
    link = PacketLink(
        rate_bps=RATE_BPS, delay_ns=DELAY_NS, trim_bytes=ENDLESS_BYTES, header_bytes=ENDLESS_BYTES
    )
    hosts = Parameters(rate_bps=RATE_BPS, frame_bytes=FRAME_BYTES, timeout_ns=NEVER_NS)
    tables = forwarding(run.topology, run.text("routing"))
    return PacketNetwork(run.topology, link, hosts, tables.next_hops, run.seed)


def arrivals(run: Run, packets: Injection) -> PacketArrivals:
    """Return what becomes of `packets` during twice as many slots as are counted."""
    network = network_of(run)
    phase = run.generator(1).random(run.topology.servers)
    begin_ns = ((packets.slot + phase[packets.src]) * SLOT_NS).astype(np.int64)
    rows = zip(begin_ns.tolist(), packets.src.tolist(), packets.dst.tolist(), strict=True)
    for packet, (at_ns, src, dst) in enumerate(rows):
        network.send(at_ns, src, dst, packet, FRAME_BYTES - HEADER_BYTES)
    network.run_until(2 * run.integer("slots") * SLOT_NS)
    number = np.array([event.flow for _, event in network.delivered], dtype=np.int64)
    arrived_ns = np.array([event.at_ns for _, event in network.delivered], dtype=np.int64)
    return PacketArrivals(number, arrived_ns, arrived_ns - begin_ns[number])


def measure(run: Run) -> Result:
    """Count the packets of the second half; the first one fills the network."""
    packets, slots, hosts = injection(run), run.integer("slots"), run.topology.servers
    arrived = arrivals(run, packets)
    counted = arrived.at_ns >= slots * SLOT_NS
    of_host = np.bincount(packets.src[arrived.number[counted]], minlength=hosts)
    latency_ns = arrived.latency_ns[counted]
    return Result(
        {
            "offered_fraction": (packets.slot >= slots).sum() / slots / hosts,
            "accepted_fraction": counted.sum() / slots / hosts,
            "least_accepted_fraction": of_host.min() / slots,
            "latency_slots": latency_ns.mean() / SLOT_NS if len(latency_ns) else None,
        }
    )


def check(run: Run) -> None:
    """Raise ValueError unless the switches of a fabric with equal groups run the scheme."""
    topology = common.network(run)
    check_forwarding(topology, run.text("routing"))
    rule = registry.rule(run.text("routing"))
    if topology.server_centric or rule.hosts or topology.servers % topology.switches:
        raise ValueError(
            f"{run.experiment}: switches with equally many hosts choose paths here, not "
            f"{run.text('routing')} on {topology.spec}"
        )


EXPERIMENT = Experiment(
    name="detour_load",
    question="Which load do shortest paths, Valiant and UGAL-L carry under uniform and worst-case "
    "traffic?",
    source="Kim et al., ISCA 2008, figure 8; Besta and Hoefler, SC 2014, figure 6",
    engines=("packet",),
    axes={
        "topology": common.TOPOLOGY.over("dragonfly:p=2,palm=0", "slimfly:q=5,p=4"),
        "routing": common.SCHEME.over("rps", "valiant", "ugal"),
        "traffic": Word("who sends to whom", words=("uniform", "shift")).over("uniform", "shift"),
        "load_fraction": Number(
            "packets that a host sends in a packet's time", unit="fraction", least=0.01, most=1
        ).over(0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 0.9),
        "slots": Integer(
            "packet times that are counted, after as many others", least=10, most=100_000
        ).over(1000),
    },
    columns={
        "offered_fraction": "packets that hosts sent while others were counted, of those that fit",
        "accepted_fraction": "packets that arrived, of those that fit",
        "least_accepted_fraction": "the same of the host whose packets arrived least",
        "latency_slots": "mean time of these packets, in packet times; null without any",
    },
    seeds=3,
    takes_s=600,
    measure=measure,
    plot=Curves(
        columns={
            "accepted_fraction": "accepted load",
            "latency_slots": "mean latency (packet times)",
        },
        x="load_fraction",
        series="routing",
        facet=("topology", "traffic", "slots"),
        log=("latency_slots",),
    ),
    check=check,
)
