"""Networks, links, flows and failures at random for the packet engine, under sanitizers.

    python -m tests.fuzz.hostile_networks [--sanitizer thread] [--flows 10000000] [--seed 1]

AddressSanitizer and UndefinedBehaviorSanitizer watch the library, or ThreadSanitizer, the detector
of races, with several threads for each network.  What simulate() refuses must be refused in one
line; what it simulates must be possible: no flow is faster than its bytes by the fastest link.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import networkx as nx
import numpy as np

from weft.daemons.core import registry
from weft.testbed.packets.network import PacketNetwork
from weft.testbed.packets.simulation import Fault, PacketFlows, SimulatedFlows, simulate
from weft.testbed.traffic import ndp_library
from weft.topologies import build
from weft.topologies.core.link import LinkSpec
from weft.topologies.core.topology import Topology
from weft.topologies.core.user_graph import topology_of

FLOWS, MOST_FLOWS, DEADLINE_S = 10_000_000, 4_000, 0.05
THREADS_FLOWS, THREADS_DEADLINE_S = 100, 0.001  # threads meet after each microsecond or so
SANITIZERS = {"address,undefined": "libasan.so", "thread": "libtsan.so"}
OPTIONS = {
    "ASAN_OPTIONS": "detect_leaks=0",  # the interpreter's own
    "UBSAN_OPTIONS": "halt_on_error=1",
    "TSAN_OPTIONS": "halt_on_error=1",
}
NETWORKS = (
    *("fattree:k=2", "fattree:k=4", "clos:n=3,r=4,m=3", "star:n=9", "planes:k=2,of=fattree:k=4"),
    *("dcell:n=3,k=1", "dcell:n=4,k=1", "ficonn:n=4,k=1", "bcube:n=3,k=1", "gqstar:n=3,k=1"),
    *("slimfly:q=3,p=1", "polarfly:q=3,p=1", "hyperx:l=2,s=3,p=2", "dragonfly:p=1"),
)
TRANSPORTS = (
    *("tcp", "tcp:control=dctcp", "tcp:control=cubic,small_queues=0", "tcp:recovery=reno"),
    *("tcp:label=prr", "tcp:control=dctcp,label=plb,plb_rounds=1"),
    *("ndp", "ndp:window=1", "ndp:window=255,choice=reps,entropies=8", "ndp:choice=mrc"),
    *("ndp:retransmissions=first", "plain", "plain:rate_mbps=7,skip_us=3", "plain:go_back_ns=500"),
)
FLOW_CONTROLS = (*4 * ("none",), "credits:room_kb=10", "pause:room_kb=20")
SIZES = (1, 2, 1_433, 1_434, 1_448, 1_449, 1_458, 1_459, 8_000, 40_000)


def drawn_graph(random: Random) -> Topology:
    """Return a fabric of switches whose links, parallel ones too, have rates of their own."""
    tree = nx.random_labeled_tree(random.randint(2, 9), seed=random.getrandbits(32))
    graph = nx.MultiGraph(tree.edges)
    graph.add_nodes_from(tree, hosts=random.randint(1, 3))
    for _ in range(random.randint(0, 9)):
        a, b = random.choices(list(tree), k=2)
        if a != b:
            graph.add_edge(a, b)
    for edge in graph.edges:
        if random.random() < 0.5:
            graph.edges[edge].update(
                rate=random.choice([10**7, 10**9, 10**11]),
                queue=random.choice([1, 3, 100]),
                delay=random.choice(["0ms", "1us", "1ms"]),
            )
    return topology_of(graph)


def drawn_link(random: Random, mtu_bytes: int) -> LinkSpec:
    """Return a link, which may be absurd."""
    queue = random.choice([1, 2, 8, 100, 5_000])
    return LinkSpec(
        rate_bps=random.choice([10**6, 10**9, 10**10, 10**12]),
        queue_packets=queue,
        delay_us=random.choice([0, 0, 1, 50, 10_000]),
        trim_packets=random.choice([0, 1, 1, queue]),
        header_packets=random.choice([1, 1125]),
        mtu_bytes=mtu_bytes,
    )


def drawn_flows(random: Random, hosts: int, most: int) -> PacketFlows:
    """Return flows, many of which begin at once and go to one host."""
    numbers = np.random.default_rng(random.getrandbits(64))
    count = random.choice([1, 30, most])
    src = numbers.integers(0, hosts, count)
    dst = (src + numbers.integers(1, hosts, count)) % hosts
    if random.random() < 0.2:
        dst = np.where(src == 0, 1, 0)
    start_s = numbers.choice([0.0, 1e-9, 1e-5, 0.01], count)
    return PacketFlows(start_s, src, dst, numbers.choice(SIZES, count))


def drawn_scheme(random: Random, topology: Topology) -> str:
    """Return a scheme, mostly one that runs on the network."""
    names = sorted(registry.schemes())
    for name in random.sample(names, len(names)):
        with suppress(ValueError):
            registry.checked(topology, name)
            return name
    return names[0]


def drawn_faults(random: Random, topology: Topology) -> list[Fault]:
    """Return links that die before, while or after packets are under way."""
    faults = []
    for _ in range(random.choice([0, 0, 1, 3])):
        at_s = random.choice([0.0, 1e-5, 0.011])
        links = random.sample(range(len(topology.links)), min(2, len(topology.links)))
        known_s = at_s + random.choice([0.0, 1e-4, float("inf")])
        restored_s = at_s + random.choice([2e-4, float("inf")])
        faults.append(Fault(links, at_s, known_s, restored_s, random.random() < 0.5))
    return faults


def drawn_case(random: Random, *, threads: bool) -> dict[str, Any]:
    """Return the arguments of simulate()."""
    topology = drawn_graph(random) if random.random() < 0.3 else build(random.choice(NETWORKS))
    mtu_bytes = 1_500 if topology.own_links else random.choice([1_500, 9_000])
    daemons = not threads and random.random() < 0.1
    return {
        "network": topology,
        "scheme": drawn_scheme(random, topology),
        "flows": drawn_flows(random, topology.servers, THREADS_FLOWS if threads else MOST_FLOWS),
        "transport": random.choice(TRANSPORTS),
        "link": drawn_link(random, mtu_bytes),
        "host_link": random.choice([None, drawn_link(random, mtu_bytes)]),
        "seed": random.getrandbits(32),
        "faults": [] if daemons and random.random() < 0.9 else drawn_faults(random, topology),
        "daemons": daemons,
        "deadline_s": THREADS_DEADLINE_S if threads else DEADLINE_S,
        "rto_min_us": random.choice([200, 10_000]),
        "flow_control": "none" if threads else random.choice(FLOW_CONTROLS),
        "cut_through": random.random() < 0.1,
        "threads": random.choice([2, 3, 5] if threads else [None, None, 1]),
    }


def check(case: dict[str, Any], result: SimulatedFlows) -> None:
    """Raise AssertionError if a simulation's outcome is impossible."""
    flows, topology = case["flows"], case["network"]
    links = [case["link"], case["host_link"] or case["link"], *topology.own_links.values()]
    took_s = result.completion_s
    ended = ~np.isnan(took_s)
    fastest_bps = max(link.rate_bps for link in links) * max(1, topology.planes)
    assert (took_s[ended] >= flows.size_bytes[ended] * 8 / fastest_bps - 2e-9).all()
    assert result.transmissions >= ended.sum()


