"""Changes of a run as events (docs/watching.md): of links, rates and routes, and of daemons.

The kernel's notifications say what changes in a network's namespaces, and nothing is polled.  Each
namespace has a socket that receives notifications about its devices, filters, classes and routes.
A namespace is read again where notifications are missing: after a device is set down, which removes
routes silently, and after an overflow of the socket.
"""

from __future__ import annotations

import errno
import json
import os
import select
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from weft.daemons.core.node_config import routers
from weft.testbed.linux import clock, fib, netlink, netns, tc, tc_filters
from weft.testbed.linux.interface import IFF_UP, IFINFO, interfaces
from weft.testbed.network.network import RunningNetwork
from weft.testbed.node_daemon.counters import COLUMNS, FILE, WORDS, DaemonCounters
from weft.testbed.node_daemon.daemon_files import NEIGHBOUR_FILE
from weft.testbed.plan.plane_selection import has_daemons
from weft.topologies.core.address import Prefix

StreamEvent = dict[str, Any]


GROUPS = 1 << 0 | 1 << 3 | 1 << 6  # of RTNLGRP_LINK, RTNLGRP_TC and RTNLGRP_IPV4_ROUTE
# receives from one namespace before the others have their turn
MOST_AT_ONCE = 200
UP, SILENT, DOWN = "up", "silent", "down"

KernelRoutes = dict[Prefix, tuple[int, ...]]  # interface index of each hop


class LinkState(NamedTuple):
    """State of a link.

    state: UP, SILENT or DOWN.
    deaf: the one node at which a silent failure drops packets; "" if both ends drop them.
    rate_bps: 0 if the link has none.
    """

    state: str
    deaf: str
    rate_bps: int


@dataclass
class WatchedPort:
    """State of a port.

    up: administrative state.
    dropping: a silent failure drops arriving packets.
    """

    node: int
    link: int
    up: bool = True
    dropping: bool = False
    rate_bps: int = 0  # 0: none


def link_event(name: str, state: LinkState, at_s: float) -> StreamEvent:
    """Return the `link` event of a link; without `deaf` and `rate_bps` if there is none."""
    known = {key: value for key, value in state._asdict().items() if value}
    return {"event": "link", "at_s": at_s, "link": name, **known}


