"""Speed of the kernel engine under the virtual clock: failures, packets, a large network.

    python -m bench.virtual_time [--only WHAT ...]

Needs no root.  Times are of one processor.  Processor time is printed beside wall time, which other
work on the machine lengthens.  A fixed loop is timed between the measurements.  If its processor
time changes by more than a tenth, the table is void.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import resource
import sys
import time
from collections.abc import Callable

import numpy as np

from bench.report import Line, show
from weft.testbed.data_plane.data_plane import DataPlane
from weft.testbed.linux import clock
from weft.testbed.network.network import RunningNetwork
from weft.testbed.traffic import flows
from weft.testbed.uml import uml
from weft.topologies import build
from weft.topologies.core.link import Gbps, LinkSpec, Mbps
from weft.topologies.core.topology import Topology

FAILURES = 100
DRIFT = 1.1
NEXT_S = 0.03  # of virtual time between failures, and up to an interval between hellos more
HELLO_S = 0.03
VIRTUAL = "virtual time (s)"


def failures(packed: int = 0) -> dict[str, float]:
    """Return when an end notices silent failures, at moments spread over the interval of hellos.

    packed: processes that share the daemons; 0: a process each.
    """
    # here, because the other measurements would pay for them
    from weft.experiments.engines.reachability import around, wait_for_notice
    from weft.testbed.mininet.net import Net

    rng = np.random.default_rng(0)
    link = LinkSpec(rate_bps=100 * Mbps, queue_packets=250, delay_us=5)
    noticed_ms = []
    with Net("dcell:n=4,k=1", link=link, routing="dr", packed=packed) as net:
        for _ in range(FAILURES):
            failed = int(rng.integers(len(net.topology.links)))
            clock.sleep(NEXT_S + HELLO_S * float(rng.random()))
            died_ns = clock.monotonic_ns()
            net.fail(net.topology.link_name(failed), silent=True)
            notice_s = wait_for_notice(net.network, around(net.topology, failed), died_ns)
            noticed_ms.append(1000 * (notice_s or float("nan")))
            net.restore(net.topology.link_name(failed))
            net.wait_until_converged()
    return {
        "noticed": len(noticed_ms),
        "noticed first after (ms)": min(noticed_ms),
        "noticed after, median (ms)": float(np.median(noticed_ms)),
        "noticed last after (ms)": max(noticed_ms),
    }


def permutation(topology: Topology) -> list[tuple[int, int]]:
    """Return pairs of hosts of a fabric's halves, in both directions."""
    half = topology.servers // 2
    order = np.random.default_rng(1).permutation(half).tolist()
    pairs = [(host, half + order[host]) for host in range(half)]
    return [*pairs, *((dst, src) for src, dst in pairs)]


def tcp(spec: str, scheme: str, seconds: float) -> dict[str, float]:
    """Return the goodput of a permutation of endless TCP flows between a fabric's halves."""
    topology = build(spec)
    pairs = permutation(topology)
    link = LinkSpec(rate_bps=Gbps, queue_packets=250, delay_us=5)
    options = flows.FlowOptions(
        deadline_s=seconds, congestion_control="cubic", warm_up_s=seconds / 5
    )
    network = RunningNetwork.create(topology, link, scheme=scheme)
    try:
        begin_s = clock.monotonic()
        table = flows.run(network, [flows.Flow(0.0, src, dst, None) for src, dst in pairs], options)
        virtual_s = clock.monotonic() - begin_s
        with DataPlane.open(network) as plane:
            hops = sum(port.packets for port in plane.counters().values())
    finally:
        network.down()
    share = table.goodput_bps / (len(pairs) * Gbps * 1448 / 1514)
    return {"share of the links' goodput": share, "hops": hops, VIRTUAL: virtual_s}


def up(spec: str, packed: int) -> dict[str, float]:
    """Return the time in which a network of routing daemons comes up."""
    network = RunningNetwork.create(
        build(spec), LinkSpec(rate_bps=Gbps, queue_packets=250), scheme="dr", packed=packed
    )
    servers = network.topology.servers
    network.down()
    return {"servers": servers, VIRTUAL: sum(network.stages.values())}


INSIDE: dict[str, Callable[[], dict[str, float]]] = {
    "failures": failures,
    "failures_packed": lambda: failures(packed=4),
    "fabric": lambda: tcp("clos:n=4,r=2,m=4", "ttc", 1.0),
    "fattree": lambda: tcp("fattree:k=8", "ttc", 0.02),
    "up": lambda: up("dcell:n=6,k=2", packed=4),
}


def measured(what: str) -> dict[str, float]:
    """Return the output of INSIDE, with wall and processor time from boot to power-off."""
    out = io.BytesIO()
    before, begin_s = resource.getrusage(resource.RUSAGE_CHILDREN), clock.monotonic()
    argv = [sys.executable, "-m", "bench.virtual_time", "--inside", what]
    clocked = uml.VirtualClock(seed=1)
    status = uml.run(
        argv, virtual=clocked, memory_mb=4000, timeout_s=7200, stdout=out, env=os.environ
    )
    if status:
        raise ChildProcessError(f"{what}: ended with status {status}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {**json.loads(out.getvalue()), "wall_s": clock.monotonic() - begin_s, "cpu_s": cpu_s}


NAMES = {
    "failures": f"{FAILURES} silent failures on DCell_{{4,1}}",
    "failures_packed": "... daemons in four processes",
    "fabric": "Clos, 8 flows for 1 s",
    "fattree": "fat-tree k = 8, 128 flows for 20 ms",
    "up": "DCell_{6,2} comes up",
}
LIMITS_S = {"failures": 10.0, "failures_packed": 10.0, "up": 40.0}  # wall


def lines_of(what: str) -> list[Line]:
    """Return the figures of one of INSIDE."""
    figures = measured(what)
    wall_s, cpu_s = figures.pop("wall_s"), figures.pop("cpu_s")
    name = NAMES[what]
    lines = [Line(f"{name}: {key}", value, "") for key, value in figures.items()]
    lines.append(Line(f"{name}: wall time", wall_s, "s", at_most=LIMITS_S.get(what)))
    lines.append(Line(f"{name}: processor time", cpu_s, "s"))
    if hops := figures.get("hops"):
        ratio = cpu_s / figures[VIRTUAL]
        limit = 20.0 if what == "fabric" else None
        lines.append(Line(f"{name}: processor time of a virtual s", ratio, "s", at_most=limit))
        lines.append(Line(f"{name}: transmissions a second of a core", hops / cpu_s, ""))
    return lines


def computing_s() -> float:
    """Return the processor time of a fixed loop."""
    begin_s = time.process_time()
    sum(number * number for number in range(3_000_000))
    return time.process_time() - begin_s


def main() -> None:
    """Print the figures; with --inside, print those of one measurement in this kernel as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=INSIDE, default=list(INSIDE))
    parser.add_argument("--inside", choices=INSIDE, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        print(json.dumps(INSIDE[options.inside]()))
        return
    lines, loops_s = [], [computing_s()]
    for what in options.only:
        lines += lines_of(what)
        loops_s.append(computing_s())
    drift = max(loops_s) / min(loops_s)
    lines.append(Line("fixed loop, slowest by fastest", drift, "", at_most=DRIFT))
    title = "Under the virtual clock, on one processor"
    show(title if drift <= DRIFT else f"{title}: VOID, the machine's speed changed", lines)


if __name__ == "__main__":
    main()
