"""Packets rewritten in transit: what data_plane/transit_rewrite.bpf.c knows at each server that
they reach.

Daemons of two schemes let packets that pass their server carry another first octet from there on:
TAR by flows (flow_rewrite.py), DFR by prefixes (prefix_rewrite.py).  The program does that, and
sends the packet where the kernel's routes lead then.  What is not as simple as that it leaves to
the kernel, so that ping, traceroute, long packets and packets to the server itself go as ever: see
there.  Users' own filters at "forward" do not see what it sends on.  On a link with a delay it only
rewrites, ahead of the delay, and the kernel forwards.

Why so.  Rules of nf_tables before the route is looked up did the same, and servers in between sent
0.63 times as many packets a second as by plain forwarding (TAR), 0.56 to 0.74 times at servers that
reroute (DFR); with this it is 0.85 to 0.99 times as many (bench/rewriting.py).  A program that
rewrites and leaves the route to the kernel makes it 0.74 to 0.79 times: to be called takes 60 ns
where plain forwarding takes 330.

It cannot do it for a server's own packets, whose route has been looked up before any hook sees
them: that is left to rules (source_rewrite.py).

One process loads it for all servers (transit_program.py) and daemons open its maps.  Each entry has
one writer. Prefixes are changed all at once: they are written under the server's next generation,
which is then made the valid one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum

from weft.daemons.core.actions import FiveTuple
from weft.testbed.linux import libbpf
from weft.topologies.core.address import Prefix

SERVER = "=2I"  # struct server
FLOW = "=I4s4s4sI"  # struct flow
PREFIX = "=3I4s"  # struct prefix
LABEL = 0xFFFFFF


class By(IntEnum):
    """What the program goes by at a server."""

    NOTHING = 0
    FLOW = 1
    PREFIX = 2


class TransitMaps:
    """The maps of an attached program, until close()."""

    def __init__(self, program: int) -> None:
        """Raises BpfError if there is no program of this id."""
        self._maps = maps = libbpf.Attached(program)
        self._servers = maps.map("servers", "=I", SERVER)
        self._flows, self._prefixes = (
            maps.map("flows", FLOW, "=I"),
            maps.map("prefixes", PREFIX, "=I"),
        )

    def descriptors(self) -> list[int]:
        """Of the maps: what a process that is forked must keep open to write them."""
        return [self._servers.fd, self._flows.fd, self._prefixes.fd]

    def at(self, server: int) -> TransitRewriting:
        """What is known at `server`, whose daemon is the only one to write it."""
        return TransitRewriting(self._servers, self._flows, self._prefixes, server)

    def close(self) -> None:
        """Let go of the maps."""
        self._maps.close()


class TransitRewriting:
    """What the program knows at one server.  Methods raise BpfError if the kernel refuses, for want
    of room."""

    def __init__(
        self, servers: libbpf.Map, flows: libbpf.Map, prefixes: libbpf.Map, server: int
    ) -> None:
        self._servers, self._flows, self._prefixes = servers, flows, prefixes
        self._server = server
        self._held: list[Prefix] = []

    def begin(self, rule: By) -> None:
        """Go by `rule` from now on, of which nothing is known yet, whatever a daemon before this
        one left."""
        before, generation = self._servers[self._server,]
        self._servers[self._server,] = (rule, generation + 1)
        if before == By.NOTHING:
            return
        for key in {key for key in self._flows if key[0] == self._server}:
            del self._flows[key]
        for key in {key for key in self._prefixes if key[1] == self._server}:
            del self._prefixes[key]

    def set_flow(self, flow: FiveTuple, octet: int | None) -> None:
        """Let packets of `flow` carry `octet`; None: nothing is known of it any more."""
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
        """Let packets to these prefixes, of the longest that holds their destination, carry these
        octets, and no others."""
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
