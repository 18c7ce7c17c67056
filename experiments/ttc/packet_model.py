"""TTC's packet model (section 4.2): in each slot each link carries a packet from its queue."""

from __future__ import annotations

from typing import NamedTuple

from numpy.random import Generator

from weft.daemons.core.compiled import allocates_nothing, compiled
from weft.experiments.engines.arrays import Floats, Ints, int_zeros
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


QUEUE_COLUMNS = {
    "*_mean_queue_packets": (
        "mean queue of a port of that layer of links, since the first slot or since TCP's warm-up"
    ),
    "*_max_queue_packets": "longest queue of a port of that layer of links",
}


class SlottedState(NamedTuple):
    """The network between two slots.

    What counts is an array of one element, so that it can change in place.

    dst: destination of each packet.
    born: slot in which each packet was sent.
    behind: packet behind each in its queue.
    strayed: how often each packet was redirected.
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
        """Return how many more packets fit."""
        return int(len(self.dst) - self.fresh[0] + self.free_count[0])


def empty(ft: LayeredTreeShape, *, slots: int, packets: int) -> SlottedState:
    """Return a network without packets, with room for `packets` at once and `slots` slots."""
    return SlottedState(
        dst=int_zeros(packets),
        born=int_zeros(packets),
        behind=int_zeros(packets),
        strayed=int_zeros(packets),
        head=int_zeros(ft.links),
        tail=int_zeros(ft.links),
        length=int_zeros(ft.links),
        free=int_zeros(packets),
        free_count=int_zeros(1),
        fresh=int_zeros(1),
        moving=int_zeros(ft.links),
        delivered=int_zeros(slots),
        latency=int_zeros(slots),
        worst=int_zeros(slots),
    )


class Watched(NamedTuple):
    """Queue lengths of each layer of links, and choices, over the watched slots.

    total: sum over links and slots.
    largest: the longest.
    histogram: slots times links with each length, the last being that length or more; shape
        (layers, lengths).
    """

    total: Ints
    largest: Ints
    histogram: Ints
    choices: UpwardChoices


def nothing_watched(ft: LayeredTreeShape, lengths: int) -> Watched:
    """Return sums at zero."""
    layers = len(ft.layers)
    largest, total = int_zeros(layers), int_zeros(layers)
    return Watched(total, largest, int_zeros(layers, lengths), no_choices(ft))


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
            choices.default_over_top[0] += state.strayed[packet] == 0
    else:
        first, default = net.first_up[switch], net.digit[layer, t]
        up = choose(state.length[first : first + net.d], default, draws, rules)
        choices.decisions[layer] += 1
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
    """Count a packet that has reached its destination in `slot`."""
    born = state.born[packet]
    latency = slot - born + 1
    state.delivered[born] += 1
    state.latency[born] += latency
    state.worst[born] = max(state.worst[born], latency)
    state.free[state.free_count[0]] = packet
    state.free_count[0] += 1


@allocates_nothing
def send(state: SlottedState, dst: int, slot: int) -> int:
    """Create a packet to `dst`; return its number."""
    if state.free_count[0]:
        state.free_count[0] -= 1
        packet: int = state.free[state.free_count[0]]
    else:
        packet = state.fresh[0]
        state.fresh[0] += 1
    state.dst[packet], state.born[packet], state.strayed[packet] = dst, slot, 0
    return packet


class SlotDraws(NamedTuple):
    """Random draws for slots, a row for each.

    sent: for each host the destination of its packet, or -1.
    starts: the link whose packet chooses first.
    words: shape (slots, links + hosts, 2), 32 bits each.
    """

    sent: Ints
    starts: Ints
    words: Ints


@allocates_nothing
def one_slot(
    net: FatTreeLinks,
    state: SlottedState,
    slot: int,
    drawn: SlotDraws,
    row: int,
    rules: SchemeRules,
    choices: UpwardChoices,
) -> None:
    """Run one slot, `row` of `drawn`: every link and host send a packet, if they have one."""
    sent, start, draws = drawn.sent[row], drawn.starts[row], drawn.words[row]
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
    drawn: SlotDraws,
    rules: SchemeRules,
    watched: Watched,
) -> None:
    """Run the slots `drawn`, numbered from `first`, and add their queue lengths."""
    for row in range(len(drawn.starts)):
        one_slot(net, state, first + row, drawn, row, rules, watched.choices)
        watch(state, watched)


class Latencies(NamedTuple):
    """Mean and largest latency of the packets sent in each watched slot, in slots."""

    mean: Floats
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
    """Run `slots` slots of section 4.2, and on until the packets of the last `watched` arrived.

    In each slot a random permutation of the hosts is drawn, and each host sends with probability
    `load_fraction`.

    lengths: of the histograms of queue lengths.

    Raises RuntimeError if queues grow without bound.
    """
    most, begin = 20 * slots, slots - watched
    net = links(ft)
    state = empty(ft, slots=most + SLOTS_AT_ONCE, packets=PACKETS_OF_A_LINK * ft.links)
    sums = nothing_watched(ft, lengths)
    packets_of_slot = int_zeros(most + SLOTS_AT_ONCE)
    first = 0
    while first < slots or are_missing(state, packets_of_slot, begin, slots):
        if first >= most or is_full(ft, state):
            raise RuntimeError(f"queues grow without bound at load {load_fraction}")
        count = min(SLOTS_AT_ONCE, next_end(first, begin, slots) - first)
        sent = packets(rng, ft.hosts, count, load_fraction)
        packets_of_slot[first : first + count] = (sent >= 0).sum(axis=1)
        into = sums if begin <= first < slots else nothing_watched(ft, lengths)
        drawn = slot_draws(rng, ft, sent)
        compiled(many_slots)(net, state, first, drawn, rules, into)
        first += count
    return sums, latencies(state, begin, slots)


def is_full(ft: LayeredTreeShape, state: SlottedState) -> bool:
    """Return whether the packets of the next slots might not fit."""
    return state.room < ft.hosts * SLOTS_AT_ONCE


def are_missing(state: SlottedState, packets_of_slot: Ints, begin: int, end: int) -> bool:
    """Return whether packets that were sent in slots [begin, end) have not arrived."""
    return bool((state.delivered[begin:end] < packets_of_slot[begin:end]).any())


def slot_draws(rng: Generator, ft: LayeredTreeShape, sent: Ints) -> SlotDraws:
    """Return random draws for slots in which hosts send the packets `sent`."""
    words = rng.integers(1 << 32, size=(len(sent), ft.links + ft.hosts, DRAWS))
    return SlotDraws(sent, rng.integers(ft.links, size=len(sent)), words)


def next_end(slot: int, begin: int, slots: int) -> int:
    """Return the slot at which watching begins or ends next; one far away after both."""
    return next((end for end in (begin, slots) if slot < end), slot + SLOTS_AT_ONCE)


def packets(rng: Generator, hosts: int, slots: int, load_fraction: float) -> Ints:
    """Return for each slot and host the destination of its packet, or -1 for none."""
    sent = derangements(rng, hosts, slots)
    sent[rng.random(sent.shape) >= load_fraction] = -1
    return sent


def latencies(state: SlottedState, begin: int, end: int) -> Latencies:
    """Return the latencies of the packets that were sent in slots [begin, end)."""
    sums, arrived = state.latency[begin:end], state.delivered[begin:end]
    some = arrived > 0
    return Latencies(sums[some] / arrived[some], state.worst[begin:end][some])
