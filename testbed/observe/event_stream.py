"""The events of a run as JSON lines on standard output, as docs/watching.md specifies them.

The program (`weft events`) takes a run's id, readings of counters a second, and pairs to ping.  It
ends with the run, or when its reader closes the pipe.

Pairs are pinged regularly.  That loads network and machine little, so it detects less than
testbed/measure/outage.py: times are known to one ping interval, and shorter outages may be missed.
A lasting outage is reported after LOST unanswered pings in a row, a shorter one at its end.
"""

from __future__ import annotations

import json
import os
import select
import socket
import struct
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.testbed.linux import clock, icmp, netns
from weft.testbed.network.network import RunningNetwork
from weft.testbed.observe.changes import (
    UP,
    DaemonLogs,
    DaemonRows,
    KernelChanges,
    StreamEvent,
    link_event,
)
from weft.testbed.observe.port_reader import PortReader, PortReading
from weft.testbed.plan.plane_selection import daemons_scheme
from weft.testbed.runs import run_process
from weft.testbed.runs.network_handle import NetworkHandle
from weft.topologies.core.address import dotted

DATA_BYTES = 8
LOST = 4  # pings in a row without an answer: longer than full queues delay one
MOST_PINGED_PAIRS = 0x10000


@dataclass
class PingedPair:
    """A pinged pair: requests sent, and the last answer."""

    src: int
    dst: int
    echo: icmp.Echo
    sent: int = 0
    answered: int = 0  # number of the last answered request
    answered_s: float = 0.0
    cut_off: bool = False  # and reported


