"""Speed of the simulated packets: transmissions over links a second of processor time of one core,
and how much faster two threads are.

A fat-tree of three tiers at 10 Gbit/s and 1 us a link, whose frames have 1,500 bytes.  Each host
sends one message, to another host of a permutation.  Or flows of the sizes of web search, at most
500 kB, begin at random times between random hosts, at 0.4 of hosts' links.

With --htsim, the folder sim/datacenter of a checkout of Broadcom/csg-htsim in which `make` has run,
the same messages take turns with its NDP, and processor times of whole runs are compared: set-up
of the network and of its routes, and all packets; then completion times of messages.
"""

from __future__ import annotations

import argparse
import re
import resource
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bench.report import Line, in_turns, show
from weft.daemons.transport.endpoint import HEADER_BYTES, Parameters, timeout_ns
from weft.experiments.engines import workloads
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

RATE_BPS, DELAY_NS, FRAME_BYTES = 10**10, 1_000, 1_500
NDP = Parameters(
    rate_bps=RATE_BPS,
    frame_bytes=FRAME_BYTES,
    timeout_ns=timeout_ns(RATE_BPS),
    window=30,
    seed=1,
)
MESSAGE_KB = {8: 2_000, 16: 500, 32: 100}  # by k: 128, 1,024 and 8,192 hosts
BEGIN_MS = {8: 10.0, 16: 2.0, 32: 0.5}  # time in which flows begin
WEB_SEARCH = "web-search:most_bytes=500000"
FIRST_FLOW = 1_000_000_001  # number of htsim's first flow
PERMUTATION, FLOWS = "permutation", "web-search flows"
TRANSPORTS = {
    "NDP-like, sprayed": (NDP, SPRAY),
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


class Message(NamedTuple):
    """Message from host `src` to host `dst`, which begins at `at_ns`."""

    at_ns: int
    src: int
    dst: int
    size_bytes: int


def messages(k: int, traffic: str) -> list[Message]:
    """Return the messages of all hosts of a fat-tree in order of time."""
    hosts, rng = k**3 // 4, np.random.default_rng(1)
    if traffic == PERMUTATION:  # without fixed points
        ring = rng.permutation(hosts)
        pairs = zip(ring.tolist(), np.roll(ring, 1).tolist(), strict=True)
        return [Message(0, src, dst, 1_000 * MESSAGE_KB[k]) for src, dst in pairs]
    flows = workloads.poisson(
        rng,
        hosts,
        size_distribution=workloads.sizes(WEB_SEARCH),
        load_fraction=0.4,
        rate_bps=RATE_BPS,
        duration_s=BEGIN_MS[k] / 1000,
    )
    return [Message(round(1e9 * at_s), src, dst, size or 0) for at_s, src, dst, size in flows]


def network(k: int, name: str, traffic: str, threads: int = 0) -> PacketNetwork:
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
    for number, (at_ns, src, dst, size_bytes) in enumerate(messages(k, traffic)):
        net.send(at_ns, src, dst, number, size_bytes)
    return net


def run(net: PacketNetwork) -> None:
    """Run `net` to its end; AssertionError if a message is lost."""
    net.run_until(10**9)
    assert len(net.delivered) == len(net.flow_counters())


def transmissions(k: int, name: str, traffic: str) -> float:
    """Return the transmissions a second of processor time, set-up left out."""
    net = network(k, name, traffic)
    begin_s = time.process_time()
    run(net)
    took_s = time.process_time() - begin_s
    return sum(port.frames for port in net.port_counters()) / took_s


def elapsed_s(k: int, name: str, threads: int) -> float:
    """Return the time of a run, set-up left out."""
    net = network(k, name, PERMUTATION, threads)
    begin_s = time.perf_counter()
    run(net)
    return time.perf_counter() - begin_s


def beside_one_thread(rounds: int) -> Iterator[Line]:
    """Yield the ratio of the least times of one and of two threads."""
    for name in TRANSPORTS:
        for k in (16, 32):
            work = {threads: partial(elapsed_s, k, name, threads) for threads in (0, 2)}
            alone, both = map(min, in_turns(work, rounds).values())
            yield Line(f"{name}, {k**3 // 4:,} hosts: one thread / two", alone / both, "x")


class WholeRun(NamedTuple):
    """A whole run: its processor time, and completion times of messages."""

    took_s: float
    mean_us: float
    p99_us: float


def ours(k: int, traffic: str) -> WholeRun:
    """Run the NDP-like transport."""
    begin_s = time.process_time()
    net = network(k, "NDP-like, sprayed", traffic)
    run(net)
    took_s = time.process_time() - begin_s
    ended_us = {event.flow: event.at_ns / 1000 for _, event in net.delivered}
    return whole_run(took_s, ended_us, messages(k, traffic))


def htsim(folder: Path, k: int, traffic: str) -> WholeRun:
    """Run htsim's NDP with as many packets, whose headers it does not count; KeyError if it loses
    a message."""
    hosts, sent = k**3 // 4, messages(k, traffic)
    lines = [f"Nodes {hosts}", f"Connections {len(sent)}"]
    for at_ns, src, dst, size_bytes in sent:
        packets = -(-size_bytes // (FRAME_BYTES - HEADER_BYTES))
        lines.append(f"{src}->{dst} start {1000 * at_ns} size {packets * FRAME_BYTES}")
    with tempfile.TemporaryDirectory() as temporary:
        matrix = Path(temporary) / "messages.cm"
        matrix.write_text("\n".join(lines) + "\n", encoding="utf-8")
        options = f"-nodes {hosts} -tm {matrix} -o {temporary}/log -linkspeed {RATE_BPS // 10**6}"
        options += f" -cwnd 30 -q 8 -mtu {FRAME_BYTES} -hop_latency 1 -switch_latency 0 -strat perm"
        options += " -paths 128 -end 1000000"
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [f"{folder.absolute()}/htsim_ndp", *options.split()]
        output = subprocess.run(
            command, check=True, capture_output=True, text=True, cwd=temporary
        ).stdout  # it writes idmap.txt where it runs
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    took_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    ends = re.findall(r"flow_id (\d+) finished at ([\d.]+)", output)
    ended_us = {int(number) - FIRST_FLOW: float(at_us) for number, at_us in ends}
    return whole_run(took_s, ended_us, sent)


def whole_run(took_s: float, ended_us: Mapping[int, float], sent: Sequence[Message]) -> WholeRun:
    """Return a run whose messages, numbered from 0, ended then; KeyError if one is lost."""
    times_us = [ended_us[number] - one.at_ns / 1000 for number, one in enumerate(sent)]
    return WholeRun(took_s, float(np.mean(times_us)), float(np.percentile(times_us, 99)))


def beside_htsim(folder: Path, rounds: int) -> Iterator[Line]:
    """Yield the least processor time of both and their ratio, and ratios of completion times."""
    for traffic, k in product((PERMUTATION, FLOWS), (8, 16)):
        work = {"weft": partial(ours, k, traffic), "htsim": partial(htsim, folder, k, traffic)}
        best = {name: min(runs) for name, runs in in_turns(work, rounds).items()}
        what, ratios = f"{traffic} of {k**3 // 4:,} hosts", np.divide(best["htsim"], best["weft"])
        yield from (Line(f"{what}: {name}", each.took_s, "s") for name, each in best.items())
        yield Line(f"{what}: htsim / weft", float(ratios[0]), "x")
        for name, ratio in zip(("mean", "99th percentile"), ratios[1:], strict=True):
            yield Line(f"{what}: {name} of completion times, htsim / weft", float(ratio), "x")


def main() -> None:
    """Print all of it; half a minute where nothing else runs, a few minutes with htsim."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="default: 3")
    parser.add_argument("--htsim", type=Path, help="sim/datacenter of a built htsim")
    options = parser.parse_args()
    lines = []
    for name in TRANSPORTS:
        for traffic, k in (*product((PERMUTATION,), MESSAGE_KB), (FLOWS, 32)):
            best = max(transmissions(k, name, traffic) for _ in range(options.rounds))
            what = "" if traffic == PERMUTATION else f", {traffic}"
            lines.append(Line(f"{name}, {k**3 // 4:,} hosts{what}", best / 1e6, "M/s"))
    lines += beside_one_thread(options.rounds)
    if options.htsim:
        lines += beside_htsim(options.htsim, options.rounds)
    show("Simulated packets, transmissions of one core", lines)


if __name__ == "__main__":
    main()
