"""Cost of a hop under each scheme of the data plane, beside the kernel's IPv4 forwarding.

Small UDP packets go from a host through a chain of switches to another host, which drops them.  All
work runs on one processor, in the sender's time or in its ksoftirqd's.  A hop costs an eighth of
the difference between chains of nine and of one switch.  Variants take turns, and the least of the
rounds counts.  Schemes that compare queues have four candidates.  Trimming is measured on links
with a rate that is never reached, whose queues are read before each packet.  Run as root.
"""

from __future__ import annotations

import ctypes
import socket
import struct
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from bench.report import Line, arguments, in_turns, show, stay_on_one_processor
from weft.daemons.transport.endpoint import TRIMMABLE
from weft.testbed.data_plane.data_plane import DataPlane
from weft.testbed.linux import netns, tc, tc_filters
from weft.testbed.measure.kernel_counters import PortCounterReader
from weft.testbed.network.network import RunningNetwork
from weft.testbed.runs.network_handle import netlink_of
from weft.topologies.core.address import FabricNaming, Prefix, Tier, dotted
from weft.topologies.core.link import Gbps, LinkSpec
from weft.topologies.core.topology import Topology, wire

SHORT, LONG = 1, 9
CANDIDATES = 4
BATCH = 64
PAYLOAD_BYTES = 18
TRIMMABLE_BYTES = 30  # a frame that is longer than what trimming leaves
NEVER_REACHED = LinkSpec(rate_bps=100 * Gbps, queue_packets=1000)
DAR = "dar:elephant_kb=0"  # every packet's flow is in the table
SCHEMES = ("dmodk", "vlb", "rps", "rr", "letflow", "micro", "drill:d=2,m=1", "ttc", "jsq", DAR)
KERNEL = "kernel IPv4 forwarding"
SHAPED, TRIMS = "rps, links with a rate", "rps, and ports that trim"


def chain(switches: int) -> Topology:
    """Return two hosts with a row of switches between them.

    Port 0 leads towards the first host, port 1 towards the second.
    """
    naming = FabricNaming([2], [Tier("e", (switches,))])
    s = np.arange(switches - 1)
    ends = np.concatenate([wire(0, 0, 2, 0), wire(1, 0, 1 + switches, 1)])
    row = wire(2 + s, 1, 3 + s, 0) if switches > 1 else np.zeros((0, 4), np.int64)
    return Topology.wired("chain", {"n": switches}, naming, [ends, row], server_centric=False)


