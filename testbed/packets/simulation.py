"""Flows over any network, under any scheme, packet by packet.

    from weft import simulate

    result = simulate("dcell:n=4,k=1", "pr-gpi", [(0, 19, 1_000_000), (1, 18, 1_000_000)])
    result.completion_s

Tens of thousands of hosts fit.  Results are a function of the arguments alone.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.daemons.transport.endpoint import MOST_PACKETS, Delivered, Parameters
from weft.testbed.machine.machine import require_memory
from weft.testbed.packets import transport as transports
from weft.testbed.packets.control_plane import ControlPlane
from weft.testbed.packets.forwarding import FlowRoutes, Forwarding, check_forwarding, forwarding
from weft.testbed.packets.network import (
    ALONE,
    WORD_BITS,
    Links,
    PacketLink,
    PacketNetwork,
    StreamParameters,
    TcpParameters,
)
from weft.testbed.packets.parts import parts_of
from weft.testbed.packets.switching import NONE, Switching, switching
from weft.testbed.packets.transport import Transport
from weft.topologies import build
from weft.topologies.core.failures import fail_links
from weft.topologies.core.link import Gbps, LinkSpec
from weft.topologies.core.topology import Size, Topology, limited

LINK = LinkSpec(rate_bps=10 * Gbps, queue_packets=100, delay_us=1)
TRIM_PACKETS, HEADER_BYTES = 8, 64  # of queues that trim, unless a link says another number
RTO_MIN_US = 200_000
COLUMNS = ("start_s", "src", "dst", "bytes")  # of a file of flows
MOST_NODES = 120_000
MOST_SAMPLES = 1 << 20
MOST_LINE, MOST_DIGITS = 1 << 18, 18  # of a file of flows; csv refuses half of such a line
MOST_START_S, MOST_FLOWS = 10_000.0, 1 << 24
# memory of a flow, of a packet of TCP, and of a link; while switches' tables are made, of an entry,
# and of each of the words that have a bit for a port
FLOW_BYTES, PACKET_BYTES, LINK_BYTES = 1_000, 32, 1_500
TABLE_BYTES, PORTS_BYTES = 40, 8
LEAST_PAYLOAD_BYTES = 1_000
MOST_WHOLE = 1 << 53  # that a float has exactly
MOST_SEED = (1 << 64) - 1
# packets of each flow that have arrived, without a gap and up to the latest, by sample
Samples = list[tuple[NDArray[np.int64], NDArray[np.int64]]]
FlowWatch = Callable[[float, float], object]  # share of bytes that have arrived, time
FlowPaths = Callable[[int, int, int], Sequence[int] | None]  # nodes by flow and both ends


class PacketFlows(NamedTuple):
    """Flows as arrays of one length; a flow's number is its place.

    start_s: time at which it begins.
    src, dst: hosts.
    size_bytes: payload.
    """

    start_s: NDArray[np.float64]
    src: NDArray[np.int64]
    dst: NDArray[np.int64]
    size_bytes: NDArray[np.int64]

    @classmethod
    def of(cls, rows: Iterable[Sequence[float]]) -> PacketFlows:
        """Return flows from rows of source, destination, bytes, and the start, 0 s by default.

        ValueError for a row of another length, or a number that is not whole.
        """
        listed = [tuple(row) for row in rows]
        if others := [row for row in listed if len(row) not in (3, 4)]:
            raise ValueError(
                f"a flow is (source, destination, bytes) or has its start, too: {others[0]!r}"
            )
        table = np.array([(*row, 0.0)[:4] for row in listed], dtype=float).reshape(-1, 4)
        whole = (np.trunc(table[:, :3]) == table[:, :3]) & (np.abs(table[:, :3]) <= MOST_WHOLE)
        if not whole.all():
            number = int((~whole.all(axis=1)).argmax())
            raise ValueError(f"flow {number}: hosts and bytes are whole numbers, up to 2^53")
        src, dst, size_bytes = table[:, :3].astype(np.int64).T
        return cls(table[:, 3], src, dst, size_bytes)

    @classmethod
    def read(cls, path: str | Path, topology: Topology) -> PacketFlows:
        """Return the flows of a CSV file.

        Its columns are start_s, src, dst and bytes, in any order and among others, such as those
        of `weft simulate --output`.  Hosts are names, labels or numbers.

        Raises:
            ValueError: a line or a flow is wrong; the message begins with the file and, for what
                cannot be read, the line.
            OSError: the file cannot be read.
        """
        rows = []
        with open(path, newline="", encoding="utf-8-sig") as file:  # spreadsheets write a BOM
            pieces = iter(partial(file.readline, MOST_LINE), "")  # a device may have no line's end
            lines = csv.DictReader(pieces, skipinitialspace=True)
            try:
                names = list(lines.fieldnames or ["an empty line"])
                if any(names.count(column) != 1 for column in COLUMNS):
                    columns = ",".join(names)
                    raise ValueError(f"the columns must be {','.join(COLUMNS)}, not {columns}")
                for line in lines:
                    if None in line or None in line.values():
                        raise ValueError(f"a flow has {len(names)} values")
                    ends = [_host(topology, line[name]) for name in ("src", "dst")]
                    rows.append((*ends, float(line["bytes"]), float(line["start_s"])))
                    if len(rows) > MOST_FLOWS:
                        break
            except UnicodeDecodeError:
                raise ValueError(f"{path}: it is not text in UTF-8") from None
            except (ValueError, csv.Error) as error:
                raise ValueError(f"{path}:{max(lines.line_num, 1)}: {error}") from None
        try:
            flows = cls.of(rows)
            flows.check(topology)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
        return flows

    def check(self, topology: Topology) -> None:
        """Raise ValueError, about the first such flow, if flows cannot be sent on `topology`."""
        hosts = topology.servers
        wrong = {
            "begins before 0 s, or too late": ~(
                (self.start_s >= 0) & (self.start_s <= MOST_START_S)
            ),
            f"has an end that is no host: they are 0 to {hosts - 1}": (
                (np.minimum(self.src, self.dst) < 0) | (np.maximum(self.src, self.dst) >= hosts)
            ),
            "leads to its own source": self.src == self.dst,
            "has no bytes": self.size_bytes < 1,
        }
        for reason, which in wrong.items():
            if which.any():
                raise ValueError(f"flow {int(which.argmax())} {reason}")
        if not 1 <= len(self.src) <= MOST_FLOWS:
            raise ValueError(f"give 1 to {MOST_FLOWS} flows, not {len(self.src)}")


class Fault(NamedTuple):
    """Links that lose all packets.

    links: rows of Topology.links.
    at_s: when they fail.
    known_s: when flows are routed around them; infinite: never.  Daemons find that out themselves.
    restored_s: when they carry packets again, which is known as long after as the failure was.
    silent: True if their ends keep the carrier, so that daemons must miss hellos.
    """

    links: Sequence[int]
    at_s: float
    known_s: float = math.inf
    restored_s: float = math.inf
    silent: bool = False

    @property
    def forgotten_s(self) -> float:
        """Return when flows take these links again."""
        return self.restored_s + self.known_s - self.at_s


class FlowProgress(NamedTuple):
    """Bytes that have arrived.

    times_s: of the samples.
    arrived_bytes: by sample and flow, up to the first gap.
    latest_bytes: of TCP, up to the latest.
    """

    times_s: NDArray[np.float64]
    arrived_bytes: NDArray[np.int64]
    latest_bytes: NDArray[np.int64]


@dataclass(frozen=True)
class SimulatedFlows:
    """Outcome of a simulation.

    delivered_s: when the last byte of each arrived; NaN for one that did not end.
    counters: of each flow of TCP (`sent`, `retransmissions`, `spurious`, `timeouts`, `late`, ...),
        or without a transport (StreamCounters); of each host with the purified transport.
    by_flow: True if counters are of flows.
    ports: counters of each port, in order of node and port.
    unrouted: packets lost at nodes without a route for them, or in loops.
    ended_s: simulated time of the last event.
    progress: empty unless simulate() was to take samples.
    statuses: of the daemons of routers, in order of their nodes; none without daemons.
    """

    flows: PacketFlows
    delivered_s: NDArray[np.float64]
    counters: dict[str, NDArray[np.int64]]
    by_flow: bool
    ports: dict[str, Any]
    unrouted: int
    ended_s: float
    progress: FlowProgress
    statuses: Sequence[Mapping[str, Any]]

    @property
    def completion_s(self) -> NDArray[np.float64]:
        """Return the time that each flow took, NaN for one that did not end."""
        return self.delivered_s - self.flows.start_s

    @property
    def unfinished(self) -> int:
        """Return how many flows did not end."""
        return int(np.isnan(self.delivered_s).sum())

    @property
    def transmissions(self) -> int:
        """Return how many frames links have begun to carry."""
        return int(self.ports["frames"].sum())

    @property
    def deadlocked(self) -> int:
        """Return how many ports wait for each other's room in a circle, for good."""
        return int(self.ports["deadlocked"].sum())

    def columns(self) -> dict[str, NDArray[Any]]:
        """Return what is known of each flow by name, as pandas.DataFrame() takes it."""
        counters = self.counters if self.by_flow else {}
        return {**self.flows._asdict(), "completion_s": self.completion_s, **counters}


