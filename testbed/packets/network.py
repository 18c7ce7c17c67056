"""Compiled simulation of hosts with the purified transport, TCP or none, and of switches.

Ten thousand hosts take minutes.  Results are a function of the arguments alone.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Callable, Mapping, Sequence
from ctypes import CFUNCTYPE, POINTER, Structure, byref, c_int, c_uint32, c_uint64, c_void_p
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.daemons.core.scheme import DAR, FLOW_HASH, RANDOM, SelectionRule
from weft.daemons.fatpaths.layers import RouterArrays, distances, everything, intact_distances
from weft.daemons.routing import selection
from weft.daemons.transport.endpoint import Delivered, EndpointCounters, Finished, Parameters
from weft.testbed.data_plane import own_rule
from weft.testbed.data_plane.own_rule import MOST_PARAMETERS
from weft.testbed.traffic import ndp_library
from weft.testbed.traffic.ndp_library import CCounters, CEvent, CParameters
from weft.topologies.core.address import FabricNaming, Prefix, covering
from weft.topologies.core.topology import Topology

# Rules of switches that need no parameters: a random port for each packet, one for each flow.
SPRAY, HASH = SelectionRule(RANDOM), SelectionRule(FLOW_HASH)
NO_ECN, CLASSIC_ECN, DCTCP = 0, 1, 2
RACK, RENO = 0, 1
NO_LABEL, LABEL_STAYS, PRR, PLB = range(4)
QUEUED, HEARD = 4, 5  # kinds of events of switches
WORD_BITS, WORD = 64, (1 << 32) - 1
FLOWS_OF_TABLE = 1 << 10  # at first, for which there is room
ALONE = "leave threads out: they do not simulate "
EVENTS = 1 << 18  # of the library, after which Python sees signals


class PacketLink(Structure):
    """Properties of all links: struct packet_link.

    delay_ns: propagation delay.
    mark_packets: packets of data in a switch's queue from which on it marks those that arrive; 0:
        never.

    With the purified transport:
    trim_bytes: capacity of a switch's queue of data; hosts queue without limit.
    header_bytes: capacity of a queue of headers.
    share: headers sent for each data packet if both wait.
    retransmissions_first: 1 if retransmitted packets have a queue of their own before other data.

    With TCP:
    queue_packets: capacity of a queue, at hosts as well.

    With flow control, on all links or on none, nodes neither trim nor drop what they forward:
    room_bytes: of a node for frames that came over this link; 0 without flow control.
    resume_bytes: 0: the sender has credits for the room.  Else the node lets it pause above
        room_bytes, and go on at resume_bytes.
    cut_through_bytes: of a frame, from which on a node forwards it; 0: all of it.
    output_bytes: of a buffer at the link's beginning, whose frames take no room behind the link
        over which they came.
    """

    _fields_ = (
        ("rate_bps", c_uint64),
        ("delay_ns", c_uint64),
        ("trim_bytes", c_uint32),
        ("header_bytes", c_uint32),
        ("share", c_uint32),
        ("queue_packets", c_uint32),
        ("mark_packets", c_uint32),
        ("retransmissions_first", c_uint32),
        ("room_bytes", c_uint32),
        ("resume_bytes", c_uint32),
        ("cut_through_bytes", c_uint32),
        ("output_bytes", c_uint32),
    )

    def __init__(self, *, share: int = 10, **values: int) -> None:
        super().__init__(share=share, **values)


class TcpParameters(Structure):
    """TCP of Linux: struct tcp_parameters.

    jiffy_ns: tick of the kernel's timers.
    rto_min_ns: least retransmission timeout.
    frame_bytes: a full packet on a link.
    ecn: NO_ECN, CLASSIC_ECN or DCTCP.
    one_message: 1 if a connection has one message alone: it is open before, so that no handshake is
        lost, and is closed with the last packet, which is acknowledged at once.
    recovery: RACK, or RENO for the TCP of RFC 5681.
    cubic: 1 if windows are those of CUBIC (RFC 9438), with RACK; else those of Reno.
    small_queues: 1 if few packets of a flow wait in its host's queue, about those of a millisecond
        (TCP small queues); 0 if a whole window does.
    label: NO_LABEL over IPv4; else segments have IPv6's flow label, which switches hash.  It stays,
        or is drawn again after timeouts and by receivers of data that come twice (PRR), and also
        after marks (PLB).
    plb_rounds: of DCTCP in a row with half of the packets marked, after which PLB draws a label.
    """

    _fields_ = (
        ("jiffy_ns", c_uint64),
        ("rto_min_ns", c_uint64),
        ("frame_bytes", c_uint32),
        ("ecn", c_uint32),
        ("one_message", c_uint32),
        ("recovery", c_uint32),
        ("cubic", c_uint32),
        ("small_queues", c_uint32),
        ("label", c_uint32),
        ("plb_rounds", c_uint32),
    )


class TcpLayers(Structure):
    """Choice of layers by TCP's hosts: struct packet_layers; names are of fatpaths' parameters.

    trigger: events of daemons/fatpaths/scheme.py after which a flow takes another layer.
    start, choice: numbers of the words of those parameters.
    """

    _fields_ = tuple(
        (name, c_uint32)
        for name in (
            "trigger",
            "gap_us",
            "cell_kb",
            "start",
            "choice",
            "ecn_percent",
            "ecn_rounds",
        )
    )


class TcpCounters(Structure):
    """Counters of a flow of TCP: struct tcp_counters."""

    _fields_ = tuple(
        (name, c_uint64)
        for name in (
            "sent",
            "retransmissions",
            "spurious",
            "timeouts",
            "probes",
            "reductions",
            "late",
            "timeout_rehashes",
            "duplicate_rehashes",
            "plb_rehashes",
            "new_labels",
        )
    )


class StreamParameters(Structure):
    """Hosts without a transport: struct stream_parameters.

    A host sends its messages one after the other, in order of their start.  No packet is
    acknowledged or sent again.

    rate_bps: of a host.
    counted_from_ns: receivers count what arrives from then on.
    go_back_ns: with go-back-N, time after which a host hears that a packet came early; 0 without.
    frame_bytes: of a full packet, of which header_bytes are no payload.
    """

    _fields_ = (
        ("rate_bps", c_uint64),
        ("counted_from_ns", c_uint64),
        ("go_back_ns", c_uint64),
        ("frame_bytes", c_uint32),
        ("header_bytes", c_uint32),
    )


class StreamCounters(Structure):
    """Packets of a message without a transport that its receiver has counted.

    struct stream_counters:
    latency_ns, worst_ns: since they began to leave their host, summed, and the longest.
    in_order: packets with the number above the highest so far.
    jumps, jumped: packets further above, and the sum of the differences.
    late, extent: all others (reordered in RFC 4737), and how far their numbers are below the
        highest, summed.
    refused: packets that go-back-N dropped, because they came early or for the second time.
    """

    _fields_ = tuple(
        (name, c_uint64)
        for name in (
            "packets",
            "latency_ns",
            "worst_ns",
            "in_order",
            "jumps",
            "jumped",
            "late",
            "extent",
            "refused",
        )
    )


class TableFlow(Structure):
    """A flow in the table of a switch: struct packet_flow.

    port: place in PortTable of its output port, if its source is a host of the switch; else of the
        port at the other end of the link by which it comes.
    moved_ns: last change of the port, 0: never.
    """

    _fields_ = (
        ("last_ns", c_uint64),
        ("moved_ns", c_uint64),
        ("message", c_uint32),
        ("port", c_uint32),
    )


class DaemonCalls(NamedTuple):
    """Calls about packets for the daemons of switches.

    long_queue: (node, message, port of TableFlow) of a packet that joined a long queue.
    heard: (node, message of a daemon) that has arrived there, see PacketNetwork.tell().
    """

    long_queue: Callable[[int, int, int], object]
    heard: Callable[[int, int], object]


class SimulatedPortCounters(Structure):
    """Counters of a port: struct packet_port_counters."""

    _fields_ = tuple(
        (name, c_uint64)
        for name in (
            "frames",
            "bytes",
            "trimmed",
            "headers_lost",
            "most_data_bytes",
            "most_header_bytes",
            "dropped",
            "marked",
            "waited_ns",
            "most_room_bytes",
            "deadlocked",
        )
    )


class PacketHop(Structure):
    """Where a node sends a packet: struct packet_hop."""

    _fields_ = (("port", c_uint32), ("address", c_uint32), ("crossing", c_uint32))


# (node, message, back, address, hop) -> found: packet_lookup of network.h
LookUp = CFUNCTYPE(c_int, c_uint32, c_uint32, c_uint32, c_uint32, POINTER(PacketHop))


PortSet = tuple[int, ...]
PrefixPorts = Mapping[Prefix, Sequence[int]]
RULE_FIELDS = (
    *("load", "d", "m", "delta", "tie", "gap_us"),
    *("elephant_kb", "start", "key", "detect", "queue", "rest_us"),
    *("groups", "group_bits", "hash"),
)
# `ecn` is in the links; the others are read with states=1, which simulated switches lack
NOT_IN_RULE = frozenset(
    ("ecn", "states", "edge_packets", "edge_percent", "above_packets", "above_percent")
)


class SwitchRule(Structure):
    """Choice of switches among next hops: struct packet_rule."""

    _fields_ = (
        *((name, c_uint32) for name in ("rule", "seed", "alike", "frame_bytes", *RULE_FIELDS)),
        ("own", c_uint32 * MOST_PARAMETERS),
    )

    @classmethod
    def of(cls, rule: SelectionRule, seed: int, frame_bytes: int) -> SwitchRule:
        """Return `rule` as the library takes it; ValueError for one that it does not carry.

        frame_bytes: of a full packet.
        """
        if rule.reads_daemons and rule.rule != DAR:
            raise ValueError("simulated switches have no states")
        if unknown := own_rule.common_parameters(rule).keys() - NOT_IN_RULE - set(RULE_FIELDS):
            raise ValueError(f"struct packet_rule of network.h has no field {min(unknown)!r}")
        common = int(rule.rule), seed & WORD, int(rule.common_seed), frame_bytes
        values = [rule[name] for name in RULE_FIELDS]
        own = (c_uint32 * MOST_PARAMETERS)(*own_rule.parameters(rule))
        return cls(*common, *values, own)


class CWiring(Structure):
    """struct packet_wiring."""

    _fields_ = (
        ("first_port", c_void_p),
        ("peer", c_void_p),
        ("link", c_void_p),
        ("links", POINTER(PacketLink)),
        ("last_port", c_void_p),
        ("departures", c_void_p),
        ("hops", c_void_p),
        ("hop_sets", c_void_p),
        ("addresses", c_void_p),
        ("digits", c_void_p),
        ("distances", c_void_p),
        ("n_hosts", c_uint32),
        ("n_switches", c_uint32),
        ("n_hop_sets", c_uint32),
        ("layers", c_uint32),
        ("planes", c_uint32),
        ("rule", SwitchRule),
        ("choose", c_void_p),
    )


class PortTable(NamedTuple):
    """Ports of all nodes, in order of node and port.

    first: first port of each node, and the number of all ports.
    node, peer: nodes at both ends of each port.
    number: of each port at its node.
    link: of each port, a row of Topology.links.
    failed: True for a port of a failed link.
    """

    first: NDArray[np.uint32]
    node: NDArray[np.int64]
    peer: NDArray[np.int64]
    number: NDArray[np.int64]
    link: NDArray[np.int64]
    failed: NDArray[np.bool_]

    @classmethod
    def of(cls, topology: Topology) -> PortTable:
        """Return the ports of `topology`."""
        ends = np.concatenate([topology.links, topology.links[:, [2, 3, 0, 1]]])
        order = np.lexsort((ends[:, 1], ends[:, 0]))
        node, number, peer, _ = ends[order].T
        first = np.searchsorted(node, np.arange(topology.nodes + 1)).astype(np.uint32)
        link = order % len(topology.links)
        return cls(first, node, peer, number, link, topology.failed[link])

    def place(self, node: int, number: int) -> int:
        """Return the place in these arrays of a port of `node`."""
        first, last = self.first[node : node + 2]
        return int(first + np.searchsorted(self.number[first:last], number))


class Arcs(NamedTuple):
    """Healthy ports between switches, which are numbered from 0.

    tail, head: switches at both ends.
    port: number of the port, from the first port of `tail`.
    """

    tail: NDArray[np.int64]
    head: NDArray[np.int64]
    port: NDArray[np.uint16]

    @classmethod
    def of(cls, topology: Topology) -> Arcs:
        """Return the healthy ports between switches of `topology`."""
        ports = PortTable.of(topology)
        number = (np.arange(len(ports.node)) - ports.first[ports.node]).astype(np.uint16)
        kept = np.minimum(ports.node, ports.peer) >= topology.servers
        kept &= ~ports.failed
        ends = ports.node[kept] - topology.servers, ports.peer[kept] - topology.servers
        return cls(*ends, number[kept])


class NextHops(NamedTuple):
    """Next hops of packets, as in struct packet_wiring.

    hops: place in `sets` by layer, switch and last switch, shape (layers, switches, switches).
    sets: number of ports, and the ports, of each set.
    rule: choice of a switch among the ports of a set.
    departures: ports of hosts, see departures().
    """

    hops: NDArray[np.uint32]
    sets: NDArray[np.uint16]
    rule: SelectionRule
    departures: NDArray[np.uint32]

    @property
    def layers(self) -> int:
        """Return the number of layers."""
        return len(self.hops)


def shortest(topology: Topology, rule: SelectionRule) -> NextHops:
    """Return all hops on shortest paths, of which `rule` takes one."""
    table = np.zeros((1, topology.switches, topology.switches), dtype=np.uint32)
    flat: list[int] = []
    for switch, row in enumerate(port_words(topology)):
        sets, numbers = np.unique(row, axis=1, return_inverse=True)
        begins = []
        for ports in map(ports_of, sets.T):
            begins.append(len(flat))
            flat += [len(ports), *ports]
        table[0, switch] = np.array(begins)[numbers.reshape(-1)]
    return NextHops(table, np.array(flat, dtype=np.uint16), rule, departures(topology))


def routed(topology: Topology, rule: SelectionRule, routes: Mapping[int, PrefixPorts]) -> NextHops:
    """Return the hops of a table for each switch, in the order in which `rule` reads them.

    routes: of each switch, ports by prefix, of which the longest counts; one covers each host.
    """
    ports = PortTable.of(topology)
    table = np.zeros((1, topology.switches, topology.switches), dtype=np.uint32)
    flat = [0]
    places: dict[PortSet, int] = {}
    hosts = a_host_of_each(topology)
    for node, own in routes.items():
        for last, host in hosts.items():
            numbers = own[covering(host, own)]
            key = tuple(ports.place(node, number) for number in numbers)
            if key not in places:
                places[key] = len(flat)
                flat += [len(key), *(port - int(ports.first[node]) for port in key)]
            table[0, node - topology.servers, last - topology.servers] = places[key]
    return NextHops(table, np.array(flat, dtype=np.uint16), rule, departures(topology))


def check_hosts(topology: Topology, ports: PortTable) -> None:
    """Raise ValueError unless hosts have a link to each plane, and a healthy one among them."""
    hosts, planes = topology.servers, topology.planes
    failed = ports.failed[: hosts * planes]
    if (np.diff(ports.first)[:hosts] != planes).any() or failed.reshape(hosts, -1).all(
        axis=1
    ).any():
        raise ValueError(f"{topology.spec}: a host needs one healthy link")


def last_ports(topology: Topology, ports: PortTable) -> NDArray[np.uint32]:
    """Return the place in `ports` of each switch's port to a host, by host and plane."""
    to_host = np.flatnonzero(ports.peer < topology.servers)
    table = np.zeros((topology.servers, topology.planes), dtype=np.uint32)
    plane = topology.links[ports.link[to_host], 1] if topology.planes > 1 else 0
    table[ports.peer[to_host], plane] = to_host
    return table


