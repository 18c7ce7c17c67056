"""A node's routing daemon: what its state machine decides, done on Linux.

Routes stay in the kernel when their daemon ends, however it ends: the node goes on forwarding, and
its neighbours find out by missing hellos.  A daemon that starts where another ran sets its routes
over those it finds, and takes away what it did not set itself once it has converged, or after 5 s.

Actions are carried out in order, whatever their kinds.  Changes of one kind that follow one another
are one request to the kernel; it leaves before anything else is done, before anything is sent, and
at the end of a turn, unless there are so many that they take several (sliced_changes.py).

A change that the kernel refuses is logged and counted, and the daemon goes on: most likely a device
went down and the news of it is on its way.  A second later it reads the kernel's routes back and
sets right what differs.

A state machine that raises is at fault.  Where it raises over a packet or an event, in which others
have a hand, that is dropped, the traceback is logged and counted, and the daemon goes on, so that
nobody who finds such a packet ends daemons by it.  What it decides by itself, in start() and
tick(), and what it makes of a carrier that comes or goes, must not be left out: who knows what it
would do next.  There the daemon logs the traceback and ends, and the supervisor starts a new one,
later each time.
"""

from __future__ import annotations

import os
import socket
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

from weft.daemons.core.actions import Action, NeighbourNote, Note, Send, SetRoute
from weft.daemons.core.contract import StateMachine
from weft.daemons.core.events import DaemonEvent, LinkDegraded
from weft.daemons.core.node_config import NodeConfig
from weft.testbed.data_plane.capability import LinuxCapability, Wakes
from weft.testbed.data_plane.groups import Groups
from weft.testbed.data_plane.plane_tables import SwitchFlows, SwitchQueueState
from weft.testbed.data_plane.switch_fib import SwitchFib
from weft.testbed.data_plane.transit_rewrite import TransitRewriting
from weft.testbed.linux import clock, fib, netlink, netns
from weft.testbed.linux.libbpf import BpfError
from weft.testbed.linux.node_interfaces import NodeInterfaces
from weft.testbed.node_daemon import linux_capabilities
from weft.testbed.node_daemon.control_socket import Descriptor, Lock, Log, NeighbourFile, Requests
from weft.testbed.node_daemon.credentials import Credentials
from weft.testbed.node_daemon.link_news import LinkChanged, LinkNews
from weft.testbed.node_daemon.lost_packets import LostPackets
from weft.testbed.node_daemon.node_counters import NodeCounters
from weft.testbed.node_daemon.sliced_changes import Slices
from weft.testbed.node_daemon.sockets import PortSockets

SWEEP_S = 5.0
REPAIR_S = 1.0
ROUTES_LOGGED = 4  # of those that changed at once, by name
REKEY = "rekey"  # a request: read the run's keys again
DEGRADED = "degraded"  # begins a request: a port and 1, or 0 for sound again
PolledSocket = tuple[socket.socket, Callable[[float], None], Wakes]


