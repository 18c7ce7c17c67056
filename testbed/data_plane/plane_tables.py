"""The data plane's routes, written by the switches' daemons, each in its own process.

    tables = PlaneTables(libbpf.Attached(program_id))
    groups = tables.groups(switch)
    groups.set({Prefix(...): [ifindex, ifindex], ...})  # see groups.py

Several processes write the maps without locks, because each entry has one writer. A switch's
daemon writes that switch's entries of `routes` and `generations`, and its range of `groups`.
data_plane.py writes `switches` and `ports`.

A protocol returns SetRoute(prefix, hops); SwitchFib writes it to the kernel's
routes and here. A route has up to 64 hops, in the order in which D-mod-k and round robin count
them; a hop listed twice gets twice the share. A longer prefix overrides a shorter one. A route
without hops is left to the kernel, which answers "no route to host".
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from weft.daemons.core.actions import FiveTuple
from weft.testbed.data_plane.groups import Groups, by_switch
from weft.testbed.data_plane.plane_program import (
    CACHE_SLOTS,
    FLOW,
    FLOW_KEY,
    GENERATIONS,
    GROUP,
    LONG_QUEUE,
    PREFIX,
)
from weft.testbed.data_plane.port_programs import MapSource
from weft.testbed.linux import libbpf

FLOWS_IN_BATCH = 512
FLOW_KEY_PACKED = struct.Struct(FLOW_KEY.format.replace("=", ">"))
RING_BYTES = 1 << 14  # of a switch: 500 reports
ANY_PROTOCOL = 256  # as in data_plane/select_maps.h


class Noted(NamedTuple):
    """A flow's entry, as struct flow_entry; times are of the monotonic clock."""

    last_ns: int
    moved_ns: int
    queued_ns: int
    bytes_: int
    port: int


def to_destination(address: int) -> FiveTuple:
    """Return the key of the entry for all flows to one destination."""
    return FiveTuple(0, address, ANY_PROTOCOL, 0)


def is_destination(flow: FiveTuple) -> bool:
    """Return whether `flow` is the key of a destination."""
    return flow.protocol == ANY_PROTOCOL


class SwitchQueueState:
    """Pending and present state of one switch (LBSP, section 5)."""

    def __init__(self, pending: libbpf.Map, states: libbpf.Map, switch: int) -> None:
        self._pending, self._states, self._switch = pending, states, switch

    def pending_state(self) -> int:
        """Return the state that the queues called for at the last packet that went up."""
        (state,) = self._pending[self._switch,]
        return int(state)

    def enter(self, state: int) -> None:
        """Change to `state`, by which the program moves packets."""
        self._states[self._switch,] = (state,)


class SwitchFlows:
    """The table of flows of one switch (DAR).  The program adds flows and updates input ports."""

    def __init__(self, flows: libbpf.Map, switch: int) -> None:
        self._flows, self._switch = flows, switch

    def read(self) -> dict[FiveTuple, Noted]:
        """Return all flows, by key."""
        return {flow: noted for flow, noted in self.read_all().items() if not is_destination(flow)}

    def read_all(self) -> dict[FiveTuple, Noted]:
        """Return all entries, also those of destinations (see to_destination())."""
        return {
            FiveTuple(*key[1:]): Noted(*value[:-1])
            for key, value in self._flows.batch(FLOWS_IN_BATCH)
            if key[0] == self._switch
        }

    def place(self, flow: FiveTuple, ifindex: int, now_ns: int) -> None:
        """Set the output port of a flow; BpfError if the table is full."""
        before = self._flows.get((self._switch, *flow))
        *noted, sequence = before or (now_ns, 0, 0, 0, 0, 0)
        self._flows[self._switch, *flow] = (
            *Noted(*noted)._replace(port=ifindex, moved_ns=now_ns),
            sequence,
        )

    def forget(self, flow: FiveTuple) -> None:
        """Remove a flow."""
        with suppress(KeyError):
            del self._flows[self._switch, *flow]


class LongQueues:
    """Reports of one switch about queues beyond the threshold (DAR); its daemon alone reads."""

    def __init__(self, ring: int) -> None:
        self.ring = libbpf.RingBuffer(ring, LONG_QUEUE.format)

    def read(self) -> list[tuple[FiveTuple, int]]:
        """Return the flow of each report since the last read, and its port's interface index."""
        return [
            (FiveTuple(*FLOW_KEY_PACKED.unpack(key)[1:]), ifindex)
            for key, ifindex in self.ring.read()
        ]


