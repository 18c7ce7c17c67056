"""Packets on a folded CLOS(n,r,m) in slotted time: queues, the room behind each link, and what
receivers see.

In a slot every link carries at most one packet: the first of its queue, if the switch at its other
end has room for it.  Room is counted by the link over which a packet came, as InfiniBand's credits
are: a packet takes room from its arrival at a switch until it leaves it, in whatever queue it
waits.  No packet is lost.

Links are numbered: leaf i to spine s, i m + s; spine s to leaf i, r m + i m + s; to host h, 2 r m +
h; from host h, 2 r m + n r + h, which has no queue here: a host sends when there is room.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.experiments.engines.arrays import Ints
from weft.experiments.engines.compiled import allocates_nothing

Booleans = NDArray[np.bool_]


class Packets(NamedTuple):
    """Of each packet: the host that sends it, the number of its message, its number in the message,
    its destination, the slot in which it is sent, the link by which it came to where it waits, and
    the packet behind it in its queue.

    free: numbers not in use, a stack of free_count[0].
    """

    source: Ints
    message: Ints
    number: Ints
    destination: Ints
    born: Ints
    via: Ints
    behind: Ints
    free: Ints
    free_count: Ints


class LinkQueues(NamedTuple):
    """Of each link: first and last packet of its queue and how many wait; of each link, those from
    hosts included, how much of the room behind it is taken.  moving: scratch, the packet that each
    link carries in this slot, or -1.
    """

    head: Ints
    tail: Ints
    length: Ints
    taken: Ints
    moving: Ints


class Received(NamedTuple):
    """Of each receiving host, over the packets that arrive from slot begin[0] on.

    packets, latency, worst_latency: how many, and their latencies in slots, summed and largest.
    held, gap, worst_gap: packets that arrive before an earlier one of their message, which a
        receiver that restores the order must hold, and how many packets further on than the first
        missing one they are, summed and largest.
    late, extent, worst_extent: packets that arrive after a later one of their message (RFC 4737),
        and how many packets behind the latest they are, summed and largest.
    got, missing, latest: shape (hosts, messages, packets) and (hosts, messages), by sender: what
        has arrived, the first packet that has not, and the latest that has, or -1.
    """

    begin: Ints
    packets: Ints
    latency: Ints
    worst_latency: Ints
    held: Ints
    gap: Ints
    worst_gap: Ints
    late: Ints
    extent: Ints
    worst_extent: Ints
    got: Booleans
    missing: Ints
    latest: Ints


class Clos(NamedTuple):
    """A folded CLOS(n,r,m) and its packets.  room: packets that a switch has room for behind each
    of its links.
    """

    n: int
    r: int
    m: int
    room: int
    packets: Packets
    queues: LinkQueues
    received: Received


def empty(n: int, r: int, m: int, *, room: int, messages: int, packets: int, begin: int) -> Clos:
    """A network without packets, for `messages` messages of `packets` packets from each host.

    room: packets.  begin: the slot from which receivers count.
    """

    def zeros(*shape: int) -> Ints:
        return np.zeros(shape, np.int64)

    hosts, fabric = n * r, 2 * r * m
    # whatever is in the network has room behind the link by which it came
    most = (fabric + hosts) * room
    free, links = np.arange(most)[::-1].copy(), fabric + hosts
    return Clos(
        n,
        r,
        m,
        room,
        Packets(
            source=zeros(most),
            message=zeros(most),
            number=zeros(most),
            destination=zeros(most),
            born=zeros(most),
            via=zeros(most),
            behind=zeros(most),
            free=free,
            free_count=zeros(1) + most,
        ),
        LinkQueues(
            head=zeros(links),
            tail=zeros(links),
            length=zeros(links),
            taken=zeros(links + hosts),
            moving=zeros(links),
        ),
        Received(
            begin=zeros(1) + begin,
            packets=zeros(hosts),
            latency=zeros(hosts),
            worst_latency=zeros(hosts),
            held=zeros(hosts),
            gap=zeros(hosts),
            worst_gap=zeros(hosts),
            late=zeros(hosts),
            extent=zeros(hosts),
            worst_extent=zeros(hosts),
            got=np.zeros((hosts, messages, packets), np.bool_),
            missing=zeros(hosts, messages),
            latest=zeros(hosts, messages) - 1,
        ),
    )


@allocates_nothing
def enqueue(net: Clos, packet: int, link: int) -> int:
    """Let `packet` wait for `link`; returns how many wait there now."""
    queues = net.queues
    if queues.length[link] == 0:
        queues.head[link] = packet
    else:
        net.packets.behind[queues.tail[link]] = packet
    queues.tail[link] = packet
    queues.length[link] += 1
    return int(queues.length[link])


@allocates_nothing
def depart(net: Clos) -> None:
    """Fill `moving`: what each link carries in this slot, by the room that there was at its
    beginning.
    """
    queues, last = net.queues, len(net.queues.length) - net.n * net.r
    for link in range(len(queues.length)):
        has_room = link >= last or queues.taken[link] < net.room
        queues.moving[link] = queues.head[link] if queues.length[link] and has_room else -1
    for link in range(len(queues.length)):
        packet = queues.moving[link]
        if packet >= 0:
            queues.head[link] = net.packets.behind[packet]
            queues.length[link] -= 1
            queues.taken[net.packets.via[packet]] -= 1


@allocates_nothing
def take_room(net: Clos, packet: int, link: int) -> None:
    """`packet` has come to a switch over `link`."""
    net.packets.via[packet] = link
    net.queues.taken[link] += 1


@allocates_nothing
def send(net: Clos, source: int, message: int, number: int, destination: int, slot: int) -> int:
    """A new packet, which has come to its leaf; returns its number."""
    packets = net.packets
    packets.free_count[0] -= 1
    packet = packets.free[packets.free_count[0]]
    packets.source[packet], packets.message[packet], packets.number[packet] = (
        source,
        message,
        number,
    )
    packets.destination[packet], packets.born[packet] = destination, slot
    take_room(net, packet, len(net.queues.length) + source)
    return int(packet)


@allocates_nothing
def deliver(net: Clos, packet: int, slot: int) -> None:
    """`packet` has reached its destination in `slot`, and its number is free."""
    packets, seen = net.packets, net.received
    host, number = packets.destination[packet], packets.number[packet]
    sender, message = packets.source[packet], packets.message[packet]
    gap, extent = number - seen.missing[sender, message], seen.latest[sender, message] - number
    if slot >= seen.begin[0]:
        latency = slot - packets.born[packet] + 1
        seen.packets[host] += 1
        seen.latency[host] += latency
        seen.worst_latency[host] = max(seen.worst_latency[host], latency)
        if gap > 0:
            seen.held[host] += 1
            seen.gap[host] += gap
            seen.worst_gap[host] = max(seen.worst_gap[host], gap)
        if extent > 0:
            seen.late[host] += 1
            seen.extent[host] += extent
            seen.worst_extent[host] = max(seen.worst_extent[host], extent)
    seen.got[sender, message, number] = True
    seen.latest[sender, message] = max(seen.latest[sender, message], number)
    first = seen.missing[sender, message]
    while first < seen.got.shape[2] and seen.got[sender, message, first]:
        first += 1
    seen.missing[sender, message] = first
    packets.free[packets.free_count[0]] = packet
    packets.free_count[0] += 1