def departures(topology: Topology) -> NDArray[np.uint32]:
    """Return the ports that each host sends by, as in struct packet_wiring.

    These are its healthy ones: a host knows of its own links alone.  Without any it has all.

    Returns:
        Number of ports, and places in PortTable, shape (hosts, 1 + planes).
    """
    ports, planes = PortTable.of(topology), topology.planes
    own = ports.first[: topology.servers, None] + np.arange(planes, dtype=np.uint32)
    table = np.hstack([np.full_like(own[:, :1], planes), own]).astype(np.uint32)
    failed = ports.failed[own]
    for host in np.flatnonzero(failed.any(axis=1) & ~failed.all(axis=1)):
        alive = own[host][~failed[host]]
        table[host] = len(alive), *np.resize(alive, planes)
    return table


def a_host_of_each(topology: Topology) -> dict[int, Prefix]:
    """Return the address of a host of each switch that has any."""
    hosts, _, switches, _ = topology.links[topology.level == 0].T
    addresses = addresses_of(topology)[hosts].tolist()
    prefixes = (Prefix(address, 32) for address in addresses)
    return dict(zip(switches.tolist(), prefixes, strict=True))


def port_words(topology: Topology) -> NDArray[np.uint64]:
    """Return sets of ports on shortest paths as bits: bit p of word w is port WORD_BITS * w + p.

    Returns:
        Words by switch, word and last switch; 0 where the last switch is the switch itself.
    """
    arcs = Arcs.of(topology)
    graph = RouterArrays.of(topology)
    hops = distances(graph, everything(graph))
    count = 1 + int(arcs.port.max(initial=0)) // WORD_BITS
    words = np.zeros((topology.switches, count, topology.switches), dtype=np.uint64)
    bits = np.uint64(1) << (arcs.port % WORD_BITS).astype(np.uint64)
    for last in np.unique(topology.links[topology.level == 0, 2]) - topology.servers:
        nearer = hops[arcs.tail, last] == hops[arcs.head, last] + 1
        place = arcs.tail[nearer], arcs.port[nearer] // WORD_BITS, last
        np.bitwise_or.at(words, place, bits[nearer])
    return words


