"""Cost, detection time and false alarms of 156 routing daemons.

Run as root, on a quiet machine: DCell_{2,3}, hellos every 30 ms, three of which may be missing.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bench.report import Line, show
from weft.testbed.linux.clock import wait_until
from weft.testbed.measure.host_load import pss_kib
from weft.testbed.network.network import RunningNetwork
from weft.testbed.traffic.iperf import IperfSpec, iperfs
from weft.topologies import build
from weft.topologies.core.failures import draw
from weft.topologies.core.link import LinkSpec, Mbps
from weft.topologies.core.topology import Topology

SPEC = "dcell:n=3,k=2"
LINK = LinkSpec(rate_bps=20 * Mbps, queue_packets=250)
WINDOW_S = 5.0
FAILURES = 10
TURNS = 3


def cpu_s(pids: set[int]) -> float:
    """Processor time that these processes have used."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def cost(network: RunningNetwork) -> tuple[float, float]:
    """Return the share of a core of all daemons, and the median memory of one in MB."""
    pids = {row.pid for row in network.rows().values()}
    before, began = cpu_s(pids), time.monotonic()
    time.sleep(WINDOW_S)
    share = (cpu_s(pids) - before) / (time.monotonic() - began)
    return share, statistics.median(pss_kib(pid) for pid in pids) / 1024


def us_per_message(
    topology: Topology, packed: int, among: Sequence[int], *, authenticated: bool
) -> list[float]:
    """Return processor time for each message, then the delays until failures are noticed.

    The time is in us and includes all else.  The delays are those of the links `among`, which
    fail silently, in ms.
    """
    network = RunningNetwork.create(
        topology, LINK, scheme="dr", packed=packed, authenticated=authenticated
    )
    try:
        before = network.rows()
        pids = {row.pid for row in before.values()}
        began_s = cpu_s(pids)
        time.sleep(WINDOW_S)
        heard = sum(row.received - before[node].received for node, row in network.rows().items())
        us = (cpu_s(pids) - began_s) / heard * 1e6
        return [us, *(noticed_ms(network, link, silent=True) for link in among)]
    finally:
        network.down()


def seals(topology: Topology, packed: int, among: Sequence[int]) -> list[Line]:
    """Measure the cost of authentication, with and without it in turns.

    Lines hold processor time, and time until a failure is noticed.
    """
    kinds: dict[bool, list[list[float]]] = {False: [], True: []}
    for _ in range(TURNS):
        for authenticated, found in kinds.items():
            found.append(us_per_message(topology, packed, among, authenticated=authenticated))
    bare, sealed = (statistics.median(us for us, *_ in found) for found in kinds.values())
    late = [[ms for _, *noticed in found for ms in noticed] for found in kinds.values()]
    name = f"{packed or 'as many'} processes"
    return [
        Line(
            f"{name}: what seals add to processor time", 100 * (sealed / bare - 1), "%", at_most=15
        ),
        Line(
            f"{name}: silent failure noticed without seals, median",
            statistics.median(late[0]),
            "ms",
        ),
        Line(
            f"{name}: silent failure noticed with seals, median", statistics.median(late[1]), "ms"
        ),
    ]


def noticed_ms(network: RunningNetwork, link: int, *, silent: bool) -> float:
    """From the death of `link` until a daemon at an end of it says so."""
    name = network.topology.link_name(link)
    before = {node: row.losses for node, row in network.rows().items()}
    began_ns = time.monotonic_ns()
    network.fail(name, silent=silent)

    def told() -> list[int]:
        return [row.lost_ns for node, row in network.rows().items() if row.losses > before[node]]

    noticed_ns = min(wait_until(f"{name} noticed", told, timeout_s=10))
    network.restore(name)
    network.wait_until_converged()
    return (noticed_ns - began_ns) / 1e6


def false_alarms(network: RunningNetwork, seconds: int) -> int:
    """Neighbours taken for dead while TCP fills links and nothing fails."""
    before = sum(row.losses for row in network.rows().values())
    pairs = [(node, node + 78) for node in range(0, 78, 13)]
    iperfs(network, pairs, IperfSpec(seconds=seconds))
    return sum(row.losses for row in network.rows().values()) - before


def main() -> None:
    """Print cost, notice and alarms with a process per node, and the cost with two processes."""
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument(
        "--alarm-s", type=int, default=300, help="how long to load the network and look for alarms"
    )
    seconds = given.parse_args().alarm_s
    topology = build(SPEC)
    among = draw(
        range(len(topology.links)), count=FAILURES, generator=np.random.default_rng(1)
    ).tolist()
    network = RunningNetwork.create(topology, LINK, scheme="dr", packed=0)
    try:
        share, own_mb = cost(network)
        announced = statistics.median(noticed_ms(network, link, silent=False) for link in among)
        silent = [noticed_ms(network, link, silent=True) for link in among]
        alarms = false_alarms(network, seconds)
    finally:
        network.down()
    network = RunningNetwork.create(topology, LINK, scheme="dr", packed=2)
    try:
        packed, _ = cost(network)
    finally:
        network.down()
    lines = [
        Line("a process per node: share of one core", 100 * share, "%", at_most=100),
        Line("a process per node: memory of one", own_mb, "MB", at_most=2),
        Line("two processes for all: share of one core", 100 * packed, "%", at_most=100 / 3),
        *(line for processes in (2, 0) for line in seals(topology, processes, among)),
        Line("announced failure noticed, median", announced, "ms", at_most=10),
        Line("silent failure noticed, median", statistics.median(silent), "ms", at_most=100),
        Line("silent failure noticed, worst", max(silent), "ms", at_most=100),
        Line(f"false alarms in {seconds} s under TCP load", alarms, "", at_most=0),
    ]
    show("156 routing daemons", lines)


if __name__ == "__main__":
    main()