def simulate(
    network: Topology | str,
    scheme: str,
    flows: PacketFlows | Iterable[Sequence[float]],
    *,
    transport: str = "tcp",
    link: LinkSpec = LINK,
    host_link: LinkSpec | None = None,
    own_links: Mapping[int, LinkSpec] | None = None,
    seed: int = 1,
    faults: Sequence[Fault] = (),
    daemons: bool = False,
    deadline_s: float = 60.0,
    rto_min_us: int = RTO_MIN_US,
    flow_control: str = NONE,
    cut_through: bool = False,
    sample_s: float = math.inf,
    watch: FlowWatch = lambda share, now_s: None,
    threads: int | None = None,
) -> SimulatedFlows:
    """Return what becomes of flows on simulated links.

    Switches of a fabric run the rule of the scheme on the data plane's own C.  Where servers
    forward, a flow takes a path of the scheme, each way.  A queue holds whole packets, and links
    carry Ethernet frames without preamble and gap.

    Args:
        network: any network, or its spec.
        scheme: routing, such as ecmp, drill or pr-gpi.
        flows: PacketFlows, or rows of source, destination, bytes and, if not 0, start in s.
        transport: tcp, ndp or plain, with parameters (transport.py).
        link: of all links without a specification of their own.
        host_link: of links between hosts and switches of a fabric.
        own_links: by link; those of a user's graph by default.
        seed: of all random choices.
        faults: links that fail.
        daemons: True to run the daemons of the scheme in the same time; they have converged before
            the first flow, and change routes as they find failures.
        deadline_s: simulated time at which the simulation ends at the latest.
        rto_min_us: TCP's least retransmission timeout.
        flow_control: of all links, with which none loses packets (switching.py).
        cut_through: True if nodes forward a packet while it arrives; links then have one rate.
        sample_s: time between samples of the progress of TCP's flows; infinite: none.
        watch: called now and then with the share of bytes that have arrived, and the time.
        threads: processors for this one network, 1 to 8 (parts.py).  Any number gives the same
            results.  These differ from those of None in random draws: each node makes its own.

    Raises:
        ValueError: the scheme, the transport, a flow or a link cannot be simulated, or memory is
            not enough; one line says why.
    """
    topology = simulated_topology(network)
    hosts = simulated_transport(transport)
    sampled_s = sample_times(sample_s, deadline_s, hosts.name)
    check_faults(topology, faults, daemons=daemons)
    links = link_specs(topology, link, host_link, own_links)
    passing = switching(flow_control, links, cut_through=cut_through)
    flows = checked_flows(topology, flows)
    simulation = Simulation(
        topology, scheme, flows, hosts, links, passing, seed, rto_min_us, daemons=daemons
    )
    simulation.split(threads)
    return simulation.run(faults, deadline_s, sampled_s, watch)


