"""UDP traffic in slots, as in TTC's packet model: a host sends one full packet a slot, or none."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from weft.testbed.linux import clock, netns
from weft.testbed.runs.network_handle import NetworkHandle
from weft.topologies.core.address import dotted

PORT = 7001
PAYLOAD_BYTES = 1472  # with headers a frame of 1514 bytes
FRAME_BYTES = PAYLOAD_BYTES + 42
IP_MTU_DISCOVER, IP_PMTUDISC_DO = 10, 2
BEGIN_S = 0.05
DRAIN_SLOTS = 100  # in which what is on its way arrives before receivers close


@dataclass(frozen=True)
class SentSlots:
    """Number of packets sent, and of slots that began more than one slot late."""

    packets: int
    late_slots: int


def slot_s(rate_bps: int) -> float:
    """Return the time that a full frame takes on a link of `rate_bps`, in s."""
    return 8 * FRAME_BYTES / rate_bps


def run(
    net: NetworkHandle,
    destinations: Sequence[Sequence[int]],
    *,
    rate_bps: int,
    at_begin: Callable[[], None] = lambda: None,
    at_end: Callable[[], None] = lambda: None,
) -> SentSlots:
    """Send a packet from each host to `destinations`[slot][host] in each slot; -1: none.

    `at_begin` is called before the first slot, `at_end` after the last.  100 further slots let the
    queues drain.  Receivers do not read: the kernel drops packets once their buffers are full.
    """
    senders, receivers = [], []
    addresses = [
        (dotted(net.topology.naming.address(host)), PORT) for host in range(net.topology.servers)
    ]
    try:
        for host, address in enumerate(addresses):
            with netns.inside(net.netns(host)):
                sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
                receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            senders.append(sender)
            receivers.append(receiver)
            sender.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO)
            receiver.bind(address)
        return _run(senders, addresses, destinations, slot_s(rate_bps), at_begin, at_end)
    finally:
        for opened in senders + receivers:
            opened.close()


def _run(
    senders: Sequence[socket.socket],
    addresses: Sequence[tuple[str, int]],
    destinations: Sequence[Sequence[int]],
    slot: float,
    at_begin: Callable[[], None],
    at_end: Callable[[], None],
) -> SentSlots:
    payload, packets, late = bytes(PAYLOAD_BYTES), 0, 0
    clock.sleep(BEGIN_S)
    at_begin()
    begin = clock.monotonic()
    for number, row in enumerate(destinations):
        behind = clock.monotonic() - begin - number * slot
        if behind < 0:
            clock.sleep(-behind)
        late += behind > slot
        for sender, dst in zip(senders, row, strict=True):
            if dst >= 0:
                sender.sendto(payload, addresses[dst])
                packets += 1
    at_end()
    clock.sleep(max(0.0, begin + (len(destinations) + DRAIN_SLOTS) * slot - clock.monotonic()))
    return SentSlots(packets, late)
