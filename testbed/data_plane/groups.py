"""Routes of one switch: in the data plane's maps, and in the kernel's forwarding table.

The data plane forwards; the kernel answers what is left to it (traceroute, refusals), and forwards
under `ecmp`.  So both hold the same routes.  The maps come first, since they are what packets wait
for.

In the maps a prefix has a group of candidate ports, and prefixes with the same ports share one.
When a port fails, one write of a group changes all of its routes, and no packet meets a
half-written route (select_maps.h).

A packet may hold the number of a group while the group is rewritten or freed.  So a number is used
again only after the program has finished with all packets of that time (`settle`).  A group that a
prefix has just left is not rewritten for the others.  A group without ports keeps its old ports in
their slots; only its count is 0.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from weft.daemons.core.actions import Hop, SetRoute
from weft.testbed.data_plane.plane_program import CANDIDATES
from weft.testbed.linux import clock, netlink
from weft.testbed.linux.fib import KernelFib
from weft.testbed.linux.interface import NodeInterfaces
from weft.testbed.linux.netlink import NetlinkMessage
from weft.topologies.core.address import Prefix

JUST_S = 1.0  # longer than the program handles a packet
Ports = tuple[int, ...]


class MapEntries(Protocol):
    """A map in the kernel, or a dict."""

    def __getitem__(self, key: tuple[Any, ...], /) -> tuple[Any, ...]: ...
    def __setitem__(self, key: tuple[Any, ...], value: tuple[Any, ...], /) -> None: ...
    def __delitem__(self, key: tuple[Any, ...], /) -> None: ...
    def __iter__(self) -> Iterator[tuple[Any, ...]]: ...


class Groups:
    """The routes of switch number `switch`; ports are interface indexes.

    This object is the only writer of the switch's routes and of the groups numbered in `room`.
    void: called after prefixes got other groups, and before a freed number is used again.
    settle: returns when the program has finished with every packet that it is handling.
    now: returns the time in seconds.
    """

    def __init__(
        self,
        routes: MapEntries,
        groups: MapEntries,
        *,
        switch: int,
        room: range,
        void: Callable[[], None],
        settle: Callable[[], None],
        now: Callable[[], float] = clock.monotonic,
    ) -> None:
        self._routes, self._groups, self._void, self._settle = routes, groups, void, settle
        self._now = now
        self._switch = switch
        self._of: dict[Prefix, int] = {}
        self._users: dict[int, set[Prefix]] = defaultdict(set)
        self._ports: dict[int, Ports] = {}
        self._unused = list(reversed(room))
        self._moved = False  # prefixes have other groups since the last void()
        self._left: list[int] = []  # freed, but packets may still use them
        # by group in use: time at which a prefix last left it
        self._left_at_s: dict[int, float] = {}

    def learn(self, entries: Iterable[tuple[Prefix, int]]) -> None:
        """Take over prefixes and groups that are in the maps already (see by_switch())."""
        for prefix, group in entries:
            self._of[prefix] = group
            self._users[group].add(prefix)
        for group in self._users:
            n, *ports = self._groups[group,]
            self._ports[group] = tuple(ports[:n])
        free = [group for group in self._unused if group not in self._ports]
        # an earlier writer may have freed groups just now
        self._unused, self._left = ([], free) if self._ports else (free, [])
        self._left_at_s = dict.fromkeys(self._ports, self._now())

    def table(self) -> dict[Prefix, Ports]:
        """Return all routes, unreachable ones included."""
        return {prefix: self._ports[group] for prefix, group in self._of.items()}

    def set(self, changes: Mapping[Prefix, Sequence[int] | None]) -> None:
        """Forward each prefix by any of its ports; a port listed twice gets twice the share.

        With no port, packets are left to the kernel, also if a shorter prefix has a route.  None
        withdraws the route, and a shorter prefix applies.  A change that all prefixes of a group
        share is one write.

        Raises:
            ValueError: more than 64 ports.
            OSError: no room for another group.
        """
        routes = {
            prefix: None if ports is None else tuple(ports) for prefix, ports in changes.items()
        }
        for prefix, ports in routes.items():
            if ports is not None and len(ports) > CANDIDATES:
                raise ValueError(
                    f"{prefix}: a route has at most {CANDIDATES} candidate ports, got {len(ports)}"
                )
        self._rewrite(routes)
        try:
            for prefix, ports in routes.items():
                if ports is None:
                    self._withdraw(prefix)
                else:
                    self._lead(prefix, ports)
        finally:
            self._invalidate()

    def replace(self, table: Mapping[Prefix, Sequence[int]]) -> None:
        """Replace all routes by `table`, as set() does."""
        self.set({**dict.fromkeys(prefix for prefix in self._of if prefix not in table), **table})

    def _rewrite(self, changes: Mapping[Prefix, Ports | None]) -> None:
        """Write the groups all of whose prefixes change alike."""
        in_use = set(self._ports.values())
        just = self._now() - JUST_S
        for group in {self._of[prefix] for prefix in changes if prefix in self._of}:
            if self._left_at_s.get(group, just) > just:
                continue  # packets to the prefix that left would use the new ports
            new = {changes.get(prefix, self._ports[group]) for prefix in self._users[group]}
            ports = new.pop()
            if not new and ports is not None and ports not in in_use:
                self._write(group, ports)
                in_use.add(ports)

    def _lead(self, prefix: Prefix, ports: Ports) -> None:
        before = self._of.get(prefix)
        if before is not None and self._ports[before] == ports:
            return
        group = next((number for number, used in self._ports.items() if used == ports), None)
        if group is None:
            group = self._new()
            self._write(group, ports)
        self._routes[self._key(prefix)] = (group,)
        self._moved = True
        self._leave(prefix)
        self._of[prefix] = group
        self._users[group].add(prefix)

    def _new(self) -> int:
        """Return the number of a group that no packet uses; OSError if there is none."""
        if not self._unused and self._left:
            self._invalidate()
            self._settle()
            self._unused, self._left = self._left[::-1], []
            self._left_at_s.clear()
        if not self._unused:
            raise OSError("data plane: no room for another group of ports")
        return self._unused.pop()

    def _write(self, group: int, ports: Ports) -> None:
        places = ports or self._ports.get(group) or (0,)
        self._groups[group,] = (len(ports), *(places[i % len(places)] for i in range(CANDIDATES)))
        self._ports[group] = ports

    def _withdraw(self, prefix: Prefix) -> None:
        if prefix in self._of:
            del self._routes[self._key(prefix)]
            self._moved = True
            self._leave(prefix)

    def _invalidate(self) -> None:
        """Invalidate cached groups if prefixes have others."""
        if self._moved:
            self._moved = False
            self._void()

    def _leave(self, prefix: Prefix) -> None:
        group = self._of.pop(prefix, None)
        if group is None:
            return
        self._users[group].remove(prefix)
        self._left_at_s[group] = self._now()
        if not self._users[group]:
            del self._users[group], self._ports[group], self._left_at_s[group]
            self._left.append(group)

    def _key(self, prefix: Prefix) -> tuple[int, int, bytes]:
        return 32 + prefix.length, self._switch, prefix.network.to_bytes(4, "big")


def by_switch(routes: MapEntries) -> dict[int, list[tuple[Prefix, int]]]:
    """Return (prefix, group) of every route in the map, by switch."""
    entries: dict[int, list[tuple[Prefix, int]]] = defaultdict(list)
    for key in routes:
        length, switch, network = key
        (group,) = routes[key]
        entries[switch].append((Prefix(int.from_bytes(network, "big"), length - 32), group))
    return entries


class SwitchFib(KernelFib):
    """The routes of one switch's daemon, `groups` being its part of the data plane's maps."""

    def __init__(self, socket: netlink.Socket, interfaces: NodeInterfaces, groups: Groups) -> None:
        super().__init__(socket, interfaces)
        self._groups = groups

    def count(self) -> int:
        # The kernel drops routes with their devices, and the maps do not.
        return max(super().count(), len(self._groups.table()))

    def set(self, changes: Sequence[SetRoute]) -> None:
        self._groups.set({change.prefix: self._indexes(change.hops) for change in changes})
        super().set(changes)

    def reconcile(self) -> list[NetlinkMessage]:
        self._groups.replace({prefix: self._indexes(hops) for prefix, hops in self.desired.items()})
        return super().reconcile()

    def _indexes(self, hops: tuple[Hop, ...]) -> list[int]:
        return [self._interfaces.ports[hop.port].ifindex for hop in hops]
