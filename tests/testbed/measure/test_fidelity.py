import json
import os
import socket
import struct
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from weft.testbed.linux import clock, netns
from weft.testbed.linux.clock import wait_until
from weft.testbed.linux.libbpf import BpfError
from weft.testbed.measure import fidelity, kernel_counters, queues
from weft.testbed.measure.fidelity import (
    FAIL,
    PASS,
    THIS,
    WARN,
    Component,
    Fidelity,
    FidelityReport,
    add_component,
    at_most,
    gap_verdict,
    judged,
)
from weft.testbed.measure.kernel_counters import PortCounters, Snapshot
from weft.testbed.measure.queues import BUCKETS, BUCKETS_PER_1, Gaps
from weft.testbed.node_daemon.counters import CounterRow
from weft.testbed.traffic.iperf import IperfSpec, iperf
from weft.topologies import build
from weft.topologies.core.link import LinkSpec, Mbps

LINK = LinkSpec(rate_bps=20 * Mbps, queue_packets=50)


@pytest.mark.parametrize(
    ("p90", "p99", "verdict"),
    [(1, 5.8, PASS), (10, 10, PASS), (10, 10.1, WARN), (9, 500, WARN), (10.1, 10.1, FAIL)],
)
def test_the_rule_of_the_gaps(p90, p99, verdict):
    assert gap_verdict(p90, p99) == verdict


def test_limits():
    assert [at_most("x", value, "%", 1, 5).verdict for value in (1, 1.1, 5, 5.1)] == [
        PASS,
        WARN,
        WARN,
        FAIL,
    ]
    assert at_most("x", 1e9, "%", 1, None).verdict == WARN


def test_a_report_in_one_line_has_the_verdict_and_its_cause():
    pressed = at_most("processor pressure", 100, "%", 75, None)
    assert report(pressed).line == "fidelity: WARN, processor pressure 100 %"


def test_the_virtual_clock_is_not_judged(monkeypatch):
    monkeypatch.setattr(clock, "is_virtual", lambda: True)
    lines = []
    with judged(SimpleNamespace(), lines.append):
        pass
    assert lines == []


@pytest.mark.kernel
@pytest.mark.real_clock("nothing is judged under the virtual clock")
def test_a_measurement_is_judged_and_an_error_is_not(network):
    net = network("star:n=2", LINK)
    lines = []
    with judged(net, lines.append):
        iperf(net, 0, 1, IperfSpec(seconds=1))
    assert [component.name for component in lines[0].components if "dequeue" in component.name]
    with pytest.raises(ValueError, match="wrong"), judged(net, lines.append):
        raise ValueError("wrong")
    assert len(lines) == 1


def report(*components: Component, decisive: bool = True) -> FidelityReport:
    return FidelityReport(1.0, components, {}, decisive)


def test_a_run_is_as_good_as_its_worst_component():
    good, fair, bad = (
        at_most("a", 0.5, "%", 1, 5),
        at_most("b", 3, "%", 1, 5, "h3-eth0"),
        at_most("c", 1, "", 0, 0),
    )
    close = at_most("d", 0.9, "ms", 1, 5)
    assert (report(good, close).verdict, report(good, close).worst) == (PASS, close)
    assert (report(good, fair, close).verdict, str(report(good, fair, close).worst)) == (
        WARN,
        "h3-eth0 b 3 %",
    )
    assert (report(good, fair, bad).verdict, report(good, fair, bad).worst) == (FAIL, bad)


def test_what_is_decisive_and_not_measured_makes_warn_at_best():
    good, bad = at_most("a", 0.5, "%", 1, 5), at_most("c", 1, "", 0, 0)
    unknown = FidelityReport(1.0, (good,), {"dequeue gaps": "no BTF"}, decisive=False)
    assert (unknown.verdict, unknown.offender) == (WARN, "dequeue gaps: not measured")
    assert report(bad, decisive=False).verdict == FAIL
    assert report(good).offender == "a 0.5 %"


@pytest.mark.parametrize(
    ("components", "overload", "too_slow"),
    [
        ((at_most("shortfall", 38, "%", 1, 5),), at_most("wait", 5, "ms", 2, None), True),
        ((at_most("shortfall", 38, "%", 1, 5),), None, False),  # a wrong rate
        ((at_most("shortfall", 3, "%", 1, 5),), at_most("wait", 5, "ms", 2, None), False),
        (
            (at_most("shortfall", 38, "%", 1, 5), at_most("unexplained drops", 1, "", 0, 0)),
            at_most("wait", 5, "ms", 2, None),
            False,
        ),
    ],
)
def test_a_machine_is_too_slow_if_it_shows_that_and_times_alone_are_wrong(
    components: tuple[Component, ...], overload: Component | None, too_slow: bool
) -> None:
    judged_report = FidelityReport(1.0, components, {}, decisive=True, overload=overload)
    assert judged_report.too_slow is too_slow


