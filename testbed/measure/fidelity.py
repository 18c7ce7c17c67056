"""Did the emulation keep up with what it was asked?  PASS, WARN or FAIL, and the worst offender.

Each thing that can go wrong is a component with its own figure, limits and verdict; the run's
verdict is the worst of them.  What decides whether the network was the one asked for (when busy
links sent, oversize packets, losses that were not configured, daemons that died though nobody asked
them to) can FAIL a run.  What says that the machine was overloaded only explains, and at worst
WARNs, except time taken by the hypervisor and late daemons, which change results by themselves.

If something decisive cannot be measured on this kernel, that is reported and the verdict is WARN at
best.

Under the virtual clock there is no load.  There the verdict is on what can still be wrong: links,
with packets of our own before the measurement (reference_packets.py), dequeues of busy links to the
nanosecond, and unexplained drops.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import Any

from weft.testbed.linux import clock
from weft.testbed.linux.libbpf import BpfError
from weft.testbed.measure import host_load, reference_packets
from weft.testbed.measure.dequeue_gaps import GapMonitor, Gaps, together
from weft.testbed.measure.port_counters import PortCounterReader, Snapshot
from weft.testbed.node_daemon import control_socket
from weft.testbed.node_daemon.counters import FILE, CounterRow, DaemonCounters
from weft.testbed.runs.network_handle import NetworkHandle, device, ports

PASS, WARN, FAIL = "PASS", "WARN", "FAIL"
ORDER = (PASS, WARN, FAIL)
THIS = "this process"
WATCHING: list[Fidelity] = []  # those in whose `with` this process is

# Links of Mininet-HiFi (CoNEXT 2012) at 100 Mbit/s had 5.8 % at p99: within a tenth, a packet is
# where it should be.
GAP_PERCENT = 10.0
# of a port: fewer have no 99th percentile of their own, and count only together with all others
WINDOWS = 100
# of what left busy links the program may miss before what it saw speaks for less than most
UNSEEN_PERCENT = 20.0
# of a busy link's rate; 1 % is how exact a quiet machine's links are
SHORTFALL_PERCENT = (1.0, 5.0)
# A daemon that waits 10 ms, a third of the usual interval between hellos, on each turn is slower
# than a real router's.
WAIT_MS = (2.0, 10.0)
# Of daemons' ticks, those late by more than one interval: after three in a row a neighbour is
# declared dead.
LATE_TICKS_PERCENT = (0.1, 1.0)
STEAL_PERCENT = (1.0, 5.0)  # time that all of the emulation stood still, though its clocks went on
PRESSURE_PERCENT = 75.0  # some process, ours or not, waits for a processor most of the time
SQUEEZED_PER_S = 10.0  # each delays arriving packets by up to 2 ms
EXACT_NS = 1.0  # of a gap or delay under the virtual clock: the kernel counts whole nanoseconds
# of a window: the kernel rounds every packet's time, and 50 of the shortest fill one
EXACT_WINDOW_NS = 64.0


@dataclass(frozen=True)
class Component:
    """One figure.  pass_limit, warn_limit: the highest value for PASS, and for WARN; without the
    latter it cannot FAIL.

    where: the port, node or process that has it, "" if it is the machine's.
    """

    name: str
    value: float
    unit: str
    pass_limit: float
    warn_limit: float | None
    verdict: str
    where: str = ""

    def __str__(self) -> str:
        value = f"{self.value:.3g}" if self.value < 1000 else f"{self.value:.0f}"
        return f"{self.where} {self.name} {value} {self.unit}".strip()


@dataclass(frozen=True)
class FidelityReport:
    """The verdict on a run, each component's, and what could not be measured, with the reason.

    clock: "real" or "virtual", which decides what was judged.
    daemon_processes: how many served the daemons.
    """

    seconds: float
    components: tuple[Component, ...]
    not_measured: Mapping[str, str]
    decisive: bool  # whether everything decisive was measured
    clock: str = "real"
    daemon_processes: int = 0

    @property
    def worst(self) -> Component:
        """The component of the worst verdict that exceeds its limit by most."""

        def key(one: Component) -> tuple[int, float]:
            return ORDER.index(
                one.verdict
            ), one.value / one.pass_limit if one.pass_limit else float(one.value > 0)

        return max(self.components, key=key)

    @property
    def verdict(self) -> str:
        worst = self.worst.verdict
        return worst if self.decisive or worst == FAIL else WARN

    @property
    def offender(self) -> str:
        """What the verdict is due to, such as "h3-eth0 dequeue gap p99 4.1 %"."""
        if self.verdict == self.worst.verdict:
            return str(self.worst)
        return f"{next(iter(self.not_measured))}: not measured"

    def as_dict(self) -> dict[str, Any]:
        """JSON-able."""
        return {
            "verdict": self.verdict,
            "clock": self.clock,
            "daemon_processes": self.daemon_processes,
            "worst": self.offender,
            "seconds": self.seconds,
            "components": [asdict(one) for one in self.components],
            "not_measured": dict(self.not_measured),
        }


class Fidelity:
    """Watches a network during its `with`; afterwards `report` has the verdict."""

    def __init__(self, net: NetworkHandle) -> None:
        self.net = net
        self._report: FidelityReport | None = None
        self._added: list[Component] = []
        self._stack = ExitStack()

    @property
    def report(self) -> FidelityReport:
        """The verdict; RuntimeError before the end of the `with`."""
        if self._report is None:
            raise RuntimeError("fidelity: not finished yet")
        return self._report

    @property
    def verdict(self) -> str:
        return self.report.verdict

    def add(self, component: Component) -> None:
        """Judge by `component` too, which another instrument found during this `with`."""
        self._added.append(component)

    def __enter__(self) -> Fidelity:
        WATCHING.append(self)
        with ExitStack() as stack:
            stack.callback(WATCHING.remove, self)
            self._counters = stack.enter_context(PortCounterReader(self.net))
            self._gaps: GapMonitor | BpfError
            try:
                self._gaps = stack.enter_context(GapMonitor(self.net))
            except BpfError as error:
                self._gaps = error
            self._carrier = self._counters.carrier_changes()
            self._deviations = reference_packets.deviations(self.net) if clock.is_virtual() else {}
            self._before = self._counters.snapshot()
            self._every, self._supervisor = self._all_rows(), self._running("supervisor")
            self._rows = self._daemon_rows()
            self._load_before = host_load.read(self._processes(self._rows))
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._stack:
            if kind is None:
                self._report = self._judge()

    def _judge(self) -> FidelityReport:
        rows = self._daemon_rows()
        after = host_load.read(self._processes(rows))
        drops = self._counters.snapshot().since(self._before)
        missing: dict[str, str] = {}
        components = [*self._of_links(missing), self._of_drops(drops)]
        decisive = not missing
        virtual = clock.is_virtual()
        components += (
            self._of_references() if virtual else _of_machine(self._load_before, after, missing)
        )
        components += [
            *self._of_daemons(self._rows, rows, missing),
            *self._of_deaths(),
            *self._added,
        ]
        seconds = after.at_s - self._load_before.at_s
        kind, processes = "virtual" if virtual else "real", len({row.pid for row in rows.values()})
        return FidelityReport(seconds, tuple(components), missing, decisive, kind, processes)

    def _all_rows(self) -> dict[int, CounterRow]:
        """The rows of all nodes; none if there are no daemons."""
        try:
            counters = DaemonCounters(self.net.identity.directory / FILE)
        except FileNotFoundError:
            return {}
        try:
            return {node: counters.row(node) for node in range(len(counters))}
        finally:
            counters.close()

    def _daemon_rows(self) -> dict[int, CounterRow]:
        """The rows of the nodes whose daemon runs."""
        return {node: row for node, row in self._all_rows().items() if row.pid}

    def _running(self, name: str) -> int | None:
        """The process that is the daemon of the node called `name`, or the supervisor."""
        return control_socket.holder(self.net.identity.directory, name)

    def _processes(self, rows: Mapping[int, CounterRow]) -> dict[str, int]:
        """This process, and those that serve the daemons, by the name of the first node that each
        serves."""
        name = self.net.topology.naming.name
        first: dict[int, int] = {}
        for node, row in rows.items():
            first.setdefault(row.pid, node)
        return {THIS: os.getpid()} | {f"daemon {name(node)}": pid for pid, node in first.items()}

    def _device(self, index: int) -> str:
        return device(self.net, *ports(self.net)[index])

    def _of_links(self, missing: dict[str, str]) -> list[Component]:
        """When busy links sent, and how much; oversize packets."""
        if isinstance(self._gaps, BpfError):
            missing["dequeue gaps and sizes of packets"] = self._gaps.strerror or str(self._gaps)
            return []
        found = self._gaps.read()
        # no rate was asked for, so none can be missed, and bundles of packets are meant
        if not found:
            return []
        index, largest = max(found.items(), key=lambda one: (one[1].oversize, one[1].longest_bytes))
        where = self._device(index) if largest.oversize else ""
        every = together(found.values())
        unseen = 100 * every.missed / max(1, every.missed + every.packets)
        components = [
            at_most("packets over a frame", largest.oversize, "", 0, 0, where),
            at_most("unseen dequeues", unseen, "%", UNSEEN_PERCENT, None),
        ]
        busy = {
            self._device(index): gaps for index, gaps in found.items() if gaps.windows >= WINDOWS
        }
        if every.windows:
            busy["all ports"] = every
        return components + _busy(busy)

    def _of_references(self) -> list[Component]:
        """What the packets of our own found, each figure of the port that is furthest off."""
        found = []
        for name, limit, unit in (
            ("gap_ns", EXACT_NS, "ns"),
            ("delay_ns", EXACT_NS, "ns"),
            ("packets", 0, "packets"),
        ):
            off = {index: abs(getattr(one, name)) for index, one in self._deviations.items()}
            if off:
                worst = max(off, key=lambda index: off[index])
                what = f"reference {name.partition('_')[0]} off by"
                found.append(at_most(what, off[worst], unit, limit, limit, self._device(worst)))
        return found

    def _of_drops(self, drops: Snapshot) -> Component:
        """Losses that were not configured; where a link went down or came up meanwhile, some are
        natural."""
        carrier = self._counters.carrier_changes()
        lost = {
            index: port.unexplained_drops
            for index, port in drops.ports.items()
            if carrier.get(index) == self._carrier.get(index)
        }
        index = max(lost, key=lambda index: lost[index], default=0)
        count = lost.get(index, 0)
        return at_most(
            "unexplained drops", count, "packets", 0, 0, self._device(index) if count else ""
        )

    def _of_daemons(
        self,
        before: Mapping[int, CounterRow],
        after: Mapping[int, CounterRow],
        missing: dict[str, str],
    ) -> list[Component]:
        """How often the daemons' timers were late."""
        late, ticks = {}, 0
        for node, row in after.items():
            then = before.get(node)
            # else one that has begun since
            same = then and (then.pid, then.began_ns) == (row.pid, row.began_ns)
            late[node] = row.late_ticks - (then.late_ticks if then and same else 0)
            ticks += row.ticks - (then.ticks if then and same else 0)
        if not ticks:
            if after:
                missing["timers of daemons"] = "no daemon had one to keep meanwhile"
            return []
        worst = max(late, key=lambda node: late[node])
        where = f"daemon {self.net.topology.naming.name(worst)}" if late[worst] else ""
        return [
            at_most("late ticks", 100 * sum(late.values()) / ticks, "%", *LATE_TICKS_PERCENT, where)
        ]

    def _of_deaths(self) -> list[Component]:
        """Daemons that ended though nobody asked them to, or were to run and do not; supervisors
        that were lost."""
        if not self._every:
            return []
        name = self.net.topology.naming.name
        died, restarted = {}, {}
        for node, row in self._all_rows().items():
            before = self._every[node]
            # A daemon that ended as it should has taken its process id out of its row.
            vanished = (row.wanted or row.pid) and self._running(name(node)) is None
            died[node] = max(row.deaths - before.deaths, int(bool(vanished)))
            restarted[node] = row.restarts - before.restarts
        lost = self._supervisor is not None and self._running("supervisor") != self._supervisor
        return [
            at_most("daemons died", sum(died.values()), "", 0, 0, _first(died, name)),
            at_most(
                "daemons restarted", sum(restarted.values()), "", 0, 0, _first(restarted, name)
            ),
            at_most("supervisors lost", int(lost), "", 0, 0),
        ]