def attack(most_flows: int, seed: int, *, threads: bool) -> Counter[str]:
    """Simulate until there were so many flows; return the outcomes, by number of flows."""
    random, outcomes, printed_s = Random(seed), Counter[str](), time.monotonic()
    while outcomes["flows"] < most_flows:
        case = drawn_case(random, threads=threads)
        try:
            check(case, simulate(**case))
        except ValueError as error:
            if "\n" in str(error):
                raise
            outcomes["refused"] += 1
            continue
        except BaseException:
            print(case, file=sys.stderr)
            raise
        outcomes["networks"] += 1
        outcomes["flows"] += len(case["flows"].src)
        outcomes[case["transport"].partition(":")[0]] += 1
        if time.monotonic() > printed_s + 60:
            printed_s = time.monotonic()
            print(dict(outcomes), flush=True)
    return outcomes


def run(sanitizer: str, most_flows: int, seed: int) -> subprocess.CompletedProcess[bytes]:
    """Attack a library that is compiled with a sanitizer, in a process of its own."""
    find = ["gcc", f"-print-file-name={SANITIZERS[sanitizer]}"]
    runtime = subprocess.run(find, check=True, capture_output=True, text=True).stdout.strip()
    rooms = ndp_library.PATH.parents[1]
    sources = map(str, [*rooms.glob("traffic/*.c"), *rooms.glob("packets/*.c")])
    with tempfile.TemporaryDirectory() as folder:
        library = str(Path(folder) / "ndp.so")
        flags = ["-std=gnu11", "-O1", "-g", f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all"]
        subprocess.run(["gcc", *flags, "-shared", "-fPIC", "-o", library, *sources], check=True)
        options = ["--sanitizer", sanitizer, "--flows", str(most_flows), "--seed", str(seed)]
        command = [sys.executable, "-m", "tests.fuzz.hostile_networks", *options]
        environment = {**os.environ, **OPTIONS, "LD_PRELOAD": runtime, "OPENBLAS_NUM_THREADS": "1"}
        return subprocess.run(
            ["setarch", "--addr-no-randomize", *command, "--library", library],
            env=environment,
            check=False,
        )


def main(words: Sequence[str] | None = None) -> int:
    """Attack, and return the exit status: not 0 for a finding."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sanitizer", choices=SANITIZERS, default="address,undefined")
    parser.add_argument("--flows", type=int, default=FLOWS)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--library", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(words)
    if options.library is None:
        return run(options.sanitizer, options.flows, options.seed).returncode
    assert PacketNetwork.__init__.__kwdefaults__
    PacketNetwork.__init__.__kwdefaults__["path"] = options.library
    outcomes = attack(options.flows, options.seed, threads=options.sanitizer == "thread")
    print(dict(outcomes))
    return 0 if all(outcomes[name] for name in ("tcp", "ndp", "plain")) else 1


if __name__ == "__main__":
    sys.exit(main())
