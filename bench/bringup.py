"""How fast networks come up and go down, beside Mininet with TCLink.

Mininet runs in a network namespace of its own, because it puts its switches' interfaces where it stands.  Run as root.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time

from bench.report import Line, show
from testbed.network import Network
from topologies import build
from topologies.link import LinkSpec, Mbps

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


def mininet(root: str, family: str, *parameters: int) -> tuple[float, float]:
    """The same with Mininet's own classes, LinuxBridge and TCLink, without routes."""
    command = ["unshare", "--net", "--mount", "/usr/bin/python3", "-c", MININET, root, family, *map(str, parameters)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        sys.exit(f"bringup: Mininet failed: {done.stderr.strip().splitlines()[-1]}")
    up, down = json.loads(done.stdout.splitlines()[-1])
    return up, down


def main() -> None:
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("--without-mininet", action="store_true", help="skip what takes a minute")
    options = given.parse_args()
    lines = []
    up, down = min((ours("fattree:k=8", "static") for _ in range(3)), key=sum)
    if not options.without_mininet:
        from pathlib import Path

        their_up, their_down = mininet(str(Path(__file__).parents[1]), "fattree", 8)
        lines.append(Line("fat-tree k=8 up: Mininet / weft", their_up / up, "x", at_least=40))
        lines.append(Line("fat-tree k=8 down: Mininet / weft", their_down / down, "x", at_least=20))
    lines += [Line("fat-tree k=8 up", up, "s"), Line("fat-tree k=8 down", down, "s")]
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
