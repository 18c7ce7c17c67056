"""Compare a network in the kernel with its plan."""

from __future__ import annotations

from weft.testbed.linux import live_port, tc
from weft.testbed.linux.interface import InterfaceState, interfaces
from weft.testbed.network.handle import Handle
from weft.testbed.plan.network_plan import End, NetworkPlan, ifb_of
from weft.topologies.core.link import LinkSpec

RATE_TOLERANCE_BPS = 8  # the kernel counts bytes per second


class Mismatch(RuntimeError):
    """The kernel does not hold what was planned."""


def check(network: Handle) -> None:
    """Raise Mismatch if an interface or queue in the kernel differs from the plan."""
    plan = network.plan
    lossy = any(link.loss_ppb for link in plan.link_specs)
    for node in network.local_nodes:
        with network.at(node) as socket:
            by_index = interfaces(socket)
            shapes = tc.shapes(socket) if plan.link_specs else {}
            losses = live_port.losses(socket) if lossy else {}
        for end in plan.ends[node].values():
            _check_interface(end, by_index.get(end.ifindex), plan)
            link = plan.link_spec(end.link)
            if link is None:
                continue
            shape = shapes.get(end.ifindex)
            if plan.virtual:
                if shape != plan.exact_link(end):
                    raise Mismatch(f"{end.dev}: planned {link}, the kernel has {shape}")
            else:
                _check_queue(end, link, shape)
                _check_delay(end, link, shapes.get(ifb_of(end).ifindex))
            _check_loss(end, link, losses.get(end.ifindex, 0))
            segments = by_index[end.ifindex].gso_max_segs
            if node < network.topology.servers and segments != 1:
                raise Mismatch(f"{end.dev}: planned gso_max_segs 1, the kernel has {segments}")


def _check_interface(end: End, interface: InterfaceState | None, plan: NetworkPlan) -> None:
    if interface is None or interface.name != end.dev or not interface.up:
        raise Mismatch(
            f"{end.dev}: planned up with index {end.ifindex}, the kernel has {interface}"
        )
    if interface.mtu != plan.mtu_bytes:
        raise Mismatch(
            f"{end.dev}: planned an MTU of {plan.mtu_bytes}, the kernel has {interface.mtu}"
        )
    tunnel = plan.tunnel_of(end.link)
    if interface.tunnel != tunnel:
        raise Mismatch(f"{end.dev}: planned the tunnel {tunnel}, the kernel has {interface.tunnel}")


def _check_queue(end: End, link: LinkSpec, shape: tc.DeviceDisciplines | None) -> None:
    if (
        shape is None
        or abs((shape.rate_bps or 0) - link.rate_bps) >= RATE_TOLERANCE_BPS
        or shape.queue_packets != link.queue_packets
        or shape.header_packets != (link.header_packets if link.trim_packets else None)
    ):
        raise Mismatch(f"{end.dev}: planned {link}, the kernel has {shape}")


def _check_delay(end: End, link: LinkSpec, ifb: tc.DeviceDisciplines | None) -> None:
    """Check the delay of packets that arrive at `end`, by its ifb."""
    if link.delay_us and ifb and ifb.delay_us != link.delay_us:
        raise Mismatch(f"{end.dev}: planned {link}, the kernel delays packets by {ifb.delay_us} us")


def _check_loss(end: End, link: LinkSpec, loss_ppb: int) -> None:
    """Check the loss of packets that arrive at `end`."""
    if abs(loss_ppb - link.loss_ppb) > 1:
        raise Mismatch(f"{end.dev}: planned {link}, the kernel loses {loss_ppb} of a billion")