class Simulation:
    """One simulation; see simulate().

    rounds: equal parts of the flows, in order.  Each but the first begins when all flows of the one
        before have arrived, as after a barrier: start_s counts from then on, and is the time of the
        simulation in the outcome.
    paths: of flows, instead of the scheme's.
    degraded: links of which switches know that they are slower than others; LBSP avoids them.
    """

    def __init__(
        self,
        topology: Topology,
        scheme: str,
        flows: PacketFlows,
        hosts: Transport,
        links: Sequence[LinkSpec],
        passing: Switching,
        seed: int,
        rto_min_us: int = RTO_MIN_US,
        *,
        daemons: bool,
        rounds: int = 1,
        paths: FlowPaths | None = None,
        degraded: Collection[int] = (),
    ) -> None:
        frame_bytes = links[0].frame_bytes
        self.topology, self.scheme, self.seed = topology, scheme, seed
        self.paths, self.degraded = paths, degraded
        self._take(flows, rounds)
        self.is_tcp, self.is_plain = hosts.name == "tcp", hosts.name == "plain"
        self.payload_bytes = frame_bytes - hosts.header_bytes
        check_memory(topology, flows, frame_bytes if self.is_tcp else 0)
        check_forwarding(topology, scheme, hosts, daemons=daemons)
        self.control = ControlPlane(topology, scheme, links) if daemons else None
        tables = self.control.forwarding if self.control else self._forwarding()
        self.by_routes = tables.next_hops is None and not self.control
        self.network = self._network(hosts, links, passing, tables, rto_min_us)

    def split(self, threads: int | None) -> None:
        """Let threads run parts of the network, unless None; ValueError if they cannot."""
        if threads is None:
            return
        if self.alone:
            raise ValueError(ALONE + self.alone)
        self.network.split(parts_of(self.topology, threads))

    def _take(self, flows: PacketFlows, rounds: int) -> None:
        """Take flows over, none of which has begun."""
        self.flows = flows._replace(start_s=flows.start_s.copy())
        self.delivered_s = np.full(len(flows.src), np.nan)
        self.arrived_bytes, self.samples = 0, Samples()
        self.round_flows, self.begun, self.arrived = len(flows.src) // rounds, 0, 0

    def _forwarding(self) -> Forwarding:
        if self.paths:
            return Forwarding(None)
        return forwarding(self.topology, self.scheme, self.degraded)

    def _network(
        self,
        hosts: Transport,
        links: Sequence[LinkSpec],
        passing: Switching,
        tables: Forwarding,
        rto_min_us: int,
    ) -> PacketNetwork:
        frame_bytes, layers = links[0].frame_bytes, tables.layers
        self.alone = alone(hosts, passing, tables, daemons=bool(self.control))
        check_seed(self.seed)
        if passing.output_bytes and hosts.name == "ndp":
            raise ValueError("ndp has several queues at a port, so that it has no output buffer")
        first = hosts.retransmissions == "first"
        kinds = simulated_links(links, passing, tables.mark_packets, retransmissions_first=first)
        endpoint: TcpParameters | StreamParameters | Parameters
        if self.is_tcp:
            endpoint = hosts.tcp(frame_bytes, rto_min_us=rto_min_us, one_message=True)
        elif hosts.name == "plain":
            endpoint = hosts.plain(links[0].rate_bps, frame_bytes)
        else:
            endpoint = hosts.ndp(
                links[0].rate_bps,
                frame_bytes,
                layers=layers,
                seed=self.seed,
                planes=self.topology.planes,
            )
        return PacketNetwork(
            self.topology, kinds, endpoint, tables.next_hops, self.seed, layers=tables.moves
        )

    def run(
        self,
        faults: Sequence[Fault],
        deadline_s: float,
        sampled_s: Sequence[float],
        watch: FlowWatch = lambda share, now_s: None,
        looks: Iterable[tuple[float, Callable[[], None]]] = (),
    ) -> SimulatedFlows:
        """Send all flows, and return what became of them; see simulate().

        sampled_s: times of samples, in order.
        looks: times in seconds, and what to call then.
        """
        self._begin()
        all_bytes = int(self.flows.size_bytes.sum())

        def tell() -> None:
            watch(self.arrived_bytes / all_bytes, self.network.now_ns / 1e9)

        acts = [*looks, *self._acts(faults), *((time_s, self._sample) for time_s in sampled_s)]
        for at_s, act in [*sorted(acts, key=itemgetter(0)), (math.inf, lambda: None)]:
            until_s = min(at_s, deadline_s)
            if self.control:
                self.control.run_until(until_s, self._note, tell, self._goes_on)
            self.network.run_until(round(1e9 * until_s), self._note, tell)
            if at_s > deadline_s:
                break
            act()
        return self._outcome(np.array(sampled_s[: len(self.samples)]))

    def statuses(self) -> Sequence[Mapping[str, Any]]:
        """Return those of the daemons, as in SimulatedFlows."""
        return self.control.statuses() if self.control else ()

    def _begin(self) -> None:
        """Schedule the first flows; ValueError if one has no route."""
        self._schedule()
        if self.control:
            flows = list(zip(*(array.tolist() for array in self.flows[:3]), strict=True))
            self.control.attach(self.network, flows, self._is_live)
        self._route_begun()

    def _schedule(self, begin_s: float = 0.0) -> None:
        """Schedule the flows of the next round, which begins at `begin_s`."""
        part = slice(self.begun, self.begun + self.round_flows)
        self.flows.start_s[part] += begin_s
        flows = zip(*(array[part].tolist() for array in self.flows), strict=True)
        for number, (start_s, src, dst, size_bytes) in enumerate(flows, self.begun):
            self.network.send(round(1e9 * start_s), src, dst, number, size_bytes)
        self.begun = part.stop

    def _route_begun(self) -> None:
        """Route the flows of the round that begins; ValueError if one has no route."""
        name = self.topology.naming.name
        numbers = range(self.begun - self.round_flows, self.begun)
        for src, dst in self._route(self.topology, numbers):
            raise ValueError(f"{self.scheme} has no path between {name(src)} and {name(dst)}")

    def _is_live(self, number: int) -> bool:
        return bool(np.isnan(self.delivered_s[number]))

    def _note(self, delivered: Delivered) -> None:
        self.delivered_s[delivered.flow] = delivered.at_ns / 1e9
        self.arrived_bytes += delivered.size_bytes
        self.arrived += 1
        if self.arrived == self.begun < len(self.delivered_s):
            self._schedule(delivered.at_ns / 1e9)
            self._route_begun()

    def _acts(self, faults: Sequence[Fault]) -> list[tuple[float, Callable[[], None]]]:
        """Return what faults do, and when."""
        acts: list[tuple[float, Callable[[], None]]] = []
        for fault in faults:
            acts.append((fault.at_s, partial(self._fail, fault, failed=True)))
            acts.append((fault.restored_s, partial(self._fail, fault, failed=False)))
            for time_s in (fault.known_s, fault.forgotten_s):
                known = [each for each in faults if each.known_s <= time_s < each.forgotten_s]
                acts.append((time_s, partial(self._reroute, known)))
        return [act for act in acts if act[0] < math.inf]

    def _sample(self) -> None:
        self.samples.append((self.network.delivered_packets(), self.network.latest_packets()))

    def _fail(self, fault: Fault, *, failed: bool) -> None:
        """Fail the links of a fault, or restore them."""
        self.network.fail(self.topology.links[list(fault.links)], failed=failed)
        if self.control and failed:
            self.control.fail(fault.links, silent=fault.silent)
        elif self.control:
            self.control.restore(fault.links)

    def _goes_on(self) -> bool:
        """Return True until all flows have been acknowledged."""
        return len(self.network.finished) < len(self.delivered_s)

    def _reroute(self, known: Sequence[Fault]) -> None:
        """Route packets around the links of `known` faults."""
        topology = fail_links(self.topology, [link for fault in known for link in fault.links])
        if self.by_routes:
            left = np.flatnonzero(np.isnan(self.delivered_s[: self.begun])).tolist()
            self._route(topology, left)
        elif hops := forwarding(topology, self.scheme, self.degraded).next_hops:
            self.network.reroute(hops)

    def _route(self, topology: Topology, numbers: Iterable[int]) -> list[tuple[int, int]]:
        """Give flows their routes over the healthy links; return the ends of those without one.

        These keep the route that they have.
        """
        if not self.by_routes:
            return []
        without = []
        route = self.paths or FlowRoutes(topology, self.scheme, self.seed).route
        for number in numbers:
            src, dst = int(self.flows.src[number]), int(self.flows.dst[number])
            there, back = route(number, src, dst), route(number, dst, src)
            if there and back:
                self.network.route(number, there, back)
            else:
                without.append((src, dst))
        return without

    def _outcome(self, times_s: NDArray[np.float64]) -> SimulatedFlows:
        counters: Sequence[Any]
        if self.is_tcp:
            counters = self.network.flow_counters()
        elif self.is_plain:
            counters = self.network.stream_counters()
        else:
            counters = self.network.host_counters()
        ports = self.network.port_counters()
        table = self.network.ports
        packets = np.array(self.samples, dtype=np.int64).reshape(-1, 2, len(self.delivered_s))
        arrived = np.minimum(packets * self.payload_bytes, self.flows.size_bytes)
        return SimulatedFlows(
            self.flows,
            self.delivered_s,
            as_columns(counters),
            self.is_tcp or self.is_plain,
            {"node": table.node, "port": table.number, "link": table.link, **as_columns(ports)},
            self.network.unrouted,
            self.network.now_ns / 1e9,
            FlowProgress(times_s, arrived[:, 0], arrived[:, 1]),
            self.statuses(),
        )