def ports_of(words: NDArray[np.uint64]) -> list[int]:
    """Return the places of the bits that are set."""
    bits, places = int.from_bytes(words.astype("<u8").tobytes(), "little"), []
    while bits:
        lowest = bits & -bits
        places.append(lowest.bit_length() - 1)
        bits ^= lowest
    return places


def layered(topology: Topology, tables: NDArray[np.int32]) -> NextHops:
    """Return the hop of each layer.

    Args:
        topology: of the tables.
        tables: next router by layer, last router and router (daemons/fatpaths/layers.py).
    """
    arcs = Arcs.of(topology)
    port_to = np.zeros((topology.switches, topology.switches), dtype=np.uint16)
    port_to[arcs.tail, arcs.head] = arcs.port
    ports = port_to[np.arange(topology.switches), tables].swapaxes(1, 2)
    count = 1 + int(ports.max())
    sets = np.stack([np.ones(count), np.arange(count)], axis=1).astype(np.uint16)
    hops = np.multiply(ports, 2, dtype=np.uint32, order="C")
    return NextHops(hops, sets.reshape(-1), SPRAY, departures(topology))


class Links(NamedTuple):
    """Links of several kinds.

    kinds: properties.
    kind: place in `kinds` of each row of Topology.links, shape (links,).
    """

    kinds: Sequence[PacketLink]
    kind: NDArray[np.int64]