class KernelChanges:
    """Changes of `network`, until closed.

    poll: an epoll descriptor, readable when a notification waits.
    routes: present routes of each node.
    """

    def __init__(self, network: RunningNetwork) -> None:
        self._network = network
        self._sockets: dict[int, tuple[int, netlink.Socket]] = {}  # node, socket; by descriptor
        self.poll = select.epoll()
        self._ports: dict[int, WatchedPort] = {}
        self.routes: list[KernelRoutes] = []
        self._stale: set[int] = set()  # nodes to read again
        self._changed_links: dict[int, float] = {}  # time of the first change
        self._changed_routes: dict[int, dict[Prefix, float]] = defaultdict(dict)
        for node in range(network.topology.nodes):
            self._listen(node)
            ends = network.plan.ends[node].values()
            self._ports |= {end.ifindex: WatchedPort(node, end.link) for end in ends}
            self.routes.append({})
            self._read_again(node)
        self._reported_links = self.links()
        self._reported_routes = [dict(routes) for routes in self.routes]

    def _listen(self, node: int) -> None:
        with netns.inside(self._network.netns(node)):
            notifications = netlink.Socket(groups=GROUPS)
        notifications.socket.setblocking(False)
        self._sockets[notifications.fileno()] = node, notifications
        self.poll.register(notifications.fileno(), select.EPOLLIN)

    def _read_again(self, node: int) -> None:
        with self._network.at(node) as requests:
            devices = interfaces(requests)
            dropping = tc_filters.blackholes(requests)
            shapes = tc.shapes(requests) if self._network.plan.link_specs else {}
            routes = fib.routes(requests)
        for end in self._network.plan.ends[node].values():
            index = end.ifindex
            port = self._ports[index]
            shape = shapes.get(index)
            port.up = index in devices and devices[index].up
            port.dropping = index in dropping
            port.rate_bps = (shape and shape.rate_bps) or 0
        self.routes[node] = {
            prefix: tuple(index for index, _ in hops) for prefix, hops in routes.items()
        }

    def _state(self, link: int) -> LinkState:
        ends = [self._ports[end.ifindex] for _, _, end in self._network.both_ends(link)]
        rate_bps = min(port.rate_bps for port in ends)
        if not all(port.up for port in ends):
            return LinkState(DOWN, "", rate_bps)
        deaf = [port.node for port in ends if port.dropping]
        only = self._network.plan.names[deaf[0]] if len(deaf) == 1 else ""
        return LinkState(SILENT if deaf else UP, only, rate_bps)

    def links(self) -> list[LinkState]:
        """Return the state of every link."""
        return [self._state(link) for link in range(len(self._network.topology.links))]

    def hear(self, timeout_s: float) -> None:
        """Read waiting notifications; wait at most `timeout_s` for the first."""
        for fd, _ in self.poll.poll(max(0.0, timeout_s)):
            node, notifications = self._sockets[fd]
            now = clock.monotonic()
            try:
                for _ in range(MOST_AT_ONCE):
                    for kind, _, _, body in netlink.split(notifications.receive()):
                        self._take(node, kind, body, now)
            except BlockingIOError:
                pass
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                self._stale.add(node)

    def _take(self, node: int, kind: int, body: bytes, now: float) -> None:
        """Handle one notification of the namespace of `node`."""
        if kind in (netlink.RTM_NEWROUTE, netlink.RTM_DELROUTE):
            self._take_route(node, kind, body, now)
        elif kind in (netlink.RTM_NEWLINK, netlink.RTM_DELLINK):
            _, _, index, flags, _ = IFINFO.unpack_from(body)
            port = self._ports.get(index)
            up = kind == netlink.RTM_NEWLINK and bool(flags & IFF_UP)
            if port and port.up != up:
                port.up = up
                self._changed_links.setdefault(port.link, now)
                self._stale.add(node)  # routes of the device may have gone with it
        elif kind in (netlink.RTM_NEWTFILTER, netlink.RTM_DELTFILTER):
            _, index, _, hook, info = tc.TCMSG.unpack_from(body)
            port = self._ports.get(index)
            if (
                port
                and hook == tc_filters.INGRESS_HOOK
                and info >> 16 == tc_filters.BLACKHOLE_PRIORITY
            ):
                port.dropping = kind == netlink.RTM_NEWTFILTER
                self._changed_links.setdefault(port.link, now)
        elif kind in (netlink.RTM_NEWTCLASS, netlink.RTM_NEWQDISC):
            self._take_rate(kind, body, now)

    def _take_rate(self, kind: int, body: bytes, now: float) -> None:
        _, index, handle, parent, _ = tc.TCMSG.unpack_from(body)
        port = self._ports.get(index)
        if not port:
            return
        if kind == netlink.RTM_NEWQDISC:
            rate_bps = tc.rate_of_exact_link(body)
        else:
            is_port = handle in (tc.LINK, tc.DATA) and parent in (tc.ROOT, tc.HTB)
            rate_bps = tc.rate_of_class(body) if is_port else None
        if rate_bps is not None:
            port.rate_bps = rate_bps
            self._changed_links.setdefault(port.link, now)

    def _take_route(self, node: int, kind: int, body: bytes, now: float) -> None:
        if not (route := fib.parse_route(body)):
            return
        if kind == netlink.RTM_NEWROUTE:
            self.routes[node][route.prefix] = tuple(index for index, _ in route.hops)
        else:
            self.routes[node].pop(route.prefix, None)
        self._changed_routes[node].setdefault(route.prefix, now)

    def events(self) -> list[StreamEvent]:
        """Return the `link` and `routes` events since the last call."""
        now = clock.monotonic()
        for node in self._stale:
            before = self.routes[node]
            self._read_again(node)
            for prefix, _ in before.items() ^ self.routes[node].items():
                self._changed_routes[node].setdefault(prefix, now)
            for end in self._network.plan.ends[node].values():
                self._changed_links.setdefault(end.link, now)
        self._stale.clear()
        events: list[StreamEvent] = []
        for link, at_s in self._changed_links.items():
            events += self._link_events(link, at_s)
        self._changed_links.clear()
        for node, changes in self._changed_routes.items():
            events += self._route_events(node, changes)
        self._changed_routes.clear()
        return events

    def _link_events(self, link: int, at_s: float) -> list[StreamEvent]:
        state = self._state(link)
        if self._reported_links[link] == state:
            return []
        self._reported_links[link] = state
        return [link_event(self._network.topology.link_name(link), state, at_s)]

    def _route_events(self, node: int, changed_s: dict[Prefix, float]) -> list[StreamEvent]:
        """Return one event with the changed routes of `node`; `changed_s`: when, by prefix."""
        routes = self.routes[node]
        reported = self._reported_routes[node]
        changed = [prefix for prefix in changed_s if routes.get(prefix) != reported.get(prefix)]
        if not changed:
            return []
        self._reported_routes[node] = dict(routes)
        hops = {str(prefix): self._devices(node, routes.get(prefix)) for prefix in changed}
        return [
            {
                "event": "routes",
                "at_s": min(changed_s[prefix] for prefix in changed),
                "node": self._network.plan.names[node],
                "count": self.count(node),
                "changed": hops,
            }
        ]

    def count(self, node: int) -> int:
        """Return the number of the node's routes that lead somewhere."""
        return sum(1 for hops in self.routes[node].values() if hops)

    def _devices(self, node: int, hops: tuple[int, ...] | None) -> list[str] | None:
        """Return the names of the interfaces of `hops`; None without a route."""
        if hops is None:
            return None
        names = {end.ifindex: end.dev for end in self._network.plan.ends[node].values()}
        return [names.get(index, str(index)) for index in hops]

    def close(self) -> None:
        self.poll.close()
        for _, notifications in self._sockets.values():
            notifications.close()
        self._sockets.clear()


