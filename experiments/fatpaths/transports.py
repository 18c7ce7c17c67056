"""Messages carried by the purified transport or by TCP, on the kernel or on simulated links.

The same flows, networks and links for all: with NDP switches trim and spray packets (random); with
TCP they mark from 33 packets on, drop from 100, and hash flows, as in FatPaths' simulations
(section VII; NDP's own load balancing is oblivious, too).  All links are equally fast.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from weft.daemons.fatpaths.scheme import Trigger
from weft.daemons.transport.endpoint import LayerChoice, Parameters
from weft.experiments.engines import common_parameters as common
from weft.experiments.engines.arrays import Floats
from weft.experiments.engines.kernel_run import running
from weft.experiments.runner.definition import Result, Row, Run, Value
from weft.experiments.runner.parameters import Integer, Scalar, Spec
from weft.testbed.data_plane.data_plane import DataPlane
from weft.testbed.measure.fidelity import Fidelity
from weft.testbed.measure.kernel_counters import PortCounterReader
from weft.testbed.network.network import RunningNetwork
from weft.testbed.packets.network import (
    HASH,
    SPRAY,
    NextHops,
    PacketLink,
    PacketNetwork,
    TcpLayers,
    TcpParameters,
    shortest,
)
from weft.testbed.packets.transport import (
    ACKNOWLEDGED,
    Transport,
    check_linux,
    check_simulated,
    transport,
)
from weft.testbed.traffic import flows, ndp, tcp
from weft.topologies.core.grammar import parse
from weft.topologies.core.link import ETHERNET_BYTES, LinkSpec
from weft.topologies.core.topology import Topology, require_one_plane

QUEUE_PACKETS, ECN_PACKETS, TRIM_PACKETS = 100, 33, 8
NDP_SCHEME, TCP_SCHEME = "rps", f"vlb:ecn={ECN_PACKETS}"
FRAME_BYTES, HEADER_BYTES = 1514, 64
WIRE_DELAY_NS = 1_000
MARK_PACKETS = 4  # half of a queue, for packets that choose their layer by marks
HASHING = ("ecmp", "static", "vlb")  # schemes whose switches hash flows


TRANSPORT_COLUMNS = {
    "timeouts": "retransmission timeouts; null under TCP, which does not count them",
    "retransmissions": "packets that were sent again",
    "duplicates": "packets that arrived twice, under TCP those that it sent again in vain",
    "given_up": "messages that their sender gave up, or connections that broke",
    "trimmed_packets": "packets that switches trimmed to their headers",
    "header_drops": "headers, and packets that wait with them, that a full queue dropped",
    "queue_drops": "packets that a full queue dropped",
}


class Load(NamedTuple):
    """Message from host `src` to host `dst` at `at_s`."""

    at_s: float
    src: int
    dst: int
    size_bytes: int


@dataclass(frozen=True)
class TransferTimes:
    """Times of loads.

    seconds: time of each load, in order of `at_s`; None for one that did not end.
    ended_s: end of the last.
    figures: columns of the row.
    """

    seconds: Sequence[float | None]
    ended_s: float
    figures: Row
    fidelity: str | None = None
    circumstances: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, loads: Sequence[Load], ends: Mapping[int, float], figures: Row) -> TransferTimes:
        """Return the times of loads that have ended, by number."""
        seconds = [ends[n] - load.at_s if n in ends else None for n, load in enumerate(loads)]
        return cls(seconds, max(ends.values(), default=0.0), figures)

    @property
    def unfinished(self) -> int:
        return self.seconds.count(None)

    def result(self, figures: Mapping[str, Value]) -> Result:
        """Return a result with `figures` and those of the transport."""
        return Result(
            {**figures, **self.figures},
            fidelity=self.fidelity,
            circumstances=self.circumstances,
        )

    def until(self, loads: Sequence[Load], deadline_s: float) -> Floats:
        """Return the times, in s; a load without an end counts with the time that it had."""
        return np.array(
            [
                deadline_s - load.at_s if seconds is None else seconds
                for load, seconds in zip(loads, self.seconds, strict=True)
            ]
        )


class Carriage(NamedTuple):
    """Routing, frames and deadline of a set of messages.

    scheme: routing on the kernel; the usual one of the transport if it is empty.
    next_hops: routing on simulated links; any shortest path if it is None.
    layers: among which hosts choose.
    gap_us: TCP's flows take another layer after such a silence, as in LetFlow; 0: after a cut of
        their window.
    is_open: TCP's connections are open before the first flow, so that no handshake is lost.
    failed: links that lose all packets from `failed_s` on, which no switch notices; on the kernel
        from the beginning.
    detours: routing on simulated links from `detours_s` on, unless it is None.
    endpoint: parameters of the purified transport other than its usual ones, by name.
    """

    rate_bps: int
    deadline_s: float
    frame_bytes: int = FRAME_BYTES
    scheme: str = ""
    next_hops: NextHops | None = None
    layers: int = 1
    gap_us: int = 0
    is_open: bool = False
    failed: Sequence[int] = ()
    failed_s: float = 0.0
    detours: NextHops | None = None
    detours_s: float = 0.0
    endpoint: Mapping[str, Any] = MappingProxyType({})


def transport_of(run: Run) -> Transport:
    return transport(run.text("transport"))


def hashes_flows(engine: str, parameters: Mapping[str, Scalar]) -> bool:
    """Return whether simulated switches hash flows, once by number and source alone.

    Flows numbered as their sources, or by a fixed distance, then shared a port.
    """
    scheme = parameters.get("scheme", parameters.get("routing"))
    if scheme is None:  # carry() chooses
        return engine == "packet" and transport(str(parameters["transport"])).name == "tcp"
    return engine == "packet" and parse(str(scheme))[0] in HASHING


def revisions(engine: str, parameters: Mapping[str, Scalar]) -> int:
    """Return how often the results of a cell have changed within its experiment's version."""
    return hashes_flows(engine, parameters) + changes_tcp(engine, parameters)


