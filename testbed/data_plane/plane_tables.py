"""The data plane's routes, written by daemons: one for each switch, each in a process of its own.

    tables = PlaneTables(bpf.Attached(program_id))             # the maps of the program that is
    attached at the switches groups = tables.groups(switch)                        # the part of
    them that is this switch's groups.set({Prefix(...): [ifindex, ifindex], ...})    # see groups.py

The maps are written by several processes at once without locks, because each entry has one writer.
Of `routes` and `generations`, a switch's entries are its daemon's; of `groups`, each switch has a
range of numbers that is its alone. `switches` and `ports` say by which scheme a switch chooses
among a group's ports and where its ports lead; they are data_plane.py's, so that `weft scheme` in
one process and daemons in others do not get in each other's way.

A daemon need not know any of this.  Its protocol returns SetRoute(prefix, hops); SwitchFib
(switch_fib.py) writes that to the kernel's routes and here.  What a protocol can say thereby:

* a group: the hops of a route, up to 64, in the order in which D-mod-k and round robin count them;
  a hop that is named twice takes twice as much.  Prefixes with the same hops share one entry, and a
  change to all of them is one write.
* a range: a longer prefix, down to a /32, has a group of its own and leaves the others alone.
* a refusal: a route without hops goes to the kernel, which answers "no route to host".
"""

from __future__ import annotations

import socket
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from typing import NamedTuple, Protocol

from weft.daemons.core.actions import FiveTuple
from weft.testbed.data_plane.groups import Groups, by_switch
from weft.testbed.data_plane.plane_records import (
    CACHE_SLOTS,
    FLOW,
    FLOW_KEY,
    GENERATIONS,
    GROUP,
    PREFIX,
)
from weft.testbed.linux import libbpf


class MapSource(Protocol):
    """Where maps come from: the object that was just loaded, or a program that runs."""

    def map(self, name: str, key: str, value: str) -> libbpf.Map: ...
    def entries(self, name: str) -> int: ...


FLOWS_IN_BATCH = 512
ANY_PROTOCOL = 256  # as in data_plane/select_maps.h


class Noted(NamedTuple):
    """What the program notes of a flow, as in struct flow_entry; times are of the monotonic
    clock."""

    last_ns: int
    moved_ns: int
    queued_ns: int
    bytes_: int
    port: int


def to_destination(address: int) -> FiveTuple:
    """What stands in the table for all flows to one destination, where those go together."""
    return FiveTuple(0, address, ANY_PROTOCOL, 0)


def is_destination(flow: FiveTuple) -> bool:
    """Whether it is one of those."""
    return flow.protocol == ANY_PROTOCOL


class SwitchQueueState:
    """What LBSP's section 5 needs of one switch: the state that its queues call for, and the one
    that it is in."""

    def __init__(self, pending: libbpf.Map, states: libbpf.Map, switch: int) -> None:
        self._pending, self._states, self._switch = pending, states, switch

    def wanted(self) -> int:
        """As the program found when it looked last: at the last packet that went up."""
        (state,) = self._pending[self._switch,]
        return int(state)

    def enter(self, state: int) -> None:
        """Let the program move packets as `state` says."""
        self._states[self._switch,] = (state,)


class SwitchFlows:
    """The flows in the table of one switch (DAR).  The program writes it, too: it puts flows in,
    and of those that come in by another port it changes that."""

    def __init__(self, flows: libbpf.Map, switch: int) -> None:
        self._flows, self._switch = flows, switch

    def read(self) -> dict[FiveTuple, Noted]:
        """All of them."""
        return {flow: noted for flow, noted in self.read_all().items() if not is_destination(flow)}

    def read_all(self) -> dict[FiveTuple, Noted]:
        """All of them, and the ports of destinations to which flows go together: see
        to_destination()."""
        return {
            FiveTuple(*key[1:]): Noted(*value[:-1])
            for key, value in self._flows.batch(FLOWS_IN_BATCH)
            if key[0] == self._switch
        }

    def place(self, flow: FiveTuple, ifindex: int, now_ns: int) -> None:
        """Let a flow leave by this port; BpfError if the table is full."""
        before = self._flows.get((self._switch, *flow))
        *noted, sequence = before or (now_ns, 0, 0, 0, 0, 0)
        self._flows[self._switch, *flow] = (
            *Noted(*noted)._replace(port=ifindex, moved_ns=now_ns),
            sequence,
        )

    def forget(self, flow: FiveTuple) -> None:
        """Take a flow out."""
        with suppress(KeyError):
            del self._flows[self._switch, *flow]


class PlaneTables:
    """The routes of every switch, switches counted from 0."""

    def __init__(self, maps: MapSource) -> None:
        self._routes, self._groups = (
            maps.map("routes", PREFIX.format, "=I"),
            maps.map("groups", "=I", GROUP.format),
        )
        self._generations, self._cache = (
            maps.map("generations", "=I", "=I"),
            maps.map("cache", "=I", "=Q"),
        )
        self._pending = maps.map("pending_states", "=I", "=I")
        self._states = maps.map("states", "=I", "=I")
        self._flows = maps.map("flows", FLOW_KEY.format.replace("=", ">"), FLOW.format)
        self._switches = maps.entries("generations")
        self._room = maps.entries("groups") // self._switches

    def groups(self, switch: int) -> Groups:
        """The routes of one switch, as the maps hold them now.  Whoever asks for it is their only
        writer."""
        return self.all([switch])[switch]

    def all(self, switches: Iterable[int]) -> dict[int, Groups]:
        """The routes of each of `switches`, the maps being read once."""
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
        """Of the maps: what a process that is forked must keep open to write them."""
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
        """What tells how crowded one switch is.  Its daemon is the only one to enter states."""
        return SwitchQueueState(self._pending, self._states, switch)

    def flows(self, switch: int) -> SwitchFlows:
        """The flows in the table of one switch.  Its daemon is the only one, beside the program, to
        write there."""
        return SwitchFlows(self._flows, switch)

    def all_flows(self) -> dict[int, dict[FiveTuple, Noted]]:
        """The flows in the tables of all switches that have any, by switch: all tables are one map,
        read once."""
        flows: dict[int, dict[FiveTuple, Noted]] = {}
        for (switch, *flow), (*noted, _) in self._flows.batch(FLOWS_IN_BATCH):
            if not is_destination(FiveTuple(*flow)):
                flows.setdefault(switch, {})[FiveTuple(*flow)] = Noted(*noted)
        return flows

    def _void(self, switch: int) -> None:
        """Let the program forget which groups it found for the destinations of a switch."""
        generation = (self._generations[switch,][0] + 1) % GENERATIONS
        if generation == 0:  # it has come round: what was kept long ago would be taken for new
            for slot in range(CACHE_SLOTS):
                self._cache[switch * CACHE_SLOTS + slot,] = (0,)
            generation = 1  # not 0, which is what an empty slot has
        self._generations[switch,] = (generation,)


def settle() -> None:
    """Return when the program has ended for every packet that it had in hand.

    It runs within a read-side critical section of RCU, and to close a packet socket the kernel
    waits for all of those (packet_release() in net/packet/af_packet.c): some 20 ms.
    """
    socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0).close()


def of_program(program: int) -> tuple[libbpf.Attached, PlaneTables]:
    """The maps of the program with this id, to be closed, and the routes in them; BpfError if it is
    not there."""
    maps = libbpf.Attached(program)
    try:
        return maps, PlaneTables(maps)
    except BaseException:
        maps.close()
        raise