def simulated_topology(network: Topology | str) -> Topology:
    """Return a network, or that of a spec; ValueError if it is too large to simulate."""
    with limited(require_room):
        return build(network) if isinstance(network, str) else network


def simulated_transport(text: str) -> Transport:
    """Return the transport that `text` names; ValueError for one that is not simulated."""
    hosts = transports.transport(text, transports.ALL)
    transports.check_simulated(hosts)
    return hosts


def check_seed(seed: int) -> None:
    """Raise ValueError for a seed that a simulation cannot have."""
    if not 0 <= seed <= MOST_SEED:
        raise ValueError(f"the seed must be 0 to 2^64 - 1, got {seed}")


def sample_times(sample_s: float, deadline_s: float, transport: str) -> list[float]:
    """Return the times of samples until the deadline; ValueError if they cannot be taken."""
    if not sample_s * MOST_SAMPLES >= deadline_s:
        raise ValueError(f"sample_s={sample_s}: at most {MOST_SAMPLES} samples are taken")
    if sample_s < math.inf and transport == "ndp":
        raise ValueError("samples are taken of flows of TCP, or without a transport")
    return [sample_s * number for number in range(1, 1 + int(deadline_s / sample_s))]


def checked_flows(
    topology: Topology, flows: PacketFlows | Iterable[Sequence[float]]
) -> PacketFlows:
    """Return flows that `topology` can carry; ValueError about the first that it cannot."""
    listed = flows if isinstance(flows, PacketFlows) else PacketFlows.of(flows)
    listed.check(topology)
    return listed


