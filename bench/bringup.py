"""Time to bring networks up and down, beside Mininet with TCLink or another checkout of weft.

Mininet runs in a network namespace of its own, because it puts its switches' interfaces into the
current one.  It takes half an hour for a large network, so each large network takes turns with a
small one of Mininet's, and links per second are compared.  Run as root.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

from bench.report import Line, show
from weft.testbed.network.network import RunningNetwork
from weft.topologies import build
from weft.topologies.core.link import LinkSpec, Mbps

ROOT = Path(__file__).parents[1]
MININET_S = 1800
LINK = LinkSpec(rate_bps=20 * Mbps, queue_packets=250)
MININET = """
import json, sys, time
from mininet.link import TCLink
from mininet.log import setLogLevel
from mininet.net import Mininet
from mininet.nodelib import LinuxBridge
sys.path.insert(0, sys.argv[1])
from weft.topologies.mininet_topo import topos
setLogLevel("critical")
Mininet.inited = True
net = Mininet(topo=topos[sys.argv[2]](*map(int, sys.argv[3:])), switch=LinuxBridge, controller=None, build=False,
              link=lambda *a, **k: TCLink(*a, bw=20, max_queue_size=250, **k))
began = time.perf_counter()
net.build()
net.start()
up = time.perf_counter()
net.stop()
print(json.dumps([up - began, time.perf_counter() - up]))
"""  # noqa: E501
WEFT = """
import json, sys, time
from weft.testbed.network.network import RunningNetwork
from weft.topologies import build
from weft.topologies.core.link import LinkSpec
topology = build(sys.argv[1])
began, began_cpu = time.perf_counter(), time.process_time()
network = RunningNetwork.create(topology, LinkSpec(rate_bps=20_000_000, queue_packets=250), scheme="static")
up, up_cpu = time.perf_counter(), time.process_time()
network.down()
print(json.dumps([up - began, time.perf_counter() - up, up_cpu - began_cpu]))
"""  # noqa: E501
SMALL = "dcell:n=3,k=1"  # what Mininet brings up beside each of ours
NETWORKS = (  # and the most seconds that each may take to come up
    ("fattree:k=8", "fat-tree k=8, 208 nodes", 0.68),
    ("dcell:n=3,k=2", "DCell_{2,3}, 208 nodes, 2,652 routes", 0.6),
    ("dcell:n=4,k=2", "DCell_{2,4}, 525 nodes, 11,340 routes", 1.2),
    ("ficonn:n=10,k=2", "FiConn_{2,10}, 1,056 nodes", 2.5),
)
LAYERED = ("slimfly:q=5,p=4", "fatpaths:layers=9", "Slim Fly q=5, 250 nodes, nine layers", 2.0)


def ours(spec: str, scheme: str, packed: int = 0) -> tuple[float, float]:
    """Return the seconds to bring `spec` up, shaped and with routes, and to take it down."""
    topology = build(spec)
    began = time.perf_counter()
    network = RunningNetwork.create(topology, LINK, scheme=scheme, packed=packed)
    up = time.perf_counter()
    network.down()
    return up - began, time.perf_counter() - up


def mininet(root: Path, family: str, *parameters: int) -> tuple[float, float]:
    """Return the same with Mininet's LinuxBridge and TCLink, without routes."""
    script = ["/usr/bin/python3", "-c", MININET, f"{root}"]
    command = ["unshare", "--net", "--mount", *script, family, *map(str, parameters)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=MININET_S, check=False
        )
    except subprocess.TimeoutExpired:
        sys.exit(f"bringup: Mininet has not finished {family} {parameters} after {MININET_S} s")
    if done.returncode:
        sys.exit(f"bringup: Mininet failed: {done.stderr.strip().splitlines()[-1]}")
    up, down = json.loads(done.stdout.splitlines()[-1])
    return up, down


def checkout(directory: Path, spec: str) -> tuple[float, float, float]:
    """Return the same with the code in `directory`, and the processor time of coming up."""
    command = [sys.executable, "-c", WEFT, spec]
    environment = {**os.environ, "PYTHONPATH": str(directory)}
    done = subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"bringup: {directory}: {done.stderr.strip().splitlines()[-1]}")
    up, down, up_cpu = json.loads(done.stdout)
    return up, down, up_cpu


