"""The events of a run as JSON, one a line: what docs/watching.md specifies, on standard output.

As a program (`weft events`) it is given a run's id, and how often a second counters are to be told;
it ends with the run, or when nobody reads any more.
"""

from __future__ import annotations

import json
import os
import select
import sys
from collections.abc import Iterator, Sequence

import numpy as np

from weft.testbed.linux import clock
from weft.testbed.network.network import RunningNetwork
from weft.testbed.network.scheme_change import routing
from weft.testbed.observe.daemon_changes import DaemonLogs, DaemonRows
from weft.testbed.observe.kernel_changes import KernelChanges
from weft.testbed.observe.live_outages import LiveOutages, spread
from weft.testbed.observe.port_reader import PortReader, PortReading
from weft.testbed.observe.stream_event import StreamEvent
from weft.testbed.runs import run_process
from weft.topologies.core.address import dotted

VERSION = 1  # of what events mean
UPDATES_PER_S = 10.0
MOST_UPDATES_PER_S = 100.0
PAIRS, MOST_PAIRS, PING_S = 16, 256, 0.05
# of a core, for reading counters; busy nodes are asked less often where that takes more
READ_SHARE = 0.05
ALIVE_S = 0.5  # between two looks whether the run is still there
# loads are told to a 200th of a link's rate, or to this where links have none
STEPS, STEP_BPS = 200, 100_000


