"""Change rate, queue, loss and delay of a link of an open network while packets flow.

A lower rate models a link that has lost some of its lanes: its daemons may be told.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from weft.daemons.core import registry
from weft.testbed.data_plane import data_plane
from weft.testbed.linux import clock, live_port, netlink, tc
from weft.testbed.linux.interface import Device
from weft.testbed.machine import doctor
from weft.testbed.network.handle import Handle
from weft.testbed.node_daemon import daemon_files
from weft.testbed.node_daemon.daemon import DEGRADED
from weft.testbed.plan.network_plan import End, ifb_of
from weft.testbed.plan.plane_selection import daemons_scheme
from weft.topologies.core.grammar import parse
from weft.topologies.core.link import LinkSpec, Mbps, delay_us, loss_ppb, rate_bps

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

    @property
    def delays(self) -> bool:
        """Return True if the delay or its deviation changes."""
        return self.delay_us is not None or self.jitter_us is not None


def impairment(
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
    if queue is not None and not (f"{queue}".isdecimal() and int(queue)):
        raise ValueError(f"queue: a number of packets from 1, got {queue!r}")
    change = Impairment(
        rate_bps=None if rate is None else rate_bps(rate),
        queue_packets=None if queue is None else int(queue),
        loss_ppb=None if loss is None else loss_ppb(loss),
        delay_us=None if delay is None else delay_us(delay),
        jitter_us=None if jitter is None else delay_us(jitter),
    )
    if change == Impairment():
        raise ValueError("impair: either clear, or some of loss, delay, jitter, rate and queue")
    return change


def impair(network: Handle, name: str, change: Impairment) -> None:
    """Change the link called `name`, h0-w0, in both directions.

    Packets in the queue stay there if the link has a rate already.

    Raises:
        ValueError: no such link, the kernel lacks netem for a delay, or the change is impossible.
        OSError: the kernel holds other values after the change.
    """
    for node, _, end in network.both_ends(network.topology.link(name)):
        # near end of one direction, and far end of the other: both change alike
        _change(network, (node, end), (node, end), change)


def impair_way(network: Handle, node: int, port: int, change: Impairment) -> None:
    """Change the link at `port` of `node` in the direction away from it; see impair()."""
    near = network.plan.ends[node][port]
    far = network.plan.ends[near.peer][near.peer_port]
    _change(network, (node, near), (near.peer, far), change)


def _change(
    network: Handle, near: tuple[int, End], far: tuple[int, End], change: Impairment
) -> None:
    """Change rate and queue at the end of `near`, a node, and arrivals at that of `far`."""
    link = near[1].link
    name = network.topology.link_name(link)
    program_decides = data_plane.program_of(network) is not None
    if change.delays and program_decides and not clock.is_virtual():
        raise ValueError(
            f"{name}: a delay and a scheme of the data plane exclude each other: the "
            f"program sees no delay"
        )
    with network.at(near[0]) as near_socket, network.at(far[0]) as far_socket:
        direction = Direction(name, near_socket, near[1], far_socket, far[1])
        change_direction(direction, change, network.plan.link_spec(link))


class Direction(NamedTuple):
    """One direction of a link: its ends, and sockets in their namespaces.

    name: of the link or port, for messages.
    """

    name: str
    near_socket: netlink.Socket
    near: Device
    far_socket: netlink.Socket
    far: Device


def change_direction(
    direction: Direction,
    change: Impairment,
    planned: LinkSpec | None,
    queue_packets: int = QUEUE_PACKETS,
) -> None:
    """Change rate and queue where packets leave, loss and delay where they arrive.

    Under the virtual clock the delay is that of the port where they leave.

    Args:
        direction: with hooks for filters at its far end.
        change: what to change.
        planned: specification of the link; a switch that trims goes on trimming.
        queue_packets: size of a new queue.

    Raises:
        ValueError: the kernel lacks netem, or a queue is to change without a rate.
        OSError: the kernel holds other values after the change.
    """
    if change.delays and not clock.is_virtual():
        for feature in ("netem", "ifb"):
            doctor.require(feature, f"a delay of {direction.name}")
    if change.rate_bps is not None or change.queue_packets is not None:
        _set_rate(direction, change, planned, queue_packets)
    far = direction.far
    if change.loss_ppb is not None:
        live_port.set_loss(direction.far_socket, far, change.loss_ppb)
        kernel_ppb = live_port.losses(direction.far_socket).get(far.ifindex, 0)
        if abs(kernel_ppb - change.loss_ppb) > 1:
            raise OSError(
                f"{far.dev}: asked to lose {change.loss_ppb} of a billion, the kernel {kernel_ppb}"
            )
    if change.delays:
        _set_delay(direction, change)


def _set_delay(direction: Direction, change: Impairment) -> None:
    near, far = direction.near, direction.far
    times_us = {"delay_us": change.delay_us, "jitter_us": change.jitter_us}
    times_us = {name: time_us for name, time_us in times_us.items() if time_us is not None}
    if clock.is_virtual():
        live_port.change_exact_link(direction.near_socket, near, **times_us)
    else:
        live_port.set_delay(direction.far_socket, far, ifb_of(far), **times_us)


def _set_rate(
    direction: Direction, change: Impairment, planned: LinkSpec | None, queue_packets: int
) -> None:
    shape = tc.shapes(direction.near_socket).get(direction.near.ifindex)
    rate = shape.rate_bps if change.rate_bps is None and shape else change.rate_bps
    if rate is None:
        raise ValueError(f"{direction.name} has no rate, and so no queue: give it a rate, too")
    queue = change.queue_packets or (shape.queue_packets if shape else None) or queue_packets
    link = LinkSpec(rate_bps=rate, queue_packets=queue)
    if planned:
        link = replace(planned, rate_bps=rate, queue_packets=queue)
    live_port.set_rate(direction.near_socket, direction.near, link, shape)


def from_mininet(
    *,
    bw: float | None = None,
    delay: str | None = None,
    jitter: str | None = None,
    loss: float | None = None,
    max_queue_size: int | None = None,
) -> Impairment:
    """Return the impairment that Mininet's parameters of an interface describe.

    Args:
        bw: rate in Mbit/s.
        delay: such as 5ms.
        jitter: largest deviation from the delay.
        loss: per cent.
        max_queue_size: packets.
    """
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
    return delay_us(f"{text}" if f"{text}"[-1:].isalpha() else f"{text or 0}us")


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
            planned_us = planned.delay_us if planned else 0
            if ifb.ifindex in shapes:
                live_port.set_delay(socket, end, ifb, delay_us=planned_us, jitter_us=0)
            elif planned and clock.is_virtual():
                live_port.change_exact_link(socket, end, delay_us=planned_us, jitter_us=0)


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
        delay_us=shape.delay_us or (arrivals.delay_us if arrivals else None) or 0,
        loss_ppb=loss_ppb,
        mtu_bytes=network.plan.mtu_bytes,
    )


def set_rate(network: Handle, name: str, rate_bps: int) -> None:
    """Set the rate of the link called `name`, h0-w0, in both directions; its queues stay.

    Raises:
        ValueError: no such link or rate, or links have no rate in this network.
        OSError: the kernel holds another rate after the change.
    """
    planned_link(network, network.topology.link(name))  # raises if there is no rate to change
    impair(network, name, Impairment(rate_bps=rate_bps))


def degrade(network: Handle, name: str, rate_bps: int, *, tell: bool = False) -> None:
    """Set the rate of a link; with `tell`, report it, as healthy at its planned rate.

    Raises:
        ValueError: as set_rate() and report(); nothing has changed.
        OSError: the kernel holds another rate after the change.
    """
    if tell:
        _reportable(network, name)
    set_rate(network, name, rate_bps)
    if tell:
        link = planned_link(network, network.topology.link(name))
        report_degraded(network, name, degraded=rate_bps < link.rate_bps)


def report_degraded(network: Handle, name: str, *, degraded: bool = True) -> None:
    """Report the link called `name` as degraded, or as healthy again, to the daemons at both ends.

    Raises:
        ValueError: no such link, a link to a host, or a scheme that treats all links alike.
    """
    for node, port, _ in network.both_ends(_reportable(network, name)):
        daemon_files.ask(
            network.run.directory,
            network.topology.naming.name(node),
            f"{DEGRADED} {port} {int(degraded)}",
        )


def _reportable(network: Handle, name: str) -> int:
    """Return the link called `name`; ValueError if daemons make no use of a report about it."""
    scheme, _ = parse(daemons_scheme(network.run.journal))
    able = [name for name, entry in registry.schemes().items() if entry.handles_degraded_links]
    if scheme not in able:
        raise ValueError(
            f"scheme {scheme} treats degraded links as any other; bring the network up with "
            f"{' or '.join(able)}"
        )
    link = network.topology.link(name)
    if network.topology.level[link] == 0:
        raise ValueError(f"{name} leads to a host: there is no other way to it")
    return link


def one_at_a_time(network: Handle) -> None:
    """Set the burst of every link to one packet, so that packets are serialized as on a wire.

    With larger bursts, hardly any queue forms at low loads.  Links lose a few per cent of their
    rate if they are slow, because a bucket this small does not make up for a late timer.  Under the
    virtual clock no link has bursts.
    """
    if clock.is_virtual():
        return
    for node in network.local_nodes:
        with network.at(node) as socket:
            for end in network.plan.ends[node].values():
                link = planned_link(network, end.link)
                # HTB sends while the bucket is not overdrawn, so one byte passes one packet
                socket.request(tc.classes(end, link, burst=1, flags=0))


def planned_link(network: Handle, link: int) -> LinkSpec:
    """Return the specification of `link` when the network came up.

    Raises:
        ValueError: links have no rate in this network.
    """
    spec = network.plan.link_spec(link)
    if spec is None:
        raise ValueError("the links of this network have no rate")
    return spec