def at_most(
    name: str, value: float, unit: str, pass_limit: float, warn_limit: float | None, where: str = ""
) -> Component:
    """A component that is the better the smaller it is."""
    verdict = (
        PASS if value <= pass_limit else WARN if warn_limit is None or value <= warn_limit else FAIL
    )
    return Component(name, value, unit, pass_limit, warn_limit, verdict, where)


def _first(counts: Mapping[int, int], name: Callable[[int], str]) -> str:
    """The first node of which something is counted."""
    return next((name(node) for node, count in counts.items() if count), "")


def gap_verdict(p90: float, p99: float) -> str:
    """PASS if 99 % of the windows are within GAP_PERCENT of their ideal time, WARN if 90 % are."""
    return PASS if p99 <= GAP_PERCENT else WARN if p90 <= GAP_PERCENT else FAIL


def tell(net: NetworkHandle, component: Component) -> None:
    """An instrument at `net` has found `component`: whoever watches that run judges by it, too."""
    for one in WATCHING:
        if one.net.identity.id == net.identity.id:
            one.add(component)


def _busy(busy: Mapping[str, Gaps]) -> list[Component]:
    """The worst gaps, and the worst shortfall, of ports that were busy, by name."""
    if not busy:  # no link had to send for long: none could be late
        return [Component("dequeue gap p99", 0.0, "%", GAP_PERCENT, None, PASS)]
    percentiles = {
        name: (gaps.deviation_percent(90), gaps.deviation_percent(99))
        for name, gaps in busy.items()
    }
    worst = max(
        percentiles,
        key=lambda name: (ORDER.index(gap_verdict(*percentiles[name])), percentiles[name]),
    )
    verdict = gap_verdict(*percentiles[worst])
    name, value = (
        ("p90", percentiles[worst][0]) if verdict == FAIL else ("p99", percentiles[worst][1])
    )
    short = max(busy, key=lambda name: busy[name].shortfall_percent)
    missed = max(0.0, busy[short].shortfall_percent)
    if clock.is_virtual():
        late = max(busy, key=lambda name: busy[name].worst_ns)
        return [
            at_most(
                "dequeue off its time by",
                busy[late].worst_ns,
                "ns",
                EXACT_WINDOW_NS,
                EXACT_WINDOW_NS,
                late,
            )
        ]
    return [
        Component(f"dequeue gap {name}", value, "%", GAP_PERCENT, None, verdict, worst),
        at_most("shortfall of a busy link", missed, "%", *SHORTFALL_PERCENT, short),
    ]