def require(updates_per_s: float, pairs: int) -> None:
    """ValueError unless counters can be told so often, and outages looked for between so many
    pairs."""
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
        """pairs: of servers that are pinged, to see outages.

        ValueError if a number is out of range.
        """
        require(updates_per_s, pairs)
        self.network = network
        self._period_s = 1 / updates_per_s
        self._scheme = network.run.journal["scheme"]
        self.changes = KernelChanges(network)
        self._rows = DaemonRows(network)
        self._logs = DaemonLogs(network.run.directory / "log")
        sampled = spread(network.topology.servers, pairs)
        self._sampled_pairs = len(sampled)
        self._pings = LiveOutages(network, sampled, interval_s=PING_S)
        shaped, most_cpu_s = bool(network.plan.link_specs), READ_SHARE * self._period_s
        self._ports = PortReader(network, shaped=shaped, most_cpu_s=most_cpu_s)
        row_of = {port: row for row, port in enumerate(self._ports.ports)}
        links = network.topology.links.tolist()
        self._ends = np.array([(row_of[a, pa], row_of[b, pb]) for a, pa, b, pb in links])
        self._names = [network.topology.link_name(link) for link in range(len(links))]
        specs = [network.plan.link_spec(link) for link in range(len(links))]
        self._steps = np.array(
            [[max(spec.rate_bps // STEPS, 1) if spec else STEP_BPS] for spec in specs]
        )
        self._last: tuple[float, PortReading] | None = None
        self._rates = np.zeros(len(self._ports.ports))
        self._told = np.full((len(links), 6), -1, dtype=np.int64)
        self._stamp = self._journal_time()
        self._alive_s = clock.monotonic() + ALIVE_S

    def first(self) -> list[StreamEvent]:
        """What there is: the network, the links that are not as they came up, each node's
        routes."""
        now, found = clock.monotonic(), [self._network_event()]
        planned = [self.network.plan.link_spec(link) for link in range(len(self._names))]
        for name, (state, deaf, rate), spec in zip(
            self._names, self.changes.links(), planned, strict=True
        ):
            if state != "up" or (spec and abs(rate - spec.rate_bps) >= 8):
                event = {"event": "link", "at_s": now, "link": name, "state": state}
                found.append(
                    event | ({"deaf": deaf} if deaf else {}) | ({"rate_bps": rate} if rate else {})
                )
        return found

    def _network_event(self) -> StreamEvent:
        network = self.network
        topology, plan, journal = network.topology, network.plan, network.run.journal
        switch = "crossbar" if topology.server_centric else "switch"
        nodes = [
            {
                "node": plan.names[node],
                "label": topology.naming.label(node),
                "kind": "server" if node < topology.servers else switch,
                "address": None
                if topology.is_crossbar(node)
                else dotted(topology.naming.address(node)),
                "routes": self.changes.count(node),
            }
            for node in range(topology.nodes)
        ]
        links = [
            {
                "link": name,
                "ends": [plan.names[int(a)], plan.names[int(b)]],
                "level": int(topology.level[number]),
                "rate_bps": spec.rate_bps if (spec := plan.link_spec(number)) else None,
                "queue_packets": spec.queue_packets if spec else None,
            }
            for number, (name, (a, _, b, _)) in enumerate(
                zip(self._names, topology.links, strict=True)
            )
        ]
        about = {"run": network.run.id, "topology": topology.spec, "family": topology.family}
        about |= {"scheme": journal["scheme"], "routing": routing(journal)}
        wall_s = clock.wall() - clock.monotonic()
        return {
            "event": "network",
            "version": VERSION,
            "at_s": clock.monotonic(),
            "wall_minus_monotonic_s": wall_s,
        } | {
            **about,
            "period_s": self._period_s,
            "sampled_pairs": self._sampled_pairs,
            "nodes": nodes,
            "links": links,
        }

    def run(self) -> Iterator[list[StreamEvent]]:
        """Events as they come, several at a time; the last is `end`, when the run has ended."""
        yield self.first()
        poll = select.poll()
        for fd in (self.changes.poll.fileno(), self._pings.fileno()):
            poll.register(fd, select.POLLIN)
        next_s = clock.monotonic()
        while self._is_up():
            while (left := next_s - clock.monotonic()) > 0:
                ready = poll.poll(1000 * left)
                if any(fd == self.changes.poll.fileno() for fd, _ in ready):
                    self.changes.hear(0.0)
                if ready and (events := self._pings.turn()):
                    yield events
            if found := self.look():
                yield found
            next_s = max(next_s + self._period_s, clock.monotonic())
        yield [{"event": "end", "at_s": clock.monotonic(), "run": self.network.run.id}]

    def look(self) -> list[StreamEvent]:
        """What there is to be told now."""
        self.changes.hear(0.0)
        found = [*self.changes.events(), *self._logs.events(), *self._rows.events()]
        found += [*self._pings.turn(), *self._scheme_events(), *self._load_events()]
        return found

    def _is_up(self) -> bool:
        if (now := clock.monotonic()) < self._alive_s:
            return True
        self._alive_s = now + ALIVE_S
        return self.network.run.alive()

    def _scheme_events(self) -> list[StreamEvent]:
        if (stamp := self._journal_time()) == self._stamp:
            return []
        self._stamp = stamp
        scheme = self.network.run.journal_or_empty().get("scheme", self._scheme)
        if scheme == self._scheme:
            return []
        self._scheme = scheme
        return [{"event": "scheme", "at_s": clock.monotonic(), "scheme": scheme}]

    def _journal_time(self) -> int:
        """When the run's journal was written; 0 when the run has gone."""
        try:
            return (self.network.run.directory / "run.json").stat().st_mtime_ns
        except FileNotFoundError:
            return 0

    def _load_events(self) -> list[StreamEvent]:
        """A `load` event: of each link that does not carry what it carried, in both directions,
        from its first end to its second and back: bit/s, packets that wait, drops since the last
        reading."""
        now = clock.monotonic()
        reading = self._ports.read()
        before, self._last = self._last, (now, reading)
        if before is None:
            return []
        last_s, last = before
        over_s = reading.at_s - last.at_s
        asked = over_s > 0
        sent = (reading.sent_bytes - last.sent_bytes).clip(0)
        np.divide(sent * 8, over_s, out=self._rates, where=asked)
        rates = (self._rates[self._ends] / self._steps).round().astype(np.int64) * self._steps
        told = np.hstack(
            [rates, reading.waiting[self._ends], (reading.drops - last.drops).clip(0)[self._ends]]
        )
        differ = np.flatnonzero((told != self._told).any(axis=1))
        if not len(differ):
            return []
        self._told = told
        links = {
            self._names[link]: row
            for link, row in zip(differ.tolist(), told[differ].tolist(), strict=True)
        }
        return [{"event": "load", "at_s": now, "over_s": round(now - last_s, 6), "links": links}]

    def close(self) -> None:
        for part in (self.changes, self._rows, self._pings, self._ports):
            part.close()


def write(events: list[StreamEvent]) -> None:
    """One line each, at once."""
    lines = "".join(json.dumps(event, separators=(",", ":")) + "\n" for event in events).encode()
    while lines:
        lines = lines[os.write(sys.stdout.fileno(), lines) :]


def main(argv: Sequence[str]) -> None:
    run, updates_per_s, pairs = argv
    run_process.end_with_parent()
    network = RunningNetwork.open(run)
    stream = EventStream(network, updates_per_s=float(updates_per_s), pairs=int(pairs))
    for events in stream.run():
        write(events)


if __name__ == "__main__":
    main(sys.argv[1:])
