"""Time to bring networks up and down, beside Mininet with TCLink.

Mininet runs in a network namespace of its own, because it puts its switches' interfaces into the
current one.  Its bridges run the spanning tree protocol: without it, broadcasts that circle in a
fat-tree take all processor time.  Each network takes turns with a small one of Mininet's, and links
per second are compared; the fat-tree is also brought up by Mininet.  Run as root.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from statistics import median
from typing import NamedTuple

from bench.report import Line, in_turns, show
from weft.testbed.network.network import RunningNetwork
from weft.topologies import build
from weft.topologies.core.link import LinkSpec, Mbps

ROOT = Path(__file__).parents[1]
MININET_S = 600
LINK = LinkSpec(rate_bps=20 * Mbps, queue_packets=250)
MININET = """
import functools, json, sys, time
from mininet.link import TCLink
from mininet.log import setLogLevel
from mininet.net import Mininet
from mininet.nodelib import LinuxBridge
sys.path.insert(0, sys.argv[1])
from weft.topologies.mininet_topo import topos
setLogLevel("critical")
Mininet.inited = True
net = Mininet(topo=topos[sys.argv[2]](*map(int, sys.argv[3:])), switch=functools.partial(LinuxBridge, stp=True), controller=None, build=False,
              link=lambda *a, **k: TCLink(*a, bw=20, max_queue_size=250, **k))
began = time.perf_counter()
net.build()
net.start()
up = time.perf_counter()
net.stop()
print(json.dumps([up - began, time.perf_counter() - up]))
"""  # noqa: E501
SMALL = "dcell:n=3,k=1"  # what Mininet brings up beside each of ours
FAT_TREE = "fattree:k=8"
NETWORKS = (  # and the most seconds that each may take to come up
    (FAT_TREE, "fat-tree k=8, 208 nodes", 0.68),
    ("dcell:n=3,k=2", "DCell_{2,3}, 208 nodes, 2,652 routes", 0.6),
    ("dcell:n=4,k=2", "DCell_{2,4}, 525 nodes, 11,340 routes", 1.2),
    ("ficonn:n=10,k=2", "FiConn_{2,10}, 1,056 nodes", 2.5),
)
LAYERED = ("slimfly:q=5,p=4", "fatpaths:layers=9", "Slim Fly q=5, 250 nodes, nine layers", 2.0)


class Seconds(NamedTuple):
    """Time in which a network came up, and in which it went down."""

    up: float
    down: float


def ours(spec: str, scheme: str = "static", packed: int = 0) -> Seconds:
    """Return the time of `spec`, shaped and with routes."""
    topology = build(spec)
    began = time.perf_counter()
    network = RunningNetwork.create(topology, LINK, scheme=scheme, packed=packed)
    up = time.perf_counter()
    network.down()
    return Seconds(up - began, time.perf_counter() - up)


def mininet(spec: str) -> Seconds:
    """Return the time of `spec` with Mininet's LinuxBridge and TCLink, without routes."""
    topology = build(spec)
    script = ["/usr/bin/python3", "-c", MININET, f"{ROOT}", topology.family]
    command = ["unshare", "--net", "--mount", *script, *map(str, topology.parameters.values())]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=MININET_S, check=False
        )
    except subprocess.TimeoutExpired:
        sys.exit(f"bringup: Mininet has not finished {spec} after {MININET_S} s")
    if done.returncode:
        sys.exit(f"bringup: Mininet failed: {done.stderr.strip().splitlines()[-1]}")
    return Seconds(*json.loads(done.stdout.splitlines()[-1]))


def lines_of(name: str, seconds: Seconds, most: float) -> list[Line]:
    """Return the figures of a network, which may take `most` seconds to come up."""
    up = Line(f"{name}: up", seconds.up, "s", at_most=most)
    return [up, Line(f"{name}: down", seconds.down, "s")]


def beside_mininet(without: bool) -> list[Line]:
    """Return the times of FAT_TREE with weft, with Mininet unless `without`, and the ratios."""
    measured = [ours(FAT_TREE) for _ in range(3)]
    theirs = None if without else mininet(FAT_TREE)
    # so that a change of the machine's load shows
    measured += [ours(FAT_TREE) for _ in range(3)]
    lines = []
    for way, at_least in (("up", 40), ("down", 20)):
        name = f"fat-tree k=8 {way}"
        took_s = median(getattr(seconds, way) for seconds in measured)
        lines.append(Line(name, took_s, "s"))
        if theirs:
            mininet_s = getattr(theirs, way)
            ratio = mininet_s / took_s
            lines.append(Line(f"{name}: Mininet with TCLink", mininet_s, "s"))
            lines.append(Line(f"{name}: Mininet / weft", ratio, "x", at_least=at_least))
    return lines


def layered(turns: int) -> list[Line]:
    """Return the time until a fabric with nine layers has its routes: the best of `turns`.

    Daemons have a process each, or share one for each processor, in turns.
    """
    spec, scheme, name, most = LAYERED
    cpus = len(os.sched_getaffinity(0))
    work = {
        "a process for each switch": partial(ours, spec, scheme),
        f"{cpus} processes": partial(ours, spec, scheme, cpus),
    }
    lines = []
    for processes, times in in_turns(work, turns).items():
        lines += lines_of(f"{name}, {processes}", min(times), most)
    return lines


def networks(turns: int, without: bool) -> list[Line]:
    """Return the best of `turns` for NETWORKS, and links per second relative to Mininet's.

    Each takes turns with Mininet's SMALL unless `without`.
    """
    lines = []
    for spec, name, most in NETWORKS:
        work = {spec: partial(ours, spec)}
        if not without:
            work[SMALL] = partial(mininet, SMALL)
        best = {network: min(times, key=sum) for network, times in in_turns(work, turns).items()}
        lines += lines_of(name, best[spec], most)
        if not without:
            per_s = {network: len(build(network).links) / best[network].up for network in best}
            ratio = per_s[spec] / per_s[SMALL]
            lines.append(
                Line(f"{name}: in the same turns, Mininet's {SMALL} up", best[SMALL].up, "s")
            )
            lines.append(Line(f"{name}: links a second / Mininet's", ratio, "x", at_least=20))
    return lines


def main() -> None:
    """Print the times of NETWORKS and of FAT_TREE, or of LAYERED."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without-mininet", action="store_true", help="skip what takes minutes")
    parser.add_argument(
        "--layers", action="store_true", help="only a fabric with daemons and FatPaths' layers"
    )
    parser.add_argument("--turns", type=int, default=5, help="how often each is brought up (5)")
    options = parser.parse_args()
    if options.layers:
        show("Bringing layers up", layered(options.turns))
        return
    lines = networks(options.turns, options.without_mininet)
    show("Bringing networks up", lines + beside_mininet(options.without_mininet))


if __name__ == "__main__":
    main()