def _of_machine(
    before: host_load.HostLoad, after: host_load.HostLoad, missing: dict[str, str]
) -> list[Component]:
    """The load of the machine."""
    seconds = after.at_s - before.at_s
    dropped = after.softnet_dropped - before.softnet_dropped
    squeezed = (after.softnet_squeezed - before.softnet_squeezed) / seconds
    found = [
        at_most(
            "time stolen by the hypervisor",
            host_load.steal_percent(before, after),
            "%",
            *STEAL_PERCENT,
        ),
        at_most("drops of the receive backlog", dropped, "packets", 0, None),
        at_most("squeezed receive rounds", squeezed, "per s", SQUEEZED_PER_S, None),
    ]
    pressure = host_load.pressure_percent(before, after)
    if pressure is None:
        missing["processor pressure"] = "this kernel has no PSI"
    else:
        found.append(at_most("processor pressure", pressure, "%", PRESSURE_PERCENT, None))
    waits = host_load.mean_waits_ms(before, after)
    if not waits:
        missing["waits for a processor"] = "this kernel has no schedstat"
    own = waits.pop(THIS, None)
    if own is not None:
        found.append(at_most("wait for a processor", own, "ms", WAIT_MS[0], None, THIS))
    if waits:
        worst = max(waits, key=lambda name: waits[name])
        found.append(at_most("wait for a processor", waits[worst], "ms", *WAIT_MS, worst))
    return found