# key in the event -> column of the counters
REPORTED_COLUMNS = {
    "pid": "pid",
    "neighbours": "neighbours_up",
    "of": "neighbours_expected",
    "routes": "routes",
    "converged": "converged",
    "losses": "losses",
    "deaths": "deaths",
    "restarts": "restarts",
    "refused": "refused",
    "packets_failed": "packets_failed",
}
SCAN_INTERVAL_S = 0.2
MOST_BYTES = 1 << 15  # of one log in one scan
MOST_LINES = 200  # of all logs in one scan
MONOTONIC_COLUMN = 1  # of a log line


class DaemonRows:
    """Report daemons whose counters changed."""

    def __init__(self, network: RunningNetwork) -> None:
        scheme = network.run.journal["scheme"]
        self._nodes = list(routers(network.topology)) if has_daemons(scheme) else []
        self._names = network.plan.names
        self._counters = DaemonCounters(network.run.directory / FILE) if self._nodes else None
        self._columns = np.array([COLUMNS[name] for name in REPORTED_COLUMNS.values()])
        self._rows = np.zeros((len(self._nodes), len(REPORTED_COLUMNS)), dtype=np.int64) - 1

    def events(self) -> list[StreamEvent]:
        """Return one `daemons` event with the rows that changed since the last call, or nothing.

        The first call reports all rows.
        """
        if self._counters is None:
            return []
        # a copy: a view would keep the file mapped
        words = np.array(self._counters.words(), dtype=np.int64).reshape(-1, WORDS)
        rows = words[self._nodes][:, self._columns]
        changed = np.flatnonzero((rows != self._rows).any(axis=1)).tolist()
        if not changed:
            return []
        self._rows = rows
        daemons = {self._names[self._nodes[i]]: _row(rows[i].tolist()) for i in changed}
        return [{"event": "daemons", "at_s": clock.monotonic(), "daemons": daemons}]

    def close(self) -> None:
        if self._counters:
            self._counters.close()


def _row(values: list[int]) -> dict[str, Any]:
    row: dict[str, Any] = dict(zip(REPORTED_COLUMNS, values, strict=True))
    return row | {"pid": row["pid"] or None, "converged": bool(row["converged"])}


class DaemonLogs:
    """Report lines that daemons add to the files in `directory` after construction.

    These are log lines and changes of neighbours.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._next_s = 0.0
        # bytes of each file that were read
        self._offsets = dict(self._sizes())

    def events(self) -> list[StreamEvent]:
        """Return a `neighbour` event for each change, then `log` events in order of time.

        At most MOST_LINES lines are returned; an event with their number replaces the others.
        """
        now = clock.monotonic()
        if now < self._next_s:
            return []
        self._next_s = now + SCAN_INTERVAL_S
        changes: list[StreamEvent] = []
        lines: list[StreamEvent] = []
        for path, size in self._sizes():
            if path.name == NEIGHBOUR_FILE:
                changes += neighbour_events(self._new_lines(path, size, size))
            else:
                lines += log_events(path.stem, self._new_lines(path, size, MOST_BYTES), now)
        lines.sort(key=lambda event: float(event["at_s"]))
        return changes + _without_flood(lines)

    def _sizes(self) -> list[tuple[Path, int]]:
        """Return path and size in bytes of each log and of the file of neighbours."""
        with suppress(FileNotFoundError), os.scandir(self._directory) as entries:
            return [
                (Path(entry.path), entry.stat().st_size)
                for entry in entries
                if entry.name.endswith(".log") or entry.name == NEIGHBOUR_FILE
            ]
        return []

    def _new_lines(self, path: Path, size: int, most: int) -> list[str]:
        """Return the complete new lines among the last `most` bytes of the file."""
        start = max(self._offsets.get(path, 0), size - most)
        if start >= size:
            return []
        with path.open("rb") as file:
            file.seek(start)
            data = file.read(size - start)
        complete = data[: data.rfind(b"\n") + 1]
        self._offsets[path] = start + len(complete)
        return complete.decode(errors="replace").splitlines()


def _without_flood(lines: list[StreamEvent]) -> list[StreamEvent]:
    skipped = len(lines) - MOST_LINES
    if skipped <= 0:
        return lines
    lines = lines[skipped:]
    text = f"{skipped} lines left out"
    return [{"event": "log", "at_s": lines[0]["at_s"], "node": "", "text": text}, *lines]


def neighbour_events(lines: list[str]) -> list[StreamEvent]:
    """Return the `neighbour` events that daemons wrote as JSON."""
    events: list[StreamEvent] = []
    for line in lines:
        with suppress(ValueError):  # a full disk cuts lines
            events.append({"event": "neighbour", **json.loads(line)})
    return events


def log_events(node: str, lines: list[str], now: float) -> list[StreamEvent]:
    """Return a `log` event for each line; a line of a traceback has the time of the line before."""
    events: list[StreamEvent] = []
    at_s = now
    for text in lines:
        columns = text.split(" ", MONOTONIC_COLUMN + 1)
        with suppress(IndexError, ValueError):
            at_s = float(columns[MONOTONIC_COLUMN])
            text = columns[MONOTONIC_COLUMN + 1]
        events.append({"event": "log", "at_s": at_s, "node": node, "text": text})
    return events
