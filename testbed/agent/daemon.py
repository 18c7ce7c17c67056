"""A node's routing daemon: what its protocol decides, done on Linux.

Routes stay in the kernel when their daemon ends, however it ends: the node goes on forwarding, and its neighbours find
out by missing hellos.  A daemon that starts where another ran sets its routes over those it finds, and takes away what
it did not set itself once it has converged, or after 5 s.

A change that the kernel refuses is logged and counted, and the daemon goes on: most likely a device went down and the
news of it is on its way.  A second later it reads the kernel's routes back and sets right what differs.

A protocol that raises is at fault; its daemon logs the traceback and ends.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import struct
import traceback
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any, cast

from daemons.core import schemes
from daemons.core.contract import (
    Action,
    CrowdProtocol,
    Note,
    Readdress,
    RoutingProtocol,
    Send,
    SetFlow,
    SetRoute,
    SetState,
    Steer,
    SteeringProtocol,
)
from daemons.core.schemes import View
from daemons.routing import proxy_addresses
from testbed.agent.control_socket import Lock, Log, Requests
from testbed.agent.counters import COLUMNS, LATENESS_US
from testbed.agent.transport import ROUTINE, URGENT, Link
from testbed.forwarding.degraded_link_detector import Meter
from testbed.forwarding.flow_rewrite import FlowTable
from testbed.forwarding.groups import Groups
from testbed.forwarding.plane_tables import Crowding
from testbed.forwarding.prefix_rewrite import Readdressing
from testbed.forwarding.source_rewrite import OwnPackets, Steering
from testbed.forwarding.switch_fib import SwitchFib
from testbed.forwarding.transit_rewrite import Relay
from testbed.linux import clock, fib, netlink, netns
from testbed.linux.libbpf import BpfError
from testbed.linux.node_interfaces import Site

TICKS, LATENESS, SENT, RECEIVED, WORST_LATE_US, LATE_TICKS = (
    COLUMNS[name] for name in ("ticks", "lateness", "sent", "received", "worst_late_us", "late_ticks")
)
SWEEP_S = 5.0
REPAIR_S = 1.0
LINK_GROUP = 1
IFINFO = struct.Struct("=BxHiII")
ALL_LINKS = IFINFO.pack(0, 0, 0, 0, 0)
IFF_UP, IFF_LOWER_UP = 0x1, 0x10000
ROUTES_LOGGED = 4  # of those that changed at once, by name
DEGRADED = "degraded"  # begins a request: a port and 1, or 0 for sound again
Source = tuple[socket.socket, Callable[[float], None], int]  # the last: as what it is registered to wake the loop
AT_ONCE, ONCE_A_TICK, NEVER = select.EPOLLIN, select.EPOLLIN | select.EPOLLONESHOT, 0


@dataclass(frozen=True)
class Duties:
    """What a node's scheme asks of its daemon.

    hears: the ports at which the protocol speaks and listens.
    interval_s: a tick that is later than this counts as late.
    ways: of a SteeringProtocol, as daemons/routing/proxy_addresses.py counts them; 0 of any other.
    flows: whether it is a FlowProtocol.
    octets, ttl: what addresses may begin with, if they say what packets carry, and hops that these may make.
    rate_bps: of a switch's links, to find those that are slower; 0: nobody looks.
    """

    hears: Collection[int]
    interval_s: float
    ways: int = 0
    flows: bool = False
    octets: Sequence[int] = ()
    ttl: int = 0
    rate_bps: int = 0

    @classmethod
    def of(cls, view: View) -> Duties:
        """Those of the scheme of `view`, with its parameters."""
        scheme, options, network = schemes.SCHEMES[view.scheme], view.options, view.network
        return cls(
            hears=dict(view.ports),
            interval_s=options["hello_ms"] / 1000,
            ways=proxy_addresses.ways(network) if network and scheme.steers else 0,
            flows=scheme.flows,
            octets=schemes.first_octets(network, options) if network and scheme.readdresses else (),
            ttl=options.get("ttl", 0),
            rate_bps=1000 * options.get("rate_kbps", 0),
        )


class Daemon:
    """The daemon of one node, served by this process (see loop.py).

    deadline: call tick() no later than this, on the monotonic clock.
    """

    def __init__(
        self,
        directory: Path,
        site: Site,
        protocol: RoutingProtocol,
        duties: Duties,
        cells: memoryview,
        groups: Groups | None = None,
        crowding: Crowding | None = None,
        relay: Relay | None = None,
    ) -> None:
        """Open what the daemon needs in the node's namespace.

        cells: its row of the board.
        groups: of a switch with a data plane, its part of the maps.
        crowding: of a switch whose protocol is a CrowdProtocol, what tells how crowded it is.
        relay: of a server with `octets` or `flows`, what readdresses the packets that it passes on.
        Raises ValueError if the node has a daemon already.
        """
        self.site = site
        self.protocol = protocol
        self.deadline = inf
        self.closed = False
        self.received = 0
        self._cells = cells
        cells[:] = memoryview(bytes(cells.nbytes)).cast("Q")
        self._interval_s = duties.interval_s
        self._sent = self._losses = self._worst_late_us = 0
        self._converged = False
        self._dropped: Counter[str] = Counter()
        self._pending: list[SetRoute] = []
        self._steers: list[Steer | SetFlow] = []
        self._crowding = crowding
        watched = {port: site.ports[port].ifindex for port in duties.hears}
        self._meter = Meter(watched, duties.rate_bps) if duties.rate_bps else None
        self._readdresses: list[Readdress] = []
        self._news = False
        self._reconcile_at = inf
        self._port_of = {interface.ifindex: port for port, interface in site.ports.items()}
        self._carrier = dict.fromkeys(site.ports, True)
        with ExitStack() as opened:
            self._lock = opened.enter_context(closing(Lock(directory, site.name)))
            self._log = opened.enter_context(closing(Log(directory, site.name)))
            with _inside(site):
                self._open_inside(opened, duties, relay)
            self.requests = opened.enter_context(closing(Requests(directory, site.name)))
            self.fib = SwitchFib(self._netlink, site, groups) if groups else fib.Fib(self._netlink, site)
            self.inherited = len(fib.routes(self._netlink))  # set by a daemon before this one
            links = self._netlink.dump(netlink.RTM_GETLINK, ALL_LINKS)
            # The protocol takes ports to be up until it is told otherwise.
            self._news_at_first = [body for body in links if not IFF_LOWER_UP & IFINFO.unpack_from(body)[3]]
            self._opened = opened.pop_all()

    def _open_inside(self, opened: ExitStack, duties: Duties, relay: Relay | None) -> None:
        """What has to be opened in the node's namespace."""
        site = self.site
        self.links = {
            port: opened.enter_context(closing(Link(site.ports[port].dev, site.node))) for port in duties.hears
        }
        self.link_events = opened.enter_context(closing(netlink.Socket(groups=LINK_GROUP)))
        self._netlink = opened.enter_context(closing(netlink.Socket()))
        self.steering: OwnPackets | None = None
        if duties.ways:
            self.steering = Steering(site.address, duties.ways, self._netlink, self._port_of)
        elif duties.flows:
            assert relay
            self.steering = FlowTable(site.address, self._netlink, self._port_of, relay)
        if self.steering:
            opened.enter_context(closing(self.steering))
        self.readdressing: Readdressing | None = None
        if duties.octets:
            assert relay
            self.readdressing = Readdressing(site.address, duties.octets, duties.ttl, self._netlink, relay)
            opened.enter_context(closing(self.readdressing))

    @classmethod
    def of(
        cls,
        directory: Path,
        site: Site,
        view: View,
        cells: memoryview,
        groups: Groups | None = None,
        crowding: Crowding | None = None,
        relay: Relay | None = None,
    ) -> Daemon:
        """The daemon that routes by `view`; ValueError if the node has one already."""
        protocol = schemes.protocol(view, clock.wall_ns())
        asks = crowding if "states" in view.options else None  # also while they are off: `weft scheme` may turn them on
        return cls(directory, site, protocol, Duties.of(view), cells, groups, asks, relay)

    def descriptors(self) -> list[int]:
        """All that it has open."""
        return [handle.fileno() for handle in self._handles()]

    def disown(self) -> None:
        """Another process, forked from this one, has it now: let go of everything, and take nothing away."""
        self.closed = True
        for handle in self._handles():
            os.close(handle.detach())
        self._opened.pop_all()

    def _handles(self) -> list[Lock | Log | socket.socket]:
        heard = [ear for link in self.links.values() for ear in link.sockets()]
        steering = [each for part in (self.steering, self.readdressing) if part for each in part.sockets()]
        own = [self.link_events.socket, self._netlink.socket, self.requests.socket]
        return [self._lock, self._log, *heard, *own, *steering]

    def close(self, why: str) -> None:
        """Let go of everything; the routes stay."""
        self.closed = True
        self._log.write(f"ended: {why}; its routes stay")
        self._set(pid=0, converged=0)
        self._opened.close()

    def forget_routes(self) -> None:
        """Take away what it set; for the end of a rehearsal, since routes outlive a daemon."""
        self.fib.wanted.clear()
        self.fib.reconcile()

    def start(self, now: float) -> None:
        """Let the protocol begin, in this process."""
        self._lock.sign()
        real_time = os.sched_getscheduler(0) == os.SCHED_FIFO
        self._set(began_ns=int(now * 1e9), real_time=real_time)
        priority = "real-time priority" if real_time else "no real-time priority: other processes may delay its hellos"
        self._log.write(f"began: process {os.getpid()}, {priority}, {self.inherited} routes of a daemon before it")
        if self.inherited:
            self._reconcile_at = now + SWEEP_S
        self.perform(self.protocol.start(now))
        for body in self._news_at_first:
            self._link_told(netlink.RTM_NEWLINK, body, now)
        self._news = True
        self.finish(now)
        self._set(pid=os.getpid())

    def perform(self, actions: Sequence[Action]) -> None:
        """Do `actions`, in order; routes may wait for finish() while nothing is said."""
        for action in actions:
            if isinstance(action, Send):
                if self._pending:
                    self._set_routes()
                try:
                    self.links[action.port].sendto(action.payload, ROUTINE if action.routine else URGENT)
                    self._sent += 1
                except OSError as error:
                    self._drop(error)
            elif isinstance(action, SetRoute):
                self._pending.append(action)
            elif isinstance(action, Steer | SetFlow):
                self._steers.append(action)
            elif isinstance(action, Readdress):
                self._readdresses.append(action)
            elif isinstance(action, SetState):
                assert self._crowding
                self._crowding.enter(action.state)
            elif isinstance(action, Note):
                self._log.write(action.text)
                self._news = True

    def _drop(self, error: OSError) -> None:
        """A packet that cannot leave is lost, as it might be on the wire; most often its device is down, which is no
        error and told separately."""
        why = errno.errorcode.get(error.errno or 0, str(error))
        if why not in self._dropped:
            self._log.write(f"packets dropped on sending: {error.strerror}")
        self._dropped[why] += 1
        self._set(dropped=self._dropped.total())

    def _set_routes(self) -> None:
        changes, self._pending = self._pending, []
        self._news = True
        try:
            self.fib.set(changes)
        except netlink.NetlinkError as error:
            self._refused(error)
        shown = ", ".join(
            f"{change.prefix} "
            + (" ".join(f"via {self.site.ports[hop.port].dev}" for hop in change.hops) or "to nobody")
            for change in changes[:ROUTES_LOGGED]
        )
        more = len(changes) - ROUTES_LOGGED
        self._log.write(f"routes: {shown}" + (f" and {more} more" if more > 0 else ""))

    def _steer(self) -> None:
        assert self.steering
        changes, self._steers = self._steers, []
        try:
            self.steering.set(changes)
        except (netlink.NetlinkError, BpfError) as error:
            self._refused(error)

    def _readdress(self) -> None:
        assert self.readdressing
        changes, self._readdresses = self._readdresses, []
        try:
            self.readdressing.set(changes)
        except (netlink.NetlinkError, BpfError) as error:
            self._refused(error)
        count = sum(change.first_octet is not None for change in changes)
        self._log.write(f"packets readdressed: {count} prefixes more, {len(changes) - count} fewer")

    def read_use(self, now: float) -> None:
        """Packets of this server's own have left."""
        protocol = cast(SteeringProtocol, self.protocol)
        assert self.steering
        for destination in self.steering.in_use():
            self.perform(protocol.in_use(destination, now))

    def read_errors(self, now: float) -> None:
        """Packets of this server's own were refused on their way; they may have been the first ones."""
        self.read_use(now)
        protocol = cast(SteeringProtocol, self.protocol)
        assert self.steering
        for destination in self.steering.refused():
            self.perform(protocol.refused(destination, now))

    def sources(self) -> list[Source]:
        """What may become readable beside packets and requests, and what to do then.

        That a destination is in use can wait; and refusals, which may be as many as packets, must not keep the
        daemon from everything else.
        """
        found: list[Source] = [(self.link_events.socket, self.read_link_events, AT_ONCE)]
        if self.steering:
            found.append((self.steering.news, self.read_use, NEVER))
            found.append((self.steering.errors, self.read_errors, ONCE_A_TICK))
        return found

    def _refused(self, error: netlink.NetlinkError | BpfError) -> None:
        self._cells[COLUMNS["netlink_errors"]] += 1
        self._reconcile_at = min(self._reconcile_at, clock.monotonic() + REPAIR_S)
        self._log.write(f"refused by the kernel: {error}")

    def finish(self, now: float) -> None:
        """The end of a turn: what waited is done, what changed is shown."""
        if self._pending:
            self._set_routes()
        if self._steers:
            self._steer()
        if self._readdresses:
            self._readdress()
        if self._news:
            self._show(now)
        deadline = self.protocol.deadline
        self.deadline = deadline if deadline < self._reconcile_at else self._reconcile_at

    def _show(self, now: float) -> None:
        """Put on the board what changes seldom."""
        self._news = False
        promised, up, lost = self.protocol.adjacencies()
        self._set(
            neighbours_expected=promised,
            neighbours_up=up,
            routes=self.fib.installed,
            losses=lost,
            changed_ns=int(now * 1e9),
        )
        if lost != self._losses:
            self._losses = lost
            self._set(lost_ns=int(now * 1e9))
        self._look_whether_converged(now)

    def _look_whether_converged(self, now: float) -> None:
        converged = self.protocol.converged()
        if converged != self._converged:
            self._converged = converged
            self._set(converged=converged)
            self._log.write("converged" if converged else "not converged any more")
        if converged and self.inherited:
            self._reconcile_at = now

    def _set(self, **values: int) -> None:
        for name, value in values.items():
            self._cells[COLUMNS[name]] = value

    def tick(self, now: float) -> None:
        """The deadline has passed."""
        cells, late_s = self._cells, now - self.deadline
        late_us = int(late_s * 1e6)
        cells[TICKS] += 1
        cells[LATENESS + bisect_left(LATENESS_US, late_us)] += 1
        if late_us > self._worst_late_us:
            cells[WORST_LATE_US] = self._worst_late_us = late_us
        if late_s > self._interval_s:
            cells[LATE_TICKS] += 1
        self.perform(self.protocol.tick(now))
        if self._crowding:
            self.perform(cast(CrowdProtocol, self.protocol).crowded(self._crowding.wanted(), now))
        if self._meter:
            for port, degraded in self._meter.look(self._netlink, now).items():
                self.perform(cast(CrowdProtocol, self.protocol).degrade(port, degraded, now))
        if self.steering and (loads := self.steering.loads(now)):
            cast(SteeringProtocol, self.protocol).measured(loads)
        cells[SENT] = self._sent
        cells[RECEIVED] = self.received
        if now >= self._reconcile_at:
            self._reconcile(now)
        if not self._converged:
            self._look_whether_converged(now)
        self.finish(now)

    def _reconcile(self, now: float) -> None:
        self._reconcile_at, self.inherited = inf, 0
        try:
            changed = self.fib.reconcile()
            if self.readdressing:
                self.readdressing.set(())
        except (netlink.NetlinkError, BpfError) as error:
            self._refused(error)
        else:
            if changed:
                self._log.write(f"routes set right: {'; '.join(message.command for message in changed)}")

    def read_link_events(self, now: float) -> None:
        """Devices went up or down, or their carriers."""
        try:
            data = self.link_events.socket.recv(1 << 16, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError as error:
            if error.errno != errno.ENOBUFS:
                raise
            # Some were lost.  What they would have told is read back, routes that went with a device among it.
            for body in self._netlink.dump(netlink.RTM_GETLINK, ALL_LINKS):
                self._link_told(netlink.RTM_NEWLINK, body, now)
            self._reconcile_at = now
        else:
            for kind, _, _, body in netlink.split(data):
                if kind in (netlink.RTM_NEWLINK, netlink.RTM_DELLINK):
                    self._link_told(kind, body, now)

    def _link_told(self, kind: int, body: bytes, now: float) -> None:
        _, _, ifindex, flags, _ = IFINFO.unpack_from(body)
        port = self._port_of.get(ifindex)
        if port is None:
            return
        present = kind == netlink.RTM_NEWLINK and flags & IFF_UP
        if not present:
            self.fib.device_down(port)
        up = bool(present and flags & IFF_LOWER_UP)
        if up != self._carrier[port]:
            self._carrier[port] = up
            self._log.write(f"port {port}: carrier {'up' if up else 'down'}")
            self._news = True
            self.perform(self.protocol.link_changed(port, up, now))

    def read_request(self) -> bool:
        """Answer who asks for the status; False if the daemon is asked to end."""
        if not (read := self.requests.read()):
            return True
        asked, who = read
        told = self.status() if asked == "status" else {}
        if asked.startswith(DEGRADED):
            _, port, degraded = asked.split()
            now = clock.monotonic()
            self.perform(cast(CrowdProtocol, self.protocol).degrade(int(port), degraded == "1", now))
            self.finish(now)
        self.requests.answer(who, told)
        return asked != "stop"

    def status(self) -> dict[str, Any]:
        """All that the daemon knows, JSON-able."""
        count = {name: int(self._cells[at]) for name, at in COLUMNS.items() if name != "lateness"}
        lateness = [int(ticks) for ticks in self._cells[LATENESS:]]
        return {
            "node": self.site.name,
            **count,
            "converged": bool(count["converged"]),
            "real_time": bool(count["real_time"]),
            "sent": self._sent,
            "received": self.received,
            "dropped": dict(self._dropped),
            "lateness": {
                f"<={us}us" if us else f">{LATENESS_US[-1]}us": ticks
                for us, ticks in zip((*LATENESS_US, 0), lateness, strict=True)
            },
            "carrier": {self.site.ports[port].dev: up for port, up in self._carrier.items()},
            "kernel_routes": {
                str(prefix): [self.site.ports[hop.port].dev for hop in hops] for prefix, hops in self.fib.wanted.items()
            },
            "protocol": self.protocol.status(),
        }

    def log_exception(self) -> None:
        """Log what is being handled."""
        self._log.write(traceback.format_exc().rstrip())


@contextmanager
def _inside(site: Site) -> Iterator[None]:
    """Within the node's namespace."""
    fd = os.open(netns.NAMES / site.namespace, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with netns.inside(fd):
            yield
    finally:
        os.close(fd)