class Daemon:
    """The daemon of one node, served by this process (see loop.py).

    deadline: call tick() no later than this, on the monotonic clock.
    received, garbage: packets so far, and those of them that were no messages.
    lost: packets that could not leave, that were refused, and that the state machine raised over.
    """

    def __init__(
        self,
        directory: Path,
        interfaces: NodeInterfaces,
        protocol: StateMachine,
        config: NodeConfig,
        cells: memoryview,
        credentials: Credentials,
        *,
        groups: Groups | None = None,
        queue_state: SwitchQueueState | None = None,
        flows: SwitchFlows | None = None,
        transit: TransitRewriting | None = None,
    ) -> None:
        """Open what the daemon needs in the node's namespace.

        cells: its row of the counters.
        credentials: those of the node.
        groups: of a switch with a data plane, its part of the maps.
        queue_state, flows, transit: see capabilities.Place.
        Raises ValueError if the node has a daemon already, or lacks what its scheme needs.
        """
        self.interfaces = interfaces
        self.protocol = protocol
        self.deadline = inf
        self.closed = False
        self._credentials = credentials
        self.received = self.garbage = self._sent = 0
        self._converged = self._news = False
        self._reconcile_at = inf
        self._carrier = dict.fromkeys(interfaces.ports, True)
        with ExitStack() as opened:
            self._lock = opened.enter_context(closing(Lock(directory, interfaces.name)))
            self._log = opened.enter_context(closing(Log(directory, interfaces.name)))
            neighbour_file = NeighbourFile(directory, interfaces.name)
            self._neighbour_file = opened.enter_context(closing(neighbour_file))
            # not before the row is this daemon's
            self._counters = NodeCounters(cells, config.interval_ms / 1000)
            with _inside(interfaces):
                self._open_inside(opened, config, queue_state, flows, transit)
            self.requests = opened.enter_context(closing(Requests(directory, interfaces.name)))
            self.fib = (
                SwitchFib(self._netlink, interfaces, groups)
                if groups
                else fib.KernelFib(self._netlink, interfaces)
            )
            self.inherited = self.fib.found()  # set by a daemon before this one
            # The state machine takes ports to be up until it is told otherwise.
            self._news_at_first = [told for told in self._link_news.now() if not told.up]
            self._opened = opened.pop_all()
        channels = [link.channel for link in self.links.values()]
        self.lost = LostPackets(self._counters, self._log.write, channels)
        self._slices = Slices({SetRoute: self._set_routes, **self._handlers()}, self._send)

    def _open_inside(
        self,
        opened: ExitStack,
        config: NodeConfig,
        queue_state: SwitchQueueState | None,
        flows: SwitchFlows | None,
        transit: TransitRewriting | None,
    ) -> None:
        """What has to be opened in the node's namespace."""
        interfaces = self.interfaces
        hears = dict(config.ports)
        self.links: dict[int, PortSockets] = {}
        for port, channel in zip(hears, self._credentials.channels(hears), strict=True):
            link = PortSockets(interfaces.ports[port].dev, interfaces.node, channel)
            self.links[port] = opened.enter_context(closing(link))
        self._netlink = opened.enter_context(closing(netlink.Socket()))
        self._link_news = opened.enter_context(closing(LinkNews(interfaces, self._netlink)))
        watched = {port: interfaces.ports[port].ifindex for port in hears}
        at = linux_capabilities.CapabilitySite(
            interfaces, self._netlink, watched, queue_state, flows, transit
        )
        self.capabilities: list[LinuxCapability] = []
        for need in config.needs:
            self.capabilities.append(
                opened.enter_context(closing(linux_capabilities.make(need, at)))
            )

    def _handlers(self) -> dict[type[Action], Callable[[Sequence[Any]], None]]:
        return {
            kind: partial(self._apply, one) for one in self.capabilities for kind in one.actions
        }

    def descriptors(self) -> list[int]:
        """All that it has open."""
        return [handle.fileno() for handle in self._handles()]

    def disown(self) -> None:
        """Another process, forked from this one, has it now: let go of everything, and take nothing
        away."""
        self.closed = True
        for handle in self._handles():
            os.close(handle.detach())
        self._opened.pop_all()

    def _handles(self) -> list[Descriptor | socket.socket]:
        heard = [each for link in self.links.values() for each in link.sockets()]
        theirs = [each for capability in self.capabilities for each in capability.sockets()]
        own = [self._link_news.socket, self._netlink.socket, self.requests.socket]
        return [self._lock, self._log, self._neighbour_file, *heard, *own, *theirs]

    def close(self, why: str) -> None:
        """Let go of everything; the routes stay."""
        self.closed = True
        self._log.write(f"ended: {why}; its routes stay")
        self._counters.set(pid=0, converged=0)
        self._opened.close()

    def forget_routes(self) -> None:
        """Take away what it set; for the end of a rehearsal, since routes outlive a daemon."""
        self.fib.wanted.clear()
        self.fib.reconcile()

    def start(self, now: float) -> None:
        """Let the state machine begin, in this process."""
        self._lock.sign()
        real_time = os.sched_getscheduler(0) == os.SCHED_FIFO
        self._counters.set(began_ns=int(now * 1e9), real_time=real_time)
        priority = (
            "real-time priority"
            if real_time
            else "no real-time priority: other processes may delay its hellos"
        )
        self._log.write(
            f"began: process {os.getpid()}, {priority}, {self.inherited} routes of a daemon "
            f"before it"
        )
        if self.inherited:
            self._reconcile_at = now + SWEEP_S
        self.perform(self.protocol.start(now))
        self._follow_links(self._news_at_first, now)
        self._news = True
        self.finish(now)
        self._counters.set(pid=os.getpid())

    def perform(self, actions: Iterable[Action]) -> None:
        """Do `actions`, in order; changes may wait for finish() while nothing is sent.  TypeError
        for an action that nobody here carries out."""
        waiting = self._slices.waiting
        for action in actions:
            if isinstance(action, Send) and not waiting:
                self._say(action)
            elif isinstance(action, Note):
                self._log.write(action.text)
                if isinstance(action, NeighbourNote):
                    self._neighbour_file.write(action)
                self._news = True
            else:
                self._slices.add(action)

    def _send(self, packets: Iterable[Send]) -> None:
        for action in packets:
            self._say(action)

    def _say(self, packet: Send) -> None:
        try:
            self.links[packet.port].say(packet.payload, packet.routine)
            self._sent += 1
        except OSError as error:
            self.lost.on_sending(error)

    def _set_routes(self, changes: Sequence[SetRoute]) -> None:
        self._news = True
        try:
            self.fib.set(changes)
        except netlink.NetlinkError as error:
            self._refused(error)
        shown = ", ".join(
            f"{change.prefix} "
            + (
                " ".join(f"via {self.interfaces.ports[hop.port].dev}" for hop in change.hops)
                or "unreachable"
            )
            for change in changes[:ROUTES_LOGGED]
        )
        more = len(changes) - ROUTES_LOGGED
        self._log.write(f"routes: {shown}" + (f" and {more} more" if more > 0 else ""))

    def _apply(self, capability: LinuxCapability, actions: Sequence[Action]) -> None:
        try:
            told = capability.apply(actions)
        except (netlink.NetlinkError, BpfError) as error:
            self._refused(error)
        else:
            if told:
                self._log.write(told)

    def _tell(self, events: Iterable[DaemonEvent], now: float) -> None:
        """Let the state machine know what happened; an event over which it raises is dropped."""
        for event in events:
            # It may be what a user's packet, or a forged error about one, has made of it.
            self.perform(self.lost.guarded(type(event).__name__, self.protocol.event, event, now))

    def sources(self) -> list[PolledSocket]:
        """What may become readable beside packets and requests, and what to do then."""
        found: list[PolledSocket] = [(self._link_news.socket, self._read_link_news, Wakes.AT_ONCE)]
        for capability in self.capabilities:
            found += [
                (each.socket, partial(self._read, each.read), each.wakes)
                for each in capability.sources()
            ]
        return found

    def _read(self, read: Callable[[], Iterable[DaemonEvent]], now: float) -> None:
        self._tell(read(), now)

    def _refused(self, error: netlink.NetlinkError | BpfError) -> None:
        self._counters.add("netlink_errors")
        self._reconcile_at = min(self._reconcile_at, clock.monotonic() + REPAIR_S)
        self._log.write(f"refused by the kernel: {error}")

    def finish(self, now: float) -> None:
        """The end of a turn: what waited is done, or a slice of it, and what changed is shown."""
        more = self._slices.end_turn()
        if self._news:
            self._news = False
            self._counters.show(self.protocol.adjacencies(), self.fib.installed, now)
            self._look_whether_converged(now)
        deadline = now if more else self.protocol.deadline
        self.deadline = deadline if deadline < self._reconcile_at else self._reconcile_at

    def _look_whether_converged(self, now: float) -> None:
        converged = not self._slices.waiting and self.protocol.converged()
        if converged != self._converged:
            self._converged = converged
            self._counters.set(converged=converged)
            self._log.write("converged" if converged else "not converged any more")
        if converged and self.inherited:
            self._reconcile_at = now

    def tick(self, now: float) -> None:
        """The deadline has passed."""
        late_s = now - self.deadline
        if self.protocol.deadline <= now or not self._slices.waiting:
            self.perform(self.protocol.tick(now))
        if self.capabilities:
            self._slices.go_on()
            if not self._slices.waiting:  # what they look at is as it has been decided
                for capability in self.capabilities:
                    self._tell(capability.look(now), now)
        self._counters.tick(late_s, self._sent, self.received)
        self.lost.look_for_refused()
        if now >= self._reconcile_at:
            self._reconcile()
        if not self._converged:
            self._look_whether_converged(now)
        self.finish(now)

    def _reconcile(self) -> None:
        self._reconcile_at, self.inherited = inf, 0
        self._slices.flush()
        try:
            changed = self.fib.reconcile()
            for capability in self.capabilities:
                capability.reconcile()
        except (netlink.NetlinkError, BpfError) as error:
            self._refused(error)
        else:
            if changed:
                self._log.write(
                    f"routes set right: {'; '.join(message.command for message in changed)}"
                )

    def _read_link_news(self, now: float) -> None:
        """Devices went up or down, or their carriers."""
        self._follow_links(self._link_news.read(), now)
        if self._link_news.lost:  # routes that went with a device may be among what was not told
            self._link_news.lost, self._reconcile_at = False, now

    def _follow_links(self, news: Iterable[LinkChanged], now: float) -> None:
        for port, is_set_up, up in news:
            if not is_set_up:
                self.fib.device_down(port)
            elif self.fib.device_up(port) and not self.inherited:
                # else what was found is looked at before long
                self._reconcile_at = now
            if up != self._carrier[port]:
                self._carrier[port] = up
                self._log.write(f"port {port}: carrier {'up' if up else 'down'}")
                self._news = True
                self.perform(self.protocol.link_changed(port, up, now))

    def read_request(self) -> bool:
        """Answer who asks for the status, or says that a link is degraded; False if the daemon is
        asked to end."""
        if not (read := self.requests.read()):
            return True
        asked, who = read
        if asked == "stop":
            self._slices.flush()
        told = self.status() if asked == "status" else {}
        if asked.startswith(DEGRADED):
            told = self._hear_of_degraded_link(asked)
        elif asked == REKEY:
            told = self._rekey()
        self.requests.answer(who, told)
        return asked != "stop"

    def _rekey(self) -> dict[str, str]:
        """The run's keys have changed."""
        try:
            keys = self._credentials.read_keys()
            for link in self.links.values():
                link.set_keys(keys)
        except (ValueError, OSError) as error:
            return {"error": f"{self.interfaces.name}: {error}"}
        self._log.write("the run's keys were read again")
        return {}

    def _hear_of_degraded_link(self, asked: str) -> dict[str, str]:
        now = clock.monotonic()
        try:
            _, port, degraded = asked.split()
            self.perform(self.protocol.event(LinkDegraded(int(port), degraded == "1"), now))
        except ValueError as error:  # no such port, or a scheme that does not care
            return {"error": f"{self.interfaces.name}: {error}"}
        self.finish(now)
        return {}

    def status(self) -> dict[str, Any]:
        """All that the daemon knows, JSON-able."""
        return {
            "node": self.interfaces.name,
            **self._counters.status(),
            "sent": self._sent,
            "received": self.received,
            "carrier": {self.interfaces.ports[port].dev: up for port, up in self._carrier.items()},
            "kernel_routes": {
                str(prefix): [self.interfaces.ports[hop.port].dev for hop in hops]
                for prefix, hops in self.fib.wanted.items()
            },
            **self.lost.status(),
            "protocol": {**self.protocol.status(), "garbage": self.garbage},
        }

    def count_death(self) -> None:
        """It ends, though nobody asked it to."""
        self._counters.add("deaths")

    def log_exception(self) -> None:
        """Log what is being handled."""
        self._log.write(traceback.format_exc().rstrip())


@contextmanager
def _inside(interfaces: NodeInterfaces) -> Iterator[None]:
    """Within the node's namespace."""
    fd = os.open(netns.NAMES / interfaces.namespace, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with netns.inside(fd):
            yield
    finally:
        os.close(fd)