def addresses_of(topology: Topology) -> NDArray[np.uint32]:
    """Return the IPv4 address of each host."""
    return np.fromiter(map(topology.naming.address, range(topology.servers)), dtype=np.uint32)


def digits_of(topology: Topology, rule: SelectionRule) -> NDArray[np.uint32]:
    """Return what each switch reads of an address, as struct digit; shape (switches, digits, 3)."""
    naming = topology.naming
    assert isinstance(naming, FabricNaming), "hosts of a fabric"
    table = np.zeros((topology.switches, selection.DIGITS, 3), dtype=np.uint32)
    for switch in range(topology.switches):
        tier = naming.tier(topology.servers + switch)
        fields = selection.digits(naming.layout, 1 if rule.reads_from_first_digit else tier)
        table[switch, : len(fields)] = fields
    return table


def ends_of(transport: Parameters | TcpParameters | StreamParameters) -> tuple[object, ...]:
    """Return the parameters of hosts in their place among those of packet_network_new()."""
    return (
        CParameters.of(transport) if isinstance(transport, Parameters) else None,
        transport if isinstance(transport, TcpParameters) else None,
        transport if isinstance(transport, StreamParameters) else None,
    )


def check_labels(
    transport: Parameters | TcpParameters | StreamParameters, next_hops: NextHops | None
) -> None:
    """Raise ValueError if hosts have labels where switches have layers."""
    has_labels = isinstance(transport, TcpParameters) and transport.label
    if has_labels and next_hops and next_hops.layers > 1:
        raise ValueError("tcp: labels are for switches without layers")


