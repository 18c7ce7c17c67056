"""Which prefix of which switch leads to which group of candidate ports, as the data plane's maps hold it.

A group is written once for all prefixes of a switch that share it.  So when a port dies, one write takes it from every
route that used it, and no packet meets a half-written route: select.bpf.c says why.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from topologies.address import Prefix

CANDIDATES = 64
GROUP = f"=I{CANDIDATES}I"  # struct group
PREFIX = "=II4s"  # struct prefix
Ports = tuple[int, ...]


class Entries(Protocol):
    """A map in the kernel, or a dict."""

    def __getitem__(self, key: tuple[Any, ...], /) -> tuple[Any, ...]: ...
    def __setitem__(self, key: tuple[Any, ...], value: tuple[Any, ...], /) -> None: ...
    def __delitem__(self, key: tuple[Any, ...], /) -> None: ...
    def __iter__(self) -> Iterator[tuple[Any, ...]]: ...


class Groups:
    """The routes of every switch, switches counted from 0, ports by interface index.

    void: called with a switch after the group that one of its prefixes leads to was changed for another one.
    room: how many groups there may be.
    """

    def __init__(self, routes: Entries, groups: Entries, *, void: Callable[[int], None], room: int) -> None:
        self._routes, self._groups, self._void = routes, groups, void
        self._of: dict[int, dict[Prefix, int]] = defaultdict(dict)  # switch -> prefix -> group
        self._users: dict[int, set[tuple[int, Prefix]]] = defaultdict(set)
        self._ports: dict[int, Ports] = {}
        self._unused = list(range(room))[::-1]
        self._read()

    def _read(self) -> None:
        """Learn what the maps hold already."""
        for key in self._routes:
            length, switch, network = key
            prefix, (group,) = Prefix(int.from_bytes(network, "big"), length - 32), self._routes[key]
            self._of[switch][prefix] = group
            self._users[group].add((switch, prefix))
        for group in self._users:
            n, *ports = self._groups[group,]
            self._ports[group] = tuple(ports[:n])
        self._unused = [group for group in self._unused if group not in self._ports]

    def table(self, switch: int) -> dict[Prefix, Ports]:
        """The routes of `switch`."""
        return {prefix: self._ports[group] for prefix, group in self._of[switch].items()}

    def set_route(self, switch: int, prefix: Prefix, ports: Sequence[int]) -> None:
        """Forward `prefix` through any of `ports`, a port named twice taking twice as much; none withdraws the route.

        Raises ValueError for more than 64 ports and OSError if there is no room for another group.
        """
        wanted = tuple(ports)
        if len(wanted) > CANDIDATES:
            raise ValueError(f"{prefix}: a route has at most {CANDIDATES} candidate ports, got {len(wanted)}")
        group = self._of[switch].get(prefix)
        if group is None and not wanted:
            return
        if group is not None and (self._ports[group] == wanted):
            return
        if not wanted:
            self._withdraw(switch, prefix)
            return
        same = next((g for g in set(self._of[switch].values()) if self._ports[g] == wanted), None)
        if same is None and group is not None and len(self._users[group]) == 1:
            self._write(group, wanted)
            return
        if same is None:
            if not self._unused:
                raise OSError("data plane: no room for another group of ports")
            same = self._unused.pop()
            self._write(same, wanted)
        self._routes[self._key(switch, prefix)] = (same,)
        self._void(switch)
        self._leave(switch, prefix)
        self._of[switch][prefix] = same
        self._users[same].add((switch, prefix))

    def set_table(self, switch: int, table: Mapping[Prefix, Sequence[int]]) -> None:
        """Let `table` be all the routes of `switch`; what changes alike for all prefixes of a group is one write."""
        taken = {self._ports[group] for group in self._of[switch].values()}
        for group in set(self._of[switch].values()):
            new = {tuple(table.get(prefix, ())) for _, prefix in self._users[group]}
            if len(new) == 1 and (ports := new.pop()) and ports not in taken:
                self._write(group, ports)
                taken.add(ports)
        for prefix in [prefix for prefix in self._of[switch] if not table.get(prefix)]:
            self._withdraw(switch, prefix)
        for prefix, wanted in table.items():
            self.set_route(switch, prefix, wanted)

    def drop_port(self, switch: int, port: int) -> int:
        """Take `port` from every route of `switch`; how many groups were written.

        A route that has no other port stays without any, and its packets go to the kernel.
        """
        hit = [group for group in set(self._of[switch].values()) if port in self._ports[group]]
        for group in hit:
            self._write(group, tuple(one for one in self._ports[group] if one != port))
        return len(hit)

    def _write(self, group: int, ports: Ports) -> None:
        filled = [ports[i % len(ports)] for i in range(CANDIDATES)] if ports else [0] * CANDIDATES
        self._groups[group,] = (len(ports), *filled)
        self._ports[group] = ports

    def _withdraw(self, switch: int, prefix: Prefix) -> None:
        del self._routes[self._key(switch, prefix)]
        self._void(switch)
        self._leave(switch, prefix)
        del self._of[switch][prefix]

    def _leave(self, switch: int, prefix: Prefix) -> None:
        group = self._of[switch].get(prefix)
        if group is None:
            return
        self._users[group].remove((switch, prefix))
        if not self._users[group]:
            del self._users[group], self._ports[group]
            self._unused.append(group)

    @staticmethod
    def _key(switch: int, prefix: Prefix) -> tuple[int, int, bytes]:
        return 32 + prefix.length, switch, prefix.network.to_bytes(4, "big")
