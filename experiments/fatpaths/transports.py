"""Messages carried by the purified transport or by TCP, on the kernel; or by the former's state
machines on wires.

The same flows, networks and links for all: with NDP switches trim and spray packets (random); with
TCP they mark from 33 packets on, drop from 100, and hash flows, as in FatPaths' simulations
(section VII; NDP's own load balancing is oblivious, too).  Links of hosts' are as fast as all
others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from weft.experiments.runner.definition import Run, Value
from weft.experiments.runner.parameters import Integer, Spec
from weft.topologies import build
from weft.topologies.core.grammar import integer, parse, unknown
from weft.topologies.core.link import ETHERNET_BYTES, LinkSpec

if TYPE_CHECKING:
    from weft.daemons.transport.parameters import Parameters
    from weft.testbed.traffic.packet_network import NextHops, PacketNetwork, TcpParameters
    from weft.topologies.core.topology import Topology

QUEUE_PACKETS, ECN_PACKETS, TRIM_PACKETS = 100, 33, 8
NDP_SCHEME, TCP_SCHEME = "rps", f"vlb:ecn={ECN_PACKETS}"
WINDOW = 8
FRAME_BYTES, HEADER_BYTES = 1514, 64
WIRE_DELAY_NS = 1_000
JIFFY_NS = 1_000_000  # of a kernel with 1,000 ticks a second
SIMULATED_CONTROLS = ("reno", "dctcp")
MOST_SIMULATED_NODES = 120_000


class Load(NamedTuple):
    """`size_bytes` from host `src` to host `dst`, at `at_s`."""

    at_s: float
    src: int
    dst: int
    size_bytes: int


class Transport(NamedTuple):
    """ndp, with a window of packets; or tcp, with a congestion control."""

    name: str
    window: int = WINDOW
    control: str = "reno"


@dataclass(frozen=True)
class TransferTimes:
    """seconds: that each load took, in order of `at_s`, None for one that did not come to its end.

    ended_s: when the last had come.  figures: columns of the row.
    """

    loads: Sequence[Load]
    seconds: Sequence[float | None]
    ended_s: float
    figures: dict[str, Value]
    fidelity: str | None = None
    circumstances: dict[str, Any] = field(default_factory=dict)


def transport(text: str) -> Transport:
    """The transport that `text` names; ValueError for anything else."""
    name, given = parse(text)
    known = {"ndp": "window", "tcp": "control"}
    if name not in known:
        raise ValueError(unknown("transport", name, known))
    for key in given:
        if key != known[name]:
            raise ValueError(f"transport {name}: no parameter {key}, there is {known[name]}")
    if name == "ndp":
        window = integer(name, "window", given["window"], least=1, most=255) if given else WINDOW
        return Transport(name, window=window)
    return Transport(name, control=given.get("control", "reno"))


def check(run: Run) -> None:
    """ValueError unless this machine's kernel, or wires, can carry the transport of `run`."""
    from weft.experiments.engines.common_parameters import check_control, network

    chosen = transport(run.text("transport"))
    topology = build(run.text("topology")) if run.engine == "fabric" else network(run)
    if topology.nodes > MOST_SIMULATED_NODES:
        raise ValueError(
            f"{run.experiment}: at most {MOST_SIMULATED_NODES} nodes, {topology.spec} has "
            f"{topology.nodes}"
        )
    if topology.server_centric:
        raise ValueError(
            f"{run.experiment}: topology must be a fabric of switches, not {topology.spec}"
        )
    if run.engine == "fabric" and chosen.control not in SIMULATED_CONTROLS:
        raise ValueError(
            unknown("simulated congestion control", chosen.control, SIMULATED_CONTROLS)
        )
    if run.engine == "kernel" and chosen.name == "tcp":
        check_control(run, chosen.control)