def spread(servers: int, count: int) -> list[tuple[int, int]]:
    """Return at most `count` pairs of servers: distinct sources, ends far apart by number."""
    count = min(count, servers if servers > 1 else 0)
    sources = [i * servers // count for i in range(count)]
    return [(src, (src + servers // 2 + (servers > 2)) % servers) for src in sources]


class LiveOutages:
    """Ping pairs of servers of `net` until closed.

    fileno: an epoll descriptor, readable when answers wait.
    """

    def __init__(
        self, net: NetworkHandle, pairs: Sequence[tuple[int, int]], *, interval_s: float
    ) -> None:
        if len(pairs) > MOST_PINGED_PAIRS:
            raise ValueError(f"at most {MOST_PINGED_PAIRS} pairs can be pinged, not {len(pairs)}")
        self._net = net
        self._interval_s = interval_s
        self._token = int.from_bytes(os.urandom(4), "big")
        self._sockets: dict[int, socket.socket] = {}
        self._poll = select.epoll()
        now = clock.monotonic()
        self._pairs = [
            PingedPair(src, dst, icmp.Echo(number, self._token, DATA_BYTES), answered_s=now)
            for number, (src, dst) in enumerate(pairs)
        ]
        for src in dict.fromkeys(src for src, _ in pairs):
            with netns.inside(net.netns(src)):
                self._sockets[src] = icmp.receiver(icmp.ECHO_REPLY)
            self._poll.register(self._sockets[src].fileno(), select.EPOLLIN)
        self._readers = {opened.fileno(): opened for opened in self._sockets.values()}
        self._next_s = now

    def fileno(self) -> int:
        return self._poll.fileno()

    def turn(self) -> list[StreamEvent]:
        """Read answers, ping if it is time, and return the `outage` events."""
        events = self._hear()
        now = clock.monotonic()
        if now >= self._next_s:
            events += self._begun()
            self._next_s = max(self._next_s + self._interval_s, now)
            for pair in self._pairs:
                self._send(pair)
        return events

    def _send(self, pair: PingedPair) -> None:
        pair.sent += 1
        address = self._net.topology.naming.address(pair.dst)
        with suppress(OSError):  # no route: counts as lost
            to = (socket.inet_ntoa(struct.pack(">I", address)), 0)
            self._sockets[pair.src].sendto(pair.echo.request(pair.sent & 0xFFFF), to)

    def _hear(self) -> list[StreamEvent]:
        wall_minus_monotonic_s = clock.wall() - clock.monotonic()
        events = []
        for fd, _ in self._poll.poll(0):
            while message := icmp.receive(self._readers[fd]):
                packet, ns = message
                answer = icmp.parse(packet)
                if answer is None or answer.token != self._token:
                    continue
                pair = self._pairs[answer.key >> 16]
                number = pair.sent - ((pair.sent - answer.key) & 0xFFFF)
                if number > pair.answered:
                    at_s = ns / 1e9 - wall_minus_monotonic_s
                    events += self._answered(pair, number, at_s)
        return events

    def _answered(self, pair: PingedPair, number: int, at_s: float) -> list[StreamEvent]:
        """Return an `outage` event if earlier requests had no answer."""
        lost = number - pair.answered - 1
        lasted_s = round(at_s - pair.answered_s, 6)
        pair.answered = number
        pair.answered_s = at_s
        pair.cut_off = False
        if not lost:
            return []
        return [self._event(pair, at_s, "over") | {"lasted_s": lasted_s, "lost": lost}]

    def _begun(self) -> list[StreamEvent]:
        events = []
        for pair in self._pairs:
            if not pair.cut_off and pair.sent - pair.answered >= LOST:
                pair.cut_off = True
                events.append(self._event(pair, pair.answered_s, "begun"))
        return events

    def _event(self, pair: PingedPair, at_s: float, state: str) -> StreamEvent:
        name = self._net.topology.naming.name
        return {
            "event": "outage",
            "at_s": at_s,
            "from": name(pair.src),
            "to": name(pair.dst),
            "state": state,
        }

    def close(self) -> None:
        self._poll.close()
        for opened in self._sockets.values():
            opened.close()
        self._sockets.clear()


VERSION = 1  # of the events' meanings
UPDATES_PER_S = 10.0
MOST_UPDATES_PER_S = 100.0
PAIRS, MOST_PAIRS, PING_S = 16, 256, 0.05
# share of a core for reading counters; beyond it, busy nodes are read less often
READ_SHARE = 0.05
ALIVE_CHECK_S = 0.5
# loads are rounded to a 200th of a link's rate, or to this where links have no rate
STEPS, STEP_BPS = 200, 100_000


def require(updates_per_s: float, pairs: int) -> None:
    """Raise ValueError for a rate of readings or a number of pairs that is out of range."""
    if not 0 < updates_per_s <= MOST_UPDATES_PER_S:
        raise ValueError(
            f"updates a second: above 0, up to {MOST_UPDATES_PER_S:g}, not {updates_per_s:g}"
        )
    if not 0 <= pairs <= MOST_PAIRS:
        raise ValueError(f"pairs to ping: 0 to {MOST_PAIRS}, not {pairs}")


class EventStream:
    """The events of `network` from now on."""

    def __init__(
        self, network: RunningNetwork, *, updates_per_s: float = UPDATES_PER_S, pairs: int = PAIRS
    ) -> None:
        """Open the sources of events.

        Args:
            network: the network.
            updates_per_s: readings of the counters in a second.
            pairs: pairs of servers to ping, to detect outages.

        Raises:
            ValueError: a number is out of range.
        """
        require(updates_per_s, pairs)
        self.network = network
        self._period_s = 1 / updates_per_s
        self._scheme = network.run.journal["scheme"]
        self._journal_ns = self._journal_time_ns()
        self.changes = KernelChanges(network)
        self._rows = DaemonRows(network)
        self._logs = DaemonLogs(network.run.directory / "log")
        pinged = spread(network.topology.servers, pairs)
        self._pinged_pairs = len(pinged)
        self._pings = LiveOutages(network, pinged, interval_s=PING_S)
        shaped = bool(network.plan.link_specs)
        most_cpu_s = READ_SHARE * self._period_s
        self._ports = PortReader(network, shaped=shaped, most_cpu_s=most_cpu_s)
        self._index_links()
        self._failed_s: dict[str, float] = {}  # when links failed, by name
        self._next_alive_check_s = clock.monotonic() + ALIVE_CHECK_S

    def _index_links(self) -> None:
        """Set names, rows of both ends and rounding steps, by link."""
        topology = self.network.topology
        links = range(len(topology.links))
        row_of = {port: row for row, port in enumerate(self._ports.ports)}
        ends = [(row_of[a, pa], row_of[b, pb]) for a, pa, b, pb in topology.links.tolist()]
        self._ends = np.array(ends)
        self._names = [topology.link_name(link) for link in links]
        self._specs = [self.network.plan.link_spec(link) for link in links]
        steps = [max(spec.rate_bps // STEPS, 1) if spec else STEP_BPS for spec in self._specs]
        self._steps = np.array(steps)[:, None]
        self._last: tuple[float, PortReading] | None = None
        self._rates = np.zeros(len(self._ports.ports))
        self._loads = np.full((len(links), 6), -1, dtype=np.int64)

    def first(self) -> list[StreamEvent]:
        """Return the `network` event, and a `link` event of each link unlike the plan."""
        now = clock.monotonic()
        events = [self._network_event()]
        states = zip(self._names, self.changes.links(), self._specs, strict=True)
        for name, state, spec in states:
            if state.state != UP or (spec and abs(state.rate_bps - spec.rate_bps) >= 8):
                events.append(link_event(name, state, now))
        return events

    def _network_event(self) -> StreamEvent:
        network = self.network
        journal = network.run.journal
        return {
            "event": "network",
            "version": VERSION,
            "at_s": clock.monotonic(),
            "wall_minus_monotonic_s": clock.wall() - clock.monotonic(),
            "run": network.run.id,
            "topology": network.topology.spec,
            "family": network.topology.family,
            "scheme": journal["scheme"],
            "routing": daemons_scheme(journal),
            "period_s": self._period_s,
            "sampled_pairs": self._pinged_pairs,
            "nodes": [self._node(node) for node in range(network.topology.nodes)],
            "links": [self._link(link) for link in range(len(self._names))],
        }

    def _node(self, node: int) -> dict[str, Any]:
        topology = self.network.topology
        naming = topology.naming
        switch = "crossbar" if topology.server_centric else "switch"
        return {
            "node": self.network.plan.names[node],
            "label": naming.label(node),
            "kind": "server" if node < topology.servers else switch,
            "address": None if topology.is_crossbar(node) else dotted(naming.address(node)),
            "routes": self.changes.count(node),
        }

    def _link(self, link: int) -> dict[str, Any]:
        names = self.network.plan.names
        topology = self.network.topology
        a, _, b, _ = topology.links[link].tolist()
        spec = self._specs[link]
        return {
            "link": self._names[link],
            "ends": [names[a], names[b]],
            "level": int(topology.level[link]),
            "rate_bps": spec.rate_bps if spec else None,
            "queue_packets": spec.queue_packets if spec else None,
        }

    def run(self) -> Iterator[list[StreamEvent]]:
        """Yield batches of events; the last event is `end`, when the run has ended."""
        yield self.first()
        poll = select.poll()
        for fd in (self.changes.poll.fileno(), self._pings.fileno()):
            poll.register(fd, select.POLLIN)
        next_s = clock.monotonic()
        while self._is_up():
            while (wait_s := next_s - clock.monotonic()) > 0:
                ready = poll.poll(1000 * wait_s)
                if any(fd == self.changes.poll.fileno() for fd, _ in ready):
                    self.changes.hear(0.0)
                if ready and (events := self._pings.turn()):
                    yield events
            if events := self.look():
                yield events
            next_s = max(next_s + self._period_s, clock.monotonic())
        yield [{"event": "end", "at_s": clock.monotonic(), "run": self.network.run.id}]

    def look(self) -> list[StreamEvent]:
        """Return the events since the last call."""
        self.changes.hear(0.0)
        events = [*self.changes.events(), *self._logs.events(), *self._rows.events()]
        self._time_detections(events)
        events += [*self._pings.turn(), *self._scheme_events(), *self._load_events()]
        return events

    def _time_detections(self, events: list[StreamEvent]) -> None:
        """Add `noticed_ms` to each loss of a neighbour whose link was seen to fail before."""
        for event in events:
            if event["event"] == "link" and event["state"] == UP:
                self._failed_s.pop(event["link"], None)
            elif event["event"] == "link":
                self._failed_s.setdefault(event["link"], event["at_s"])
            elif event["event"] == "neighbour" and event["state"] == "down":
                end = self.network.plan.ends[self.network.node(event["node"])][event["port"]]
                failed_s = self._failed_s.get(self._names[end.link], event["at_s"])
                if failed_s < event["at_s"]:
                    event["noticed_ms"] = round(1000 * (event["at_s"] - failed_s), 3)

    def _is_up(self) -> bool:
        now = clock.monotonic()
        if now < self._next_alive_check_s:
            return True
        self._next_alive_check_s = now + ALIVE_CHECK_S
        return self.network.run.alive()

    def _scheme_events(self) -> list[StreamEvent]:
        journal_ns = self._journal_time_ns()
        if journal_ns == self._journal_ns:
            return []
        self._journal_ns = journal_ns
        scheme = self.network.run.journal_or_empty().get("scheme", self._scheme)
        if scheme == self._scheme:
            return []
        self._scheme = scheme
        return [{"event": "scheme", "at_s": clock.monotonic(), "scheme": scheme}]

    def _journal_time_ns(self) -> int:
        """Return the time at which the run's journal was written; 0 after the run."""
        try:
            return (self.network.run.directory / "run.json").stat().st_mtime_ns
        except FileNotFoundError:
            return 0

    def _load_events(self) -> list[StreamEvent]:
        """Return a `load` event with the links whose load changed since the last reading.

        Six columns, each direction from the first end and back: bit/s, waiting packets, drops since
        the last reading.
        """
        now = clock.monotonic()
        reading = self._ports.read()
        before = self._last
        self._last = now, reading
        if before is None:
            return []
        before_s, last = before
        self._update_rates(last, reading)
        rates = (self._rates[self._ends] / self._steps).round().astype(np.int64) * self._steps
        drops = (reading.drops - last.drops).clip(0)
        loads = np.hstack([rates, reading.waiting[self._ends], drops[self._ends]])
        changed = np.flatnonzero((loads != self._loads).any(axis=1)).tolist()
        if not changed:
            return []
        self._loads = loads
        links = {self._names[link]: loads[link].tolist() for link in changed}
        return [{"event": "load", "at_s": now, "over_s": round(now - before_s, 6), "links": links}]

    def _update_rates(self, last: PortReading, reading: PortReading) -> None:
        """Set the rate in bit/s of each port that was read since `last`."""
        interval_s = reading.at_s - last.at_s
        sent_bytes = (reading.sent_bytes - last.sent_bytes).clip(0)
        np.divide(sent_bytes * 8, interval_s, out=self._rates, where=interval_s > 0)

    def close(self) -> None:
        for part in (self.changes, self._rows, self._pings, self._ports):
            part.close()


def write(events: list[StreamEvent]) -> None:
    """Write one line for each event, unbuffered."""
    lines = "".join(json.dumps(event, separators=(",", ":")) + "\n" for event in events).encode()
    while lines:
        lines = lines[os.write(sys.stdout.fileno(), lines) :]


def main(argv: Sequence[str]) -> None:
    """Write events until the run ends."""
    run, updates_per_s, pairs = argv
    run_process.end_with_parent()
    network = RunningNetwork.open(run)
    stream = EventStream(network, updates_per_s=float(updates_per_s), pairs=int(pairs))
    for events in stream.run():
        write(events)


if __name__ == "__main__":
    main(sys.argv[1:])
