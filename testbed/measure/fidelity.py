"""Fidelity of an emulation: PASS, WARN or FAIL, and the component that decided it.

Each possible fault is a component with a figure, limits and a verdict of its own; the verdict on
a run is the worst of them.  Components that show whether the network was the configured one can
FAIL a run: send times of busy links, oversize packets, unconfigured losses, daemons that died
unasked.  Components that show an overloaded machine explain a result, and at worst WARN.  Stolen
time and late daemons are the exceptions: they change results by themselves.

If this kernel cannot measure a decisive component, the report says so and the verdict is WARN at
best.

The virtual clock has no load.  The remaining components there are links, by reference packets
before the measurement (reference_packets.py), dequeues of busy links to the nanosecond, and
unexplained drops.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from weft.testbed.linux import clock
from weft.testbed.linux.libbpf import BpfError
from weft.testbed.measure import kernel_counters, reference_packets
from weft.testbed.measure.kernel_counters import PortCounterReader, Snapshot
from weft.testbed.measure.queues import GapMonitor, Gaps, merge_ports
from weft.testbed.node_daemon import daemon_files
from weft.testbed.node_daemon.counters import FILE, CounterRow, DaemonCounters
from weft.testbed.runs.network_handle import NetworkHandle, device, ports

PASS, WARN, FAIL = "PASS", "WARN", "FAIL"
ORDER = (PASS, WARN, FAIL)
THIS = "this process"
ACTIVE: list[Fidelity] = []  # instances whose `with` block is open in this process

# Mininet-HiFi (CoNEXT 2012) reports 5.8 % at p99 for links at 100 Mbit/s.
GAP_PERCENT = 10.0
# A port with fewer windows has no 99th percentile; it counts only in the sum over all ports.
MIN_WINDOWS = 100
# dequeues that the program may miss before its sample is too small
UNSEEN_PERCENT = 20.0
# of a busy link's rate; on a quiet machine links are exact to 1 %
SHORTFALL_PERCENT = (1.0, 5.0)
# A daemon that waits 10 ms, a third of the usual interval between hellos, on each turn is slower
# than a real router's.
WAIT_MS = (2.0, 10.0)
# Ticks that ran more than one interval late; after three in a row a neighbour is declared dead.
LATE_TICKS_PERCENT = (0.1, 1.0)
STEAL_PERCENT = (1.0, 5.0)  # the emulation stood still while its clocks went on
PRESSURE_PERCENT = 75.0  # time in which any process waits for a processor
SQUEEZED_PER_S = 10.0  # each delays arriving packets by up to 2 ms
EXACT_NS = 1.0  # gap or delay under the virtual clock; the kernel counts whole ns
# Window under the virtual clock: the kernel rounds the time of each of up to 50 packets.
EXACT_WINDOW_NS = 64.0


@dataclass(frozen=True)
class Component:
    """One figure with its limits.

    Attributes:
        pass_limit: highest value for PASS.
        warn_limit: highest value for WARN; None: the component cannot FAIL.
        where: port, node or process with this value; "" for the machine.
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
    """The verdict on a run, its components, and what could not be measured with the reason.

    Attributes:
        decisive: every decisive component was measured.
        clock: "real" or "virtual"; it selects the components.
        daemon_processes: processes that served the daemons.
        overload: the component that shows most that the machine had too much to do; None if it
            shows nothing of that.
    """

    seconds: float
    components: tuple[Component, ...]
    not_measured: Mapping[str, str]
    decisive: bool
    clock: str = "real"
    daemon_processes: int = 0
    overload: Component | None = None

    @property
    def too_slow(self) -> bool:
        """Return True if it failed by times only, on a machine that had too much to do.

        Drops and deaths, of which none is permitted, are no matter of speed.
        """
        failed = [component for component in self.components if component.verdict == FAIL]
        only_times = all(component.pass_limit > 0 for component in failed)
        return bool(failed) and only_times and self.overload is not None

    @property
    def worst(self) -> Component:
        """Return the component with the worst verdict that exceeds its limit most."""
        return max(self.components, key=_severity)

    @property
    def verdict(self) -> str:
        worst = self.worst.verdict
        return worst if self.decisive or worst == FAIL else WARN

    @property
    def offender(self) -> str:
        """Return the cause of the verdict, such as "h3-eth0 dequeue gap p99 4.1 %"."""
        if self.verdict == self.worst.verdict:
            return str(self.worst)
        return f"{next(iter(self.not_measured))}: not measured"

    @property
    def line(self) -> str:
        """Return the verdict and its cause, such as "fidelity: WARN, processor pressure 100 %"."""
        return f"fidelity: {self.verdict}, {self.offender}"

    def as_dict(self) -> dict[str, Any]:
        """Return the report as JSON-able values."""
        return {
            "verdict": self.verdict,
            "clock": self.clock,
            "daemon_processes": self.daemon_processes,
            "worst": self.offender,
            "seconds": self.seconds,
            "components": [asdict(component) for component in self.components],
            "not_measured": dict(self.not_measured),
        }


