"""Cost of a hop under each scheme of the data plane, beside the kernel's IPv4 forwarding.

Small UDP packets go from a host through a chain of switches to another, which drops them; sender,
switches and receiver run on one processor, in the sender's time or in that of its ksoftirqd.  What
a chain of nine switches takes more than a chain of one, by eight, is what a hop takes.  Variants
take turns, and the least of several rounds counts, so that what else the machine does falls on all
alike.  Where a scheme compares queues, it has four candidates.  What trimming costs is seen on
links with a rate that is never reached, whose queues are looked at before each packet.  Run as
root.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import socket
import struct
import time
from collections.abc import Mapping
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

import numpy as np

from bench.report import Line, show
from weft.daemons.transport.packets import TRIMMABLE
from weft.testbed.data_plane.data_plane import DataPlane
from weft.testbed.linux import netns, tc
from weft.testbed.measure.port_counters import PortCounterReader
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


def chain(switches: int) -> Topology:
    """Two hosts with a row of switches between them: port 0 leads towards the first, port 1 towards
    the second.
    """
    naming = FabricNaming([2], [Tier("e", (switches,))])
    s = np.arange(switches - 1)
    ends = np.concatenate([wire(0, 0, 2, 0), wire(1, 0, 1 + switches, 1)])
    row = wire(2 + s, 1, 3 + s, 0) if switches > 1 else np.zeros((0, 4), np.int64)
    return Topology.wired("chain", {"n": switches}, naming, [ends, row], server_centric=False)


class Sender:
    """Sends from the first host of `network` to the second, a batch of messages in each system
    call.
    """

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
        """Send about `count` packets; how many they were."""
        before = self.sent
        for _ in range(count // BATCH):
            self.sent += max(0, netns.libc.sendmmsg(self.socket.fileno(), self._messages, BATCH, 0))
        return self.sent - before


def softirq_ns(cpu: int) -> int:
    """Nanoseconds that ksoftirqd of a processor has run."""
    for directory in Path("/proc").glob("[0-9]*"):
        if (directory / "comm").read_text().strip() == f"ksoftirqd/{cpu}":
            return int((directory / "schedstat").read_text().split()[0])
    raise OSError(f"no ksoftirqd/{cpu}")


def cost_ns(sender: Sender, packets: int, cpu: int) -> float:
    """Processor time that a packet takes from end to end."""
    sender.send(packets // 10)
    softirq, began = softirq_ns(cpu), time.thread_time_ns()
    sent = sender.send(packets)
    return (time.thread_time_ns() - began + softirq_ns(cpu) - softirq) / sent


class Chains:
    """A short and a long chain, by the kernel alone or with the data plane; with links like
    `link`.
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
                sink.request([tc.clsact(port), tc.blackhole(port)])
            if planes:
                trim_bytes = link.trim_packets * link.frame_bytes if link else 0
                plane = stack.enter_context(DataPlane.load(network, "rps", trim_bytes=trim_bytes))
                for node in plane.switches:
                    plane.set_route(node, Prefix(network.plan.address(1), 32), [1] * CANDIDATES)
                plane.attach()
                self.planes.append(plane)
        self.senders = [Sender(network, payload_bytes) for network in self.networks]

    def measure(self, packets: int, cpu: int) -> tuple[float, float]:
        """Nanoseconds of processor time that a packet takes through the short chain and through the
        long one.
        """
        short, long = self.senders
        return cost_ns(short, packets, cpu), cost_ns(long, packets // 3, cpu)

    def received(self) -> int:
        """Packets that have arrived at the ends."""
        found = 0
        for network in self.networks:
            with PortCounterReader(network) as counters:
                found += counters.snapshot().ports[network.ifindex(1, 0)].received_packets
        return found


def hops_ns(
    chains: Mapping[str, Chains], *, packets: int, rounds: int, cpu: int
) -> dict[str, float]:
    """By name of the chains, nanoseconds that a hop takes, all measured in turns; and the least of
    each.
    """
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in chains}
    for _ in range(rounds):
        for name, each in chains.items():
            found[name].append(each.measure(packets, cpu))
    return {
        name: (min(long for _, long in rounds) - min(short for short, _ in rounds)) / (LONG - SHORT)
        for name, rounds in found.items()
    }


