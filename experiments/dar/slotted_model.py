"""The slotted model of DAR's section 5.2: hosts that send message after message at a given rate
through CLOS(n,r,m).

A slot is the time of a packet on a link.  Every host has the same number of packets for each
destination of its sequence, and begins the next message when the last packet of the one before has
left it.  Distances take no time beside that.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.random import Generator

from weft.experiments.dar.simulation import TRAFFIC, network, permute
from weft.experiments.dar.slotted_control import (
    GIVEN,
    Control,
    SpineScheme,
    at_spine,
    at_uplink,
    begin,
    control,
    obey,
    uplink,
)
from weft.experiments.dar.slotted_queues import (
    Clos,
    deliver,
    depart,
    empty,
    enqueue,
    send,
    take_room,
)
from weft.experiments.engines.arrays import Floats, Ints
from weft.experiments.engines.compiled import allocates_nothing, compiled
from weft.experiments.engines.edge_colouring import assign
from weft.experiments.engines.workloads import derangements


class HostQueues(NamedTuple):
    """Of each host: packets it may send by now, of its rate.

    Packets of its message that it has sent.

    rate: packets in a slot.  size: packets of a message.  destination: shape (messages, hosts).
    began: of each message, the slot in which the first host began it, or -1.
    """

    due: Floats
    sent: Ints
    rate: float
    size: int
    destination: Ints
    began: Ints


@allocates_nothing
def at_leaf(net: Clos, known: Control, way: SpineScheme, packet: int) -> None:
    """`packet` waits at its first leaf for an uplink, or for its host."""
    host, destination = net.packets.source[packet], net.packets.destination[packet]
    if destination // net.n == host // net.n:
        enqueue(net, packet, 2 * net.r * net.m + destination)
        return
    spine = uplink(known, way, net, host)
    waiting = enqueue(net, packet, host // net.n * net.m + spine)
    at_uplink(known, way, host, waiting)


@allocates_nothing
def arrive(net: Clos, known: Control, way: SpineScheme, packet: int, link: int, slot: int) -> None:
    """`packet` has come over `link`."""
    fabric, destination = net.r * net.m, net.packets.destination[packet]
    if link >= 2 * fabric:
        deliver(net, packet, slot)
        return
    take_room(net, packet, link)
    if link >= fabric:
        enqueue(net, packet, 2 * fabric + destination)
        return
    waiting = enqueue(net, packet, fabric + destination // net.n * net.m + link % net.m)
    at_spine(known, way, net, packet, waiting, slot)


@allocates_nothing
def inject(
    net: Clos, known: Control, way: SpineScheme, hosts: HostQueues, host: int, slot: int
) -> None:
    """`host` sends a packet if its rate and its leaf allow one."""
    hosts.due[host] += hosts.rate
    if hosts.due[host] < 1:
        return
    if net.queues.taken[len(net.queues.length) + host] >= net.room:
        hosts.due[host] = 1.0  # what could not be sent is not made up for
        return
    message = known.message[host]
    if message < 0 or hosts.sent[host] == hosts.size:
        message += 1
        if message == len(hosts.destination):
            return
        begin(known, way, host, hosts.destination[message, host])
        hosts.sent[host] = 0
        if hosts.began[message] < 0:
            hosts.began[message] = slot
    hosts.due[host] -= 1
    number = hosts.sent[host]
    hosts.sent[host] += 1
    packet = send(net, host, message, number, hosts.destination[message, host], slot)
    at_leaf(net, known, way, packet)


def many_slots(
    net: Clos, known: Control, way: SpineScheme, hosts: HostQueues, slots: int, starts: Ints
) -> None:
    """`slots` slots.  starts: of each slot, the link and the host that come first, as numbers of 32
    bits.
    """
    links, count = len(net.queues.length), len(hosts.sent)
    for slot in range(slots):
        depart(net)
        first = starts[slot] * links >> 32
        for at in range(links):
            link = first + at if first + at < links else first + at - links
            packet = net.queues.moving[link]
            if packet >= 0:
                arrive(net, known, way, packet, link, slot)
        first = starts[slot] * count >> 32
        obey(known, way, slot, first)
        for at in range(count):
            inject(net, known, way, hosts, (first + at) % count, slot)


def destinations(n: int, r: int, traffic: str, messages: int, rng: Generator) -> Ints:
    """A permutation of the hosts for each message, shape (messages, hosts): `random`, no host to
    itself, or `worst`.
    """
    if traffic == "random":
        return derangements(rng, n * r, messages)
    flows, state, found = (
        network(n, r, 1),
        rng.integers(1, 1 << 32, 4),
        np.zeros((messages, n * r), np.int64),
    )
    for row in found:
        permute(flows, TRAFFIC[traffic], state)
        row[:] = list(flows.destination)
    return found


def optimum(n: int, m: int, destination: Ints) -> Ints:
    """Spines of each message's flows by an edge colouring, -1 within a leaf."""
    found = np.full(destination.shape, -1)
    for row, permutation in zip(found, destination, strict=True):
        away = np.flatnonzero(permutation // n != np.arange(len(permutation)) // n)
        row[away] = assign(
            list(zip((away // n).tolist(), (permutation[away] // n).tolist(), strict=True)), m
        )
    return found


class SlottedOutcome(NamedTuple):
    """net.received has what arrived, known.reroutes what moved when.

    Hosts.began when messages began.
    """

    net: Clos
    known: Control
    hosts: HostQueues


def simulate(
    shape: tuple[int, int, int],
    way: SpineScheme,
    rate: float,
    *,
    traffic: str,
    size: int,
    room: int,
    slots: int,
    warm: int,
    per: int,
    rng: Generator,
) -> SlottedOutcome:
    """`slots` slots of CLOS(n,r,m), of which receivers count from slot `warm` on.

    rate: of a host, packets in a slot.  size: packets of a message.  room: packets behind each
        link.
    per: slots of a period in which reroutes are counted.
    """
    n, r, m = shape
    messages = int(slots * rate / size) + 2
    destination = destinations(n, r, traffic, messages, rng)
    given = optimum(n, m, destination) if way.kind == GIVEN else np.zeros((0, n * r), np.int64)
    net = empty(n, r, m, room=room, messages=messages, packets=size, begin=warm)
    state = rng.integers(1, 1 << 32, 4)
    known = control(n, r, m, given=given, messages=messages, per=per, slots=slots, state=state)
    due, sent, began = rng.random(n * r), np.zeros(n * r, np.int64), np.full(messages, -1)
    hosts = HostQueues(due, sent, rate, size, destination, began)
    compiled(many_slots)(net, known, way, hosts, slots, rng.integers(1 << 32, size=slots))
    return SlottedOutcome(net, known, hosts)