class PacketNetwork:
    """Simulated network of endpoints.

    Args:
        topology: any network.
        link: properties of all links, or those of each.
        transport: parameters of the purified transport, of TCP, or of hosts without.
        next_hops: see shortest() and layered(), for a switch fabric; None if each message has a
            route of its own, see route().
        seed: of all random choices, and of the switches' hashes.
        layers: of TCP's hosts; without them flows stay in layer 0.
        path: of the library.

    Raises:
        ValueError: there are next hops, and a host has no healthy link, or several without planes;
            switches do not carry the rule, or have layers where hosts have labels.

    Attributes:
        delivered, finished: (host, event) of all hosts, in order of time.
        ports: of all nodes.
        calls: of switches' daemons; None without.
    """

    def __init__(
        self,
        topology: Topology,
        link: PacketLink | Links,
        transport: Parameters | TcpParameters | StreamParameters,
        next_hops: NextHops | None,
        seed: int,
        *,
        layers: TcpLayers | None = None,
        path: Path = ndp_library.PATH,
    ) -> None:
        self.delivered: list[tuple[int, Delivered]] = []
        self.finished: list[tuple[int, Finished]] = []
        self._network = None
        self._library = library(path)
        self._messages = self._until_ns = 0
        self.ports = PortTable.of(topology)
        self._topology = topology
        self._hop_ports: dict[tuple[int, int], list[int]] = {}
        self._arrays: list[NDArray[Any]] = []
        self._look_up: Any = None
        self.calls: DaemonCalls | None = None
        self._rows = (TableFlow * FLOWS_OF_TABLE)()
        check_labels(transport, next_hops)
        self._wiring = self._wire(link, next_hops, seed, transport.frame_bytes)
        self._network = self._library.packet_network_new(
            self._wiring, *ends_of(transport), layers or TcpLayers(), seed
        )
        if not self._network:
            raise MemoryError("no memory for a simulated network")

    def _wire(
        self, link: PacketLink | Links, next_hops: NextHops | None, seed: int, frame_bytes: int
    ) -> CWiring:
        """Return the wiring; the library reads its arrays until the network is freed."""
        topology, ports = self._topology, self.ports
        if isinstance(link, PacketLink):
            link = Links([link], np.zeros(len(topology.links), dtype=np.int64))
        self._kinds = (PacketLink * len(link.kinds))(*link.kinds)
        wiring = CWiring(
            first_port=self._kept(ports.first),
            peer=self._kept(ports.peer.astype(np.uint32)),
            link=self._kept(link.kind[ports.link].astype(np.uint16)),
            links=self._kinds,
            n_hosts=topology.servers,
            n_switches=topology.switches,
            layers=1,
            planes=1,
        )
        if next_hops:
            self._add_tables(wiring, next_hops)
            wiring.rule = SwitchRule.of(next_hops.rule, seed, frame_bytes)
            if next_hops.rule.code:
                wiring.choose = own_rule.function(next_hops.rule)
        return wiring

    def _add_tables(self, wiring: CWiring, next_hops: NextHops) -> None:
        topology, ports = self._topology, self.ports
        check_hosts(topology, ports)
        if topology.planes > 1 and (next_hops.layers > 1 or next_hops.rule.has_detours):
            raise ValueError(f"{topology.spec}: switches of planes have neither layers nor detours")
        wiring.planes = topology.planes
        wiring.departures = self._kept(next_hops.departures)
        wiring.last_port = self._kept(last_ports(topology, ports))
        wiring.hops = self._kept(next_hops.hops)
        wiring.hop_sets = self._kept(next_hops.sets)
        wiring.n_hop_sets = len(next_hops.sets)
        wiring.addresses = self._kept(addresses_of(topology))
        wiring.digits = self._kept(digits_of(topology, next_hops.rule))
        if next_hops.rule.has_detours:
            wiring.distances = self._kept(intact_distances(topology))
        wiring.layers = next_hops.layers

    def _kept(self, array: NDArray[Any]) -> int:
        """Return the address of an array that lives as long as the network."""
        self._arrays.append(array)
        return int(array.ctypes.data)

    def __del__(self) -> None:
        if self._network:
            self._library.packet_network_free(self._network)

    def split(self, owner: NDArray[np.uint8]) -> None:
        """Let threads run the network from now on, each the nodes of one part.

        owner: part of each node (parts.py).  ValueError if parts would not be alone in a span of
            time.
        """
        self._check(
            self._library.packet_network_split(
                self._network, owner.ctypes.data, 1 + int(owner.max())
            )
        )

    def send(
        self, time_ns: int, src: int, dst: int, flow: int, size_bytes: int, connection: int = -1
    ) -> int:
        """Schedule a message from host `src` to host `dst` at `time_ns`; return its number.

        connection: number of an earlier message, in whose flow of TCP this one follows.
        """
        number = self._messages
        connection = number if connection < 0 else connection
        self._check(
            self._library.packet_network_send(
                self._network, time_ns, src, dst, flow, size_bytes, connection
            )
        )
        self._messages += 1
        return number

    def route(self, number: int, there: Sequence[int], back: Sequence[int]) -> None:
        """Let message `number`, and the answers to it, take routes of their own from now on.

        Packets under way stay on the route that they were sent by.

        Args:
            number: of the message, which is the number of its flow; of TCP the first of its
                connection.
            there: nodes from its source to its destination, both included; crossbars may be left
                out.
            back: nodes from its destination to its source.

        Raises:
            ValueError: two nodes in a row are not joined.
            OSError: a route does not lead from one end of the message to the other.
        """
        forward, backward = self._ports_along(there), self._ports_along(back)
        ports = np.array(forward + backward, dtype=np.uint32)
        self._check(
            self._library.packet_network_route(
                self._network, number, ports.ctypes.data, len(forward), len(backward)
            )
        )

    def _ports_along(self, nodes: Sequence[int]) -> list[int]:
        return [port for hop in pairwise(nodes) for port in self._ports_of_hop(*hop)]

    def _ports_of_hop(self, a: int, b: int) -> list[int]:
        """Return the ports on the way from `a` to `b`: two where a crossbar is between them."""
        if (a, b) not in self._hop_ports:
            links = self._topology.hop_links(a, b)
            if not links:
                names = map(self._topology.naming.name, (a, b))
                raise ValueError(f"no hop leads from {' to '.join(names)}")
            ports, node = [], a
            for link in links:
                near, port, far, far_port = self._topology.ends(link)
                ports.append(self.ports.place(node, port if near == node else far_port))
                node = far if near == node else near
            self._hop_ports[a, b] = ports
        return self._hop_ports[a, b]

    def fail(self, links: NDArray[np.int64], *, failed: bool = True) -> None:
        """Let links lose all packets, which no node notices, or carry them again.

        Args:
            links: rows of Topology.links; parallel links fail one by one.
        """
        for node, number in links.reshape(-1, 2):
            place = self.ports.place(node, number)
            self._library.packet_network_fail(self._network, self._until_ns, place, failed)

    def reroute(self, next_hops: NextHops) -> None:
        """Route packets by `next_hops`, with the same rule and as many layers, from now on."""
        arrays: list[NDArray[Any]] = [next_hops.departures, next_hops.hops, next_hops.sets]
        pointers = map(self._kept, arrays)
        self._check(
            self._library.packet_network_reroute(self._network, *pointers, len(next_hops.sets))
        )

    def live(self, look_up: Any = None, memos: int = 1) -> None:
        """Let tables change while packets are under way, so that those without a next hop are lost.

        Args:
            look_up: a LookUp, which answers for all nodes but crossbars; None: the next hops do.
            memos: remembered answers, a power of two; see forget().
        """
        self._look_up = look_up
        self._check(self._library.packet_network_live(self._network, look_up or LookUp(), memos))

    def forget(self, node: int) -> None:
        """Look up the routes of `node` again."""
        self._library.packet_network_forget(self._network, node)

    def tell(self, port: int, length_bytes: int, message: int) -> None:
        """Let a packet of a daemon wait with the data at a port, of this place in `ports`.

        When it arrives, `calls` hears of it.
        """
        self._check(
            self._library.packet_network_tell(
                self._network, self._until_ns, port, length_bytes, message
            )
        )

    def place(self, node: int, message: int, port: int, *, with_destination: bool) -> None:
        """Let a message leave a switch by a port, if its source is a host of that switch.

        with_destination: True: also messages from there to the same host that begin from now on.
        """
        self._check(
            self._library.packet_network_place(
                self._network, self._until_ns, node, message, port, with_destination
            )
        )

    def table(self, node: int, idle_ns: int) -> Sequence[TableFlow]:
        """Return the flows of a switch that have sent within `idle_ns`, and forget the others."""
        while True:
            count = self._library.packet_network_flows(
                self._network, self._until_ns, node, idle_ns, self._rows, len(self._rows)
            )
            if count <= len(self._rows):
                return self._rows[:count]
            self._rows = (TableFlow * (2 * count))()

    def run_until(
        self,
        time_ns: int,
        on_delivered: Callable[[Delivered], object] = lambda delivered: None,
        watch: Callable[[], object] = lambda: None,
    ) -> None:
        """Run all events up to and including `time_ns`.

        on_delivered: called at each delivery; it may send.
        watch: called now and then.
        """
        while self.run_some(time_ns, on_delivered):
            watch()

    def run_some(self, time_ns: int, on_delivered: Callable[[Delivered], object]) -> bool:
        """Run events up to `time_ns`, up to a delivery, a call or a packet without a route.

        Returns:
            False if no event is left up to that time.
        """
        left = self._check(self._library.packet_network_run(self._network, time_ns, EVENTS))
        self._until_ns = self.now_ns if left else time_ns
        if left:
            self._take_events(on_delivered)
        return bool(left)

    @property
    def unrouted(self) -> int:
        """Return how many packets no node had a next hop for, or were forwarded too often."""
        return int(self._library.packet_network_unrouted(self._network))

    @property
    def now_ns(self) -> int:
        """Return the time of the last event."""
        return int(self._library.packet_network_now(self._network))

    def host_counters(self) -> list[EndpointCounters]:
        """Return the counters of the purified transport of each host."""
        counters = self._library.packet_network_host
        return [
            counters(self._network, host).contents.counters()
            for host in range(self._topology.servers)
        ]

    def flow_counters(self) -> list[TcpCounters]:
        """Return the counters of TCP of each message; zeros for one without a flow of its own."""
        counters = self._library.packet_network_flow
        pointers = (counters(self._network, message) for message in range(self._messages))
        return [
            TcpCounters.from_buffer_copy(pointer.contents) if pointer else TcpCounters()
            for pointer in pointers
        ]

    def stream_counters(self) -> list[StreamCounters]:
        """Return the counters of each message without a transport."""
        counters = self._library.packet_network_stream
        pointers = (counters(self._network, message) for message in range(self._messages))
        return [StreamCounters.from_buffer_copy(pointer.contents) for pointer in pointers]

    def delivered_packets(self) -> NDArray[np.int64]:
        """Return how many packets of each message have arrived; of TCP, without a gap before."""
        delivered = self._library.packet_network_delivered
        counts = (delivered(self._network, message) for message in range(self._messages))
        return np.fromiter(counts, dtype=np.int64)

    def latest_packets(self) -> NDArray[np.int64]:
        """Return how many packets of each flow of TCP there are up to the latest that arrived."""
        latest = self._library.packet_network_latest
        counts = (latest(self._network, message) for message in range(self._messages))
        return np.fromiter(counts, dtype=np.int64)

    def port_counters(self) -> list[SimulatedPortCounters]:
        """Return the counters of all ports, in order of node and port."""
        self._library.packet_network_deadlocked(self._network)
        counters = self._library.packet_network_port
        return [counters(self._network, port) for port in range(len(self.ports.node))]

    def _take_events(self, on_delivered: Callable[[Delivered], object]) -> None:
        host, c_event = c_uint32(), CEvent()
        while self._library.packet_network_take_event(self._network, byref(host), byref(c_event)):
            if c_event.kind in (QUEUED, HEARD):
                self._call(host.value, c_event)
                continue
            event = c_event.event()
            if isinstance(event, Delivered):
                self.delivered.append((host.value, event))
                on_delivered(event)
            else:
                self.finished.append((host.value, event))

    def _call(self, node: int, event: CEvent) -> None:
        if self.calls and event.kind == QUEUED:
            self.calls.long_queue(node, event.flow, event.peer)
        elif self.calls:
            self.calls.heard(node, event.flow)

    def _check(self, result: int) -> int:
        if result == -errno.ENOSYS:
            raise ValueError("network.c has no case for this selection rule")
        if result == -errno.EOPNOTSUPP:
            raise ValueError(f"{ALONE}links that take no time")
        if result < 0:
            raise OSError(-result, f"simulated network: {os.strerror(-result)}")
        return result


