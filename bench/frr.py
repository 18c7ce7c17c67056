"""weft's daemons beside FRR's: outage of pairs at a silent failure, memory and processor time.

Run as root, on a quiet machine, with Debian's package frr.  FRR runs OSPF and BFD
(testbed/frr/frr_config.py).  Both sides have the same interval of hellos, the same number that may
be lost, real-time priority, the same pings, and failures drawn by the same rule among the links
that their packets take (recovery.py).

A side whose daemons need all processors is not measured; the output has its load.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager

from bench.daemons import cpu_s
from bench.recovery import AFTER_S, MOST_MS, PAIRS, SCHEME, SPECS, Recovery, recovery, some_pairs
from bench.report import Line, show
from weft.testbed.frr.frr import frr
from weft.testbed.frr.frr_config import Ospf
from weft.testbed.machine import doctor
from weft.testbed.measure.host_load import pss_kib
from weft.testbed.network.network import RunningNetwork
from weft.topologies import build

HELLO_MS = 30
DETECTS = 4  # hellos within which a failure has been found
WINDOW_S = 5.0
# of all processors, that daemons may take: beyond, neither they nor the prober are in time
MOST_LOAD = 0.85


@contextmanager
def theirs(spec: str, hello_ms: int) -> Iterator[tuple[RunningNetwork, set[int], float]]:
    """Yield a network with FRR, its processes, and the memory of a node in MB."""
    network = RunningNetwork.create(build(spec), None)
    try:
        with frr(network, Ospf(network.plan, hello_ms)) as routed:
            yield network, routed.pids(), statistics.median(routed.memory_kib()) / 1024
    finally:
        network.down()


@contextmanager
def ours(spec: str, hello_ms: int) -> Iterator[tuple[RunningNetwork, set[int], float]]:
    """Yield the same with weft's daemons."""
    network = RunningNetwork.create(
        build(spec), None, scheme=f"{SCHEME}:hello_ms={hello_ms}", packed=0
    )
    try:
        pids = {row.pid for row in network.rows().values()}
        yield network, pids, statistics.median(map(pss_kib, pids)) / 1024
    finally:
        network.down()


def load(pids: set[int]) -> float:
    """Return the processors that these processes use while nothing fails."""
    before, began = cpu_s(pids), time.monotonic()
    time.sleep(WINDOW_S)
    return (cpu_s(pids) - before) / (time.monotonic() - began)


def side_by_side(spec: str, failures: int, hello_ms: int) -> None:
    """Print both sides and their ratios, which should be at most 1."""
    sides: dict[str, tuple[Recovery | None, float]] = {}
    for who, side, most_ms in (
        ("ours", ours, MOST_MS if hello_ms == HELLO_MS else None),
        ("FRR's", theirs, None),
    ):
        with side(spec, hello_ms) as (network, pids, memory_mb):
            processors = load(pids)
            enough = processors < MOST_LOAD * len(os.sched_getaffinity(0))
            pairs = some_pairs(network.topology, PAIRS)
            after_s = AFTER_S + DETECTS * hello_ms / 1000
            outages = recovery(network, pairs, failures, after_s=after_s) if enough else None
        sides[who] = outages, memory_mb
        lines = outages.lines(f"hellos every {hello_ms} ms", most_ms) if outages else []
        lines += [
            Line("  memory of a node", memory_mb, "MB"),
            Line("  processors taken by all", processors, ""),
        ]
        show(f"{failures} silent failures on {spec}, {who}", lines)
        if not outages:
            print(
                f"  outages not measured: hellos every {hello_ms} ms leave no time to "
                f"measure them; see --hello-ms"
            )
    compare(*sides.values())


def compare(own: tuple[Recovery | None, float], other: tuple[Recovery | None, float]) -> None:
    """Print the ratios of the measured values."""
    ratios = {"memory of a node": (own[1], other[1])}
    if own[0] and other[0]:
        ratios |= {
            "median outage": (own[0].median_ms, other[0].median_ms),
            "99th percentile": (own[0].p99_ms, other[0].p99_ms),
        }
    show(
        "Ours beside FRR's",
        [
            Line(what, a / b if b else float("inf"), "x", at_most=1)
            for what, (a, b) in ratios.items()
        ],
    )


def main() -> None:
    """Print both sides for each network; say so where FRR is missing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--failures", type=int, default=20, help="links that die, one after the other"
    )
    parser.add_argument(
        "--hello-ms", type=int, default=HELLO_MS, help="between hellos, of both sides"
    )
    parser.add_argument("--network", action="append", help=f"instead of {SPECS[0]}")
    options = parser.parse_args()
    try:
        doctor.require("frr", "bench.frr")
    except ValueError as error:
        raise SystemExit(str(error)) from None
    for spec in options.network or SPECS[:1]:
        side_by_side(spec, options.failures, options.hello_ms)


if __name__ == "__main__":
    main()