@pytest.mark.kernel
@pytest.mark.real_clock("a virtual machine has no load")
def test_a_process_that_waits_for_a_processor_shows_an_overloaded_machine(network, monkeypatch):
    net = network("star:n=2", LINK)
    monkeypatch.setattr(fidelity, "WAIT_MS", (-1.0, 1e9))
    with Fidelity(net) as watching:
        before = kernel_counters.waits(os.getpid())
        wait_until(
            "this process has had another turn",
            lambda: kernel_counters.waits(os.getpid()).turns > before.turns,
        )
    assert watching.report.overload
    assert watching.report.overload.verdict == WARN


def windows(percents: dict[int, int]) -> Gaps:
    """So many windows that took so many percent of their ideal time."""
    histogram = [0] * BUCKETS
    for percent, count in percents.items():
        histogram[min(percent * BUCKETS_PER_1 // 100, BUCKETS - 1)] += count
    return Gaps(0, 0, 0, 0, 0, 0, 0, tuple(histogram))


class Instruments:
    """Instruments of a healthy run of 10 s on a network with three daemons; a test changes them."""

    def __init__(self, monkeypatch):
        self.network = SimpleNamespace(
            topology=build("dcell:n=3,k=1"),
            identity=SimpleNamespace(id="one", directory=Path("/of/one")),
            ifindex=lambda node, port: 100 * node + port,
        )
        self.load = kernel_counters.HostLoad(5.0, 0, 0.0, 0.0, 7, 100, {})
        row = CounterRow(
            **dict.fromkeys([field.name for field in fields(CounterRow)], 0) | {"lateness": ()}
        )
        self.rows = {
            node: replace(row, pid=9, began_ns=1, ticks=50, late_ticks=2) for node in range(3)
        }
        self.holders = {"supervisor": 8, "h0": 9, "h1": 9, "h2": 9}
        self.gaps = {0: windows({100: 1000}), 301: windows({100: 1000})}
        self.ports = {0: PortCounters(link_drops=4), 301: PortCounters()}
        self.carrier = {0: 1, 301: 1}
        monkeypatch.setattr(fidelity, "PortCounterReader", lambda net: nullcontext(self))
        monkeypatch.setattr(fidelity, "GapMonitor", lambda net: nullcontext(self))
        monkeypatch.setattr(fidelity, "DaemonCounters", lambda path: Rows(self.rows))
        monkeypatch.setattr(fidelity.kernel_counters, "host_load", lambda processes: self.load)
        monkeypatch.setattr(
            fidelity.daemon_files, "holder", lambda directory, name: self.holders.get(name)
        )

    def carrier_changes(self):
        return dict(self.carrier)

    def snapshot(self):
        return Snapshot(self.load.at_s, dict(self.ports))

    def read(self):
        return self.gaps

    def pass_time(self):
        waits = {
            THIS: kernel_counters.Waits(10_000_000, 10),
            "daemon h0": kernel_counters.Waits(9_000_000, 9),
        }
        self.load = kernel_counters.HostLoad(15.0, 5_000_000, 20.0, 0.1, 7, 150, waits)
        self.rows = {node: replace(row, ticks=150) for node, row in self.rows.items()}

    def change_row(self, node, **changed):
        self.rows[node] = replace(self.rows[node], **changed)


class Rows(dict):
    """Counters of the daemons, as their file has them."""

    def row(self, node):
        return self[node]

    def close(self):
        pass


def count_drops(it):
    it.ports = {0: PortCounters(link_drops=6, link_errors=1), 301: PortCounters(control_drops=2)}


def fail_a_link(it):
    count_drops(it)
    it.carrier[0] += 2


def shorten_turns(it):
    waits = {
        THIS: kernel_counters.Waits(30_000_000, 10),
        "daemon h1": kernel_counters.Waits(110_000_000, 10),
    }
    it.load = replace(it.load, waits=waits)


def restart(it):
    it.change_row(2, began_ns=2, ticks=20, late_ticks=1, deaths=1, restarts=1)


def press(it):
    it.load = replace(
        it.load, pressure_us=8_000_000, steal_s=0.4, softnet_dropped=9, softnet_squeezed=250
    )


def exceed_frames(it):
    it.gaps[301] = replace(it.gaps[301], oversize=3, longest_bytes=9000, packets=70, missed=30)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda it: None, {}),
        (count_drops, {"unexplained drops": (3, FAIL, "h0-eth0")}),
        (fail_a_link, {"unexplained drops": (2, FAIL, "h3-eth1")}),
        (
            press,
            {
                "processor pressure": (80, WARN, ""),
                "time stolen by the hypervisor": (2, WARN, ""),
                "drops of the receive backlog": (2, WARN, ""),
                "squeezed receive rounds": (15, WARN, ""),
            },
        ),
        (
            shorten_turns,
            {"wait for a processor": [(3, WARN, THIS), (11, FAIL, "daemon h1")]},
        ),
        (lambda it: it.change_row(1, late_ticks=3), {"late ticks": (100 / 300, WARN, "daemon h1")}),
        (lambda it: it.change_row(0, late_ticks=6), {"late ticks": (400 / 300, FAIL, "daemon h0")}),
        (
            restart,
            {
                "late ticks": (100 / 220, WARN, "daemon h2"),
                "daemons died": (1, FAIL, "h2"),
                "daemons restarted": (1, FAIL, "h2"),
            },
        ),
        (lambda it: it.holders.pop("h1"), {"daemons died": (1, FAIL, "h1")}),
        (lambda it: it.holders.update(supervisor=11), {"supervisors lost": (1, FAIL, "")}),
        (
            exceed_frames,
            {"packets over a frame": (3, FAIL, "h3-eth1"), "unseen dequeues": (30, WARN, "")},
        ),
        (
            lambda it: it.gaps.update(
                {301: replace(windows({100: 1000}), elapsed_ns=100, ideal_ns=97)}
            ),
            {"shortfall of a busy link": (3, WARN, "h3-eth1")},
        ),
    ],
)
def test_each_fault_of_a_run_is_a_component_with_its_place(monkeypatch, change, expected):
    instruments = Instruments(monkeypatch)
    with Fidelity(instruments.network) as watch:
        instruments.pass_time()
        change(instruments)
    faults = {}
    for component in watch.report.components:
        if component.verdict != PASS:
            fault = (pytest.approx(component.value), component.verdict, component.where)
            faults.setdefault(component.name, []).append(fault)
    assert faults == {
        name: fault if isinstance(fault, list) else [fault] for name, fault in expected.items()
    }
    assert watch.report.seconds == 10
    assert (watch.report.daemon_processes, watch.report.decisive) == (1, True)
    machine = {"wait for a processor", "late ticks", "processor pressure"}
    assert (watch.report.overload is not None) == bool(machine & expected.keys())


