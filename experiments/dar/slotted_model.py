"""Slotted model of DAR's section 5.2: hosts send message after message through CLOS(n,r,m).

A slot is the time of a packet on a link.  Every host has the same number of packets for each
destination of its sequence, and begins the next message when the last packet of the one before has
left it.  Distances take no time beside that.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.random import Generator

from weft.daemons.core.compiled import allocates_nothing, compiled
from weft.daemons.dar.iteration import DEST, RANDOM
from weft.experiments.dar.simulation import TRAFFIC, network, permute
from weft.experiments.dar.slotted_control import (
    GIVEN,
    Control,
    SlottedPlan,
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
    occupy,
    send,
)
from weft.experiments.engines.arrays import Floats, Ints, int_zeros
from weft.experiments.engines.edge_colouring import assign
from weft.experiments.engines.workloads import cross, derangements


class HostQueues(NamedTuple):
    """State of the sending hosts.

    due: packets that each host may send by now, by its rate.
    sent: packets of its message that it has sent.
    rate: packets in a slot.
    size: packets of a message.
    destination: shape (messages, hosts).
    began: slot in which the first host began each message, or -1.
    """

    due: Floats
    sent: Ints
    rate: float
    size: int
    destination: Ints
    began: Ints


@allocates_nothing
def at_leaf(net: Clos, known: Control, way: SpineScheme, packet: int) -> None:
    """Let `packet` wait at its first leaf for an uplink, or for its host."""
    host, destination = net.packets.source[packet], net.packets.destination[packet]
    if destination // net.n == host // net.n:
        enqueue(net, packet, 2 * net.r * net.m + destination)
        return
    spine = uplink(known, way, net, host)
    waiting = enqueue(net, packet, host // net.n * net.m + spine)
    at_uplink(known, way, host, waiting)


@allocates_nothing
def arrive(net: Clos, known: Control, way: SpineScheme, packet: int, link: int, slot: int) -> None:
    """Let `packet`, which has come over `link`, wait for its next link, or deliver it."""
    fabric, destination = net.r * net.m, net.packets.destination[packet]
    if link >= 2 * fabric:
        deliver(net, packet, slot)
        return
    occupy(net, packet, link)
    if link >= fabric:
        enqueue(net, packet, 2 * fabric + destination)
        return
    waiting = enqueue(net, packet, fabric + destination // net.n * net.m + link % net.m)
    at_spine(known, way, net, packet, waiting, slot)


@allocates_nothing
def inject(
    net: Clos, known: Control, way: SpineScheme, hosts: HostQueues, host: int, slot: int
) -> None:
    """Send a packet of `host` if its rate and its leaf allow one."""
    hosts.due[host] += hosts.rate
    if hosts.due[host] < 1:
        return
    if net.queues.occupied[len(net.queues.length) + host] >= net.room:
        hosts.due[host] = 1.0  # a host does not make up for lost time
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
    net: Clos, known: Control, way: SpineScheme, hosts: HostQueues, starts: Ints
) -> None:
    """Run a slot for each of `starts`, 32 random bits that choose its first link and host."""
    links, count = len(net.queues.length), len(hosts.sent)
    for slot in range(len(starts)):
        depart(net)
        first = starts[slot] * links >> 32
        for number in range(links):
            link = (first + number) % links
            packet = net.queues.moving[link]
            if packet >= 0:
                arrive(net, known, way, packet, link, slot)
        first = starts[slot] * count >> 32
        obey(known, way, slot, first)
        for number in range(count):
            inject(net, known, way, hosts, (first + number) % count, slot)


def destinations(n: int, r: int, traffic: str, messages: int, rng: Generator) -> Ints:
    """Return a permutation of the hosts for each message, shape (messages, hosts).

    traffic: `random`, no host to itself; `cross`, no host to its own leaf, so that no link is
        spare; or another word of simulation.TRAFFIC.
    """
    if traffic == "cross":
        drawn = [[dst for _, dst in cross(rng, n * r, n)] for _ in range(messages)]
        return np.array(drawn)
    if traffic == "random":
        return derangements(rng, n * r, messages)
    flows, state = network(n, r, 1), rng.integers(1, 1 << 32, 4)
    rows = int_zeros(messages, n * r)
    for row in rows:
        permute(flows, TRAFFIC[traffic], state)
        row[:] = list(flows.destination)
    return rows


def optimum(n: int, m: int, destination: Ints) -> Ints:
    """Return spines of each message's flows by an edge colouring, -1 within a leaf."""
    spines = np.full(destination.shape, -1)
    for row, permutation in zip(spines, destination, strict=True):
        away = np.flatnonzero(permutation // n != np.arange(len(permutation)) // n)
        row[away] = assign(
            list(zip((away // n).tolist(), (permutation[away] // n).tolist(), strict=True)), m
        )
    return spines


class SlottedOutcome(NamedTuple):
    """net.received has the receivers' statistics, known.reroutes the moves of flows."""

    net: Clos
    known: Control
    hosts: HostQueues


def senders(plan: SlottedPlan, destination: Ints, rng: Generator) -> HostQueues:
    """Return hosts that have sent nothing."""
    hosts = destination.shape[1]
    began = np.full(plan.messages, -1)
    due = np.asarray(rng.random(hosts))
    return HostQueues(due, int_zeros(hosts), plan.rate, plan.size, destination, began)


def simulate(plan: SlottedPlan, way: SpineScheme, rng: Generator) -> SlottedOutcome:
    """Run CLOS(n,r,m) under the scheme `way`."""
    n, r, m = plan.shape
    destination = destinations(n, r, plan.traffic, plan.messages, rng)
    assigned = optimum(n, m, destination) if way.kind == GIVEN else destination[:0]
    net = empty(plan.shape, room=plan.room, messages=plan.messages)
    net.received.begins[:] = plan.warm, (plan.warm + plan.slots) // 2
    state = rng.integers(1, 1 << 32, 4)
    known = control(plan, assigned, state)
    if way.rules.key == DEST and way.rules.start == RANDOM:
        known.table[:] = rng.integers(m, size=known.table.shape)
    hosts = senders(plan, destination, rng)
    compiled(many_slots)(net, known, way, hosts, rng.integers(1 << 32, size=plan.slots))
    return SlottedOutcome(net, known, hosts)
