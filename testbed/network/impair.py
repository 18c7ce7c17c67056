"""Change rate, queue, loss and delay of a link of an open network while packets flow."""

from __future__ import annotations

from dataclasses import dataclass, replace

from weft.testbed.data_plane import data_plane
from weft.testbed.linux import clock, live_port, netlink, tc
from weft.testbed.machine import doctor
from weft.testbed.network.handle import Handle
from weft.testbed.plan.network_plan import End, ifb_of
from weft.topologies.core.link import LinkSpec, Mbps, delay_us, rate_bps

QUEUE_PACKETS = 250  # default of a link that had no rate


@dataclass(frozen=True)
class Impairment:
    """Parameters of a link to change, each direction alike; None: unchanged.

    loss_ppb: packets lost of a billion.
    """

    rate_bps: int | None = None
    queue_packets: int | None = None
    loss_ppb: int | None = None
    delay_us: int | None = None
    jitter_us: int | None = None


def asked(
    *,
    loss: str | None = None,
    delay: str | None = None,
    jitter: str | None = None,
    rate: str | None = None,
    queue: int | str | None = None,
) -> Impairment:
    """Return the impairment that these texts describe.

    Args:
        loss: per cent, 0.5 or 0.5%.
        delay: such as 2ms.
        jitter: such as 1ms.
        rate: such as 2mbit.
        queue: packets.

    Raises:
        ValueError: a text is malformed, or none was passed; one line says which.
    """
    if queue is not None and not f"{queue}".isdecimal():
        raise ValueError(f"queue: a number of packets, got {queue!r}")
    change = Impairment(
        rate_bps=None if rate is None else rate_bps(rate),
        queue_packets=None if queue is None else int(queue),
        loss_ppb=None if loss is None else _loss_ppb(loss),
        delay_us=None if delay is None else delay_us(delay),
        jitter_us=None if jitter is None else delay_us(jitter),
    )
    if change == Impairment():
        raise ValueError("impair: either clear, or some of loss, delay, jitter, rate and queue")
    return change


def _loss_ppb(text: str) -> int:
    """Return a loss in per cent as packets of a billion."""
    try:
        percent = float(text.removesuffix("%"))
    except ValueError:
        percent = -1.0
    if not 0 <= percent <= 100:
        raise ValueError(f"loss: per cent of packets, 0 to 100, got {text!r}")
    return round(percent * live_port.BILLION / 100)


def impair(network: Handle, name: str, change: Impairment) -> None:
    """Change the link called `name`, h0-w0, in both directions.

    Packets in the queue stay there if the link has a rate already.

    Raises:
        ValueError: no such link, the kernel lacks netem for a delay, or the change is impossible.
        OSError: the kernel holds other values after the change.
    """
    for node, port, _ in network.both_ends(network.topology.link(name)):
        impair_way(network, node, port, change)


def impair_way(network: Handle, node: int, port: int, change: Impairment) -> None:
    """Change the link at `port` of `node` in the direction away from it; see impair().

    Rate and queue are changed where packets leave, loss and delay where they arrive.
    """
    near = network.plan.ends[node][port]
    delayed = change.delay_us is not None or change.jitter_us is not None
    if delayed:
        _require_delay(network, network.topology.link_name(near.link))
    if change.rate_bps is not None or change.queue_packets is not None:
        _set_rate(network, node, near, change)
    far = network.plan.ends[near.peer][near.peer_port]
    with network.at(near.peer) as socket:
        if change.loss_ppb is not None:
            _set_loss(socket, far, change.loss_ppb)
        if delayed:
            live_port.set_delay(
                socket,
                far,
                ifb_of(far),
                change.delay_us or 0,
                change.jitter_us or 0,
                filtered=clock.is_virtual(),
            )


def _set_loss(socket: netlink.Socket, end: End, loss_ppb: int) -> None:
    """Set the loss of arriving packets, and read it back."""
    live_port.set_loss(socket, end, loss_ppb)
    kernel_ppb = live_port.losses(socket).get(end.ifindex, 0)
    if abs(kernel_ppb - loss_ppb) > 1:
        raise OSError(f"{end.dev}: asked to lose {loss_ppb} of a billion, the kernel {kernel_ppb}")


