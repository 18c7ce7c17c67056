"""The two models of TTC's evaluation (section 4) on FT(n,d): flows that get paths, and packets in slotted time.

Everything is integers and arrays, and random numbers are arguments, so the same source runs as plain Python in a test
and as machine code over 200 repetitions.  Which port is taken is decided by the functions of
daemons/routing/selection.py.

Links are numbered 0 .. (2n-1) N - 1, N = 2 d^n being the hosts: the link between switch s of layer l and the switch at
its up-port u is (l-1) N + s d + u on the way up and (n-1 + l-1) N + s d + u on the way down, and the one to host t is
(2n-2) N + t.  So links [i N, (i+1) N) are a layer, first those upwards, then those downwards, then the hosts'.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from daemons.routing.load_balancing import Rule, Scheme
from daemons.routing.selection import below, d_mod_k, drill, shortest, ttc
from experiments.graph_engine.compiled import compiled
from experiments.graph_engine.workloads import derangements

Ints = NDArray[np.int64]

D_MOD_K, RANDOM, DRILL = int(Rule.D_MOD_K), int(Rule.RANDOM), int(Rule.DRILL)
TTC, SHORTEST = int(Rule.TTC), int(Rule.SHORTEST)
DRAWS = 2  # random words that a decision takes at most
SLOTS_AT_ONCE = 64  # for which random numbers are drawn together


class Shape(NamedTuple):
    """FT(n,d): n layers of 2d-port switches."""

    n: int
    d: int

    @property
    def hosts(self) -> int:
        return hosts_of(self)

    @property
    def layers(self) -> list[str]:
        """What each layer of links is called, in the order of their numbers."""
        up = [f"up{layer}" for layer in range(1, self.n)]
        return up + [f"down{layer}" for layer in range(1, self.n)] + ["hosts"]


def hosts_of(ft: Shape) -> int:
    """N, which is also the number of links in a layer."""
    hosts: int = 2 * ft.d**ft.n
    return hosts


class Rules(NamedTuple):
    """A scheme as the models take it."""

    rule: int
    delta: int
    ties_redirect: int


def rules(scheme: Scheme) -> Rules:
    """`scheme` for the models; ValueError for one that needs what they lack, such as time or a flow's history."""
    rule = scheme.rule
    if rule in (Rule.FLOW_HASH, Rule.KERNEL):
        rule = Rule.RANDOM  # a flow is assigned once, by a hash that is as good as random
    if rule not in (Rule.D_MOD_K, Rule.RANDOM, Rule.DRILL, Rule.TTC, Rule.SHORTEST) or scheme["m"] or scheme["load"]:
        raise ValueError(
            f"the models of TTC have dmodk, vlb, rps, micro, ttc and jsq, all by packets, and not {rule.name}"
        )
    if scheme["ecn"]:
        raise ValueError(f"the models of TTC mark no packets: leave ecn={scheme['ecn']} out")
    if rule is Rule.DRILL and scheme["d"] != DRAWS:
        raise ValueError(f"the models of TTC compare two random ports, not {scheme['d']}")
    return Rules(int(rule), scheme["delta"], scheme["tie"])


def choose(loads: Ints, host: int, draws: Ints, rules: Rules) -> int:
    """The up-port that takes a packet to the host with the number `host` as D-mod-k sees it, by the ports' `loads`."""
    n = len(loads)
    if rules.rule == D_MOD_K:
        return d_mod_k(host, n)
    if rules.rule == RANDOM:
        return below(draws[0], n)
    if rules.rule == DRILL:
        return drill(loads, n, draws[:DRAWS])
    if rules.rule == TTC:
        return ttc(loads, d_mod_k(host, n), draws[0], rules.delta, rules.ties_redirect)
    return shortest(loads, draws[0])


def upper(ft: Shape, s: int, layer: int, up: int) -> int:
    """The switch at up-port `up` of switch s of `layer` (TTC, eq. 1)."""
    place: int = ft.d ** (layer - 1)
    digit = s // place % (ft.d if layer < ft.n - 1 else 2 * ft.d)
    return s + (up - digit) * place


