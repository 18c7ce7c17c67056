"""Speed of the simulated packets: transmissions over links a second of processor time of one core,
and how much faster two threads are.

A fat-tree of three tiers at 10 Gbit/s and 1 us a link; each host sends one message, to another
host of a permutation.  Frames have 1,514 bytes.

With --htsim, the folder sim/datacenter of a checkout of Broadcom/csg-htsim in which `make` has run,
the same messages take turns with its NDP, and processor times of whole runs are compared: set-up
of the network and of its routes, and all packets.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from bench.report import Line, in_turns, show
from weft.daemons.transport.endpoint import Parameters, timeout_ns
from weft.testbed.packets.network import (
    DCTCP,
    HASH,
    SPRAY,
    PacketLink,
    PacketNetwork,
    TcpParameters,
    shortest,
)
from weft.testbed.packets.parts import parts_of
from weft.topologies import build

RATE_BPS, DELAY_NS, FRAME_BYTES = 10**10, 1_000, 1_514
MESSAGE_KB = {8: 2_000, 16: 500, 32: 100}  # by k: 128, 1,024 and 8,192 hosts
TRANSPORTS = {
    "NDP-like, sprayed": (
        Parameters(rate_bps=RATE_BPS, timeout_ns=timeout_ns(RATE_BPS), window=30, seed=1),
        SPRAY,
    ),
    "DCTCP, hashed": (
        TcpParameters(
            jiffy_ns=10**6,
            rto_min_ns=10**7,
            frame_bytes=FRAME_BYTES,
            ecn=DCTCP,
            one_message=1,
        ),
        HASH,
    ),
}


def pairs(hosts: int) -> Iterator[tuple[int, int]]:
    """Yield sender and receiver of each message, a permutation without fixed points."""
    ring = np.random.default_rng(1).permutation(hosts)
    return zip(ring.tolist(), np.roll(ring, 1).tolist(), strict=True)


def network(k: int, name: str, threads: int = 0) -> PacketNetwork:
    """Return a fat-tree whose hosts have their messages to send; 0 threads: as without parts."""
    topology = build(f"fattree:k={k}")
    transport, rule = TRANSPORTS[name]
    link = PacketLink(
        rate_bps=RATE_BPS,
        delay_ns=DELAY_NS,
        trim_bytes=8 * FRAME_BYTES,
        header_bytes=12_800,
        queue_packets=100,
        mark_packets=33,
    )
    net = PacketNetwork(topology, link, transport, shortest(topology, rule), 1)
    if threads:
        net.split(parts_of(topology, threads))
    for src, dst in pairs(topology.servers):
        net.send(0, src, dst, src, 1_000 * MESSAGE_KB[k])
    return net


def run(net: PacketNetwork, k: int) -> None:
    """Run `net` to its end; AssertionError if a message is lost."""
    net.run_until(10**9)
    assert len(net.delivered) == k**3 // 4


def transmissions(k: int, name: str) -> float:
    """Return the transmissions a second of processor time, set-up left out."""
    net = network(k, name)
    begin_s = time.process_time()
    run(net, k)
    took_s = time.process_time() - begin_s
    return sum(port.frames for port in net.port_counters()) / took_s


def elapsed_s(k: int, name: str, threads: int) -> float:
    """Return the time of a run, set-up left out."""
    net = network(k, name, threads)
    begin_s = time.perf_counter()
    run(net, k)
    return time.perf_counter() - begin_s


def beside_one_thread(rounds: int) -> Iterator[Line]:
    """Yield the ratio of the least times of one and of two threads."""
    for name in TRANSPORTS:
        for k in (16, 32):
            work = {threads: partial(elapsed_s, k, name, threads) for threads in (0, 2)}
            alone, both = map(min, in_turns(work, rounds).values())
            yield Line(f"{name}, {k**3 // 4:,} hosts: one thread / two", alone / both, "x")


def ours_s(k: int) -> float:
    """Return the processor time of a whole run with the NDP-like transport."""
    begin_s = time.process_time()
    run(network(k, "NDP-like, sprayed"), k)
    return time.process_time() - begin_s


def htsim_s(folder: Path, k: int) -> float:
    """Return the processor time of htsim's NDP with the same messages; AssertionError if it loses
    one."""
    hosts = k**3 // 4
    lines = [f"Nodes {hosts}", f"Connections {hosts}"]
    lines += [f"{src}->{dst} start 0 size {1_000 * MESSAGE_KB[k]}" for src, dst in pairs(hosts)]
    with tempfile.TemporaryDirectory() as temporary:
        matrix = Path(temporary) / "permutation.cm"
        matrix.write_text("\n".join(lines) + "\n", encoding="utf-8")
        options = f"-nodes {hosts} -tm {matrix} -o {temporary}/log -linkspeed {RATE_BPS // 10**6}"
        options += " -cwnd 30 -q 8 -mtu 1500 -hop_latency 1 -switch_latency 0 -strat perm"
        options += " -paths 128 -end 1000000"
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [f"{folder.absolute()}/htsim_ndp", *options.split()]
        output = subprocess.run(
            command, check=True, capture_output=True, text=True, cwd=temporary
        ).stdout  # it writes idmap.txt where it runs
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert output.count("finished at") == hosts
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def beside_htsim(folder: Path, rounds: int) -> Iterator[Line]:
    """Yield the least processor time of both, and their ratio."""
    for k in (8, 16):
        work = {"weft": partial(ours_s, k), "htsim": partial(htsim_s, folder, k)}
        best = {name: min(times) for name, times in in_turns(work, rounds).items()}
        what = f"permutation of {k**3 // 4:,} hosts"
        yield from (Line(f"{what}: {name}", took_s, "s") for name, took_s in best.items())
        yield Line(f"{what}: htsim / weft", best["htsim"] / best["weft"], "x")


def main() -> None:
    """Print all of it; half a minute where nothing else runs, a few minutes with htsim."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="default: 3")
    parser.add_argument("--htsim", type=Path, help="sim/datacenter of a built htsim")
    options = parser.parse_args()
    lines = []
    for name in TRANSPORTS:
        for k in MESSAGE_KB:
            best = max(transmissions(k, name) for _ in range(options.rounds))
            lines.append(Line(f"{name}, {k**3 // 4:,} hosts", best / 1e6, "M/s"))
    lines += beside_one_thread(options.rounds)
    if options.htsim:
        lines += beside_htsim(options.htsim, options.rounds)
    show("Simulated packets, transmissions of one core", lines)


if __name__ == "__main__":
    main()
