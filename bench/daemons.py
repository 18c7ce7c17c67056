"""Cost, detection time and false alarms of 156 routing daemons.

Run as root, on a quiet machine: DCell_{2,3}, hellos every 30 ms, three of which may be missing.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median

import numpy as np
import psutil

from bench.report import Line, arguments, in_turns, show
from weft.testbed.linux.clock import wait_until
from weft.testbed.measure.kernel_counters import pss_kib
from weft.testbed.network.network import RunningNetwork
from weft.testbed.traffic.iperf import IperfSpec, iperfs
from weft.topologies import build
from weft.topologies.core.failures import draw
from weft.topologies.core.link import LinkSpec, Mbps

TOPOLOGY = build("dcell:n=3,k=2")
LINK = LinkSpec(rate_bps=20 * Mbps, queue_packets=250)
WINDOW_S = 5.0
TURNS = 3
FAILED = draw(range(len(TOPOLOGY.links)), count=10, generator=np.random.default_rng(1)).tolist()


def cpu_s(pids: set[int]) -> float:
    """Return the processor time of these processes."""
    times = [psutil.Process(pid).cpu_times() for pid in pids]
    return sum(time.user + time.system for time in times)


def load(pids: set[int]) -> float:
    """Return the processors that these processes use during WINDOW_S."""
    before_s = cpu_s(pids)
    begin_s = time.monotonic()
    time.sleep(WINDOW_S)
    return (cpu_s(pids) - before_s) / (time.monotonic() - begin_s)


@contextmanager
def up(packed: int, *, authenticated: bool = True) -> Iterator[RunningNetwork]:
    """Yield the network with its daemons in `packed` processes; 0: a process each."""
    network = RunningNetwork.create(
        TOPOLOGY, LINK, scheme="dr", packed=packed, authenticated=authenticated
    )
    try:
        yield network
    finally:
        network.down()


def pids(network: RunningNetwork) -> set[int]:
    """Return the daemons' processes."""
    return {row.pid for row in network.rows().values()}


def noticed_ms(network: RunningNetwork, link: int, *, silent: bool) -> float:
    """Return the time from the failure of `link` until a daemon at an end notices."""
    name = network.topology.link_name(link)
    before = {node: row.losses for node, row in network.rows().items()}
    begin_ns = time.monotonic_ns()
    network.fail(name, silent=silent)

    def losses_ns() -> list[int]:
        return [row.lost_ns for node, row in network.rows().items() if row.losses > before[node]]

    noticed_ns = min(wait_until(f"{name} noticed", losses_ns, timeout_s=10))
    network.restore(name)
    network.wait_until_converged()
    return (noticed_ns - begin_ns) / 1e6


def message_us(packed: int, *, authenticated: bool) -> tuple[float, list[float]]:
    """Return the processor time of a message, all included, and of silent failures noticed (ms)."""
    with up(packed, authenticated=authenticated) as network:
        before = sum(row.received for row in network.rows().values())
        begin_s = cpu_s(pids(network))
        time.sleep(WINDOW_S)
        messages = sum(row.received for row in network.rows().values()) - before
        us = (cpu_s(pids(network)) - begin_s) / messages * 1e6
        return us, [noticed_ms(network, link, silent=True) for link in FAILED]


def authentication(packed: int) -> list[Line]:
    """Return what authentication adds to processor time and detection."""
    results = in_turns(
        {
            "without": lambda: message_us(packed, authenticated=False),
            "with": lambda: message_us(packed, authenticated=True),
        },
        TURNS,
    )
    us = {name: median(run[0] for run in runs) for name, runs in results.items()}
    added = 100 * (us["with"] / us["without"] - 1)
    layout = f"{packed or 'as many'} processes"
    lines = [Line(f"{layout}: authentication adds to processor time", added, "%", at_most=15)]
    for name, runs in results.items():
        ms = median(delay_ms for _, delays_ms in runs for delay_ms in delays_ms)
        lines.append(Line(f"  silent failure noticed {name} authentication, median", ms, "ms"))
    return lines


def false_alarms(network: RunningNetwork, seconds: int) -> int:
    """Return the neighbours lost while TCP fills links and nothing fails."""
    before = sum(row.losses for row in network.rows().values())
    pairs = [(node, node + 78) for node in range(0, 78, 13)]
    iperfs(network, pairs, IperfSpec(seconds=seconds))
    return sum(row.losses for row in network.rows().values()) - before


def process_each(alarm_s: int) -> list[Line]:
    """Return cost, detection and false alarms with a process for each daemon."""
    with up(0) as network:
        share = 100 * load(pids(network))
        memory_mb = median(pss_kib(pid) for pid in pids(network)) / 1024
        announced_ms = [noticed_ms(network, link, silent=False) for link in FAILED]
        silent_ms = [noticed_ms(network, link, silent=True) for link in FAILED]
        alarms = false_alarms(network, alarm_s)
    return [
        Line("a process per node: share of one core", share, "%", at_most=100),
        Line("a process per node: memory of one", memory_mb, "MB", at_most=2),
        Line("announced failure noticed, median", median(announced_ms), "ms", at_most=10),
        Line("silent failure noticed, median", median(silent_ms), "ms", at_most=100),
        Line("silent failure noticed, worst", max(silent_ms), "ms", at_most=100),
        Line(f"false alarms in {alarm_s} s under TCP load", alarms, "", at_most=0),
    ]


def main() -> None:
    """Print cost, detection and alarms, and the cost with two processes."""
    seconds = arguments(__doc__, alarm_s=300).alarm_s
    lines = process_each(seconds)
    with up(2) as network:
        share = 100 * load(pids(network))
    lines.append(Line("two processes for all: share of one core", share, "%", at_most=100 / 3))
    show("156 routing daemons", [*lines, *authentication(2), *authentication(0)])


if __name__ == "__main__":
    main()
