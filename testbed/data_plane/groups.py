"""Which prefix leads to which group of candidate ports at one switch, as the data plane's maps hold
it.

A group is written once for all prefixes that share it.  So when a port dies, one write takes it
from every route that used it, and no packet meets a half-written route: select_maps.h says why.

A packet may have looked up its group when the group is written or its number given back, and goes
on with what it finds there.  So a number is not used again before the program has ended for all
packets of that time (`settle`), a group that a prefix has just left is not rewritten for those that
stay, and a group that loses its last port keeps its old ports in their places, only their count is
0.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from weft.testbed.data_plane.plane_records import CANDIDATES
from weft.testbed.linux import clock
from weft.topologies.core.address import Prefix

JUST_S = 1.0  # a packet is not in the program's hands for so long
Ports = tuple[int, ...]


class MapEntries(Protocol):
    """A map in the kernel, or a dict."""

    def __getitem__(self, key: tuple[Any, ...], /) -> tuple[Any, ...]: ...
    def __setitem__(self, key: tuple[Any, ...], value: tuple[Any, ...], /) -> None: ...
    def __delitem__(self, key: tuple[Any, ...], /) -> None: ...
    def __iter__(self) -> Iterator[tuple[Any, ...]]: ...


class Groups:
    """The routes of the switch counted as number `switch`, ports by interface index.

    Nobody else writes its routes, nor the groups numbered as in `room`.
    void: called after the groups that prefixes lead to were changed for others, and before the
        number of a group that they have left is given to another.
    settle: returns when no packet is still on its way through the program that was when it was
        called.
    now: the time in seconds.
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
        self._moved = False  # whether prefixes lead elsewhere than void() knows
        # given back, but packets may still be on their way to their ports
        self._left: list[int] = []
        # groups that are in use: when a prefix left them last
        self._left_at_s: dict[int, float] = {}

    def learn(self, held: Iterable[tuple[Prefix, int]]) -> None:
        """Take over `held`, prefixes and their groups that the maps hold already: see
        by_switch()."""
        for prefix, group in held:
            self._of[prefix] = group
            self._users[group].add(prefix)
        for group in self._users:
            n, *ports = self._groups[group,]
            self._ports[group] = tuple(ports[:n])
        free = [group for group in self._unused if group not in self._ports]
        # If somebody has written here before, prefixes may have left these groups, and given back
        # numbers, just now.
        self._unused, self._left = ([], free) if self._ports else (free, [])
        self._left_at_s = dict.fromkeys(self._ports, self._now())

    def table(self) -> dict[Prefix, Ports]:
        """The routes, unreachable ones included."""
        return {prefix: self._ports[group] for prefix, group in self._of.items()}

    def set(self, changes: Mapping[Prefix, Sequence[int] | None]) -> None:
        """Forward each prefix through any of its ports, a port named twice taking twice as much.

        No port: packets are left to the kernel, also where a shorter prefix leads somewhere.  None:
        the route is withdrawn, and a shorter prefix holds.  What changes alike for all prefixes of
        a group is one write.
        Raises ValueError for more than 64 ports and OSError if there is no room for another group.
        """
        wanted = {
            prefix: None if ports is None else tuple(ports) for prefix, ports in changes.items()
        }
        for prefix, ports in wanted.items():
            if ports is not None and len(ports) > CANDIDATES:
                raise ValueError(
                    f"{prefix}: a route has at most {CANDIDATES} candidate ports, got {len(ports)}"
                )
        self._rewrite(wanted)
        try:
            for prefix, ports in wanted.items():
                if ports is None:
                    self._withdraw(prefix)
                else:
                    self._lead(prefix, ports)
        finally:
            self._tell()

    def replace(self, table: Mapping[Prefix, Sequence[int]]) -> None:
        """Let `table` be all the routes; as set() does it."""
        self.set({**dict.fromkeys(prefix for prefix in self._of if prefix not in table), **table})

    def drop_port(self, port: int) -> int:
        """Take `port` from every route; how many groups were written.

        A route that has no other port stays without any, and its packets go to the kernel.
        """
        hit = [group for group, ports in self._ports.items() if port in ports]
        for group in hit:
            self._write(group, tuple(one for one in self._ports[group] if one != port))
        return len(hit)

    def _rewrite(self, changes: Mapping[Prefix, Ports | None]) -> None:
        """Write the groups all of whose prefixes change alike."""
        taken = set(self._ports.values())
        just = self._now() - JUST_S
        for group in {self._of[prefix] for prefix in changes if prefix in self._of}:
            if self._left_at_s.get(group, just) > just:
                continue  # packets to the prefix that left would take ports that it has never had
            new = {changes.get(prefix, self._ports[group]) for prefix in self._users[group]}
            ports = new.pop()
            if not new and ports is not None and ports not in taken:
                self._write(group, ports)
                taken.add(ports)

    def _lead(self, prefix: Prefix, ports: Ports) -> None:
        held = self._of.get(prefix)
        if held is not None and self._ports[held] == ports:
            return
        group = next((one for one, its in self._ports.items() if its == ports), None)
        if group is None:
            group = self._new()
            self._write(group, ports)
        self._routes[self._key(prefix)] = (group,)
        self._moved = True
        self._leave(prefix)
        self._of[prefix] = group
        self._users[group].add(prefix)

    def _new(self) -> int:
        """A number that no packet knows; OSError if there is none."""
        if not self._unused and self._left:
            self._tell()
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

    def _tell(self) -> None:
        """What packets have found is void."""
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
    """What the map of routes holds: (prefix, group) of every route, by switch."""
    found: dict[int, list[tuple[Prefix, int]]] = defaultdict(list)
    for key in routes:
        length, switch, network = key
        (group,) = routes[key]
        found[switch].append((Prefix(int.from_bytes(network, "big"), length - 32), group))
    return found
