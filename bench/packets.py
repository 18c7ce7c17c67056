"""Speed of the simulated packets: transmissions over links a second of processor time of one core.

A fat-tree of three tiers at 10 Gbit/s and 1 us a link; each host sends one message, to another
host of a permutation.  Frames have 1,514 bytes.
"""

from __future__ import annotations

import time

import numpy as np

from bench.report import Line, arguments, show
from weft.daemons.transport.parameters import Parameters, timeout_ns
from weft.testbed.traffic.packet_network import (
    DCTCP,
    HASH,
    SPRAY,
    PacketLink,
    PacketNetwork,
    TcpParameters,
    shortest,
)
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


def transmissions(k: int, name: str) -> float:
    """Return the transmissions a second of processor time; AssertionError if a message is lost."""
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
    ring = np.random.default_rng(1).permutation(topology.servers)
    for src, dst in zip(ring.tolist(), np.roll(ring, 1).tolist(), strict=True):
        net.send(0, src, dst, src, 1_000 * MESSAGE_KB[k])
    begin_s = time.process_time()
    net.run_until(10**9)
    took_s = time.process_time() - begin_s
    assert len(net.delivered) == topology.servers
    return sum(port.frames for port in net.port_counters()) / took_s


def main() -> None:
    """Print all of it; half a minute where nothing else runs."""
    options = arguments(__doc__, rounds=3)
    lines = []
    for name in TRANSPORTS:
        for k in MESSAGE_KB:
            best = max(transmissions(k, name) for _ in range(options.rounds))
            lines.append(Line(f"{name}, {k**3 // 4:,} hosts", best / 1e6, "M/s"))
    show("Simulated packets, transmissions of one core", lines)


if __name__ == "__main__":
    main()
