"""A node's routing daemon: it performs the actions of a state machine on Linux.

Routes stay in the kernel when their daemon ends: the node goes on forwarding, and its neighbours
notice missing hellos.  A daemon that inherits routes removes those that it did not set itself once
it has converged, or after SWEEP_S.

Actions are performed in order.  Consecutive changes of one kind are one request to the kernel,
which leaves before anything is sent, and at the end of a turn; Slices spreads many changes over
several turns.  A change that the kernel refuses is logged and counted, and REPAIR_S
later the daemon reads the kernel's routes back and repairs differences.

An exception while handling a packet or an event drops it: it is logged and counted.  A malformed
packet must not stop a daemon.  An exception in start(), tick() or link_changed() ends the daemon,
because its state may be inconsistent; the supervisor starts a new one.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

from weft.daemons.core import registry
from weft.daemons.core.actions import Action, NeighbourNote, Note, Performer, Send, SetRoute
from weft.daemons.core.contract import DaemonEvent, LinkDegraded
from weft.daemons.core.node_config import NodeConfig
from weft.testbed.data_plane.capabilities import LinuxCapability, OpenDescriptor, Wakes
from weft.testbed.data_plane.groups import SwitchFib
from weft.testbed.linux import clock, fib, netlink, netns
from weft.testbed.linux.interface import NodeInterfaces
from weft.testbed.linux.libbpf import BpfError
from weft.testbed.node_daemon import linux_capabilities
from weft.testbed.node_daemon.counters import LostPackets, NodeCounters
from weft.testbed.node_daemon.daemon_files import Lock, Log, NeighbourFile, Requests
from weft.testbed.node_daemon.linux_capabilities import NodeMaps
from weft.testbed.node_daemon.sealed_channel import Credentials
from weft.testbed.node_daemon.sockets import LinkChanged, LinkNews, PortSockets

SLICE = 64  # actions in a turn: a millisecond or two


class Slices(Performer):
    """Performs actions in order, at most SLICE in each turn.

    Changes wait for the end of the turn, or for a packet that follows them; packets wait for the
    changes before them.  Routine packets overtake waiting changes, so that neighbours do not
    declare a daemon dead that sets many routes.
    """

    def __init__(
        self,
        handlers: Mapping[type[Action], Callable[[Sequence[Any]], None]],
        send: Callable[[Sequence[Send]], None],
    ) -> None:
        super().__init__({Send: send, **handlers})
        self._send = send
        self._left = SLICE  # in this turn

    def add(self, action: Action) -> None:
        """Perform `action`, now or later.

        Raises:
            TypeError: the action has no handler.
        """
        if isinstance(action, Send):
            if self.waiting:
                self.go_on()
            if not self.waiting or action.routine:
                self._send((action,))
                return
        super().add(action)

    def go_on(self) -> None:
        """Perform as many waiting actions as this turn allows."""
        self._left -= self.carry_out(self._left)

    def end_turn(self) -> bool:
        """Perform waiting actions and start another turn; return True if actions are left."""
        if self.waiting:
            self.go_on()
        self._left = SLICE
        return bool(self.waiting)


SWEEP_S = 5.0
REPAIR_S = 1.0
ROUTES_LOGGED = 4  # of a set of changes, by name
REKEY = "rekey"  # request: read the run's keys again
DEGRADED = "degraded"  # request: followed by a port and 1, or 0 for healthy again
PolledSocket = tuple[OpenDescriptor, Callable[[float], None], Wakes]


class Daemon:
    """The daemon of one node, served by a Loop.

    deadline: time of the next tick(), on the monotonic clock.
    received, garbage: packets so far, and malformed ones among them.
    lost: packets that could not be sent, were refused, or raised an exception.
    """

    deadline = inf
    closed = False
    received = 0
    garbage = 0

    def __init__(
        self,
        directory: Path,
        interfaces: NodeInterfaces,
        config: NodeConfig,
        cells: memoryview,
        credentials: Credentials,
        maps: NodeMaps,
    ) -> None:
        """Open the sockets and files of the daemon, in the node's namespace.

        Args:
            directory: of the run.
            interfaces: of the node.
            config: of the node.
            cells: the node's row of the counters.
            credentials: of the node.
            maps: the node's parts of the maps of the programs at its ports.

        Raises:
            ValueError: the node has a daemon already, or lacks what its scheme needs.
        """
        self.interfaces = interfaces
        self.protocol = registry.machine(config, credentials.row.next_incarnation())
        self._credentials = credentials
        self._sent = 0
        self._converged = False
        self._news = False
        self._reconcile_s = inf
        self._carrier = dict.fromkeys(interfaces.ports, True)
        with ExitStack() as opened:
            self._open_files(opened, directory)
            # after the lock: until then the row may be another daemon's
            self._counters = NodeCounters(cells, config.interval_ms / 1000)
            with _inside(interfaces):
                self._open_inside(opened, config, maps)
            self.requests = opened.enter_context(closing(Requests(directory, interfaces.name)))
            self._open_fib(maps)
            self._opened = opened.pop_all()
        channels = [link.channel for link in self.links.values()]
        self.lost = LostPackets(self._counters, self._log.write, channels)
        self._slices = Slices({SetRoute: self._set_routes, **self._handlers()}, self._send)

    def _open_files(self, opened: ExitStack, directory: Path) -> None:
        name = self.interfaces.name
        self._lock = opened.enter_context(closing(Lock(directory, name)))
        self._log = opened.enter_context(closing(Log(directory, name)))
        self._neighbour_file = opened.enter_context(closing(NeighbourFile(directory, name)))

    def _open_inside(self, opened: ExitStack, config: NodeConfig, maps: NodeMaps) -> None:
        """Open what belongs to the node's namespace, in which the calling thread is."""
        interfaces = self.interfaces
        ports = dict(config.ports)
        self.links: dict[int, PortSockets] = {}
        for port, channel in zip(ports, self._credentials.channels(ports), strict=True):
            link = PortSockets(interfaces.ports[port].dev, interfaces.node, channel)
            self.links[port] = opened.enter_context(closing(link))
        self._netlink = opened.enter_context(closing(netlink.Socket()))
        self._link_news = opened.enter_context(closing(LinkNews(interfaces, self._netlink)))
        watched = {port: interfaces.ports[port].ifindex for port in ports}
        site = linux_capabilities.CapabilitySite(interfaces, self._netlink, watched, maps)
        self.capabilities: list[LinuxCapability] = []
        for need in config.needs:
            capability = linux_capabilities.make(need, site)
            self.capabilities.append(opened.enter_context(closing(capability)))

    def _open_fib(self, maps: NodeMaps) -> None:
        """Read the routes and links that the kernel has now."""
        self.fib = (
            SwitchFib(self._netlink, self.interfaces, maps.groups)
            if maps.groups
            else fib.KernelFib(self._netlink, self.interfaces)
        )
        self.inherited = self.fib.count()  # routes of an earlier daemon
        # state machines assume at first that all ports are up
        self._down_at_start = [change for change in self._link_news.now() if not change.up]

    def _handlers(self) -> dict[type[Action], Callable[[Sequence[Any]], None]]:
        return {
            kind: partial(self._apply, capability)
            for capability in self.capabilities
            for kind in capability.actions
        }

    def descriptors(self) -> list[int]:
        """Return all open descriptors."""
        return [handle.fileno() for handle in self._handles()]

    def disown(self) -> None:
        """Close the descriptors, because a forked process runs the daemon; change nothing else."""
        self.closed = True
        for handle in self._handles():
            os.close(handle.detach())
        self._opened.pop_all()

    def _handles(self) -> list[OpenDescriptor]:
        sockets: list[OpenDescriptor] = [
            self._link_news.socket,
            self._netlink.socket,
            self.requests.socket,
        ]
        for link in self.links.values():
            sockets += link.sockets()
        for capability in self.capabilities:
            sockets += capability.sockets()
        return [self._lock, self._log, self._neighbour_file, *sockets]

    def close(self, why: str) -> None:
        """Log `why` and close everything; the routes stay."""
        self.closed = True
        self._log.write(f"ended: {why}; its routes stay")
        self._counters.set(pid=0, converged=0)
        self._opened.close()

    def forget_routes(self) -> None:
        """Remove the routes that it set, at the end of a rehearsal."""
        self.fib.desired.clear()
        self.fib.reconcile()

    def start(self, now: float) -> None:
        """Start the state machine, in the process that will run it."""
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
            self._reconcile_s = now + SWEEP_S
        self.perform(self.protocol.start(now))
        self._follow_links(self._down_at_start, now)
        self._news = True
        self.finish(now)
        self._counters.set(pid=os.getpid())

    def perform(self, actions: Iterable[Action]) -> None:
        """Perform `actions` in order; changes may wait for finish() while nothing is sent.

        Raises:
            TypeError: an action has no handler.
        """
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
            self.links[packet.port].say(packet.payload, packet.routine, queued=packet.queued)
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
            log_line = capability.apply(actions)
        except (netlink.NetlinkError, BpfError) as error:
            self._refused(error)
        else:
            if log_line:
                self._log.write(log_line)

    def _tell(self, events: Iterable[DaemonEvent], now: float) -> None:
        """Pass `events` to the state machine; drop those that raise an exception."""
        for event in events:
            # an event may come from a user's packet, or from a forged ICMP error
            self.perform(self.lost.guarded(type(event).__name__, self.protocol.event, event, now))

    def sources(self) -> list[PolledSocket]:
        """Return the sockets beside those for packets and requests, with their handlers."""
        polled: list[PolledSocket] = [(self._link_news.socket, self._read_link_news, Wakes.AT_ONCE)]
        for capability in self.capabilities:
            polled += [
                (source.socket, partial(self._read, source.read), source.wakes)
                for source in capability.sources()
            ]
        return polled

    def _read(self, read: Callable[[], Iterable[DaemonEvent]], now: float) -> None:
        self._tell(read(), now)

    def _refused(self, error: netlink.NetlinkError | BpfError) -> None:
        self._counters.add("netlink_errors")
        self._reconcile_s = min(self._reconcile_s, clock.monotonic() + REPAIR_S)
        self._log.write(f"refused by the kernel: {error}")

    def finish(self, now: float) -> None:
        """End a turn: perform waiting changes, or a slice of them, and update the counters."""
        more = self._slices.end_turn()
        if self._news:
            self._news = False
            self._counters.show(self.protocol.adjacencies(), self.fib.installed, now)
            self._update_converged(now)
        deadline = now if more else self.protocol.deadline
        self.deadline = deadline if deadline < self._reconcile_s else self._reconcile_s

    def _update_converged(self, now: float) -> None:
        converged = not self._slices.waiting and self.protocol.converged()
        if converged != self._converged:
            self._converged = converged
            self._counters.set(converged=converged)
            self._log.write("converged" if converged else "not converged any more")
        if converged and self.inherited:
            self._reconcile_s = now

    def tick(self, now: float) -> None:
        """Tick the state machine, because the deadline has passed."""
        late_s = now - self.deadline
        if self.protocol.deadline <= now or not self._slices.waiting:
            self.perform(self.protocol.tick(now))
        if self.capabilities:
            self._slices.go_on()
            if not self._slices.waiting:  # the kernel has all decisions
                for capability in self.capabilities:
                    self._tell(capability.look(now), now)
        self._counters.tick(late_s, self._sent, self.received)
        self.lost.look_for_refused()
        if now >= self._reconcile_s:
            self._reconcile()
        if not self._converged:
            self._update_converged(now)
        self.finish(now)

    def slow_down(self, factor: int, now: float) -> None:
        """Send hellos in `factor` times their interval, for want of processor time."""
        self._log.write(f"hellos in {factor} times their interval, by the processor time it gets")
        self._counters.slow_down(factor)
        self.perform(self.protocol.slow_down(factor, now))
        self.finish(now)

    def _reconcile(self) -> None:
        self._reconcile_s = inf
        self.inherited = 0
        self._slices.flush()
        try:
            changed = self.fib.reconcile()
            for capability in self.capabilities:
                capability.reconcile()
        except (netlink.NetlinkError, BpfError) as error:
            self._refused(error)
        else:
            if changed:
                commands = "; ".join(message.command for message in changed)
                self._log.write(f"routes repaired: {commands}")

    def _read_link_news(self, now: float) -> None:
        """Handle devices or carriers that went up or down."""
        self._follow_links(self._link_news.read(), now)
        if self._link_news.lost:  # the kernel may have removed routes of a device unnoticed
            self._link_news.lost = False
            self._reconcile_s = now

    def _follow_links(self, news: Iterable[LinkChanged], now: float) -> None:
        for port, is_set_up, up in news:
            if not is_set_up:
                self.fib.device_down(port)
            elif self.fib.device_up(port) and not self.inherited:
                # with inherited routes a sweep is due anyway
                self._reconcile_s = now
            if up != self._carrier[port]:
                self._carrier[port] = up
                self._log.write(f"port {port}: carrier {'up' if up else 'down'}")
                self._news = True
                self.perform(self.protocol.link_changed(port, up, now))

    def read_request(self) -> bool:
        """Answer a request at the control socket; return False if it asks the daemon to end."""
        message = self.requests.read()
        if message is None:
            return True
        request, sender = message
        if request == "stop":
            self._slices.flush()
        answer = self.status() if request == "status" else {}
        if request.startswith(DEGRADED):
            answer = self._report_degraded_link(request)
        elif request == REKEY:
            answer = self._rekey()
        self.requests.answer(sender, answer)
        return request != "stop"

    def _rekey(self) -> dict[str, str]:
        """Read the run's keys again."""
        try:
            keys = self._credentials.read_keys()
            for link in self.links.values():
                link.set_keys(keys)
        except (ValueError, OSError) as error:
            return {"error": f"{self.interfaces.name}: {error}"}
        self._log.write("the run's keys were read again")
        return {}

    def _report_degraded_link(self, request: str) -> dict[str, str]:
        now = clock.monotonic()
        try:
            _, port, degraded = request.split()
            self.perform(self.protocol.event(LinkDegraded(int(port), degraded == "1"), now))
        except ValueError as error:  # no such port, or the scheme ignores degraded links
            return {"error": f"{self.interfaces.name}: {error}"}
        self.finish(now)
        return {}

    def status(self) -> dict[str, Any]:
        """Return the state of the daemon, JSON-able."""
        return {
            "node": self.interfaces.name,
            **self._counters.status(),
            "sent": self._sent,
            "received": self.received,
            "carrier": {self.interfaces.ports[port].dev: up for port, up in self._carrier.items()},
            "kernel_routes": {
                str(prefix): [self.interfaces.ports[hop.port].dev for hop in hops]
                for prefix, hops in self.fib.desired.items()
            },
            **self.lost.status(),
            "protocol": {**self.protocol.status(), "garbage": self.garbage},
        }

    def note_failure(self) -> None:
        """Log the current exception, and count an end of the daemon that was not requested."""
        self._log.write(traceback.format_exc().rstrip())
        self._counters.add("deaths")


@contextmanager
def _inside(interfaces: NodeInterfaces) -> Iterator[None]:
    """Enter the node's namespace, in this thread."""
    fd = os.open(netns.NAMES / interfaces.namespace, os.O_RDONLY)
    try:
        with netns.inside(fd):
            yield
    finally:
        os.close(fd)
