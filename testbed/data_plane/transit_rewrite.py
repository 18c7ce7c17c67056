"""transit_rewrite.bpf.c, which rewrites packets in transit through a server, and its maps.

Daemons of two schemes change the first octet of destinations: TAR by flow (flow_rewrite.py), DFR by
prefix (prefix_rewrite.py).  The program rewrites and forwards by the kernel's routes; it leaves
every special case to the kernel.  Users' filters at "forward" do not see packets that it forwards.
On a link with a delay it only rewrites, before the delay.  A server's own packets are routed before
any hook, so rules of nf_tables rewrite those (source_rewrite.py).

One process loads the program for all servers; filters at their ports hold it after that process has
ended.  Daemons open its maps, of which each entry has one writer.  Prefixes change at once: they
are written under the server's next generation, which then becomes valid.  Throughput:
bench/rewriting.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum

from weft.daemons.core.actions import FiveTuple
from weft.daemons.core.node_config import routers
from weft.testbed.data_plane.port_programs import PortFilter, attach_at_ports, program_at
from weft.testbed.linux import clock, libbpf
from weft.testbed.runs.network_handle import NetworkHandle
from weft.topologies.core.address import Prefix

SERVER = "=2I"  # struct server
FLOW = "=I4s4s4sI"  # struct flow
PREFIX = "=3I4s"  # struct prefix
LABEL = 0xFFFFFF


class OctetKey(IntEnum):
    """Key of a server's octets: none, flows or prefixes."""

    NOTHING = 0
    FLOW = 1
    PREFIX = 2


class TransitMaps:
    """The maps of an attached program, until close()."""

    def __init__(self, program: int) -> None:
        """Open the maps of the program with this id.

        Raises:
            BpfError: there is no such program.
        """
        self._maps = libbpf.Attached(program)
        self._servers = self._maps.map("servers", "=I", SERVER)
        self._flows = self._maps.map("flows", FLOW, "=I")
        self._prefixes = self._maps.map("prefixes", PREFIX, "=I")

    def descriptors(self) -> list[int]:
        """Return the maps' descriptors, which a forked process must keep open to write them."""
        return [self._servers.fd, self._flows.fd, self._prefixes.fd]

    def at(self, server: int) -> TransitRewriting:
        """Return the entries of `server`, whose daemon is their only writer."""
        return TransitRewriting(self._servers, self._flows, self._prefixes, server)

    def close(self) -> None:
        self._maps.close()


class TransitRewriting:
    """Entries of one server.

    Raises:
        BpfError: from every method, if a map is full.
    """

    def __init__(
        self, servers: libbpf.Map, flows: libbpf.Map, prefixes: libbpf.Map, server: int
    ) -> None:
        self._servers, self._flows, self._prefixes = servers, flows, prefixes
        self._server = server
        self._held: list[Prefix] = []

    def begin(self, rule: OctetKey) -> None:
        """Set the server's key and remove all entries, also those of an earlier daemon."""
        before, generation = self._servers[self._server,]
        self._servers[self._server,] = (rule, generation + 1)
        if before == OctetKey.NOTHING:
            return
        for key in {key for key in self._flows if key[0] == self._server}:
            del self._flows[key]
        for key in {key for key in self._prefixes if key[1] == self._server}:
            del self._prefixes[key]

    def set_flow(self, flow: FiveTuple, octet: int | None) -> None:
        """Set the octet of packets of `flow`; None removes the flow."""
        addresses = (
            address.to_bytes(4, "big")
            for address in (flow.source, flow.destination & LABEL, flow.ports)
        )
        key = (self._server, *addresses, flow.protocol)
        if octet is not None:
            self._flows[key] = (octet,)
        elif self._flows.get(key):
            del self._flows[key]

    def set_prefixes(self, octets: Mapping[Prefix, int]) -> None:
        """Replace all prefixes; the longest prefix of a destination gives its octet."""
        rule, generation = self._servers[self._server,]
        written: list[Prefix] = []
        try:
            for prefix, octet in octets.items():
                self._prefixes[self._key(generation + 1, prefix)] = (octet,)
                written.append(prefix)
        except libbpf.BpfError:
            self._remove(generation + 1, written)
            raise
        self._servers[self._server,] = (rule, generation + 1)
        self._remove(generation, self._held)
        self._held = written

    def _remove(self, generation: int, prefixes: Iterable[Prefix]) -> None:
        for prefix in prefixes:
            del self._prefixes[self._key(generation, prefix)]

    def _key(self, generation: int, prefix: Prefix) -> tuple[int, int, int, bytes]:
        return 64 + prefix.length, self._server, generation, prefix.network.to_bytes(4, "big")


PROGRAM = "transit_rewrite.bpf.o"
FUNCTION = "transit_rewrite"
# of the filter: behind what swallows packets in a silent failure, ahead of what delays them
PRIORITY = 5
CACHE_SLOTS = 1 << 8  # for each server
FLOWS_PER_SERVER, MOST_FLOWS = 1 << 12, 1 << 20
MOST_PREFIXES = 1 << 20  # one takes memory only when it is set


def attach(net: NetworkHandle) -> int:
    """Load the program without rules, attach it at every port of every router; return its id."""
    nodes = _routers(net)
    numbers = routers(net.topology).stop
    ports = [(node, port) for node in nodes for port, *_ in net.topology.ports(node)]
    entries = {
        "ports": 1 + max(net.ifindex(node, port) & 0xFFFF for node, port in ports),
        "servers": numbers,
        "flows": min(len(nodes) * FLOWS_PER_SERVER, MOST_FLOWS),
        "prefixes": MOST_PREFIXES,
        "cache": numbers * CACHE_SLOTS,
    }
    with libbpf.Object(libbpf.DIRECTORY / PROGRAM, entries=entries) as program:
        port_entries = program.map("ports", "=I", "=2I")
        has_delay = _has_delay(net)
        for node, port in ports:
            port_entries[net.ifindex(node, port) & 0xFFFF,] = (1 + node, has_delay)
        filters = [PortFilter(FUNCTION, program.program_fd(FUNCTION))]
        for node in nodes:
            attach_at_ports(net, node, filters, PRIORITY)
        program_id = program_of(net)
    assert program_id is not None
    return program_id


def _routers(net: NetworkHandle) -> list[int]:
    """Return the routers on this machine."""
    here = set(net.local_nodes)
    return [node for node in routers(net.topology) if node in here]


def _has_delay(net: NetworkHandle) -> bool:
    """Return True if another filter delays packets."""
    link = net.identity.journal_or_empty().get("link")
    return not clock.is_virtual() and bool(link and (link["delay_us"] or link.get("hop_ns")))


def program_of(net: NetworkHandle) -> int | None:
    """Return the id of the program attached at the routers of `net`, None without one."""
    node = _routers(net)[0]
    port, *_ = net.topology.ports(node)[0]
    return program_at(net, node, port, PRIORITY)


def ensure(net: NetworkHandle) -> int:
    """Attach the program at the routers of `net` unless it is attached; return its id."""
    program = program_of(net)
    return attach(net) if program is None else program
