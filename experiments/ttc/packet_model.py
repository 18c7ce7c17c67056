"""TTC's packet model (section 4.2): slotted time, one packet on each link in each slot, a queue at
every link.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from weft.experiments.engines.arrays import Ints
from weft.experiments.engines.compiled import allocates_nothing, compiled
from weft.experiments.engines.workloads import derangements
from weft.experiments.ttc.fat_tree_links import (
    DRAWS,
    FatTreeLinks,
    LayeredTreeShape,
    SchemeRules,
    UpwardChoices,
    choose,
    links,
    no_choices,
)

SLOTS_AT_ONCE = 64  # for which random numbers are drawn together
PACKETS_OF_A_LINK = 100  # on average, beyond which queues grow without bound


class SlottedState(NamedTuple):
    """The network between two slots.

    What counts is an array of one element, so that it can change in place.

    dst, born, behind, strayed: of each packet: its destination, the slot it was sent in, the packet
        behind it in its queue, and how often it was redirected.
    head, tail, length: of each link's queue.
    free: numbers of packets that have arrived, a stack of free_count; numbers from `fresh` on have
        not been used.
    moving: scratch, the packet that each link carries in this slot.
    delivered, latency, worst: of the packets sent in each slot: how many arrived, their latencies,
        summed and largest.
    """

    dst: Ints
    born: Ints
    behind: Ints
    strayed: Ints
    head: Ints
    tail: Ints
    length: Ints
    free: Ints
    free_count: Ints
    fresh: Ints
    moving: Ints
    delivered: Ints
    latency: Ints
    worst: Ints

    @property
    def room(self) -> int:
        """How many more packets fit in."""
        return int(len(self.dst) - self.fresh[0] + self.free_count[0])


def empty(ft: LayeredTreeShape, *, slots: int, packets: int) -> SlottedState:
    """A network without packets, with room for `packets` at once, to be run for `slots` slots."""

    def zeros(count: int) -> Ints:
        return np.zeros(count, np.int64)

    return SlottedState(
        dst=zeros(packets), born=zeros(packets), behind=zeros(packets), strayed=zeros(packets),
        head=zeros(ft.links), tail=zeros(ft.links), length=zeros(ft.links),
        free=zeros(packets), free_count=zeros(1), fresh=zeros(1), moving=zeros(ft.links),
        delivered=zeros(slots), latency=zeros(slots), worst=zeros(slots),
    )  # fmt: skip


class Watched(NamedTuple):
    """What was seen in the slots that were watched: queue lengths of each layer of links, and
    choices.

    total: sum over links and slots.  largest: the longest.  histogram: slots times links with each
    length, the last being that length or more; shape (layers, lengths).
    """

    total: Ints
    largest: Ints
    histogram: Ints
    choices: UpwardChoices


def nothing_watched(ft: LayeredTreeShape, lengths: int) -> Watched:
    """Before the first slot."""
    layers = len(ft.layers)
    largest, total = np.zeros(layers, np.int64), np.zeros(layers, np.int64)
    return Watched(total, largest, np.zeros((layers, lengths), np.int64), no_choices(ft))


@allocates_nothing
def arrive(
    net: FatTreeLinks,
    state: SlottedState,
    packet: int,
    switch: int,
    draws: Ints,
    rules: SchemeRules,
    choices: UpwardChoices,
) -> None:
    """Let `packet` choose its queue at `switch` and wait at its end."""
    layer, t = net.layer[switch], state.dst[packet]
    if net.block_of[layer, t] == net.block[switch]:
        link = net.down[switch, net.digit[layer, t]]
        if layer == net.n:
            choices.over_top[0] += 1
            choices.kept[0] += state.strayed[packet] == 0
    else:
        first, default = net.first_up[switch], net.digit[layer, t]
        up = choose(state.length[first : first + net.d], default, draws, rules)
        choices.made[layer] += 1
        choices.redirected[layer] += up != default
        state.strayed[packet] += up != default
        link = first + up
    if state.length[link] == 0:
        state.head[link] = packet
    else:
        state.behind[state.tail[link]] = packet
    state.tail[link] = packet
    state.length[link] += 1


@allocates_nothing
def deliver(state: SlottedState, packet: int, slot: int) -> None:
    """`packet` has reached its destination in `slot`."""
    born = state.born[packet]
    latency = slot - born + 1
    state.delivered[born] += 1
    state.latency[born] += latency
    state.worst[born] = max(state.worst[born], latency)
    state.free[state.free_count[0]] = packet
    state.free_count[0] += 1


@allocates_nothing
def send(state: SlottedState, dst: int, slot: int) -> int:
    """A new packet to `dst`; returns its number."""
    if state.free_count[0]:
        state.free_count[0] -= 1
        packet: int = state.free[state.free_count[0]]
    else:
        packet = state.fresh[0]
        state.fresh[0] += 1
    state.dst[packet], state.born[packet], state.strayed[packet] = dst, slot, 0
    return packet


@allocates_nothing
def one_slot(
    net: FatTreeLinks,
    state: SlottedState,
    slot: int,
    sent: Ints,
    start: int,
    draws: Ints,
    rules: SchemeRules,
    choices: UpwardChoices,
) -> None:
    """One slot of section 4.2: every link carries the packet at the head of its queue, and every
    host what it has.

    sent: for each host the destination of its packet, or -1.  start: the link whose packet chooses
        first.
    draws: shape (links + hosts, 2), 32 bits each.
    """
    count = len(state.length)
    for link in range(count):
        state.moving[link] = -1
        if state.length[link]:
            state.moving[link] = state.head[link]
            state.head[link] = state.behind[state.head[link]]
            state.length[link] -= 1
    for i in range(count):
        link = start + i if start + i < count else start + i - count
        packet = state.moving[link]
        if packet >= 0 and net.far[link] >= 0:
            arrive(net, state, packet, net.far[link], draws[i], rules, choices)
        elif packet >= 0:
            deliver(state, packet, slot)
    for host in range(len(sent)):
        if sent[host] >= 0:
            packet = send(state, sent[host], slot)
            arrive(net, state, packet, net.entry[host], draws[count + host], rules, choices)


@allocates_nothing
def watch(state: SlottedState, watched: Watched) -> None:
    """Add the queue lengths of this slot."""
    layers, lengths = watched.histogram.shape
    width = len(state.length) // layers
    for layer in range(layers):
        for link in range(layer * width, (layer + 1) * width):
            length = state.length[link]
            watched.total[layer] += length
            watched.largest[layer] = max(watched.largest[layer], length)
            watched.histogram[layer, min(length, lengths - 1)] += 1


def many_slots(
    net: FatTreeLinks,
    state: SlottedState,
    first: int,
    sent: Ints,
    starts: Ints,
    draws: Ints,
    rules: SchemeRules,
    watched: Watched,
) -> None:
    """Slot after slot, from number `first`, with the queue lengths of all of them.

    sent, starts, draws: as for one_slot(), a row for each slot.
    """
    for i in range(len(starts)):
        one_slot(net, state, first + i, sent[i], starts[i], draws[i], rules, watched.choices)
        watch(state, watched)


class Latencies(NamedTuple):
    """Of the packets sent in each watched slot: their mean latency and the largest, in slots."""

    mean: NDArray[np.float64]
    worst: Ints


def simulate(
    ft: LayeredTreeShape,
    rules: SchemeRules,
    load_fraction: float,
    *,
    slots: int,
    watched: int,
    lengths: int,
    rng: Generator,
) -> tuple[Watched, Latencies]:
    """Section 4.2: run `slots` slots, the last `watched` of which are watched, and on until their
    packets have arrived.

    In each slot a random permutation of the hosts is drawn, and each host sends with probability
    `load_fraction`.
    lengths: of the histograms of queue lengths.  RuntimeError if queues grow without bound.
    """
    most = 20 * slots
    net, state = (
        links(ft),
        empty(ft, slots=most + SLOTS_AT_ONCE, packets=PACKETS_OF_A_LINK * ft.links),
    )
    seen, unwatched = nothing_watched(ft, lengths), nothing_watched(ft, lengths)
    sent_at = np.zeros(most + SLOTS_AT_ONCE, np.int64)
    run = compiled(many_slots)
    first, begin = 0, slots - watched
    while first < slots or (state.delivered[begin:slots] < sent_at[begin:slots]).any():
        if first >= most or state.room < ft.hosts * SLOTS_AT_ONCE:
            raise RuntimeError(f"queues grow without bound at load {load_fraction}")
        limit = begin if first < begin else slots if first < slots else most + SLOTS_AT_ONCE
        count = min(SLOTS_AT_ONCE, limit - first)
        sent = derangements(rng, ft.hosts, count)
        sent[rng.random(sent.shape) >= load_fraction] = -1
        sent_at[first : first + count] = (sent >= 0).sum(axis=1)
        draws = rng.integers(1 << 32, size=(count, ft.links + ft.hosts, DRAWS))
        into = seen if begin <= first < slots else unwatched
        run(net, state, first, sent, rng.integers(ft.links, size=count), draws, rules, into)
        first += count
    sums, arrived = state.latency[begin:slots], state.delivered[begin:slots]
    some = arrived > 0
    return seen, Latencies(sums[some] / arrived[some], state.worst[begin:slots][some])
