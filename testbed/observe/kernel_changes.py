"""What changes in a network's namespaces, as the kernel tells it: links fail and come back, rates
and routes change.

Nothing is asked as long as nothing changes: each namespace has a socket that hears of its devices,
filters, classes and routes.  Two things the kernel does not tell: which routes go with a device
that is set down, and what it had to say while a socket was full; then the namespace is read anew.
"""

from __future__ import annotations

import errno
import select
from collections import defaultdict
from dataclasses import dataclass

from weft.testbed.linux import clock, fib, netlink, netns, tc
from weft.testbed.linux.interface import IFF_UP, IFINFO, interfaces
from weft.testbed.network.network import RunningNetwork
from weft.testbed.observe.stream_event import StreamEvent
from weft.topologies.core.address import Prefix

GROUPS = 1 << 0 | 1 << 3 | 1 << 6  # of RTNLGRP_LINK, RTNLGRP_TC and RTNLGRP_IPV4_ROUTE
# messages' worth of receives from one namespace before the others have their turn
MOST_AT_ONCE = 200
UP, SILENT, DOWN = "up", "silent", "down"

KernelRoutes = dict[Prefix, tuple[int, ...]]  # the interface of each hop


@dataclass
class WatchedPort:
    """What is known of a port: whether it is set up, whether it drops what arrives, its rate if it
    has one.
    """

    node: int
    link: int
    up: bool = True
    dropping: bool = False
    rate_bps: int = 0