def check_faults(topology: Topology, faults: Sequence[Fault], *, daemons: bool) -> None:
    """Raise ValueError for a fault that cannot happen."""
    for fault in faults:
        if not all(0 <= link < len(topology.links) for link in fault.links):
            raise ValueError(f"links are 0 to {len(topology.links) - 1}: {list(fault.links)}")
        if not 0 <= fault.at_s < min(fault.restored_s, math.inf):
            raise ValueError("a link fails at 0 s or later, and before it is restored")
        if not fault.at_s <= fault.known_s:
            raise ValueError("a failure is not known before it happens")
        if daemons and fault.known_s < math.inf:
            raise ValueError("with daemons no time is given at which a failure is known")


def as_columns(counters: Sequence[Any]) -> dict[str, NDArray[np.int64]]:
    """Return counters as an array of each name."""
    first = counters[0]
    names = [field.name for field in fields(first)] if is_dataclass(first) else dict(first._fields_)
    return {
        name: np.array([getattr(each, name) for each in counters], dtype=np.int64) for name in names
    }


def link_specs(
    topology: Topology,
    link: LinkSpec,
    host_link: LinkSpec | None,
    own_links: Mapping[int, LinkSpec] | None,
) -> list[LinkSpec]:
    """Return the specification of each link; ValueError for what simulated links do not have."""
    own = topology.own_links if own_links is None else own_links
    specs = [
        own.get(number, host_link if host_link and level == 0 else link)
        for number, level in enumerate(topology.level.tolist())
    ]
    for number, spec in enumerate(specs):
        if spec.loss_ppb or spec.hop_ns or spec.frame_bytes != link.frame_bytes:
            raise ValueError(
                f"{topology.link_name(number)}: simulated links have one MTU, and neither random "
                "loss nor processor time of a hop"
            )
    return specs


