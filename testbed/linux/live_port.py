"""A port's rate, queue, loss and delay, changed while packets flow.

Loss and delay are those of the wire: they apply to arrivals at the far end, behind rate and queue,
so that a lost packet has taken its time on the link.  A filter of classic BPF draws a 32-bit number
for each packet that it may lose.  Delays need netem, and are exact.

Under the virtual clock the port has rate, queue and delay in one discipline; see tc.exact_link().
"""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any

from weft.testbed.linux import clock, interface, netlink, tc, tc_filters
from weft.testbed.linux.interface import Device
from weft.testbed.linux.netlink import NetlinkMessage
from weft.topologies.core.link import LinkSpec

LOSS_PRIORITY = 2  # behind the filter that drops everything, ahead of all that look at packets
RANDOM = 0xFFFFF000 + 56  # SKF_AD_OFF + SKF_AD_RANDOM: loads a random number
BILLION = 1_000_000_000


def set_loss(socket: netlink.Socket, port: Device, ppb: int) -> None:
    """Lose `ppb` of a billion arrivals at `port`, which has clsact, each independently.

    Raises:
        ValueError: `ppb` is no share.
    """
    if not 0 <= ppb <= BILLION:
        raise ValueError(f"{port.dev}: a loss is 0 to 100 %, got {ppb / 10_000_000:g} %")
    if port.ifindex in losses(socket):
        socket.request([tc_filters.remove_filter(port, LOSS_PRIORITY)])
    if ppb:
        socket.request([loss(port, ppb)])


def loss(port: Device, ppb: int) -> NetlinkMessage:
    """Return the change that makes a port without loss lose `ppb` of a billion arrivals."""
    least_kept = -(-(ppb << 32) // BILLION)  # smaller ones of 2**32 numbers lose the packet
    if ppb == BILLION:
        program = [(0x06, 0, 0, tc_filters.TC_ACT_SHOT)]
    else:
        program = [
            (0x20, 0, 0, RANDOM),  # ld rand
            (0x35, 1, 0, least_kept),  # jge: keep
            (0x06, 0, 0, tc_filters.TC_ACT_SHOT),
            (0x06, 0, 0, tc_filters.TC_ACT_UNSPEC),  # on to the next filter
        ]
    return tc_filters.classic_filter(port, tc_filters.INGRESS_HOOK, LOSS_PRIORITY, program)


def losses(socket: netlink.Socket) -> dict[int, int]:
    """Return the loss, in billionths, of every device of the namespace with loss, by ifindex."""
    by_ifindex = {}
    for ifindex, options in tc_filters.arrival_filters(socket, LOSS_PRIORITY).items():
        instructions = list(struct.iter_unpack("=HBBI", options[tc_filters.TCA_BPF_OPS]))
        certain = len(instructions) == 1
        by_ifindex[ifindex] = BILLION if certain else instructions[1][3] * BILLION >> 32
    return by_ifindex


def set_rate(
    socket: netlink.Socket, port: Device, link: LinkSpec, before: tc.DeviceDisciplines | None
) -> None:
    """Set rate and queue of `port` to those of `link`.

    Args:
        socket: in the namespace of the port.
        port: to change.
        link: rate and queue.
        before: the kernel's disciplines of the port.  If they have a rate, waiting packets stay.

    Raises:
        OSError: the kernel holds another rate after the change.
    """
    if clock.is_virtual():
        change_exact_link(socket, port, rate_bps=link.rate_bps, queue_packets=link.queue_packets)
    elif before is None or before.rate_bps is None:
        socket.request(tc.shape(port, link))
    else:
        queue = tc.fifo(port, tc.DATA, tc.FIFO, link.queue_packets, flags=0)
        socket.request([*tc.classes(port, link, flags=0), queue])
    after = tc.shapes(socket)[port.ifindex]
    if abs((after.rate_bps or 0) - link.rate_bps) >= 8 or after.queue_packets != link.queue_packets:
        raise OSError(
            f"{port.dev}: asked for {link.rate_bps} bit/s, queue {link.queue_packets}, the "
            f"kernel has {after}"
        )


def change_exact_link(socket: netlink.Socket, port: Device, **changes: Any) -> None:
    """Change fields of the discipline of `port` under the virtual clock; waiting packets stay.

    changes: fields of tc.DeviceDisciplines.
    """
    before = tc.shapes(socket).get(port.ifindex, tc.DeviceDisciplines())
    socket.request([tc.exact_link(port, replace(before, **changes))])


def unlimit(socket: netlink.Socket, port: Device) -> None:
    """Remove rate and queue of `port`; waiting packets are lost."""
    body = tc.TCMSG.pack(0, port.ifindex, 0, tc.ROOT, 0)
    command = f"tc qdisc del dev {port.dev} root"
    socket.request([NetlinkMessage(netlink.RTM_DELQDISC, 0, body, command)])


def set_delay(
    socket: netlink.Socket,
    port: Device,
    ifb: Device,
    *,
    delay_us: int | None = None,
    jitter_us: int | None = None,
) -> None:
    """Delay arrivals at `port`, which has clsact, by netem.

    Args:
        socket: in the namespace of the port.
        port: to change.
        ifb: the device that holds the packets, made if it is missing.
        delay_us: mean delay; None: unchanged.
        jitter_us: largest deviation from it; None: unchanged.
    """
    before = tc.shapes(socket).get(ifb.ifindex, tc.DeviceDisciplines())
    discipline = tc.delay(
        ifb,
        (before.delay_us or 0) if delay_us is None else delay_us,
        jitter_us=before.jitter_us if jitter_us is None else jitter_us,
        flags=netlink.REPLACE,
    )
    if ifb.ifindex in interface.interfaces(socket):
        socket.request([discipline])
        return
    redirection = tc_filters.redirect_arrivals(port, ifb)
    socket.request([interface.new(ifb, "ifb"), discipline, redirection])