def changes_tcp(engine: str, parameters: Mapping[str, Scalar]) -> int:
    """Return how often the results of TCP's flows have changed in a cell.

    Once simulated hosts let a whole window wait, unless they were told otherwise, or a flow that
    lost its first packet in a new layer stayed there.  Once acknowledgements of
    fatpaths:trigger=cut stayed in a layer that lost them.  And twice simulated TCP differed from
    Linux where packets are late: in losses that were none, then in timers and buffers.
    """
    text = str(parameters.get("transport", "tcp"))
    parsed = transport(text)
    if engine not in ("packet", "kernel") or parsed.name != "tcp":
        return 0
    scheme = str(parameters.get("scheme", parameters.get("routing", "ecmp")))
    name, options = parse(scheme)
    in_layers = name in ("layers", "fatpaths")
    by_cuts = name == "fatpaths" and "cut" in options.get("trigger", "gap-cut")
    waits_less = engine == "packet" and parsed.small_queues == 1 and "small_queues" not in text
    as_linux = 2 * (engine == "packet" and parsed.recovery == "rack")
    return (in_layers or waits_less) + by_cuts + as_linux


def check(run: Run, *, has_planes: bool = False) -> None:
    """Raise ValueError unless the engine of `run` can carry its transport.

    has_planes: True if hosts may have links to several planes.
    """
    parsed = transport_of(run)
    topology = run.topology if run.engine == "packet" else common.network(run)
    if not has_planes:
        require_one_plane(run.experiment, topology)
    if topology.server_centric:
        raise ValueError(
            f"{run.experiment}: topology must be a fabric of switches, not {topology.spec}"
        )
    if run.engine == "packet":
        check_simulated(parsed)
    if run.engine == "kernel":
        check_linux(parsed, ACKNOWLEDGED)
        if parsed.name == "tcp":
            common.check_control(run, parsed.control)
            common.check_tcp(run)


