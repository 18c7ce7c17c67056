"""Throughput and packet order of 1,152 hosts: the table of DAR, section 5.2.

Every host sends a message of 256 kB to one other, a random permutation of the hosts, then to the
next, and does not wait for others.  Hosts send at the links' rate, where a link carries p = 1 flow,
or at 0.48 of it: p = 2.  The paper's simulator is one of InfiniBand, by flits; here packets of 2 kB
are simulated (testbed/packets), DAR's real daemons place the flows, and a packet that is stopped
for lack of room waits in the switch before.  Other schemes are not in the paper.

Out of order is counted as the authors' simulator does: see Received.

On the engine `kernel` messages are flows of TCP through links of `kernel_mbps`, each host's next
one beginning when the last has arrived; packets carry 1,448 bytes.  Rates and times are those of
the packet size and link rate of the parameters.  DAR's flows count from their first packet on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from weft.daemons.dar import iteration
from weft.daemons.dar.iteration import KEYS, IterationRules
from weft.experiments.dar import clos_messages, clos_run
from weft.experiments.dar.clos_run import ClosPlan
from weft.experiments.dar.settings import (
    KERNEL_PAYLOAD_BYTES,
    PLAIN,
    PRESETS,
    SCHEMES,
    check_daemons,
    check_kernel,
    destinations,
    flows_of_link,
    generator,
    kernel_plan,
    kernel_slot_s,
    message_packets,
    message_slots,
    optimum,
    payload_bytes,
    queues_on_kernel,
    rate,
    scheme,
    sequence,
    size,
    slot_us,
    slots,
    spec_on_packets,
    switches,
)
from weft.experiments.engines.arrays import Floats, Ints, int_zeros
from weft.experiments.report import style
from weft.experiments.report.panels import Bars
from weft.experiments.runner.definition import Experiment, Result, Row, Run
from weft.experiments.runner.parameters import Axis, Integer, Number, Spec, Word
from weft.testbed.packets.simulation import PacketFlows, SimulatedFlows, Simulation
from weft.testbed.packets.switching import Switching
from weft.testbed.packets.transport import ALL, DATAGRAM_BYTES, transport
from weft.topologies import canonical
from weft.topologies.core.grammar import unparse
from weft.topologies.core.link import ETHERNET_BYTES, MTU_BYTES, LinkSpec

MOST_SIMULATED = 10**9  # packets
LEAST_FRAME_BYTES = MTU_BYTES + ETHERNET_BYTES
COLOURS = {
    "dar-count": style.PURPLE,
    "dar-informed": style.BLUE,
    "dar-persistent": style.ROSE,
    "ndp": style.INDIGO,
    "ndp-drill": style.BROWN,
    "reps": style.GREEN,
    "rps": style.OLIVE,
}
EAR_BYTES = 8  # section 5.2; the map of informed requests adds a bit for each spine
PAPER_COLUMNS = (
    "mean_throughput_gbps",
    "min_throughput_gbps",
    "mean_latency_us",
    "max_latency_us",
    "mean_jump_ratio",
    "max_jump_ratio",
    "mean_jump_packets",
    "max_jump_packets",
)
PAPER = {
    ("clos:n=24,r=48,m=48", 40.0): (37.7, 36.5, 17.0, 877, 1.87, 3.25, 6.9, 8.9),
    ("clos:n=24,r=48,m=24", 40.0): (23.0, 20.7, 32, 656, 5.2, 7.4, 5.1, 5.7),
    ("clos:n=24,r=48,m=24", 19.2): (18.9, 18.9, 5.8, 11.7, 0.0023, 0.0072, 2.3, 5.0),
}


TABLE_COLUMNS = {
    "p": "flows that a link carries",
    "mean_throughput_gbps": "throughput of a receiving host, mean",
    "min_throughput_gbps": "throughput of the receiver that has least",
    "throughput_change_fraction": (
        "throughput in the second half of the time that counts, relative to the first, less 1"
    ),
    "mean_latency_us": "latency of a packet, from its host to its arrival, mean over receivers",
    "max_latency_us": "the longest of all packets",
    "mean_jump_ratio": (
        "the authors' statistic: sum of jumps over packets in order, mean over receivers"
    ),
    "max_jump_ratio": "ratio of the receiver that has most",
    "mean_jump_packets": "the authors' window: mean jump, mean over receivers",
    "max_jump_packets": "the largest of the receivers' mean jumps",
    "go_back_fraction": (
        "packets that go-back-N would send again, of all: for each jump, the jump and what two "
        "mean latencies carry; an estimate from above"
    ),
    "late_fraction": "packets that arrived behind a later one of their message, of all",
    "mean_extent_packets": "how far behind it late packets are, mean",
    "reroutes_per_message": "reroutes of a message",
    "ears_per_message": "requests to move a flow (EARs) sent for a message",
    "ear_bytes_fraction": (
        "bytes of EARs, of bytes of data: 8 bytes (section 5.2), informed ones with a bit a spine"
    ),
    "stale_ears_fraction": "EARs that came when their flow had moved already",
    "paper_*": "the paper's value of the column named behind paper_, in its three cells",
}


class Received(NamedTuple):
    """Statistics of each receiving host, over packets that arrive from the time begins[0] on.

    Out of order is counted as the authors' simulator does.  A packet whose number is one above the
    highest number of its message so far is in order; one further above is a jump by the difference;
    all others count in neither.

    packets: of the first and of the second half of the window, which begins[1] separates.
    latency, worst_latency: slots, summed and largest.
    in_order, jumps, jumped: packets in order, jumps, and their sum.
    late, extent: packets that arrive after a later one of their message (RFC 4737), and how many
        packets behind the latest they are, summed.
    """

    begins: Floats
    packets: Ints
    latency: Floats
    worst_latency: Floats
    in_order: Ints
    jumps: Ints
    jumped: Ints
    late: Ints
    extent: Ints


def check(run: Run) -> None:
    """Raise ValueError if `run` does not converge, does not fit into memory, or takes too long."""
    check_rate(run)
    if run.number("skipped_us") >= run.number("time_us"):
        raise ValueError(
            f"{run.experiment}: skipped_us must be less than time_us, {run.number('time_us'):g}"
        )
    if run.engine == "packet":
        n, r, _ = size(run.text("topology"))
        check_simulated(run, round(n * r * rate(run) * slots(run, "time_us")))
    else:
        check_kernel(run)


def check_rate(run: Run) -> None:
    """Raise ValueError if `run` does not converge, or if hosts are faster than their links."""
    n, r, m = size(run.text("topology"))
    if rate(run) > 1:
        raise ValueError(
            f"{run.experiment}: a host's link has the rate of any other, "
            f"{run.number('link_gbps'):g} Gbit/s, got host_gbps={run.number('host_gbps'):g}"
        )
    iteration.check(n, r, m, IterationRules(p=flows_of_link(run)))


def check_simulated(run: Run, packets: int) -> None:
    """Raise ValueError if so many simulated packets take too long, or are too short."""
    if packets > MOST_SIMULATED:
        raise ValueError(f"{run.experiment}: {packets} packets take too long")
    if run.integer("packet_bytes") < LEAST_FRAME_BYTES:
        raise ValueError(
            f"{run.experiment}: simulated packets have {LEAST_FRAME_BYTES} bytes or more"
        )
    check_daemons(run)


def ratio(above: Ints, below: Ints) -> Floats:
    """Return the ratio for each receiver, 0 if nothing is below."""
    return np.where(below > 0, above / np.maximum(below, 1), 0.0)


def move_figures(run: Run, counted: Mapping[str, int], messages_sent: int) -> Row:
    """Return the columns about moves and EARs, from the names of clos_run.together()."""
    ear_bytes = EAR_BYTES
    if scheme(run).informed:
        ear_bytes += -(-size(run.text("topology"))[2] // 8)
    counters = ("moves", "swaps", "requests_sent", "requests_stale")
    moves, swaps, sent, stale = (counted.get(key, 0) for key in counters)
    return {
        "reroutes_per_message": (moves + swaps) / messages_sent,
        "ears_per_message": sent / messages_sent,
        "ear_bytes_fraction": sent * ear_bytes / messages_sent / run.integer("message_kb") / 1024,
        "stale_ears_fraction": stale / max(1, sent),
    }


def scaled_us(run: Run, kernel_us: float) -> float:
    """Return a time on the kernel in terms of packets of `run`."""
    return kernel_us / 1e6 / kernel_slot_s(run) * slot_us(run)


def mean_of_histogram(counts: Sequence[int]) -> float:
    """Return the mean value, `counts` of each from 0 on."""
    return sum(value * count for value, count in enumerate(counts)) / max(1, sum(counts))


def plan_in_turn(run: Run) -> ClosPlan:
    """Return the plan of hosts that send message after message, each at its own pace."""
    sequences = sequence(run, most_messages(run))
    return kernel_plan(
        run,
        flows=clos_run.messages(sequences[:1], payload_bytes(run), 0.0),
        seconds=slots(run, "time_us") * kernel_slot_s(run),
        then=clos_run.in_turn(sequences),
        warm_up_s=slots(run, "skipped_us") * kernel_slot_s(run),
    )


def on_kernel(run: Run) -> Result:
    """Return the columns that TCP on the kernel has."""
    done = clos_messages.carry_out(plan_in_turn(run))
    table, order = done.observed.flows, done.observed.order
    received = clos_messages.received_bytes(table, done.topology.servers)
    packets_a_s = np.array(received) / KERNEL_PAYLOAD_BYTES / table.measured_s
    return done.result(
        {
            **dict.fromkeys(TABLE_COLUMNS.keys() - {"paper_*"}),
            "p": flows_of_link(run),
            **throughput(run, packets_a_s * kernel_slot_s(run)),
            "mean_latency_us": scaled_us(run, order.mean_delay_us),
            "max_latency_us": scaled_us(run, order.delay_us(100)),
            "late_fraction": order.late_fraction,
            "mean_extent_packets": mean_of_histogram(order.extents),
            **move_figures(run, done.counted, len(table.results)),
        }
    )


def on_packets(run: Run) -> Result:
    """Return the columns of simulated packets, which real daemons of DAR place."""
    begin_s, end_s = run.number("skipped_us") / 1e6, run.number("time_us") / 1e6
    begins_s = begin_s, (begin_s + end_s) / 2
    done = simulation(run).run((), end_s, (*begins_s, end_s))
    begins = np.array(begins_s) * 1e6 / slot_us(run)
    counted = clos_run.together(done.statuses) if scheme(run).detect else {}
    begun = max(1, int((done.progress.arrived_bytes[-1] > 0).sum()))
    received = received_packets(run, done, begins)
    if not received.packets.any(axis=0).all():
        raise ValueError(
            f"{run.experiment}: a host received nothing after {run.number('skipped_us'):g} "
            f"us: take longer"
        )
    figures = {
        "p": flows_of_link(run),
        **receiver_figures(run, received),
        **order_figures(received),
        **move_figures(run, counted, begun),
    }
    return Result(figures)


def received_packets(run: Run, done: SimulatedFlows, begins: Floats) -> Received:
    """Return the statistics of receivers, with times in slots."""
    hosts, dst, counters = run.topology.servers, done.flows.dst, done.counters

    def of_receivers(values: Ints) -> Ints:
        return np.bincount(dst, weights=values, minlength=hosts).astype(int)

    halves = np.diff(done.progress.arrived_bytes, axis=0)
    worst_ns = int_zeros(hosts)
    np.maximum.at(worst_ns, dst, counters["worst_ns"])
    same = ("in_order", "jumps", "jumped", "late", "extent")
    return Received(
        begins=begins,
        packets=np.array([of_receivers(half) for half in halves]) // payload(run),
        latency=of_receivers(counters["latency_ns"]) / 1000 / slot_us(run),
        worst_latency=worst_ns / 1000 / slot_us(run),
        **{key: of_receivers(counters[key]) for key in same},
    )


def payload(run: Run) -> int:
    """Return the bytes of a simulated packet that are no header."""
    return run.integer("packet_bytes") - DATAGRAM_BYTES


def simulation(run: Run) -> Simulation:
    """Return simulated messages, which hosts send one after the other at their own pace."""
    flows = messages(run, most_messages(run))
    return simulated(run, flows, {"skip_us": round(run.number("skipped_us"))})


def simulated(run: Run, flows: PacketFlows, plain: Mapping[str, int], **further: Any) -> Simulation:
    """Return the simulation of `flows` on the links and under the scheme of `run`.

    plain: parameters of hosts without a transport.  further: arguments of Simulation.
    """
    settings, link_bps = switches(run), round(1e9 * run.number("link_gbps"))
    mtu_bytes = run.integer("packet_bytes") - ETHERNET_BYTES
    link = LinkSpec(rate_bps=link_bps, queue_packets=settings.room_packets, mtu_bytes=mtu_bytes)
    passing = Switching(cut_through_bytes=settings.cut_through_bytes, node_ns=settings.node_ns)
    hosts = scheme(run).transport
    if hosts == "plain":
        rate_mbps = round(1e-6 * rate(run) * link_bps)
        hosts = unparse(hosts, {"rate_mbps": rate_mbps, **plain})
        room_bytes = settings.room_packets * run.integer("packet_bytes")
        passing = passing._replace(room_bytes=room_bytes, output_bytes=settings.output_bytes)
    return Simulation(
        run.topology,
        spec_on_packets(run),
        flows,
        transport(hosts, ALL),
        [link] * len(run.topology.links),
        passing,
        run.seed,
        daemons=bool(scheme(run).detect),
        paths=placed(run, flows) if run.text("scheme") == "central" else None,
        **further,
    )


def path(n: int, hosts: int, spines: Ints, flow: int, src: int, dst: int) -> tuple[int, ...]:
    """Return the nodes between two hosts over the spine of their flow, -1 within a leaf."""
    first, last, spine = hosts + src // n, hosts + dst // n, int(spines[flow])
    return (src, first, dst) if spine < 0 else (src, first, spine, last, dst)


def placed(run: Run, flows: PacketFlows) -> Callable[[int, int, int], tuple[int, ...]]:
    """Return the paths that a controller gives flows: as few as possible on each link."""
    n, r, m = size(run.text("topology"))
    spines = optimum(n, m, flows.dst.reshape(-1, n * r)).reshape(-1)
    return partial(path, n, n * r, np.where(spines < 0, spines, n * r + r + spines))


def most_messages(run: Run) -> int:
    """Return as many messages of a host as it can send in the time of `run`."""
    return 2 + int(slots(run, "time_us") / message_slots(run))


def messages(run: Run, count: int) -> PacketFlows:
    """Return `count` messages of each host, which begins within a packet time."""
    hosts, rng = run.topology.servers, generator(run)
    n, r, _ = size(run.text("topology"))
    dst = destinations(n, r, run.text("traffic"), count, rng)
    return PacketFlows(
        np.tile(rng.random(hosts) * slot_us(run) / 1e6, count),
        np.tile(np.arange(hosts), count),
        dst.reshape(-1),
        np.full(dst.size, message_packets(run) * payload(run)),
    )


def throughput(run: Run, packets_a_slot: Floats) -> Row:
    """Return the columns about throughput from that of each receiver."""
    gbps = packets_a_slot * run.number("link_gbps")
    return {
        "mean_throughput_gbps": gbps.mean(),
        "min_throughput_gbps": gbps.min(),
    }


def receiver_figures(run: Run, received: Received) -> Row:
    """Return the columns about throughput and latency."""
    windows = np.diff([*received.begins, slots(run, "time_us")])
    first, second = received.packets.sum(axis=1) / windows
    packets = received.packets.sum(axis=0)
    us = slot_us(run)
    return {
        **throughput(run, packets / windows.sum()),
        "throughput_change_fraction": second / first - 1,
        "mean_latency_us": (received.latency / packets).mean() * us,
        "max_latency_us": received.worst_latency.max() * us,
    }


def go_back(received: Received) -> float:
    """Return the packets that go-back-N would send again, of all.

    A receiver drops what follows a gap until the sender has gone back: what left in the meantime,
    the jump and two mean latencies.
    """
    packets, jumps = received.packets.sum(), received.jumps.sum()
    round_trip = 2 * received.latency.sum() / packets
    return float((received.jumped.sum() + jumps * round_trip) / packets)


def order_figures(received: Received) -> Row:
    """Return the columns about order."""
    jump_ratio = ratio(received.jumped, received.in_order)
    jump = ratio(received.jumped, received.jumps)[received.jumps > 0]
    return {
        "mean_jump_ratio": jump_ratio.mean(),
        "max_jump_ratio": jump_ratio.max(),
        "mean_jump_packets": jump.mean() if len(jump) else 0.0,
        "max_jump_packets": jump.max(initial=0.0),
        "go_back_fraction": go_back(received),
        "late_fraction": received.late.sum() / received.packets.sum(),
        "mean_extent_packets": received.extent.sum() / max(1, received.late.sum()),
    }


def measure(run: Run) -> Result:
    """Return the lines of the paper's table, over receivers, and what DAR does for a message."""
    return (on_packets if run.engine == "packet" else on_kernel)(run)


