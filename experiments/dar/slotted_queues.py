"""Packets on a folded CLOS(n,r,m) in slotted time: queues, room behind each link, and receivers.

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

from weft.daemons.core.compiled import allocates_nothing
from weft.experiments.engines.arrays import Floats, Ints, int_zeros


class Packets(NamedTuple):
    """Attributes of each packet.

    source, message, number, destination: sending host, number of its message, number in the
        message, and receiving host.
    born: slot in which it was sent.
    via: link by which it came to its present switch.
    behind: the packet behind it in its queue.
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
    """State of each link.

    head, tail, length: first and last packet of its queue, and packets that wait.
    occupied: packets in the room behind it; links from hosts come last.
    moving: packet that it carries in this slot, or -1.
    """

    head: Ints
    tail: Ints
    length: Ints
    occupied: Ints
    moving: Ints


class Received(NamedTuple):
    """Statistics of each receiving host, over packets that arrive from slot begin[0] on.

    Out of order is counted as the authors' simulator does.  A packet whose number is one above the
    highest number of its message so far is in order; one further above is a jump by the difference;
    all others count in neither.

    packets: of the first and of the second half of the window, which begins[1] separates.
    latency, worst_latency: slots, summed and largest.
    in_order, jumps, jumped: packets in order, jumps, and their sum.
    late, extent: packets that arrive after a later one of their message (RFC 4737), and how many
        packets behind the latest they are, summed.
    latest: highest number of each sender's messages that has arrived, or -1.
    """

    begins: Ints | Floats
    packets: Ints
    latency: Ints | Floats
    worst_latency: Ints | Floats
    in_order: Ints
    jumps: Ints
    jumped: Ints
    late: Ints
    extent: Ints
    latest: Ints


class Clos(NamedTuple):
    """A folded CLOS(n,r,m) with room for `room` packets behind each link, and its packets."""

    n: int
    r: int
    m: int
    room: int
    packets: Packets
    queues: LinkQueues
    received: Received


def empty(shape: tuple[int, int, int], *, room: int, messages: int) -> Clos:
    """Return CLOS(n,r,m) without packets, for so many messages from each host."""
    n, r, m = shape
    hosts, links = n * r, 2 * r * m + n * r
    # whatever is in the network has room behind the link by which it came
    most = links * room
    packets = Packets(*(int_zeros(most) for _ in Packets._fields))
    packets = packets._replace(free=np.arange(most)[::-1].copy(), free_count=int_zeros(1) + most)
    queues = LinkQueues(*(int_zeros(links) for _ in LinkQueues._fields))
    received = Received(*(int_zeros(hosts) for _ in Received._fields))._replace(
        begins=int_zeros(2), packets=int_zeros(2, hosts), latest=int_zeros(hosts, messages) - 1
    )
    return Clos(
        n, r, m, room, packets, queues._replace(occupied=int_zeros(links + hosts)), received
    )


@allocates_nothing
def enqueue(net: Clos, packet: int, link: int) -> int:
    """Add `packet` to the queue of `link`; return the queue's length."""
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
    """Fill `moving` with what each link carries, by the room at the beginning of the slot."""
    queues, last = net.queues, len(net.queues.length) - net.n * net.r
    for link in range(len(queues.length)):
        has_room = link >= last or queues.occupied[link] < net.room
        queues.moving[link] = queues.head[link] if queues.length[link] and has_room else -1
    for link in range(len(queues.length)):
        packet = queues.moving[link]
        if packet >= 0:
            queues.head[link] = net.packets.behind[packet]
            queues.length[link] -= 1
            queues.occupied[net.packets.via[packet]] -= 1


@allocates_nothing
def occupy(net: Clos, packet: int, link: int) -> None:
    """Give `packet`, which has come to a switch over `link`, room behind it."""
    net.packets.via[packet] = link
    net.queues.occupied[link] += 1


@allocates_nothing
def send(net: Clos, source: int, message: int, number: int, destination: int, slot: int) -> int:
    """Return a new packet that has come to its leaf."""
    packets = net.packets
    packets.free_count[0] -= 1
    packet = packets.free[packets.free_count[0]]
    packets.source[packet] = source
    packets.message[packet] = message
    packets.number[packet] = number
    packets.destination[packet] = destination
    packets.born[packet] = slot
    occupy(net, packet, len(net.queues.length) + source)
    return int(packet)


@allocates_nothing
def deliver(net: Clos, packet: int, slot: int) -> None:
    """Count `packet`, which has reached its destination in `slot`, and free its number."""
    packets, received = net.packets, net.received
    host, sender = packets.destination[packet], packets.source[packet]
    message = packets.message[packet]
    ahead = packets.number[packet] - received.latest[sender, message]
    received.latest[sender, message] += max(0, ahead)
    packets.free[packets.free_count[0]] = packet
    packets.free_count[0] += 1
    if slot < received.begins[0]:
        return
    latency = slot - packets.born[packet] + 1
    received.packets[int(slot >= received.begins[1]), host] += 1
    received.latency[host] += latency
    received.worst_latency[host] = max(received.worst_latency[host], latency)
    if ahead == 1:
        received.in_order[host] += 1
    elif ahead > 1:
        received.jumps[host] += 1
        received.jumped[host] += ahead
    else:
        received.late[host] += 1
        received.extent[host] -= ahead
