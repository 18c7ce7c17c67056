"""Compare a network in the kernel with its plan."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import NamedTuple

from weft.testbed.linux import live_port, netlink, tc
from weft.testbed.network.handle import Handle
from weft.testbed.plan.network_plan import IFF_UP, IFINFO, IFLA_GSO_MAX_SEGS, IFLA_IFNAME, End
from weft.topologies.core.link import LinkSpec

IFLA_EXT_MASK, RTEXT_FILTER_SKIP_STATS = 29, 1 << 3
U32 = struct.Struct("=I")
RATE_TOLERANCE_BPS = 8  # the kernel counts bytes per second


class Mismatch(RuntimeError):
    """The kernel does not hold what was planned."""


class KernelInterface(NamedTuple):
    """The state of an interface in the kernel."""

    name: str
    up: bool
    gso_max_segs: int
    mtu: int


def interfaces(socket: netlink.Socket) -> dict[int, KernelInterface]:
    """Return every interface in the socket's namespace, by index."""
    by_index = {}
    request = IFINFO.pack(0, 0, 0, 0, 0) + netlink.u32(IFLA_EXT_MASK, RTEXT_FILTER_SKIP_STATS)
    for body in socket.dump(netlink.RTM_GETLINK, request):
        _, _, index, flags, _ = IFINFO.unpack_from(body)
        attributes = netlink.attributes(body, IFINFO.size)
        segments = attributes.get(IFLA_GSO_MAX_SEGS)
        by_index[index] = KernelInterface(
            name=attributes[IFLA_IFNAME].rstrip(b"\0").decode(),
            up=bool(flags & IFF_UP),
            gso_max_segs=U32.unpack(segments)[0] if segments else 0,
            mtu=U32.unpack(attributes[live_port.IFLA_MTU])[0],
        )
    return by_index


def check(network: Handle) -> None:
    """Raise Mismatch if an interface or queue in the kernel differs from the plan."""
    plan = network.plan
    lossy = any(link.loss_ppb for link in plan.link_specs)
    for node in range(network.topology.nodes):
        with network.at(node) as socket:
            by_index = interfaces(socket)
            shapes = tc.shapes(socket) if plan.link_specs else {}
            losses = live_port.losses(socket) if lossy else {}
        for end in plan.ends[node].values():
            _check_interface(end, by_index.get(end.ifindex), plan.mtu_bytes)
            link = plan.link_spec(end.link)
            if link is None:
                continue
            if network.topology.is_crossbar(node):  # it has no processor
                link = replace(link, hop_ns=0)
            _check_queue(end, link, shapes.get(end.ifindex))
            _check_arrivals(end, link, shapes.get(plan.ifb(end)[0]), losses.get(end.ifindex, 0))
            segments = by_index[end.ifindex].gso_max_segs
            if node < network.topology.servers and segments != 1:
                raise Mismatch(f"{end.dev}: planned gso_max_segs 1, the kernel has {segments}")


def _check_interface(end: End, interface: KernelInterface | None, mtu_bytes: int) -> None:
    if interface is None or interface.name != end.dev or not interface.up:
        raise Mismatch(
            f"{end.dev}: planned up with index {end.ifindex}, the kernel has {interface}"
        )
    if interface.mtu != mtu_bytes:
        raise Mismatch(f"{end.dev}: planned an MTU of {mtu_bytes}, the kernel has {interface.mtu}")


def _check_queue(end: End, link: LinkSpec, shape: tc.DeviceDisciplines | None) -> None:
    if (
        shape is None
        or abs((shape.rate_bps or 0) - link.rate_bps) >= RATE_TOLERANCE_BPS
        or shape.queue_packets != link.queue_packets
        or shape.header_packets != (link.header_packets if link.trim_packets else None)
    ):
        raise Mismatch(f"{end.dev}: planned {link}, the kernel has {shape}")


def _check_arrivals(
    end: End, link: LinkSpec, ifb: tc.DeviceDisciplines | None, loss_ppb: int
) -> None:
    """Check the loss and delay of packets that arrive at `end`; the delay is at its ifb."""
    if link.delay_us and ifb and ifb.delay_us != link.delay_us:
        raise Mismatch(f"{end.dev}: planned {link}, the kernel delays packets by {ifb.delay_us} us")
    if link.hop_ns and ifb and ifb.hop_ns != link.hop_ns:
        raise Mismatch(f"{end.dev}: planned {link}, the kernel takes {ifb.hop_ns} ns for a packet")
    if abs(loss_ppb - link.loss_ppb) > 1:
        raise Mismatch(f"{end.dev}: planned {link}, the kernel loses {loss_ppb} of a billion")
