"""How fast networks come up and go down, beside Mininet with TCLink.

Mininet runs in a network namespace of its own, because it puts its switches' interfaces where it stands.  Run as root.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

from bench.report import Line, show
from testbed.network.network import Network
from topologies import build
from topologies.core.link import LinkSpec, Mbps

MININET_S = 1800
LINK = LinkSpec(rate_bps=20 * Mbps, queue_packets=250)
MININET = """
import json, sys, time
from mininet.link import TCLink
from mininet.log import setLogLevel
from mininet.net import Mininet
from mininet.nodelib import LinuxBridge
sys.path.insert(0, sys.argv[1])
from topologies.mininet_topo import topos
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
"""


def ours(spec: str, scheme: str) -> tuple[float, float]:
    """Seconds that `spec` takes to come up, shaped, with its routes, and to be gone again."""
    topology = build(spec)
    began = time.perf_counter()
    network = Network.create(topology, LINK, scheme=scheme)
    up = time.perf_counter()
    network.down()
    return up - began, time.perf_counter() - up


def mininet(root: Path, family: str, *parameters: int) -> tuple[float, float]:
    """The same with Mininet's own classes, LinuxBridge and TCLink, without routes."""
    script = ["/usr/bin/python3", "-c", MININET, f"{root}"]
    command = ["unshare", "--net", "--mount", *script, family, *map(str, parameters)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=MININET_S, check=False)
    except subprocess.TimeoutExpired:
        sys.exit(f"bringup: Mininet has not finished {family} {parameters} after {MININET_S} s")
    if done.returncode:
        sys.exit(f"bringup: Mininet failed: {done.stderr.strip().splitlines()[-1]}")
    up, down = json.loads(done.stdout.splitlines()[-1])
    return up, down


def main() -> None:
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("--without-mininet", action="store_true", help="skip what takes minutes")
    given.add_argument("--pods", type=int, default=8, metavar="K", help="of the fat-tree beside Mininet's (8)")
    options = given.parse_args()
    lines = []
    k = options.pods
    measured = [ours(f"fattree:k={k}", "static") for _ in range(3)]
    theirs = None if options.without_mininet else mininet(Path(__file__).parents[1], "fattree", k)
    measured += [ours(f"fattree:k={k}", "static") for _ in range(3)]  # so that a change of the machine's load shows
    for i, (way, at_least) in enumerate((("up", 40), ("down", 20))):
        took_s = median(run[i] for run in measured)
        lines.append(Line(f"fat-tree k={k} {way}", took_s, "s"))
        if theirs:
            lines.append(Line(f"fat-tree k={k} {way}: Mininet with TCLink", theirs[i], "s"))
            lines.append(Line(f"fat-tree k={k} {way}: Mininet / weft", theirs[i] / took_s, "x", at_least=at_least))
    for spec, name, most in (
        ("dcell:n=3,k=2", "DCell_{2,3}, 208 nodes, 2,652 routes", 0.6),
        ("dcell:n=4,k=2", "DCell_{2,4}, 525 nodes, 11,340 routes", 1.5),
        ("ficonn:n=10,k=2", "FiConn_{2,10}, 1,056 nodes", 3.0),
    ):
        up, down = min((ours(spec, "static") for _ in range(3)), key=sum)
        lines += [Line(f"{name}: up", up, "s", at_most=most), Line(f"{name}: down", down, "s")]
    show("Bringing networks up", lines)


if __name__ == "__main__":
    main()