def ideal_s(loads: Sequence[Load], rate_bps: int) -> float:
    """How long the frames of `loads` take on the link of the host that sends or receives most."""
    payload = FRAME_BYTES - HEADER_BYTES
    busy: dict[tuple[str, int], int] = {}
    for load in loads:
        frames = load.size_bytes + HEADER_BYTES * -(-load.size_bytes // payload)
        for end in (("src", load.src), ("dst", load.dst)):
            busy[end] = busy.get(end, 0) + frames
    return 8 * max(busy.values()) / rate_bps


def carry(
    run: Run, topology: Topology, loads: Sequence[Load], *, rate_bps: int, deadline_s: float
) -> TransferTimes:
    """Carry `loads`, in order of `at_s`, by the transport and on the engine of `run`."""
    if run.engine == "fabric":
        return on_wires(run, topology, loads, rate_bps=rate_bps, deadline_s=deadline_s)
    return on_kernel(run, topology, loads, rate_bps=rate_bps, deadline_s=deadline_s)


def on_wires(
    run: Run,
    topology: Topology,
    loads: Sequence[Load],
    *,
    rate_bps: int,
    deadline_s: float,
    next_hops: NextHops | None = None,
    layers: int = 1,
    frame_bytes: int = FRAME_BYTES,
) -> TransferTimes:
    """Carry `loads` on a simulated network.

    Without `next_hops` packets of the purified transport take any shortest path, and flows of TCP
    one by their hash.
    """
    from weft.testbed.traffic.packet_network import (
        HASH,
        SPRAY,
        PacketLink,
        PacketNetwork,
        TcpLayers,
        shortest,
    )

    is_tcp = transport(run.text("transport")).name == "tcp"
    link = PacketLink(
        rate_bps=rate_bps,
        delay_ns=WIRE_DELAY_NS,
        trim_bytes=TRIM_PACKETS * frame_bytes,
        header_bytes=run.integer("header_packets") * HEADER_BYTES,
        queue_packets=QUEUE_PACKETS,
        mark_packets=ECN_PACKETS,
    )
    net = PacketNetwork(
        topology,
        link,
        parameters(run, rate_bps, layers=layers, frame_bytes=frame_bytes),
        next_hops or shortest(topology, HASH if is_tcp else SPRAY),
        run.seed,
        layers=TcpLayers(random_start=1, on_cut=1),
    )
    for flow, load in enumerate(loads):
        net.send(round(1e9 * load.at_s), load.src, load.dst, flow, load.size_bytes)
    net.run_until(round(1e9 * deadline_s))
    ends: dict[int, float] = {event.flow: event.at / 1e9 for _, event in net.delivered}
    seconds = [ends[flow] - load.at_s if flow in ends else None for flow, load in enumerate(loads)]
    figures = {**(tcp_figures if is_tcp else ndp_figures)(net), **port_figures(net)}
    return TransferTimes(loads, seconds, max(ends.values(), default=0.0), figures)


def ndp_figures(net: PacketNetwork) -> dict[str, Value]:
    """Return what the hosts' endpoints have counted."""
    counters = net.host_counters()
    return {
        "timeouts": sum(host.timeouts for host in counters),
        "retransmissions": sum(host.retransmissions for host in counters),
        "duplicates": sum(host.duplicates for host in counters),
        "given_up": sum(event.failed is not None for _, event in net.finished),
    }


def tcp_figures(net: PacketNetwork) -> dict[str, Value]:
    """Return what the flows of TCP have counted."""
    counters = net.flow_counters()
    return {
        "timeouts": sum(flow.timeouts for flow in counters),
        "retransmissions": sum(flow.retransmissions for flow in counters),
        "duplicates": sum(flow.spurious for flow in counters),
        "given_up": 0,
    }


def port_figures(net: PacketNetwork) -> dict[str, Value]:
    """Return what the ports have counted."""
    ports = net.port_counters()
    return {
        "trimmed_packets": sum(port.trimmed for port in ports),
        "header_drops": sum(port.headers_lost for port in ports),
        "queue_drops": sum(port.dropped for port in ports),
    }


def parameters(
    run: Run, rate_bps: int, *, layers: int = 1, frame_bytes: int = FRAME_BYTES
) -> Parameters | TcpParameters:
    """Return the parameters of the transport on a simulated network."""
    from weft.daemons.transport.parameters import Parameters, timeout_ns
    from weft.testbed.traffic.packet_network import CLASSIC_ECN, DCTCP, TcpParameters

    chosen = transport(run.text("transport"))
    if chosen.name == "tcp":
        return TcpParameters(
            jiffy_ns=JIFFY_NS,
            rto_min_ns=1_000_000 * run.integer("rto_min_ms"),
            frame_bytes=frame_bytes,
            ecn=DCTCP if chosen.control == "dctcp" else CLASSIC_ECN,
        )
    return Parameters(
        rate_bps=rate_bps,
        window=chosen.window,
        layers=layers,
        frame_bytes=frame_bytes,
        timeout_ns=timeout_ns(rate_bps, frame_bytes),
    )


def on_kernel(
    run: Run,
    topology: Topology,
    loads: Sequence[Load],
    *,
    rate_bps: int,
    deadline_s: float,
    scheme: str | None = None,
    layers: int = 1,
    frame_bytes: int = FRAME_BYTES,
) -> TransferTimes:
    """By real packets; without `scheme` by the usual one of the transport."""
    from weft.testbed.data_plane.data_plane import DataPlane
    from weft.testbed.measure.fidelity import Fidelity
    from weft.testbed.measure.port_counters import PortCounterReader
    from weft.testbed.network.network import RunningNetwork

    ndp = transport(run.text("transport")).name == "ndp"
    link = LinkSpec(
        rate_bps=rate_bps,
        # kernels of users may not have delays; the virtual kernel has
        delay_us=WIRE_DELAY_NS // 1000 if run.clock == "virtual" else 0,
        queue_packets=QUEUE_PACKETS,
        trim_packets=TRIM_PACKETS if ndp else 0,
        header_packets=run.integer("header_packets"),
        mtu_bytes=frame_bytes - ETHERNET_BYTES,
    )
    network = RunningNetwork.create(
        topology, link, scheme=scheme or (NDP_SCHEME if ndp else TCP_SCHEME)
    )
    try:
        with PortCounterReader(network) as counters, DataPlane.open(network) as plane:
            with Fidelity(network) as fidelity:
                # not before its reference packets, some of which a full queue drops
                before = counters.snapshot()
                found = (
                    by_ndp(run, network, loads, deadline_s, layers)
                    if ndp
                    else by_tcp(run, network, loads, deadline_s)
                )
            ports = counters.snapshot().since(before).ports.values()
            trimmed = sum(port.trimmed for port in plane.counters().values())
    finally:
        network.down()
    found.figures.update(
        trimmed_packets=trimmed,
        header_drops=sum(port.header_drops for port in ports),
        queue_drops=sum(port.queue_drops for port in ports),
    )
    report = {"fidelity_report": fidelity.report.as_dict(), **found.circumstances}
    return TransferTimes(
        loads, found.seconds, found.ended_s, found.figures, fidelity.verdict, report
    )


def by_ndp(
    run: Run, network: Any, loads: Sequence[Load], deadline_s: float, layers: int
) -> TransferTimes:
    """By the purified transport's endpoints in C."""
    from weft.testbed.traffic import ndp

    of = ndp.parameters_of(network, window=transport(run.text("transport")).window, layers=layers)
    seen = ndp.run(network, [ndp.NdpMessage(*load) for load in loads], of, deadline_s=deadline_s)
    figures: dict[str, Value] = {
        "timeouts": seen.counters.timeouts,
        "retransmissions": seen.counters.retransmissions,
        "duplicates": seen.counters.duplicates,
        "given_up": sum(one.failed is not None for one in seen.results),
    }
    about = {
        "loop_late_s": seen.late_s,
        "garbage": seen.garbage,
        "corrupt": seen.corrupt,
        "unsent": seen.unsent,
        "unread": seen.unread,
        "timeout_ns": of.timeout_ns,
        "undelivered": seen.undelivered[:10],
    }
    return TransferTimes(
        loads, [one.seconds for one in seen.results], seen.last_s, figures, None, {"ndp": about}
    )


def by_tcp(run: Run, network: Any, loads: Sequence[Load], deadline_s: float) -> TransferTimes:
    """By Linux' TCP, a connection for each load."""
    from weft.testbed.traffic import flows, tcp_settings

    rto_us = 1000 * run.integer("rto_min_ms")
    tcp_settings.tune(network, {"ipv4/tcp_ecn": "1", "ipv4/tcp_rto_min_us": str(rto_us)})
    control = transport(run.text("transport")).control
    seen = flows.run(
        network,
        [flows.Flow(*load) for load in loads],
        flows.FlowOptions(
            deadline_s=deadline_s,
            congestion_control=control,
        ),
    )
    figures: dict[str, Value] = {
        "timeouts": None,
        "retransmissions": seen.total("retransmissions"),
        "duplicates": seen.total("spurious"),
        "given_up": sum(one.error is not None for one in seen.results),
    }
    ended_s = max((one.ended_s for one in seen.results if one.ended_s is not None), default=0.0)
    seconds = [one.seconds for one in seen.results]
    return TransferTimes(
        loads,
        seconds,
        ended_s,
        figures,
        None,
        {"tcp": {"congestion_control": control, **seen.sysctls}},
    )


TRANSPORT = Spec(
    meaning="what carries the flows",
    form="ndp, ndp:window=PACKETS, tcp or tcp:control=CONGESTION_CONTROL",
    check=transport,
)
HEADER_PACKETS = Integer(meaning="headers that wait at a port", unit="packets", least=1, most=10**6)
RTO_MIN_MS = Integer(meaning="TCP's least retransmission timeout", unit="ms", least=1, most=10**5)