def ideal_s(loads: Sequence[Load], rate_bps: int, frame_bytes: int) -> float:
    """Return how long the frames of `loads` take on the link of the busiest host."""
    payload = frame_bytes - HEADER_BYTES
    busy: Counter[tuple[str, int]] = Counter()
    for load in loads:
        frames = load.size_bytes + HEADER_BYTES * -(-load.size_bytes // payload)
        busy["src", load.src] += frames
        busy["dst", load.dst] += frames
    return 8 * max(busy.values()) / rate_bps


def carry(run: Run, topology: Topology, loads: Sequence[Load], how: Carriage) -> TransferTimes:
    """Carry `loads`, in order of `at_s`, by the transport and on the engine of `run`."""
    return (on_wires if run.engine == "packet" else on_kernel)(run, topology, loads, how)


def on_wires(run: Run, topology: Topology, loads: Sequence[Load], how: Carriage) -> TransferTimes:
    """Carry `loads` on a simulated network.

    Without `next_hops` packets of the purified transport take any shortest path, and flows of TCP
    one by their hash.
    """
    is_tcp = transport_of(run).name == "tcp"
    next_hops = how.next_hops or shortest(topology, HASH if is_tcp else SPRAY)
    endpoint, link = parameters(run, how), simulated_link(run, how)
    moves = tcp_layers(run, how)
    net = PacketNetwork(topology, link, endpoint, next_hops, run.seed, layers=moves)
    for flow, load in enumerate(loads):
        net.send(round(1e9 * load.at_s), load.src, load.dst, flow, load.size_bytes)
    net.run_until(round(1e9 * how.failed_s))
    net.fail(topology.links[list(how.failed)])
    if how.detours:
        net.run_until(round(1e9 * how.detours_s))
        net.reroute(how.detours)
    net.run_until(round(1e9 * how.deadline_s))
    ends: dict[int, float] = {event.flow: event.at_ns / 1e9 for _, event in net.delivered}
    return TransferTimes.of(loads, ends, network_figures(net, is_tcp))


def network_figures(net: PacketNetwork, is_tcp: bool) -> Row:
    """Return what hosts and ports of a simulated network have counted."""
    counters = net.flow_counters() if is_tcp else net.host_counters()
    failed = sum(event.failed is not None for _, event in net.finished)
    figures = host_figures(counters, failed, duplicates="spurious" if is_tcp else "duplicates")
    ports = net.port_counters()
    return figures | {
        "trimmed_packets": total(ports, "trimmed"),
        "header_drops": total(ports, "headers_lost"),
        "queue_drops": total(ports, "dropped"),
    }


def tcp_layers(run: Run, how: Carriage) -> TcpLayers:
    """Return how hosts of TCP choose layers on the simulated network: the paper's senders do."""
    return TcpLayers(
        trigger=Trigger.GAP if how.gap_us else Trigger.CUT,
        gap_us=how.gap_us,
        start=transport_of(run).start == "random",
    )


def simulated_link(run: Run, how: Carriage) -> PacketLink:
    """Return the links of the simulated network."""
    return PacketLink(
        rate_bps=how.rate_bps,
        delay_ns=WIRE_DELAY_NS,
        trim_bytes=TRIM_PACKETS * how.frame_bytes,
        header_bytes=run.integer("header_packets") * HEADER_BYTES,
        queue_packets=QUEUE_PACKETS,
        mark_packets=mark_packets(run),
        retransmissions_first=transport_of(run).retransmissions == "first",
    )


def mark_packets(run: Run) -> int:
    """Return the packets in a queue from which on switches mark those that arrive."""
    return ECN_PACKETS if transport_of(run).choice == "flow" else MARK_PACKETS


def host_figures(
    counters: Sequence[object], given_up: int, *, duplicates: str = "duplicates"
) -> Row:
    """Return the sums of the counters of endpoints or flows; `duplicates` names that counter."""
    return {
        "timeouts": total(counters, "timeouts"),
        "retransmissions": total(counters, "retransmissions"),
        "duplicates": total(counters, duplicates),
        "given_up": given_up,
    }


def parameters(run: Run, how: Carriage) -> Parameters | TcpParameters:
    """Return the parameters of the transport on a simulated network."""
    parsed = transport_of(run)
    if parsed.name == "tcp":
        rto_min_us = run.integer("rto_min_us")
        return parsed.tcp(how.frame_bytes, rto_min_us=rto_min_us, one_message=how.is_open)
    usual = parsed.ndp(how.rate_bps, how.frame_bytes, layers=how.layers, seed=run.seed)
    return replace(usual, **how.endpoint)


def on_kernel(run: Run, topology: Topology, loads: Sequence[Load], how: Carriage) -> TransferTimes:
    """Carry `loads` by real packets."""
    is_ndp = transport_of(run).name == "ndp"
    scheme = how.scheme or (NDP_SCHEME if is_ndp else TCP_SCHEME)
    with (
        running(topology, link_of(run, how), scheme) as network,
        Fidelity(network) as fidelity,
        counted_ports(network) as figures,
    ):
        for link in how.failed:
            network.fail(topology.link_name(link), silent=True)
        times = (by_ndp if is_ndp else by_tcp)(run, network, loads, how)
    report = {"fidelity_report": fidelity.report.as_dict(), **times.circumstances}
    return replace(
        times,
        figures=times.figures | figures,
        fidelity=fidelity.verdict,
        circumstances=report,
    )


@contextmanager
def counted_ports(network: RunningNetwork) -> Iterator[Row]:
    """Yield columns that have the counts of all ports at the end of a `with`."""
    figures: Row = {}
    with PortCounterReader(network) as counters, DataPlane.open(network) as plane:
        # not before the reference packets of fidelity, some of which a full queue drops
        before = counters.snapshot()
        yield figures
        ports = counters.snapshot().since(before).ports.values()
        figures["trimmed_packets"] = total(plane.counters().values(), "trimmed")
        figures["header_drops"] = total(ports, "header_drops")
        figures["queue_drops"] = total(ports, "queue_drops")


def total(counters: Iterable[object], name: str) -> int:
    """Return the sum of one counter of all ports."""
    return sum(getattr(port, name) for port in counters)


def link_of(run: Run, how: Carriage) -> LinkSpec:
    """Return the links of the kernel's network."""
    is_ndp = transport_of(run).name == "ndp"
    return LinkSpec(
        rate_bps=how.rate_bps,
        # kernels of users may not have delays; the virtual kernel has
        delay_us=WIRE_DELAY_NS // 1000 if run.clock == "virtual" else 0,
        queue_packets=QUEUE_PACKETS,
        trim_packets=TRIM_PACKETS if is_ndp else 0,
        header_packets=run.integer("header_packets"),
        mtu_bytes=how.frame_bytes - ETHERNET_BYTES,
    )


def by_ndp(run: Run, network: Any, loads: Sequence[Load], how: Carriage) -> TransferTimes:
    """Carry `loads` by the purified transport's endpoints in C."""
    parsed = transport_of(run)
    endpoint = replace(
        ndp.parameters_of(network, layers=how.layers),
        window=parsed.packets_unasked(),
        seed=run.seed,
        choice=LayerChoice[parsed.choice.upper()],
        **how.endpoint,
    )
    messages = [ndp.NdpMessage(*load) for load in loads]
    observed = ndp.run(network, messages, endpoint, deadline_s=how.deadline_s)
    failed = sum(result.failed is not None for result in observed.results)
    figures = host_figures([observed.counters], failed)
    about = {
        "loop_late_s": observed.late_s,
        "garbage": observed.garbage,
        "corrupt": observed.corrupt,
        "unsent": observed.unsent,
        "unread": observed.unread,
        "timeout_ns": endpoint.timeout_ns,
        "undelivered": observed.undelivered[:10],
    }
    seconds = [result.seconds for result in observed.results]
    return TransferTimes(seconds, observed.last_s, figures, None, {"ndp": about})


def by_tcp(run: Run, network: Any, loads: Sequence[Load], how: Carriage) -> TransferTimes:
    """Carry `loads` by Linux' TCP, a connection for each."""
    rto_us = run.text("rto_min_us")
    tcp.tune(network, {"ipv4/tcp_ecn": "1", "ipv4/tcp_rto_min_us": rto_us})
    control = transport_of(run).control
    options = flows.FlowOptions(
        deadline_s=how.deadline_s, congestion_control=control, open_before=how.is_open
    )
    observed = flows.run(network, [flows.Flow(*load) for load in loads], options)
    figures: Row = {
        "timeouts": None,
        "retransmissions": observed.total("retransmissions"),
        "duplicates": observed.total("spurious"),
        "given_up": sum(result.error is not None for result in observed.results),
    }
    ends = [result.ended_s for result in observed.results if result.ended_s is not None]
    seconds = [result.seconds for result in observed.results]
    about = {"tcp": {"congestion_control": control, **observed.sysctls}}
    return TransferTimes(seconds, max(ends, default=0.0), figures, None, about)


TRANSPORT = Spec(
    "what carries the flows",
    form="ndp, ndp:window=8,retransmissions=first,choice=reps, tcp, "
    "tcp:control=reno,start=first,recovery=reno, tcp:small_queues=0",
    check=transport,
)
HEADER_PACKETS = Integer("headers that wait at a port", unit="packets", least=1, most=10**6)
