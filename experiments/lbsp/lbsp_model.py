"""The slotted model of LBSP's section 5.2: queues of the upward hops of a k-ary fat-tree, and of
its core switches.

In a slot every link carries one packet, into the queue that it leaves by; then it is watched.  Only
what waits at edge and aggregation switches for uplinks, and at core switches, is modelled: those
are the hops of figure 9.

Ours, where the text leaves it open.  Each edge switch, not each pod, gets traffic of load rho on
each of its input ports: in a slot, with probability rho, one of its d = k/2 hosts, drawn at random,
begins to send d consecutive packets (the paper: four, with d = 4) to the host that the permutation
gives it.  The packets of a burst arrive one a slot, as a link carries them, or all at once
(`at_once`).  Aggregation switches that choose alike learn of each other's states a slot later.

Which link group takes a packet is decided by the functions of daemons/routing/, as in the daemons
and the data plane.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from weft.daemons.lbsp.routing import group_in_state, next_state
from weft.daemons.routing.selection import in_turn
from weft.experiments.engines.arrays import Ints
from weft.experiments.engines.compiled import compiled
from weft.experiments.engines.workloads import permutation

GROUPS = 2  # the states are those of two


class Conditions(NamedTuple):
    """d = k/2.  states: 1 if crowded groups give packets away.

    Thresholds in packets and per cent, of edge and of aggregation switches (5 and 1.5 times, 20 and
    2 times in the paper).
    """

    d: int
    states: int
    at_once: int
    edge_packets: int
    edge_percent: int
    above_packets: int
    above_percent: int


class PortQueues(NamedTuple):
    """Rings of destinations, a row for each port: where each begins, and how many wait."""

    ring: Ints
    first: Ints
    length: Ints


class FabricQueues(NamedTuple):
    """hosts: packets that each has yet to send.  edge, above: queues of uplinks.  core: how many
    wait at each port.
    turns: of each link group of an edge switch, then of an aggregation switch.  state, want: of the
        same switches."""

    hosts: Ints
    edge: PortQueues
    above: PortQueues
    core: Ints
    turns: Ints
    state: Ints
    want: Ints


class QueueSums(NamedTuple):
    """Sums over slots and ports of what waits at each hop.

    Sums over slots and switches of how far the mean queues of the two link groups lie apart, for
    the first two hops; changes of state, likewise.
    """

    waiting: Ints
    apart: NDArray[np.float64]
    changes: Ints


def empty(d: int, most: int) -> FabricQueues:
    """A fabric without packets, whose queues have room for `most` each."""
    switches = 2 * d * d

    def queues() -> PortQueues:
        ports = switches * d
        return PortQueues(
            np.zeros((ports, most), np.int64), np.zeros(ports, np.int64), np.zeros(ports, np.int64)
        )

    both = 2 * switches
    return FabricQueues(
        np.zeros(switches * d, np.int64), queues(), queues(), np.zeros((d * d, 2 * d), np.int64),
        np.zeros((both, GROUPS), np.int64), np.zeros(both, np.int64), np.zeros(both, np.int64),
    )  # fmt: skip


def put(queues: PortQueues, port: int, destination: int) -> None:
    """A packet joins a queue; it must have room."""
    most = queues.ring.shape[1]
    queues.ring[port, (queues.first[port] + queues.length[port]) % most] = destination
    queues.length[port] += 1


def take(queues: PortQueues, port: int) -> int:
    """The destination of the packet that leaves a queue, -1 if there is none."""
    if queues.length[port] == 0:
        return -1
    destination: int = queues.ring[port, queues.first[port]]
    queues.first[port] = (queues.first[port] + 1) % queues.ring.shape[1]
    queues.length[port] -= 1
    return destination


def choose(on: Conditions, fabric: FabricQueues, switch: int, own: int, input_port: int) -> int:
    """The uplink of `switch` for a packet whose destination's own link group is `own`."""
    group = group_in_state(fabric.state[switch], own, input_port)
    uplink = in_turn(group, fabric.turns[switch, group], on.d, GROUPS)
    fabric.turns[switch, group] += 1
    return uplink


def at_edge(on: Conditions, fabric: FabricQueues, host: int, destination: int) -> None:
    """A packet of `host` reaches its edge switch."""
    switch = host // on.d
    if destination // on.d != switch:
        uplink = choose(on, fabric, switch, destination % GROUPS, host % on.d)
        put(fabric.edge, switch * on.d + uplink, destination)


def at_aggregation(
    on: Conditions, fabric: FabricQueues, edge: int, number: int, destination: int
) -> None:
    """A packet from edge switch `edge` reaches the aggregation switch of that number in its pod."""
    pod = edge // on.d
    if destination // (on.d * on.d) != pod:
        switch = pod * on.d + number
        own = destination // GROUPS % GROUPS
        uplink = choose(on, fabric, 2 * on.d * on.d + switch, own, edge % on.d)
        put(fabric.above, switch * on.d + uplink, destination)


def crowd(length: Ints, first: int, d: int, group: int) -> int:
    """What waits at the ports of a link group, those of the switch beginning at `first`, on
    average, rounded down.
    """
    total = 0
    for port in range(group, d, GROUPS):
        total += length[first + port]
    return total // (d // GROUPS)