class Fidelity:
    """Watch a network during a `with` block; afterwards `report` holds the verdict."""

    def __init__(self, net: NetworkHandle) -> None:
        self.net = net
        self._report: FidelityReport | None = None
        self._added: list[Component] = []
        self._stack = ExitStack()

    @property
    def report(self) -> FidelityReport:
        """Return the report.

        Raises:
            RuntimeError: the `with` block has not ended.
        """
        if self._report is None:
            raise RuntimeError("fidelity: not finished yet")
        return self._report

    @property
    def verdict(self) -> str:
        return self.report.verdict

    def add(self, component: Component) -> None:
        """Add a component that another instrument measured during this `with` block."""
        self._added.append(component)

    def __enter__(self) -> Fidelity:
        ACTIVE.append(self)
        with ExitStack() as stack:
            stack.callback(ACTIVE.remove, self)
            self._counters = stack.enter_context(PortCounterReader(self.net))
            self._gaps: GapMonitor | BpfError
            try:
                self._gaps = stack.enter_context(GapMonitor(self.net))
            except BpfError as error:
                self._gaps = error
            self._carrier = self._counters.carrier_changes()
            self._deviations = reference_packets.deviations(self.net) if clock.is_virtual() else {}
            self._before = self._counters.snapshot()
            self._rows_before = self._all_rows()
            self._supervisor = self._process_id("supervisor")
            self._daemons_before = _with_process(self._rows_before)
            self._load_before = kernel_counters.host_load(self._processes(self._daemons_before))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        with self._stack:
            if kind is None:
                self._report = self._judge()

    def _judge(self) -> FidelityReport:
        daemons = _with_process(self._all_rows())
        load = kernel_counters.host_load(self._processes(daemons))
        drops = self._counters.snapshot().since(self._before)
        missing: dict[str, str] = {}
        components = [*self._link_components(missing), self._drop_component(drops)]
        decisive = not missing
        machine: list[Component] = []
        if clock.is_virtual():
            components += self._reference_components()
        else:
            machine += _machine_components(self._load_before, load)
            machine += _wait_components(self._load_before, load, missing)
        machine += self._tick_components(daemons, missing)
        components += machine
        components += self._death_components()
        components += self._added
        return FidelityReport(
            seconds=load.at_s - self._load_before.at_s,
            components=tuple(components),
            not_measured=missing,
            decisive=decisive,
            clock="virtual" if clock.is_virtual() else "real",
            daemon_processes=len({row.pid for row in daemons.values()}),
            overload=max((c for c in machine if c.verdict != PASS), key=_severity, default=None),
        )

    def _all_rows(self) -> dict[int, CounterRow]:
        """Return the counter rows by node; none without daemons."""
        try:
            with closing(DaemonCounters(self.net.identity.directory / FILE)) as counters:
                return {node: counters.row(node) for node in range(len(counters))}
        except FileNotFoundError:
            return {}

    def _process_id(self, name: str) -> int | None:
        """Return the process id of a node's daemon or of the supervisor, by name."""
        return daemon_files.holder(self.net.identity.directory, name)

    def _processes(self, rows: Mapping[int, CounterRow]) -> dict[str, int]:
        """Return process ids: this process, and each daemon process by the first node it serves."""
        name = self.net.topology.naming.name
        first: dict[int, int] = {}
        for node, row in rows.items():
            first.setdefault(row.pid, node)
        return {THIS: os.getpid()} | {f"daemon {name(node)}": pid for pid, node in first.items()}

    def _device(self, index: int) -> str:
        return device(self.net, *ports(self.net)[index])

    def _link_components(self, missing: dict[str, str]) -> list[Component]:
        """Return the components on packet sizes, send times and rates of busy links."""
        if isinstance(self._gaps, BpfError):
            missing["dequeue gaps and sizes of packets"] = self._gaps.strerror or str(self._gaps)
            return []
        gaps = self._gaps.read()
        # Without rates no rate can be missed, and packets may be bundles.
        if not gaps:
            return []
        worst = max(gaps, key=lambda index: (gaps[index].oversize, gaps[index].longest_bytes))
        oversize = gaps[worst].oversize
        total = merge_ports(gaps.values())
        unseen = 100 * total.missed / max(1, total.missed + total.packets)
        busy = {
            self._device(index): port for index, port in gaps.items() if port.windows >= MIN_WINDOWS
        }
        if total.windows:
            busy["all ports"] = total
        where = self._device(worst) if oversize else ""
        return [
            at_most("packets over a frame", oversize, "", 0, 0, where),
            at_most("unseen dequeues", unseen, "%", UNSEEN_PERCENT, None),
            *_busy_components(busy),
        ]

    def _reference_components(self) -> list[Component]:
        """Return the largest deviation of the reference packets in gap, delay and number."""
        components = []
        for field, limit, unit in (
            ("gap_ns", EXACT_NS, "ns"),
            ("delay_ns", EXACT_NS, "ns"),
            ("packets", 0, "packets"),
        ):
            values = {
                index: abs(getattr(deviation, field))
                for index, deviation in self._deviations.items()
            }
            if values:
                worst = max(values, key=values.__getitem__)
                name = f"reference {field.partition('_')[0]} off by"
                where = self._device(worst)
                components.append(at_most(name, values[worst], unit, limit, limit, where))
        return components

    def _drop_component(self, drops: Snapshot) -> Component:
        """Return the unconfigured losses; ports whose carrier changed are left out."""
        carrier = self._counters.carrier_changes()
        losses = {
            index: port.unexplained_drops
            for index, port in drops.ports.items()
            if carrier.get(index) == self._carrier.get(index)
        }
        worst = max(losses, key=losses.__getitem__, default=0)
        count = losses.get(worst, 0)
        where = self._device(worst) if count else ""
        return at_most("unexplained drops", count, "packets", 0, 0, where)

    def _tick_components(
        self, daemons: Mapping[int, CounterRow], missing: dict[str, str]
    ) -> list[Component]:
        """Return the share of late ticks among all ticks of the daemons."""
        late = {}
        ticks = 0
        for node, row in daemons.items():
            before = self._daemons_before.get(node)
            if before and (before.pid, before.began_ns) == (row.pid, row.began_ns):
                late[node] = row.late_ticks - before.late_ticks
                ticks += row.ticks - before.ticks
            else:  # started during the measurement
                late[node] = row.late_ticks
                ticks += row.ticks
        if not ticks:
            if daemons:
                missing["timers of daemons"] = "no timer of a daemon expired meanwhile"
            return []
        worst = max(late, key=late.__getitem__)
        where = f"daemon {self.net.topology.naming.name(worst)}" if late[worst] else ""
        percent = 100 * sum(late.values()) / ticks
        return [at_most("late ticks", percent, "%", *LATE_TICKS_PERCENT, where)]

    def _death_components(self) -> list[Component]:
        """Return the counts of daemons that died or restarted unasked, and of lost supervisors."""
        if not self._rows_before:
            return []
        name = self.net.topology.naming.name
        deaths = {}
        restarts = {}
        for node, row in self._all_rows().items():
            before = self._rows_before[node]
            # A daemon that ends in order clears the process id of its row.
            vanished = (row.required or row.pid) and self._process_id(name(node)) is None
            deaths[node] = max(row.deaths - before.deaths, int(bool(vanished)))
            restarts[node] = row.restarts - before.restarts
        lost = self._supervisor is not None and self._process_id("supervisor") != self._supervisor
        return [
            at_most("daemons died", sum(deaths.values()), "", 0, 0, _first(deaths, name)),
            at_most("daemons restarted", sum(restarts.values()), "", 0, 0, _first(restarts, name)),
            at_most("supervisors lost", int(lost), "", 0, 0),
        ]


