"""Accuracy of shaped links: TCP goodput / (rate x payload / frame).

Run as root, on a quiet machine.
"""

from __future__ import annotations

from bench.report import Line, show
from weft.testbed.network.network import RunningNetwork
from weft.testbed.traffic.iperf import IperfSpec, iperf
from weft.topologies import build
from weft.topologies.core.link import LinkSpec, Mbps

# a full frame: 1500 bytes without two headers and the timestamp option, and 14 of Ethernet
PAYLOAD_FRACTION = 1448 / 1514
SECONDS = 5


def goodput_share(rate_bps: int) -> float:
    """Return the goodput of a TCP flow across two links and a crossbar / the possible goodput."""
    network = RunningNetwork.create(
        build("dcell:n=3,k=0"), LinkSpec(rate_bps=rate_bps, queue_packets=250), scheme="static"
    )
    try:
        result = iperf(network, 0, 1, IperfSpec(seconds=SECONDS, omit_s=2))
    finally:
        network.down()
    return result.goodput_bps / (rate_bps * PAYLOAD_FRACTION)


def main() -> None:
    """Print the share for rates that a small machine can carry."""
    lines = []
    for rate in (10, 100):
        share = goodput_share(rate * Mbps)
        lines.append(Line(f"TCP goodput at {rate} Mbit/s, of the ideal", 100 * share, "%"))
        lines.append(Line("  distance from it", abs(100 * share - 100), "%", at_most=1))
    show("Exactness of links", lines)


if __name__ == "__main__":
    main()
