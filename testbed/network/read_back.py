"""What the kernel holds of a network, compared with what was planned."""

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
    """An interface as the kernel has it."""

    name: str
    up: bool
    gso_max_segs: int
    mtu: int


def interfaces(socket: netlink.Socket) -> dict[int, KernelInterface]:
    """Every interface in the socket's namespace, by index."""
    found = {}
    wanted = IFINFO.pack(0, 0, 0, 0, 0) + netlink.u32(IFLA_EXT_MASK, RTEXT_FILTER_SKIP_STATS)
    for body in socket.dump(netlink.RTM_GETLINK, wanted):
        _, _, index, flags, _ = IFINFO.unpack_from(body)
        has = netlink.attributes(body, IFINFO.size)
        segments = has.get(IFLA_GSO_MAX_SEGS)
        found[index] = KernelInterface(
            name=has[IFLA_IFNAME].rstrip(b"\0").decode(),
            up=bool(flags & IFF_UP),
            gso_max_segs=U32.unpack(segments)[0] if segments else 0,
            mtu=U32.unpack(has[live_port.IFLA_MTU])[0],
        )
    return found


def check(network: Handle) -> None:
    """Read back every interface and its queue; Mismatch says where the kernel holds something else
    than planned."""
    plan = network.plan
    for node in range(network.topology.nodes):
        with network.at(node) as socket:
            found = interfaces(socket)
            shapes = tc.shapes(socket) if plan.link_specs else {}
            losses = (
                live_port.losses(socket) if any(each.loss_ppb for each in plan.link_specs) else {}
            )
        for end in plan.ends[node].values():
            interface = found.get(end.ifindex)
            if interface is None or interface.name != end.dev or not interface.up:
                raise Mismatch(
                    f"{end.dev}: planned up with index {end.ifindex}, the kernel has {found}"
                )
            if interface.mtu != plan.mtu_bytes:
                raise Mismatch(
                    f"{end.dev}: planned an MTU of {plan.mtu_bytes}, the kernel has {interface.mtu}"
                )
            link = plan.link_spec(end.link)
            if link is None:
                continue
            if network.topology.is_crossbar(node):  # it has no processor
                link = replace(link, hop_ns=0)
            _check_shape(end, link, shapes.get(end.ifindex), shapes.get(plan.ifb(end)[0]))
            if abs(losses.get(end.ifindex, 0) - link.loss_ppb) > 1:
                raise Mismatch(
                    f"{end.dev}: planned {link}, the kernel loses "
                    f"{losses.get(end.ifindex, 0)} of a billion"
                )
            if node < network.topology.servers and interface.gso_max_segs != 1:
                raise Mismatch(
                    f"{end.dev}: planned gso_max_segs 1, the kernel has {interface.gso_max_segs}"
                )


def _check_shape(
    end: End,
    link: LinkSpec,
    held: tc.DeviceDisciplines | None,
    arrivals: tc.DeviceDisciplines | None,
) -> None:
    """Mismatch unless `held` is what the kernel should hold for `link` at `end`, and `arrivals` at
    its ifb."""
    if (
        held is None
        or abs((held.rate_bps or 0) - link.rate_bps) >= RATE_TOLERANCE_BPS
        or held.queue_packets != link.queue_packets
        or held.header_packets != (link.header_packets if link.trim_packets else None)
    ):
        raise Mismatch(f"{end.dev}: planned {link}, the kernel has {held}")
    if link.delay_us and arrivals and arrivals.delay_us != link.delay_us:
        raise Mismatch(
            f"{end.dev}: planned {link}, the kernel delays packets by {arrivals.delay_us} us"
        )
    if link.hop_ns and arrivals and arrivals.hop_ns != link.hop_ns:
        raise Mismatch(
            f"{end.dev}: planned {link}, the kernel takes {arrivals.hop_ns} ns for a packet"
        )