def _set_rate(network: Handle, node: int, end: End, change: Impairment) -> None:
    """Set rate and queue of the port of `node` at `end`."""
    if change.rate_bps is None and kernel_link(network, end.link) is None:
        name = network.topology.link_name(end.link)
        raise ValueError(f"{name} has no rate, and so no queue: give it a rate, too")
    with network.at(node) as socket:
        shape = tc.shapes(socket).get(end.ifindex)
        link = _changed_link(network, end.link, shape, change)
        live_port.set_rate(socket, end, link, shape)


def from_mininet(
    *,
    bw: float | None,
    delay: str | None,
    jitter: str | None,
    loss: float | None,
    max_queue_size: int | None,
) -> Impairment:
    """Return the impairment that Mininet's parameters of an interface describe."""
    return Impairment(
        rate_bps=None if bw is None else round(float(bw) * Mbps),
        queue_packets=None if max_queue_size is None else int(max_queue_size),
        loss_ppb=None if loss is None else round(float(loss) * live_port.BILLION / 100),
        delay_us=_mininet_delay_us(delay),
        jitter_us=_mininet_delay_us(jitter),
    )


def _mininet_delay_us(text: str | None) -> int | None:
    """Return a time in microseconds; a number without a unit is one already, as for tc."""
    if text is None:
        return None
    return delay_us(f"{text}" if f"{text}"[-1:].isalpha() else f"{text}us")


def _require_delay(network: Handle, name: str) -> None:
    """Raise ValueError if links of this network cannot have a delay."""
    for feature in ("netem", "ifb"):
        doctor.require(feature, f"a delay of {name}")
    if data_plane.program_of(network) is not None and not clock.is_virtual():
        raise ValueError(
            f"{name}: a delay and a scheme of the data plane exclude each other: the "
            f"program sees no delay"
        )


def _changed_link(
    network: Handle, link: int, shape: tc.DeviceDisciplines | None, change: Impairment
) -> LinkSpec:
    """Return the link as it is to be; a switch that trims goes on trimming."""
    planned = network.plan.link_spec(link)
    rate = change.rate_bps or (shape.rate_bps if shape else None)
    queue = change.queue_packets or (shape.queue_packets if shape else None) or QUEUE_PACKETS
    if planned:
        return replace(planned, rate_bps=rate or planned.rate_bps, queue_packets=queue)
    return LinkSpec(rate_bps=rate or 0, queue_packets=queue)


def undo(network: Handle, name: str) -> None:
    """Set the link called `name` back to its state when the network came up."""
    link = network.topology.link(name)
    planned = network.plan.link_spec(link)
    for node, _, end in network.both_ends(link):
        with network.at(node) as socket:
            shapes = tc.shapes(socket)
            if planned:
                live_port.set_rate(socket, end, planned, shapes.get(end.ifindex))
            elif end.ifindex in shapes:
                live_port.unlimit(socket, end)
            live_port.set_loss(socket, end, planned.loss_ppb if planned else 0)
            ifb = ifb_of(end)
            if ifb.ifindex in shapes:
                planned_us = planned.delay_us if planned else 0
                live_port.set_delay(socket, end, ifb, planned_us, 0, filtered=clock.is_virtual())


def kernel_link(network: Handle, link: int) -> LinkSpec | None:
    """Return a link as the kernel has it, towards its second end; None: as fast as the machine."""
    (near, _, near_end), (far, _, far_end) = network.both_ends(link)
    with network.at(near) as socket:
        shape = tc.shapes(socket).get(near_end.ifindex)
    with network.at(far) as socket:
        arrivals = tc.shapes(socket).get(ifb_of(far_end).ifindex)
        loss_ppb = live_port.losses(socket).get(far_end.ifindex, 0)
    if shape is None or not shape.rate_bps:
        return None
    return LinkSpec(
        rate_bps=shape.rate_bps,
        queue_packets=shape.queue_packets or QUEUE_PACKETS,
        delay_us=(arrivals.delay_us or 0) if arrivals else 0,
        loss_ppb=loss_ppb,
        mtu_bytes=network.plan.mtu_bytes,
    )