def _with_process(rows: Mapping[int, CounterRow]) -> dict[int, CounterRow]:
    """Return the rows of nodes whose daemon runs."""
    return {node: row for node, row in rows.items() if row.pid}


def _severity(component: Component) -> tuple[int, float]:
    """Return the sort key of a component: its verdict, then its value relative to the limit."""
    limit = component.pass_limit
    excess = component.value / limit if limit else float(component.value > 0)
    return ORDER.index(component.verdict), excess


def at_most(
    name: str, value: float, unit: str, pass_limit: float, warn_limit: float | None, where: str = ""
) -> Component:
    """Return a component whose value should be small."""
    if value <= pass_limit:
        verdict = PASS
    elif warn_limit is None or value <= warn_limit:
        verdict = WARN
    else:
        verdict = FAIL
    return Component(name, value, unit, pass_limit, warn_limit, verdict, where)


def _first(counts: Mapping[int, int], name: Callable[[int], str]) -> str:
    """Return the name of the first node with a count above 0."""
    return next((name(node) for node, count in counts.items() if count), "")


@contextmanager
def judged(net: NetworkHandle, tell: Callable[[FidelityReport], object]) -> Iterator[None]:
    """Watch `net` during a measurement, and pass the report to `tell` after it.

    An error in the block passes unjudged.  Under the virtual clock, which has no load, nothing is
    watched: reference packets would change what is measured.
    """
    if clock.is_virtual():
        yield
        return
    with Fidelity(net) as fidelity:
        yield
    tell(fidelity.report)


