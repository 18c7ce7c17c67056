"""Replay of tasks on each engine, by the scheme and the transport of a run.

graph    fluids on the paths of the scheme; it has no congestion control, queues or losses.  A flow
         keeps a random one of its paths, or its packets spread over all of them.
packet   packets of simulated hosts, see testbed/packets/network.py
kernel   packets of Linux
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import pairwise
from operator import sub
from typing import Any, NamedTuple

import numpy as np

from weft.daemons.core import registry
from weft.daemons.fatpaths.scheme import Trigger
from weft.daemons.load_balancing.scheme import ChoiceRule
from weft.experiments.collectives.message_cost import FluidPath, FluidReplay, FrameCost
from weft.experiments.engines import common_parameters as common
from weft.experiments.engines.kernel_run import running
from weft.experiments.fatpaths import transports
from weft.experiments.fatpaths.fatpaths_vs_fattree import MOST_CHECKED
from weft.experiments.runner.definition import Row, Run, Value
from weft.testbed.measure.fidelity import Fidelity
from weft.testbed.measure.kernel_counters import PortCounterReader
from weft.testbed.measure.reordering import Reordering
from weft.testbed.network.network import RunningNetwork
from weft.testbed.packets.forwarding import FlowRoutes, check_layers, forwarding
from weft.testbed.packets.network import PacketLink, PacketNetwork
from weft.testbed.packets.transport import Transport, check_linux, check_simulated
from weft.testbed.schedules import tasks
from weft.testbed.schedules.tasks import Progress, TaskGraph, TcpReplay
from weft.testbed.traffic import tcp
from weft.topologies.core.grammar import parse, unparse
from weft.topologies.core.link import ETHERNET_BYTES, Mbps
from weft.topologies.core.topology import Topology

HEADER_BYTES = {"tcp": 66, "ndp": 64}
SPREAD = (ChoiceRule.RANDOM, ChoiceRule.ROUND_ROBIN)  # choose a port for each packet
KEPT = (ChoiceRule.KERNEL, ChoiceRule.FLOW_HASH, ChoiceRule.D_MOD_K)  # for each flow
PROCESSES = 2  # that the daemons share


class TrafficCounts(NamedTuple):
    """Packets, and bytes of each port or channel, since the beginning of a replay."""

    late: int | None
    repeated: int | None
    port_bytes: Sequence[float]


class TrafficMeter:
    """Traffic between the first iteration, which warms up, and the end."""

    def __init__(self, read: Callable[[], TrafficCounts]) -> None:
        self.read = read
        self.readings: list[TrafficCounts] = []

    def mark(self) -> None:
        """Read the counters at the beginning or at the end of what is counted."""
        self.readings.append(self.read())

    def figures(self, run: Run, progress: Progress) -> Row:
        """Return the columns on packets and links; None if the last iteration did not end."""
        names = ("late_packets", "repeated_packets", "fullest_link_fraction")
        if progress.left:
            return dict.fromkeys(names)
        begin_ns = progress.end_ns[progress.graph.begins[1]]
        before, after = self.readings
        most_bytes = max(map(sub, after.port_bytes, before.port_bytes))
        room_bytes = run.integer("rate_mbps") * Mbps * (max(progress.end_ns) - begin_ns) / 8e9
        late = None if after.late is None else after.late - (before.late or 0)
        repeated = None if after.repeated is None else after.repeated - (before.repeated or 0)
        return dict(zip(names, (late, repeated, most_bytes / room_bytes), strict=True))


@dataclass(frozen=True)
class Replayed:
    """A replay: its progress, the columns of its engine, and what belongs to an emulation."""

    progress: Progress
    figures: Mapping[str, Value]
    fidelity: str | None = None
    circumstances: Mapping[str, Any] = field(default_factory=dict)


def scheme_of(run: Run) -> str:
    """Return the scheme of `run` with the threshold of marks, and with its seed where it has one.

    Values in the scheme's text stay.
    """
    name, options = parse(run.text("scheme"))
    own = {"seed": str(1 + run.seed), "ecn": str(run.integer("ecn_packets"))}
    usual = {key: own[key] for key in own if key in registry.find(name).parameters}
    return unparse(name, {**usual, **options})


def frame_cost(run: Run) -> FrameCost:
    """Return what messages of `run` cost on its links."""
    return FrameCost(
        run.integer("rate_mbps") * Mbps,
        1000 * run.integer("delay_us"),
        run.integer("frame_bytes"),
        HEADER_BYTES[transports.transport_of(run).name],
    )


def check(run: Run, topology: Topology) -> None:
    """Raise ValueError unless the engine of `run` has its network, scheme and transport."""
    transport, (scheme, options) = transports.transport_of(run), registry.scheme(scheme_of(run))
    # layers of many switches take seconds: a run makes them, and planning does not
    is_large = topology.switches > MOST_CHECKED and topology.planes == 1
    if scheme.name != "fatpaths" or not is_large:
        scheme.check(topology, options)
    rule = scheme.rule(options)
    refused = f"{run.experiment}: the engine {run.engine} has no model of {run.text('scheme')}; "
    if run.engine == "kernel":
        common.network(run)
        common.check_delay(run)
        check_linux(transport)
        common.check_control(run, transport.control)
        common.check_tcp(run)
    elif run.engine == "packet":
        check_simulated(transport)
        check_layers(rule, transport)
        if rule and rule.reads_daemons:
            raise ValueError(refused + "take another scheme of switches, such as ecmp or drill")
        if transport.name == "ndp":
            check_choice(run, transport, is_layered=bool(rule and rule.hosts))
            cost = frame_cost(run)
            transport.ndp(cost.rate_bps, cost.frame_bytes, planes=topology.planes)
    elif rule and rule.rule not in (*KEPT, *SPREAD):
        raise ValueError(refused + "take ecmp, rps, a scheme of servers, or --engine packet")
    elif rule and rule.hosts and rule.hosts["trigger"] != Trigger.NONE:
        raise ValueError(refused + "take trigger=none")


def check_choice(run: Run, transport: Transport, *, is_layered: bool) -> None:
    """Raise ValueError unless packets have what `transport` chooses among: layers or entropies."""
    if is_layered and transport.entropies:
        raise ValueError(
            f"{run.experiment}: packets of {run.text('scheme')} have layers; take ecmp for "
            "entropies"
        )
    has_values = transport.entropies or run.topology.planes > 1
    if transport.choice != "flow" and not (is_layered or has_values):
        raise ValueError(
            f"{run.experiment}: choice={transport.choice} chooses among layers, and "
            f"{run.text('scheme')} has none; take scheme=fatpaths, or entropies=128"
        )


def replay(run: Run, topology: Topology, graph: TaskGraph, deadline_s: float) -> Replayed:
    """Carry out the tasks on the engine of `run`."""
    engines = {"graph": on_graph, "packet": on_packets, "kernel": on_kernel}
    return engines[run.engine](run, topology, graph, deadline_s)


def on_graph(run: Run, topology: Topology, graph: TaskGraph, deadline_s: float) -> Replayed:
    """Carry out the tasks as fluids."""
    fluids = FluidReplay(fluid_paths(run, topology), 2 * len(topology.links), frame_cost(run))
    meter = TrafficMeter(lambda: TrafficCounts(None, None, (fluids.bits / 8).tolist()))
    progress = fluids.run(graph, round(1e9 * deadline_s), meter.mark)
    return Replayed(progress, meter.figures(run, progress))


def fluid_paths(run: Run, topology: Topology) -> Callable[[int, int], FluidPath]:
    """Return the path of the messages between two hosts: one drawn for good, or all together."""
    scheme, options = registry.checked(topology, scheme_of(run))
    rule = scheme.rule(options)
    spreads = rule is not None and rule.rule in SPREAD
    channels = channels_of(topology)
    generator = np.random.default_rng(run.seed)

    @cache
    def path(src: int, dst: int) -> FluidPath:
        routed = scheme.path(topology, options, src, dst)
        shares = np.array([each.share for each in routed])
        if not spreads:
            drawn = generator.choice(len(routed), p=shares / shares.sum())
            routed, shares = [routed[drawn]], np.ones(1)
        steps = [
            [channel for ends in pairwise(each.nodes) for channel in channels[ends]]
            for each in routed
        ]
        weights = np.repeat(shares, list(map(len, steps)))
        return FluidPath(np.concatenate(steps), weights, max(map(len, steps)))

    return path


def channels_of(topology: Topology) -> dict[tuple[int, int], list[int]]:
    """Return the channels from each routing node to the next, through a crossbar if need be."""
    channels: dict[tuple[int, int], list[int]] = {}
    for link, (a, _, b, _) in enumerate(topology.links.tolist()):
        channels.setdefault((a, b), [2 * link])
        channels.setdefault((b, a), [2 * link + 1])
    for switch in filter(topology.is_crossbar, range(topology.servers, topology.nodes)):
        peers = [peer for _, peer, *_ in topology.ports(switch)]
        for src in peers:
            for dst in peers:
                channels[src, dst] = channels[src, switch] + channels[switch, dst]
    return channels


def on_packets(run: Run, topology: Topology, graph: TaskGraph, deadline_s: float) -> Replayed:
    """Carry out the tasks by simulated packets."""
    tables = forwarding(topology, scheme_of(run))
    how = transports.Carriage(
        run.integer("rate_mbps") * Mbps,
        deadline_s,
        run.integer("frame_bytes"),
        layers=tables.layers,
    )
    net = PacketNetwork(
        topology,
        packet_link(run),
        transports.parameters(run, how),
        tables.next_hops,
        run.seed,
        layers=tables.moves,
    )
    is_tcp = transports.transport_of(run).name == "tcp"

    def counts() -> TrafficCounts:
        counters = net.flow_counters() if is_tcp else net.host_counters()
        late = transports.total(counters, "late") if is_tcp else None
        repeated = transports.total(counters, "retransmissions")
        return TrafficCounts(late, repeated, [port.bytes for port in net.port_counters()])

    meter = TrafficMeter(counts)
    by_routes = tables.next_hops is None
    routes = FlowRoutes(topology, scheme_of(run), run.seed) if by_routes else None
    end_ns = round(1e9 * deadline_s)
    progress = tasks.replay_packets(net, graph, end_ns, meter.mark, routes)
    return Replayed(progress, meter.figures(run, progress))


def packet_link(run: Run) -> PacketLink:
    """Return the links of the simulated network."""
    first = transports.transport_of(run).retransmissions == "first"
    return PacketLink(
        rate_bps=run.integer("rate_mbps") * Mbps,
        delay_ns=1000 * run.integer("delay_us"),
        trim_bytes=transports.TRIM_PACKETS * run.integer("frame_bytes"),
        header_bytes=run.integer("header_packets") * transports.HEADER_BYTES,
        queue_packets=run.integer("queue_packets"),
        mark_packets=run.integer("ecn_packets"),
        retransmissions_first=first,
    )


def on_kernel(run: Run, topology: Topology, graph: TaskGraph, deadline_s: float) -> Replayed:
    """Carry out the tasks by Linux' TCP."""
    link = replace(common.link(run), mtu_bytes=run.integer("frame_bytes") - ETHERNET_BYTES)
    with running(topology, link, scheme_of(run), packed=PROCESSES) as network:
        ecn = int(run.integer("ecn_packets") > 0)
        sysctls = {"ipv4/tcp_ecn": str(ecn), "ipv4/tcp_rto_min_us": run.text("rto_min_us")}
        tcp.tune(network, sysctls)
        return metered_tcp(run, network, graph, deadline_s)


def metered_tcp(run: Run, network: RunningNetwork, graph: TaskGraph, deadline_s: float) -> Replayed:
    """Carry out the tasks on a network that is up."""
    tcp = TcpReplay(network, transports.transport_of(run).control)
    with Reordering(network) as order, PortCounterReader(network) as ports:

        def counts() -> TrafficCounts:
            sent_bytes = [port.sent_bytes for port in ports.snapshot().ports.values()]
            return TrafficCounts(order.read().total("late"), tcp.repeated_packets(), sent_bytes)

        meter = TrafficMeter(counts)
        with Fidelity(network) as fidelity:
            progress = tcp.run(graph, deadline_s, meter.mark)
    about = {"fidelity_report": fidelity.report.as_dict()}
    return Replayed(progress, meter.figures(run, progress), fidelity.verdict, about)
