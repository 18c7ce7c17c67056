"""Cost of measuring on 156 servers: pings and paths of all pairs, counters, the verdict.

Run as root.
"""

from __future__ import annotations

import ctypes
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from bench.report import Line, show
from weft.testbed.linux import libbpf
from weft.testbed.machine import doctor
from weft.testbed.measure.dequeue_gaps import GapMonitor
from weft.testbed.measure.fidelity import Fidelity
from weft.testbed.measure.ping import ping
from weft.testbed.measure.port_counters import PortCounterReader
from weft.testbed.measure.traceroute import ForwardingTables, fib_paths, trace
from weft.testbed.network.network import RunningNetwork
from weft.testbed.runs.network_handle import all_pairs
from weft.topologies import build
from weft.topologies.core.address import dotted
from weft.topologies.core.link import LinkSpec, Mbps

LINK = LinkSpec(rate_bps=20 * Mbps, queue_packets=250)
BPF_STATS_RUN_TIME = 0


def timed(work: Callable[[], object]) -> float:
    """Return the seconds that `work` takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def dequeue_cost_ns(net: RunningNetwork) -> float:
    """Return the mean run time of the dequeue program, as the kernel counts it."""
    enable = libbpf.library().bpf_enable_stats
    enable.argtypes = [ctypes.c_int]
    counting = enable(BPF_STATS_RUN_TIME)
    with GapMonitor(net) as monitor, open(counting, "rb"):
        ping(net, all_pairs(net))
        information = Path(f"/proc/self/fdinfo/{monitor.program_fd}").read_text()
    counts = dict(line.split(":\t") for line in information.splitlines())
    return int(counts["run_time_ns"]) / int(counts["run_cnt"])


def tc_shows_all(net: RunningNetwork) -> None:
    """Read the counters of every queue by `tc`, one process for each namespace."""
    for node in range(net.topology.nodes):
        subprocess.run(
            ["tc", "-s", "-j", "-n", net.plan.namespace(node), "qdisc"],
            stdout=subprocess.DEVNULL,
            check=True,
        )


def ping_processes(net: RunningNetwork, count: int) -> None:
    """Run a `ping` process for each of the first `count` pairs."""
    for src, dst in all_pairs(net)[:count]:
        address = dotted(net.topology.naming.address(dst))
        command = ["ip", "netns", "exec", net.plan.namespace(src), "ping", "-c1", address]
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)


def lines(net: RunningNetwork) -> list[Line]:
    """Return all figures of `net`."""
    pairs = all_pairs(net)

    def tables() -> None:
        with ForwardingTables(net) as fib:
            for pair in pairs:
                fib_paths(fib, *pair)

    def watch() -> None:
        with Fidelity(net):
            pass

    with PortCounterReader(net) as counters:
        snapshot = timed(counters.snapshot)
    by_tc = timed(lambda: tc_shows_all(net))
    few = 20
    processes = len(pairs) / few * timed(lambda: ping_processes(net, few))
    pinging = timed(lambda: ping(net, pairs))
    tracing = timed(lambda: trace(net, pairs))
    return [
        Line(f"ping of {len(pairs)} pairs", pinging, "s"),
        Line("  a process for each pair, by comparison", processes / pinging, "x", at_least=20),
        Line("their real paths, hop by hop", tracing, "s"),
        Line("  compared with pinging them", tracing / pinging, "x", at_most=5),
        Line("their paths by the forwarding tables", timed(tables), "s"),
        Line(f"counters of {2 * len(net.topology.links)} ports", 1000 * snapshot, "ms"),
        Line("  by tc, by comparison", by_tc / snapshot, "x", at_least=5),
        Line("fidelity, beginning and end", 1000 * timed(watch), "ms"),
        Line("fidelity, per dequeue", dequeue_cost_ns(net), "ns", at_most=500),
        Line(
            "doctor, everything tried",
            1000 * timed(lambda: doctor.probe(fresh=True)),
            "ms",
            at_most=1500,
        ),
    ]


def main() -> None:
    """Print all figures for a DCell of 156 servers."""
    net = RunningNetwork.create(build("dcell:n=3,k=2"), LINK, scheme="static")
    try:
        show("What measuring costs", lines(net))
    finally:
        net.down()


if __name__ == "__main__":
    main()