FUNCTIONS: list[ndp_library.FunctionTypes] = [
    (
        "packet_network_new",
        c_void_p,
        [
            *(POINTER(CWiring), POINTER(CParameters), POINTER(TcpParameters)),
            *(POINTER(StreamParameters), POINTER(TcpLayers), c_uint64),
        ],
    ),
    ("packet_network_free", None, [c_void_p]),
    ("packet_network_split", c_int, [c_void_p, c_void_p, c_uint32]),
    (
        "packet_network_send",
        c_int,
        [c_void_p, c_uint64, c_uint32, c_uint32, c_uint32, c_uint64, c_uint32],
    ),
    ("packet_network_route", c_int, [c_void_p, c_uint32, c_void_p, c_uint32, c_uint32]),
    ("packet_network_fail", None, [c_void_p, c_uint64, c_uint32, c_int]),
    ("packet_network_reroute", c_int, [c_void_p, c_void_p, c_void_p, c_void_p, c_uint32]),
    ("packet_network_live", c_int, [c_void_p, LookUp, c_uint32]),
    ("packet_network_forget", None, [c_void_p, c_uint32]),
    ("packet_network_tell", c_int, [c_void_p, c_uint64, c_uint32, c_uint32, c_uint32]),
    (
        "packet_network_place",
        c_int,
        [c_void_p, c_uint64, c_uint32, c_uint32, c_uint32, c_uint32],
    ),
    (
        "packet_network_flows",
        c_uint32,
        [c_void_p, c_uint64, c_uint32, c_uint64, POINTER(TableFlow), c_uint32],
    ),
    ("packet_network_run", c_int, [c_void_p, c_uint64, c_uint64]),
    ("packet_network_now", c_uint64, [c_void_p]),
    ("packet_network_take_event", c_int, [c_void_p, POINTER(c_uint32), POINTER(CEvent)]),
    ("packet_network_host", POINTER(CCounters), [c_void_p, c_uint32]),
    ("packet_network_flow", POINTER(TcpCounters), [c_void_p, c_uint32]),
    ("packet_network_stream", POINTER(StreamCounters), [c_void_p, c_uint32]),
    ("packet_network_delivered", c_uint32, [c_void_p, c_uint32]),
    ("packet_network_latest", c_uint32, [c_void_p, c_uint32]),
    ("packet_network_port", SimulatedPortCounters, [c_void_p, c_uint32]),
    ("packet_network_deadlocked", c_uint32, [c_void_p]),
    ("packet_network_unrouted", c_uint64, [c_void_p]),
    ("packet_network_frames", c_uint64, [c_void_p]),
]


@cache
def library(path: Path) -> ctypes.CDLL:
    """Return libndp.so with the types of the functions of network.h."""
    libndp = ndp_library.library(path)
    ndp_library.declare(libndp, FUNCTIONS)
    return libndp