def change_states(on: Conditions, fabric: FabricQueues, seen: QueueSums) -> None:
    """Every switch looks at its queues.

    Aggregation switches take what those that choose alike said a slot ago.
    """
    switches = 2 * on.d * on.d
    for switch in range(switches):
        pod, number = switch // on.d, switch % on.d
        wants_one = wants_two = 0
        for other in range(number % GROUPS, on.d, GROUPS):
            want = fabric.want[switches + pod * on.d + other]
            wants_one += want == 1
            wants_two += want == 2
        agreed = 1 if wants_one and not wants_two else 2 if wants_two and not wants_one else 0
        seen.changes[1] += agreed != fabric.state[switches + switch]
        fabric.state[switches + switch] = agreed
    for switch in range(switches):
        lengths, first = fabric.edge.length, switch * on.d
        was = fabric.state[switch]
        two = (crowd(lengths, first, on.d, 0), crowd(lengths, first, on.d, 1))
        fabric.state[switch] = next_state(was, two, on.edge_packets, on.edge_percent)
        seen.changes[0] += was != fabric.state[switch]
        lengths = fabric.above.length
        two = (crowd(lengths, first, on.d, 0), crowd(lengths, first, on.d, 1))
        at = switches + switch
        fabric.want[at] = next_state(fabric.want[at], two, on.above_packets, on.above_percent)


def watch(on: Conditions, fabric: FabricQueues, seen: QueueSums) -> None:
    """Add what waits now."""
    for hop in range(2):
        lengths = fabric.edge.length if hop == 0 else fabric.above.length
        for switch in range(2 * on.d * on.d):
            by_group = np.zeros(GROUPS)
            for port in range(on.d):
                seen.waiting[hop] += lengths[switch * on.d + port]
                by_group[port % GROUPS] += lengths[switch * on.d + port]
            seen.apart[hop] += abs(by_group[0] - by_group[1]) * GROUPS / on.d
    seen.waiting[2] += fabric.core.sum()


def one_slot(on: Conditions, fabric: FabricQueues, to: Ints, begins: Ints, seen: QueueSums) -> None:
    """One slot: links carry from the core down to the hosts, so that no packet makes two hops.

    to: for each host its destination.  begins: for each edge switch the host that begins a burst,
        -1 for none.
    """
    d = on.d
    for core in range(d * d):
        for pod in range(2 * d):
            fabric.core[core, pod] -= fabric.core[core, pod] > 0
    for port in range(2 * d * d * d):
        destination = take(fabric.above, port)
        if destination >= 0:
            number, uplink = port // d % d, port % d
            fabric.core[uplink * d + number, destination // (d * d)] += 1
    for port in range(2 * d * d * d):
        destination = take(fabric.edge, port)
        if destination >= 0:
            at_aggregation(on, fabric, port // d, port % d, destination)
    for edge in range(2 * d * d):
        if begins[edge] >= 0:
            fabric.hosts[begins[edge]] += d
    for host in range(2 * d * d * d):
        arriving = fabric.hosts[host]
        if arriving > 1 and not on.at_once:
            arriving = 1
        fabric.hosts[host] -= arriving
        for _ in range(arriving):
            at_edge(on, fabric, host, to[host])
    if on.states:
        change_states(on, fabric, seen)
    watch(on, fabric, seen)


def many_slots(
    on: Conditions, fabric: FabricQueues, to: Ints, begins: Ints, seen: QueueSums
) -> None:
    """Slot after slot; `begins` has a row for each."""
    for slot in range(begins.shape[0]):
        one_slot(on, fabric, to, begins[slot], seen)


def simulate(
    on: Conditions, load_fraction: float, *, slots: int, patterns: int, rng: Generator
) -> QueueSums:
    """`slots` slots for each of `patterns` random permutations, from an empty fabric each time.

    Means of Seen's sums are over all of them.
    """
    d = on.d
    seen = QueueSums(np.zeros(3, np.int64), np.zeros(2), np.zeros(2, np.int64))
    run = compiled(many_slots)
    for _ in range(patterns):
        to, begins = traffic(d, load_fraction, slots, rng)
        run(on, empty(d, d * d * slots), to, begins, seen)
    return seen


def traffic(d: int, load_fraction: float, slots: int, rng: Generator) -> tuple[Ints, Ints]:
    """One pattern: for each host its destination, and for each slot and edge switch the host that
    begins a burst.
    """
    edges = 2 * d * d
    to = np.zeros(edges * d, np.int64)
    for src, dst in permutation(rng, edges * d):
        to[src] = dst
    begins = np.arange(edges) * d + rng.integers(d, size=(slots, edges))
    begins[rng.random((slots, edges)) >= load_fraction] = -1
    return to, begins


def paced(d: int, to: Ints, begins: Ints) -> Ints:
    """The same as packets: for each slot and host where it sends one, -1 for none."""
    left = np.zeros(len(to), np.int64)
    sent = np.full((len(begins), len(to)), -1)
    for slot, row in enumerate(begins):
        left[row[row >= 0]] += d
        sent[slot, left > 0] = to[left > 0]
        left[left > 0] -= 1
    return sent
