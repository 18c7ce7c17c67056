"""Measure a network over three guests of User-Mode Linux, or on this machine alone.

    python tools/three_guests.py guests dcell:n=6,k=2 static
    python tools/three_guests.py one dcell:n=6,k=2 static

As root, from weft's folder.  Each guest has a kernel of its own; a hub here joins them.  It prints
how long the network takes to come up, how many sampled paths of packets differ from the graph
engine's, and, if daemons route, how long pairs are cut off when a link of theirs fails.
"""

from __future__ import annotations

import json
import os
import random
import selectors
import socket
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.testbed.cluster.machines_here import WEFT  # noqa: E402
from tests.testbed.cluster.ssh_here import SERVE, write_keys  # noqa: E402
from weft.experiments.engines.routes import find  # noqa: E402
from weft.testbed.cluster.measures import Measures  # noqa: E402
from weft.testbed.measure.traceroute import Trace  # noqa: E402
from weft.testbed.uml import uml  # noqa: E402
from weft.topologies.core.grammar import parse  # noqa: E402
from weft.topologies.core.topology import Topology  # noqa: E402

GUESTS, MEMORY_MB, PAIRS, LINKS = 3, 5000, 600, 2
NAME = "guests"
# daemons of real-time priority would leave no processor to ssh for more than the lease of 2 s
ORDINARY = ["setpriv", "--bounding-set", "-sys_nice"]
CONNECT = """
set -e
ulimit -n 100000
ip address add 10.99.0.{number}/24 dev vec0
ip link set vec0 mtu 1600 up
"""
FAR = """
{serve}
mkfifo /run/end
read -r line </run/end
"""
NEAR = """
far() {{ ssh -F {folder}/client -o ServerAliveInterval=1 "$@"; }}
trap 'for n in 2 3; do far 10.99.0.$n "echo >/run/end" || true; done 2>/dev/null' EXIT
for n in 2 3; do until far 10.99.0.$n true 2>/dev/null; do sleep 0.5; done; done
{python} {tool} inside {folder} {spec} {routing}
"""


def forward(ends: list[socket.socket]) -> None:
    """Copy each frame to all other guests, until the sockets close."""
    selector = selectors.DefaultSelector()
    for end in ends:
        selector.register(end, selectors.EVENT_READ)
    with suppress(ConnectionError):
        while True:
            for key, _ in selector.select():
                frame = key.fileobj.recv(1 << 16)  # type: ignore[union-attr]
                for end in ends:
                    if end is not key.fileobj:
                        end.send(frame)


def run_guests(folder: Path, spec: str, routing: str) -> None:
    """Boot the guests, and measure in the first."""
    write_keys(folder)
    describe(folder, GUESTS)
    words = {"folder": folder, "spec": spec, "routing": routing, "python": sys.executable}
    near = NEAR.format(**words, tool=Path(__file__).resolve())
    far = FAR.format(serve=SERVE.format(folder=folder))
    pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(GUESTS)]
    threading.Thread(target=forward, args=([hub for hub, _ in pairs],), daemon=True).start()
    cores = sorted(os.sched_getaffinity(0))

    def guest(number: int) -> int:
        os.setpriority(os.PRIO_PROCESS, 0, -20)
        script = CONNECT.format(number=number + 1) + (far if number else near)
        return uml.run(
            [*ORDINARY, "bash", "-c", script],
            cwd=folder,
            writable=True,
            memory_mb=MEMORY_MB,
            core=cores[number % len(cores)],
            network=pairs[number][1].fileno(),
            timeout_s=1800,
        )

    with ThreadPoolExecutor() as executor:
        statuses = list(executor.map(guest, range(GUESTS)))
    if any(statuses):
        raise OSError(f"guests ended with {statuses}")


def describe(folder: Path, machines: int) -> None:
    """Write machines.yaml: this machine and others behind ssh."""
    entries = {"m1": {"address": "10.99.0.1" if machines > 1 else "127.0.0.1"}}
    for number in range(2, machines + 1):
        address = f"10.99.0.{number}"
        program = f"env PYTHONPATH={ROOT} {' '.join(WEFT)}"
        ssh = f"-F {folder}/client {address}"
        entries[f"m{number}"] = {"address": address, "ssh": ssh, "weft": program}
    (folder / "machines.yaml").write_text(json.dumps({"machines": entries}))