def predict(run: Run) -> Row:
    """Return the paper's table for its three cells."""
    cell = run.text("topology"), run.number("host_gbps")
    if scheme(run).detect != "queue" or cell not in PAPER:
        return {}
    names = (f"paper_{column}" for column in PAPER_COLUMNS)
    return dict(zip(names, PAPER[cell], strict=True))


def looks(key: str, values: Iterable[Any]) -> style.SeriesLooks:
    """Return the looks of the schemes, with their names in the table."""
    return {
        name: look._replace(label=SCHEMES[name].label, colour=COLOURS.get(name, look.colour))
        for name, look in ((name, style.scheme(name.partition("-")[0])) for name in SCHEMES)
        if name in values
    }


AXES: dict[str, Axis] = {
    "topology": Spec("network", form="clos:n=..,r=..,m=..", check=size, canonical=canonical).over(
        "clos:n=24,r=48,m=48", "clos:n=24,r=48,m=24"
    ),
    "host_gbps": Number("rate at which hosts send", unit="Gbit/s", least=0.1, most=1000).over(
        40.0, 19.2
    ),
    "link_gbps": Number("rate of every link", unit="Gbit/s", least=0.1, most=1000).over(40.0),
    "scheme": Word(
        "DAR by queues (section 4), by counts (section 2), by counts with the map of "
        "spines; or another",
        words=PLAIN,
    ).over(*PLAIN),
    "preset": Word(
        "threshold, rest and room: the defaults of the authors' simulator, and simulated packets "
        "have its buffers, delays and cut-through; or ours",
        words=tuple(PRESETS),
    ).over("infiniband"),
    "key": Word(
        "what DAR moves: a host's flow, or all flows of a leaf to the same host",
        words=tuple(KEYS),
    ).over("dest"),
    "start": Word(
        "first spine: see dar_convergence; with key=dest, random or modulo the destination",
        words=("modulo", "random"),
    ).over("modulo"),
    "requests": Word(
        "where flows are counted: bad links of a leaf that it asks about",
        words=("fullest-link", "every-link"),
    ).over("fullest-link"),
    "swap": Word(
        "whether DAR swaps a flow back from an uplink that is full", words=("yes", "no")
    ).over("yes"),
    "queue_packets": Integer(
        "packets that may wait at a port before DAR moves a flow; 0: as the preset",
        unit="packets",
        least=0,
        most=10_000,
    ).over(0),
    "rest_slots": Integer(
        "hold-down time of a flow that has moved; 0: as the preset",
        unit="packet times",
        least=0,
        most=10_000,
    ).over(0),
    "period_slots": Integer("time between counts", unit="packet times", least=1, most=10_000).over(
        16
    ),
    "ears": Word(
        "EARs at a spine's port: behind packets, or before them", words=("behind", "first")
    ).over("behind"),
    "traffic": Word(
        "permutations: random ones, those of section 5 that are hard, or random between leaves",
        words=("random", "worst", "cross"),
    ).over("random"),
    "message_kb": Integer("size of a message", unit="KiB", least=1, most=65_536).over(256),
    "packet_bytes": Integer("size of a packet", unit="bytes", least=64, most=65_536).over(2048),
    "room_packets": Integer(
        "room of a switch behind each link; 0: as the preset",
        unit="packets",
        least=0,
        most=10_000,
    ).over(0),
    "kernel_mbps": Integer(
        "on the kernel, rate of links between switches; results are scaled to link_gbps",
        unit="Mbit/s",
        least=1,
        most=100_000,
    ).over(5),
    "time_us": Number("time that is simulated", unit="us", least=1, most=10**6).over(1300.0),
    "skipped_us": Number(
        "time at the beginning that is not counted", unit="us", least=0, most=10**6
    ).over(200.0),
}
FACET = ("topology", "host_gbps", "preset", "engine", "p")
VARIED = (*FACET, *(key for key in AXES if key not in (*FACET, "scheme")))
EXPERIMENT = Experiment(
    name="dar_table",
    question="Which throughput, latency and packet order do 1,152 hosts get under DAR?",
    source="DAR, section 5.2, table 1",
    engines=("packet", "kernel"),
    axes=AXES,
    columns=TABLE_COLUMNS,
    seeds=3,
    version=3,
    revised=queues_on_kernel,
    measure=measure,
    predict=predict,
    plot=Bars(
        columns={
            "mean_throughput_gbps": "throughput of a receiver (Gbit/s)",
            "mean_latency_us": "latency (µs)",
            "mean_jump_ratio": "out-of-order / in-order packets",
            "mean_jump_packets": "out-of-order window (packets)",
            "late_fraction": "late packets (fraction)",
        },
        facet=VARIED,
        always=5,
        strokes={
            f"mean_{column}": {
                f"{extreme}_{column}": "ours: least throughput, else largest value",
                f"paper_mean_{column}": "the paper's mean",
            }
            for extreme, column in (
                ("min", "throughput_gbps"),
                ("max", "latency_us"),
                ("max", "jump_ratio"),
                ("max", "jump_packets"),
            )
        },
        looks=looks,
    ),
    check=check,
    takes_s=150,
)