def gap_verdict(p90: float, p99: float) -> str:
    """Return PASS if 99 % of the windows deviate by at most GAP_PERCENT, WARN if 90 % do."""
    return PASS if p99 <= GAP_PERCENT else WARN if p90 <= GAP_PERCENT else FAIL


def add_component(net: NetworkHandle, component: Component) -> None:
    """Add `component` to the verdict of every active Fidelity that watches the run of `net`."""
    for fidelity in ACTIVE:
        if fidelity.net.identity.id == net.identity.id:
            fidelity.add(component)


def _busy_components(busy: Mapping[str, Gaps]) -> list[Component]:
    """Return the worst gap and the worst shortfall of busy ports, which are given by name."""
    if not busy:  # a link that is never busy cannot be late
        return [Component("dequeue gap p99", 0.0, "%", GAP_PERCENT, None, PASS)]
    if clock.is_virtual():
        late = max(busy, key=lambda name: busy[name].worst_ns)
        limit = EXACT_WINDOW_NS
        return [at_most("dequeue off its time by", busy[late].worst_ns, "ns", limit, limit, late)]
    short = max(busy, key=lambda name: busy[name].shortfall_percent)
    shortfall = max(0.0, busy[short].shortfall_percent)
    return [
        _gap_component(busy),
        at_most("shortfall of a busy link", shortfall, "%", *SHORTFALL_PERCENT, short),
    ]


def _gap_component(busy: Mapping[str, Gaps]) -> Component:
    """Return the gap of the worst port: its 90th percentile if that FAILs, else its 99th."""
    percentiles = {
        name: (gaps.deviation_percent(90), gaps.deviation_percent(99))
        for name, gaps in busy.items()
    }
    verdicts = {name: gap_verdict(*pair) for name, pair in percentiles.items()}
    worst = max(busy, key=lambda name: (ORDER.index(verdicts[name]), percentiles[name]))
    p90, p99 = percentiles[worst]
    verdict = verdicts[worst]
    if verdict == FAIL:
        return Component("dequeue gap p90", p90, "%", GAP_PERCENT, None, verdict, worst)
    return Component("dequeue gap p99", p99, "%", GAP_PERCENT, None, verdict, worst)


def _machine_components(
    before: kernel_counters.HostLoad, after: kernel_counters.HostLoad
) -> list[Component]:
    """Return the components on stolen time and on the receive backlog of the machine."""
    steal = kernel_counters.steal_percent(before, after)
    drops = after.softnet_dropped - before.softnet_dropped
    seconds = after.at_s - before.at_s
    squeezed_per_s = (after.softnet_squeezed - before.softnet_squeezed) / seconds
    return [
        at_most("time stolen by the hypervisor", steal, "%", *STEAL_PERCENT),
        at_most("drops of the receive backlog", drops, "packets", 0, None),
        at_most("squeezed receive rounds", squeezed_per_s, "per s", SQUEEZED_PER_S, None),
    ]


def _wait_components(
    before: kernel_counters.HostLoad, after: kernel_counters.HostLoad, missing: dict[str, str]
) -> list[Component]:
    """Return the components on waits for a processor: of the machine, here, and of the daemons."""
    components = []
    pressure = kernel_counters.pressure_percent(before, after)
    if pressure is None:
        missing["processor pressure"] = "this kernel has no PSI"
    else:
        components.append(at_most("processor pressure", pressure, "%", PRESSURE_PERCENT, None))
    waits_ms = kernel_counters.mean_waits_ms(before, after)
    if not waits_ms:
        missing["waits for a processor"] = "no process had a turn, or this kernel has no schedstat"
    own_ms = waits_ms.pop(THIS, None)
    if own_ms is not None:
        components.append(at_most("wait for a processor", own_ms, "ms", WAIT_MS[0], None, THIS))
    if waits_ms:
        worst = max(waits_ms, key=waits_ms.__getitem__)
        components.append(at_most("wait for a processor", waits_ms[worst], "ms", *WAIT_MS, worst))
    return components