def against(other: Path, turns: int) -> list[Line]:
    """Return medians of this checkout and `other`, in turns, and of the ratios of each turn."""
    lines = []
    for spec, name, _ in NETWORKS:
        pairs = [(checkout(other, spec), checkout(ROOT, spec)) for _ in range(turns)]
        for i, way in enumerate(("up", "down", "up, processor time")):
            lines.append(
                Line(f"{name}: {way}, the other", median(theirs[i] for theirs, _ in pairs), "s")
            )
            lines.append(Line(f"{name}: {way}", median(mine[i] for _, mine in pairs), "s"))
            ratio = median(mine[i] / theirs[i] for theirs, mine in pairs)
            lines.append(Line(f"{name}: {way} / the other's", ratio, "x", at_most=1.1))
    return lines


def beside_mininet(pods: int, without: bool) -> list[Line]:
    """Return the fat-tree of `pods` pods with weft, Mininet unless `without`, and the ratio."""
    lines, spec = [], f"fattree:k={pods}"
    measured = [ours(spec, "static") for _ in range(3)]
    theirs = None if without else mininet(ROOT, "fattree", pods)
    # so that a change of the machine's load shows
    measured += [ours(spec, "static") for _ in range(3)]
    for i, (way, at_least) in enumerate((("up", 40), ("down", 20))):
        took_s = median(run[i] for run in measured)
        lines.append(Line(f"fat-tree k={pods} {way}", took_s, "s"))
        if theirs:
            lines.append(Line(f"fat-tree k={pods} {way}: Mininet with TCLink", theirs[i], "s"))
            lines.append(
                Line(
                    f"fat-tree k={pods} {way}: Mininet / weft",
                    theirs[i] / took_s,
                    "x",
                    at_least=at_least,
                )
            )
    return lines


def layered(turns: int) -> list[Line]:
    """Return the time until a fabric with nine layers has its routes: the best of `turns`.

    Daemons have a process each, or share one for each processor, in turns.
    """
    spec, scheme, name, most = LAYERED
    lines, cpus = [], len(os.sched_getaffinity(0))
    took: dict[int, list[tuple[float, float]]] = {0: [], cpus: []}
    for _ in range(turns):
        for packed, times in took.items():
            times.append(ours(spec, scheme, packed))
    for packed, times in took.items():
        up, down = min(times)
        processes = f"{packed} processes" if packed else "a process for each switch"
        lines.append(Line(f"{name}, {processes}: up", up, "s", at_most=most))
        lines.append(Line(f"{name}, {processes}: down", down, "s"))
    return lines


def in_turns(turns: int, without: bool) -> list[Line]:
    """Return the best of `turns` for NETWORKS, and links per second relative to Mininet's.

    Each takes turns with Mininet's SMALL unless `without`.
    """
    lines = []
    small = build(SMALL)
    for spec, name, most in NETWORKS:
        mine, theirs = [], []
        for _ in range(turns):
            mine.append(ours(spec, "static"))
            if not without:
                theirs.append(mininet(ROOT, small.family, *small.parameters.values()))
        up, down = min(mine, key=sum)
        lines += [Line(f"{name}: up", up, "s", at_most=most), Line(f"{name}: down", down, "s")]
        if theirs:
            its_up = min(theirs, key=sum)[0]
            ratio = len(build(spec).links) / up / (len(small.links) / its_up)
            lines.append(Line(f"{name}: in the same turns, Mininet's {SMALL} up", its_up, "s"))
            lines.append(Line(f"{name}: links a second / Mininet's", ratio, "x", at_least=20))
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without-mininet", action="store_true", help="skip what takes minutes")
    parser.add_argument(
        "--pods", type=int, default=8, metavar="K", help="of the fat-tree beside Mininet's (8)"
    )
    parser.add_argument(
        "--against",
        type=Path,
        metavar="DIR",
        help="only this checkout and the one in DIR, in turns",
    )
    parser.add_argument(
        "--layers", action="store_true", help="only a fabric with daemons and FatPaths' layers"
    )
    parser.add_argument("--turns", type=int, default=5, help="how often each is brought up (5)")
    options = parser.parse_args()
    if options.against:
        show("Bringing networks up, in turns", against(options.against.resolve(), options.turns))
        return
    if options.layers:
        show("Bringing layers up", layered(options.turns))
        return
    lines = in_turns(options.turns, options.without_mininet)
    lines += beside_mininet(options.pods, options.without_mininet)
    show("Bringing networks up", lines)


if __name__ == "__main__":
    main()