def arrived(chains: Mapping[str, Chains]) -> dict[str, float]:
    """By name of the chains, the fraction of all packets sent that has arrived."""
    return {
        name: each.received() / sum(sender.sent for sender in each.senders)
        for name, each in chains.items()
    }


def as_leaves(plane: DataPlane) -> None:
    """Let every switch look up and note the flows that come in at its port 0, as a leaf does those
    of its hosts; in a real network one of a packet's three switches does this, and one notes where
    it came from.
    """
    for number in range(len(plane.switches)):
        fields = plane._layout.unpack(*plane._switches[number,])
        plane._switches[number,] = (plane._layout.pack({**fields, "hosts": 1}),)


def costs(
    plain: Chains, ours: Chains, *, packets: int, rounds: int, cpu: int
) -> dict[str, tuple[float, float]]:
    """For each variant the least that a packet took through the short chain and through the long
    one.
    """
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in (KERNEL, *SCHEMES)}
    for _ in range(rounds):
        found[KERNEL].append(plain.measure(packets, cpu))
        for spec in SCHEMES:
            for plane in ours.planes:
                plane.set_scheme(spec, empty_queues=True)
                if spec == DAR:
                    as_leaves(plane)
            found[spec].append(ours.measure(packets, cpu))
    return {
        name: (min(short for short, _ in all_), min(long for _, long in all_))
        for name, all_ in found.items()
    }


def trimming(shaped: Chains, trims: Chains, *, packets: int, rounds: int, cpu: int) -> list[Line]:
    """Return the additional cost of a hop whose queue is read before each packet."""
    found: list[list[float]] = [[], []]
    for _ in range(rounds):
        for each, chains in zip(found, (shaped, trims), strict=True):
            short, long = chains.measure(packets, cpu)
            each.append((long - short) / (LONG - SHORT))
    without, with_ = (min(each) for each in found)
    return [
        Line("rps, links with a rate: a hop", without, "ns"),
        Line("rps, and ports that trim: a hop / that", with_ / without, "x", at_most=1.2),
    ]


def main() -> None:
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("--packets", type=int, default=60_000, help="in each measurement")
    given.add_argument("--rounds", type=int, default=5)
    options = given.parse_args()
    cpu = max(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cpu})
    with ExitStack() as stack:
        plain, ours = Chains(stack, planes=False), Chains(stack, planes=True)
        found = costs(plain, ours, packets=options.packets, rounds=options.rounds, cpu=cpu)
        shaped, trims = (
            Chains(
                stack,
                planes=True,
                link=replace(NEVER_REACHED, trim_packets=n),
                payload_bytes=TRIMMABLE_BYTES,
            )
            for n in (0, 8)
        )
        more = trimming(shaped, trims, packets=options.packets, rounds=options.rounds, cpu=cpu)
        sent = sum(sender.sent for chains in (plain, ours) for sender in chains.senders)
        arrived = plain.received() + ours.received()
    hops = {name: (long - short) / (LONG - SHORT) for name, (short, long) in found.items()}
    lines = [Line(f"{KERNEL}: a hop", hops[KERNEL], "ns")]
    for spec in SCHEMES:
        lines.append(
            Line(f"{spec}: a hop / the kernel's", hops[spec] / hops[KERNEL], "x", at_most=1.0)
        )
        lines.append(
            Line(f"{spec}: packets a second and core", 1e9 / hops[spec], "", at_least=1.5e6)
        )
    lines += more
    lines.append(Line("packets that arrived / sent", arrived / sent, "x", at_least=0.999))
    show("A hop", lines)


if __name__ == "__main__":
    main()