def test_what_this_machine_cannot_measure_is_said(monkeypatch):
    """A daemon whose timer never expired, a kernel without PSI, and none that had a turn."""
    instruments = Instruments(monkeypatch)
    with Fidelity(instruments.network) as watch:
        at_s = instruments.load.at_s + 1
        instruments.load = replace(instruments.load, at_s=at_s, pressure_us=None)
    assert watch.report.not_measured.keys() == {
        "processor pressure",
        "waits for a processor",
        "timers of daemons",
    }
    assert watch.report.decisive
    assert watch.verdict == PASS


def test_what_an_instrument_finds_counts_for_those_who_watch_its_run_and_no_others(monkeypatch):
    first, second = (
        Fidelity(SimpleNamespace(identity=SimpleNamespace(id=name))) for name in ("one", "other")
    )
    monkeypatch.setattr("weft.testbed.measure.fidelity.ACTIVE", [first, second])
    late = at_most("late pings", 500, "ms", 20, 100)
    add_component(SimpleNamespace(identity=SimpleNamespace(id="one")), late)
    assert (first._added, second._added) == ([late], [])


def test_one_bad_port_among_many_good_ones_is_named():
    good, bad = windows({100: 1000}), windows({100: 85, 150: 15})
    component, _ = fidelity._busy_components({"h0-eth0": good, "h3-eth1": bad, "w0-eth2": good})
    assert (component.where, component.verdict, component.name) == (
        "h3-eth1",
        FAIL,
        "dequeue gap p90",
    )
    component, _ = fidelity._busy_components(
        {"h0-eth0": good, "h3-eth1": windows({100: 985, 80: 15})}
    )
    assert (component.where, component.verdict, round(component.value)) == ("h3-eth1", WARN, 20)
    (component,) = fidelity._busy_components({})
    assert component.verdict == PASS


@pytest.fixture(autouse=True)
def _program(compiled):
    compiled(queues.OBJECT.with_suffix(".c"))


def part(report: FidelityReport, name: str) -> Component:
    return next(component for component in report.components if component.name.startswith(name))


@pytest.mark.kernel
def test_every_component_is_reported_and_json_able(network):
    net = network("dcell:n=3,k=1", LINK)
    with Fidelity(net) as watch:
        watch.add(at_most("another instrument", 1, "", 2, None))
        with pytest.raises(RuntimeError, match="not finished"):
            _ = watch.report
        iperf(net, 0, 3, IperfSpec(seconds=1, congestion="reno"))
    document = json.loads(json.dumps(watch.report.as_dict()))
    assert document["verdict"] == watch.verdict in (PASS, WARN, FAIL)
    names = {component["name"] for component in document["components"]}
    of_clock = "reference gap off by" if clock.is_virtual() else "time stolen by the hypervisor"
    assert {"another instrument", "packets over a frame", "unexplained drops", of_clock} <= names
    assert part(watch.report, "dequeue").where
    for name in ("packets over a frame", "unexplained drops"):
        assert part(watch.report, name).verdict == PASS
    assert watch.report.decisive