def simulated_links(
    specs: Sequence[LinkSpec],
    passing: Switching,
    mark_packets: int,
    *,
    retransmissions_first: bool,
) -> Links:
    """Return links as the library takes them."""
    kinds, properties = list(dict.fromkeys(specs)), passing._asdict()
    node_ns = properties.pop("node_ns")
    place = {spec: number for number, spec in enumerate(kinds)}
    return Links(
        [
            PacketLink(
                rate_bps=spec.rate_bps,
                delay_ns=1000 * spec.delay_us + node_ns,
                trim_bytes=(spec.trim_packets or TRIM_PACKETS) * spec.frame_bytes,
                header_bytes=spec.header_packets * HEADER_BYTES,
                queue_packets=spec.queue_packets,
                mark_packets=mark_packets,
                retransmissions_first=retransmissions_first,
                **properties,
            )
            for spec in kinds
        ],
        np.array([place[spec] for spec in specs]),
    )


def alone(hosts: Transport, passing: Switching, tables: Forwarding, *, daemons: bool) -> str:
    """Return what of a simulation threads do not run; "" if they run all of it."""
    causes = {
        "daemons": daemons,
        "flow control": passing.room_bytes > 0,
        "go-back-N": hosts.go_back_ns > 0,
        "hosts that choose a layer by their other flows": (
            hosts.name == "tcp" and tables.remembers_flows
        ),
    }
    return next((cause for cause, applies in causes.items() if applies), "")


