"""What a link of an open network carries, loses and delays, changed while packets flow, and read
back."""

from __future__ import annotations

from dataclasses import dataclass, replace

from weft.testbed.data_plane import data_plane
from weft.testbed.linux import clock, live_port, tc
from weft.testbed.machine import doctor
from weft.testbed.network.handle import Handle
from weft.topologies.core.link import LinkSpec, Mbps, delay_us, rate_bps

QUEUE_PACKETS = 250  # of a link that had no rate, if nothing is said


@dataclass(frozen=True)
class Impairment:
    """What is to change; None: it stays.  loss_ppb: of a billion packets, either way."""

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
    """What words ask for: loss in per cent, 0.5 or 0.5%; times such as 2ms, a rate such as 2mbit,
    packets.

    ValueError, in one line, for words that mean none of it, or for none at all.
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
    """Of a billion packets."""
    try:
        percent = float(text.removesuffix("%"))
    except ValueError:
        percent = -1.0
    if not 0 <= percent <= 100:
        raise ValueError(f"loss: per cent of packets, 0 to 100, got {text!r}")
    return round(percent * live_port.BILLION / 100)


def impair(network: Handle, name: str, change: Impairment) -> None:
    """Change what the link called `name`, h0-w0, carries, in both directions.

    Packets that wait stay where the link has a rate already.  Raises ValueError if there is no such
    link, if this kernel has no netem for a delay, or for what no link can be like; OSError if the
    kernel holds something else afterwards.
    """
    link = network.topology.link(name)
    if change.delay_us is not None or change.jitter_us is not None:
        _require_delay(network, name)
    if change.queue_packets is not None and change.rate_bps is None and held(network, link) is None:
        raise ValueError(f"{name} has no rate, and so no queue: give it one with --rate")
    for node, port, _ in network.both_ends(link):
        _change_way(network, node, port, change)


def impair_way(network: Handle, node: int, port: int, change: Impairment) -> None:
    """Change what the link at `port` of `node` carries away from there; see impair()."""
    link = network.plan.ends[node][port].link
    name = network.topology.link_name(link)
    if change.delay_us is not None or change.jitter_us is not None:
        _require_delay(network, name)
    if change.queue_packets is not None and change.rate_bps is None and held(network, link) is None:
        raise ValueError(f"{name} has no rate, and so no queue: give it one")
    _change_way(network, node, port, change)


def _change_way(network: Handle, node: int, port: int, change: Impairment) -> None:
    """Change one direction: rate and queue where packets leave, loss and delay where they
    arrive."""
    near = network.plan.ends[node][port]
    far = network.plan.ends[near.peer][near.peer_port]
    if change.rate_bps is not None or change.queue_packets is not None:
        with network.at(node) as socket:
            shape = tc.shapes(socket).get(near.ifindex)
            wanted = _wanted(network, near.link, shape, change)
            live_port.set_rate(socket, near.ifindex, near.dev, wanted, shape)
    with network.at(near.peer) as socket:
        if change.loss_ppb is not None:
            live_port.set_loss(socket, far.ifindex, far.dev, change.loss_ppb)
            if abs(live_port.losses(socket).get(far.ifindex, 0) - change.loss_ppb) > 1:
                raise OSError(
                    f"{far.dev}: asked to lose {change.loss_ppb} of a billion, the kernel "
                    f"has another"
                )
        if change.delay_us is not None or change.jitter_us is not None:
            times = change.delay_us or 0, change.jitter_us or 0
            at, ifb = (far.ifindex, far.dev), network.plan.ifb(far)
            live_port.set_delay(socket, at, ifb, *times, seen=clock.is_virtual())


def from_mininet(
    *,
    bw: float | None,
    delay: str | None,
    jitter: str | None,
    loss: float | None,
    max_queue_size: int | None,
) -> Impairment:
    """What Mininet's parameters of an interface ask for; a time without a unit is in microseconds,
    as tc has it."""
    times = [
        None if each is None else delay_us(f"{each}" if f"{each}"[-1:].isalpha() else f"{each}us")
        for each in (delay, jitter)
    ]
    return Impairment(
        rate_bps=None if bw is None else round(float(bw) * Mbps),
        queue_packets=None if max_queue_size is None else int(max_queue_size),
        loss_ppb=None if loss is None else round(float(loss) * live_port.BILLION / 100),
        delay_us=times[0],
        jitter_us=times[1],
    )


def _require_delay(network: Handle, name: str) -> None:
    """ValueError unless links of this network can be given a delay."""
    for feature in ("netem", "ifb"):
        doctor.require(feature, f"a delay of {name}")
    if data_plane.program_of(network) is not None and not clock.is_virtual():
        raise ValueError(
            f"{name}: a delay and a scheme of the data plane exclude each other: the "
            f"program sees no delay"
        )


def _wanted(
    network: Handle, link: int, shape: tc.DeviceDisciplines | None, change: Impairment
) -> LinkSpec:
    """What a port is to carry, trimming as it does, if it does."""
    planned = network.plan.link_spec(link)
    rate = change.rate_bps or (shape.rate_bps if shape else None)
    queue = change.queue_packets or (shape.queue_packets if shape else None) or QUEUE_PACKETS
    if planned:
        return replace(planned, rate_bps=rate or planned.rate_bps, queue_packets=queue)
    return LinkSpec(rate_bps=rate or 0, queue_packets=queue)


def undo(network: Handle, name: str) -> None:
    """Let the link called `name` be again as it was when the network came up."""
    link = network.topology.link(name)
    planned = network.plan.link_spec(link)
    for node, port, end in network.both_ends(link):
        at = (end.ifindex, end.dev)
        with network.at(node) as socket:
            shapes = tc.shapes(socket)
            if planned:
                live_port.set_rate(socket, *at, planned, shapes.get(end.ifindex))
            elif end.ifindex in shapes:
                live_port.unlimit(socket, *at)
            live_port.set_loss(socket, *at, planned.loss_ppb if planned else 0)
            ifb = network.plan.ifb(network.plan.ends[node][port])
            if ifb[0] in shapes:
                live_port.set_delay(
                    socket, at, ifb, planned.delay_us if planned else 0, 0, seen=clock.is_virtual()
                )


def held(network: Handle, link: int) -> LinkSpec | None:
    """What the kernel has link number `link` carry towards its second end, None if it is as fast as
    the machine."""
    (near, _, near_end), (far, far_port, far_end) = network.both_ends(link)
    with network.at(near) as socket:
        shape = tc.shapes(socket).get(near_end.ifindex)
    with network.at(far) as socket:
        arrivals = tc.shapes(socket).get(network.plan.ifb(network.plan.ends[far][far_port])[0])
        lost = live_port.losses(socket).get(far_end.ifindex, 0)
    if shape is None or not shape.rate_bps:
        return None
    return LinkSpec(
        rate_bps=shape.rate_bps,
        queue_packets=shape.queue_packets or QUEUE_PACKETS,
        delay_us=(arrivals.delay_us or 0) if arrivals else 0,
        loss_ppb=lost,
        mtu_bytes=network.plan.mtu_bytes,
    )