def weft(*words: str) -> str:
    """Return what a weft command prints on standard error; raise OSError if it fails."""
    done = subprocess.run([*WEFT, *words], cwd=ROOT, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise OSError(done.stderr)
    return done.stderr


def measure(folder: Path, spec: str, routing: str) -> None:
    """Bring the network up over the machines of the folder, measure, and take it down."""
    began_s = time.monotonic()
    machines = str(folder / "machines.yaml")
    print(weft("up", spec, "--routing", routing, "--machines", machines, "--detach", NAME).strip())
    print(f"up after {time.monotonic() - began_s:.1f} s", flush=True)
    rng = random.Random(1)
    with Measures(NAME) as measures:
        topology = measures.run.topology
        ends = (rng.sample(range(topology.servers), 2) for _ in range(PAIRS))
        pairs = [(src, dst) for src, dst in ends]
        traces = measures.trace(pairs, timeout_s=5.0)
        wrong = [path for path in traces if not is_computed(topology, routing, path)]
        print(f"{len(traces)} paths, {len(wrong)} differ from the graph engine's", flush=True)
        for path in wrong[:5]:
            print("   ", path)
        fail_links(measures, rng, routing)
    weft("down", "--run", NAME)


def is_computed(topology: Topology, routing: str, path: Trace) -> bool:
    """Return True if the graph engine computes this path, or by bfs one of its length."""
    computed = [
        tuple(node for node in other.nodes if not topology.is_crossbar(node))
        for other in find(routing, topology, path.src, path.dst, [])
    ]
    if parse(routing)[0] == "bfs":
        return path.reason is None and len(path.nodes) == len(computed[0])
    return path.nodes in computed


def fail_links(measures: Measures, rng: random.Random, routing: str) -> None:
    """Print outages for some links of each kind, if the scheme has other paths for their ends."""
    topology = measures.run.topology
    settle_s = 5 * int(parse(routing)[1].get("hello_ms", 30)) / 1000 + 1
    ends = {link: (a, b) for link, (a, _, b, _) in enumerate(topology.links.tolist())}
    cut = {link for part in measures.run.parts for link in part.cut}
    between_servers = [link for link, (_, b) in ends.items() if b < topology.servers]
    for is_cut in (True, False):
        candidates = [link for link in between_servers if (link in cut) == is_cut]
        for link in rng.sample(candidates, min(LINKS, len(candidates))):
            if find(routing, topology, *ends[link], [link]):
                for words in ((), ("--silent",)):
                    lengths = outages(measures, link, words, settle_s)
                    print(
                        "cut" if is_cut else "local",
                        topology.link_name(link),
                        *words,
                        *lengths,
                        flush=True,
                    )


def outages(measures: Measures, link: int, words: tuple[str, ...], settle_s: float) -> list[str]:
    """Return the longest outage of each end of a link that fails."""
    topology = measures.run.topology
    a, _, b, _ = topology.links[link].tolist()
    name = topology.link_name(link)
    measures.start_outages([(a, b), (b, a)], interval_ms=20)
    weft("fail", name, *words, "--run", NAME)
    time.sleep(settle_s)
    table = measures.stop_outages()
    weft("restore", name, "--run", NAME)
    time.sleep(settle_s)
    longest = (
        max((gap.length_s(table.end_s) for gap in outage.gaps), default=0)
        for outage in table.outages
    )
    return [f"{1000 * length_s:.0f} ms" for length_s in longest]


def main(words: list[str]) -> None:
    """Measure on guests, on this machine, or inside the first guest."""
    if words[0] == "inside":
        measure(Path(words[1]), *words[2:])
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if words[0] == "guests":
            run_guests(folder, *words[1:])
        else:
            describe(folder, 1)
            measure(folder, *words[1:])


if __name__ == "__main__":
    main(sys.argv[1:])