def require_room(size: Size) -> None:
    """Raise ValueError for a network that is too large to simulate, whatever the flows."""
    if size.nodes > MOST_NODES:
        raise ValueError(f"{size}; a simulation has at most {MOST_NODES:,} nodes")
    require_memory(str(size), LINK_BYTES * size.links)


def check_memory(topology: Topology, flows: PacketFlows, tcp_frame_bytes: int) -> None:
    """Raise ValueError if tables and flows need more memory than the machine has free.

    tcp_frame_bytes: of a full packet of TCP, whose ends keep an entry for each; 0 without TCP.
    """
    size = topology.size
    require_room(size)
    need = LINK_BYTES * size.links + FLOW_BYTES * len(flows.src)
    if not topology.server_centric:
        ends = topology.links[:, [0, 2]].ravel()
        words = 1 + int(np.bincount(ends).max()) // WORD_BITS
        need += (TABLE_BYTES + PORTS_BYTES * words) * topology.switches**2
    if tcp_frame_bytes:
        need += PACKET_BYTES * int((flows.size_bytes / tcp_frame_bytes).sum())
    elif (largest := int(flows.size_bytes.max())) > MOST_PACKETS * LEAST_PAYLOAD_BYTES:
        raise ValueError(f"a message of {largest} bytes has too many packets")
    require_memory(f"{topology.spec} with {len(flows.src)} flows", need)


def _host(topology: Topology, text: str) -> int:
    """Return the host that `text` names or numbers; ValueError if there is none."""
    is_number = text.isdecimal() and len(text) <= MOST_DIGITS
    return int(text) if is_number else topology.naming.node(text)