class Sender:
    """Send from the first host of `network` to the second, BATCH messages in a system call."""

    def __init__(self, network: RunningNetwork, payload_bytes: int) -> None:
        with netns.inside(network.netns(0)):
            self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
        self.socket.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, TRIMMABLE << 2)
        self.socket.connect((dotted(network.plan.address(1)), 9))
        self._payload = ctypes.create_string_buffer(payload_bytes)
        self._part = ctypes.create_string_buffer(
            struct.pack("@PN", ctypes.addressof(self._payload), payload_bytes)
        )
        # struct mmsghdr
        header = struct.pack("@PIPNPNi4xI4x", 0, 0, ctypes.addressof(self._part), 1, 0, 0, 0, 0)
        self._messages = ctypes.create_string_buffer(header * BATCH)
        self.sent = 0

    def send(self, count: int) -> int:
        """Send about `count` packets; return their number."""
        before = self.sent
        for _ in range(count // BATCH):
            self.sent += max(0, netns.libc.sendmmsg(self.socket.fileno(), self._messages, BATCH, 0))
        return self.sent - before


def softirq_ns(cpu: int) -> int:
    """Return the nanoseconds that ksoftirqd of a processor has run."""
    for directory in Path("/proc").glob("[0-9]*"):
        if (directory / "comm").read_text().strip() == f"ksoftirqd/{cpu}":
            return int((directory / "schedstat").read_text().split()[0])
    raise OSError(f"no ksoftirqd/{cpu}")


def cost_ns(sender: Sender, packets: int, cpu: int) -> float:
    """Return the processor time of a packet from end to end."""
    sender.send(packets // 10)
    softirq, began = softirq_ns(cpu), time.thread_time_ns()
    sent = sender.send(packets)
    return (time.thread_time_ns() - began + softirq_ns(cpu) - softirq) / sent


class Chains:
    """A short and a long chain, forwarded by the kernel or by the data plane.

    link: of all links; None: without a rate.
    """

    def __init__(
        self,
        stack: ExitStack,
        *,
        planes: bool,
        link: LinkSpec | None = None,
        payload_bytes: int = PAYLOAD_BYTES,
    ) -> None:
        self.networks = []
        self.planes = []
        for switches in (SHORT, LONG):
            topology = chain(switches)
            network = RunningNetwork.create(topology, link, scheme="none" if planes else "static")
            stack.callback(network.down)
            self.networks.append(network)
            with closing(netlink_of(network, 1)) as sink:
                port = network.plan.ends[1][0]
                sink.request([tc.clsact(port), tc_filters.blackhole(port)])
            if planes:
                trim_bytes = link.trim_packets * link.frame_bytes if link else 0
                plane = stack.enter_context(DataPlane.load(network, "rps", trim_bytes=trim_bytes))
                for node in plane.switches:
                    plane.set_route(node, Prefix(network.plan.address(1), 32), [1] * CANDIDATES)
                plane.attach()
                self.planes.append(plane)
        self.senders = [Sender(network, payload_bytes) for network in self.networks]

    def measure(self, packets: int, cpu: int) -> tuple[float, float]:
        """Return the processor time of a packet through each chain, in ns."""
        short, long = self.senders
        return cost_ns(short, packets, cpu), cost_ns(long, packets // 3, cpu)

    def received(self) -> int:
        """Return the packets that arrived at the ends."""
        packets = 0
        for network in self.networks:
            with PortCounterReader(network) as counters:
                packets += counters.snapshot().ports[network.ifindex(1, 0)].received_packets
        return packets

    def under(self, spec: str, packets: int, cpu: int) -> tuple[float, float]:
        """Return measure() under the scheme `spec`."""
        for plane in self.planes:
            plane.set_scheme(spec, empty_queues=True)
            if spec == DAR:
                as_leaves(plane)
        return self.measure(packets, cpu)


def hop_ns(work: Mapping[str, Callable[[], tuple[float, float]]], rounds: int) -> dict[str, float]:
    """Return the cost of a hop from costs of a short and a long chain, measured in turns."""
    costs = {}
    for name, pairs in in_turns(work, rounds).items():
        short, long = map(min, zip(*pairs, strict=True))
        costs[name] = (long - short) / (LONG - SHORT)
    return costs


def hops_ns(
    chains: Mapping[str, Chains], *, packets: int, rounds: int, cpu: int
) -> dict[str, float]:
    """Return the cost of a hop in each of `chains`."""
    return hop_ns(
        {name: partial(pair.measure, packets, cpu) for name, pair in chains.items()}, rounds
    )


def arrived(chains: Mapping[str, Chains]) -> dict[str, float]:
    """Return the fraction of sent packets that arrived, by name of the chains."""
    return {
        name: pair.received() / sum(sender.sent for sender in pair.senders)
        for name, pair in chains.items()
    }


def as_leaves(plane: DataPlane) -> None:
    """Let every switch look up and note the flows from its port 0, as a leaf does for its hosts.

    In a real network one of a packet's three switches does this.
    """
    for number in range(len(plane.switches)):
        fields = plane._layout.unpack(*plane._switches[number,])
        plane._switches[number,] = (plane._layout.pack({**fields, "hosts": 1}),)


def trimming(stack: ExitStack, trim_packets: int) -> Chains:
    """Return chains on links with a rate, whose ports trim packets unless `trim_packets` is 0."""
    link = replace(NEVER_REACHED, trim_packets=trim_packets)
    return Chains(stack, planes=True, link=link, payload_bytes=TRIMMABLE_BYTES)


def lines_of(hops: Mapping[str, float], least_fraction: float) -> list[Line]:
    """Return the figures from the cost of a hop (ns) and the least fraction that arrived."""
    lines = [Line(f"{KERNEL}: a hop", hops[KERNEL], "ns")]
    for spec in SCHEMES:
        ratio = hops[spec] / hops[KERNEL]
        lines.append(Line(f"{spec}: a hop / the kernel's", ratio, "x", at_most=1.0))
        rate = 1e9 / hops[spec]
        lines.append(Line(f"{spec}: packets a second and core", rate, "", at_least=1.5e6))
    lines.append(Line(f"{SHAPED}: a hop", hops[SHAPED], "ns"))
    lines.append(Line(f"{TRIMS}: a hop / that", hops[TRIMS] / hops[SHAPED], "x", at_most=1.2))
    lines.append(Line("packets that arrived / sent", least_fraction, "x", at_least=0.999))
    return lines


def main() -> None:
    """Print the cost of a hop under each scheme, and of trimming."""
    options = arguments(__doc__, packets=60_000, rounds=5)
    cpu = stay_on_one_processor()
    with ExitStack() as stack:
        plain, ours = Chains(stack, planes=False), Chains(stack, planes=True)
        shaped, trims = trimming(stack, 0), trimming(stack, 8)
        work = {KERNEL: partial(plain.measure, options.packets, cpu)}
        work |= {spec: partial(ours.under, spec, options.packets, cpu) for spec in SCHEMES}
        work[SHAPED] = partial(shaped.measure, options.packets, cpu)
        work[TRIMS] = partial(trims.measure, options.packets, cpu)
        hops = hop_ns(work, options.rounds)
        fractions = arrived({KERNEL: plain, "schemes": ours})
    show("A hop", lines_of(hops, min(fractions.values())))


if __name__ == "__main__":
    main()