@pytest.mark.kernel
def test_a_link_slower_than_claimed_fails(network, monkeypatch):
    net = network("dcell:n=3,k=1", LINK)
    true = queues._rates(net)
    monkeypatch.setattr(
        queues,
        "_rates",
        lambda net: {index: (2 * one[0], one[1]) for index, one in true.items()},
    )
    with Fidelity(net) as watch:
        iperf(net, 0, 3, IperfSpec(seconds=1, congestion="reno"))
    assert watch.verdict == FAIL
    assert part(watch.report, "dequeue").where == "h0-eth1"
    assert part(watch.report, "dequeue" if clock.is_virtual() else "shortfall").verdict == FAIL


@pytest.mark.kernel
def test_a_loss_that_nobody_configured_fails_and_one_on_a_failed_link_does_not(network):
    net = network("dcell:n=3,k=1", LINK)
    with netns.inside(net.netns(0)):
        raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    raw.bind(("h0-eth1", 0))
    frame = bytes([2, 0, 0, 3, 0, 1, 2, 0, 0, 0, 0, 1]) + struct.pack(">H", 0x88B5) + bytes(46)
    for failing, verdict in ((False, FAIL), (True, PASS)):
        with Fidelity(net) as watch:
            raw.send(frame)
            lost = net.ifindex(3, 1)

            def drops(watch: Fidelity = watch, lost: int = lost) -> int:
                return watch._counters.snapshot().since(watch._before).ports[lost].unexplained_drops

            wait_until("the drop", drops)
            if failing:
                net.fail("h0-h3")
                net.restore("h0-h3")
        drop = part(watch.report, "unexplained drops")
        assert drop.verdict == verdict
        assert (drop.value, drop.where) == ((0, "") if failing else (1, "h3-eth1"))
    raw.close()


@pytest.mark.kernel
@pytest.mark.real_clock("whoever computes without end stops the virtual clock")
def test_a_hard_pressed_machine_is_noticed(network):
    """Four busy processes: more waiting than without them."""
    net = network("dcell:n=3,k=1", LINK)

    def pressure() -> float:
        with Fidelity(net) as watch:
            iperf(net, 0, 3, IperfSpec(seconds=1, congestion="reno"))
        return part(watch.report, "processor pressure").value

    alone = pressure()
    hogs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(4)]
    try:
        together = pressure()
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()
    assert together > min(alone, 50)  # others may have pressed it before, too


@pytest.mark.kernel
def test_daemons_are_watched_by_their_own_counters(network):
    net = network("dcell:n=3,k=1", LINK, "dr")
    with Fidelity(net) as watch:
        assert len(watch._daemons_before) == net.topology.servers
        wait_until(
            "every daemon's timer fired",
            lambda: all(
                row.ticks > watch._daemons_before[node].ticks
                for node, row in fidelity._with_process(watch._all_rows()).items()
            ),
        )
    assert part(watch.report, "late ticks").unit == "%"
    waits = {
        component.where
        for component in watch.report.components
        if component.name == "wait for a processor"
    }
    assert clock.is_virtual() or fidelity.THIS in waits
    assert clock.is_virtual() or any(where.startswith("daemon h") for where in waits)


@pytest.mark.kernel
def test_a_kernel_that_cannot_is_told_and_warns_at_best(network, monkeypatch):
    net = network("dcell:n=3,k=1", LINK)

    def refuse(net: object) -> None:
        raise BpfError(1, "bpf fidelity.bpf.o: kernel has no BTF")

    monkeypatch.setattr(fidelity, "GapMonitor", refuse)
    with Fidelity(net) as watch:
        pass
    assert watch.verdict in (WARN, FAIL)
    assert any("no BTF" in reason for reason in watch.report.not_measured.values())
    assert not watch.report.decisive


@pytest.mark.kernel
def test_an_exception_within_passes_and_leaves_no_report(network):
    net = network("dcell:n=3,k=1", LINK)
    watch = Fidelity(net)
    with pytest.raises(KeyError), watch:
        raise KeyError
    with pytest.raises(RuntimeError):
        _ = watch.report


@pytest.mark.kernel
def test_without_rates_nothing_can_be_late(network):
    net = network("dcell:n=3,k=1", None)
    with Fidelity(net) as watch:
        pass
    assert watch.report.decisive
    assert not [component for component in watch.report.components if "gap" in component.name]