def lower(ft: Shape, s: int, layer: int, dst: int) -> int:
    """The switch of `layer` below s of the layer above, on the way to host `dst` (eq. 3)."""
    place: int = ft.d ** (layer - 1)
    radix = ft.d if layer < ft.n - 1 else 2 * ft.d
    return s + (dst // ft.d // place % radix - s // place % radix) * place


def is_below(ft: Shape, s: int, layer: int, dst: int) -> bool:
    """Whether host `dst` is beneath switch s of `layer`."""
    place: int = ft.d ** (layer - 1)
    return layer == ft.n or s // place == dst // ft.d // place


def up_links(ft: Shape, s: int, layer: int) -> int:
    """The first of the d links from switch s of `layer` upwards."""
    return (layer - 1) * hosts_of(ft) + s * ft.d


def down_link(ft: Shape, s: int, layer: int, dst: int) -> int:
    """The link from switch s of `layer` downwards to host `dst`."""
    hosts = hosts_of(ft)
    if layer == 1:
        return (2 * ft.n - 2) * hosts + dst
    up: int = s // ft.d ** (layer - 2) % ft.d  # the up-port that the lower switch would take to s
    return (ft.n - 1 + layer - 2) * hosts + lower(ft, s, layer - 1, dst) * ft.d + up


def assign(ft: Shape, src: Ints, dst: Ints, draws: Ints, rules: Rules) -> Ints:
    """Flows on each link when flow after flow is assigned, shape (links,): section 4.1.

    src, dst: shape (flows,).  draws: shape (flows, n-1, 2), 32 bits each.
    """
    load = np.zeros((2 * ft.n - 1) * hosts_of(ft), np.int64)
    for flow in range(len(src)):
        s, t, layer = src[flow] // ft.d, dst[flow], 1
        while not is_below(ft, s, layer, t):
            first = up_links(ft, s, layer)
            host = t // ft.d ** (layer - 1)
            up = choose(load[first : first + ft.d], host, draws[flow, layer - 1], rules)
            load[first + up] += 1
            s = upper(ft, s, layer, up)
            layer += 1
        while layer > 1:
            load[down_link(ft, s, layer, t)] += 1
            layer -= 1
            s = lower(ft, s, layer, t)
        load[down_link(ft, s, 1, t)] += 1
    return load


class State(NamedTuple):
    """The network between two slots; what counts is an array of one element, so that it can change in place.

    dst, born, behind: of each packet: its destination, the slot it was sent in, the packet behind it in its queue.
    head, tail, length: of each link's queue.
    free: packets that are not in the network, a stack of which free_count are there.
    moving: scratch, the packet that each link carries in this slot.
    delivered, latency, worst: of the packets sent in each slot: how many arrived, their latencies, summed and largest.
    """

    dst: Ints
    born: Ints
    behind: Ints
    head: Ints
    tail: Ints
    length: Ints
    free: Ints
    free_count: Ints
    moving: Ints
    delivered: Ints
    latency: Ints
    worst: Ints


def empty(ft: Shape, *, slots: int, packets: int) -> State:
    """A network without packets, with room for `packets` at once, to be run for `slots` slots."""
    links = (2 * ft.n - 1) * ft.hosts

    def zeros(count: int) -> Ints:
        return np.zeros(count, np.int64)

    return State(
        dst=zeros(packets), born=zeros(packets), behind=zeros(packets),
        head=zeros(links), tail=zeros(links), length=zeros(links),
        free=np.arange(packets), free_count=np.array([packets]), moving=zeros(links),
        delivered=zeros(slots), latency=zeros(slots), worst=zeros(slots),
    )  # fmt: skip


def enqueue(state: State, link: int, packet: int) -> None:
    """Put `packet` at the end of the queue of `link`."""
    if state.length[link] == 0:
        state.head[link] = packet
    else:
        state.behind[state.tail[link]] = packet
    state.tail[link] = packet
    state.length[link] += 1


def arrive(ft: Shape, state: State, packet: int, s: int, layer: int, draws: Ints, rules: Rules) -> None:
    """Let `packet` choose its queue at switch s of `layer`."""
    t = state.dst[packet]
    if is_below(ft, s, layer, t):
        enqueue(state, down_link(ft, s, layer, t), packet)
    else:
        first = up_links(ft, s, layer)
        up = choose(state.length[first : first + ft.d], t // ft.d ** (layer - 1), draws, rules)
        enqueue(state, first + up, packet)


def deliver(state: State, packet: int, slot: int) -> None:
    """`packet` has reached its destination in `slot`."""
    born = state.born[packet]
    latency = slot - born + 1
    state.delivered[born] += 1
    state.latency[born] += latency
    state.worst[born] = max(state.worst[born], latency)
    state.free[state.free_count[0]] = packet
    state.free_count[0] += 1


def one_slot(ft: Shape, state: State, slot: int, sent: Ints, start: int, draws: Ints, rules: Rules) -> None:
    """One slot of section 4.2: every link carries the packet at the head of its queue, and every host what it has.

    sent: for each host the destination of its packet, or -1.  start: the link whose packet chooses first.
    draws: shape (links + hosts, 2), 32 bits each.
    """
    hosts = hosts_of(ft)
    links = len(state.length)
    for link in range(links):
        state.moving[link] = -1
        if state.length[link]:
            state.moving[link] = state.head[link]
            state.head[link] = state.behind[state.head[link]]
            state.length[link] -= 1
    for i in range(links):
        link = (start + i) % links
        packet, layer, s, up = state.moving[link], link // hosts, link % hosts // ft.d, link % ft.d
        if packet < 0:
            continue
        if layer < ft.n - 1:
            arrive(ft, state, packet, upper(ft, s, layer + 1, up), layer + 2, draws[i], rules)
        elif layer < 2 * ft.n - 2:
            arrive(ft, state, packet, s, layer - (ft.n - 1) + 1, draws[i], rules)
        else:
            deliver(state, packet, slot)
    for host in range(hosts):
        if sent[host] >= 0:
            state.free_count[0] -= 1
            packet = state.free[state.free_count[0]]
            state.dst[packet], state.born[packet] = sent[host], slot
            arrive(ft, state, packet, host // ft.d, 1, draws[links + host], rules)


class Queues(NamedTuple):
    """Queue lengths of each layer, over the slots that were watched.

    total: sum over links and slots.  largest: the longest.  histogram: slots times links with each length, the last
    being that length or more; shape (layers, lengths).
    """

    total: Ints
    largest: Ints
    histogram: Ints


def watch(ft: Shape, state: State, queues: Queues) -> None:
    """Add the queue lengths of this slot."""
    hosts, most = hosts_of(ft), queues.histogram.shape[1] - 1
    for link in range(len(state.length)):
        layer, length = link // hosts, state.length[link]
        queues.total[layer] += length
        queues.largest[layer] = max(queues.largest[layer], length)
        queues.histogram[layer, min(length, most)] += 1


def many_slots(
    ft: Shape, state: State, first: int, sent: Ints, starts: Ints, draws: Ints, rules: Rules, queues: Queues
) -> None:
    """Slot after slot, from number `first`, with the queue lengths of all of them.

    sent, starts, draws: as for one_slot(), a row for each slot.
    """
    for i in range(len(starts)):
        one_slot(ft, state, first + i, sent[i], starts[i], draws[i], rules)
        watch(ft, state, queues)


class Latencies(NamedTuple):
    """Of the packets sent in each watched slot: their mean latency and the largest, in slots."""

    mean: NDArray[np.float64]
    worst: Ints


def simulate(
    ft: Shape, rules: Rules, load_fraction: float, *, slots: int, watched: int, lengths: int, rng: Generator
) -> tuple[Queues, Latencies]:
    """Section 4.2: run `slots` slots, the last `watched` of which are watched, and on until their packets have arrived.

    In each slot a random permutation of the hosts is drawn, and each host sends with probability `load_fraction`.
    lengths: of the histograms of queue lengths.  RuntimeError if queues grow without bound.
    """
    links = (2 * ft.n - 1) * ft.hosts
    most = 20 * slots
    state = empty(ft, slots=most + SLOTS_AT_ONCE, packets=100 * links)
    layers = 2 * ft.n - 1
    queues, unwatched = (
        Queues(np.zeros(layers, np.int64), np.zeros(layers, np.int64), np.zeros((layers, lengths), np.int64))
        for _ in "12"
    )
    sent_at = np.zeros(most + SLOTS_AT_ONCE, np.int64)
    run = compiled(many_slots)
    first, begin = 0, slots - watched
    while first < slots or (state.delivered[begin:slots] < sent_at[begin:slots]).any():
        if first >= most or state.free_count[0] < ft.hosts * SLOTS_AT_ONCE:
            raise RuntimeError(f"queues grow without bound at load {load_fraction}")
        count = min(
            SLOTS_AT_ONCE, begin - first if first < begin else slots - first if first < slots else SLOTS_AT_ONCE
        )
        sent = derangements(rng, ft.hosts, count)
        sent[rng.random(sent.shape) >= load_fraction] = -1
        sent_at[first : first + count] = (sent >= 0).sum(axis=1)
        draws = rng.integers(1 << 32, size=(count, links + ft.hosts, DRAWS))
        into = queues if begin <= first < slots else unwatched
        run(ft, state, first, sent, rng.integers(links, size=count), draws, rules, into)
        first += count
    sums, arrived = state.latency[begin:slots], state.delivered[begin:slots]
    some = arrived > 0
    return queues, Latencies(sums[some] / arrived[some], state.worst[begin:slots][some])
