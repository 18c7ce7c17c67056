"""Measurements on two machines whose clocks differ, each with one result."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.testbed.cluster.machines_here import ROOT, WEFT, Machines, machines_here, weft
from weft.testbed.cluster import measures as cluster_measures
from weft.testbed.cluster.machines import AHEAD_S
from weft.testbed.cluster.measures import Measures
from weft.testbed.linux import clock
from weft.testbed.linux.clock import wait_until
from weft.testbed.observe.pcapng import INBOUND, OUTBOUND, CapturedPacket, read
from weft.testbed.traffic.flow_results import Flow
from weft.testbed.traffic.flows import FlowOptions
from weft.testbed.traffic.iperf import IperfSpec
from weft.topologies import build

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.real_clock("machines are namespaces with processes of their own"),
]
SPEC = "dcell:n=4,k=1"


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    with machines_here(2, tmp_path) as machines:
        yield machines


@pytest.fixture
def measures(machines: Machines, name: str) -> Iterator[Measures]:
    """Yield the measurements of a network over two machines."""
    weft("up", SPEC, "--rate", "20mbit", "--machines", str(machines.file), "--detach", name)
    with Measures(name) as measures:
        yield measures


def both_ways(measures: Measures) -> list[tuple[int, int]]:
    """Return a pair of servers on different machines, in both directions."""
    first, second = measures.run.parts
    servers = build(SPEC).servers
    a, b = (next(node for node in part.nodes if node < servers) for part in (first, second))
    return [(a, b), (b, a)]


def test_pings_flows_and_tests_of_iperf_have_one_result_each(measures):
    pairs = [*both_ways(measures), (0, 1), (1, 19)]
    table = measures.ping(pairs, count=3, timeout_s=10)
    assert sorted((ping.src, ping.dst) for ping in table.pings) == sorted(pairs)
    assert [ping.received for ping in table.pings] == [3] * 4
    rows = [Flow(0.1 * turn, *pair, 30_000) for turn in range(2) for pair in pairs]
    options = FlowOptions(deadline_s=60, congestion_control="cubic")
    flows = measures.run_flows(rows, options)
    assert [result.flow for result in flows.results] == sorted(rows)
    for result in flows.results:
        assert (result.received_bytes, result.error) == (30_000, None)
        assert result.tcp
        assert result.tcp.segments
        # clocks of the two machines differ by more than a flow may take
        assert result.seconds
        assert 0 < result.seconds < options.deadline_s
    src, dst = pairs[0]
    assert measures.iperf(src, dst, IperfSpec(seconds=1)).goodput_bps > 1e6
    assert measures.iperf(dst, src, IperfSpec(seconds=1, udp_rate_bps=10**6)).packets


def test_outages_of_all_machines_are_on_one_clock(measures, name):
    pairs = both_ways(measures)
    began_s = clock.monotonic()
    measures.start_outages(pairs)
    node = measures.run.topology.naming.name(pairs[0][0])
    failed_s = clock.monotonic()
    weft("fail", node, "--run", name)
    weft("restore", node, "--run", name)
    restored_s = clock.monotonic()
    table = measures.stop_outages()
    ended_s = clock.monotonic()
    for offset, ahead_s in zip(measures.offsets, (0, AHEAD_S), strict=True):
        assert abs(offset.ahead_s - ahead_s) <= offset.bound_s < 1
    assert began_s < table.begin_s < failed_s
    assert restored_s < table.end_s < ended_s
    assert [(outage.src, outage.dst) for outage in table.outages] == pairs
    for outage in table.outages:
        assert outage.gaps
        longest = max(outage.gaps, key=lambda gap: gap.length_s(table.end_s))
        assert began_s < longest.begin_s < restored_s


def test_a_verdict_names_a_cut_link_that_the_underlay_makes_slower(measures):
    measures.start_fidelity()
    measures.ping(both_ways(measures))
    report = measures.stop_fidelity()
    first, second = measures.run.parts
    underlay_us = min(first.underlay_us["m2"], second.underlay_us["m1"])
    delay, *others = report.components
    links = {measures.run.topology.link_name(link) for link in first.cut}
    assert (delay.where in links, delay.verdict) == (underlay_us > 0, "WARN")
    assert delay.value >= underlay_us
    assert {component.where.partition(" ")[0] for component in others} == {"m1", "m2"}
    assert report.verdict != "PASS"


def test_captures_of_several_machines_are_one_file_by_time(measures, name, tmp_path):
    nodes = [measures.run.topology.naming.name(src) for src, _ in both_ways(measures)]
    file = tmp_path / "new" / f"{name}.pcapng"
    command = [*WEFT, "capture", "-o", str(file.parent), "--run", name]
    assert subprocess.run([*command, "h9999"], cwd=ROOT, check=False).returncode == 2
    assert not file.parent.exists()
    for end in (signal.SIGINT, signal.SIGTERM):
        with subprocess.Popen(
            [*command, *nodes], cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True
        ) as process:
            try:
                assert process.stdout
                assert process.stdout.readline() == "capturing\n"
                assert not list(Path(tempfile.gettempdir()).glob(f"weft-capture-{name}-*"))
                measures.ping(both_ways(measures), count=3)
            finally:
                os.killpg(process.pid, end)  # as a terminal does
            lines = process.stdout.read().splitlines()
        packets = list(read(file))
        assert {packet.interface.partition("-")[0] for packet in packets} == set(nodes)
        assert packets == sorted(packets, key=lambda packet: packet.time_ns)
        assert lines[-1] == str(file)
        assert sum(int(line.split()[1]) for line in lines[:-1]) == len(packets)
        file.unlink()


def test_packets_of_a_clock_that_is_ahead_are_moved_back(tmp_path):
    near = [CapturedPacket("h0-eth0", 10**18 + turn, b"near", 99, OUTBOUND) for turn in (0, 2000)]
    far = [CapturedPacket("h1-eth0", 10**18 + 5 * 10**9 + 1000, b"far", 3, INBOUND)]
    file = tmp_path / "both.pcapng"
    cluster_measures.write(file, [(near, 0.0), (far, 5.0)], 64)
    assert list(read(file)) == [near[0], far[0]._replace(time_ns=10**18 + 1000), near[1]]


def test_a_machine_whose_measurements_die_is_named_and_the_others_leave_nothing(measures, machines):
    pairs = both_ways(measures)
    first, second = machines.all
    measures._call("iperf server", {0: (pairs[0][0],)})
    assert "iperf3" in first.run("ps", "-e")
    (part,) = (pid for pid, line in second.processes().items() if b"\0agent\0--run\0" in line)
    os.kill(part, signal.SIGKILL)
    for _ in range(2):
        with pytest.raises(OSError, match="m2: measurements have ended; begin anew"):
            measures.ping(pairs)
    measures.close()
    assert "iperf3" not in first.run("ps", "-e")


def test_a_request_ends_with_the_script_that_made_it(measures, machines, name):
    def measuring() -> set[int]:
        lines = machines.all[0].processes()
        return {pid for pid, line in lines.items() if b"\0agent\0--run\0" in line}

    before = measuring()
    with Measures(name) as interrupted:
        interrupted._call("clock", {0: ("monotonic",)})  # it has begun
        pairs = both_ways(measures)[:1]
        interrupted._peers[0].send(("ping", (pairs,), {"count": 60, "interval_ms": 1e3}))
        interrupted._peers[0].close()
        # one of an earlier request may end meanwhile
        wait_until("its process has ended", lambda: measuring() <= before)
    assert measures.ping(both_ways(measures), count=1).pings


@pytest.mark.parametrize("change", [{"open_before": True}, {"transport": "mptcp:subflows=2"}])
def test_options_of_one_machine_are_refused(measures, change):
    options = FlowOptions(deadline_s=1, congestion_control="cubic", **change)
    with pytest.raises(ValueError, match="several machines need transport tcp, no open_before"):
        measures.run_flows([Flow(0.0, *pair, 1) for pair in both_ways(measures)], options)