class KernelChanges:
    """Hears of the changes of `network` until it is closed.

    poll: an epoll descriptor that is readable when there is something to hear.
    routes: those of each node, as they are.
    """

    def __init__(self, network: RunningNetwork) -> None:
        self._network = network
        self._ears: dict[int, tuple[int, netlink.Socket]] = {}
        self.poll = select.epoll()
        self._ports: dict[int, WatchedPort] = {}
        self.routes: list[KernelRoutes] = []
        self._stale: set[int] = set()  # nodes that are to be read anew
        self._touched: dict[int, float] = {}  # links with news, and when it came
        # routes with news, by node
        self._changed: dict[int, dict[Prefix, float]] = defaultdict(dict)
        for node in range(network.topology.nodes):
            self._listen(node)
            ends = network.plan.ends[node].values()
            self._ports |= {end.ifindex: WatchedPort(node, end.link) for end in ends}
            self.routes.append({})
            self._read_anew(node)
        self._told = [self._state(link) for link in range(len(network.topology.links))]
        self._sent = [dict(routes) for routes in self.routes]

    def _listen(self, node: int) -> None:
        with netns.inside(self._network.netns(node)):
            ear = netlink.Socket(groups=GROUPS)
        ear.socket.setblocking(False)
        self._ears[ear.fileno()] = node, ear
        self.poll.register(ear.fileno(), select.EPOLLIN)

    def _read_anew(self, node: int) -> None:
        with self._network.at(node) as requests:
            held, dropping = interfaces(requests), tc.blackholes(requests)
            rates = tc.shapes(requests) if self._network.plan.link_specs else {}
            routes = fib.routes(requests)
        for index in (end.ifindex for end in self._network.plan.ends[node].values()):
            port, shape = self._ports[index], rates.get(index)
            port.up, port.dropping = index in held and held[index].up, index in dropping
            port.rate_bps = (shape.rate_bps or 0) if shape else 0
        self.routes[node] = {
            prefix: tuple(index for index, _ in hops) for prefix, hops in routes.items()
        }

    def _state(self, link: int) -> tuple[str, str, int]:
        """What became of a link.

        The one node that no longer hears the other, if the other still does; its rate.
        """
        ends = [self._ports[end.ifindex] for _, _, end in self._network.both_ends(link)]
        rate = min(port.rate_bps for port in ends)
        if not all(port.up for port in ends):
            return DOWN, "", rate
        deaf = [port.node for port in ends if port.dropping]
        only = self._network.plan.names[deaf[0]] if len(deaf) == 1 else ""
        return SILENT if deaf else UP, only, rate

    def links(self) -> list[tuple[str, str, int]]:
        """The state of every link: UP, SILENT or DOWN.

        The one node at which a silent failure drops packets, "" if both do; its rate in bit/s, 0 if
        it has none.
        """
        return [self._state(link) for link in range(len(self._told))]

    def hear(self, timeout_s: float) -> None:
        """Take in what the kernel has to say.

        Return after `timeout_s` at the latest if it is silent.
        """
        for fd, _ in self.poll.poll(max(0.0, timeout_s)):
            node, ear = self._ears[fd]
            now = clock.monotonic()
            try:
                for _ in range(MOST_AT_ONCE):
                    for kind, _, _, body in netlink.split(ear.receive()):
                        self._take(node, kind, body, now)
            except BlockingIOError:
                pass
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                self._stale.add(node)

    def _take(self, node: int, kind: int, body: bytes, now: float) -> None:
        """One message about the namespace of `node`."""
        if kind in (netlink.RTM_NEWROUTE, netlink.RTM_DELROUTE):
            self._take_route(node, kind, body, now)
        elif kind in (netlink.RTM_NEWLINK, netlink.RTM_DELLINK):
            _, _, index, flags, _ = IFINFO.unpack_from(body)
            if port := self._ports.get(index):
                was, port.up = port.up, kind == netlink.RTM_NEWLINK and bool(flags & IFF_UP)
                if was != port.up:
                    self._touched.setdefault(port.link, now)
                    self._stale.add(node)  # its routes may have gone with it
        elif kind in (netlink.RTM_NEWTFILTER, netlink.RTM_DELTFILTER):
            _, index, _, hook, info = tc.TCMSG.unpack_from(body)
            port = self._ports.get(index)
            if port and hook == tc.INGRESS_HOOK and info >> 16 == tc.BLACKHOLE_PRIORITY:
                port.dropping = kind == netlink.RTM_NEWTFILTER
                self._touched.setdefault(port.link, now)
        elif kind == netlink.RTM_NEWTCLASS:
            self._take_class(body, now)

    def _take_class(self, body: bytes, now: float) -> None:
        _, index, handle, parent, _ = tc.TCMSG.unpack_from(body)
        port = self._ports.get(index)
        if port and handle in (tc.LINK, tc.DATA) and parent in (tc.ROOT, tc.HTB):
            port.rate_bps = tc.rate_of_class(body)
            self._touched.setdefault(port.link, now)

    def _take_route(self, node: int, kind: int, body: bytes, now: float) -> None:
        if not (route := fib.parse_route(body)):
            return
        if kind == netlink.RTM_NEWROUTE:
            self.routes[node][route.prefix] = tuple(index for index, _ in route.hops)
        else:
            self.routes[node].pop(route.prefix, None)
        self._changed[node].setdefault(route.prefix, now)

    def events(self) -> list[StreamEvent]:
        """What has changed since the last call: `link` and `routes` events."""
        now = clock.monotonic()
        for node in self._stale:
            before = dict(self.routes[node])
            self._read_anew(node)
            for prefix in before.items() ^ self.routes[node].items():
                self._changed[node].setdefault(prefix[0], now)
            for end in self._network.plan.ends[node].values():
                self._touched.setdefault(end.link, now)
        self._stale.clear()
        found = [
            event for link, at in self._touched.items() for event in self._link_events(link, at)
        ]
        self._touched.clear()
        for node, prefixes in self._changed.items():
            found += self._route_events(node, prefixes)
        self._changed.clear()
        return found

    def _link_events(self, link: int, at: float) -> list[StreamEvent]:
        before, now = self._told[link], self._state(link)
        self._told[link] = now
        if before == now:
            return []
        state, deaf, rate = now
        event = {
            "event": "link",
            "at_s": at,
            "link": self._network.topology.link_name(link),
            "state": state,
        }
        return [event | ({"deaf": deaf} if deaf else {}) | ({"rate_bps": rate} if rate else {})]

    def _route_events(self, node: int, prefixes: dict[Prefix, float]) -> list[StreamEvent]:
        held, sent = self.routes[node], self._sent[node]
        news = {
            prefix: held.get(prefix) for prefix in prefixes if held.get(prefix) != sent.get(prefix)
        }
        if not news:
            return []
        for prefix, hops in news.items():
            if hops is None:
                del sent[prefix]
            else:
                sent[prefix] = hops
        changed = {
            str(prefix): None if hops is None else self.devices(node, hops)
            for prefix, hops in news.items()
        }
        first, name = min(prefixes[prefix] for prefix in news), self._network.plan.names[node]
        return [
            {
                "event": "routes",
                "at_s": first,
                "node": name,
                "count": self.count(node),
                "changed": changed,
            }
        ]

    def count(self, node: int) -> int:
        """Return the number of the node's routes that lead somewhere."""
        return sum(1 for hops in self.routes[node].values() if hops)

    def devices(self, node: int, hops: tuple[int, ...]) -> list[str]:
        """The names of the interfaces of `hops`."""
        names = {end.ifindex: end.dev for end in self._network.plan.ends[node].values()}
        return [names.get(index, str(index)) for index in hops]

    def close(self) -> None:
        self.poll.close()
        for _, ear in self._ears.values():
            ear.close()
        self._ears.clear()