class PlaneTables:
    """The routes of every switch, switches counted from 0."""

    def __init__(self, maps: MapSource) -> None:
        self._routes = maps.map("routes", PREFIX.format, "=I")
        self._groups = maps.map("groups", "=I", GROUP.format)
        self._generations = maps.map("generations", "=I", "=I")
        self._cache = maps.map("cache", "=I", "=Q")
        self._pending = maps.map("pending_states", "=I", "=I")
        self._states = maps.map("states", "=I", "=I")
        self._flows = maps.map("flows", FLOW_KEY_PACKED.format, FLOW.format)
        self._rings = maps.map("long_queues", "=I", "=I")
        self._switches = maps.entries("generations")
        self._room = maps.entries("groups") // self._switches

    def groups(self, switch: int) -> Groups:
        """Return the routes of one switch, as in the maps; the caller is their only writer."""
        return self.all([switch])[switch]

    def all(self, switches: Iterable[int]) -> dict[int, Groups]:
        """Return the routes of each of `switches`, after one read of the maps."""
        routes = by_switch(self._routes)
        groups = {}
        for switch in switches:
            room = range(switch * self._room, (switch + 1) * self._room)
            groups[switch] = Groups(
                self._routes,
                self._groups,
                switch=switch,
                room=room,
                void=partial(self._void, switch),
                settle=settle,
            )
            groups[switch].learn(routes.get(switch, ()))
        return groups

    def descriptors(self) -> list[int]:
        """Return the maps' descriptors, which a forked process must keep open to write them."""
        maps = (
            self._routes,
            self._groups,
            self._generations,
            self._cache,
            self._pending,
            self._states,
            self._flows,
        )
        return [written.fd for written in maps]

    def queue_state(self, switch: int) -> SwitchQueueState:
        """Return the states of one switch, which its daemon alone enters."""
        return SwitchQueueState(self._pending, self._states, switch)

    def flows(self, switch: int) -> SwitchFlows:
        """Return the flows of one switch, which its daemon and the program write."""
        return SwitchFlows(self._flows, switch)

    def long_queues(self, switch: int) -> LongQueues | None:
        """Return the reports of one switch about its queues; None if it makes none."""
        ring = self._rings.get((switch,))
        return LongQueues(*ring) if ring else None

    def add_rings(self, switches: Iterable[int]) -> None:
        """Give each of `switches` a ring for reports about its queues, unless it has one."""
        for switch in switches:
            if self._rings.get((switch,)) is None:
                ring = libbpf.new_ring(RING_BYTES)
                self._rings[switch,] = (ring,)
                os.close(ring)

    def all_flows(self) -> dict[int, dict[FiveTuple, Noted]]:
        """Return the flows of all switches that have any, by switch, after one read of the map."""
        flows: dict[int, dict[FiveTuple, Noted]] = {}
        for (switch, *flow), (*noted, _) in self._flows.batch(FLOWS_IN_BATCH):
            if not is_destination(FiveTuple(*flow)):
                flows.setdefault(switch, {})[FiveTuple(*flow)] = Noted(*noted)
        return flows

    def _void(self, switch: int) -> None:
        """Invalidate the program's cache of groups for a switch."""
        generation = (self._generations[switch,][0] + 1) % GENERATIONS
        if generation == 0:  # wrapped around: old entries of the cache would be valid again
            for slot in range(CACHE_SLOTS):
                self._cache[switch * CACHE_SLOTS + slot,] = (0,)
            generation = 1  # an empty slot has 0
        self._generations[switch,] = (generation,)


def settle() -> None:
    """Return when the program has finished with every packet that it was handling.

    The program runs in a read-side critical section of RCU.  To close a packet socket the kernel
    waits for all of those (packet_release() in net/packet/af_packet.c), for some 20 ms.
    """
    socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0).close()


def of_program(program: int) -> tuple[libbpf.Attached, PlaneTables]:
    """Return the maps of the program with this id, to be closed, and the routes in them.

    Raises:
        BpfError: there is no such program.
    """
    maps = libbpf.Attached(program)
    try:
        return maps, PlaneTables(maps)
    except BaseException:
        maps.close()
        raise
